"""Who can go on is woken. The fallback look comes every ten minutes here, so it does not help."""

from __future__ import annotations

import asyncio

from holdfast import Signal, step, workflow
from holdfast.config import Config
from holdfast.model import NewSignal
from holdfast.store.bell import Bell
from holdfast.testing.world import World

POLL_S = 600.0
SOON_S = 20.0
note = Signal("note", str)


@step(timeout=60)
async def work_for(seconds: float) -> None:
    await asyncio.sleep(seconds)


@workflow
async def works(times: int, seconds: float) -> int:
    for _ in range(times):
        await work_for(seconds)
    return times


@workflow
async def naps(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


@workflow
async def listens(times: int) -> list[str]:
    return [await note.wait() for _ in range(times)]


def test_each_timer_of_runs_that_left_memory_fires_in_its_time() -> None:
    """Also the second one, after the first has woken the scheduler."""
    with World(config=Config(poll_s=POLL_S, park_after_s=0.2, lease_s=3600.0)) as world:
        one = world.process("one")
        world.run(one.open())
        runs = [world.run(one.start(naps, seconds)) for seconds in (4.0, 7.0, 9.0)]
        world.loop.run_for(3.0)
        assert one.node.scheduler is not None
        assert not one.node.scheduler.runs, "they have left memory"
        assert [world.run(run.result(timeout=SOON_S)) for run in runs] == [4.0, 7.0, 9.0]
        assert world.loop.now < 9.5


def test_a_step_gets_the_place_that_a_nodes_own_runs_had() -> None:
    """An agent that looked while its own scheduler had taken the only place looks again when it is free."""
    with World(config=Config(poll_s=POLL_S, steps_max=1, lease_s=3600.0)) as world:
        one, two = world.process("one"), world.process("two", roles=("scheduler",))
        world.run(one.open())
        world.run(two.open())
        near = world.run(one.start(works, 5, 0.3))
        world.loop.run_for(0.1)
        far = world.run(two.start(works.using(id="far"), 1, 0.3))
        assert world.run(near.result(timeout=SOON_S)) == 5
        assert world.run(far.result(timeout=SOON_S)) == 1


def test_a_run_begins_when_another_one_has_left_memory() -> None:
    """A scheduler without room lets runs that wait leave memory. Then it has room, and claims at once."""
    with World(config=Config(poll_s=POLL_S, runs_max=1, lease_s=3600.0)) as world:
        one, two = world.process("one"), world.process("two", roles=())
        world.run(one.open())
        world.run(two.open())
        world.run(one.start(listens, 1))
        other = world.run(two.start(works, 1, 0.1))
        assert world.run(other.result(timeout=SOON_S)) == 1


def test_many_signals_are_delivered_though_one_look_gets_few() -> None:
    """A scheduler looks again as soon as it has delivered what it got."""
    with World(config=Config(poll_s=POLL_S, claim_max=2, lease_s=3600.0)) as world:
        one, two = world.process("one"), world.process("two", roles=())
        world.run(one.open())
        world.run(two.open())
        run = world.run(one.start(listens.using(id="w"), 7))
        world.loop.run_for(0.1)
        send = two.store.operators.send_signal
        for i in range(7):
            world.run(send(NewSignal("w", note.name, str(i), f'"{i}"'.encode())), two)
        two.caller.ring(Bell.OUTCOMES)
        assert world.run(run.result(timeout=SOON_S)) == [str(i) for i in range(7)]


def test_agents_hear_of_the_steps_of_a_run_that_waited_to_be_claimed() -> None:
    """Its step was ready before the run was held. When the run was released, no scheduler had room for it."""
    with World(config=Config(poll_s=POLL_S, runs_max=1, park_after_s=POLL_S, lease_s=3600.0)) as world:
        one, two = world.process("one", roles=("scheduler",)), world.process("two", roles=("agent",))
        world.run(one.open())
        held = world.run(one.start(works, 1, 0.1))
        world.run(held.hold())
        other = world.run(one.start(naps, 3.0))
        world.run(two.open())
        world.loop.run_for(0.5)
        world.run(held.release())
        assert world.run(other.result(timeout=SOON_S)) == 3.0
        assert world.run(held.result(timeout=SOON_S)) == 1
