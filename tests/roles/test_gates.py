"""How agents and the leader respect breakers and holds: in one process, on both stores."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest

from holdfast import Holdfast, Retry, Stop, step, workflow
from holdfast.config import Config
from holdfast.errors import RunFailed, WrongState
from holdfast.model import AlertKind, Breaker, BreakerState, Hold, HoldScope, StepState
from holdfast.store.answers import Observation, ShutGates

QUICK = Config(
    poll_s=0.05,
    sweep_s=0.05,
    watch_s=0.05,
    heart=False,
    breaker_failures_min=5,
    breaker_wait_s=0.1,
    breaker_open_s=1.0,
    breaker_open_max_s=1.0,
    probe_lost_s=0.3,
)
PATIENT = Retry(attempts=3, delay=0.01, jitter="none")
called: Counter[str] = Counter()
down: set[str] = set()
answers: list[str] = []
"""What the dependency answered, in order."""


@step(depends="bank", retry=PATIENT)
async def charge(i: int) -> int:
    called["charge"] += 1
    called[f"charge {i}"] += 1
    await asyncio.sleep(0.01)
    if "bank" in down:
        answers.append("no")
        raise ConnectionError("the bank does not answer")
    answers.append("yes")
    return i


@step(depends="bank")
async def hang(i: int) -> int:
    called[f"hang {i}"] += 1
    await asyncio.sleep(600 if "bank" in down else 0)
    return i


@step(depends="bank", retry=PATIENT)
def book(i: int) -> int:
    called["book"] += 1
    if "bank" in down:
        raise ConnectionError("the bank does not answer")
    return i


@step(retry=PATIENT)
async def stamp(i: int) -> int:
    called["stamp"] += 1
    return i


@step(retry=PATIENT)
async def misspelt(i: int) -> int:
    called["misspelt"] += 1
    return i.upper()  # type: ignore[attr-defined, no-any-return]  # the bug that is meant


@step
async def declined(i: int) -> int:
    called["declined"] += 1
    raise Stop("the card is declined")


@workflow
async def pay(i: int) -> int:
    return await charge(i)


@workflow
async def pay_once(i: int) -> int:
    return await charge.using(retry=1)(i)


@workflow
async def pay_twice(i: int) -> int:
    return await charge.using(retry=Retry(attempts=2, delay=0.2, jitter="none"))(i)


@workflow
async def pay_in_time(i: int) -> int:
    return await hang.using(retry=Retry(attempts=3, on=ConnectionError), timeout=0.05)(i)


@workflow
async def pay_and_book(i: int) -> int:
    return await charge(i) + await book(i)


@workflow
async def post(i: int) -> int:
    return await stamp(i)


@workflow
async def parent(i: int) -> int:
    return await post(i)


@workflow
async def many(n: int) -> int:
    return len(await misspelt.map(range(n), tolerate=n))


@workflow
async def refused(n: int) -> int:
    return len(await declined.map(range(n), tolerate=n))


@pytest.fixture(autouse=True)
def healthy() -> None:
    called.clear()
    down.clear()
    answers.clear()


@pytest.fixture
async def hf(store_url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(store_url, config=QUICK) as found:
        yield found


async def eventually(true: Callable[[], Awaitable[object]], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not await true():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


async def breaker(hf: Holdfast, name: str = "bank") -> Breaker | None:
    return next((row for row in await hf.gates.breakers() if row.name == name), None)


async def state(hf: Holdfast, name: str = "bank") -> BreakerState | None:
    row = await breaker(hf, name)
    return None if row is None else row.state


class TestBreakers:
    async def test_an_outage_spends_few_attempts_and_ends_by_itself(self, hf: Holdfast) -> None:
        """All runs succeed, although each step has only three attempts and the outage is longer than any back-off. What
        failed after the breaker opened is excused, steps of both kinds share the breaker, and it closes."""
        down.add("bank")
        runs = [await hf.start(pay_and_book, i) for i in range(60)]

        async def reopened() -> bool:
            row = await breaker(hf)
            return row is not None and row.trips >= 2

        await eventually(reopened)
        assert called["charge"] <= 60 + 5 * 2
        assert called["book"] == 0
        down.clear()
        assert sorted([await run.result(60) for run in runs]) == [2 * i for i in range(60)]

        async def is_closed() -> bool:
            return await state(hf) is BreakerState.CLOSED

        await eventually(is_closed)
        steps = [found for run in runs for found in await run.steps()]
        spent = sum(one.attempt - one.excused - one.losses for one in steps)
        # On a machine so slow that the leader takes longer than the agent's own pause, it trips more than once.
        assert spent - len(steps) <= QUICK.breaker_failures_min * 3
        assert not [name for name, _, rows in await hf.store.reads.doctor() if rows]

    async def test_what_others_reported_of_an_outage_excuses_before_it_is_decided(
        self, store_url: str
    ) -> None:
        """Half of a fleet has failed already. A step that fails here, too, waits with the others and spends no
        attempt."""
        slow_to_decide = msgspec.structs.replace(QUICK, breaker_wait_s=1.0)
        async with Holdfast(store_url, config=slow_to_decide) as hf:
            down.add("bank")
            await hf.store.gates.observe(
                [Observation("bank", 0, 5, "ConnectionError")], slow_to_decide.breaker_window_s
            )
            agent = hf.node.agent
            assert agent is not None

            async def heard() -> bool:
                return "bank" in agent.gates.windows

            await eventually(heard)
            run = await hf.start(pay_twice, 7)

            async def opened() -> bool:
                return await state(hf) is BreakerState.OPEN

            await eventually(opened)
            down.clear()
            assert await run.result(60) == 7
            (charged,) = await run.steps()
            assert charged.excused >= 1
            assert charged.attempt == charged.excused + 1

    async def test_what_has_a_single_attempt_is_executed_once_as_a_probe_too(self, hf: Holdfast) -> None:
        """Other steps opened the breaker. A step that is not to be retried becomes the probe, fails, and is not
        executed again. Steps that may be retried wait for the end of the outage."""
        down.add("bank")
        patient = [await hf.start(pay, i) for i in range(20)]

        async def opened() -> bool:
            return await state(hf) is BreakerState.OPEN

        await eventually(opened)
        once = [await hf.start(pay_once.using(priority=9), 100 + i) for i in range(3)]
        ends = [asyncio.create_task(run.result(60)) for run in once]

        async def one_failed() -> bool:
            return any(end.done() for end in ends)

        await eventually(one_failed)
        down.clear()
        found = await asyncio.gather(*ends, return_exceptions=True)
        failed = [one for one in found if isinstance(one, RunFailed)]
        assert failed, "it was the probe"
        for i in range(3):
            assert called[f"charge {100 + i}"] == 1
        for run in patient:
            await run.result(60)

    async def test_what_is_not_retried_after_a_timeout_is_not_excused_one(self, hf: Holdfast) -> None:
        """The policy retries only a ConnectionError: a probe that times out has failed."""
        down.add("bank")
        others = [await hf.start(pay, i) for i in range(20)]

        async def opened() -> bool:
            return await state(hf) is BreakerState.OPEN

        await eventually(opened)
        run = await hf.start(pay_in_time.using(priority=9), 7)
        with pytest.raises(RunFailed):
            await run.result(60)
        assert called["hang 7"] == 1
        down.clear()
        for other in others:
            await other.result(60)

    async def test_people_get_one_alert_which_is_cleared_when_it_is_over(self, hf: Holdfast) -> None:
        """There is one alert while the breaker is not closed, with the reason. It is cleared when the breaker closes.
        The journal has every act."""
        down.add("bank")
        runs = [await hf.start(pay, i) for i in range(20)]

        async def is_raised() -> bool:
            return any(alert.kind == AlertKind.BREAKER_OPEN for alert in await hf.store.alerts.open_alerts(9))

        await eventually(is_raised)
        down.clear()
        for run in runs:
            await run.result(60)

        async def over() -> bool:
            return not await is_raised()

        await eventually(over)
        (alert,) = [one for one in await hf.store.alerts.alerts() if one.kind == AlertKind.BREAKER_OPEN]
        assert alert.cleared_at is not None
        assert "bank is in trouble" in alert.message
        assert "ConnectionError: the bank does not answer" in alert.message
        verbs = [entry.verb for entry in reversed(await hf.store.reads.journal(None))]
        assert verbs[0] == "breaker open"
        assert verbs[-1] == "breaker closed"
        assert "breaker probing" in verbs

    async def test_why_names_the_breaker(self, hf: Holdfast) -> None:
        """It says until when, after what, and that nothing is spent."""
        await hf.gates.open("bank", "they move house")
        run = await hf.start(pay, 1)

        async def waits() -> bool:
            return "was opened by" in await run.why()

        await eventually(waits)
        assert (
            "(they move house); it stays open until `holdfast breakers reset bank` lets one step try it"
            in await run.why()
        )
        assert called["charge"] == 0
        await hf.gates.reset("bank")
        assert await run.result(60) == 1

    async def test_bugs_and_refusals_open_nothing(self, hf: Holdfast) -> None:
        """Wrong code fails at once, whenever it is tried; a dependency that refuses has answered."""
        assert await (await hf.start(many, 40)).result(60) == 40
        assert await (await hf.start(refused, 40)).result(60) == 40
        assert called == {"misspelt": 120, "declined": 40}
        assert await hf.gates.breakers() == []

    async def test_closed_by_hand_it_stays_closed(self, hf: Holdfast) -> None:
        """Failures are failures again: the runs spend their attempts and fail."""
        await hf.gates.close("bank", "let them fail")
        down.add("bank")
        runs = [await hf.start(pay, i) for i in range(20)]
        for run in runs:
            with pytest.raises(RunFailed):
                await run.result(60)
        assert called["charge"] == 60
        row = await breaker(hf)
        assert row is not None
        assert (row.state, row.forced, row.failed) == (BreakerState.CLOSED, True, 0)

    async def test_without_a_leader_an_agent_pauses_and_goes_on(self, store_url: str) -> None:
        """There is no one to decide. The agent pauses by itself for a while, and the runs end all the same."""
        async with Holdfast(store_url, config=QUICK, roles=["scheduler", "agent"]) as alone:
            down.add("bank")
            runs = [await alone.start(pay, i) for i in range(30)]

            async def paused() -> bool:
                agent = alone.node.agent
                assert agent is not None
                return "bank" in agent.gates.paused

            await eventually(paused)
            assert await state(alone) in {None, BreakerState.CLOSED}
            down.clear()
            assert sorted([await run.result(60) for run in runs]) == list(range(30))

    async def test_nothing_is_written_in_good_times(self, hf: Holdfast) -> None:
        """There is no row for a dependency that never failed. A few failures leave only a tally."""
        await asyncio.gather(*[(await hf.start(pay, i)).result(60) for i in range(20)])
        assert await hf.gates.breakers() == []
        assert (await hf.gates.holds(), await hf.store.reads.journal(None)) == ([], [])


SCOPES: list[dict[str, object]] = [
    {"workflow": "tests.roles.test_gates.post"},
    {"workflow": "post"},
    {"step": "stamp"},
    {"dependency": "tests.roles.test_gates.stamp"},
    {"namespace": "default"},
    {"everything": True},
]


class TestHolds:
    @pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: next(iter(scope)))
    async def test_a_hold_stops_steps_and_a_release_lets_them_begin(
        self, hf: Holdfast, scope: dict[str, object]
    ) -> None:
        """The run decides, and its step is issued, ready and not begun. `why` says who holds it. Once it is released,
        it begins."""
        placed = await hf.gates.hold(**scope, note="stocktaking")  # type: ignore[arg-type]
        assert (placed.new, placed.known) == (True, True)
        agent = hf.node.agent
        assert agent is not None

        async def known() -> bool:
            return agent.gates.shut

        await eventually(known)
        run = await hf.start(post, 3)

        async def issued() -> bool:
            return len(await run.steps()) == 1

        await eventually(issued)
        await asyncio.sleep(QUICK.poll_s * 4)  # several polls in which it could begin
        assert ((await run.steps())[0].state, called["stamp"]) == (StepState.READY, 0)
        assert "has been held by" in await run.why()
        assert "(stocktaking); `holdfast release --" in await run.why()
        await hf.gates.release(**scope)  # type: ignore[arg-type]
        assert await run.result(60) == 3

    @pytest.mark.parametrize("scope", [{"workflow": "pay"}, {"dependency": "bank"}])
    async def test_what_is_not_covered_goes_on(self, hf: Holdfast, scope: dict[str, str]) -> None:
        """Other workflows and dependencies go on. For other namespaces see test_namespaces.py."""
        await hf.gates.hold(**scope)  # type: ignore[arg-type]
        assert await (await hf.start(post, 1)).result(60) == 1

    @pytest.mark.parametrize(
        ("scope", "value"),
        [(HoldScope.WORKFLOW, "tests.roles.test_gates.post"), (HoldScope.NAMESPACE, "default")],
    )
    async def test_a_hold_that_is_heard_of_while_a_hand_over_is_committed_keeps_it(
        self, store_url: str, scope: HoldScope, value: str
    ) -> None:
        """The step already had its place in the node. It is handed back, and not begun."""
        async with Holdfast(store_url, config=Config(poll_s=60.0)) as hf:
            agent = hf.node.agent
            assert agent is not None
            await hf.store.gates.add_hold(
                scope, value, "somebody", ""
            )  # without a bell, so that the agent does not know
            starting = asyncio.create_task(hf.start(post, 3))
            await asyncio.sleep(0)  # the place is taken, nothing is committed
            agent.gates.learn(
                ShutGates([], [Hold(scope, value, "somebody", "", 0.0)]), hf.environment.monotonic()
            )
            run = await starting

            async def handed_back() -> bool:
                (found,) = await run.steps()
                return (found.state, found.attempt) == (StepState.READY, 1)

            await eventually(handed_back)
            assert called["stamp"] == 0

    async def test_children_belong_to_their_parents_namespace(self, hf: Holdfast) -> None:
        """A hold on the namespace covers them, too."""
        await hf.gates.hold(namespace="default")
        run = await hf.start(parent.using(id="p"), 1)

        async def asked() -> bool:
            return bool(await hf.store.reads.children("p"))

        await eventually(asked)
        (child,) = await hf.store.reads.children("p")
        assert child.namespace == "default"
        await hf.gates.release(namespace="default")
        assert await run.result(60) == 1

    async def test_holds_add_up(self, hf: Holdfast) -> None:
        """A step begins when nothing holds it any more."""
        await hf.gates.hold(step="stamp")
        await hf.gates.hold(namespace="default")
        again = await hf.gates.hold(namespace="default", note="me too")
        assert not again.new
        run = await hf.start(post, 1)
        await hf.gates.release(step="stamp")
        await asyncio.sleep(QUICK.poll_s * 4)  # several polls in which it could begin
        assert called["stamp"] == 0
        await hf.gates.release(namespace="default")
        assert await run.result(60) == 1
        with pytest.raises(WrongState, match="there is no hold on the namespace 'default'"):
            await hf.gates.release(namespace="default")
