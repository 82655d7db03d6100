"""When a breaker opens, is probed and closes. Pure functions decide it from what is known and the time."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast import InvalidInput, Retry, RetryIn, Stop
from holdfast.breaker import BreakerChange, BreakerLook, GiveBack, Sign, decide, read_failure, trips
from holdfast.config import DEFAULT
from holdfast.errors import StepLost, StepTimeout
from holdfast.model import Breaker, BreakerState, Ending

NOW = 1_000_000.0
CLOSED, OPEN, PROBING = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.PROBING


def row(state: BreakerState = CLOSED, **more: Any) -> Breaker:
    values: dict[str, Any] = {
        "name": "stripe",
        "state": state,
        "round": 7,
        "ok": 0,
        "failed": 0,
        "window_at": NOW - 1,
        "told_at": NOW - 0.1,
        "wave": 0,
        "allowance": 0,
        "opened_at": None if state is CLOSED else NOW - 9,
        "open_until": NOW + 1 if state is OPEN else None,
        "open_s": 0.0 if state is CLOSED else 5.0,
        "trips": 0 if state is CLOSED else 1,
        "forced": False,
        "actor": None,
        "note": "",
        "error": None,
    }
    return Breaker(**(values | more))


def probed(wave: int, left: int = 0, *, in_flight: int = 0, waiting: bool = True, **more: Any) -> BreakerLook:
    """Return a breaker that is probing, with `left` attempts of the wave that have not begun."""
    return BreakerLook(row(PROBING, wave=wave, allowance=left, **more), in_flight, waiting)


class Declined(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "ending", "says"),
    [
        (ConnectionError("refused"), Ending.FAILED, Sign.TROUBLE),
        (RuntimeError("500"), Ending.FAILED, Sign.TROUBLE),
        (ValueError("not JSON"), Ending.FAILED, Sign.TROUBLE),
        (StepTimeout("30 s"), Ending.TIMED_OUT, Sign.TROUBLE),
        (Stop("the card is declined"), Ending.FAILED, Sign.WELL),
        (RetryIn(3), Ending.FAILED, Sign.WELL),
        (Declined(), Ending.FAILED, Sign.WELL),
        (TypeError("None has no…"), Ending.FAILED, Sign.NOTHING),
        (KeyError("id"), Ending.FAILED, Sign.NOTHING),
        (InvalidInput("not an int"), Ending.FAILED, Sign.NOTHING),
        (StepLost("killed"), Ending.LOST, Sign.NOTHING),
        (KeyboardInterrupt(), Ending.FAILED, Sign.NOTHING),
    ],
)
def test_what_a_failure_says_of_the_dependency(error: BaseException, ending: Ending, says: Sign) -> None:
    """An error that would be retried is trouble, and so is a timeout. An answer is no trouble, even if it is "no" or
    "later". A bug says nothing."""
    assert read_failure(Retry(never=Declined), error, ending) is says


@given(ok=some.integers(0, 1000), failed=some.integers(0, 1000))
def test_few_failures_or_a_small_share_open_nothing(ok: int, failed: int) -> None:
    """Two things are needed: more failures than chance explains, and half of all attempts."""
    assert trips(ok, failed, DEFAULT) == (failed >= 20 and failed >= ok)


class TestClosed:
    def test_trouble_opens_it(self) -> None:
        """Enough failures within the window open it, once other agents had a moment to report."""
        change = decide(BreakerLook(row(ok=3, failed=25), 0, True), NOW, DEFAULT)
        assert isinstance(change, BreakerChange)
        assert (change.state, change.open_s) == (OPEN, DEFAULT.breaker_open_s)
        assert change.note == "25 of 28 attempts failed within 1 s"

    @pytest.mark.parametrize(
        "more", [{"failed": 19}, {"ok": 26}, {"window_at": NOW - 0.1}, {"window_at": NOW - 60}]
    )
    def test_it_stays_closed(self, more: dict[str, Any]) -> None:
        """The failures are too few, a small share, too recent to judge, or too old."""
        assert decide(BreakerLook(row(**({"ok": 3, "failed": 25} | more)), 0, True), NOW, DEFAULT) is None


class TestOpen:
    def test_it_is_tried_when_its_time_has_come(self) -> None:
        """It is not probed earlier. The first wave is one attempt."""
        assert decide(BreakerLook(row(OPEN), 0, True), NOW, DEFAULT) is None
        change = decide(BreakerLook(row(OPEN, open_until=NOW - 0.01), 0, True), NOW, DEFAULT)
        assert isinstance(change, BreakerChange)
        assert (change.state, change.wave) == (PROBING, 1)

    @pytest.mark.parametrize("state", [OPEN, CLOSED, PROBING])
    def test_what_an_operator_forced_stays(self, state: BreakerState) -> None:
        """It stays however bad the dependency is, and however old the decision."""
        forced = row(state, forced=True, open_until=NOW - 1, ok=0, failed=100, wave=1)
        assert decide(BreakerLook(forced, 0, True), NOW, DEFAULT) is None


class TestProbing:
    def test_a_good_wave_is_followed_by_one_twice_as_large(self) -> None:
        """The waves are 1, 2, 4, 8, as long as something waits."""
        change = decide(probed(8, ok=8), NOW, DEFAULT)
        assert isinstance(change, BreakerChange)
        assert (change.state, change.wave) == (PROBING, 16)

    def test_stragglers_do_not_stop_the_next_wave(self) -> None:
        """It is enough that all have begun and more than half went well."""
        change = decide(probed(8, ok=5, in_flight=3), NOW, DEFAULT)
        assert isinstance(change, BreakerChange)
        assert change.wave == 16
        assert decide(probed(8, ok=4, in_flight=4), NOW, DEFAULT) is None

    def test_a_wave_that_is_not_used_up_ends_it(self) -> None:
        """If nothing waits any more, and what was tried went well, the breaker closes."""
        change = decide(probed(8, 5, ok=3, waiting=False), NOW, DEFAULT)
        assert isinstance(change, BreakerChange)
        assert (change.state, change.note) == (CLOSED, "3 of 3 probes went well")
        assert decide(probed(8, 5, ok=3, waiting=True), NOW, DEFAULT) is None

    @pytest.mark.parametrize(("wave", "failed"), [(1, 1), (2, 1), (4, 2), (64, 32)])
    def test_half_a_wave_failing_opens_it_again_for_twice_as_long(self, wave: int, failed: int) -> None:
        """It opens at once, without waiting for the rest of the wave."""
        change = decide(probed(wave, failed=failed, in_flight=wave - failed, open_s=5.0), NOW, DEFAULT)
        assert isinstance(change, BreakerChange)
        assert (change.state, change.open_s) == (OPEN, 10.0)

    def test_the_wait_has_an_end(self) -> None:
        """It doubles up to a maximum."""
        change = decide(probed(1, failed=1, open_s=29.0), NOW, DEFAULT)
        assert isinstance(change, BreakerChange)
        assert change.open_s == DEFAULT.breaker_open_max_s

    def test_a_single_failure_does_not_stop_a_large_wave(self) -> None:
        """In a large wave a few attempts always fail."""
        assert decide(probed(64, 60, failed=1, in_flight=3), NOW, DEFAULT) is None

    def test_lost_probes_are_given_back(self) -> None:
        """They ended, and nobody has reported them for a while: their agent died, or their run was cancelled."""
        lost = probed(4, 1, ok=1, in_flight=1, told_at=NOW - 2)
        assert decide(lost, NOW, DEFAULT) == GiveBack(1)
        assert decide(probed(4, 1, ok=1, in_flight=1, told_at=NOW - 0.5), NOW, DEFAULT) is None
        assert decide(probed(4, 1, ok=1, in_flight=2, told_at=NOW - 900), NOW, DEFAULT) is None

    def test_what_nobody_needs_any_more_is_closed(self) -> None:
        """It closes after a long time, and never while something waits that cannot begin."""
        idle: dict[str, Any] = {"window_at": NOW - 31, "told_at": NOW - 31}
        change = decide(probed(1, 1, waiting=False, **idle), NOW, DEFAULT)
        assert isinstance(change, BreakerChange)
        assert change.state is CLOSED
        assert decide(probed(1, 1, waiting=True, **idle), NOW, DEFAULT) is None
        assert decide(probed(1, 1, waiting=False), NOW, DEFAULT) is None

    def test_growing_has_an_end(self) -> None:
        """After the largest wave all steps may begin."""
        change = decide(probed(10_000, ok=9_000), NOW, DEFAULT)
        assert isinstance(change, BreakerChange)
        assert change.state is CLOSED


@given(
    wave=some.integers(1, 5000),
    share_taken=some.floats(0, 1),
    share_answered=some.floats(0, 1),
    share_bad=some.floats(0, 1),
    waiting=some.booleans(),
)
def test_a_wave_always_comes_to_an_end(
    wave: int, share_taken: float, share_answered: float, share_bad: float, waiting: bool
) -> None:
    """Once a whole wave has begun, something follows, whatever was answered, failed or lost: a breaker never waits for
    nobody. No wave is more than twice the one before."""
    taken = wave if waiting else max(1, math.ceil(wave * share_taken))
    answered = int(taken * share_answered)
    failed = int(answered * share_bad)
    look = probed(
        wave, wave - taken, ok=answered - failed, failed=failed, waiting=waiting, told_at=NOW - 2, in_flight=0
    )
    change = decide(look, NOW, DEFAULT)
    assert change is not None
    if isinstance(change, GiveBack):
        assert 1 <= change.probes <= taken - answered
    elif change.state is PROBING:
        assert change.wave <= wave * 2
        assert failed < taken / 2
    elif change.state is OPEN:
        assert failed >= answered / 2
