"""What a scheduler asks: runs to own, outcomes to deliver, timers to fire."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from holdfast.model import Run
from holdfast.store.answers import Answer, ClaimedRun, Recorded, Undelivered
from holdfast.store.children import ended
from holdfast.store.protocol import LaneKey
from holdfast.store.sqlite.dialect import Dialect
from holdfast.store.sqlite.retries import inherited
from holdfast.store.sqlite.rows import STEP_STATES, fetch, run_of, signal_of, step_of, told_row
from holdfast.store.sqlite.verbs import VERBS

Candidate = tuple[int, float, str]
"""(-priority, created_at, id): sorts by priority, then age."""


class Scheduling(Dialect):
    async def claim_runs(
        self,
        node: str,
        workflows: Sequence[tuple[str, str]],
        limit: int,
        runs: Sequence[str] | None = None,
    ) -> list[ClaimedRun]:
        async with self._database.reading() as connection:
            if not _claimable(connection, workflows, 1, runs):
                return []  # an idle node does not take the write lock
        async with self._database.transaction() as connection:
            claimed: list[ClaimedRun] = []
            steps = 0
            if not connection.execute(VERBS.is_live, (node,)).get:
                return []  # a node that was buried claims nothing more
            for _, _, run_id in _claimable(connection, workflows, limit, runs):
                one = self._claim(connection, node, run_id)
                if one is not None:
                    claimed.append(one)
                    steps += len(one.steps)
                if steps >= self._config.replay_slice_steps:
                    break  # the rest is claimed after these were replayed
            return claimed

    async def claim_run(self, node: str, run_id: str) -> ClaimedRun | None:
        async with self._database.transaction() as connection:
            if not connection.execute(VERBS.is_live, (node,)).get:
                return None
            return self._claim(connection, node, run_id)

    def _claim(self, connection: apsw.Connection, node: str, run_id: str) -> ClaimedRun | None:
        before = connection.total_changes()
        connection.execute(VERBS.claim_run, (node, self._clock.now(), run_id))
        if connection.total_changes() == before:
            return None
        run: Run = run_of(connection.execute(VERBS.run, (run_id,)).get)
        steps = [step_of(row) for row in connection.execute(VERBS.steps, (run_id, 0, -1))]
        signals = [signal_of(row) for row in connection.execute(VERBS.signals, (run_id,))]
        heritage = inherited(connection, run_id) if run.retry_of is not None else []
        return ClaimedRun(run, steps, signals, heritage)

    async def undelivered(self, node: str, limit: int) -> Undelivered:
        async with self._database.reading() as connection:
            steps = [
                Recorded(run_id, n, STEP_STATES[state], output, error, at)
                for run_id, n, state, output, error, at in connection.execute(
                    VERBS.undelivered_steps, (node, limit)
                )
            ]
            signals = [signal_of(row) for row in connection.execute(VERBS.undelivered_signals, (node, limit))]
        steps.sort(key=lambda ended: (ended.at, ended.run_id, ended.n))
        signals.sort(key=lambda signal: signal.id)
        return Undelivered(steps, signals)

    async def fire_timers(self, limit: int) -> int:
        now = self._clock.now()
        async with self._database.reading() as connection:
            if not fetch(connection, VERBS.due_timers, (now, 1)):
                return 0
        async with self._database.transaction() as connection:
            now = self._clock.now()
            due = fetch(connection, VERBS.due_timers, (now, limit))
            connection.executemany(VERBS.fire_timers, [(now, *timer) for timer in due])
            return len(due)

    async def answer_joins(self, limit: int) -> int:
        async with self._database.reading() as connection:
            if not fetch(connection, VERBS.due_joins, (1,)):
                return 0
        async with self._database.transaction() as connection:
            now = self._clock.now()
            due = fetch(connection, VERBS.due_joins, (limit,))
            told = [ended(run_id, (waiter, n), outcome) for run_id, waiter, n, *outcome in due]
            connection.executemany(VERBS.tell_parents, [told_row(one, now) for one in told])
            connection.executemany(VERBS.forget_join, [(one.run_id, one.n) for one in told])
            return len(due)

    async def next_timer(self) -> float | None:
        async with self._database.reading() as connection:
            at: float | None = connection.execute(VERBS.next_timer).get
            return at

    async def hold_run(self, run_id: str, fence: int, note: str) -> Answer:
        async with self._database.transaction() as connection:
            before = connection.total_changes()
            connection.execute(VERBS.hold_run, (note, run_id, fence))
            if connection.total_changes() == before:
                return Answer.FENCED
            self._journal(connection, "scheduler", "hold", note, run_id)
            connection.execute(VERBS.note_failures, (run_id, 0))
            return Answer.ACCEPTED

    async def child_histories(self, run_id: str) -> list[ClaimedRun]:
        async with self._database.reading() as connection:
            runs = [run_of(row) for row in fetch(connection, VERBS.children, (run_id,))]
            return [
                ClaimedRun(
                    run, [step_of(row) for row in connection.execute(VERBS.steps, (run.id, 0, -1))], []
                )
                for run in runs
            ]

    async def number_lanes(self, lanes: Sequence[LaneKey]) -> list[int]:
        rows = [(name, json.dumps(needs), undo or "", depends) for name, needs, undo, depends in lanes]
        async with self._database.reading() as connection:
            known: list[int | None] = [connection.execute(VERBS.lane, row).get for row in rows]
        if None in known:
            async with self._database.transaction() as connection:
                connection.executemany(VERBS.make_lane, rows)
                known = [connection.execute(VERBS.lane, row).get for row in rows]
        return [lane for lane in known if lane is not None]

    async def lost_runs(self, node: str, held: Sequence[tuple[str, int]]) -> list[str]:
        async with self._database.reading() as connection:
            return [
                run_id
                for run_id, fence in held
                if not connection.execute(VERBS.owns_run, (run_id, fence, node)).get
            ]


def _claimable(
    connection: apsw.Connection,
    workflows: Sequence[tuple[str, str]],
    limit: int,
    runs: Sequence[str] | None,
) -> list[Candidate]:
    """Runs to claim: one index range per workflow, and those that something waits to be delivered to; among these, if some
    are named."""
    found: set[Candidate] = set()
    for workflow, version in workflows if runs is None else ():
        for priority, created_at, run_id in connection.execute(
            VERBS.pending_runs, (workflow, version, limit)
        ):
            found.add((-priority, created_at, run_id))
    awake: Iterable[Any] = (
        connection.execute(VERBS.awake_runs)
        if runs is None
        else (row for run_id in runs for row in connection.execute(VERBS.claimable_run, (run_id,)))
    )
    served = set(workflows)
    for priority, created_at, run_id, workflow, version in awake:
        if (workflow, version) in served:
            found.add((-priority, created_at, run_id))
    return sorted(found)[:limit]
