"""Running coroutines for commands: the loop, and leaving it on SIGINT and SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from holdfast.commands.errors import DONE, PIPE_CLOSED
from holdfast.errors import StoreError
from holdfast.interrupt import run_through
from holdfast.terminal import streams

T = TypeVar("T")

COLLECT_AFTER = (10_000, 20, 20)
"""When Python looks for cyclic garbage: after so many objects more than were freed, in its youngest generation. Its own
700 are a few milliseconds of a busy node, and each look passes over the runs in flight: a fifth of the processor time.
Runs and steps leave no cycles behind (tests/roles/test_costs.py), so what is looked for is what authors' code leaves."""


def run_quickly(work: Coroutine[Any, Any, T]) -> T:
    """On the standard loop: for commands that ask the store a few things."""
    return asyncio.run(work)


def run_long(work: Coroutine[Any, Any, T]) -> T:
    """On uvloop where it is installed: for commands that host roles, in a process that is all theirs."""
    gc.collect()
    gc.freeze()  # modules and what they declare stay for good: never look at them again
    gc.set_threshold(*COLLECT_AFTER)
    try:
        import uvloop  # noqa: PLC0415  not on every platform
    except ImportError:
        make_loop = None
    else:
        make_loop = uvloop.new_event_loop
    return run_through(work, make_loop)


class Leaving:
    """Whether this process has to leave, and why: by a signal, or because of a fault that waiting does not mend."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.signal: signal.Signals | None = None
        self.fault: StoreError | None = None
        self.is_unread = False

    def ask(self, number: signal.Signals) -> None:
        if self.signal is not None:
            os._exit(128 + number)  # asked twice: now
        self.signal = number
        self.asked.set()

    def leave_unread(self) -> None:
        """Whoever read the log went away."""
        self.is_unread = True
        self.asked.set()

    def give_up(self, fault: StoreError) -> None:
        self.fault = fault
        self.asked.set()

    @property
    def code(self) -> int:
        """The exit code by which shells know the signal."""
        if self.signal is not None:
            return 128 + self.signal
        return PIPE_CLOSED if self.is_unread else DONE


@contextmanager
def leaving() -> Iterator[Leaving]:
    """SIGINT and SIGTERM ask to leave, and so does a log that nobody reads any more; a second one ends the process at once."""
    loop, leave = asyncio.get_running_loop(), Leaving()
    asking = (signal.SIGINT, signal.SIGTERM)
    for number in asking:
        loop.add_signal_handler(number, leave.ask, number)
    streams.when_unread = leave.leave_unread
    try:
        yield leave
    finally:
        for number in asking:
            loop.remove_signal_handler(number)
