"""Crashes at chosen points: the n-th write to the store, before or after it happened, or a named point in a step.

A crash leaves behind what kill -9 leaves: nothing more is written, except that the heart reports that the process is
gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from holdfast import Holdfast
from holdfast.config import Config
from holdfast.workflow import outside
from tests.store.made import say_gone

WRITES = (
    ("batches", "commit"),
    ("schedulers", "claim_runs"),
    ("schedulers", "claim_run"),
    ("agents", "claim_steps"),
    ("operators", "steer_undo"),
)


class Points:
    """Counts the points that are passed, and stops for ever at the chosen one."""

    def __init__(self, crash_at: int | None = None) -> None:
        self.crash_at = crash_at
        self.passed: list[str] = []
        self.crashed = asyncio.Event()

    async def point(self, name: str) -> None:
        if self.crashed.is_set():
            await asyncio.Event().wait()
        self.passed.append(name)
        if len(self.passed) == self.crash_at:
            self.crashed.set()
            await asyncio.Event().wait()


now = [Points()]
"""The points that the steps of the test pass."""


async def point(name: str) -> None:
    await now[0].point(name)


def _pass_points(noun: Any, name: str, points: Points) -> None:
    """Put a point before and after a write of the store, if it did something."""
    real = getattr(noun, name)

    async def write(*args: Any, **kwargs: Any) -> Any:
        if name == "commit":
            await points.point(f"before {name}")
        answer = await real(*args, **kwargs)
        if name == "commit" or answer:
            await points.point(f"after {name}")
        return answer

    setattr(noun, name, write)


async def crashing(url: str, points: Points, config: Config) -> Holdfast:
    """Return an open Holdfast whose writes pass the points."""
    hf = await Holdfast(url, config=config).open()
    for noun, name in WRITES:
        _pass_points(getattr(hf.store, noun), name, points)
    return hf


async def kill(hf: Holdfast) -> None:
    """Leave behind what kill -9 leaves."""
    node, store = hf.node, hf.store
    outside.leave(hf)
    node.fenced, node.on_fenced = True, lambda: None
    node.heartbeat.end()
    if node._block_watch is not None:
        node._block_watch.stop()
    agent = node.agent
    assert agent is not None
    tasks: list[asyncio.Task[Any]] = [*node.loops._tasks]
    if node._writing is not None:
        tasks.append(node._writing)
    for assignment in list(agent.assignments.values()):
        assignment.lost = True
        if assignment.task is not None:
            tasks.append(assignment.task)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    agent.close()
    await store.close()
    await say_gone(hf.url, node.id)
    hf._caller = hf._store = None


async def through(
    url: str, config: Config, begin: Callable[[Holdfast], Any], crash_at: int | None, run_id: str
) -> tuple[Points, str]:
    """Run to the end, crashing once at the chosen point and going on in another node. Return the points and the run's
    state."""
    points = now[0] = Points(crash_at)
    hf = await crashing(url, points, config)
    ended = asyncio.ensure_future(_ended(hf, begin, run_id))
    crashed = asyncio.ensure_future(points.crashed.wait())
    await asyncio.wait([ended, crashed], return_when=asyncio.FIRST_COMPLETED, timeout=60)
    if ended.done():
        crashed.cancel()
        await hf.close()
        return points, await ended
    assert crashed.done(), "neither ended nor crashed"
    ended.cancel()
    with suppress(BaseException):
        await ended
    await kill(hf)
    now[0] = Points()
    async with Holdfast(url, config=config) as again:
        return points, await _ended(again, begin, run_id)


async def _ended(hf: Holdfast, begin: Callable[[Holdfast], Any], run_id: str) -> str:
    """Start it, unless it was started before, wait for its end, and return its state."""
    await begin(hf)
    close = await asyncio.wait_for(hf.node.watch_end(run_id), 60)
    assert close is not None
    return str(close.state)
