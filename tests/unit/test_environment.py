"""Calls that block are made in threads of the environment's own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from holdfast import environment
from holdfast.environment import Environment


async def test_the_answer_or_the_error_comes_back() -> None:
    """Whoever awaits the call gets what it returns, or the error that it raises."""
    world = Environment()
    assert await world.blocking(lambda: 1 + 1) == 2
    with pytest.raises(ZeroDivisionError):
        await world.blocking(lambda: 1 // 0)
    assert await world.blocking(threading.get_ident) != threading.get_ident()


async def test_calls_one_after_the_other_share_a_thread() -> None:
    """A call that begins after the one before has ended uses the same thread."""
    world = Environment()
    threads = [await world.blocking(threading.get_ident) for _ in range(100)]
    assert len(set(threads)) == 1


async def test_calls_at_once_do_not_wait_for_one_another() -> None:
    """Not even when the threads of asyncio's executor are all taken."""
    world, go = Environment(), threading.Event()
    wait: Callable[[], bool] = go.wait
    taken = [asyncio.get_running_loop().run_in_executor(None, wait) for _ in range(64)]
    blocked = [asyncio.ensure_future(world.blocking(wait)) for _ in range(10)]
    try:
        assert await asyncio.wait_for(world.blocking(lambda: "done"), 30) == "done"
    finally:
        go.set()
        await asyncio.gather(*taken, *blocked)


async def test_a_caller_that_is_cancelled_does_not_harm_the_next() -> None:
    """The call goes on to its end; its thread is there for the next one."""
    world, go = Environment(), threading.Event()
    waiting = asyncio.ensure_future(world.blocking(go.wait))
    waiting.cancel()
    go.set()
    assert await world.blocking(lambda: "done") == "done"


async def test_threads_leave_when_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that gets no call ends. The next call starts another one."""
    monkeypatch.setattr(environment, "THREAD_WAITS_S", 0.01)
    world = Environment()
    first = await world.blocking(threading.current_thread)
    await asyncio.to_thread(first.join, 30)
    assert not first.is_alive()
    assert await world.blocking(lambda: "done") == "done"
