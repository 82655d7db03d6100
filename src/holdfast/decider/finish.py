"""How a run's main task ended, as the `Finish` to be written."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from holdfast import codec
from holdfast.codec import STEP
from holdfast.decider.commands import Finish
from holdfast.errors import ContinueAsNew, HoldfastError, RunTimeout, WorkflowError

if TYPE_CHECKING:
    from holdfast.workflow.workflow import Workflow

Why: TypeAlias = Literal["cancel", "deadline"]
"""What asked the run to end before its code did."""


def finish_of(
    workflow: Workflow[Any, Any],
    main: asyncio.Task[Any],
    why: Why | None,
    unread: tuple[int, ...],
    payload_max: int,
) -> Finish:
    error: BaseException | None
    if not main.cancelled():
        error = main.exception()
        error = error if error is None else codec.safe_to_inspect(error)
    elif why is not None:
        return interrupted(why)
    else:
        error = WorkflowError("the workflow cancelled itself: let it return or raise instead")
    try:
        if error is None:
            return Finish("succeeded", output=workflow.shape.encode_result(main.result(), payload_max))
        again = _continuation(error)
        if again is not None:
            raw, _ = workflow.shape.checked(again.arguments, again.keywords, payload_max)
            return Finish("continued", input=raw, unread=unread)
    except HoldfastError as wrong:
        error = wrong
    return failed(error)


def interrupted(why: Why) -> Finish:
    if why == "cancel":
        return Finish("cancelled", error=codec.encode_error(asyncio.CancelledError("the run was cancelled")))
    return failed(RunTimeout("the run did not end before its deadline"))


def failed(error: BaseException) -> Finish:
    return Finish("failed", error=codec.encode_error(error), steps=tuple(steps_behind(error)))


def steps_behind(error: BaseException | None) -> list[int]:
    """n of the steps whose outcomes this exception comes from; none, if the code raised it by itself.

    An exception that the code caught, and answered with another one, is that one's cause or context. What a step raised is
    not looked behind: its context is what was being handled when it came.
    """
    found: set[int] = set()
    seen: set[int] = set()
    left = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        try:
            behind, more = _behind(one)
        except Exception:  # noqa: BLE001, S112  an author's class may raise at every question: it tells of no step
            continue
        found |= behind
        left += more
    return sorted(found)


def _behind(error: BaseException) -> tuple[set[int], Sequence[BaseException | None]]:
    """The steps that this exception itself comes from, and the exceptions to look at next."""
    n = error.__dict__.get(STEP)
    if n is not None:
        return {n}, ()
    if isinstance(error, BaseExceptionGroup):
        return set(), error.exceptions
    return set(_timers_behind(error)), (error.__cause__ or error.__context__,)


def _timers_behind(error: BaseException) -> Iterator[int]:
    """asyncio does not say which timer a TimeoutError came from; the frame that raised it knows."""
    if isinstance(error, TimeoutError):
        for frame, _ in traceback.walk_tb(error.__traceback__):
            name = _TIMERS.get(frame.f_code)
            n = None if name is None else getattr(frame.f_locals.get(name), STEP, None)
            if n is not None:
                yield n


_TIMERS = {asyncio.Timeout.__aexit__.__code__: "self", asyncio.wait_for.__code__: "timeout_handle"}
"""Functions of asyncio that raise TimeoutError, and what they call the timer."""


def stalled(main: asyncio.Task[Any]) -> WorkflowError:
    """The main task waits, and nothing the run asked for can wake it."""
    coro: Any = main.get_coro()
    while getattr(coro, "cr_await", None) is not None and hasattr(coro.cr_await, "cr_frame"):
        coro = coro.cr_await
    frame = getattr(coro, "cr_frame", None)
    place = f" at {frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""
    return WorkflowError(
        "the workflow waits for something that is not a step, timer, signal or child: "
        f"{getattr(coro, 'cr_await', None)!r}{place}"
    )


def _continuation(error: BaseException) -> ContinueAsNew | None:
    """`continue_as_new` raised in the body of a TaskGroup arrives in a group of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, ContinueAsNew) else None
