"""Calendars: sets of days, such as public holidays, that a schedule leaves out or keeps to."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from functools import cached_property
from typing import cast

import msgspec

from holdfast.errors import DefinitionError

DAYS_MAX = 10_000
NAME_MAX_CHARS = 200


class Days(msgspec.Struct, frozen=True, dict=True):
    """A calendar as a schedule keeps it: days as texts, sorted."""

    name: str
    days: tuple[str, ...]
    until: str

    @cached_property
    def all(self) -> frozenset[date]:
        return frozenset(date.fromisoformat(day) for day in self.days)

    @cached_property
    def last(self) -> date:
        return date.fromisoformat(self.until)

    def has(self, day: date) -> bool:
        return day in self.all

    def is_over(self, day: date) -> bool:
        """True if the calendar says nothing about this day any more."""
        return day > self.last


class Calendar:
    """A set of days: `Calendar("norway", days=["2026-12-25", …], until="2030-12-31")`.

    It says nothing about days after `until`: a schedule does not leave them out. The leader raises an alert 30 days
    before.
    """

    def __init__(self, name: str, days: Iterable[str | date], until: str | date) -> None:
        what, given = f"Calendar({name!r})", cast("object", name)
        if not isinstance(given, str) or not name or not name.isprintable() or len(name) > NAME_MAX_CHARS:
            raise DefinitionError(f"{what}: expected a name of 1 to {NAME_MAX_CHARS} printable characters")
        if isinstance(days, str) or not isinstance(days, Iterable):
            raise DefinitionError(f"{what}: days: expected a list of days such as 2026-12-25, not {days!r}")
        last = _day(until, f"{what}: until")
        found = sorted({_day(day, f"{what}: days") for day in days})
        if not found or len(found) > DAYS_MAX:
            raise DefinitionError(f"{what}: expected 1 to {DAYS_MAX:,} days, not {len(found):,}")
        if found[-1] > last:
            raise DefinitionError(
                f"{what}: it ends with {last}, before its day {found[-1]}: give a later until="
            )
        self.stored = Days(name, tuple(day.isoformat() for day in found), last.isoformat())
        self.name = name

    def __repr__(self) -> str:
        return f"<calendar {self.name} until {self.stored.until}>"


def _day(value: object, what: str) -> date:
    try:
        if isinstance(value, date):
            return date(value.year, value.month, value.day)
        if isinstance(value, str):
            return date.fromisoformat(value)
    except ValueError:
        pass
    raise DefinitionError(f"{what}: expected a day such as 2026-12-25, not {value!r}")
