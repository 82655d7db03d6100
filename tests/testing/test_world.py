"""The simulated world: its time is a number, and its processes die on demand."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Retry, step, workflow
from holdfast.config import Config
from holdfast.testing.loop import Deadlock, VirtualLoop
from holdfast.testing.world import World

QUICK = Config(lease_s=2.0, renew_s=0.5, leader_lease_s=1.5)
begun: list[int] = []


@step(retry=Retry(attempts=3, delay=0.1), name="world.slow")
async def slow(i: int) -> int:
    begun.append(i)
    try:
        await asyncio.sleep(10)
    finally:
        begun.append(-i)
    return i


@workflow(name="world.flow")
async def flow() -> int:
    return await slow(1)


def test_a_day_takes_no_time() -> None:
    """When no callback is ready, time jumps to the next timer."""
    loop = VirtualLoop()  # type: ignore[abstract]
    loop.run_until_complete(asyncio.sleep(86_400))
    assert loop.time() == 86_400


def test_what_waits_does_not_notice_that_time_is_skipped() -> None:
    """Its order and how long it waits stay the same."""
    loop = VirtualLoop()  # type: ignore[abstract]
    seen: list[tuple[str, float]] = []
    for name, due in (("b", 3.0), ("a", 2.0)):
        loop.call_at(due, lambda name=name: seen.append((name, loop.time())))
    loop.run_for(1.0)
    loop.skip(1000.0)
    assert (seen, loop.time()) == ([], 1000.0)
    loop.run_for(5.0)
    assert seen == [("a", 1001.0), ("b", 1002.0)]


def test_first_come_first_served() -> None:
    """Callbacks that are due at the same time run in the order in which they were scheduled."""
    loop = VirtualLoop()  # type: ignore[abstract]
    seen: list[int] = []
    for i in range(5):
        loop.call_at(1.0, seen.append, i)
    loop.run_for(2.0)
    assert (seen, loop.time()) == ([0, 1, 2, 3, 4], 2.0)


def test_waiting_for_nothing_raises() -> None:
    loop = VirtualLoop()  # type: ignore[abstract]
    with pytest.raises(Deadlock):
        loop.run_until_complete(loop.create_future())


def test_a_killed_process_does_nothing_more_and_another_goes_on() -> None:
    """Not even its `finally`s run. Another process finishes its run."""
    begun.clear()
    with World(seed=1, config=QUICK) as world:
        one = world.process("one")
        world.run(one.open())
        run = world.run(one.start(flow.using(id="a")))
        world.loop.run_for(1.0)
        world.kill(one)
        assert begun == [1]
        two = world.process("two")
        world.run(two.open())
        assert world.run(two.run(run.id, flow).result()) == 1
        assert begun == [1, 1, -1]


def test_a_stopped_process_finds_that_it_lost_its_lease() -> None:
    """What it missed happens when it goes on, and then it is another node."""
    with World(seed=2, config=QUICK) as world:
        one, two = world.process("one"), world.process("two")
        world.run(one.open())
        world.run(two.open())
        before = one.node.id
        world.pause(one, 5.0)
        world.loop.run_for(4.0)
        assert one.node.id == before
        world.loop.run_for(3.0)
        assert one.node.id != before


def test_statements_stay_prepared() -> None:
    """A world uses the same statements again and again, and SQLite compiles each of them once."""
    with World(config=QUICK) as world:
        one = world.process("one")
        world.run(one.open())
        world.loop.run_for(30)  # every loop of the node has had its turns
        readers = {world.reader(f"verb {number}") for number in range(10)}
        before = [reader.cache_stats()["misses"] for reader in readers]
        world.loop.run_for(30)
        assert [reader.cache_stats()["misses"] for reader in readers] == before


def test_a_reader_sees_what_is_committed_and_nothing_else() -> None:
    with World() as world:
        count, add = (
            "SELECT count(*) FROM leases",
            "INSERT INTO leases (name, epoch, expires_at) VALUES (?, 1, 1.0)",
        )
        for name, end, seen in (("kept", "COMMIT", 1), ("given up", "ROLLBACK", 1)):
            world.connection.execute("BEGIN IMMEDIATE")
            world.connection.execute(add, (name,))
            world.connection.execute(end)
            assert world.reader("runs").execute(count).get == seen
