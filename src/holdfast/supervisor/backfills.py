"""The leader carries out backfills: it keeps only a given number of their runs open, and goes on when one has ended. A
backfill never waits for the schedule's own runs."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model import BackfillRow, BackfillState, ScheduleRow
from holdfast.store.schedules import LeaderSchedules
from holdfast.times.backfill import LOOKED_AT, candidates, fill, left_of, times_of
from holdfast.times.plan import read_plan

KNOWN_MAX = 100


class BackfillKeeper:
    def __init__(self, store: LeaderSchedules) -> None:
        self._store = store
        self._times: dict[tuple[str, str], list[float]] = {}
        """The times of each backfill, by its id and its schedule's plan: they are the same at every pass."""

    async def fill(self, epoch: int, ids: Sequence[str]) -> int:
        """Do what can be done now for these backfills. Return how many runs were started."""
        started = 0
        for backfill_id in ids:
            row = await self._store.backfill(backfill_id)
            if row is not None and row.state is BackfillState.RUNNING:
                started += await self._fill(epoch, row)
        return started

    async def _fill(self, epoch: int, row: BackfillRow) -> int:
        seen = await self._store.seen([row.schedule])
        if not seen:  # the schedule was removed
            await self._store.end_backfill(epoch, row)
            return 0
        ((schedule, opened),) = seen
        is_open = sum(one.backfill == row.id for one in opened)
        left = left_of(row, self._times_of(row, schedule))
        if left and is_open >= row.most:
            return 0
        looked = left[:LOOKED_AT]
        known = await self._store.fires_at(row.schedule, looked) if looked else {}
        ids = [each for at in looked for each in candidates(row.schedule, at, known.get(at, ()))]
        taken = await self._store.taken_ids(ids) if ids else frozenset[str]()
        filled = fill(row, left, known, taken, is_open)
        if not filled.starts and not filled.passed and filled.state is row.state:
            return 0
        return await self._store.fill(epoch, row, schedule, filled)

    def _times_of(self, row: BackfillRow, schedule: ScheduleRow) -> list[float]:
        key = (row.id, schedule.plan)
        if key not in self._times:
            if len(self._times) > KNOWN_MAX:
                self._times.clear()
            plan = read_plan(schedule.plan)
            self._times[key] = times_of(plan, row.from_at, row.to_at, newest_first=row.newest_first)
        return self._times[key]
