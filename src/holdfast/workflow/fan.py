"""A bounded fan-out: it makes many calls, a limited number at a time, and tolerates some failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from holdfast.errors import DefinitionError

R = TypeVar("R")


async def fan(
    call: Callable[..., Coroutine[Any, Any, R]],
    calls: Sequence[tuple[Any, ...]],
    *,
    limit: int,
    tolerate: float,
) -> list[R | Exception]:
    """Return the results in the order of the calls. Tasks are made in that order, too: the k-th call has the k-th
    key."""
    allowed = allowance(tolerate, len(calls))
    if limit < 1:
        raise DefinitionError(f"map(limit={limit}): the limit must be at least 1")
    slots = asyncio.Semaphore(limit)
    tasks: list[asyncio.Task[R]] = []
    failures: list[BaseException] = []
    left = len(calls)
    over = asyncio.Event()

    def end(task: asyncio.Task[R]) -> None:
        nonlocal left
        left -= 1
        slots.release()
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            failures.append(error)
        if left == 0 or len(failures) > allowed:
            over.set()

    try:
        for arguments in calls:
            await slots.acquire()
            if over.is_set():
                break
            task = asyncio.get_running_loop().create_task(call(*arguments))
            task.add_done_callback(end)
            tasks.append(task)
        if calls:
            await over.wait()
    finally:
        unfinished = [task for task in tasks if not task.done()]
        for task in unfinished:
            task.cancel()
    if len(failures) > allowed:
        if unfinished:
            await asyncio.wait(unfinished)
        raise failures[allowed]
    return [_result(task) for task in tasks]


def _result(task: asyncio.Task[R]) -> R | Exception:
    error = task.exception()
    if error is None:
        return task.result()
    if not isinstance(error, Exception):
        raise error
    return error


def allowance(tolerate: float, count: int) -> int:
    """Return how many of `count` calls may fail. `tolerate` is a share below 1, or a number."""
    if isinstance(tolerate, bool) or not tolerate >= 0:
        raise DefinitionError(
            f"map(tolerate={tolerate!r}): expected a share like 0.1, or a number of failures"
        )
    if isinstance(tolerate, int):
        return tolerate
    if tolerate >= 1:
        raise DefinitionError(
            f"map(tolerate={tolerate!r}): a share is below 1; for a number of failures write an int"
        )
    return int(tolerate * count)
