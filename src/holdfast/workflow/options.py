"""Turns what authors may write for a duration, a policy or a list of needs into the one form that Holdfast uses."""

from __future__ import annotations

import inspect
import math
from collections.abc import Coroutine, Iterable
from datetime import UTC, datetime, timedelta
from inspect import CO_NEWLOCALS, isfunction
from types import FrameType
from typing import Any, Final, TypeAlias, TypeVar, get_args

from holdfast.codec import stored_text
from holdfast.config import OnBug
from holdfast.decider.keys import word
from holdfast.errors import DefinitionError, InvalidInput
from holdfast.model import PRIORITY_MAX
from holdfast.namespaces import BETWEEN
from holdfast.policy import DEFAULT_RETRY, Retry
from holdfast.questions import is_person, is_who
from holdfast.queues import FAIR_MAX_CHARS
from holdfast.workflow.origin import Place

R = TypeVar("R")

Seconds: TypeAlias = float | timedelta
"""A duration: seconds, or a timedelta."""


Call: TypeAlias = Coroutine[object, None, R]
"""What calling a step returns. It is not `Coroutine[Any, Any, R]`: mypy would infer Any for a `gather` of two of
those."""


INT_MAX = 2**31 - 1
"""The largest integer that both stores can keep."""
LATEST = datetime(9000, 1, 1, tzinfo=UTC).timestamp()
"""The latest time that can be meant. The calendar ends with the year 9999."""


class Unset:
    """Stands for an option that was left out: `using(timeout=None)` removes a timeout, `using()` keeps the one there
    is."""

    def __repr__(self) -> str:
        return "…"


UNSET: Final = Unset()


def seconds(value: Seconds | None, what: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        raise DefinitionError(f"{what}: expected seconds as a number, or a timedelta, not {value!r}")
    found = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if not (math.isfinite(found) and found > 0):
        raise DefinitionError(f"{what}: expected a time above 0, not {value!r}")
    return found


def patience(value: Seconds | None, what: str) -> float | None:
    """Return how long somebody is ready to wait. It is like `seconds`, but 0 is allowed and means to look once."""
    if isinstance(value, timedelta) and value == timedelta(0):
        return 0.0
    return 0.0 if value == 0 and not isinstance(value, bool) else seconds(value, what)


def in_calendar(at: float, what: str) -> float:
    """Return the time, if what follows it has a date, too."""
    if at > LATEST:
        raise DefinitionError(f"{what}: it is too far ahead: give a time before the year 9000")
    return at


def instant(value: object, what: str) -> float:
    """Return a time, as seconds since the epoch. It must say in which zone it is, because code runs on several hosts."""
    if not isinstance(value, datetime):
        raise DefinitionError(f"{what}: expected a datetime, not {value!r}")
    if value.utcoffset() is None:
        raise DefinitionError(f"{what}: {value} has no time zone: write datetime(…, tzinfo=UTC)")
    return in_calendar(value.timestamp(), what)


def begin(begin_in: object, begin_at: object, what: str) -> tuple[float | None, float | None]:
    """Return when a run may begin: in this many seconds, or at this time, or neither."""
    if begin_in is not None and begin_at is not None:
        raise DefinitionError(f"{what}: give begin_in or begin_at, not both")
    found: Any = begin_in
    return (
        seconds(found, f"{what}: begin_in"),
        None if begin_at is None else instant(begin_at, f"{what}: begin_at"),
    )


def due(span: object, at: object, what: str) -> tuple[float | None, float | None]:
    """Return when a run is due: within this many seconds, or at this time, or neither."""
    if span is not None and at is not None:
        raise DefinitionError(f"{what}: give due or due_at, not both")
    found: Any = span
    return seconds(found, f"{what}: due"), None if at is None else instant(at, f"{what}: due_at")


def check_due(due_s: float | None, timeout_s: float | None, what: str) -> None:
    """Refuse a promise that the timeout breaks: a run that its timeout has ended is never late."""
    if due_s is not None and timeout_s is not None and due_s > timeout_s:
        raise DefinitionError(
            f"{what}: due ({due_s:g} s) is after the timeout ({timeout_s:g} s), which ends the run before it can be late: give a "
            "shorter due or a longer timeout"
        )


def policy(value: Retry | int | None, what: str) -> Retry:
    if value is None:
        return DEFAULT_RETRY
    if isinstance(value, int) and not isinstance(value, bool):
        return Retry(attempts=value)
    if not isinstance(value, Retry):
        raise DefinitionError(f"{what}: expected a Retry, or the number of attempts, not {value!r}")
    return value


Errors: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]


def undo_failed(value: bool | Errors, what: str) -> tuple[bool, tuple[type[BaseException], ...]]:
    """Return whether a step is undone after any exception of its own, and if not, after which ones."""
    if isinstance(value, bool):
        return value, ()
    found: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(one, type) and issubclass(one, BaseException) for one in found):
        raise DefinitionError(f"{what}: expected True, an exception class, or a tuple of them, not {value!r}")
    return False, found


def needs(value: Iterable[str], what: str) -> tuple[str, ...]:
    return tuple(sorted(set(labels(value, what, "needs"))))


def labels(value: Iterable[str], what: str, word: str = "labels") -> tuple[str, ...]:
    if isinstance(value, str):
        raise DefinitionError(f"{what}: expected a list of labels: write {word}=[{value!r}]")
    if not isinstance(value, Iterable):
        raise DefinitionError(f"{what}: expected a list of labels, not {value!r}")
    return tuple(text(label, f"{what}: a label") for label in value)


def text(value: object, what: str) -> str:
    if (
        not isinstance(value, str)
        or not value
        or value != value.strip()
        or not value.isprintable()
        or value[0] == "$"
        or len(value) > NAME_MAX_CHARS
    ):
        shown = f"{value[:50]!r}" if isinstance(value, str) else repr(value)
        raise DefinitionError(
            f"{what}: expected 1 to {NAME_MAX_CHARS} printable characters that do not begin with $, not {shown}"
        )
    return value


def key(value: object, what: str) -> None:
    """Raise unless this is the key of a signal or of a call, or None. An empty one would be no key at all: the same event
    again would count again."""
    if value is None:
        return
    if not stored_text(value, what):
        raise InvalidInput(f"{what} is empty: give the id of what happened, or leave it out")


ID_MAX_CHARS = 200
NAME_MAX_CHARS = 200


def who(value: object, what: str) -> str:
    """Check the name of a person or a team."""
    if not is_who(value):
        raise DefinitionError(f'{what}: expected "person:NAME" or "team:NAME", not {value!r:.100}')
    return str(value)


def person(value: object, what: str) -> str:
    if not is_person(value):
        raise DefinitionError(f'{what}: expected "person:NAME", not {value!r:.100}')
    return str(value)


def run_id(value: object, what: str) -> str:
    """Check a run's id, which is any text of the caller's. It must not contain `::`, because `here.key` puts `::`
    between the run's id and a step's key, nor `//`, which stands between a namespace and an id. A child of `a/` would
    have `//` in its id."""
    if (
        not isinstance(value, str)
        or not value.isprintable()
        or not 0 < len(value) <= ID_MAX_CHARS
        or value != value.strip()
        or "::" in value
        or value[0] == "$"
        or BETWEEN in value
        or "/" in {value[0], value[-1]}
    ):
        shown = f"{value[:50]!r}" if isinstance(value, str) else repr(value)
        raise DefinitionError(
            f"{what}: {shown} cannot be a run's id: it needs 1 to {ID_MAX_CHARS} printable characters, no spaces around it, "
            "no `::` or `//` in it, no / at either end and no $ before it"
        )
    return value


def joins(value: object, id: str | None, what: str) -> bool:
    if value != "join":
        raise DefinitionError(
            f'{what}: expected "join", not {value!r}: without it, an id that exists is a Conflict'
        )
    if id is None:
        raise DefinitionError(f'{what}: say which run to join: using(id=…, existing="join")')
    return True


def on_bug(value: OnBug | None, what: str) -> OnBug | None:
    if value is not None and value not in get_args(OnBug):
        raise DefinitionError(f'{what}: expected "undo" or "hold", not {value!r}')
    return value


def whole_number(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -INT_MAX <= value <= INT_MAX:
        raise DefinitionError(f"{what}: expected a whole number, not {value!r}")
    return value


def priority(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= PRIORITY_MAX:
        raise DefinitionError(f"{what}: expected a whole number from 0 to {PRIORITY_MAX}, not {value!r}")
    return value


def fair(value: object, what: str) -> str | None:
    """Check a fair key, which is any text of the caller's. None: for nobody in particular."""
    if value is None:
        return None
    if (
        not isinstance(value, str)
        or not value.isprintable()
        or not 0 < len(value) <= FAIR_MAX_CHARS
        or value != value.strip()
        or value[0] == "$"
        or BETWEEN in value
        or "/" in {value[0], value[-1]}
    ):
        shown = f"{value[:50]!r}" if isinstance(value, str) else repr(value)
        raise DefinitionError(
            f"{what}: {shown} cannot be a fair key: it needs 1 to {FAIR_MAX_CHARS} printable characters, no spaces around "
            "it, no `//` in it, no / at either end and no $ before it"
        )
    return value


def check_function(fn: object, decorator: str) -> None:
    """Refuse what cannot be declared by `@step`, `@….undo` or `@workflow`, and say what to write instead."""
    name = getattr(fn, "__qualname__", None) or type(fn).__name__
    if isinstance(fn, str):
        raise DefinitionError(f"@{decorator}({fn!r}): a name is given as @{decorator}(name={fn!r})")
    if isinstance(fn, staticmethod | classmethod | property) or _is_in_class(fn):
        raise DefinitionError(
            f"@{decorator} on {name}, which belongs to a class: runs find it by its name and call it without an object; make it "
            "a function of the module, and pass what it needs as arguments"
        )
    if isinstance(fn, type) or not inspect.isfunction(fn):
        declared = {
            "Step": "is a step already",
            "Undo": "is an undo already",
            "Workflow": "is a workflow already",
        }
        problem = declared.get(type(fn).__name__, "is no function")
        raise DefinitionError(
            f"@{decorator} takes a def or an async def, and {fn!r} {problem}: put @{decorator} alone on the function itself"
        )
    if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        raise DefinitionError(
            f"@{decorator} on {name}, a generator: return one value instead, such as a list"
        )
    inner = inspect.unwrap(fn)
    if inspect.iscoroutinefunction(inner) and not inspect.iscoroutinefunction(fn):
        raise DefinitionError(
            f"@{decorator} on {name}: the decorator below it makes a plain function of an async def, and its coroutine would "
            "never be awaited: remove that decorator, or let it return an async def"
        )


def _is_in_class(fn: object) -> bool:
    """True for a function that is defined in the body of a class, and not inside a function."""
    *around, _ = getattr(fn, "__qualname__", "").split(".") or [""]
    return inspect.isfunction(fn) and bool(around) and around[-1] != "<locals>"


def name_of(place: Place, name: str | None) -> str:
    """Return the name that the author gives, or else `module.qualname`."""
    if name is not None:
        return text(name, "name")
    if "<lambda>" in place.qualname:
        raise DefinitionError("a lambda has no name to be found by: write a def, or pass name=…")
    return f"{place.module}.{place.qualname.replace('.<locals>', '')}"


def label_of(name: str) -> str:
    """Return the short name, as a word of a key."""
    return word(name.rsplit(".", 1)[-1])


def declared_in(frame: FrameType, fn: object) -> dict[str, Any]:
    """Return where a function is declared, and, if that is inside another function, the names around it, which resolve
    its annotations. Both are arguments of `Step` and `Workflow`."""
    scope = dict(frame.f_locals) if frame.f_code.co_flags & CO_NEWLOCALS else None
    return {"scope": scope, "place": Place(fn, frame) if isfunction(fn) else None}
