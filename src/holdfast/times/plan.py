"""A plan: all that is written about a schedule, and the times that follow from it. The leader reads it from the store, and
has no code of the author's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from hashlib import blake2b
from typing import Literal, NamedTuple, get_args

import msgspec

from holdfast.errors import DefinitionError
from holdfast.times.calendars import Days
from holdfast.times.grammar import Interval, Times, times_of
from holdfast.times.zones import EPOCH, Zone, zone

Overlap = Literal["skip", "buffer_one", "buffer_all", "cancel_other", "allow"]
Missed = Literal["skip", "once", "all"]
Shift = Literal["next", "previous"]

LATE_S = 60.0
"""A time that is decided more than this long after it came is late: nobody led, or nothing ran."""
WINDOW_S = 86_400.0
"""How far back `missed` looks, unless the schedule says otherwise."""
WINDOW_MAX_S = 31 * 86_400.0
MISSED_MAX = 1000
BUFFERED_MAX = 1000
"""How many times `buffer_all` keeps waiting."""
DAYS_MAX = 4000
"""How many days in a row a calendar can remove before a schedule counts as ended."""
ENDS_SOON_DAYS = 30


class Preview(NamedTuple):
    """One of the next times, or of the days that a calendar removed or moved."""

    at: float
    starts_at: float
    """With the jitter."""
    note: str


class Plan(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    times: str
    zone: str = "UTC"
    anchor: float = 0.0
    skip: Days | None = None
    only: Days | None = None
    shift: Shift | None = None
    start: float | None = None
    end: float | None = None
    count: int | None = None
    """How many times it runs in all. None: no limit."""
    overlap: Overlap = "skip"
    missed: Missed = "once"
    missed_max: int = 1
    """With `missed="all"`: how many of the newest are made up for."""
    window_s: float = WINDOW_S
    jitter_s: float = 0.0
    pause_after: int | None = None
    due: str | None = None
    """The wall time by which its runs are promised to end, such as 06:00: the first one after the time of the run."""
    due_s: float | None = None
    """The same, as a span that is counted from when the run may begin."""
    fair: str | None = None
    """Whom its runs are for. No backlog of one fair key delays another one."""

    def check(self) -> None:
        """Raise DefinitionError if something in the plan cannot be."""
        zone(self.zone)
        times_of(self.times, self.anchor)
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise DefinitionError("end: it is not after start, so the schedule never fires")
        if self.shift is not None and self.skip is None and self.only is None:
            raise DefinitionError("shift: it needs a calendar, by skip= or only=")
        if self.shift is not None and self.shift not in get_args(Shift):
            raise DefinitionError(f'shift: expected "next" or "previous", not {self.shift!r}')
        if self.overlap not in get_args(Overlap):
            raise DefinitionError(
                f"overlap: expected one of {', '.join(get_args(Overlap))}, not {self.overlap!r}"
            )
        if self.missed not in get_args(Missed):
            raise DefinitionError(f'missed: expected "skip", "once" or a number, not {self.missed!r}')
        if self.due is not None:
            wall_time(self.due)
        for what, value, low, high in (
            ("count", self.count, 1, 10**9),
            ("missed", self.missed_max, 1, MISSED_MAX),
            ("window", self.window_s, LATE_S, WINDOW_MAX_S),
            ("jitter", self.jitter_s, 0, 366 * 86_400),
            ("pause_after", self.pause_after, 1, 10**6),
        ):
            if value is not None and not low <= value <= high:
                raise DefinitionError(f"{what}: expected {low:g} to {high:g}, not {value!r}")

    @property
    def _zone(self) -> Zone:
        return zone(self.zone)

    @property
    def _times(self) -> Times:
        return times_of(self.times, self.anchor)

    # --- times --------------------------------------------------------------------------------------------------------

    def after(self, at: float) -> float | None:
        """Return the first time after `at`. None if there is none any more."""
        if self.start is not None and at < self.start:
            at = self.start - 1
        found = self._shifted(at) if self.shift is not None else self._kept(at)
        if found is None or (self.end is not None and found > self.end):
            return None
        return found

    def between(self, after: float, until: float) -> Iterator[float]:
        """Yield the times after `after`, up to and including `until`."""
        at = self.after(after)
        while at is not None and at <= until:
            yield at
            at = self.after(at)

    def _kept(self, at: float) -> float | None:
        times, where = self._times, self._zone
        found = times.after(at, where)
        if self.skip is None and self.only is None:
            return found
        for _ in range(DAYS_MAX):
            if found is None:
                return None
            local = where.local(found)
            if self.keeps(local.date()):
                return found
            # Nothing else of this day is kept either. Half a second before the next day, a time at midnight still counts.
            found = times.after(where.instant(_midnight(local) + timedelta(days=1)) - 0.5, where)
        return None

    def keeps(self, day: date) -> bool:
        """True unless a calendar removes this day."""
        if self.skip is not None and not self.skip.is_over(day) and self.skip.has(day):
            return False
        return self.only is None or self.only.is_over(day) or self.only.has(day)

    def _shifted(self, at: float) -> float | None:
        """Look at one day after another. A day that is kept has its own times, and those of the
        removed days right before it (or right after it)."""
        day = _midnight(self._zone.local(at))
        for _ in range(DAYS_MAX):
            if self.keeps(day.date()):
                found = min((time for time in self._times_of(day) if time > at), default=None)
                if found is not None:
                    return found
            day += timedelta(days=1)
        return None

    def _times_of(self, kept: datetime) -> Iterator[float]:
        where, day = self._zone, kept
        step = timedelta(days=-1 if self.shift == "next" else 1)
        for _ in range(DAYS_MAX):
            begin = where.instant(day) - 0.5
            end = where.instant(day + timedelta(days=1)) - 0.5
            found = self._times.after(begin, where)
            while found is not None and found < end:
                yield where.instant(kept + (where.local(found) - day))
                found = self._times.after(found, where)
            day += step
            if self.keeps(day.date()):
                return

    def count_between(self, after: float, until: float, most: int) -> tuple[int, float, float] | None:
        """Return how many times there are after `after` and before `until`, the first and the last of them. At most
        `most` are counted one by one. None if there are none."""
        first = self.after(after)
        if first is None or first >= until:
            return None
        parts = self._times.parts
        if len(parts) == 1 and isinstance(parts[0], Interval) and self.skip is None and self.only is None:
            end = until if self.end is None else min(until, self.end + 1)
            # The first one counts, however near the end is.
            many = max(0, int((end - first - 1e-6) // parts[0].seconds))
            return many + 1, first, first + many * parts[0].seconds
        count, last = 1, first
        while count < most:
            found = self.after(last)
            if found is None or found >= until:
                break
            count, last = count + 1, found
        return count, first, last

    # --- when a time starts ---------------------------------------------------------------------------------------------

    def starts_at(self, name: str, at: float) -> float:
        """Return when the run of this time starts: later by the jitter, which is the same on every node, and never past
        the time after it."""
        if not self.jitter_s:
            return at
        following = self.after(at)
        room = self.jitter_s if following is None else min(self.jitter_s, following - at)
        made = blake2b(f"{name}\0{at:.0f}".encode(), digest_size=8).digest()
        return at + room * int.from_bytes(made, "big") / 2**64

    def next_start(self, name: str, cursor: float) -> float | None:
        at = self.after(cursor)
        return None if at is None else self.starts_at(name, at)

    def due_at(self, at: float) -> float | None:
        """Return by when the run of this time is promised to end, if that is a wall time: the first one after it. On a day
        that does not have this wall time, it is the first instant after the gap."""
        if self.due is None:
            return None
        minutes, where = wall_time(self.due), self._zone
        day = _midnight(where.local(at))
        found = where.instant(day + minutes)
        return found if found > at else where.instant(day + timedelta(days=1) + minutes)

    def preview(self, name: str, after: float, count: int) -> list[Preview]:
        """Return the next times, and between them the times that a calendar removed."""
        found: list[Preview] = []
        where, at, kept = self._zone, after, 0
        while kept < count:
            following = self.after(at)
            if following is None:
                break
            if self.shift is None and (self.skip is not None or self.only is not None):
                found += self._removed(at, following)
            found.append(
                Preview(following, self.starts_at(name, following), self._note(where.local(following)))
            )
            at, kept = following, kept + 1
        return found

    def _removed(self, after: float, before: float) -> Iterator[Preview]:
        at, shown = self._times.after(after, self._zone), 0
        while at is not None and at < before and shown < 50:
            yield Preview(at, at, f"left out: {self._calendar_of(self._zone.local(at).date())}")
            at, shown = self._times.after(at, self._zone), shown + 1

    def _calendar_of(self, day: date) -> str:
        if self.skip is not None and self.skip.has(day):
            return f"calendar {self.skip.name}"
        return f"not in calendar {'' if self.only is None else self.only.name}"

    def _note(self, local: datetime) -> str:
        notes = [
            f"calendar {days.name} ended with {days.until} and removes nothing"
            for days in (self.skip, self.only)
            if days is not None and days.is_over(local.date())
        ]
        return "; ".join(notes)

    def ends_soon(self, now: float) -> Days | None:
        """Return a calendar that ends within 30 days, or has ended."""
        day = self._zone.local(now).date() + timedelta(days=ENDS_SOON_DAYS)
        return next((one for one in (self.skip, self.only) if one is not None and one.is_over(day)), None)

    def shown(self, at: float) -> str:
        """Return a time as people in the schedule's zone read it."""
        return self._zone.aware(at).isoformat(sep=" ", timespec="seconds")


def wall_time(text: str) -> timedelta:
    """Read a wall time such as 06:00, as the time since midnight."""
    found = re.fullmatch(r"([01][0-9]|2[0-3]):([0-5][0-9])", text)
    if found is None:
        raise DefinitionError(
            f"due: {text!r} is no wall time in the schedule's zone: write 06:00; a span is given to the workflow"
        )
    return timedelta(hours=int(found[1]), minutes=int(found[2]))


def _midnight(local: datetime) -> datetime:
    return EPOCH + timedelta(days=(local - EPOCH).days)


def read_plan(text: str) -> Plan:
    """Read the plan of a schedule's row."""
    return _decoder.decode(text)


_decoder = msgspec.json.Decoder(Plan)
