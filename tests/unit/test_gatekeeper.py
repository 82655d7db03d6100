"""What an agent counts of its dependencies, when it stops by itself, and what it reports."""

from __future__ import annotations

from typing import Any

from holdfast import Retry, step
from holdfast.agent.assignment import Assignment
from holdfast.agent.gatekeeper import Gatekeeper
from holdfast.breaker import Sign
from holdfast.config import Config
from holdfast.model import Breaker, BreakerState, Hold, HoldScope
from holdfast.store.answers import Observation, ShutGates

CONFIG = Config(breaker_failures_min=4)
CLOSED, OPEN, PROBING = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.PROBING


@step(name="shop.charge", depends="stripe")
async def charge() -> None: ...


@step(name="shop.print")
async def paint() -> None: ...


def attempt(probe: tuple[str, int] | None = None, of: Any = charge) -> Assignment:
    return Assignment(of, "r", 1, "k", 1, None, retry=Retry(), timeout_s=None, issued_at=0.0, probe=probe)


def row(state: BreakerState, **more: Any) -> Breaker:
    values: dict[str, Any] = dict.fromkeys(Breaker.__struct_fields__, 0)
    values |= {"name": "stripe", "state": state, "forced": False, "note": "", "error": None, "allowance": 0}
    return Breaker(**(values | more))


def learn(keeper: Gatekeeper, *breakers: Breaker, holds: tuple[Hold, ...] = (), at: float = 0.0) -> bool:
    return keeper.learn(ShutGates(list(breakers), list(holds)), at)


def fail(keeper: Gatekeeper, times: int, at: float = 0.0) -> list[bool]:
    return [keeper.note(attempt(), Sign.TROUBLE, "ConnectionError: no", at) for _ in range(times)]


def test_without_trouble_nothing_is_counted() -> None:
    """Successes of a dependency that nobody suspects leave no trace."""
    keeper = Gatekeeper(CONFIG)
    assert not keeper.note(attempt(), Sign.WELL, None, 0.0)
    assert (keeper.windows, keeper.take_unreported(), keeper.shut) == ({}, [], False)


def test_enough_trouble_pauses_the_dependency_at_once() -> None:
    """The failure that makes it enough still counts for its step; what fails after it is excused."""
    keeper = Gatekeeper(CONFIG)
    assert not keeper.excuses(attempt())
    assert fail(keeper, 3) == [True, True, True], "others hear of it soon"
    assert not keeper.bars(charge)
    fail(keeper, 1)
    assert keeper.shut
    assert keeper.bars(charge)
    assert not keeper.bars(paint)
    assert keeper.excuses(attempt())
    assert keeper.take_unreported() == [Observation("stripe", 0, 4, "ConnectionError: no")]
    assert keeper.take_unreported() == []


def test_the_stores_word_replaces_the_agents_own() -> None:
    """If the breaker is open in the store, the agent needs no pause of its own. If nobody agreed in time, the pause
    ends, and counting begins anew."""
    keeper = Gatekeeper(CONFIG)
    fail(keeper, 4)
    learn(keeper, row(OPEN))
    assert (keeper.paused, keeper.off, keeper.shut) == ({}, frozenset({"stripe"}), True)
    assert keeper.bars(charge)
    assert learn(keeper)
    assert not keeper.shut
    fail(keeper, 4)
    learn(keeper, at=1.0)
    assert keeper.bars(charge)
    assert learn(keeper, at=6.0)
    assert not keeper.bars(charge)
    fail(keeper, 3, at=6.0)
    assert not keeper.shut


def test_old_trouble_is_forgotten() -> None:
    """A failure now and then is never enough."""
    keeper = Gatekeeper(CONFIG)
    for at in range(0, 200, 5):
        fail(keeper, 1, float(at))
        assert not keeper.shut
    learn(keeper, at=400.0)
    keeper.take_unreported()
    learn(keeper, at=400.0)
    assert keeper.windows == {}


def test_an_agent_for_whom_all_is_well_says_so_of_a_suspect() -> None:
    """Trouble elsewhere makes it count and report its own successes, so that one sick host does not stop all."""
    keeper = Gatekeeper(CONFIG)
    learn(keeper, row(CLOSED, failed=9))
    for _ in range(3):
        keeper.note(attempt(), Sign.WELL, None, 0.1)
    assert keeper.take_unreported() == [Observation("stripe", 3, 0, None)]


def test_few_failures_among_many_successes_are_reported_in_time() -> None:
    """They are not urgent, so the store is not written for every one of them."""
    keeper = Gatekeeper(CONFIG)
    assert fail(keeper, 1) == [True]
    for _ in range(9):
        keeper.note(attempt(), Sign.WELL, None, 0.1)
    assert fail(keeper, 3, at=0.2) == [False] * 3
    assert keeper.take_unreported() == [Observation("stripe", 9, 4, "ConnectionError: no")]


def test_what_all_agents_saw_together_excuses_before_the_leader_has_decided() -> None:
    """If others reported enough failures, the dependency is not stopped here, but a failure spends no attempt of a
    step."""
    keeper = Gatekeeper(CONFIG)
    learn(keeper, row(CLOSED, failed=3))
    assert not keeper.excuses(attempt())
    learn(keeper, row(CLOSED, failed=4))
    assert keeper.excuses(attempt())
    assert not keeper.excuses(attempt(of=paint))
    assert not keeper.bars(charge)
    learn(keeper, row(CLOSED, failed=4, ok=5))
    assert not keeper.excuses(attempt()), "most went well"
    learn(keeper, row(CLOSED, failed=4, forced=True))
    assert not keeper.excuses(attempt()), "an operator keeps it closed"


def test_only_probes_count_for_a_breaker_that_is_not_closed() -> None:
    """An attempt that began before says nothing about the dependency now. Both kinds are excused."""
    keeper = Gatekeeper(CONFIG)
    learn(keeper, row(PROBING, allowance=2))
    assert keeper.probing == {"stripe": 2}
    assert not keeper.note(attempt(), Sign.TROUBLE, "old", 0.0)
    assert keeper.note(attempt(("stripe", 7)), Sign.TROUBLE, "new", 0.0)
    assert keeper.note(attempt(("stripe", 7)), Sign.WELL, None, 0.0)
    assert not keeper.note(attempt(("stripe", 7)), Sign.NOTHING, None, 0.0)
    assert keeper.excuses(attempt())
    assert keeper.take_unreported() == [Observation("stripe", 1, 1, "new", 7)]


def test_a_failed_probe_lets_another_step_try_next() -> None:
    """It waits until after the breaker is probed again, even at the longest wait. An attempt that is no probe does not
    wait."""
    keeper = Gatekeeper(CONFIG)
    learn(keeper, row(PROBING, open_s=5.0))
    assert keeper.probe_delay_s(attempt(("stripe", 7))) == 11.0
    assert keeper.probe_delay_s(attempt()) == 0.0
    learn(keeper, row(PROBING, open_s=30.0))
    assert keeper.probe_delay_s(attempt(("stripe", 7))) == 31.0


def test_what_could_not_be_reported_is_reported_again() -> None:
    """The store could not be reached. Nothing is lost, and nothing is reported twice."""
    keeper = Gatekeeper(CONFIG)
    fail(keeper, 2)
    keeper.note(attempt(("mail", 3)), Sign.WELL, None, 0.0)
    tallies = keeper.take_unreported()
    keeper.restore(tallies)
    fail(keeper, 1)
    assert keeper.take_unreported() == [
        Observation("mail", 1, 0, None, 3),
        Observation("stripe", 0, 3, "ConnectionError: no"),
    ]


def test_a_breaker_kept_closed_is_trusted() -> None:
    """If an operator keeps it closed, there is no pause, no count and no excuse."""
    keeper = Gatekeeper(CONFIG)
    fail(keeper, 4)
    learn(keeper, row(CLOSED, forced=True))
    assert not keeper.shut
    assert fail(keeper, 9) == [False] * 9
    assert (keeper.take_unreported(), keeper.excuses(attempt())) == ([], False)


def test_holds_bar_what_they_cover() -> None:
    """A hold is for a step, a dependency, a workflow, a namespace, or all."""
    keeper = Gatekeeper(CONFIG)
    for scope, value, barred in (
        (HoldScope.STEP, "shop.charge", True),
        (HoldScope.STEP, "shop.print", False),
        (HoldScope.DEPENDENCY, "stripe", True),
        (HoldScope.WORKFLOW, "shop.order", True),
        (HoldScope.WORKFLOW, "shop.other", False),
        (HoldScope.NAMESPACE, "acme", True),
        (HoldScope.NAMESPACE, "default", False),
        (HoldScope.ALL, "", True),
    ):
        assert learn(keeper, holds=(Hold(scope, value, "ada", "", 0.0),))
        assert keeper.bars(charge, "shop.order", "acme") is barred
    assert learn(keeper)
    assert not keeper.shut
