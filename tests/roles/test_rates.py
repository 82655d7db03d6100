"""A rate over an hour of virtual time, with four agents: no minute has more begins than the rate and its burst, and none of a busy
hour has fewer than the rate."""

from __future__ import annotations

import asyncio
from bisect import bisect_right

import pytest

from holdfast import step, workflow
from holdfast.limits import Rate
from holdfast.testing.world import World

AGENTS = 4
MOST, PER_S, BURST = 100, 60.0, 10
begun: list[float] = []


@pytest.fixture(autouse=True)
def clean() -> None:
    begun.clear()


@step(name="rates.call", limits=[Rate("api", MOST, per=PER_S, burst=BURST)])
async def call() -> None:
    begun.append(asyncio.get_running_loop().time())


@workflow(name="rates.calls")
async def calls(number: int) -> int:
    return len(await asyncio.gather(*(call() for _ in range(number))))


@pytest.mark.parametrize("minutes", [3, pytest.param(60, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_each_minute_of_a_busy_time_has_the_rate_and_at_most_one_burst_more(minutes: int) -> None:
    """Whichever of the four agents begins them. Each of them dies once, and comes back."""
    with World(seed=5) as world:
        scheduler = world.process("scheduler", roles=("scheduler", "supervisor"))
        world.run(scheduler.open())
        agents = [world.process(f"agent-{number}", roles=("agent",)) for number in range(AGENTS)]
        for agent in agents:
            world.run(agent.open())
        world.run(scheduler.start(calls, MOST * minutes + 10 * BURST))
        for number, agent in enumerate(agents):
            world.loop.run_for(minutes * PER_S / (AGENTS + 1))
            world.kill(agent)
            world.run(world.process(f"again-{number}", roles=("agent",)).open())
        world.loop.run_for(minutes * PER_S / (AGENTS + 1))
    windows = [bisect_right(begun, at + PER_S) - place for place, at in enumerate(begun)]
    whole = [many for many, at in zip(windows, begun, strict=True) if at + PER_S <= begun[-1]]
    assert len(whole) > MOST * (minutes - 2)
    assert max(windows) <= MOST + BURST
    assert min(whole) >= MOST - 1
