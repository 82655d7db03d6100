"""Cron expressions with five fields. `cronsim` reads them and finds the local times that fit; this module decides which
instants those are.

| local time               | minute and hour do not begin with `*` | one of them does |
|--------------------------|---------------------------------------|------------------|
| does not exist (spring)  | once, at the first instant after it   | left out         |
| exists twice (autumn)    | once, the first                       | both             |

These are the rules of Debian's cron. What is due at a fixed time comes once a day, and what comes all the time keeps its
rhythm.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from cronsim import CronSim, CronSimError

from holdfast.errors import DefinitionError
from holdfast.times.zones import EPOCH, Zone

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
SEARCHED_FROM = datetime(2000, 1, 1)  # noqa: DTZ001  a local time
FIELDS = "minute hour day-of-month month day-of-week"


class Cron:
    def __init__(self, text: str) -> None:
        self.text = text
        self._fields = ALIASES.get(text.lower(), text)
        parts = self._fields.split()
        if text.startswith("@") and text.lower() not in ALIASES:
            raise DefinitionError(f"{text!r} is no cron expression: known are {', '.join(ALIASES)}")
        if len(parts) != 5:
            raise DefinitionError(
                f"{text!r} is neither a cron expression, which has five fields ({FIELDS}), nor an interval, such as 15m, "
                "nor a date, such as 2027-01-01T00:00"
            )
        try:
            fits = CronSim(self._fields, SEARCHED_FROM)
        except CronSimError as wrong:
            raise DefinitionError(f"{text!r} is no cron expression that can fire: {wrong}") from None
        if next(fits, None) is None:
            raise DefinitionError(f"{text!r} never fires: no day of the next 50 years fits")
        self.is_fixed = not parts[0].startswith("*") and not parts[1].startswith("*")
        self._last: tuple[float, Zone, float | None] | None = None

    def _local(self, after: datetime) -> Iterator[datetime]:
        """Yield the local times that fit, in their order."""
        yield from CronSim(self._fields, after)

    def after(self, at: float, zone: Zone) -> float | None:
        """Return the first instant after `at` that fits. The last answer is kept: who decides about a time asks for the next
        one several times."""
        if self._last is not None and self._last[0] == at and self._last[1] is zone:
            return self._last[2]
        found = self._after_fixed(at, zone) if self.is_fixed else self._after_moving(at, zone)
        self._last = (at, zone, found)
        return found

    def _after_fixed(self, at: float, zone: Zone) -> float | None:
        for local in self._local(zone.local(at)):
            found = zone.instant(local)
            if found > at:
                return found
        return None

    def _after_moving(self, at: float, zone: Zone) -> float | None:
        """Look for local times that fit in one period of the zone after another."""
        period = zone.period(at)
        while True:
            local = EPOCH + timedelta(seconds=at + period.offset)
            found = next(self._local(local), None)
            if found is None:
                return None
            instant = (found - EPOCH).total_seconds() - period.offset
            if instant < period.end:
                return instant
            at = period.end - 1
            period = zone.period(period.end)
