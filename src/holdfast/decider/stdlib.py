"""What must be known about the standard library so that keys are the same on every version of Python and at every replay.

Three things differ or depend on memory addresses: the names of timer callbacks, `wait_for` making a task of its own before
3.12, and `as_completed` taking its coroutines from a set.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from asyncio import tasks
from collections.abc import Coroutine, Iterator
from types import CodeType, FrameType
from typing import Any

from holdfast.errors import WorkflowError

TIMER_LABELS = {
    "_set_result_unless_cancelled": "sleep",
    "_on_timeout": "timeout",
    "_handle_timeout": "timeout",
    "_release_waiter": "timeout",
}
"""What set a timer, by its callback's name."""


def _codes(*names: str) -> set[int]:
    found = (getattr(tasks, name, None) for name in names)
    return {id(function.__code__) for function in found if inspect.isfunction(function)}


_ENSURE = _codes("ensure_future", "_ensure_future")
_WAIT_FOR = asyncio.wait_for.__code__ if sys.version_info < (3, 12) else None
_iterator = getattr(tasks, "_AsCompletedIterator", None)  # since 3.13
_AS_COMPLETED: CodeType = (asyncio.as_completed if _iterator is None else _iterator.__init__).__code__


def maker(frame: FrameType) -> FrameType | None:
    """Who makes a task by `ensure_future`: the frame of `wait_for` or `as_completed`, or None for all others."""
    if id(frame.f_code) not in _ENSURE:
        return None
    found: FrameType | None = frame
    while found is not None and (id(found.f_code) in _ENSURE or found.f_code.co_name == "<setcomp>"):
        found = found.f_back
    return found if found is not None and found.f_code in (_WAIT_FOR, _AS_COMPLETED) else None


def is_wait_for(frame: FrameType) -> bool:
    return frame.f_code is _WAIT_FOR


def given(frame: FrameType) -> Iterator[Coroutine[Any, Any, Any]]:
    """The coroutines that were given to `as_completed`, in the author's order."""
    found = frame.f_locals.get("fs", frame.f_locals.get("aws"))
    if not isinstance(found, list | tuple):
        raise WorkflowError(
            "asyncio.as_completed() would run these in another order at a replay: give it a list or tuple, or make the tasks first"
        )
    for item in dict.fromkeys(found):
        if inspect.iscoroutine(item):
            yield item
