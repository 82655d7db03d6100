"""Moments that a drawn seed reaches once in a thousand or never, made on purpose in a simulated world."""

from __future__ import annotations

import asyncio

from holdfast import Signal, continue_as_new, step, workflow
from holdfast.config import Config
from holdfast.model import NewSignal
from holdfast.testing.world import Faults, Process, World

go = Signal("go", str)
LATE_S = 2.0


class At:
    """How many executions of `occupy` there are now, and how many there were at most."""

    now = 0
    most = 0


@step(timeout=60)
async def occupy(seconds: float) -> None:
    At.now += 1
    At.most = max(At.most, At.now)
    try:
        await asyncio.sleep(seconds)
    finally:
        At.now -= 1


@workflow
async def occupied(seconds: float) -> str:
    await occupy(seconds)
    return "done"


@workflow
async def waiting() -> str:
    return await go.wait() + await go.wait()


@workflow
async def in_turn(seen: list[str]) -> list[str]:
    """Take one signal in each generation."""
    seen = [*seen, await go.wait()]
    if len(seen) < 3:
        await occupy(1.0)
        continue_as_new(seen)
    return seen


class Late(Faults):
    """Delays the next answer to one kind of call, for one process."""

    def __init__(self) -> None:
        self.process, self.verb = "", ""
        self.held = False

    def next_answer(self, process: Process, verb: str) -> None:
        self.process, self.verb, self.held = process.name, verb, False

    async def answer(self, process: Process, verb: str, writes: bool) -> None:
        if (process.name, verb) == (self.process, self.verb):
            self.verb, self.held = "", True
            await process.environment.sleep(LATE_S)


def test_an_agent_without_a_free_place_hands_back_a_step_that_arrives() -> None:
    """While the answer to a claim is on its way, the scheduler of the same node may take the last place. The step that
    was claimed does not begin then, and begins when there is a place again."""
    At.now = At.most = 0
    late = Late()
    with World(faults=late, config=Config(steps_max=1, lease_s=60.0)) as world:
        one, two = world.process("one"), world.process("two", roles=("scheduler",))
        world.run(one.open())
        world.run(two.open())
        late.next_answer(one, "claim_steps")
        far = world.run(two.start(occupied.using(id="far"), 1.0))
        world.loop.run_for(LATE_S / 4)
        assert late.held, "the agent has claimed the step, and has not got the answer"
        near = world.run(one.start(occupied.using(id="near"), 3.0))
        world.loop.run_for(LATE_S / 4)
        assert At.now == 1, "the step of its own run has the place"
        assert world.run(near.result()) == world.run(far.result()) == "done"
        assert At.most == 1


def test_a_run_that_was_parked_and_claimed_again_stays_in_memory() -> None:
    """A run leaves memory, and is claimed again by the same node before that node hears that the parking was committed.
    The late answer is about the run as it was, and does not remove the one that is there now."""
    late = Late()
    with World(faults=late, config=Config(park_after_s=0.2, lease_s=600.0)) as world:
        one, two = world.process("one"), world.process("two", roles=())
        world.run(one.open())
        world.run(two.open())
        run = world.run(one.start(waiting.using(id="w")))
        late.next_answer(one, "commit")
        world.loop.run_for(1.5)
        assert late.held, "the run was parked, and its node has not got the answer"
        scheduler = one.node.scheduler
        assert scheduler is not None
        parked = scheduler.runs["w"]
        send = two.store.operators.send_signal
        world.run(send(NewSignal("w", go.name, "first", b'"on"')), two)
        world.loop.run_for(1.0)  # longer than a poll
        assert scheduler.runs["w"] is not parked, "it was claimed again"
        world.loop.run_for(LATE_S)
        world.run(send(NewSignal("w", go.name, "second", b'"wards"')), two)
        assert world.run(run.result(timeout=20)) == "onwards"


def test_a_run_that_continues_as_new_gets_its_signals_in_their_order() -> None:
    """A signal that the code has not waited for is delivered again to the next generation. What a node asked for before
    that, and hears of later, does not have it: so it must not be delivered before it."""
    late = Late()
    with World(faults=late, config=Config(lease_s=600.0, poll_s=0.1)) as world:
        one, two = world.process("one"), world.process("two", roles=())
        world.run(one.open())
        world.run(two.open())
        run = world.run(one.start(in_turn.using(id="w"), []))
        send = two.store.operators.send_signal
        for text in ("first", "second"):
            world.run(send(NewSignal("w", go.name, text, f'"{text}"'.encode())), two)
        world.loop.run_for(0.5)
        late.next_answer(one, "undelivered")
        world.run(send(NewSignal("w", go.name, "third", b'"third"')), two)
        world.loop.run_for(LATE_S / 4)
        assert late.held, "the node has asked for the third signal, and has not got the answer"
        assert world.run(run.result(timeout=20)) == ["first", "second", "third"]
