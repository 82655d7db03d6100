"""What agents and pools of agents ask: steps to execute, steps that an agent has lost, and how much work waits."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model import Lane
from holdfast.store.answers import Backlog, ClaimedStep
from holdfast.store.claims import LOSSES_NEVER, StepClaim
from holdfast.store.database import Noun, Session, StoreCall, look
from holdfast.store.rows import lane_of, seconds_left
from holdfast.store.verbs import Verb
from holdfast.store.walk import KEYS, Turns
from holdfast.traces import trace_of


class Lanes(Noun):
    @look
    async def lanes(self, session: Session) -> list[Lane]:
        return [lane_of(row) for row in await session.rows(Verb.lanes)]

    @look
    async def any_queue(self, session: Session) -> bool:
        """True if there is any queue. Without one, all claims are for queue 0."""
        return await session.row(Verb.any_queue) is not None

    @look
    async def backlog(self, session: Session, lanes: Sequence[int], limit: int) -> Backlog:
        """Count the steps that are ready and due in these lanes and whose runs go on. At most `limit` steps of each
        lane and priority are counted."""
        row = await session.row(Verb.backlog, list(lanes), limit)
        assert row is not None
        return Backlog(*row)


class Agents(Lanes):
    async def claim_steps(
        self,
        node: str,
        lanes: Sequence[int],
        limit: int,
        *,
        suspect_losses: int = LOSSES_NEVER,
        suspects: int = 0,
        runs: Sequence[str] | None = None,
        turns: Turns | None = None,
    ) -> list[ClaimedStep]:
        """Claim up to `limit` ready steps of these lanes, by priority, then age. A claim counts as an attempt and
        raises the fence. Steps behind a breaker that is not closed, or behind a hold, are not claimed.

        A suspect is a step that has lost its agent `suspect_losses` times or more. At most `suspects` of them are
        claimed, and the others do not keep the steps behind them from being claimed. A node that works only on certain
        runs names them in `runs`.

        Without `turns`, only steps of queue 0 are claimed. With them, the claim goes from queue to queue.
        """
        claim = StepClaim(node, lanes, limit, suspect_losses, suspects, runs, turns=turns)

        async def take(session: Session) -> list[ClaimedStep]:
            return [ClaimedStep(*row) for row in await session.claim_steps(claim)]

        age_s = None if turns is None else turns.age_s
        call = StoreCall(
            "claim_steps",
            ("node", "lanes", "limit", "runs", "walks", "age_s"),
            (node, lanes, limit, runs, turns is not None, age_s),
            {},
        )
        return await self._database.claim(call, lambda session: session.any_steps(claim), take)

    @look
    async def run_traces(self, session: Session, run_ids: Sequence[str]) -> dict[str, str]:
        """Return the traces of those of these runs that have one."""
        rows = await session.rows(Verb.run_traces, list(run_ids))
        return {row[0]: found for row in rows if (found := trace_of(row[1])) is not None}

    @look
    async def waiting_queues(self, session: Session, lanes: Sequence[int]) -> dict[int, int]:
        """Return some queues that have something due in these lanes, with their weights."""
        return {row[0]: row[1] for row in await session.rows(Verb.waiting_queues, list(lanes), KEYS)}

    @look
    async def lost_steps(
        self, session: Session, claimed: Sequence[tuple[str, int, int]]
    ) -> list[tuple[str, int]]:
        """Return (run, n) of those of these steps (run, n, fence) that the agent no longer has. They were cancelled,
        timed out or reclaimed."""
        return [(row[0], row[1]) for row in await session.all(Verb.lost_steps, claimed)]

    @look
    async def next_ready(
        self, session: Session, lanes: Sequence[int], runs: Sequence[str] | None = None
    ) -> float | None:
        """Return in how many seconds the first step of these lanes that backs off becomes ready to claim."""
        if runs is None:
            row = await session.row(Verb.next_ready, list(lanes))
        else:
            row = await session.row(Verb.next_ready_of, list(lanes), list(runs))
        return seconds_left(row)
