"""What nodes learn from durations, and the twins that follow from it. Each method is one transaction, or one read."""

from __future__ import annotations

import json
from collections.abc import Sequence

import apsw

from holdfast.model import Landmark, Twin, TwinState
from holdfast.store.answers import Answer, ClaimedStep, Overlong
from holdfast.store.sqlite.dialect import Dialect
from holdfast.store.sqlite.rows import Row, fetch
from holdfast.store.sqlite.verbs import VERBS

CLAIMED = (
    "run_id", "n", "key", "name", "fence", "attempt", "losses", "excused", "attempts_max", "timeout_s", "input", "retry",
    "checkpoint", "issued_at", "error", "effect",
)  # fmt: skip
"""The columns of `twin_step`."""


class Learning(Dialect):
    async def add_durations(self, counts: Sequence[tuple[str, int, float]]) -> None:
        async with self._database.transaction() as connection:
            now = self._clock.now()
            connection.executemany(VERBS.add_durations, [(*one, now) for one in counts])

    async def durations(self, names: Sequence[str] | None = None) -> list[tuple[str, int, float]]:
        async with self._database.reading() as connection:
            if names is None:
                return fetch(connection, VERBS.step_durations)
            return [row for name in names for row in fetch(connection, VERBS.durations, (name,))]

    async def fade_durations(self, epoch: int, *, attempts_max: float, keep_s: float, rows_max: int) -> int:
        before = self._clock.now() - keep_s
        async with self._database.reading() as connection:
            if (
                not connection.execute(VERBS.well_known, (attempts_max,)).get
                and not connection.execute(VERBS.faded_durations, (before,)).get
                and connection.execute(VERBS.count_durations).get <= rows_max
            ):
                return 0
        async with self._database.transaction() as connection:
            if not connection.execute(VERBS.leads, (epoch, self._clock.now())).get:
                return 0
            begun = connection.total_changes()
            connection.execute(VERBS.halve_durations, (attempts_max,))
            connection.execute(VERBS.forget_durations, (before,))
            beyond = connection.execute(VERBS.count_durations).get - rows_max
            connection.execute(VERBS.forget_oldest_durations, (max(0, beyond),))
            return connection.total_changes() - begun

    async def landmarks(self, run_ids: Sequence[str]) -> list[Landmark]:
        async with self._database.reading() as connection:
            asked = ((run_id,) for run_id in run_ids)
            return [Landmark(*row) for row in connection.executemany(VERBS.landmark, asked)]

    async def overlong_steps(self, bounds: Sequence[tuple[str, float]], limit: int) -> list[Overlong]:
        now = self._clock.now()
        asked = json.dumps([(name, now - bound_s) for name, bound_s in bounds])
        async with self._database.reading() as connection:
            rows = fetch(connection, VERBS.overlong_steps, (asked, limit))
        return [Overlong(*row) for row in rows]

    # --- twins --------------------------------------------------------------------------------------------------

    async def make_twins(self, epoch: int, steps: Sequence[tuple[str, int, int]]) -> list[tuple[str, int]]:
        async with self._database.transaction() as connection:
            now = self._clock.now()
            if not connection.execute(VERBS.leads, (epoch, now)).get:
                return []
            made: list[tuple[str, int]] = []
            for step in steps:
                made += fetch(connection, VERBS.make_twins, (*step, now))
            journal = [(now, "supervisor", "hedge", run_id, n, "it got a twin") for run_id, n in made]
            connection.executemany(VERBS.journal_add, journal)
            return made

    async def sweep_twins(self, epoch: int, limit: int) -> int:
        async with self._database.reading() as connection:
            if not fetch(connection, VERBS.idle_twins, (1,)):
                return 0
        async with self._database.transaction() as connection:
            now = self._clock.now()
            if not connection.execute(VERBS.leads, (epoch, now)).get:
                return 0
            idle = fetch(connection, VERBS.idle_twins, (limit,))
            connection.executemany(VERBS.sweep_twin, [(now, *twin) for twin in idle])
            return len(idle)

    async def claim_twins(self, node: str, lanes: Sequence[int], limit: int) -> list[ClaimedStep]:
        async with self._database.reading() as connection:
            if not _ready(connection, node, lanes, 1):
                return []
        async with self._database.transaction() as connection:
            if not connection.execute(VERBS.is_live, (node,)).get:
                return []
            now = self._clock.now()
            claimed = []
            for run_id, n, fence in _ready(connection, node, lanes, limit):
                connection.execute(VERBS.claim_twin, (node, now, run_id, n, fence))
                (row,) = fetch(connection, VERBS.twin_step, (run_id, n))
                claimed.append(ClaimedStep(**dict(zip(CLAIMED, row, strict=True))))
            return claimed

    async def lost_twins(self, node: str, held: Sequence[tuple[str, int, int]]) -> list[tuple[str, int]]:
        async with self._database.reading() as connection:
            return [
                (run_id, n)
                for run_id, n, fence in held
                if not connection.execute(VERBS.holds_twin, (run_id, n, fence, node)).get
            ]

    async def end_twin(
        self, node: str, twin: tuple[str, int, int], state: TwinState, output: bytes | None, outran: str
    ) -> Answer:
        run_id, n, _ = twin
        async with self._database.transaction() as connection:
            now = self._clock.now()
            before = connection.total_changes()
            if connection.execute(VERBS.is_live, (node,)).get:
                connection.execute(VERBS.end_twin, (state, now, *twin, node))
            if connection.total_changes() == before:
                won = connection.execute(VERBS.twin_won_before, (*twin, node)).get
                return Answer.DUPLICATE if won and state is TwinState.WON else Answer.FENCED
            if state is not TwinState.WON:
                return Answer.ACCEPTED
            connection.execute(VERBS.keep_outrun, (run_id, n, outran, now))
            row = _twin(connection, run_id, n)
            before = connection.total_changes()
            connection.execute(VERBS.take_twins_outcome, (output, now, node, row.started_at, run_id, n))
            if connection.total_changes() == before:
                connection.execute(VERBS.outrun_twin, (run_id, n))
                return Answer.FENCED
            return Answer.ACCEPTED

    async def bar_twin(self, run_id: str, n: int) -> Twin:
        async with self._database.transaction() as connection:
            connection.execute(VERBS.bar_twin, (run_id, n, self._clock.now()))
            return _twin(connection, run_id, n)

    async def stop_twin(self, run_id: str, n: int) -> None:
        async with self._database.transaction() as connection:
            connection.execute(VERBS.stop_twin, (self._clock.now(), run_id, n))

    async def twins(self, run_id: str) -> list[Twin]:
        async with self._database.reading() as connection:
            return [_twin_of(row) for row in fetch(connection, VERBS.twins, (run_id,))]


def _ready(
    connection: apsw.Connection, node: str, lanes: Sequence[int], limit: int
) -> list[tuple[str, int, int]]:
    """The oldest first, whatever their lane."""
    found = [row for lane in lanes for row in fetch(connection, VERBS.ready_twins, (lane, node, limit))]
    found.sort()
    return [(run_id, n, fence) for _, run_id, n, fence in found[:limit]]


def _twin(connection: apsw.Connection, run_id: str, n: int) -> Twin:
    (row,) = fetch(connection, VERBS.twin, (run_id, n))
    return _twin_of(row)


def _twin_of(row: Row) -> Twin:
    run_id, n, state, *rest = row
    return Twin(run_id, n, TwinState(state), *rest)
