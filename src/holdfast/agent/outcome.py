"""How one execution of a step's code ended: with its result as it is stored, or with what left the code instead."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast import codec
from holdfast.errors import InvalidInput
from holdfast.model import Ending
from holdfast.workflow.step import Step


class Raised(NamedTuple):
    """What left a step's code, whatever its class, or what became of the attempt instead. It travels as a value: futures, threads
    and event loops each have exceptions that they refuse, convert or end the process with."""

    error: BaseException
    unsure: bool = False
    """The step may have had its effect."""
    told: str | None = None
    """The error as it is recorded, where it was raised in another process."""
    ending: Ending = Ending.FAILED
    place: str = ""
    """Where it happened, if the error does not tell."""


def execute(step: Step[Any, Any], arguments: Any, limit: int) -> bytes | Raised:
    """Run a `def` step here and now."""
    try:
        value = step.shape.call(step.fn, arguments)
    except BaseException as error:  # noqa: BLE001  whatever the step raised is its outcome
        return raised(step, error)
    try:
        return step.shape.encode_result(value, limit)
    except BaseException as error:  # noqa: BLE001  an author's class may raise anything while it is written
        return unstored(step, error)


def raised(step: Step[Any, Any], error: BaseException) -> Raised:
    """An exception that left the step's code.

    An `Exception` is the step's own word that it did nothing, unless the author says otherwise (`undo_failed=`). What is none,
    such as SystemExit or a CancelledError, says that it was interrupted: nobody knows how far it came.
    """
    error = codec.safe_to_inspect(error)
    return Raised(error, not isinstance(error, Exception) or _is_among(error, step.unsure_after))


def unstored(step: Step[Any, Any], error: BaseException) -> Raised:
    """The step returned, and what it returned cannot be stored. It acted, or may have; and it would return the same again."""
    if not isinstance(error, InvalidInput):
        words = f"{type(error).__name__}: {codec.message_of(error)}"
        wrong = InvalidInput(f"{step.fn.__name__}() result: it cannot be stored: {words}")
        wrong.__cause__ = error
        error = wrong
    return Raised(error, unsure=True)


def _is_among(error: BaseException, classes: tuple[type[BaseException], ...]) -> bool:
    """Is it one of these, or a group that holds one?"""
    if isinstance(error, BaseExceptionGroup):
        return isinstance(error, classes) or any(_is_among(one, classes) for one in error.exceptions)
    return isinstance(error, classes)
