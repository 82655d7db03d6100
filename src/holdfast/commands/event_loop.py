"""How commands run coroutines: on which event loop, and how they leave it on SIGINT and SIGTERM."""

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
"""The thresholds of Python's cyclic garbage collector. The first is how many more objects must be made than freed
before it looks at the youngest generation. Python's default of 700 is reached every few milliseconds on a busy node,
and each look goes through the runs in flight: that took a fifth of the processor time. Runs and steps leave no cycles
behind (tests/roles/test_costs.py), so the collector only looks for those that the authors' code leaves."""


def run_quickly(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on the standard event loop: for commands that ask the store a few things."""
    return asyncio.run(work)


def run_long(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on uvloop where it is installed: for commands that host roles and have the process to themselves."""
    gc.collect()
    gc.freeze()  # modules and what they declare stay for good, so the collector need not look at them again
    gc.set_threshold(*COLLECT_AFTER)
    try:
        import uvloop  # noqa: PLC0415  not on every platform
    except ImportError:
        make_loop = None
    else:
        make_loop = uvloop.new_event_loop
    return run_through(work, make_loop)


class Departure:
    """Whether this process has to leave, and why: a signal asked it to, nobody reads its log any more, or the store has
    a fault that waiting does not mend."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.signal: signal.Signals | None = None
        self.fault: StoreError | None = None
        self.is_unread = False

    def ask(self, number: signal.Signals) -> None:
        if self.signal is not None:
            os._exit(128 + number)  # the second signal ends the process at once
        self.signal = number
        self.asked.set()

    def leave_unread(self) -> None:
        """Leave because nobody reads the log any more."""
        self.is_unread = True
        self.asked.set()

    def give_up(self, fault: StoreError) -> None:
        self.fault = fault
        self.asked.set()

    @property
    def code(self) -> int:
        """The exit code. Shells recognize a signal by 128 and its number."""
        if self.signal is not None:
            return 128 + self.signal
        return PIPE_CLOSED if self.is_unread else DONE


@contextmanager
def leaving() -> Iterator[Departure]:
    """Note that SIGINT, SIGTERM or a log that nobody reads any more asks this process to leave. A second signal ends it
    at once."""
    loop, leave = asyncio.get_running_loop(), Departure()
    asking = (signal.SIGINT, signal.SIGTERM)
    for number in asking:
        loop.add_signal_handler(number, leave.ask, number)
    streams.when_unread = leave.leave_unread
    try:
        yield leave
    finally:
        for number in asking:
            loop.remove_signal_handler(number)
