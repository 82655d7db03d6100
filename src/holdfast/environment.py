"""Time, chance and identity, as arguments. The only place that asks the machine for them.

Roles get an `Environment`; a simulation hands them one whose clock and dice follow a seed.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")

THREAD_WAITS_S = 10.0
"""How long a thread for blocking calls waits for the next one before it leaves."""


class Threads:
    """Threads for calls that block, as many as there are calls at once.

    Instead of asyncio's executor, in which a program's own slow calls would keep commits waiting, and whose way there and
    back takes twice as long: a quarter of a millisecond of a run that is alone.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]]] = SimpleQueue()
        self._idle: list[None] = []
        """One for each thread that waits and that no call counts on."""

    def run(self, call: Callable[[], T]) -> asyncio.Future[T]:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            self._idle.pop()
        except IndexError:
            try:
                threading.Thread(target=self._work, name="holdfast-blocking", daemon=True).start()
            except (
                RuntimeError
            ):  # no more threads, as while the interpreter ends: the loop waits for the call instead
                try:
                    done.set_result(call())
                except Exception as raised:  # noqa: BLE001  it is raised where the call is awaited
                    done.set_exception(raised)
                return done
        self._calls.put((call, done))
        return done

    def _work(self) -> None:
        while True:
            try:
                call, done = self._calls.get(timeout=THREAD_WAITS_S)
            except Empty:
                with suppress(IndexError):  # else a call counts on this thread, and is about to come
                    self._idle.pop()
                    return
                continue
            result, error = None, None
            try:
                result = call()
            except BaseException as raised:  # noqa: BLE001  it is raised where the call is awaited
                error = raised
            self._idle.append(None)
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                done.get_loop().call_soon_threadsafe(_finish, done, result, error)
            del call, done, result, error  # kept until the next call otherwise


def _finish(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():
        return  # whoever waited was cancelled
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)


class Environment:
    """The real world."""

    def __init__(self) -> None:
        self.random = random.Random()  # noqa: S311  jitter and ids, not secrets
        self.host = socket.gethostname()
        self.pid = os.getpid()
        self._threads = Threads()
        _environments.add(self)

    def after_fork(self) -> None:
        """In a process that was forked: without the threads of the other one, and with dice of its own. Two processes that
        went on with the same dice would give the same ids to different things."""
        if self.pid != os.getpid() and self.is_real:
            self.pid = os.getpid()
            self._threads = Threads()
            self.random = random.Random()  # noqa: S311  as above

    @property
    def is_real(self) -> bool:
        """Whether time passes here as it does in other processes. A simulation brings a clock of its own."""
        return type(self).monotonic is Environment.monotonic

    def memory_mb(self) -> float:
        """What this process has in memory now; where that cannot be asked, the most it ever had."""
        try:
            with Path("/proc/self/statm").open(encoding="ascii") as told:
                return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1_000_000
        except OSError:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_000_000

    def now(self) -> float:
        """Seconds since the epoch, as this host believes."""
        return time.time()

    monotonic = staticmethod(time.monotonic)
    """Seconds that only ever go forward."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def blocking(self, call: Callable[[], T]) -> Awaitable[T]:
        """Run a call that blocks (an fsync, a file lock) without stopping the loop."""
        return self._threads.run(call)

    def new_id(self) -> str:
        """A UUIDv7: unique, and sorted by time."""
        ms = int(self.now() * 1000)
        value = (ms & 0xFFFFFFFFFFFF) << 80 | 0x7 << 76 | 0b10 << 62
        value |= self.random.getrandbits(12) << 64 | self.random.getrandbits(62)
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_environments: WeakSet[Environment] = WeakSet()


def _on_fork() -> None:
    for environment in list(_environments):
        environment.after_fork()


os.register_at_fork(after_in_child=_on_fork)


DRIFT = 1e-4
"""How much faster than another a clock may go."""
SET_S = 1.0
"""Clocks that are further apart than this do not drift: one of them was set."""


class StoreClock:
    """The store's clock, as this node can tell it between two answers: measured offset + monotonic clock.

    It is never ahead of the store's, because the store told its time before the answer came: what a node says has ended, ended
    before the store begins what follows from it. It only ever moves forward, so that times in one run's history do not go back.
    """

    def __init__(self, environment: Environment) -> None:
        self._monotonic = environment.monotonic
        self._offset = environment.now() - environment.monotonic()
        self._last = 0.0
        self._learned_at: float | None = None

    def learn(self, answered: float, store_now: float) -> None:
        """`answered` on the monotonic clock, `store_now` on the store's. The quickest answer says most: later ones take back no
        more than two clocks may drift apart, unless the store's was set."""
        offset = store_now - answered
        if self._learned_at is None:
            # What this host believed until now may be far ahead: it must not hold the clock up.
            self._last = 0.0
        elif self._offset - offset < SET_S:
            drifted_s = DRIFT * max(0.0, answered - self._learned_at)
            offset = max(offset, self._offset - drifted_s)
        self._offset, self._learned_at = offset, answered

    def now(self) -> float:
        """In whole microseconds, as stores keep it: a run that is replayed must see the times that it saw."""
        at = int((self._monotonic() + self._offset) * 1e6) / 1e6
        if at > self._last:  # noqa: PLR1730  three times as fast as max(), and asked for every step
            self._last = at
        return self._last
