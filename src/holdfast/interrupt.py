"""Finds out whether a signal to the process raised an exception, and not the code that it interrupted.

`sys.exit()` and `raise KeyboardInterrupt` in a step are failures of that step. Ctrl-C, and a program's own handler that
exits on SIGTERM, are meant for the process. They arrive as the same exceptions, in whatever code happens to run.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from functools import partial
from opcode import opmap
from traceback import walk_tb
from types import CodeType
from typing import Any, TypeVar

T = TypeVar("T")


def by_signal(error: BaseException) -> bool:
    """True if the handler of a signal raised this exception."""
    kind = type(error)  # not `isinstance`: it asks the exception's `__class__`, which may lie
    if not issubclass(kind, KeyboardInterrupt | SystemExit) or error.__traceback__ is None:
        return False
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    if any(frame.f_code in handlers for frame, _ in walk_tb(error.__traceback__)):
        return True
    innermost = error.__traceback__
    while innermost.tb_next is not None:
        innermost = innermost.tb_next
    # Python's own handler has no frame. Its exception seems to come from the interrupted line, but without a `raise`.
    raised = innermost.tb_frame.f_code.co_code[innermost.tb_lasti] == opmap["RAISE_VARARGS"]
    return issubclass(kind, KeyboardInterrupt) and _is_pythons_own() and not raised


def run_through(
    work: Coroutine[Any, Any, T], make_loop: Callable[[], asyncio.AbstractEventLoop] | None = None
) -> T:
    """Run an event loop until `work` is done. An event loop stops at SystemExit and KeyboardInterrupt, whichever task
    raised them. If a task that a step started raised them, that concerns only the step, and the loop goes on."""
    with asyncio.Runner(loop_factory=make_loop) as runner:
        main = runner.get_loop().create_task(work)
        while True:
            try:
                runner.run(_ended(main))
                return main.result()
            except (SystemExit, KeyboardInterrupt) as error:
                if main.done() or by_signal(error):
                    raise


async def _ended(main: asyncio.Task[Any]) -> None:
    try:
        await asyncio.wait([main])
    except asyncio.CancelledError:
        main.cancel()
        await asyncio.wait([main])


def _is_pythons_own() -> bool:
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _code(called: Any) -> CodeType | None:
    while isinstance(called, partial):
        called = called.func
    code = getattr(getattr(called, "__func__", called), "__code__", None)
    return code if isinstance(code, CodeType) else None
