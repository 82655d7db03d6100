"""Moments that a drawn seed reaches once in a thousand or never, made on purpose in a simulated world."""

from __future__ import annotations

import asyncio
import contextlib

from holdfast import Retry, Signal, continue_as_new, here, step, workflow
from holdfast.config import Config
from holdfast.errors import StoreUnreachable
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


class Calls:
    """The attempts of `cling` that have begun, and what ends the first one."""

    begun: list[int] = []  # noqa: RUF012
    let_go = False


@step(timeout=1.0, retry=Retry(attempts=4, delay=0.0))
async def cling() -> int:
    """Go on when the first attempt is cancelled, as code does that catches too much."""
    Calls.begun.append(here.attempt)
    if here.attempt > 1:
        await asyncio.sleep(0.9)
        return here.attempt
    while not Calls.let_go:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.1)
    return here.attempt


@workflow
async def clinging() -> int:
    return await cling()


def test_an_attempt_that_clings_to_its_agent_reports_nothing_and_leaves_the_next_one_alone() -> None:
    """The leader ends an attempt that does not end by itself, and the same agent claims the step again. What the first
    attempt still returns is reported to nobody, and the agent keeps the attempt that it has now."""
    Calls.begun, Calls.let_go = [], False
    late = Late()
    config = Config(lease_s=1.2, renew_s=0.3, timeout_grace_s=0.2, sweep_s=0.1, beat_s=60.0)
    with World(faults=late, config=config) as world:
        one = world.process("one")
        world.run(one.open())
        late.next_answer(one, "lost_steps")  # so that it claims before it hears what it has lost
        run = world.run(one.start(clinging.using(id="c")))
        world.loop.run_for(0.5)
        agent = one.node.agent
        assert agent is not None
        (first,) = agent.assignments.values()
        while len(Calls.begun) < 2:
            world.loop.run_for(0.01)
        assert first.lost, "the agent reports nothing about it"
        Calls.let_go = True
        world.loop.run_for(0.8)  # the node has reconciled what it has
        assert world.run(run.result(timeout=60)) == 2
        assert Calls.begun == [1, 2]
        endings = [row[0] for row in world.connection.execute("SELECT ending FROM attempts").fetchall()]
        assert endings == ["timed out"], "the late report of the first attempt did not even reach the store"


@workflow
async def the_first_of_two() -> str:
    naps = [asyncio.ensure_future(asyncio.sleep(seconds)) for seconds in (60.0, 3.0)]
    _, left = await asyncio.wait(naps, return_when=asyncio.FIRST_COMPLETED)
    for nap in left:
        nap.cancel()
    return "slept"


def test_a_parked_run_is_woken_by_its_first_timer() -> None:
    """A run with two timers left memory. Its node looks when the first one is due, and not at its next poll."""
    with World(config=Config(park_after_s=0.2, poll_s=1000.0, lease_s=60.0)) as world:
        one = world.process("one")
        world.run(one.open())
        run = world.run(one.start(the_first_of_two.using(id="t")))
        world.loop.run_for(2.5)
        scheduler = one.node.scheduler
        assert scheduler is not None
        assert not scheduler.runs, "it has left memory"
        assert world.run(run.result(timeout=60)) == "slept"
        assert world.loop.now < 4.0


class Refusing(Faults):
    """Loses the next call of one kind."""

    verb = ""

    async def reach(self, process: Process, verb: str, writes: bool) -> None:
        if verb == self.verb:
            self.verb = ""
            raise StoreUnreachable("the store is away")


@step(depends="moments.shop", retry=Retry(attempts=2, delay=0.05, jitter="none"))
async def order() -> None:
    if here.attempt == 1:
        raise ConnectionError("the shop is closed")


@workflow
async def ordering() -> str:
    await order()
    return "ordered"


def test_what_an_agent_saw_of_a_dependency_is_reported_when_the_store_is_back() -> None:
    """The call with which an agent reports failed attempts is lost. It reports them with the next one."""
    refusing = Refusing()
    refusing.verb = "observe"
    with World(faults=refusing, config=Config(lease_s=60.0, poll_s=1.0)) as world:
        one = world.process("one")
        world.run(one.open())
        runs = [world.run(one.start(ordering.using(id=f"o{i}"))) for i in range(3)]
        for run in runs:
            world.run(run.result(timeout=60))
        world.loop.run_for(10.0)
        assert not refusing.verb, "a call was lost"
        (counts,) = world.connection.execute("SELECT failed, ok FROM breakers").fetchall()
        assert counts[0] == 3, counts
