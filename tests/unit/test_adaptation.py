"""How an adaptive limit finds its number. The dependencies are played: nothing waits for real."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import errors, policy
from holdfast.adaptation import LimitChange, LimitLook, LimitWatch, first_number, look_at
from holdfast.agent.loads import Loads, is_overload
from holdfast.model import Ending
from holdfast.store.limits import LimitLoad
from tests.unit.dependencies import (
    CEILING,
    Dependency,
    Ours,
    changing,
    degrading,
    play,
    queueing,
    refusing,
)

ROW = LimitLook(1, "dep", 10, 2, 50, 0.2, 0, 0, 0.0, 10)
BEGUN = LimitWatch(0.0, 10, 0, 0, 0.0, 0.2)


def after(ok: int, failed: int = 0, took_s: float = 0.2, **more: Any) -> LimitLook:
    return ROW._replace(ok=ok, failed=failed, seconds=ok * took_s, **more)


def decided(row: LimitLook, watch: LimitWatch = BEGUN, now: float = 1.0) -> LimitChange | None:
    return look_at(row, watch, now)[1]


@pytest.mark.parametrize(
    ("dependency", "low", "high", "best"),
    [
        (queueing(10), 8, 14, 500),
        (queueing(10, spread=1.0), 8, 17, 500),
        (degrading(10), 6, 13, 500),
        (refusing(10), 6, 13, 500),
        (queueing(3), 2, 6, 150),
        (queueing(1000, spread=1.0), 33, 50, 2500),
    ],
    ids=["waits", "varies", "degrades", "refuses", "waits beyond 3", "bears all"],
)
def test_it_stays_where_the_knee_is(dependency: Dependency, low: int, high: int, best: float) -> None:
    """Whatever a dependency does beyond what it bears, the number stays near it, and calls near the best that there can be,
    of which the calls' own overhead takes a tenth."""
    played = play(Ours(), dependency, 100)
    numbers = played.numbers[40:]
    assert low <= min(numbers) <= max(numbers) <= high
    assert sum(played.ok[40:]) / 60 >= 0.8 * best
    assert sum(played.failed[40:]) <= 0.05 * sum(played.ok[40:])


def test_it_grows_when_the_dependency_bears_more() -> None:
    """From a number near 10 up to one near the ceiling."""
    played = play(Ours(), changing(40, queueing(10), queueing(1000)), 80)
    assert played.numbers[39] <= 14
    assert max(played.numbers[60:]) == CEILING


def test_what_is_slower_for_good_becomes_usual() -> None:
    """Trying fewer shows that the load is not the cause. Rules that compare with the fastest time stay low for ever."""
    played = play(Ours(), changing(40, queueing(1000), queueing(1000, 0.06)), 120)
    assert min(played.numbers[40:60]) < 40
    assert sum(played.numbers[100:]) / 20 > 40


def test_an_outage_ends_at_the_floor_and_is_forgotten() -> None:
    """While all calls fail, the number is at its floor. Afterwards it comes back to the ceiling."""
    played = play(Ours(), changing(10, refusing(0), queueing(1000)), 60)
    assert played.numbers[9] == 1
    assert played.numbers[-1] > 40


def test_it_does_not_grow_while_little_is_used() -> None:
    """Nobody knows what a dependency bears that is hardly asked."""
    played = play(Ours(), queueing(10), 60, wanted=lambda now: 2)
    assert set(played.numbers) == {first_number(CEILING, 1)}


def test_a_new_one_begins_with_a_tenth() -> None:
    """And never below its floor."""
    assert [first_number(50, 1), first_number(3, 1), first_number(51, 1), first_number(50, 9)] == [5, 1, 6, 9]


def test_a_window_needs_attempts() -> None:
    """Ten, and as many as the number. After a minute without them it begins anew."""
    assert decided(after(9)) is None
    assert decided(after(10)) is not None
    assert decided(after(10, most=12), replace(BEGUN, most=12)) is None
    watch, move = look_at(after(3), BEGUN, 61.0)
    assert (watch.ok, watch.since, move) == (3, 61.0, None)
    watch, move = look_at(after(3), replace(BEGUN, usual_s=30.0), 61.0)
    assert (watch.ok, move) == (0, None)


def test_failures_let_it_fall_and_it_stays_below() -> None:
    """A tenth of the attempts is enough, but not one alone. Then the number does not come near that one for a while."""
    watch, move = look_at(after(18, failed=2), BEGUN, 1.0)
    assert move == LimitChange(7, 0.2, "2 of 20 attempts failed")
    assert (watch.failed_at, watch.since) == (10, 1.0 + 0.2 + 1.0)
    assert decided(after(9, failed=1)) == LimitChange(11, 0.2, "attempts took 200 ms, as usual")
    near = replace(BEGUN, most=9, failed_at=10, wary=2)
    watch, move = look_at(after(20, most=9), near, 1.0)
    assert (watch.wary, move) == (1, None)
    watch, move = look_at(after(40, most=9), replace(watch, wary=0), 3.0)
    assert move is not None
    assert move.most == 10


def test_it_says_why_it_fell() -> None:
    """The number is what the dependency bears by Little's law, and a little more."""
    assert decided(after(30, took_s=0.8)) == LimitChange(4, 0.2, "attempts took 800 ms instead of 200 ms")


def test_it_stays_between_floor_and_ceiling() -> None:
    """Whatever follows from a window."""
    assert decided(after(0, failed=20, most=2), replace(BEGUN, most=2)) is None
    row = after(60, most=49, used=49)
    assert decided(row, replace(BEGUN, most=49)) == LimitChange(50, 0.2, "attempts took 200 ms, as usual")
    assert decided(after(60, most=50, used=50), replace(BEGUN, most=50)) is None


def test_another_number_begins_a_window() -> None:
    """If somebody else has changed it, what was counted before says nothing."""
    watch, move = look_at(after(30, most=4), replace(BEGUN, failed_at=9, wary=5), 1.0)
    assert move is None
    assert (watch.most, watch.ok, watch.failed_at) == (4, 30, None)


def test_a_notable_change_of_what_is_usual_is_written() -> None:
    """So that a new leader knows it, even if the number has not moved."""
    full = replace(BEGUN, most=50, usual_s=0.2)
    row = after(60, took_s=0.2, most=50, used=50)._replace(usual_s=None)
    assert decided(row, full) == LimitChange(50, 0.2, None)
    assert decided(row._replace(usual_s=0.19), full) is None


@pytest.mark.parametrize(
    ("error", "ending", "counts"),
    [
        (TimeoutError(), Ending.TIMED_OUT, True),
        (ConnectionError(), Ending.FAILED, True),
        (RuntimeError("503"), Ending.FAILED, True),
        (errors.RetryIn(1.0), Ending.FAILED, True),
        (errors.Stop("no"), Ending.FAILED, False),
        (errors.InvalidInput("no"), Ending.FAILED, False),
        (KeyError("a"), Ending.FAILED, False),
        (RuntimeError(), Ending.LOST, False),
    ],
)
def test_what_counts_as_overload(error: BaseException, ending: Ending, counts: bool) -> None:
    """Timeouts, errors that are tried again, and being asked to come later. Not what is the caller's own fault."""
    assert is_overload(policy.Retry(), error, ending) is counts


def test_what_was_not_reported_is_kept() -> None:
    """If the store could not be reached, the sums are reported the next time."""
    loads = Loads()
    assert not loads
    loads.succeeded((1, 2), 0.5)
    loads.failed((1,))
    reported = loads.take()
    assert reported == [LimitLoad(1, 1, 1, 0.5), LimitLoad(2, 1, 0, 0.5)]
    assert not loads
    loads.succeeded((2,), 0.5)
    loads.restore(reported)
    assert loads.take() == [LimitLoad(1, 1, 1, 0.5), LimitLoad(2, 2, 0, 1.0)]
