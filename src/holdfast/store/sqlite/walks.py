"""The walk on SQLite. No two transactions write at the same time, so nothing has to be locked, and what a transaction has
found it can take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import apsw

from holdfast.store.claims import LOSSES_NEVER, RunClaim, StepClaim
from holdfast.store.database import Row
from holdfast.store.saved_slots import SavedSlots
from holdfast.store.sqlite.verbs import STATEMENTS, SqliteVerb
from holdfast.store.verbs import Verb
from holdfast.store.walk import Segment

_WHOLE = STATEMENTS.whole
ABOVE_ALL = 2**31
"""Higher than any priority."""


class _Limits:
    def __init__(self, connection: apsw.Connection, now: float) -> None:
        self._connection, self._now = connection, now
        self.is_look = False
        """True to find out only whether there is anything to take. Then nothing is written."""

    def _find(self, verb: str, *values: Any) -> list[Any]:
        return self._connection.execute(_WHOLE[verb], values).fetchall()

    async def lock(self, ids: Sequence[int]) -> set[int]:
        return set(ids)

    async def rooms(self, ids: Sequence[int]) -> Sequence[Row]:
        return self._find(Verb.limit_rooms, json.dumps(list(ids)))

    async def spend(self, tokens: Sequence[tuple[int, int]]) -> None:
        if not self.is_look:
            self._connection.executemany(_WHOLE[Verb.spend_tokens], list(tokens))

    async def save_slots(self, ids: Sequence[int], saved: SavedSlots) -> None:
        if not self.is_look:
            self._connection.execute(_WHOLE[Verb.save_slots], (json.dumps(list(ids)), *saved))


class StepWalker(_Limits):
    def __init__(
        self, connection: apsw.Connection, now: float, claim: StepClaim, lanes: Sequence[int]
    ) -> None:
        """`lanes` are those of the claim that are not behind a gate."""
        super().__init__(connection, now)
        self._claim, self._lanes = claim, lanes
        self._runs = None if claim.runs is None else json.dumps(list(claim.runs))
        self._suspects = LOSSES_NEVER if claim.probes_of is not None else claim.suspects

    async def levels(self) -> Sequence[tuple[int, int]]:
        found = []
        for lane in self._lanes:
            priority = ABOVE_ALL
            while rows := self._find(SqliteVerb.next_priority, lane, priority):
                priority = rows[0][0]
                found.append((lane, priority))
        return found

    async def queues(self, priority: int, ring: Sequence[Segment], keys: int) -> Sequence[Row]:
        found: list[Row] = []
        for lane, after, upto in ring:
            wanted = (lane, priority, after, upto, keys - len(found))
            if self._runs is None:
                found += sorted(self._find(Verb.step_queues, *wanted), key=_queue)
            else:
                found += self._find(Verb.step_queues_of, *wanted, self._runs)
            if len(found) >= keys:
                break
        return found

    async def take(
        self, priority: int, quotas: Sequence[tuple[int, int, int]], age_s: float | None
    ) -> Sequence[tuple[int, int, Row]]:
        claim = self._claim
        losses_below = LOSSES_NEVER if self._suspects else claim.suspect_losses
        due: list[tuple[int, int, Row]] = []
        for lane, queue, quota in quotas:
            wanted = (lane, priority, queue, self._now - (age_s or 0.0), losses_below, quota)
            if self._runs is None:
                rows = self._find(SqliteVerb.due_in_queue, *wanted)
            else:
                rows = self._find(SqliteVerb.due_in_queue_of, *wanted, self._runs)
            due += [(lane, queue, row) for row in rows]
        taken: list[tuple[int, int, Row]] = []
        for lane, queue, (_, run_id, n, fence, losses) in sorted(due, key=lambda one: one[2]):
            if losses >= claim.suspect_losses:
                if self._suspects <= 0:
                    continue
                self._suspects -= 1
            if self.is_look:
                taken.append((lane, queue, None))
                continue
            rows = self._find(Verb.claim_steps, run_id, n, fence, claim.node, self._now)
            taken += [(lane, queue, row) for row in rows]
        return taken

    async def wait_long(self, priority: int, lane: int, queue: int, seconds: float) -> bool:
        return bool(self._find(Verb.steps_wait_long, lane, priority, queue, self._now - seconds))

    def adapted(self, row: Row, limits: tuple[int, ...]) -> Row:
        return row and (*row, limits)


class RunWalker(_Limits):
    """Its lanes are the workflows of the claim, by their numbers from 1 on."""

    def __init__(self, connection: apsw.Connection, now: float, claim: RunClaim) -> None:
        super().__init__(connection, now)
        self._claim, self._codes = claim, sorted(claim.workflows)
        self._runs = None if claim.runs is None else json.dumps(list(claim.runs))
        self._steps = 0

    async def levels(self) -> Sequence[tuple[int, int]]:
        found = []
        for lane, (workflow, version) in enumerate(self._codes, 1):
            priority = ABOVE_ALL
            while rows := self._find(SqliteVerb.next_run_priority, workflow, version, priority):
                priority = rows[0][0]
                found.append((lane, priority))
        return found

    async def queues(self, priority: int, ring: Sequence[Segment], keys: int) -> Sequence[Row]:
        found: list[Row] = []
        for lane, after, upto in ring:
            wanted = (lane, *self._codes[lane - 1], priority, after, upto, keys - len(found))
            if self._runs is None:
                found += sorted(self._find(Verb.run_queues, *wanted), key=_queue)
            else:
                found += self._find(Verb.run_queues_of, *wanted, self._runs)
            if len(found) >= keys:
                break
        return found

    async def take(
        self, priority: int, quotas: Sequence[tuple[int, int, int]], age_s: float | None
    ) -> Sequence[tuple[int, int, Row]]:
        taken: list[tuple[int, int, Row]] = []
        for lane, queue, quota in quotas:
            wanted = (*self._codes[lane - 1], priority, queue, self._now - (age_s or 0.0), quota)
            if self._runs is None:
                rows = self._find(SqliteVerb.pending_in_queue, *wanted)
            else:
                rows = self._find(SqliteVerb.pending_in_queue_of, *wanted, self._runs)
            for _, run_id in rows:
                if self._steps >= self._claim.steps_max:
                    break  # the others are claimed later, after these were replayed
                if self.is_look:
                    taken.append((lane, queue, None))
                    continue
                taken += [(lane, queue, row) for row in self._find(Verb.take_runs, self._claim.node, run_id)]
                self._steps += self._find(SqliteVerb.history_size, run_id)[0][0]
        return taken

    async def wait_long(self, priority: int, lane: int, queue: int, seconds: float) -> bool:
        wanted = (*self._codes[lane - 1], priority, queue, self._now - seconds)
        return bool(self._find(Verb.runs_wait_long, *wanted))

    def adapted(self, row: Row, limits: tuple[int, ...]) -> Row:
        return row


def _queue(row: Row) -> int:
    queue: int = row[1]
    return queue
