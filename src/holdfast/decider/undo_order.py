"""The order of taking back: the reverse of completion, and together what overlapped.

B is taken back after A if B had completed before A was asked for: then A may depend on B. Two things of which neither
had completed when the other was asked for overlapped, and are taken back side by side.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T", bound=Hashable)

Moment: TypeAlias = tuple[float, float]
"""How much of the history had been delivered, and among what was asked for then, the how-manyth."""

NEVER: Moment = (math.inf, 0)
"""Given up, or its outcome is not known: as if it completed after everything else."""


class Span(NamedTuple):
    asked: Moment
    completed: Moment


def span_of(after_seq: int, n: int, delivered_seq: int | None) -> Span:
    """The place of a call. What was asked for in the very turn of its delivery came after it."""
    return Span((after_seq, n), (delivered_seq, 0) if delivered_seq else NEVER)


def instant(after_seq: int, n: int) -> Span:
    """The place of something that was complete when it was asked for: later than what came before it in its turn."""
    return Span((after_seq, n), (after_seq, n + 0.5))


class Reverse(Generic[T]):
    """Hands out what may be taken back next. `n` items cost n log n in all, whatever their order."""

    __slots__ = ("_asked", "_completed", "_resolved")

    def __init__(self, items: Iterable[tuple[Span, T]]) -> None:
        found = list(items)
        self._asked = sorted(((span.asked, i, item) for i, (span, item) in enumerate(found)), key=_first)
        self._completed = sorted(
            ((span.completed, span.asked, item) for span, item in found), key=lambda entry: entry[:2]
        )
        self._resolved: set[T] = set()

    def ready(self) -> list[T]:
        """What nothing unresolved has to come before, newest completion first. Each item is handed out once."""
        asked, completed, resolved = self._asked, self._completed, self._resolved
        while asked and asked[-1][2] in resolved:
            asked.pop()
        found: list[T] = []
        while completed and asked and completed[-1][0] > asked[-1][0]:
            item = completed.pop()[2]
            if item not in resolved:
                found.append(item)
        return found

    def resolve(self, item: T) -> None:
        """Taken back, skipped or given up: what waited for it may come."""
        self._resolved.add(item)


def _first(entry: tuple[Moment, int, object]) -> tuple[Moment, int]:
    return entry[:2]
