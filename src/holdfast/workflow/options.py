"""What authors may write for a duration, a policy or a list of needs, as the one form the rest of Holdfast uses."""

from __future__ import annotations

import math
from collections.abc import Coroutine, Iterable
from datetime import timedelta
from inspect import CO_NEWLOCALS, isfunction
from types import FrameType
from typing import Any, Final, TypeAlias, TypeVar

from holdfast.decider.keys import word
from holdfast.errors import DefinitionError
from holdfast.policy import DEFAULT_RETRY, Retry
from holdfast.workflow.place import Place

R = TypeVar("R")

Seconds: TypeAlias = float | timedelta
"""A duration: seconds, or a timedelta."""


Call: TypeAlias = Coroutine[object, None, R]
"""What calling a step gives. Not `Coroutine[Any, Any, R]`: of a `gather` of two of those, mypy only knows Any."""


class Unset:
    """`using(timeout=None)` removes a timeout; leaving it out keeps the one there is."""

    def __repr__(self) -> str:
        return "…"


UNSET: Final = Unset()


def seconds(value: Seconds | None, what: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        raise DefinitionError(f"{what}: seconds as a number, or a timedelta, not {value!r}")
    found = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if not (math.isfinite(found) and found > 0):
        raise DefinitionError(f"{what}: a time above 0, not {value!r}")
    return found


def policy(value: Retry | int | None, what: str) -> Retry:
    if value is None:
        return DEFAULT_RETRY
    if isinstance(value, int) and not isinstance(value, bool):
        return Retry(attempts=value)
    if not isinstance(value, Retry):
        raise DefinitionError(f"{what}: a Retry, or the number of attempts, not {value!r}")
    return value


Errors: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]


def undo_failed(value: bool | Errors, what: str) -> tuple[bool, tuple[type[BaseException], ...]]:
    """Whether a step is undone after any exception of its own, and else after which."""
    if isinstance(value, bool):
        return value, ()
    found: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(one, type) and issubclass(one, BaseException) for one in found):
        raise DefinitionError(f"{what}: True, an exception class, or a tuple of them, not {value!r}")
    return False, found


def needs(value: Iterable[str], what: str) -> tuple[str, ...]:
    if isinstance(value, str):
        raise DefinitionError(f"{what}: a list of labels: write needs=[{value!r}]")
    found = tuple(sorted(set(value)))
    return tuple(text(label, what) for label in found)


def text(value: object, what: str) -> str:
    if (
        not isinstance(value, str)
        or not value
        or value != value.strip()
        or not value.isprintable()
        or value[0] == "$"
    ):
        raise DefinitionError(f"{what}: a printable text that does not begin with $, not {value!r}")
    return value


def whole(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise DefinitionError(f"{what}: a whole number, not {value!r}")
    return value


def name_of(place: Place, name: str | None) -> str:
    """`module.qualname`, unless the author says otherwise."""
    if name is not None:
        return text(name, "name")
    if "<lambda>" in place.qualname:
        raise DefinitionError("a lambda has no name to be found by: write a def, or pass name=…")
    return f"{place.module}.{place.qualname.replace('.<locals>', '')}"


def label_of(name: str) -> str:
    """The short name, as a word of a key."""
    return word(name.rsplit(".", 1)[-1])


def seen(fn: object, frame: FrameType) -> dict[str, Any]:
    """What is to be seen from where a function is declared: where that is, and the names around one that is declared inside
    another, for resolving its annotations."""
    scope = dict(frame.f_locals) if frame.f_code.co_flags & CO_NEWLOCALS else None
    return {"scope": scope, "place": Place(fn, frame) if isfunction(fn) else None}
