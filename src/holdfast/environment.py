"""Time, chance and identity. This is the only place that asks the machine for them.

Roles get an `Environment` as an argument. A simulation gives them one whose clock and dice follow a seed.
"""

from __future__ import annotations

import os
import random
import resource
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

THREAD_WAITS_S = 10.0
"""How long a thread for blocking calls waits for the next call before it ends."""


class Threads:
    """Threads for calls that block. There are as many threads as there are calls at once.

    This replaces asyncio's executor. There, a program's own slow calls would make commits wait, and the way to a thread
    and back takes twice as long, which costs a run that is alone a quarter of a millisecond.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]]] = SimpleQueue()
        self._idle: list[None] = []
        """One entry for each thread that waits and to which no call is about to come."""

    @cached_property
    def _running_loop(self) -> Callable[[], asyncio.AbstractEventLoop]:
        from asyncio import get_running_loop  # noqa: PLC0415  a heart has no event loop, and asyncio is large

        return get_running_loop

    def run(self, call: Callable[[], T]) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self._running_loop().create_future()
        try:
            self._idle.pop()
        except IndexError:
            try:
                threading.Thread(target=self._work, name="holdfast-blocking", daemon=True).start()
            except RuntimeError:
                # There are no more threads, for example while the interpreter ends. So the event loop makes the call.
                try:
                    done.set_result(call())
                except Exception as raised:  # noqa: BLE001  whoever awaits the call gets it
                    done.set_exception(raised)
                return done
        self._calls.put((call, done))
        return done

    def _work(self) -> None:
        while True:
            try:
                call, done = self._calls.get(timeout=THREAD_WAITS_S)
            except Empty:
                with suppress(IndexError):  # if no entry is left, a call is about to come to this thread
                    self._idle.pop()
                    return
                continue
            result, error = None, None
            try:
                result = call()
            except BaseException as raised:  # noqa: BLE001  whoever awaits the call gets it
                error = raised
            self._idle.append(None)
            with suppress(RuntimeError):  # the loop is closed, so nobody waits for the result
                done.get_loop().call_soon_threadsafe(_finish, done, result, error)
            del call, done, result, error  # these variables would keep them alive until the next call


def _finish(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():
        return  # the task that waited was cancelled
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)


class Environment:
    """The real clock, dice and identity of this process."""

    def __init__(self) -> None:
        self.random = random.Random()  # noqa: S311  jitter and ids, not secrets
        self.host = socket.gethostname()
        self.pid = os.getpid()
        self._threads = Threads()
        _environments.add(self)

    def after_fork(self) -> None:
        """Give a forked process its own threads and dice. It does not have the threads of its parent. And two processes
        with the same dice would give the same ids to different things."""
        if self.pid != os.getpid() and self.is_real:
            self.pid = os.getpid()
            self._threads = Threads()
            self.random = random.Random()  # noqa: S311  as above

    @property
    def is_real(self) -> bool:
        """True if time passes here as in other processes. A simulation has its own clock."""
        return type(self).monotonic is Environment.monotonic

    def memory_mb(self) -> float:
        """Return how much memory this process uses now, or the most it ever used on a system that does not say it."""
        try:
            with Path("/proc/self/statm").open(encoding="ascii") as statm:
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1_000_000
        except OSError:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_000_000

    def now(self) -> float:
        """Return the seconds since the epoch by this host's clock."""
        return time.time()

    monotonic = staticmethod(time.monotonic)
    """A clock, in seconds, that never goes back."""

    async def sleep(self, seconds: float) -> None:
        from asyncio import sleep  # noqa: PLC0415  as above

        await sleep(seconds)

    def blocking(self, call: Callable[[], T]) -> Awaitable[T]:
        """Run a call that blocks (an fsync, a file lock) without stopping the event loop."""
        return self._threads.run(call)

    def secret(self, size: int) -> bytes:
        """Return bytes that nobody can guess. Dice are not good enough for this."""
        return os.urandom(size)

    def new_id(self) -> str:
        """Return a new UUIDv7: it is unique, and such ids sort by time."""
        ms, draw = int(self.now() * 1000), self.random.getrandbits
        high, low = draw(12), 0b10 << 62 | draw(62)
        return "%08x-%04x-7%03x-%04x-%012x" % (  # noqa: UP031  faster than an f-string: every start needs one
            ms >> 16 & 0xFFFFFFFF,
            ms & 0xFFFF,
            high,
            low >> 48,
            low & 0xFFFFFFFFFFFF,
        )


_environments: WeakSet[Environment] = WeakSet()


def _on_fork() -> None:
    for environment in list(_environments):
        environment.after_fork()


os.register_at_fork(after_in_child=_on_fork)


DRIFT = 1e-4
"""How much faster one clock may go than another."""
SET_S = 1.0
"""If two clocks move apart by more than this, it is no drift: somebody set one of them."""


class StoreClock:
    """What a node knows of the store's clock between two answers: its monotonic clock plus a measured offset.

    It is never ahead of the store's clock, because the store reads its clock before its answer arrives here. So when a
    node records that something has ended, that time is before the store begins what follows from it. This clock never
    goes back, so that times in one run's history do not go back either.
    """

    def __init__(self, environment: Environment) -> None:
        self._monotonic = environment.monotonic
        self._offset = environment.now() - environment.monotonic()
        self._last = 0.0
        self._learned_at: float | None = None

    def learn(self, answered: float, store_now: float) -> None:
        """Learn the offset from an answer that arrived at `answered` on the monotonic clock and said that the store's
        clock was at `store_now`. The quickest answer is the most exact one. So a later answer lowers the offset by no
        more than the two clocks may have drifted apart, unless the store's clock was set."""
        offset = store_now - answered
        if self._learned_at is None:
            # Until now this clock followed the host's clock, which may be far ahead. It must not wait for that time.
            self._last = 0.0
        elif self._offset - offset < SET_S:
            drifted_s = DRIFT * max(0.0, answered - self._learned_at)
            offset = max(offset, self._offset - drifted_s)
        self._offset, self._learned_at = offset, answered

    def now(self) -> float:
        """Return the time in whole microseconds, as stores keep it, so that a replayed run sees the times that it saw
        before."""
        at = int((self._monotonic() + self._offset) * 1e6) / 1e6
        if at > self._last:  # noqa: PLR1730  three times as fast as max(), and every step needs it
            self._last = at
        return self._last

    def glance(self) -> float:
        """Return about the same as `now`, for log lines. Any thread may call this."""
        return self._monotonic() + self._offset
