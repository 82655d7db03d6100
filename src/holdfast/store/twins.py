"""Twins. The leader makes them and sweeps up those that nobody needs any more. Agents claim and end them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.actor import entry
from holdfast.model import LogPart, Twin, TwinState
from holdfast.store.answers import Answer, ClaimedStep
from holdfast.store.batch import WriteBatch
from holdfast.store.database import Noun, Session, StoreCall, leading, look, statement, transaction
from holdfast.store.rows import twin_of
from holdfast.store.verbs import Verb


def outran_by(node: str) -> str:
    """Return the error of an attempt that was outrun."""
    fields = {
        "type": "holdfast.errors.StepLost",
        "message": f"its twin on agent {node} was first",
        "ending": "outrun",
    }
    return msgspec.json.encode(fields).decode()


async def take_twins(session: Session, node: str, lanes: Sequence[int], limit: int) -> list[ClaimedStep]:
    """Take twins of steps that run at other nodes."""
    ready = await session.rows(Verb.ready_twins, node, lanes, limit)
    await session.each(Verb.claim_twins, ready, node)
    return [ClaimedStep(*row) for row in await session.all(Verb.twin_steps, ready)]


class AgentTwins(Noun):
    async def claim_twins(self, node: str, lanes: Sequence[int], limit: int) -> list[ClaimedStep]:
        """Claim twins of steps that run at other agents. Return the steps, each with the fence of its twin."""
        wanted = (node, list(lanes), limit)

        async def is_any(session: Session) -> bool:
            return await session.row(Verb.ready_twins, *wanted) is not None

        async def take(session: Session) -> list[ClaimedStep]:
            return await take_twins(session, *wanted)

        call = StoreCall("claim_twins", ("node", "lanes", "limit"), wanted, {})
        return await self._database.claim(call, is_any, take)

    @look
    async def lost_twins(
        self, session: Session, node: str, claimed: Sequence[tuple[str, int, int]]
    ) -> list[tuple[str, int]]:
        """Return (run, n) of those of these twins (run, n, fence) that nobody needs any more. Their step has ended, or
        the leader has swept them up."""
        return [(row[0], row[1]) for row in await session.all(Verb.lost_twins, claimed, node)]

    @transaction
    async def end_twin(
        self,
        session: Session,
        node: str,
        twin: tuple[str, int, int],
        state: TwinState,
        output: bytes | None,
        outran: str,
        *,
        logs: Sequence[LogPart] = (),
    ) -> Answer:
        """End a twin (run, n, fence). If it won, its output becomes the step's outcome in the same transaction, and the
        attempt that it outran is kept with the error `outran`. Return FENCED if the step had ended, or if the leader
        has swept up the twin."""
        run_id, n, _ = twin
        ended = await session.row(Verb.end_twin, *twin, node, state)
        if ended is None:
            won = await session.row(Verb.twin_won_before, *twin, node) is not None
            return Answer.DUPLICATE if won and state is TwinState.WON else Answer.FENCED
        if logs:
            batch = WriteBatch(node, ())
            batch.add_logs(run_id, n, logs)
            await session.keep_logs(batch.logged)
        if state is not TwinState.WON:
            return Answer.ACCEPTED
        await session.run(Verb.keep_outrun, run_id, n, outran)
        if await session.run(Verb.outrun_step, run_id, n, output, node, ended[0]):
            return Answer.ACCEPTED
        await session.run(Verb.outrun_twin, run_id, n)
        return Answer.FENCED

    @transaction
    async def bar_twin(self, session: Session, run_id: str, n: int) -> Twin:
        """Bar a step that is about to fail from getting a twin, or its twin from beginning. Return the twin as it is
        now. It has begun if it has `started_at`, and it may still win unless it has `ended_at`."""
        await session.run(Verb.bar_twin, run_id, n)
        row = await session.row(Verb.twin, run_id, n)
        assert row is not None
        return twin_of(row)

    @statement
    async def stop_twin(self, session: Session, run_id: str, n: int) -> None:
        """End the step's twin, whichever agent has it."""
        await session.run(Verb.stop_twin, run_id, n)


class LeaderTwins(Noun):
    @leading([])
    async def make_twins(
        self, session: Session, steps: Sequence[tuple[str, int, int]]
    ) -> list[tuple[str, int]]:
        """Give a twin to those of these running steps (run, n, fence) that have not changed and never had one. Return
        (run, n) of each of them."""
        made = [(row[0], row[1]) for row in await session.all(Verb.make_twins, steps)]
        entries = [entry("supervisor", "hedge", run_id, n, "the step got a twin") for run_id, n in made]
        await session.each(Verb.journal_add, entries)
        return made

    async def sweep_twins(self, epoch: int, limit: int) -> int:
        """End up to `limit` twins that nobody needs any more, because their step has ended or their agent is gone.
        Return how many."""
        return await self._sweep_twins(epoch, limit) if await self._any(Verb.idle_twins, 1) else 0

    @leading(0)
    async def _sweep_twins(self, session: Session, limit: int) -> int:
        return await session.each(Verb.sweep_twins, await session.rows(Verb.idle_twins, limit))


class Twins(AgentTwins, LeaderTwins):
    @look
    async def twins(self, session: Session, run_id: str) -> list[Twin]:
        """Return the twins of a run's steps."""
        return [twin_of(row) for row in await session.rows(Verb.twins, run_id)]
