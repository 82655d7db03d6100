"""What agents ask, and pools of agents: steps to execute, whether they still have them, and how much waits."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model import Lane
from holdfast.store.answers import Backlog, ClaimedStep
from holdfast.store.claims import LOSSES_NEVER, StepClaim
from holdfast.store.database import Part, Session, StoreCall, look
from holdfast.store.rows import lane_of
from holdfast.store.verbs import Verb


class Lanes(Part):
    @look
    async def lanes(self, session: Session) -> list[Lane]:
        return [lane_of(row) for row in await session.rows(Verb.lanes)]

    @look
    async def backlog(self, session: Session, lanes: Sequence[int], limit: int) -> Backlog:
        """What is ready and due in these lanes, of runs that go on, counted up to `limit` in each lane and priority."""
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
    ) -> list[ClaimedStep]:
        """Take ready steps of these lanes by priority, then age. Counts the attempt, raises the fence. None of a lane whose
        breaker is not closed, and none that is held. Of suspects, which lost their agent `suspect_losses` times or more, at
        most so many; with none, those behind them come all the same. Only steps of `runs`, where a node works on these
        alone."""
        claim = StepClaim(node, lanes, limit, suspect_losses, suspects, runs)

        async def take(session: Session) -> list[ClaimedStep]:
            return [ClaimedStep(*row) for row in await session.claim_steps(claim)]

        call = StoreCall("claim_steps", ("node", "lanes", "limit"), (node, lanes, limit), {})
        return await self._database.claim(call, lambda session: session.any_steps(claim), take)

    @look
    async def lost_steps(
        self, session: Session, held: Sequence[tuple[str, int, int]]
    ) -> list[tuple[str, int]]:
        """(run, n) among (run, n, fence) that went on without their agent: cancelled, timed out or reclaimed."""
        return [(row[0], row[1]) for row in await session.all(Verb.lost_steps, held)]

    @look
    async def next_ready(
        self, session: Session, lanes: Sequence[int], runs: Sequence[str] | None = None
    ) -> float | None:
        """When the earliest backing-off step of these lanes becomes claimable."""
        at: float | None
        if runs is None:
            at = await session.value(Verb.next_ready, list(lanes))
        else:
            at = await session.value(Verb.next_ready_of, list(lanes), list(runs))
        return at
