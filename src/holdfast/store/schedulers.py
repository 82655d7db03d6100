"""What schedulers do: claim runs, read outcomes to deliver, fire timers, and number lanes."""

from __future__ import annotations

import json
from collections.abc import Sequence

from holdfast.actor import entry
from holdfast.model import Lane, RunRow, SignalRow
from holdfast.queues import Queue
from holdfast.store.answers import Answer, ClaimedRun, Undelivered
from holdfast.store.children import ended
from holdfast.store.claims import RunClaim
from holdfast.store.database import Row, Session, StoreCall, look, statement, transaction
from holdfast.store.events import WaitEvents
from holdfast.store.gathers import fill_batches
from holdfast.store.retries import inherited
from holdfast.store.rows import lane_of, outcome_of, run_of, seconds_left, step_of
from holdfast.store.verbs import Verb
from holdfast.store.walk import Turns

LaneKey = tuple[str, tuple[str, ...], str | None, str]
"""A step's name, its needs, the name of its undo, and its dependency, which is its own name unless declared."""
HISTORIES_MAX = 100
"""For how many runs one statement reads the steps."""


class Schedulers(WaitEvents):
    async def claim_runs(
        self,
        node: str,
        workflows: Sequence[tuple[str, str]],
        limit: int,
        runs: Sequence[str] | None = None,
        turns: Turns | None = None,
    ) -> list[ClaimedRun]:
        """Claim up to `limit` runs, by priority, then age: pending runs, and runs without an owner that have something
        to deliver. Fewer are claimed if they have much to replay. A node that works only on certain runs names them in
        `runs`. Without `turns`, only pending runs of queue 0 are claimed. With them, the claim goes from queue to queue."""
        claim = RunClaim(node, workflows, limit, runs, self._database.config.replay_slice_steps, turns)

        async def take(session: Session) -> list[ClaimedRun]:
            return await _with_history(session, await session.claim_runs(claim))

        age_s = None if turns is None else turns.age_s
        call = StoreCall(
            "claim_runs",
            ("node", "workflows", "limit", "runs", "walks", "age_s"),
            (node, workflows, limit, runs, turns is not None, age_s),
            {},
        )
        return await self._database.claim(call, lambda session: session.any_runs(claim), take)

    @transaction
    async def claim_run(self, session: Session, node: str, run_id: str) -> ClaimedRun | None:
        """Claim this run if nobody owns it. A node uses this to go on at once with a run that it was asked for."""
        claimed = await _with_history(session, await session.rows(Verb.claim_run, node, run_id))
        return claimed[0] if claimed else None

    @look
    async def undelivered(self, session: Session, node: str, limit: int) -> Undelivered:
        """Return what others have recorded for the runs that this node owns, in the order in which it happened."""
        steps = [outcome_of(row) for row in await session.rows(Verb.undelivered_steps, node, limit)]
        signals = [SignalRow(*row) for row in await session.rows(Verb.undelivered_signals, node, limit)]
        steps.sort(key=lambda outcome: (outcome.at, outcome.run_id, outcome.n))
        signals.sort(key=lambda signal: signal.id)
        return Undelivered(steps, signals)

    async def fire_timers(self, limit: int) -> int:
        """Record due timers of runs that nobody owns as succeeded, so that the runs can be claimed. Return how many."""
        return await self._fire_timers(limit) if await self._any(Verb.due_timers, 1) else 0

    @statement
    async def _fire_timers(self, session: Session, limit: int) -> int:
        return await session.run(Verb.fire_timers, limit)

    async def answer_joins(self, limit: int) -> int:
        """End up to `limit` steps that have joined a run which has ended. Return how many."""
        return await self._answer_joins(limit) if await self._any(Verb.due_joins, 1) else 0

    @transaction
    async def _answer_joins(self, session: Session, limit: int) -> int:
        due = await session.rows(Verb.due_joins, limit)
        outcomes = [
            ended(run_id, (waiter, n), (state, output, error))
            for run_id, waiter, n, state, output, error in due
        ]
        await session.each(Verb.end_child_steps, outcomes)
        await session.each(Verb.forget_joins, [(one.run_id, one.n) for one in outcomes])
        return len(outcomes)

    @look
    async def next_timer(self, session: Session) -> float | None:
        """Return in how many seconds the next timer of a run without an owner is due. A negative number says that it is
        late."""
        return seconds_left(await session.row(Verb.next_timer))

    @look
    async def next_start(self, session: Session) -> float | None:
        """Return in how many seconds the next run may begin that is to begin later. A negative number says that it is
        late."""
        return seconds_left(await session.row(Verb.next_start))

    async def admit_runs(self, limit: int) -> int:
        """Let runs be claimed whose time to begin has come. Return how many."""
        left_s = await self.next_start()
        return 0 if left_s is None or left_s > 0 else await self._admit_runs(limit)

    @transaction
    async def _admit_runs(self, session: Session, limit: int) -> int:
        due = [row[0] for row in await session.rows(Verb.due_starts, limit)]
        if not due:
            return 0
        await fill_batches(session, due)
        return await session.run(Verb.admit_runs, due)

    @transaction
    async def hold_run(self, session: Session, run_id: str, fence: int, note: str) -> Answer:
        """Hold a run for its owner, because of drift or because its code cannot be loaded."""
        if not await session.run(Verb.hold_run, run_id, fence, note):
            return Answer.FENCED
        await session.each(Verb.journal_add, [entry("scheduler", "hold", run_id, None, note)])
        await session.each(Verb.note_failures, [(run_id, 0)])
        return Answer.ACCEPTED

    @statement
    async def queue_run(self, session: Session, run_id: str, fence: int, queue: Queue) -> int:
        """Put a run that was just claimed, and has done nothing yet, into the queue where it belongs. It is pending again."""
        return await session.run(Verb.queue_run, run_id, fence, json.dumps(queue.under), *queue.columns)

    @look
    async def namespaces(self, session: Session) -> list[str]:
        """Return the namespaces that have runs, by name."""
        return [row[0] for row in await session.rows(Verb.namespaces)]

    @look
    async def any_queue(self, session: Session) -> bool:
        """True if there is any queue. Without one, all claims are for queue 0."""
        return await session.row(Verb.any_queue) is not None

    @look
    async def lanes(self, session: Session) -> list[Lane]:
        return [lane_of(row) for row in await session.rows(Verb.lanes)]

    @look
    async def children(self, session: Session, run_id: str) -> list[RunRow]:
        """Return the run's children, and the runs that it started."""
        rows = [*await session.rows(Verb.children, run_id), *await session.rows(Verb.started_runs, run_id)]
        return [run_of(row) for row in rows]

    @look
    async def child_steps(self, session: Session, run_id: str) -> frozenset[int]:
        """Return n of the run's steps that have a child of this run. Other child steps have joined a run."""
        return frozenset(row[0] for row in await session.rows(Verb.child_steps, run_id))

    async def number_lanes(self, lanes: Sequence[LaneKey]) -> list[int]:
        """Return the number of each of these lanes. New lanes get a number."""
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
    async def lost_runs(self, session: Session, node: str, claimed: Sequence[tuple[str, int]]) -> list[str]:
        """Return the ids of those of these runs (run, fence) that this node no longer owns."""
        return [row[0] for row in await session.all(Verb.lost_runs, claimed, node)]


async def _with_history(session: Session, rows: Sequence[Row]) -> list[ClaimedRun]:
    """Return claimed runs with everything needed to replay them."""
    claimed = [ClaimedRun(run_of(row), [], []) for row in rows]
    if not claimed:
        return claimed
    # A run that never had an owner has no steps yet, unless it is a retry or a fork. But signals may already wait for it.
    await _read_steps(
        session, [one for one in claimed if one.run.fence > 1 or one.run.goes_on_from is not None]
    )
    by_id = {one.run.id: one for one in claimed}
    for row in await session.rows(Verb.history_signals, list(by_id)):
        signal = SignalRow(*row)
        by_id[signal.run_id].signals.append(signal)
    if retried := [one.run.id for one in claimed if one.run.goes_on_from is not None]:
        for run_id, kept in (await inherited(session, retried)).items():
            by_id[run_id].inherited = kept
    return claimed


async def _read_steps(session: Session, runs: Sequence[ClaimedRun]) -> None:
    for start in range(0, len(runs), HISTORIES_MAX):
        part = {one.run.id: one for one in runs[start : start + HISTORIES_MAX]}
        for row in await session.rows(Verb.history_steps, list(part)):
            step = step_of(row)
            part[step.run_id].steps.append(step)
