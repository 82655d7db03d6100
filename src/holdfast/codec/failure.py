"""Exceptions as JSON and back: a workflow can catch the very exception its step raised on another machine.

What cannot be rebuilt (see `exceptions.py`) becomes a `StepFailed` with the same words.
"""

from __future__ import annotations

import traceback
import types
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from holdfast import errors
from holdfast.codec.exceptions import known_class, made, recorded_names
from holdfast.codec.payload import encode_any
from holdfast.programs import name_of

MESSAGE_MAX_CHARS = 4_000
TRACE_MAX_FRAMES = 12
"""The innermost frames: where it went wrong."""
TRACE_MAX_CHARS = 6_000
EXTRAS_MAX_BYTES = 16_000
"""Arguments and attributes of an exception are kept when they are JSON and no larger than this."""

PARTS_MAX = 30
"""Exceptions that are recorded of one, its causes and the members of its groups."""
NOTES_MAX = 20
BYTES = "$bytes"
"""The member that holds bytes among an exception's arguments, as base64: UnicodeDecodeError cannot be made without."""

T = TypeVar("T")

_LIBRARY = str(Path(__file__).parent.parent)
_ASYNCIO = str(Path(types.__file__).parent / "asyncio")
_CONCURRENT = str(Path(types.__file__).parent / "concurrent")


STEP = "_holdfast_step"
"""Keeps the number of the step whose outcome an exception was, in the code of a workflow."""
_PLACE = "_holdfast_place"
"""Keeps the place of an exception that was rebuilt: it has no traceback any more."""
_UNKNOWN = frozenset({"timed out", "lost"})
"""Endings of an attempt that do not say whether it had its effect."""


class RecordedFailure(msgspec.Struct, omit_defaults=True):
    """An exception, as it is recorded."""

    type: str
    message: str
    step: str = ""
    ending: str = "failed"
    args: list[Any] | None = None
    attributes: dict[str, Any] = {}
    notes: list[str] = []
    traceback: str = ""
    cause: RecordedFailure | None = None
    """What it was raised from, or what was being handled when it was raised."""
    handling: bool = False
    """`cause` is what was being handled: nobody said `raise … from`."""
    group: list[RecordedFailure] = []
    """The members of an exception group."""
    unsure: bool = False
    """This attempt, or one before it, may have had its effect, although it has no result."""
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


_read = msgspec.json.Decoder(RecordedFailure)


def encode_error(
    error: BaseException, *, step: str = "", ending: str = "failed", unsure: bool = False
) -> str:
    """The exception as JSON, whatever it is: an author's class may raise or lie at every question."""
    try:
        failure = _described(error, [PARTS_MAX])
        failure.traceback, failure.place = _asked(_trace, error, ""), place_of(error)
        failure.step, failure.ending, failure.unsure = step, ending, unsure
        return msgspec.json.encode(failure).decode()
    except Exception as wrong:  # noqa: BLE001  the failure must be recorded, if only by its name
        name = _printable(_asked(name_of, type(error), "builtins.BaseException"))
        message = f"(it cannot be described: {type(wrong).__name__})"
        bare = RecordedFailure(type=name, message=message, step=step, ending=ending, unsure=unsure)
        return msgspec.json.encode(bare).decode()


def honest(error: BaseException) -> BaseException:
    """The exception; in place of one that lies about its class, and so may raise at every `isinstance`, one that says so."""
    try:
        if error.__class__ is type(error):
            return error
    except BaseException:  # noqa: BLE001, S110  whatever it raises when asked
        pass
    name = _printable(_asked(name_of, type(error), "BaseException"))
    return errors.StepFailed(f"{name}, which says it is something else", error_type=name)


def mark_unsure(raw: str, *, unsure: bool) -> str:
    """An error that is recorded already, and whether the step may have had its effect."""
    failure = _parsed(raw)
    failure.unsure = unsure
    return msgspec.json.encode(failure).decode()


def _described(error: BaseException, left: list[int]) -> RecordedFailure:
    """The exception with its cause and its members, as long as there are parts `left`: a chain may be a circle."""
    left[0] -= 1
    failure = RecordedFailure(
        type=_printable(name_of(type(error))),
        message=message_of(error),
        args=_asked(_arguments, error, None),
        attributes=_asked(_attributes, error, {}),
        notes=_asked(_notes, error, []),
    )
    if isinstance(error, BaseExceptionGroup):
        failure.group = [_described(one, left) for one in error.exceptions if left[0] > 0]
    nothing: tuple[BaseException | None, bool] = (None, False)
    cause, failure.handling = _asked(_cause, error, nothing)
    if cause is not None and left[0] > 0:
        failure.cause = _described(cause, left)
    return failure


def _asked(question: Callable[[Any], T], of: Any, otherwise: T) -> T:
    """What an author's class answers, if it does."""
    try:
        return question(of)
    except BaseException:  # noqa: BLE001  whatever it raises must not hide the failure
        return otherwise


def _cause(error: BaseException) -> tuple[BaseException | None, bool]:
    cause = error.__cause__
    handling = cause is None
    if cause is None and not error.__suppress_context__:
        cause = error.__context__
    if not isinstance(cause, BaseException):
        return None, False
    return cause, handling


def _attributes(error: BaseException) -> dict[str, Any]:
    """Those that its class says are data. Others may be a client's headers, tokens or the whole reply."""
    found, names = vars(error), recorded_names(type(error))
    return {name: found[name] for name in sorted(names & found.keys()) if _is_json(found[name])}


def _notes(error: BaseException) -> list[str]:
    notes = getattr(error, "__notes__", ())
    if not isinstance(notes, list | tuple):
        return []
    return [_printable(note) for note in notes[:NOTES_MAX] if isinstance(note, str)]


def place_of(error: BaseException) -> str:
    """Where it was raised: the innermost line of the author's code, as `billing.py:42`. The folder is left out: the same
    code stands in another one on another host. Empty when no line of theirs is in it."""
    return _asked(_place, error, "")


def _place(error: BaseException) -> str:
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):  # no source is read for it
        if _is_authors(frame.f_code.co_filename):
            found = f"{Path(frame.f_code.co_filename).name}:{line}"
    if found:
        return _printable(found)
    known = getattr(error, _PLACE, "")
    return known if isinstance(known, str) else ""


def decode_error(raw: str) -> Exception:
    """The exception to raise in the workflow."""
    failure = _parsed(raw)
    rebuilt = _rebuilt(failure, [PARTS_MAX])
    if failure.place:
        _asked(lambda error: BaseException.__setattr__(error, _PLACE, failure.place), rebuilt, None)
    if failure.step and (note := f"in step {failure.step}") not in failure.notes:
        _add_note(rebuilt, note)
    return rebuilt


def _rebuilt(failure: RecordedFailure, left: list[int]) -> Exception:
    """The exception with its notes, its cause and its members, as long as there are parts `left`; or a StepFailed with its words."""
    left[0] -= 1
    error = _rebuild(failure, left) if failure.ending not in ("timed out", "lost") else None
    if error is None:
        known = {"timed out": errors.StepTimeout, "lost": errors.StepLost}.get(failure.ending)
        text = _line(failure) if known is None else failure.message
        error = (known or errors.StepFailed)(text, error_type=failure.type, step=failure.step)
    for note in failure.notes[:NOTES_MAX]:
        _add_note(error, note)
    if failure.cause is not None and left[0] > 0:
        name, cause = "__context__" if failure.handling else "__cause__", _rebuilt(failure.cause, left)
        _asked(lambda of: BaseException.__setattr__(of, name, cause), error, None)
    return error


def _rebuild(failure: RecordedFailure, left: list[int]) -> Exception | None:
    cls = _asked(known_class, failure.type, None)
    if cls is None:
        return None
    args = [_unpacked(arg) for arg in failure.args] if failure.args is not None else [failure.message]
    if issubclass(cls, ExceptionGroup):
        args.append([_rebuilt(one, left) for one in failure.group if left[0] > 0])
    return made(cls, args, failure.attributes)


def _add_note(error: Exception, note: str) -> None:
    _asked(lambda of: BaseException.add_note(of, note), error, None)


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
    first = (
        _parsed(error)
        if error is not None
        else RecordedFailure(type="holdfast.errors.StepFailed", message="")
    )
    text = f"{name}, the undo of {key}, gave up"
    text += f": {first.message}" if first.message else ""
    if len(lines) > 1:
        text += f"; so did {len(lines) - 1} more: {'; '.join(lines[1:])}"
    origin = None if cause is None else _parsed(cause)
    failure = RecordedFailure(
        type=first.type,
        message=text[:MESSAGE_MAX_CHARS],
        step=name,
        ending=first.ending,
        notes=lines[:20],
        traceback=first.traceback,
        cause=None if origin is None else RecordedFailure(type=origin.type, message=origin.message),
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


def with_undone(raw: str | None, undone: Sequence[int]) -> str | None:
    """The error of a run that has taken itself back, with the steps that were undone."""
    if raw is None or not undone:
        return raw
    failure = _parsed(raw)
    failure.undone = sorted(undone)
    return msgspec.json.encode(failure).decode()


def revoked_error(parent_id: str, cause: str | None, undone: Sequence[int]) -> str:
    """Why a run that had succeeded is undone: its parent took itself back, and with it these steps."""
    why = f": {describe_error(cause)}" if cause is not None else ""
    failure = RecordedFailure(
        type=name_of(errors.RunUndone),
        message=f"run {parent_id}, which had started it, took it back{why}"[:MESSAGE_MAX_CHARS],
        undone=list(undone),
        by=parent_id,
    )
    return msgspec.json.encode(failure).decode()


def _told(error: str | None) -> str:
    return "cancelled" if error is None else describe_error(error)


def message_of(error: BaseException) -> str:
    """What it says of itself, as text that every store takes and every terminal shows."""
    try:
        text = _printable(str(error))
    except BaseException as wrong:  # noqa: BLE001  an author's __str__ must not hide the failure
        text = f"(its message cannot be shown: {type(wrong).__name__})"
    if isinstance(error, BaseExceptionGroup):
        inner = "; ".join(f"{type(e).__name__}: {message_of(e)}" for e in error.exceptions[:5])
        text = f"{_printable(error.message)}: {inner}"[:MESSAGE_MAX_CHARS]
    return text


def _printable(text: str) -> str:
    """Neither store keeps half of a surrogate pair, and PostgreSQL no NUL. By `str`'s own methods: it may be a subclass."""
    clean = str.encode(text, "utf-8", "backslashreplace").decode()
    return clean.replace("\0", "\\x00")[:MESSAGE_MAX_CHARS]


def _arguments(error: BaseException) -> list[Any] | None:
    """What makes the same exception again, if JSON keeps it. OSError keeps its file name beside its arguments."""
    if isinstance(error, BaseExceptionGroup):
        return [error.message]
    args: list[Any] = list(error.args)
    if isinstance(error, OSError) and error.filename is not None and len(args) == 2:
        args.append(error.filename)
    packed = [{BYTES: b64encode(arg).decode()} if type(arg) is bytes else arg for arg in args]
    clear = not any(type(arg) is dict and BYTES in arg for arg in args)
    return packed if clear and _is_json(packed) else None


def _unpacked(arg: Any) -> Any:
    if type(arg) is not dict or arg.keys() != {BYTES}:
        return arg
    return _asked(b64decode, arg[BYTES], b"")


def _parsed(raw: str) -> RecordedFailure:
    try:
        return _read.decode(raw)
    except (msgspec.MsgspecError, RecursionError):  # not written by us
        return RecordedFailure(type="builtins.Exception", message=raw[:MESSAGE_MAX_CHARS])


def _line(failure: RecordedFailure) -> str:
    name = failure.type.rsplit(".", 1)[-1]
    return f"{name}: {failure.message}" if failure.message else name


def _is_json(value: Any) -> bool:
    """Whether JSON keeps the value as it is."""
    try:
        return len(encode_any(value, "", EXTRAS_MAX_BYTES)) <= EXTRAS_MAX_BYTES
    except BaseException:  # noqa: BLE001  nor may what an author's class does meanwhile hide the failure
        return False


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The author's frames: not Holdfast's, not asyncio's."""
    return [frame for frame in traceback.extract_tb(error.__traceback__) if _is_authors(frame.filename)]


def _is_authors(file: str) -> bool:
    return not file.startswith((_LIBRARY, _ASYNCIO, _CONCURRENT))


def _trace(error: BaseException) -> str:
    text = "".join(traceback.format_list(_frames(error)[-TRACE_MAX_FRAMES:]))
    return text.encode("utf-8", "backslashreplace").decode()[-TRACE_MAX_CHARS:]
