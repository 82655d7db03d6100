"""Exceptions as JSON and back: a workflow can catch the very exception its step raised on another machine.

Rebuilding never imports a module and never runs an author's `__init__`: what cannot be rebuilt becomes a `StepFailed`
with the same words.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast import errors
from holdfast.codec.payload import decode_any, encode_any
from holdfast.policy import name_of

MESSAGE_MAX_CHARS = 4_000
TRACE_MAX_FRAMES = 12
"""The innermost frames: where it went wrong."""
TRACE_MAX_CHARS = 6_000
EXTRAS_MAX_BYTES = 16_000
"""Arguments and attributes of an exception are kept when they are JSON and no larger than this."""

_LIBRARY = str(Path(__file__).parent.parent)
_ASYNCIO = str(Path(types.__file__).parent / "asyncio")
_CONCURRENT = str(Path(types.__file__).parent / "concurrent")


STEP = "_holdfast_step"
"""Keeps the number of the step whose outcome an exception was, in the code of a workflow."""
_PLACE = "_holdfast_place"
"""Keeps the place of an exception that was rebuilt: it has no traceback any more."""
_UNKNOWN = frozenset({"timed out", "lost"})
"""Endings of an attempt that do not say whether it had its effect."""


class Failure(msgspec.Struct, omit_defaults=True):
    """An exception, as it is recorded."""

    type: str
    message: str
    step: str = ""
    ending: str = "failed"
    args: list[Any] | None = None
    attributes: dict[str, Any] = {}
    notes: list[str] = []
    traceback: str = ""
    cause: dict[str, str] | None = None
    unsure: bool = False
    """An attempt before this one ended without anybody knowing how: it may have had its effect."""
    place: str = ""
    """The innermost line of the author's code."""
    seq: int | None = None
    """Of a run: how much of its history had been delivered when its code ended."""
    steps: list[int] = []
    """Of a run: n of the steps whose failure ended it. None, if it was the code itself, a deadline or a cancel."""
    undone: list[int] = []
    """Of a run: n of its steps that were taken back."""
    by: str = ""
    """Of a run that had succeeded: the parent that took it back."""


_read = msgspec.json.Decoder(Failure)


def encode_error(
    error: BaseException, *, step: str = "", ending: str = "failed", unsure: bool = False
) -> str:
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    failure = Failure(
        type=name_of(type(error)),
        message=message_of(error),
        step=step,
        ending=ending,
        args=_json(_arguments(error)),
        attributes={
            name: value
            for name, value in getattr(error, "__dict__", {}).items()
            if name not in ("__notes__", _PLACE, STEP) and _json(value) is not None
        },
        notes=[str(note)[:MESSAGE_MAX_CHARS] for note in getattr(error, "__notes__", ())][:20],
        traceback=_trace(error),
        cause=None if cause is None else {"type": name_of(type(cause)), "message": message_of(cause)},
        unsure=unsure,
        place=place_of(error),
    )
    return msgspec.json.encode(failure).decode()


def place_of(error: BaseException) -> str:
    """Where it was raised: the innermost line of the author's code, as `billing.py:42`. The folder is left out: the same
    code stands in another one on another host. Empty when no line of theirs is in it."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):  # no source is read for it
        if _is_authors(frame.f_code.co_filename):
            found = f"{Path(frame.f_code.co_filename).name}:{line}"
    if found:
        return found
    known = getattr(error, _PLACE, "")
    return known if isinstance(known, str) else ""


def decode_error(raw: str) -> Exception:
    """The exception to raise in the workflow."""
    failure = _parsed(raw)
    rebuilt = _rebuild(failure) if failure.ending not in ("timed out", "lost") else None
    if rebuilt is None:
        known = {"timed out": errors.StepTimeout, "lost": errors.StepLost}.get(failure.ending)
        text = _line(failure) if known is None else failure.message
        rebuilt = (known or errors.StepFailed)(text, error_type=failure.type, step=failure.step)
    if failure.place:
        with contextlib.suppress(AttributeError):
            setattr(rebuilt, _PLACE, failure.place)
    for note in failure.notes:
        rebuilt.add_note(note)
    if failure.step:
        note = f"in step {failure.step}"
        if note not in failure.notes:
            rebuilt.add_note(note)
    return rebuilt


def own_error(raw: str | None) -> Exception | None:
    """The exception itself, if it can be rebuilt here: nothing in place of it."""
    if raw is None:
        return None
    error = decode_error(raw)
    return error if name_of(type(error)) == _parsed(raw).type else None


def describe_error(raw: str) -> str:
    """One line for people: `ValueError: bad card`."""
    return " ".join(_line(_parsed(raw)).split())


def is_unsure(losses: int, error: str | None) -> bool:
    """May a step that failed have had its effect? Yes, if any attempt ended without anybody knowing how."""
    if losses > 0:
        return True
    if error is None:
        return False
    failure = _parsed(error)
    return failure.unsure or failure.ending in _UNKNOWN


def gave_up_error(undos: Sequence[tuple[str, str, str | None]], cause: str | None) -> str:
    """Why a run is stuck: the (name, key, error) of its undos that gave up, and what made it take itself back."""
    lines = [f"{name} of {key}: {_told(error)}" for name, key, error in undos]
    name, key, error = undos[0]
    first = _parsed(error) if error is not None else Failure(type="holdfast.errors.StepFailed", message="")
    text = f"{name}, the undo of {key}, gave up"
    text += f": {first.message}" if first.message else ""
    if len(lines) > 1:
        text += f"; so did {len(lines) - 1} more: {'; '.join(lines[1:])}"
    origin = None if cause is None else _parsed(cause)
    failure = Failure(
        type=first.type,
        message=text[:MESSAGE_MAX_CHARS],
        step=name,
        ending=first.ending,
        notes=lines[:20],
        traceback=first.traceback,
        cause=None if origin is None else {"type": origin.type, "message": origin.message},
    )
    return msgspec.json.encode(failure).decode()


class End(NamedTuple):
    """What is recorded of a run's end beside its error."""

    seq: int | None
    """None: the run ended under an older version, which did not record it."""
    steps: Sequence[int]
    undone: Sequence[int]
    by: str


def end_of(raw: str | None) -> End:
    if raw is None:
        return End(None, (), (), "")
    failure = _parsed(raw)
    return End(failure.seq, failure.steps, failure.undone, failure.by)


def ended_by(raw: str, seq: int, steps: Sequence[int]) -> str:
    """The error of a run, with the place in its history where its code ended, and the steps that ended it."""
    failure = _parsed(raw)
    failure.seq, failure.steps = seq, list(steps)
    return msgspec.json.encode(failure).decode()


def taken_back(raw: str | None, undone: Sequence[int]) -> str | None:
    """The error of a run that has taken itself back, with the steps that were undone."""
    if raw is None or not undone:
        return raw
    failure = _parsed(raw)
    failure.undone = sorted(undone)
    return msgspec.json.encode(failure).decode()


def revoked_error(parent_id: str, cause: str | None, undone: Sequence[int]) -> str:
    """Why a run that had succeeded is undone: its parent took itself back, and with it these steps."""
    why = f": {describe_error(cause)}" if cause is not None else ""
    failure = Failure(
        type=name_of(errors.RunUndone),
        message=f"run {parent_id}, which had started it, took it back{why}"[:MESSAGE_MAX_CHARS],
        undone=list(undone),
        by=parent_id,
    )
    return msgspec.json.encode(failure).decode()


def _told(error: str | None) -> str:
    return "cancelled" if error is None else describe_error(error)


def message_of(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as wrong:  # noqa: BLE001  an author's __str__ must not hide the failure
        text = f"(its message cannot be shown: {type(wrong).__name__})"
    if isinstance(error, BaseExceptionGroup):
        inner = "; ".join(f"{type(e).__name__}: {message_of(e)}" for e in error.exceptions[:5])
        text = f"{error.message}: {inner}"
    return text.encode("utf-8", "backslashreplace").decode()[:MESSAGE_MAX_CHARS]


def _arguments(error: BaseException) -> list[Any]:
    """What makes the same exception again. OSError keeps its file name beside its arguments."""
    if isinstance(error, OSError) and error.filename is not None and len(error.args) == 2:
        return [*error.args, error.filename]
    return list(error.args)


def _parsed(raw: str) -> Failure:
    try:
        return _read.decode(raw)
    except msgspec.MsgspecError:
        return Failure(type="builtins.Exception", message=raw[:MESSAGE_MAX_CHARS])


def _line(failure: Failure) -> str:
    name = failure.type.rsplit(".", 1)[-1]
    return f"{name}: {failure.message}" if failure.message else name


def _json(value: Any) -> Any:
    """The value, if JSON keeps it as it is."""
    try:
        raw = encode_any(value, "")
        return value if len(raw) <= EXTRAS_MAX_BYTES and decode_any(raw) == value else None
    except errors.InvalidInput:
        return None
    except Exception:  # noqa: BLE001  an author's __eq__ must not hide the failure
        return None


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The author's frames: not Holdfast's, not asyncio's."""
    return [frame for frame in traceback.extract_tb(error.__traceback__) if _is_authors(frame.filename)]


def _is_authors(file: str) -> bool:
    return not file.startswith((_LIBRARY, _ASYNCIO, _CONCURRENT))


def _trace(error: BaseException) -> str:
    text = "".join(traceback.format_list(_frames(error)[-TRACE_MAX_FRAMES:]))
    return text.encode("utf-8", "backslashreplace").decode()[-TRACE_MAX_CHARS:]


def _rebuild(failure: Failure) -> Exception | None:
    cls = _class(failure.type)
    if cls is None:
        return None
    args = failure.args if failure.args is not None else [failure.message]
    try:
        if isinstance(cls.__init__, types.FunctionType):
            made = cls.__new__(cls, *args)
            made.args = tuple(args)
        else:
            made = cls(*args)
        made.__dict__.update(failure.attributes)
        str(made)
    except Exception:  # noqa: BLE001  a class that cannot be made this way is told by its words
        return None
    return made


def _class(name: str) -> type[Exception] | None:
    """An exception class that is loaded here and whose `__new__` is Python's own."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        found: Any = sys.modules.get(".".join(parts[:cut]))
        if found is None:
            continue
        for part in parts[cut:]:
            found = getattr(found, part, None) if part != "<locals>" else None
        if not isinstance(found, type) or not issubclass(found, Exception):
            return None
        if issubclass(found, StopIteration | StopAsyncIteration) or isinstance(
            found.__new__, types.FunctionType
        ):
            return None
        return found
    return None
