"""Adaptive limits with real nodes: the number finds what a dependency bears, keeps near it, and grows again. Most of these tests
play minutes in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from holdfast import Holdfast, Retry, RetryIn, Stop, step, workflow
from holdfast.config import Config
from holdfast.limits import Limit
from holdfast.store.limits import LimitRow
from holdfast.testing.world import Process, World

QUICK = Config(poll_s=0.05)
SLOW_S = 0.4
"""How long one call takes in virtual time."""
CEILING, WANTED = 50, 60


class Dependency:
    """Answers quickly up to what it bears. Beyond that, it gets slower, or fails."""

    bears, service_s, fails, at_once, done = 10, SLOW_S, False, 0, 0

    async def call(self) -> None:
        if self.fails and self.at_once >= self.bears:
            await asyncio.sleep(self.service_s)
            raise ConnectionError("too many")
        self.at_once += 1
        try:
            await asyncio.sleep(self.service_s * max(1.0, self.at_once / self.bears) ** 2)
            self.done += 1
        finally:
            self.at_once -= 1


dependency = Dependency()


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    dependency.__dict__.clear()
    yield
    dependency.__dict__.clear()


@step(
    name="adapt.call",
    limits=[Limit("dep", CEILING, adaptive=True)],
    retry=Retry(attempts=10_000, delay=0.01, max_delay=0.02),
)
async def call() -> None:
    await dependency.call()


@workflow(name="adapt.calls")
async def calls(number: int) -> int:
    for _ in range(number):
        await call()
    return number


def busy(world: World, name: str = "one") -> Process:
    """Return a process that has more to do than its dependency bears, for hours."""
    process = world.process(name)
    world.run(process.open())
    for number in range(WANTED):
        world.run(process.start(calls.using(id=f"r{number}"), 10_000))
    return process


def row(world: World, process: Process) -> LimitRow:
    found = world.run(process.store.limits.limit("dep"), process)
    assert found is not None
    return found


def seen_for(world: World, process: Process, seconds: int) -> tuple[list[int], float]:
    """Let so much time pass. Return the number at each second, and how many calls succeeded in a second."""
    before, numbers = dependency.done, []
    for _ in range(seconds):
        world.loop.run_for(1.0)
        numbers.append(row(world, process).most)
    return numbers, (dependency.done - before) / seconds


@pytest.mark.parametrize("fails", [False, True], ids=["slower", "fails"])
def test_the_number_stays_near_what_the_dependency_bears(fails: bool) -> None:
    """With a ceiling of 50 and a dependency that bears 10, the number is from 6 to 14, and 8 to 13 on average. Calls are
    more than four fifths of the best. When the dependency bears 40, the number grows above 35."""
    dependency.fails = fails
    with World(seed=3) as world:
        process = busy(world)
        world.loop.run_for(30.0)
        numbers, done = seen_for(world, process, 40)
        assert 6 <= min(numbers) <= max(numbers) <= 14, numbers
        assert 8 <= sum(numbers) / len(numbers) <= 13
        assert done >= 0.8 * dependency.bears / SLOW_S
        said = row(world, process)
        assert said.moved
        whys = [world.run(process.run(f"r{number}").why(), process) for number in range(WANTED)]
        assert any(
            f"the limit found its number by itself, {said.most} of 50: {said.moved}" in why for why in whys
        )
        assert (said.is_adaptive, said.least, said.declared) == (True, 1, CEILING)
        dependency.bears = 40
        for _ in range(60):
            world.loop.run_for(1.0)
            if row(world, process).most >= 35:
                break
        assert row(world, process).most >= 35


def test_the_number_outlives_its_leader() -> None:
    """It is in the store. When the process that led is killed, another one goes on from there, and nothing is reset."""
    with World(seed=5, config=Config(lease_s=2.0, renew_s=0.5, leader_lease_s=1.5)) as world:
        first = busy(world)
        world.loop.run_for(20.0)
        before = row(world, first)
        assert 8 <= before.most <= 14
        world.kill(first)
        dependency.at_once = 0
        second = world.process("two")
        world.run(second.open())
        assert row(world, second).most == before.most
        world.loop.run_for(5.0)  # the steps of the other one are reclaimed
        numbers, done = seen_for(world, second, 15)
        assert 6 <= min(numbers) <= max(numbers) <= 14
        assert done > 0


def test_what_is_slower_for_good_becomes_usual() -> None:
    """If attempts take longer whatever the number is, the load was not the cause: the number grows back."""
    dependency.bears = 1000
    with World(seed=7) as world:
        process = busy(world)
        world.loop.run_for(10.0)
        high = row(world, process).most
        dependency.service_s = SLOW_S * 3
        numbers, _ = seen_for(world, process, 45)
        assert min(numbers) < high
        assert numbers[-1] > 2 * min(numbers)
        assert numbers[-1] > 15


def test_an_operator_overrules_it_and_gives_it_back() -> None:
    """While an operator has set the number, it stays, and nothing is counted. Given back, it goes on from there."""
    with World(seed=9) as world:
        process = busy(world)
        world.loop.run_for(5.0)
        world.run(process.limits.set("dep", 3, "they are slow"), process)
        world.loop.run_for(3.0)
        sums = world.connection.execute("SELECT ok, failed FROM limits").fetchall()
        numbers, _ = seen_for(world, process, 10)
        assert set(numbers) == {3}
        assert world.connection.execute("SELECT ok, failed FROM limits").fetchall() == sums
        world.run(process.limits.set("dep", None), process)
        assert row(world, process).most == 3
        numbers, _ = seen_for(world, process, 10)
        assert numbers[-1] > 3


@step(
    name="adapt.quick",
    limits=[Limit("quick", 20, adaptive=True, least=2)],
    retry=Retry(attempts=3, delay=0.01),
)
async def quick(number: int) -> None:
    dependency.service_s = 0.02
    await dependency.call()


@workflow(name="adapt.quicks")
async def quicks(number: int) -> int:
    return len(await asyncio.gather(*(quick(one) for one in range(number))))


async def test_it_moves_for_real(store_url: str) -> None:
    """On a real clock, with two nodes: the number moves, and everybody sees where it is and why."""
    dependency.bears = 6
    async with Holdfast(store_url, config=QUICK) as hf, Holdfast(store_url, config=QUICK):
        run = await hf.start(quicks, 2_000)

        async def moved() -> bool:
            (seen,) = await hf.limits.list()
            return bool(seen.moved)

        for _ in range(600):
            if await moved():
                break
            await asyncio.sleep(0.1)
        (seen,) = await hf.limits.list()
        assert (seen.adaptive, seen.least, seen.declared, seen.is_set) == (True, 2, 20, False)
        assert 2 <= seen.most <= 20
        assert "attempts" in seen.moved
        assert seen.moved_at is not None
        assert (await hf.limits.show("quick")).limit.adaptive
        await run.cancel()


counts: dict[str, int] = {}


@step(name="adapt.wrong", limits=[Limit("wrong", 20, adaptive=True)], retry=Retry(attempts=2, delay=0.01))
async def wrong(how: str) -> None:
    counts[how] = counts.get(how, 0) + 1
    if counts[how] > 1:
        return
    if how == "stop":
        raise Stop("there is no such customer")
    if how == "bug":
        raise KeyError("a mistake")
    if how == "later":
        raise RetryIn(0.01, "429")
    if how == "down":
        raise ConnectionError("refused")


@workflow(name="adapt.wrongs")
async def wrongs(how: str) -> None:
    await wrong(how)


@pytest.mark.parametrize(
    ("how", "reported"),
    [("stop", (0, 0)), ("bug", (1, 0)), ("later", (1, 1)), ("down", (1, 1)), ("ok", (1, 0))],
)
def test_only_what_may_be_overload_counts(how: str, reported: tuple[int, int]) -> None:
    """Errors that are tried again and being asked to come later count as overload. An answer that will not change, and a
    mistake in the code, count as nothing."""
    counts.clear()
    if how == "ok":
        counts[how] = 1
    with World(seed=11) as world:
        process = world.process("one")
        world.run(process.open())
        world.run(process.start(wrongs, how))
        world.loop.run_for(5.0)
        assert world.connection.execute("SELECT ok, failed FROM limits").fetchall() == [reported]


@step(name="adapt.plain", limits=[Limit("plain", 20)])
async def plain() -> None: ...


@workflow(name="adapt.plains")
async def plains() -> None:
    await plain()


def test_other_limits_are_not_counted() -> None:
    """For a limit that is not adaptive, agents report nothing, and the leader moves nothing."""
    with World(seed=13) as world:
        process = world.process("one")
        world.run(process.open())
        verbs: list[str] = []
        world.committed = lambda process, verb, asked: verbs.append(verb)  # type: ignore[method-assign]
        world.run(process.start(plains))
        world.loop.run_for(5.0)
        assert not {"observe_limits", "move_limits"} & set(verbs)
        assert world.connection.execute("SELECT ok, most, reported_at FROM limits").fetchall() == [
            (0, 20, 0.0)
        ]
