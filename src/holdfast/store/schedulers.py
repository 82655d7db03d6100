"""What schedulers ask: runs to own, outcomes to deliver, timers to fire."""

from __future__ import annotations

import json
from collections.abc import Sequence

from holdfast.model import Lane, RunRow, SignalRow
from holdfast.store.answers import Answer, ClaimedRun, Undelivered
from holdfast.store.children import ended
from holdfast.store.claims import RunClaim
from holdfast.store.database import Part, Row, Session, StoreCall, look, statement, transaction
from holdfast.store.retries import inherited
from holdfast.store.rows import lane_of, outcome_of, run_of, step_of
from holdfast.store.verbs import Verb

LaneKey = tuple[str, tuple[str, ...], str | None, str]
"""A step's name, what it needs, the name of its undo, and what it depends on: its own name, if nothing else."""
HISTORIES_MAX = 100
"""Runs whose steps are read by one statement."""


class Schedulers(Part):
    async def claim_runs(
        self,
        node: str,
        workflows: Sequence[tuple[str, str]],
        limit: int,
        runs: Sequence[str] | None = None,
    ) -> list[ClaimedRun]:
        """Own up to `limit` runs: pending ones, and ownerless ones with something to deliver. By priority, then age. Only
        some of `runs`, where a node works on these alone. Fewer when those taken have much to replay."""
        claim = RunClaim(node, workflows, limit, runs, self._database.config.replay_slice_steps)

        async def take(session: Session) -> list[ClaimedRun]:
            return await _with_history(session, await session.claim_runs(claim))

        call = StoreCall(
            "claim_runs", ("node", "workflows", "limit", "runs"), (node, workflows, limit, runs), {}
        )
        return await self._database.claim(call, lambda session: session.any_runs(claim), take)

    @transaction
    async def claim_run(self, session: Session, node: str, run_id: str) -> ClaimedRun | None:
        """Own this run if nobody does (used to go on at once with a run one was asked to run)."""
        claimed = await _with_history(session, await session.rows(Verb.claim_run, node, run_id))
        return claimed[0] if claimed else None

    @look
    async def undelivered(self, session: Session, node: str, limit: int) -> Undelivered:
        """What others recorded for the runs this node owns, in the order in which it happened."""
        steps = [outcome_of(row) for row in await session.rows(Verb.undelivered_steps, node, limit)]
        signals = [SignalRow(*row) for row in await session.rows(Verb.undelivered_signals, node, limit)]
        steps.sort(key=lambda outcome: (outcome.at, outcome.run_id, outcome.n))
        signals.sort(key=lambda signal: signal.id)
        return Undelivered(steps, signals)

    async def fire_timers(self, limit: int) -> int:
        """Record due timers of runs that nobody owns as succeeded, so that the runs can be claimed; how many."""
        return await self._fire_timers(limit) if await self._any(Verb.due_timers, 1) else 0

    @statement
    async def _fire_timers(self, session: Session, limit: int) -> int:
        return await session.run(Verb.fire_timers, limit)

    async def answer_joins(self, limit: int) -> int:
        """Tell up to `limit` steps that wait for a run which is not their child, and which has ended, how it ended."""
        return await self._answer_joins(limit) if await self._any(Verb.due_joins, 1) else 0

    @transaction
    async def _answer_joins(self, session: Session, limit: int) -> int:
        due = await session.rows(Verb.due_joins, limit)
        told = [
            ended(run_id, (waiter, n), (state, output, error))
            for run_id, waiter, n, state, output, error in due
        ]
        await session.each(Verb.end_child_steps, told)
        await session.each(Verb.forget_joins, [(one.run_id, one.n) for one in told])
        return len(told)

    @look
    async def next_timer(self, session: Session) -> float | None:
        """When the earliest timer of an ownerless run comes due (store's clock)."""
        at: float | None = await session.value(Verb.next_timer)
        return at

    @transaction
    async def hold_run(self, session: Session, run_id: str, fence: int, note: str) -> Answer:
        """The owner holds its run: drift, or code that cannot be loaded."""
        if not await session.run(Verb.hold_run, run_id, fence, note):
            return Answer.FENCED
        await session.each(Verb.journal_add, [("scheduler", "hold", run_id, None, note)])
        await session.each(Verb.note_failures, [(run_id, 0)])
        return Answer.ACCEPTED

    @look
    async def lanes(self, session: Session) -> list[Lane]:
        return [lane_of(row) for row in await session.rows(Verb.lanes)]

    @look
    async def children(self, session: Session, run_id: str) -> list[RunRow]:
        return [run_of(row) for row in await session.rows(Verb.children, run_id)]

    @look
    async def child_histories(self, session: Session, run_id: str) -> list[ClaimedRun]:
        """The run's children with their steps, to plan how they are undone."""
        found = [ClaimedRun(run_of(row), [], []) for row in await session.rows(Verb.children, run_id)]
        await _read_steps(session, found)
        return found

    async def number_lanes(self, lanes: Sequence[LaneKey]) -> list[int]:
        """The number of each, made if new."""
        rows = [(name, json.dumps(needs), undo or "", depends) for name, needs, undo, depends in lanes]
        known = await self._lane_numbers(rows)
        missing = sorted(set(rows) - known.keys())
        if missing:
            await self._make_lanes(missing)
            known = await self._lane_numbers(rows)
        return [known[row] for row in rows]

    @look
    async def _lane_numbers(
        self, session: Session, rows: Sequence[tuple[str, str, str, str]]
    ) -> dict[tuple[str, ...], int]:
        return {
            tuple(lane): number
            for number, *lane in await session.all(Verb.lane_numbers, list(dict.fromkeys(rows)))
        }

    @statement
    async def _make_lanes(self, session: Session, rows: Sequence[Row]) -> int:
        return await session.each(Verb.make_lanes, rows)

    @look
    async def lost_runs(self, session: Session, node: str, held: Sequence[tuple[str, int]]) -> list[str]:
        """Ids among (run, fence) that this node no longer owns."""
        return [row[0] for row in await session.all(Verb.lost_runs, held, node)]


async def _with_history(session: Session, rows: Sequence[Row]) -> list[ClaimedRun]:
    """Claimed runs with everything needed to replay them."""
    claimed = [ClaimedRun(run_of(row), [], []) for row in rows]
    if not claimed:
        return claimed
    # A run that never had an owner before has no history to read, though signals may already wait for it.
    await _read_steps(session, [one for one in claimed if one.run.fence > 1 or one.run.retry_of is not None])
    by_id = {one.run.id: one for one in claimed}
    for row in await session.rows(Verb.history_signals, list(by_id)):
        signal = SignalRow(*row)
        by_id[signal.run_id].signals.append(signal)
    if retried := [one.run.id for one in claimed if one.run.retry_of is not None]:
        for run_id, kept in (await inherited(session, retried)).items():
            by_id[run_id].inherited = kept
    return claimed


async def _read_steps(session: Session, runs: Sequence[ClaimedRun]) -> None:
    for start in range(0, len(runs), HISTORIES_MAX):
        part = {one.run.id: one for one in runs[start : start + HISTORIES_MAX]}
        for row in await session.rows(Verb.history_steps, list(part)):
            step = step_of(row)
            part[step.run_id].steps.append(step)
