"""A host's clock that somebody sets while nodes live on a SQLite file: nodes stay, and timers fire when they should."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Holdfast, Retry, here, now, step, workflow
from holdfast.config import Config
from holdfast.environment import Environment, StoreClock
from holdfast.scheduler.driver import replayed
from holdfast.store import open_store
from holdfast.store.answers import ClaimedRun
from holdfast.store.sqlite import clock
from holdfast.testing.world import Faults, Process, World
from holdfast.workflow import registry

HOUR_S = 3600.0
NAP_S = 1.0


class SetClock(Environment):
    """A host whose clock somebody sets."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_s = 0.0

    def now(self) -> float:
        return time.time() + self.ahead_s


@step
async def tick() -> float:
    return time.monotonic()


@workflow
async def nap() -> float:
    begun = await tick()
    await asyncio.sleep(NAP_S)
    return await tick() - begun


@pytest.mark.parametrize(
    "jumps", [(HOUR_S, 0.0), (-HOUR_S, 0.0), (HOUR_S, -HOUR_S)], ids=["on", "back", "both"]
)
async def test_timers_fire_on_time_and_nodes_stay(tmp_path: Path, jumps: tuple[float, float]) -> None:
    """The clock jumps before the timer is due, and again. Of two processes, each may see it at another time."""
    store = f"sqlite:///{tmp_path / 'holdfast.db'}"
    first, second = SetClock(), SetClock()
    async with (
        Holdfast(store, environment=first) as one,
        Holdfast(store, environment=second) as two,
    ):
        nodes = one.node.id, two.node.id
        for ahead_s in (*jumps, 0.0):
            runs = [await hf.start(nap) for hf in (one, two)]
            first.ahead_s = ahead_s
            await asyncio.sleep(NAP_S / 3)  # one process sees it before the other
            second.ahead_s = ahead_s
            for run in runs:
                assert NAP_S * 0.9 < await run.result(60) < NAP_S + 2
        assert (one.node.id, two.node.id) == nodes
        assert not one.node.fenced
        assert not two.node.fenced
        assert {node.id for node in await one.store.nodes.living(10)} == set(nodes)
        assert not [entry for entry in await one.store.reads.journal(None, 100) if entry.verb == "reclaim"]


async def test_a_process_that_comes_later_has_the_same_time(tmp_path: Path) -> None:
    """This holds while a node lives. When none does, the host's clock is the store's again."""
    url, late = f"sqlite:///{tmp_path / 'holdfast.db'}", SetClock()
    late.ahead_s = HOUR_S
    async with Holdfast(url) as hf:
        other = open_store(url, late)
        await other.open()
        assert abs(await other.now() - await hf.store.now()) < 0.5
        await other.close()
    other = open_store(url, late)
    await other.open()
    assert abs(await other.now() - late.now()) < 0.5
    await other.close()


async def test_a_clock_that_stays_ahead_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host slept, or the clock was wrong. After a while the store follows, and no node loses its lease by that."""
    url, environment = f"sqlite:///{tmp_path / 'holdfast.db'}", SetClock()
    async with Holdfast(url, environment=environment) as hf:
        run = await hf.start(nap)
        monkeypatch.setattr(clock, "MEANT_AFTER_S", 0.2)
        environment.ahead_s = HOUR_S
        async with asyncio.timeout(60):
            while await hf.store.now() < environment.now() - 1:  # noqa: ASYNC110  nothing gives an event
                await asyncio.sleep(0.02)
        assert await run.result(60) < NAP_S + 5
        assert await (await hf.start(nap)).result(60) > 0
        assert not hf.node.fenced
        assert not [entry for entry in await hf.store.reads.journal(None, 100) if entry.verb == "reclaim"]


@step
async def one() -> int:
    return 1


@workflow
async def chain(length: int) -> int:
    return sum([await one() for _ in range(length)])


async def test_what_ended_did_so_before_what_it_caused_began(store_url: str) -> None:
    """The rows show it, with agents in the same process and in another, for the whole chain."""
    async with (
        Holdfast(store_url, roles=["scheduler", "supervisor"]) as hf,
        Holdfast(store_url, roles=["agent"]),
    ):
        apart = await hf.start(chain, 40)
        assert await apart.result(60) == 40
        apart_rows = await hf.store.reads.steps(apart.id)
    async with Holdfast(store_url) as hf:
        run = await hf.start(chain, 200)
        assert await run.result(60) == 200
        rows = await hf.store.reads.steps(run.id)
    for steps in (apart_rows, rows):
        for before, after in pairwise(steps):
            assert before.finished_at is not None
            assert before.finished_at <= after.issued_at, (before, after)


def test_a_nodes_idea_of_the_stores_time_is_never_ahead() -> None:
    """This holds however long answers take; and it follows a store whose clock was set."""
    world = SetClock()
    clock = StoreClock(world)
    for latency_s in (0.5, 0.01, 2.0, 0.3):
        asked = world.monotonic()
        clock.learn(asked, 1_000.0 + asked - latency_s)
        assert clock.now() <= 1_000.0 + world.monotonic()
    assert clock.now() >= 1_000.0 + world.monotonic() - 0.05, "the quickest answer counts"
    clock.learn(world.monotonic(), 5_000.0 + world.monotonic())
    assert clock.now() >= 5_000.0


@given(st.floats(0.0, 1e6), st.floats(1e9, 4e9))
def test_a_time_comes_back_as_it_was_recorded(monotonic: float, offset: float) -> None:
    """PostgreSQL keeps microseconds. A workflow that is replayed must see exactly the same time, or it would decide
    otherwise."""
    world = SetClock()
    world.monotonic = lambda: monotonic
    clock = StoreClock(world)
    clock.learn(0.0, offset)
    at = clock.now()
    assert datetime.fromtimestamp(at, UTC).timestamp() == at


@workflow
async def clocked() -> list[str]:
    seen = []
    for _ in range(5):
        await tick()
        await asyncio.sleep(0.0003)
        seen.append(await note(f"{now().timestamp():.9f}"))
    return seen


@step
async def note(text: str) -> str:
    return text


async def test_a_replayed_run_sees_the_times_it_saw(store_url: str) -> None:
    """They are equal to the last digit, on both stores. Otherwise the run would be held."""
    async with Holdfast(store_url) as hf:
        runs = [await hf.start(clocked) for _ in range(10)]
        ended = [await run.result(60) for run in runs]
        assert all(len(seen) == 5 for seen in ended)
        for run in runs:
            row = await hf.store.reads.run(run.id)
            assert row is not None
            claimed = ClaimedRun(row, await hf.store.reads.steps(run.id), [])
            decider = await replayed(
                claimed, registry.workflows, hf.store.schedulers, await hf.store.now(), hf.config
            )
            decider.close()


# --- a store's clock that is set back ---------------------------------------------------------------------------------


class Counting(Faults):
    """Counts what processes ask the store for."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    async def reach(self, process: Process, verb: str, writes: bool) -> None:
        self.calls[verb] += 1


@step(retry=Retry(attempts=2, delay=8, jitter="none"))
async def fails_once() -> int:
    if here.attempt == 1:
        raise ConnectionError
    return here.attempt


@workflow
async def backs_off() -> int:
    return await fails_once()


@workflow
async def sleeps() -> int:
    await asyncio.sleep(8)
    return 2


@pytest.mark.parametrize("flow", [backs_off, sleeps])
def test_a_node_rests_while_the_stores_clock_is_behind_its_own(flow: Any) -> None:
    """A node's idea of the store's clock never goes back. What the store says is due later may seem to be overdue, and
    the node does not ask for it again and again."""
    faults = Counting()
    with World(
        config=Config(poll_s=1.0, renew_s=1.0, lease_s=30.0, leader_lease_s=30.0, park_after_s=0.1),
        faults=faults,
    ) as world:
        one = world.process("one")
        world.run(one.open())
        run = world.run(one.start(flow))
        world.loop.run_for(7.9)
        world.step_clock(-20.0)
        before = faults.calls.total()
        world.loop.run_for(10.0)
        assert (faults.calls.total() - before) / 10.0 < before / 7.9, "it asks more often than before"
        assert world.run(run.result(60)) == 2
