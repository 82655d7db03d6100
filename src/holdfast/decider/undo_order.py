"""The order of undoing: what completed last is undone first, and what overlapped is undone side by side.

If B had completed before A was asked for, A may depend on B. So A is undone first and then B. Two things overlapped if
neither of them had completed when the other was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T", bound=Hashable)

Moment: TypeAlias = tuple[float, float]
"""The number of the last delivery, and a position among what the code asked for after it."""

NEVER: Moment = (math.inf, 0)
"""The completion of what was given up, or whose outcome is not known: it counts as later than everything else."""


class Extent(NamedTuple):
    """From when the code asked for something until it had completed."""

    asked: Moment
    completed: Moment


def extent_of(after_seq: int, n: int, delivered_seq: int | None) -> Extent:
    """Return the extent of a call. What the code asks for in answer to the call's outcome comes after the call."""
    return Extent((after_seq, n), (delivered_seq, 0) if delivered_seq else NEVER)


def instant(after_seq: int, n: int) -> Extent:
    """Return the extent of something that was complete when it was asked for. It comes after earlier requests."""
    return Extent((after_seq, n), (after_seq, n + 0.5))


class Reverse(Generic[T]):
    """Says which items may be undone next. `n` items cost n log n in all, whatever their order."""

    __slots__ = ("_asked", "_completed", "_resolved")

    def __init__(self, items: Iterable[tuple[Extent, T]]) -> None:
        items = list(items)
        self._asked = sorted(((extent.asked, i, item) for i, (extent, item) in enumerate(items)), key=_first)
        self._completed = sorted(
            ((extent.completed, extent.asked, item) for extent, item in items), key=lambda entry: entry[:2]
        )
        self._resolved: set[T] = set()

    def ready(self) -> list[T]:
        """Return the items that do not have to wait for another unresolved item, newest completion first. Each item is
        returned only once."""
        asked, completed, resolved = self._asked, self._completed, self._resolved
        while asked and asked[-1][2] in resolved:
            asked.pop()
        next_items: list[T] = []
        while completed and asked and completed[-1][0] > asked[-1][0]:
            item = completed.pop()[2]
            if item not in resolved:
                next_items.append(item)
        return next_items

    def resolve(self, item: T) -> None:
        """Note that this item is undone or skipped, or that its undo gave up. Others need not wait for it."""
        self._resolved.add(item)


def _first(entry: tuple[Moment, int, object]) -> tuple[Moment, int]:
    return entry[:2]
