"""What authors may write for a duration, a policy or a list of needs, as the one form the rest of Holdfast uses."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from inspect import CO_NEWLOCALS
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeAlias, TypeVar

from holdfast.decider.keys import word
from holdfast.errors import DefinitionError
from holdfast.policy import DEFAULT_RETRY, Retry

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


ID_MAX_CHARS = 200


def run_id(value: object, what: str) -> str:
    """A run's id is the caller's text. `here.key` is made of it and a step's key, with `::` between them."""
    if (
        not isinstance(value, str)
        or not value.isprintable()
        or not 0 < len(value) <= ID_MAX_CHARS
        or value != value.strip()
        or "::" in value
        or value[0] == "$"
    ):
        shown = f"{value[:50]!r}" if isinstance(value, str) else repr(value)
        raise DefinitionError(
            f"{what}: {shown} cannot be a run's id: 1 to {ID_MAX_CHARS} printable characters, no spaces around it, no `::`, no $ before it"
        )
    return value


def joins(value: object, id: str | None, what: str) -> bool:
    if value != "join":
        raise DefinitionError(
            f'{what}: "join", or leave it out: then an id that exists is a Conflict; not {value!r}'
        )
    if id is None:
        raise DefinitionError(f'{what}: say which run to join: using(id=…, existing="join")')
    return True


def whole(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise DefinitionError(f"{what}: a whole number, not {value!r}")
    return value


def name_of(fn: Callable[..., Any], name: str | None) -> str:
    """`file.qualname`, unless the author says otherwise: it must survive moving the package and running the file itself."""
    if name is not None:
        return text(name, "name")
    if "<lambda>" in fn.__qualname__:
        raise DefinitionError("a lambda has no name to be found by: write a def, or pass name=…")
    module = fn.__module__.rsplit(".", 1)[-1]
    if module == "__main__":
        module = Path(fn.__code__.co_filename).stem
    return f"{module}.{fn.__qualname__.replace('.<locals>', '')}"


def label_of(name: str) -> str:
    """The short name, as a word of a key."""
    return word(name.rsplit(".", 1)[-1])


def scope_of(frame: FrameType) -> dict[str, Any] | None:
    """The names around a function that is declared inside another one, for resolving its annotations."""
    return dict(frame.f_locals) if frame.f_code.co_flags & CO_NEWLOCALS else None
