"""What Holdfast must know about asyncio so that keys are the same on every version of Python and at every replay.

Three things differ between versions or depend on memory addresses. Timer callbacks have different names. Before 3.12,
`wait_for` makes a task of its own. `as_completed` takes its coroutines from a set.
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
"""The label of a timer, by the name of its callback."""


def _codes(*names: str) -> set[int]:
    found = (getattr(tasks, name, None) for name in names)
    return {id(function.__code__) for function in found if inspect.isfunction(function)}


_ENSURE = _codes("ensure_future", "_ensure_future")
_WAIT_FOR = asyncio.wait_for.__code__ if sys.version_info < (3, 12) else None
_iterator = getattr(tasks, "_AsCompletedIterator", None)  # since 3.13
_AS_COMPLETED: CodeType = (asyncio.as_completed if _iterator is None else _iterator.__init__).__code__


def made_by(frame: FrameType) -> FrameType | None:
    """Return the frame of `wait_for` or `as_completed` if one of them makes this task by `ensure_future`, else None."""
    if id(frame.f_code) not in _ENSURE:
        return None
    found: FrameType | None = frame
    while found is not None and (id(found.f_code) in _ENSURE or found.f_code.co_name == "<setcomp>"):
        found = found.f_back
    return found if found is not None and found.f_code in (_WAIT_FOR, _AS_COMPLETED) else None


def is_wait_for(frame: FrameType) -> bool:
    return frame.f_code is _WAIT_FOR


def coroutines_given(frame: FrameType) -> Iterator[Coroutine[Any, Any, Any]]:
    """Yield the coroutines that were given to `as_completed`, in the author's order."""
    found = frame.f_locals.get("fs", frame.f_locals.get("aws"))
    if not isinstance(found, list | tuple):
        raise WorkflowError(
            "asyncio.as_completed() would run these in another order at a replay: "
            "give it a list or tuple, or make the tasks first"
        )
    for item in dict.fromkeys(found):
        if inspect.iscoroutine(item):
            yield item
