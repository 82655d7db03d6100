"""What the leader does about composed triggers: it lets times arrive at their occasions, ends occasions that were not complete in
time, and puts in force what the newest code declares.

Events need no leader: whoever sends the last one starts the run. So if nobody leads for a while, only times and ends wait.
"""

from __future__ import annotations

import logging

from holdfast.model import AlertKind, Level, NewAlert
from holdfast.occasions import due_times
from holdfast.store.occasions import composed_in
from holdfast.store.roles import SupervisorStore
from holdfast.supervisor.schedules import in_force
from holdfast.times.plan import read_plan

log = logging.getLogger("holdfast.triggers")

BATCH_MAX = 200
"""About how many times and occasions one transaction is about."""
BATCHES_MAX = 4


class OccasionKeeper:
    def __init__(self, store: SupervisorStore) -> None:
        self._store = store
        self.next_at: float | None = None
        """When the next time comes or the next occasion ends, by the store's clock. None if there is nothing."""

    async def mind(self, epoch: int) -> int:
        """Let the times that have come arrive, and then end the occasions whose time is over. Return how many runs were
        started."""
        store, started = self._store.occasions, 0
        for _ in range(BATCHES_MAX):
            looks = await store.occasion_looks(BATCH_MAX)
            self.next_at = looks.next_at
            if looks.times:
                now = await self._store.now()
                due = [
                    (one, due_times(read_plan(one.plan), one.cursor, now))
                    for one in await store.due_times(looks.times)
                    if one.next_at is not None and one.next_at <= now
                ]
                started += await store.arrive(epoch, due)
            elif looks.over:
                started += await store.judge_occasions(epoch, looks.over)
            else:
                break
        return started

    async def reconcile(self, epoch: int) -> int:
        """Make the composed triggers of each application those that its newest code declares, and judge by them what is open.
        Return how many runs were started."""
        store = self._store.occasions
        for declared in in_force(await store.declared_composed()):
            known = await store.composed_of(declared.origin)
            if sorted(known, key=str) == sorted(composed_in(declared), key=str):
                continue
            taken = await store.reconcile_composed(epoch, declared)
            alerts = [
                NewAlert(
                    AlertKind.SCHEDULE_TROUBLE,
                    Level.WARNING,
                    f"trigger name:{name}",
                    f"the code of {declared.origin} declares the trigger {name}, and another application has one of that name: "
                    "give it when(name=…)",
                )
                for name in taken
            ]
            if alerts:
                await self._store.alerts.raise_alerts(epoch, alerts)
        stale = await store.stale_occasions(BATCH_MAX)
        return await store.judge_occasions(epoch, stale) if stale else 0
