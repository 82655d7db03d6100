"""Turns exceptions into JSON and back, so that a workflow can catch the exception that its step raised on another
machine.

An exception that cannot be rebuilt (see `exceptions.py`) becomes a `StepFailed` with the same message.
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
from holdfast.codec.exceptions import known_class, rebuild, recorded_names
from holdfast.codec.payload import encode_any
from holdfast.codec.secret import redacted, redacted_bytes, redacted_json
from holdfast.programs import name_of

MESSAGE_MAX_CHARS = 4_000
TRACE_MAX_FRAMES = 12
"""How many frames are recorded: the innermost ones, which show where it went wrong."""
TRACE_MAX_CHARS = 6_000
SHOWN_MAX = 500
"""How many frames are remembered as text."""
EXTRAS_MAX_BYTES = 16_000
"""Arguments and attributes of an exception are recorded if they are JSON and not larger than this."""

PARTS_MAX = 30
"""How many exceptions are recorded for one: the exception itself, its causes and the members of its groups."""
NOTES_MAX = 20
BYTES = "$bytes"
"""The member in which bytes among an exception's arguments are written, as base64. UnicodeDecodeError needs them."""

T = TypeVar("T")

_LIBRARY = str(Path(__file__).parent.parent)
_ASYNCIO = str(Path(types.__file__).parent / "asyncio")
_CONCURRENT = str(Path(types.__file__).parent / "concurrent")


STEP = "_holdfast_step"
"""The attribute of an exception in workflow code for the number of the step whose outcome it was."""
_PLACE = "_holdfast_place"
"""The attribute of a rebuilt exception for the place where it was raised: it has no traceback any more."""
_UNKNOWN = frozenset({"timed out", "lost"})
"""Endings of an attempt that do not say whether it had its effect."""


class RecordedFailure(msgspec.Struct, omit_defaults=True):
    """An exception as the store has it."""

    type: str
    message: str
    step: str = ""
    ending: str = "failed"
    args: list[Any] | None = None
    attributes: dict[str, Any] = {}
    notes: list[str] = []
    traceback: str = ""
    cause: RecordedFailure | None = None
    """The exception it was raised from, or the one that was being handled when it was raised."""
    handling: bool = False
    """True if `cause` was only being handled: the code did not say `raise … from`."""
    group: list[RecordedFailure] = []
    """The members of an exception group."""
    unsure: bool = False
    """This attempt, or one before it, may have had its effect, although it has no result."""
    place: str = ""
    """The innermost line of the author's code."""
    seq: int | None = None
    """For a run: how much of its history had been delivered when its code ended."""
    steps: list[int] = []
    """For a run: n of the steps whose failure ended it. Empty if its code, a deadline or a cancellation ended it."""
    since: int | None = None
    """For a run whose code raised this by itself: how much of its history had been delivered when the first saga was left
    by it. Only set if a saga undid something because of it."""
    undone: list[int] = []
    """For a run: n of its steps that were undone."""
    by: str = ""
    """For a run that had succeeded: the id of its parent, which wanted it undone."""
    by_n: int | None = None
    """For a run that had succeeded: the step of its parent that waits until it is undone."""


_decoder = msgspec.json.Decoder(RecordedFailure)


def encode_error(
    error: BaseException, *, step: str = "", ending: str = "failed", unsure: bool = False
) -> str:
    """Return the exception as JSON. This works for any, even if an author's class raises or lies at every question."""
    try:
        failure = _described(error, [PARTS_MAX])
        failure.traceback, failure.place = _safely(_trace, error, ""), place_of(error)
        failure.step, failure.ending, failure.unsure = step, ending, unsure
        return msgspec.json.encode(_without_secrets(failure)).decode()
    except Exception as wrong:  # noqa: BLE001  the failure must be recorded, if only by its name
        name = _printable(_safely(name_of, type(error), "builtins.BaseException"))
        message = f"(the exception cannot be described: {type(wrong).__name__})"
        bare = RecordedFailure(type=name, message=message, step=step, ending=ending, unsure=unsure)
        return msgspec.json.encode(bare).decode()


def safe_to_inspect(error: BaseException) -> BaseException:
    """Return the exception, or a StepFailed in its place if it lies about its class. An exception that does may raise
    at every `isinstance`."""
    try:
        if error.__class__ is type(error):
            return error
    except BaseException:  # noqa: BLE001, S110  it may raise anything when it is asked for its class
        pass
    name = _printable(_safely(name_of, type(error), "BaseException"))
    return errors.StepFailed(f"{name}, an exception that claims to be of another class", error_type=name)


def mark_unsure(raw: str, *, unsure: bool) -> str:
    """Return a recorded error with `unsure` changed: whether the step may have had its effect."""
    failure = _parsed(raw)
    failure.unsure = unsure
    return msgspec.json.encode(failure).decode()


def _described(error: BaseException, left: list[int]) -> RecordedFailure:
    """Return the record of an exception with its cause and its members. `left` counts down how many exceptions may
    still be recorded: a chain of causes may be a circle."""
    left[0] -= 1
    failure = RecordedFailure(
        type=_printable(name_of(type(error))),
        message=message_of(error),
        args=_safely(_arguments, error, None),
        attributes=_safely(_attributes, error, {}),
        notes=_safely(_notes, error, []),
    )
    if isinstance(error, BaseExceptionGroup):
        failure.group = [_described(one, left) for one in error.exceptions if left[0] > 0]
    nothing: tuple[BaseException | None, bool] = (None, False)
    cause, failure.handling = _safely(_cause, error, nothing)
    if cause is not None and left[0] > 0:
        failure.cause = _described(cause, left)
    return failure


def _without_secrets(failure: RecordedFailure) -> RecordedFailure:
    """Return the record with dots for secrets in all that the author's code said."""
    said = (failure.message, failure.args, failure.attributes, failure.notes, failure.traceback)
    message, args, attributes, notes, trace = redacted_json(said)
    failure.message, failure.args, failure.attributes = message, args, attributes
    failure.notes, failure.traceback = notes, trace
    failure.group = [_without_secrets(one) for one in failure.group]
    failure.cause = None if failure.cause is None else _without_secrets(failure.cause)
    return failure


def _safely(function: Callable[[Any], T], argument: Any, default: T) -> T:
    """Call a function that may run an author's code. Return `default` if it raises."""
    try:
        return function(argument)
    except BaseException:  # noqa: BLE001  whatever it raises must not hide the failure
        return default


def _cause(error: BaseException) -> tuple[BaseException | None, bool]:
    cause = error.__cause__
    handling = cause is None
    if cause is None and not error.__suppress_context__:
        cause = error.__context__
    if not isinstance(cause, BaseException):
        return None, False
    return cause, handling


def _attributes(error: BaseException) -> dict[str, Any]:
    """Return the attributes that the class declares as data. Others may be a client's headers, tokens or a reply."""
    found, names = vars(error), recorded_names(type(error))
    return {name: found[name] for name in sorted(names & found.keys()) if _is_json(found[name])}


def _notes(error: BaseException) -> list[str]:
    notes = getattr(error, "__notes__", ())
    if not isinstance(notes, list | tuple):
        return []
    return [_printable(note) for note in notes[:NOTES_MAX] if isinstance(note, str)]


def place_of(error: BaseException) -> str:
    """Return the innermost line of the author's code where it was raised, as `billing.py:42`, or "" if there is none.
    The folder is left out: on another host the same code is in another one."""
    return _safely(_place, error, "")


def _place(error: BaseException) -> str:
    found = ""
    # Unlike `extract_tb`, `walk_tb` reads no source files.
    for frame, line in traceback.walk_tb(error.__traceback__):
        if _is_authors(frame.f_code.co_filename):
            found = f"{Path(frame.f_code.co_filename).name}:{line}"
    if found:
        return _printable(found)
    known = getattr(error, _PLACE, "")
    return known if isinstance(known, str) else ""


def decode_error(raw: str) -> Exception:
    """Return the exception to raise in the workflow."""
    failure = _parsed(raw)
    rebuilt = _rebuilt(failure, [PARTS_MAX])
    if failure.place:
        _safely(lambda error: BaseException.__setattr__(error, _PLACE, failure.place), rebuilt, None)
    if failure.step and (note := f"in step {failure.step}") not in failure.notes:
        _add_note(rebuilt, note)
    return rebuilt


def _rebuilt(failure: RecordedFailure, left: list[int]) -> Exception:
    """Return the exception, or a StepFailed with its message, together with its notes, its cause and its members.
    `left` counts down how many exceptions may still be rebuilt."""
    left[0] -= 1
    error = _of_recorded_class(failure, left) if failure.ending not in ("timed out", "lost") else None
    if error is None:
        known = {"timed out": errors.StepTimeout, "lost": errors.StepLost}.get(failure.ending)
        text = _line(failure) if known is None else failure.message
        error = (known or errors.StepFailed)(text, error_type=failure.type, step=failure.step)
    for note in failure.notes[:NOTES_MAX]:
        _add_note(error, note)
    if failure.cause is not None and left[0] > 0:
        name, cause = "__context__" if failure.handling else "__cause__", _rebuilt(failure.cause, left)
        _safely(lambda rebuilt: BaseException.__setattr__(rebuilt, name, cause), error, None)
    return error


def _of_recorded_class(failure: RecordedFailure, left: list[int]) -> Exception | None:
    cls = _safely(known_class, failure.type, None)
    if cls is None:
        return None
    args = [_unpacked(arg) for arg in failure.args] if failure.args is not None else [failure.message]
    if issubclass(cls, ExceptionGroup):
        args.append([_rebuilt(one, left) for one in failure.group if left[0] > 0])
    return rebuild(cls, args, failure.attributes)


def _add_note(error: Exception, note: str) -> None:
    _safely(lambda rebuilt: BaseException.add_note(rebuilt, note), error, None)


def original_error(raw: str | None) -> Exception | None:
    """Return the exception if it can be rebuilt here in its own class, otherwise None."""
    if raw is None:
        return None
    error = decode_error(raw)
    return error if name_of(type(error)) == _parsed(raw).type else None


def describe_error(raw: str) -> str:
    """Return the error as one line for people: `ValueError: bad card`."""
    return " ".join(_line(_parsed(raw)).split())


def place_in(raw: str) -> str:
    """Return where a recorded error was raised, as `place_of` does."""
    return _parsed(raw).place


def ending_of(raw: str) -> str:
    """Return how the attempt that a recorded error is about ended, as `Ending` names it."""
    return _parsed(raw).ending


def is_unsure(losses: int, error: str | None) -> bool:
    """True if a step that failed may have had its effect, because nobody knows how one of its attempts ended."""
    if losses > 0:
        return True
    if error is None:
        return False
    failure = _parsed(error)
    return failure.unsure or failure.ending in _UNKNOWN


def gave_up_error(undos: Sequence[tuple[str, str, str | None]], cause: str | None) -> str:
    """Return the error of a run that is stuck. `undos` are the (name, key, error) of the undos that gave up; `cause` is
    why the run is being undone."""
    lines = [f"{name} of {key}: {_reason(error)}" for name, key, error in undos]
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
    """What is recorded about the end of a run besides its error. The fields are those of `RecordedFailure`."""

    seq: int | None
    """None if the run ended under an older version, which did not record it."""
    steps: Sequence[int]
    undone: Sequence[int]
    by: str
    by_n: int | None
    since: int | None = None


def end_of(raw: str | None) -> End:
    if raw is None:
        return End(None, (), (), "", None)
    failure = _parsed(raw)
    return End(failure.seq, failure.steps, failure.undone, failure.by, failure.by_n, failure.since)


def ended_by(raw: str, seq: int, steps: Sequence[int], since: int | None = None) -> str:
    """Return the error of a run with the place in its history where its code ended, and what ended it: steps, or what the
    code raised by itself after the place `since`."""
    failure = _parsed(raw)
    failure.seq, failure.steps, failure.since = seq, list(steps), since
    return msgspec.json.encode(failure).decode()


def with_undone(raw: str | None, undone: Sequence[int]) -> str | None:
    """Return the error of a run that has been undone, with the steps that were undone."""
    if raw is None or not undone:
        return raw
    failure = _parsed(raw)
    failure.undone = sorted(undone)
    return msgspec.json.encode(failure).decode()


def revoked_error(parent_id: str, n: int, cause: str | None) -> str:
    """Return the error of a run that had succeeded, and that its parent wants undone. `n` is the parent's step that waits
    for this."""
    why = f": {describe_error(cause)}" if cause is not None else ""
    failure = RecordedFailure(
        type=name_of(errors.RunUndone),
        message=f"run {parent_id}, which had started it, undid it{why}"[:MESSAGE_MAX_CHARS],
        by=parent_id,
        by_n=n,
    )
    return msgspec.json.encode(failure).decode()


def _reason(error: str | None) -> str:
    return "cancelled" if error is None else describe_error(error)


def message_of(error: BaseException) -> str:
    """Return the exception's message, without secrets, as text that every store accepts and every terminal shows."""
    try:
        text = _printable(redacted(_escaped(str(error))))
    except BaseException as wrong:  # noqa: BLE001  an author's __str__ must not hide the failure
        text = f"(its message cannot be shown: {type(wrong).__name__})"
    if isinstance(error, BaseExceptionGroup):
        inner = "; ".join(f"{type(e).__name__}: {message_of(e)}" for e in error.exceptions[:5])
        text = f"{_printable(redacted(_escaped(error.message)))}: {inner}"[:MESSAGE_MAX_CHARS]
    return text


def _printable(text: str) -> str:
    return _escaped(text)[:MESSAGE_MAX_CHARS]


def _escaped(text: str) -> str:
    """Escape what the stores cannot keep: half of a surrogate pair, and in PostgreSQL a NUL. Use `str.encode` itself:
    the text may be of an author's subclass."""
    return str.encode(text, "utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _arguments(error: BaseException) -> list[Any] | None:
    """Return the arguments that make the same exception again, or None if JSON does not keep them. OSError has its file
    name beside its arguments."""
    if isinstance(error, BaseExceptionGroup):
        return [error.message]
    args: list[Any] = list(error.args)
    if isinstance(error, OSError) and error.filename is not None and len(args) == 2:
        args.append(error.filename)
    packed = [{BYTES: b64encode(redacted_bytes(arg)).decode()} if type(arg) is bytes else arg for arg in args]
    clear = not any(type(arg) is dict and BYTES in arg for arg in args)
    return packed if clear and _is_json(packed) else None


def _unpacked(arg: Any) -> Any:
    if type(arg) is not dict or arg.keys() != {BYTES}:
        return arg
    return _safely(b64decode, arg[BYTES], b"")


def _parsed(raw: str) -> RecordedFailure:
    try:
        return _decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError):  # Holdfast did not write it
        return RecordedFailure(type="builtins.Exception", message=raw[:MESSAGE_MAX_CHARS])


def _line(failure: RecordedFailure) -> str:
    name = failure.type.rsplit(".", 1)[-1]
    return f"{name}: {failure.message}" if failure.message else name


def _is_json(value: Any) -> bool:
    """True if JSON keeps the value as it is, and it is not too large to record."""
    try:
        return len(encode_any(value, "", EXTRAS_MAX_BYTES)) <= EXTRAS_MAX_BYTES
    except BaseException:  # noqa: BLE001  whatever an author's class raises must not hide the failure
        return False


_shown_before: dict[tuple[str, types.CodeType, int], str] = {}


def _frames(error: BaseException) -> list[types.TracebackType]:
    """Return the author's frames: not those of Holdfast, asyncio or concurrent.futures."""
    found, trace = [], error.__traceback__
    while trace is not None:
        if _is_authors(trace.tb_frame.f_code.co_filename):
            found.append(trace)
        trace = trace.tb_next
    return found


def _shown(trace: types.TracebackType) -> str:
    """Return the lines that show one frame. They are remembered: what fails often fails at the same place, and Python
    parses the source to find the columns."""
    code = trace.tb_frame.f_code
    place = (code.co_filename, code, trace.tb_lasti)
    lines = _shown_before.get(place)
    if lines is None:
        if len(_shown_before) >= SHOWN_MAX:
            _shown_before.clear()
        lines = _shown_before[place] = "".join(traceback.format_list(traceback.extract_tb(trace, limit=1)))
    return lines


def _is_authors(file: str) -> bool:
    return not file.startswith((_LIBRARY, _ASYNCIO, _CONCURRENT))


def _trace(error: BaseException) -> str:
    text = "".join(_shown(frame) for frame in _frames(error)[-TRACE_MAX_FRAMES:])
    return text.encode("utf-8", "backslashreplace").decode()[-TRACE_MAX_CHARS:]
