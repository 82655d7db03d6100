"""The `Finish` of a run whose main task has ended or was interrupted."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from holdfast import codec
from holdfast.codec import STEP
from holdfast.decider.commands import Finish
from holdfast.errors import Bug, ContinueAsNew, HoldfastError, RunTimeout, Stop, WorkflowError

if TYPE_CHECKING:
    from holdfast.decider.mailbox import Mailbox
    from holdfast.workflow.workflow import Workflow

Interruption: TypeAlias = Literal["cancel", "deadline"]
"""What made the run end before its code did."""
LeftSaga: TypeAlias = tuple[int, BaseException]
"""How much had been delivered when a saga began to undo its part, and the exception that it was left by."""


def finish_of(
    workflow: Workflow[Any, Any],
    main: asyncio.Task[Any],
    interruption: Interruption | None,
    mailbox: Mailbox,
    payload_max: int,
    left_sagas: Sequence[LeftSaga] = (),
) -> Finish:
    """Return how a run ends whose main task is done."""
    error: BaseException | None
    if not main.cancelled():
        error = main.exception()
        error = error if error is None else codec.safe_to_inspect(error)
    elif interruption is not None:
        return interrupted(interruption)
    else:
        error = WorkflowError("the workflow cancelled itself: let it return or raise instead")
    try:
        if error is None:
            return Finish("succeeded", output=workflow.shape.encode_result(main.result(), payload_max))
        next_one = continuation(error)
        if next_one is not None:
            raw, _ = workflow.shape.checked(next_one.arguments, next_one.keywords, payload_max)
            return Finish("continued", input=raw, unread=mailbox.unread())
    except HoldfastError as wrong:
        error = wrong
    return failed(error, left_sagas)


def interrupted(interruption: Interruption) -> Finish:
    """Return how a run ends that was cancelled or reached its deadline."""
    if interruption == "cancel":
        return Finish("cancelled", error=codec.encode_error(asyncio.CancelledError("the run was cancelled")))
    error = codec.encode_error(RunTimeout("the run did not end before its deadline"))
    return Finish("failed", error=error)


def failed(error: BaseException, left_sagas: Sequence[LeftSaga] = ()) -> Finish:
    steps = tuple(steps_that_raised(error))
    is_bug = not steps and not _has_stop(error)
    since = None if steps else _left_since(error, left_sagas)
    return Finish("failed", error=codec.encode_error(error), steps=steps, since=since, is_bug=is_bug)


def _left_since(error: BaseException, left_sagas: Sequence[LeftSaga]) -> int | None:
    """Return how much had been delivered when the first saga was left by this exception. A group of exceptions cancels the
    other tasks of its group, so a saga that was left by a cancellation may have been left because of it, too."""
    behind = list(_behind(error))
    known = {id(one) for one in behind}
    has_group = any(isinstance(one, BaseExceptionGroup) for one in behind)
    return min(
        (
            seq
            for seq, by in left_sagas
            if id(by) in known or (has_group and isinstance(by, asyncio.CancelledError))
        ),
        default=None,
    )


def _has_stop(error: BaseException) -> bool:
    """True if the code failed the run on purpose: by a `Stop`, or by a group of exceptions with one in it."""
    if isinstance(error, BaseExceptionGroup):
        return any(_has_stop(one) for one in error.exceptions)
    return isinstance(error, Stop)


def bug(error: str) -> Bug:
    """Return the error that holds a run whose code raised this."""
    place = codec.place_in(error)
    return Bug(codec.describe_error(error) + (f" at {place}" if place else ""), error=error, place=place)


def steps_that_raised(error: BaseException | None) -> list[int]:
    """Return n of the steps whose outcomes this exception comes from. There are none if the code raised it by itself.

    If the code caught an exception and raised another one instead, the first is the cause or context of the second, so
    the search goes on there. It stops at what a step raised: the context of that is only what the code was handling
    when the outcome came.
    """
    return sorted({n for one in _behind(error) for n in _origins(one)[0]})


def _behind(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the exception, and those that it comes from."""
    seen: set[int] = set()
    to_visit = [error]
    while to_visit:
        visited = to_visit.pop()
        if visited is not None and id(visited) not in seen:
            seen.add(id(visited))
            yield visited
            to_visit += _origins(visited)[1]


def _origins(error: BaseException) -> tuple[set[int], Sequence[BaseException | None]]:
    """Return the steps that this exception itself comes from, and the exceptions to look at next."""
    try:
        n = error.__dict__.get(STEP)
        if n is not None:
            return {n}, ()
        if isinstance(error, BaseExceptionGroup):
            return set(), error.exceptions
        return set(_timers_that_raised(error)), (error.__cause__ or error.__context__,)
    except Exception:  # noqa: BLE001  an author's class may raise at any access: then it names no step
        return set(), ()


def _timers_that_raised(error: BaseException) -> Iterator[int]:
    """Yield n of the timers that raised this TimeoutError. asyncio does not say which timer it was, so look into the
    frames of its functions."""
    if isinstance(error, TimeoutError):
        for frame, _ in traceback.walk_tb(error.__traceback__):
            name = _TIMERS.get(frame.f_code)
            n = None if name is None else getattr(frame.f_locals.get(name), STEP, None)
            if n is not None:
                yield n


_TIMERS = {asyncio.Timeout.__aexit__.__code__: "self", asyncio.wait_for.__code__: "timeout_handle"}
"""Functions of asyncio that raise TimeoutError, and the name of the local variable that leads to the timer."""


def stalled(main: asyncio.Task[Any]) -> WorkflowError:
    """Return the error of a run whose main task waits although nothing the run asked for can wake it."""
    coro: Any = main.get_coro()
    while getattr(coro, "cr_await", None) is not None and hasattr(coro.cr_await, "cr_frame"):
        coro = coro.cr_await
    frame = getattr(coro, "cr_frame", None)
    place = f" at {frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""
    return WorkflowError(
        "the workflow waits for something that is not a step, timer, signal or child: "
        f"{getattr(coro, 'cr_await', None)!r}{place}"
    )


def continuation(error: BaseException) -> ContinueAsNew | None:
    """Return the ContinueAsNew that this exception is or contains. Raised in the body of a TaskGroup, it arrives in a
    group of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, ContinueAsNew) else None
