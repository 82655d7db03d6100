"""How one execution of a step's code ended: with its encoded result, or with the error that it raised."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast import codec
from holdfast.errors import InvalidInput
from holdfast.model import Ending
from holdfast.workflow.step import Step


class Raised(NamedTuple):
    """The exception that a step's code raised, or that stands for how the attempt ended otherwise. It is passed on as a
    value because there are exceptions that futures, threads and event loops refuse or convert, or that end the
    process."""

    error: BaseException
    unsure: bool = False
    """The step may have had its effect."""
    error_json: str | None = None
    """The error as it is recorded, if another process raised and encoded it."""
    ending: Ending = Ending.FAILED
    place: str = ""
    """Where it happened, if the error itself does not say."""


def execute(step: Step[Any, Any], arguments: Any, limit: int) -> bytes | Raised:
    """Call a `def` step in this thread. Return its encoded result, or the error that it raised."""
    try:
        value = step.shape.call(step.fn, arguments)
    except BaseException as error:  # noqa: BLE001  whatever the step raises is its outcome
        return raised(step, error)
    try:
        return step.shape.encode_result(value, limit)
    except BaseException as error:  # noqa: BLE001  an author's class may raise anything while it is encoded
        return unstored(step, error)


def raised(step: Step[Any, Any], error: BaseException) -> Raised:
    """Return an exception that the step's code raised, with whether the step may have had its effect.

    An `Exception` means that the step did nothing, unless the author says otherwise (`undo_failed=`). Any other
    exception, such as SystemExit or CancelledError, means that the step was interrupted: nobody knows how far it came.
    """
    error = codec.safe_to_inspect(error)
    return Raised(error, not isinstance(error, Exception) or _is_among(error, step.unsure_after))


def unstored(step: Step[Any, Any], error: BaseException) -> Raised:
    """Return the error of a step whose result cannot be stored. The step may have had its effect, and another attempt
    would return the same."""
    if not isinstance(error, InvalidInput):
        message = f"{type(error).__name__}: {codec.message_of(error)}"
        wrong = InvalidInput(f"{step.fn.__name__}() result: it cannot be stored: {message}")
        wrong.__cause__ = error
        error = wrong
    return Raised(error, unsure=True)


def _is_among(error: BaseException, classes: tuple[type[BaseException], ...]) -> bool:
    """True if the error is of one of these classes, or is a group that contains one that is."""
    if isinstance(error, BaseExceptionGroup):
        return isinstance(error, classes) or any(_is_among(one, classes) for one in error.exceptions)
    return isinstance(error, classes)
