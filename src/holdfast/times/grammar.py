"""The texts that authors write for times, joined by `|`: a cron expression, an interval such as `1h30m`, or a date such as
`2027-01-01T00:00`."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from holdfast.errors import DefinitionError
from holdfast.times.cron import Cron
from holdfast.times.zones import FIRST_S, LAST_S, Zone

_INTERVAL = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
INTERVAL_MAX_S = 366 * 86_400
PARTS_MAX = 1000
"""How many expressions one schedule may join."""


class Interval(NamedTuple):
    """Every so many seconds, counted from the anchor. Clocks that are set forward or back do not move it."""

    seconds: int
    anchor: float

    def after(self, at: float, zone: Zone) -> float:
        return self.anchor + ((at - self.anchor) // self.seconds + 1) * self.seconds


class Date(NamedTuple):
    """Once, at a local time or at an instant."""

    moment: datetime

    def after(self, at: float, zone: Zone) -> float | None:
        found = instant_of(self.moment, zone)
        return found if found > at else None


Part = Cron | Interval | Date


class Times(NamedTuple):
    """All parts of a text. A time that several parts have is one time."""

    parts: tuple[Part, ...]

    def after(self, at: float, zone: Zone) -> float | None:
        """Return the first time after `at`. None if there is none."""
        found = [time for part in self.parts if (time := part.after(at, zone)) is not None]
        return min(found, default=None)


@lru_cache(maxsize=4000)
def times_of(text: str, anchor: float = 0.0) -> Times:
    """Read a text. Raise DefinitionError with what is wrong with it."""
    parts = [part.strip() for part in text.split("|")]
    if len(parts) > PARTS_MAX:
        raise DefinitionError(
            f"{len(parts):,} expressions are more than the {PARTS_MAX:,} that one schedule may have"
        )
    return Times(tuple(_part(part, anchor) for part in parts))


def _part(text: str, anchor: float) -> Part:
    if not text:
        raise DefinitionError("an expression is empty: give a cron expression, an interval or a date")
    if _DATE.match(text):
        return Date(moment_of(text))
    interval = _INTERVAL.fullmatch(text)
    if interval is None:
        return Cron(" ".join(text.split()))
    days, hours, minutes, seconds = (int(one or 0) for one in interval.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if not 1 <= total <= INTERVAL_MAX_S:
        raise DefinitionError(f"{text!r}: an interval is at least 1s and at most 366d")
    return Interval(total, anchor)


def moment_of(text: str) -> datetime:
    """Read a date, with or without time of day and offset."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as wrong:
        raise DefinitionError(f"{text!r} is no date: {wrong}; write 2027-01-01T00:00") from None
    return found.replace(microsecond=0)


def instant_of(moment: datetime, zone: Zone) -> float:
    """Return the instant of a date: in `zone`, unless it has an offset of its own."""
    if not 1900 < moment.year < 9998:
        raise DefinitionError(f"{moment.isoformat()}: the year must be from 1901 to 9997")
    at = moment.timestamp() if moment.tzinfo is not None else zone.instant(moment)
    assert FIRST_S <= at <= LAST_S
    return at
