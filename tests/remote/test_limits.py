"""Limits and fair keys with agents that reach the store through a server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from holdfast import Holdfast, here, step, workflow
from holdfast.limits import Limit, Rate
from tests.http.conftest import FAST
from tests.remote.conftest import Served, served

REMOTE = msgspec.structs.replace(FAST, lease_s=8.0)
at_work: Counter[str] = Counter()
most: Counter[str] = Counter()
begun: list[str] = []


@pytest.fixture(autouse=True)
def clean() -> None:
    at_work.clear()
    most.clear()
    begun.clear()


async def work(key: str) -> None:
    at_work[key] += 1
    most[key] = max(most[key], at_work[key])
    begun.append(key)
    try:
        await asyncio.sleep(0.01)
    finally:
        at_work[key] -= 1


@step(name="limited.one", limits=[Limit("one", 1)])
async def one(number: int) -> int:
    await work("one")
    return number


@step(name="limited.thread", limits=[Limit("one", 1), Rate("calls", 50, per=1, burst=2)])
def thread(number: int) -> int:
    return number


@step(name="limited.free")
async def free(number: int) -> int:
    await work(here.run_id.partition("-")[0])
    return number


@workflow(name="limited.ones")
async def ones(number: int) -> int:
    return sum(await asyncio.gather(*(one(item) for item in range(number))))


@workflow(name="limited.threads")
async def threads(number: int) -> int:
    return sum(await asyncio.gather(*(thread(item) for item in range(number))))


@workflow(name="limited.frees")
async def frees(number: int) -> int:
    return sum(await asyncio.gather(*(free(item) for item in range(number))))


@pytest.fixture
async def at(store_url: str) -> AsyncIterator[Served]:
    """A server in a process that hosts everything but an agent."""
    async with served(store_url, ("scheduler", "supervisor", "server")) as found:
        yield found


@asynccontextmanager
async def agent(at: Served, places: int = 20) -> AsyncIterator[Holdfast]:
    config = msgspec.structs.replace(REMOTE, steps_max=places)
    async with Holdfast(at.url, roles=["agent"], config=config) as hf:
        yield hf


async def test_a_limit_of_one_is_exact_with_two_agents(at: Served) -> None:
    """Steps under a limit reach remote agents, and there is never more than one at work, whoever executes it."""
    async with agent(at), agent(at):
        runs = [await at.hf.start(ones, 10) for _ in range(4)]
        for run in runs:
            assert await run.result(timeout=60) == 45
    assert len(begun) == 40
    assert most["one"] == 1


async def test_a_rate_and_a_limit_of_a_thread(at: Served) -> None:
    """A claim that finds no token comes again when there is one."""
    async with agent(at):
        assert await (await at.hf.start(threads, 12)).result(timeout=60) == 66


async def test_steps_with_a_fair_key_reach_remote_agents_in_turns(at: Served) -> None:
    """The backlog of one key does not delay another."""
    big = await at.hf.start(frees.using(id="big-1", fair="big"), 60)
    small = await at.hf.start(frees.using(id="small-1", fair="small"), 4)
    while len(await big.steps()) < 60 or len(await small.steps()) < 4:  # noqa: ASYNC110  rows in the store
        await asyncio.sleep(0.01)
    async with agent(at, places=2):
        assert await small.result(timeout=60) == 6
        assert begun.count("big") < 30  # measured: 4 to 8
        assert await big.result(timeout=60) == sum(range(60))
