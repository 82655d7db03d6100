"""Fair keys, with real nodes: one key's backlog does not delay another key, inside a node and apart, for runs and steps."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Holdfast, step, workflow
from holdfast.config import Config
from holdfast.errors import DefinitionError, InvalidInput
from holdfast.testing.world import World
from tests.roles.conftest import until

FEW = Config(poll_s=0.05, steps_max=4, claim_max=4, runs_max=20, heart=False)
"""Few places, so that there is something to share."""
begun: list[str] = []


@pytest.fixture(autouse=True)
def clean() -> None:
    begun.clear()


@step
async def work(whose: str) -> str:
    begun.append(whose)
    await asyncio.sleep(0)
    return whose


@workflow
async def chain(whose: str, steps: int) -> int:
    for _ in range(steps):
        await work(whose)
    return steps


@workflow
async def fan(whose: str, steps: int) -> int:
    return len(await asyncio.gather(*(work(whose) for _ in range(steps))))


@workflow
async def parent(whose: str) -> int:
    return await chain(whose, 1)


FLOOD, LATE = 300, 10


def passed() -> int:
    """Return how many steps of the flood began after the first of the others, and before the last."""
    first, last = begun.index("late"), len(begun) - 1 - begun[::-1].index("late")
    return begun[first:last].count("flood")


@pytest.mark.parametrize("apart", [False, True], ids=["inside", "apart"])
async def test_a_flood_of_steps_does_not_delay_another_key(store_url: str, apart: bool) -> None:
    """The ten of another key begin before a few dozen more of the flood do."""
    roles = ("scheduler", "supervisor") if apart else ("scheduler", "agent", "supervisor")
    async with Holdfast(store_url, config=FEW, roles=roles) as hf:
        agent = Holdfast(store_url, config=FEW, roles=("agent",)) if apart else None
        if agent is not None:
            await agent.__aenter__()
        try:
            flood = await hf.start(fan.using(fair="flood"), "flood", FLOOD)
            await until(lambda: begun.count("flood") > 5)
            before = len(begun)
            late = await hf.start(fan.using(fair="late"), "late", LATE)
            assert await late.result(60) == LATE
            assert len(begun) - before < 200
            assert begun.count("flood") < FLOOD
            assert passed() < 100
            assert await flood.result(60) == FLOOD
        finally:
            if agent is not None:
                await agent.__aexit__(None, None, None)


async def test_a_flood_of_runs_does_not_delay_another_key(store_url: str) -> None:
    """Runs are claimed by the same walk. A node that is busy with runs of one key takes those of another one next."""
    async with Holdfast(store_url, config=FEW) as hf:
        flood = await asyncio.gather(*(hf.start(chain.using(fair="flood"), "flood", 3) for _ in range(60)))
        late = [await hf.start(chain.using(fair="late"), "late", 1) for _ in range(3)]
        for run in late:
            await run.result(60)
        assert begun.count("flood") < 60 * 3
        for run in flood:
            await run.result(60)


async def test_children_are_for_whom_their_parent_is(store_url: str) -> None:
    """A child has the fair key of its parent, and says so."""
    async with Holdfast(store_url, config=FEW) as hf:
        run = await hf.start(parent.using(fair="acme"), "acme")
        assert await run.result(60) == 1
        info = await run.info()
        assert info.fair == "acme"
        assert [one.fair for one in await hf.store.schedulers.children(run.id)] == ["acme"]


async def test_weights_are_set_and_listed(store_url: str) -> None:
    """An operator sets a weight in Python, and everybody sees it."""
    async with Holdfast(store_url, config=FEW) as hf:
        await (await hf.start(chain.using(fair="acme"), "acme", 1)).result(60)
        await hf.limits.set_fair("loud", 5, "they pay")
        assert [(one.key, one.weight) for one in await hf.limits.fairs()] == [("acme", 1), ("loud", 5)]
        with pytest.raises(InvalidInput, match="from 1 to 100"):
            await hf.limits.set_fair("loud", 0)
        with pytest.raises(InvalidInput, match="cannot be a fair key"):
            await hf.limits.set_fair("a//b", 2)


@step(name="fair.slow")
async def slow(whose: str) -> None:
    begun.append(whose)
    await asyncio.sleep(0.05)


@workflow(name="fair.slows")
async def slows(whose: str, steps: int) -> None:
    await asyncio.gather(*(slow(whose) for _ in range(steps)))


def test_a_flood_of_priority_9_leaves_a_sixteenth_to_priority_0() -> None:
    """Of what begins after it has waited long, at least one in sixteen is of the lower priority, until it has ended."""
    with World(seed=1, config=Config(steps_max=16, claim_max=16, age_s=0.5)) as world:
        process = world.process("one")
        world.run(process.open())
        world.run(process.start(slows.using(priority=9), "high", 1_500))
        world.run(process.start(slows, "low", 25))
        world.loop.run_for(0.5)
        begun.clear()
        for _ in range(100):
            world.loop.run_for(0.1)
            if begun.count("low") >= 20:
                break
    assert begun.count("low") >= 20
    last = len(begun) - begun[::-1].index("low")
    assert begun[:last].count("high") > 100
    assert begun[:last].count("low") >= last / 16 * 0.9


@pytest.mark.parametrize("wrong", ["", " a", "a//b", "/a", "$a", 7, "x" * 201])
def test_a_wrong_fair_key_is_refused_where_it_is_written(wrong: object) -> None:
    """The message names the workflow and what a key needs."""
    with pytest.raises(DefinitionError, match=r"chain: fair: .* cannot be a fair key"):
        chain.using(fair=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [-1, 10, True, 1.5, "9"])
def test_a_priority_is_from_0_to_9(wrong: object) -> None:
    """Any other one is refused where it is written."""
    with pytest.raises(DefinitionError, match="from 0 to 9"):
        chain.using(priority=wrong)  # type: ignore[arg-type]
