"""What the leader does about schedules: it decides what becomes of every time that has come, and starts the runs.

Each pass reads in one look what is due. `times.decision` decides, and the store writes: the fates, the schedules' cursors and
the runs in one transaction, guarded by the epoch and by the fence of each schedule. So a leader that was deposed changes
nothing, and after a crash between the look and the write the next leader decides again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from holdfast.config import Config
from holdfast.model import AlertKind, Level, NewAlert, ScheduleRow, ScheduleState
from holdfast.store.roles import SupervisorStore
from holdfast.store.schedules import DeclaredSet, SeenSchedule, alert_key, is_changed
from holdfast.supervisor.backfills import BackfillKeeper
from holdfast.times import TZDATA
from holdfast.times.decision import Decision, decide, scheduled
from holdfast.times.plan import Plan, read_plan

log = logging.getLogger("holdfast.schedules")

BATCH_MAX = 500
"""About how many schedules one transaction decides."""
BATCHES_MAX = 4
"""How many batches one pass decides, so that recovery does not wait for thousands of schedules."""
ALERTS_MAX = 500


class ScheduleKeeper:
    def __init__(self, store: SupervisorStore, config: Config) -> None:
        self._store, self._config = store, config
        self._after = ""
        self._epoch: int | None = None
        self._backfilling = BackfillKeeper(store.schedules)
        self.next_at: float | None = None
        """When the next schedule is due, by the store's clock. None if none is."""
        self._used = True
        """False if the last look found no schedule."""

    def is_new(self, epoch: int) -> bool:
        """True if this leader has not yet taken up what the code declares."""
        return self._epoch != epoch

    async def fire(self, epoch: int) -> int:
        """Decide about all times that have come. Return how many runs were started, and asked to cancel themselves. A new
        leader first takes up what the code declares."""
        started = 0
        if self.is_new(epoch):
            self._epoch = epoch
            await self.reconcile(epoch)
        for _ in range(BATCHES_MAX):
            looks = await self._store.schedules.schedule_looks(self._after, BATCH_MAX)
            self._after, self.next_at = looks.after, looks.next_at
            self._used = looks.next_at is not None or bool(looks.names or looks.backfills)
            if looks.names:
                started += await self._decide(epoch, looks.names)
            if looks.backfills:
                started += await self._backfilling.fill(epoch, looks.backfills)
            if looks.due < BATCH_MAX:
                break
        return started

    async def _decide(self, epoch: int, names: Sequence[str]) -> int:
        seen, now = await self._store.schedules.seen(names), await self._store.now()
        if len(seen) < len(names):
            await self._store.schedules.end_fires(epoch, names)
        decisions = []
        for one in seen:
            try:
                decisions.append(decision_of(one, now))
            except Exception as error:
                # One schedule that somebody damaged must not keep the others from firing.
                log.exception("schedule %s", one.row.name)
                message = f"schedule {one.row.name} cannot be decided: {type(error).__name__}: {error}"
                await self._raise_new(epoch, self._trouble(one.row.name, "broken", message))
        return await self._store.schedules.fire(epoch, decisions)

    # --- every few seconds ----------------------------------------------------------------------------------------------

    async def reconcile(self, epoch: int) -> None:
        """Make the schedules of each application those that its newest code declares."""
        for declared in in_force(await self._store.schedules.declared_sets()):
            known = await self._store.schedules.schedules_of(declared.origin)
            if not is_other(known, declared):
                continue
            done = await self._store.schedules.reconcile_schedules(epoch, declared)
            for what, names in (("added", done.added), ("changed", done.changed), ("removed", done.removed)):
                if names:
                    log.info("schedules of %s: %s %s", declared.origin, what, ", ".join(names))
            taken = [
                self._trouble(
                    name,
                    "name",
                    f"the code of {declared.origin} declares the schedule {name}, and another one has that name: give it name=…",
                )
                for name in done.taken
            ]
            await self._raise(epoch, taken)

    # --- about once a minute --------------------------------------------------------------------------------------------

    async def watch(self, epoch: int, now: float) -> None:
        """Raise alerts about schedules whose workflow is gone or whose calendar ends, and clear those that are over. Compute
        times anew if the rules of time zones have changed."""
        store = self._store.schedules
        if self._used:
            for name, workflow, version in await store.gone_schedules(ALERTS_MAX):
                message = (
                    f"schedule {name}: no live node has the workflow {workflow} version {version}, so its runs wait: start a "
                    "process that has it with `holdfast up FILE`"
                )
                await self._raise_new(epoch, self._trouble(name, "gone", message))
            await self._watch_calendars(epoch, now)
            older = await store.other_tzdata(TZDATA, BATCH_MAX)
            await store.fire(epoch, [Decision(scheduled(row, read_plan(row.plan))) for row in older])
        await self._clear(epoch, now)

    async def _watch_calendars(self, epoch: int, now: float) -> None:
        after = ""
        while page := await self._store.schedules.schedules(None, after, BATCH_MAX):
            after = page[-1].name
            for row in page:
                days = _plan(row).ends_soon(now) if row.state is ScheduleState.ACTIVE else None
                if days is not None:
                    message = f"schedule {row.name}: its calendar {days.name} ends with {days.until}: days after that are not left out"
                    await self._raise_new(epoch, self._trouble(row.name, "calendar", message))
            if len(page) < BATCH_MAX:
                break

    async def _clear(self, epoch: int, now: float) -> None:
        """Clear alerts whose reason is over."""
        found = await self._store.alerts.open_alerts_of(AlertKind.SCHEDULE_TROUBLE, 0, ALERTS_MAX)
        if not found:
            return
        gone = {row[0] for row in await self._store.schedules.gone_schedules(ALERTS_MAX)}
        names = [alert.key.partition(":")[2] for alert in found]
        rows = {one.row.name: one.row for one in await self._store.schedules.seen(names)}
        over = []
        for alert in found:
            about, _, name = alert.key.removeprefix("schedule ").partition(":")
            row = rows.get(name)
            holds = row is not None and {
                "paused": row.state is ScheduleState.PAUSED,
                "gone": name in gone,
                "calendar": _plan(row).ends_soon(now) is not None,
            }.get(about, True)
            if not holds:
                over.append(alert.id)
        if over:
            await self._store.alerts.clear_alerts(epoch, over)

    def _trouble(self, name: str, about: str, message: str) -> NewAlert:
        return NewAlert(AlertKind.SCHEDULE_TROUBLE, Level.WARNING, alert_key(name, about), message)

    async def _raise_new(self, epoch: int, alert: NewAlert) -> None:
        """Raise an alert about a state, unless it is raised already."""
        known = await self._store.alerts.open_alerts_of(AlertKind.SCHEDULE_TROUBLE, 0, ALERTS_MAX)
        if alert.key not in {one.key for one in known}:
            await self._raise(epoch, [alert])

    async def _raise(self, epoch: int, alerts: Sequence[NewAlert]) -> None:
        if alerts:
            await self._store.alerts.raise_alerts(epoch, alerts)


def decision_of(seen: SeenSchedule, now: float) -> Decision:
    return decide(seen.row, _plan(seen.row), seen.opened, now)


def in_force(sets: Sequence[DeclaredSet]) -> list[DeclaredSet]:
    """Return the set of each application that counts: the one first seen last. So a rolling deploy takes it up with the first
    new node, and an old process that restarts does not bring the old set back."""
    newest: dict[str, DeclaredSet] = {}
    for one in sets:
        known = newest.get(one.origin)
        if known is None or (one.first_seen, one.digest) > (known.first_seen, known.digest):
            newest[one.origin] = one
    return list(newest.values())


def is_other(known: Sequence[ScheduleRow], declared: DeclaredSet) -> bool:
    """True if the schedules of an application are not those that its code declares."""
    lines = {line.name: line for line in declared.lines}
    rows = {row.name: row for row in known}
    return lines.keys() != rows.keys() or any(is_changed(rows[name], line) for name, line in lines.items())


_plans: dict[str, Plan] = {}


def _plan(row: ScheduleRow) -> Plan:
    """Return the plan of a schedule. Plans are remembered by their texts."""
    plan = _plans.get(row.plan)
    if plan is None:
        if len(_plans) > 10_000:
            _plans.clear()
        plan = _plans[row.plan] = read_plan(row.plan)
    return plan
