"""A time zone: which local time an instant has, and which instants a local time has.

The rules come from the package `tzdata`, and not from the host: so all nodes with the same version of it agree.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from typing import NamedTuple
from zoneinfo import ZoneInfo

import tzdata

from holdfast.errors import DefinitionError

TZDATA: str = tzdata.IANA_VERSION
"""The version of the rules, such as `2026f`. A later one compares as greater."""
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  local times have no zone here
DAY_S = 86_400.0
FIRST_S, LAST_S = -2_208_988_800.0, 253_370_764_800.0
"""Times outside of 1900 to 9998 are refused: Python cannot reckon with their zones."""


class Period(NamedTuple):
    """A span in which the offset of a zone stays the same."""

    begin: float
    end: float
    offset: float
    """Seconds between UTC and the local time."""


class Zone:
    """A zone. Instants are seconds since the epoch. A local time is a `datetime` without a zone."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._zone = _load(name)

    def offset(self, at: float) -> float:
        moment = datetime.fromtimestamp(at, UTC).astimezone(self._zone)
        found = moment.utcoffset()
        assert found is not None
        return found.total_seconds()

    def aware(self, at: float) -> datetime:
        """Return the local time with its offset."""
        return datetime.fromtimestamp(at, UTC).astimezone(self._zone)

    def local(self, at: float) -> datetime:
        return self.aware(at).replace(tzinfo=None, fold=0)

    def instant(self, local: datetime) -> float:
        """Return the first instant that has this local time. If none has, because clocks are set forward over it, return
        the first instant after the gap."""
        early = (local - EPOCH).total_seconds() - 2 * DAY_S
        period = self.period(early)
        while True:
            at = (local - EPOCH).total_seconds() - period.offset
            if at < period.end:
                return max(at, period.begin)
            period = self.period(period.end)

    def period(self, at: float) -> Period:
        """Return the period that this instant is in. It may be cut at the end of a year."""
        year = datetime.fromtimestamp(at, UTC).year
        begins, offsets = _periods(self.name, year)
        number = bisect_right(begins, at) - 1
        end = begins[number + 1] if number + 1 < len(begins) else _year(year + 1)
        return Period(begins[number], end, offsets[number])


@lru_cache(maxsize=1000)
def zone(name: str) -> Zone:
    """Return a zone by its IANA name. Raise DefinitionError if there is none."""
    if name not in names():
        raise DefinitionError(
            f"tz={name!r}: there is no such time zone: give an IANA name, such as Europe/Oslo or UTC"
        )
    return Zone(name)


@lru_cache(maxsize=1)
def names() -> frozenset[str]:
    """Return the names of all zones."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("utf-8").split())


def _load(name: str) -> ZoneInfo:
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, name)


def _year(year: int) -> float:
    return (datetime(year, 1, 1) - EPOCH).total_seconds()  # noqa: DTZ001  see EPOCH


@lru_cache(maxsize=4000)
def _periods(name: str, year: int) -> tuple[list[float], list[float]]:
    """Return when the periods of a year begin, and their offsets. Offsets are compared day by day: no zone has changed
    its offset twice within a day."""
    one = zone(name)
    begin, end = _year(year), _year(year + 1)
    begins, offsets = [begin], [one.offset(begin)]
    day = begin
    while day < end:
        after = min(day + DAY_S, end)
        if one.offset(after - 1) != offsets[-1]:
            change = _change(one, day, after - 1)
            begins.append(change)
            offsets.append(one.offset(change))
        day = after
    return begins, offsets


def _change(one: Zone, before: float, after: float) -> float:
    """Return the first instant that has the offset of `after`. Both are whole seconds."""
    wanted = one.offset(after)
    while after - before > 1:
        middle = float((before + after) // 2)
        if one.offset(middle) == wanted:
            after = middle
        else:
            before = middle
    return after if one.offset(before) != wanted else before


def iso(at: float) -> str:
    """Return an instant as ids have it: `2026-11-16T02:00Z`, with seconds and milliseconds if it has any."""
    moment = datetime.fromtimestamp(round(at, 3), UTC)
    if moment.microsecond:
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return moment.strftime("%Y-%m-%dT%H:%MZ" if moment.second == 0 else "%Y-%m-%dT%H:%M:%SZ")
