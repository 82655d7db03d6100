"""Retry rules: pure decisions about failed attempts."""

import copy
import pickle
import random
from collections import Counter
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Retry, RetryIn, Stop
from holdfast.config import Config
from holdfast.errors import DefinitionError, InvalidInput, StepLost, StepTimeout
from holdfast.model import Ending, Failure, spent
from holdfast.policy import (
    DEFAULT_RETRY,
    GiveUp,
    RetryAfter,
    Verdict,
    WaitForPerson,
    after_loss,
    backoff_s,
    classify,
    decide,
    fingerprint,
    policy_of,
)


class DeclinedError(ConnectionError):
    """An author's own exception."""


class Counts(msgspec.Struct):
    """The counters in a step's row."""

    attempt: int = 1
    losses: int = 0
    excused: int = 0
    timeouts: int = 0
    throttled: int = 0


def verdict(
    policy: Retry, error: BaseException, *, spent: int = 1, elapsed_s: float = 0.0, asked: int = 0
) -> Verdict:
    """Return what is decided after an exception of the step's own."""
    step = Counts(attempt=spent + asked, throttled=asked)
    failure = classify(Ending.FAILED, error)
    return decide(policy, failure, step, error=error, elapsed_s=elapsed_s, random=random.Random(1))


def after(
    policy: Retry, failure: Failure, step: Counts, config: Config | None = None, *, outage: bool = False
) -> Verdict:
    errors = {
        Failure.TIMEOUT: StepTimeout("late"),
        Failure.LOST: StepLost("gone"),
        Failure.THROTTLED: RetryIn(1),
    }
    error = errors.get(failure, ValueError("x"))
    dice = random.Random(1)
    config = config or Config()
    return decide(
        policy, failure, step, error=error, elapsed_s=0.0, random=dice, config=config, outage=outage
    )


def test_the_default_tries_three_times_within_seconds() -> None:
    """Two retries with growing waits, then the end."""
    first, second = (verdict(DEFAULT_RETRY, ValueError("x"), spent=n) for n in (1, 2))
    assert isinstance(first, RetryAfter)
    assert isinstance(second, RetryAfter)
    assert 0 <= first.after_s <= 1
    assert 0 <= second.after_s <= 2
    assert verdict(DEFAULT_RETRY, ValueError("x"), spent=3) == GiveUp("attempt 3 of 3 failed")


def test_stop_and_invalid_values_end_at_once() -> None:
    """A retry cannot help them."""
    for error in (Stop("no"), InvalidInput("charge() result: expected `int`, got `str`")):
        assert isinstance(verdict(Retry(attempts=99), error), GiveUp)


def test_on_and_never_match_base_classes_by_name() -> None:
    """A policy is data: classes are kept by name, and an exception matches by any of its bases."""
    assert Retry(on=ConnectionError).encode() == '{"on":["builtins.ConnectionError"]}'
    assert isinstance(verdict(Retry(on=ConnectionError), DeclinedError()), RetryAfter)
    assert verdict(Retry(on=ConnectionError), ValueError()) == GiveUp("the policy does not retry ValueError")
    assert isinstance(verdict(Retry(on=OSError, never=(DeclinedError, KeyError)), DeclinedError()), GiveUp)
    assert isinstance(verdict(Retry(never=DeclinedError), ConnectionError()), RetryAfter)
    recorded = Retry.decode('{"on":["tests.unit.test_policy.DeclinedError"]}')
    assert isinstance(verdict(recorded, ValueError()), GiveUp)
    assert isinstance(verdict(recorded, DeclinedError()), RetryAfter)


def test_retry_in_spends_nothing_and_is_bounded() -> None:
    """A server's Retry-After is followed exactly, but not for ever and not in a busy loop."""
    policy = Retry(attempts=2)
    assert verdict(policy, RetryIn(60), spent=99) == RetryAfter(60, Failure.THROTTLED)
    assert verdict(policy, RetryIn(0)) == RetryAfter(0.1, Failure.THROTTLED)
    assert verdict(policy, RetryIn(float("nan"))) == RetryAfter(0.1, Failure.THROTTLED)
    assert isinstance(verdict(policy, RetryIn(1), asked=40), GiveUp)
    assert isinstance(verdict(policy, RetryIn(1), elapsed_s=86_400), GiveUp)
    assert isinstance(verdict(Retry(total=100), RetryIn(60), elapsed_s=50), GiveUp)
    assert isinstance(verdict(Retry(total=1e9), RetryIn(60), elapsed_s=1e6), RetryAfter)


def test_total_bounds_the_time_of_the_next_attempt() -> None:
    """If the next attempt would begin too late, the step gives up."""
    policy = Retry(attempts=9, delay=10, jitter="none", total=30)
    assert verdict(policy, ValueError(), elapsed_s=20) == RetryAfter(10)
    assert isinstance(verdict(policy, ValueError(), elapsed_s=20.1), GiveUp)


# --- classes ------------------------------------------------------------------------------------------------------


def test_attempts_are_classed_by_how_they_ended() -> None:
    """What the step raised is its own failure, even if it is a TimeoutError. A lost process and a timeout have classes
    of their own."""
    assert classify(Ending.FAILED, TimeoutError()) is Failure.APPLICATION
    assert classify(Ending.FAILED, StepLost("raised by the step")) is Failure.APPLICATION
    assert classify(Ending.FAILED, RetryIn(1)) is Failure.THROTTLED
    assert classify(Ending.TIMED_OUT, StepTimeout("")) is Failure.TIMEOUT
    assert classify(Ending.LOST, StepLost("")) is Failure.LOST


def test_a_first_loss_costs_no_time_and_the_next_ones_wait() -> None:
    """Most deaths are not the step's doing; one that is must not kill a fleet in a second."""
    config = Config(losses_max=9, loss_back_off_s=1.0, loss_back_off_max_s=5.0)
    waits = [after_loss(Retry(), losses, config) for losses in range(6)]
    assert waits == [RetryAfter(wait, Failure.LOST) for wait in (0.0, 1.0, 2.0, 4.0, 5.0, 5.0)]


def test_a_step_that_is_lost_too_often_is_poison() -> None:
    """It waits for a person, unless its policy says that it fails; the policy's own budget comes first."""
    assert isinstance(after_loss(Retry(), 2), RetryAfter)
    poison = after_loss(Retry(), 3)
    assert poison == WaitForPerson("its agent was lost 4 times, 3 are allowed", Failure.POISON)
    assert isinstance(after_loss(Retry(losses=0), 0), WaitForPerson)
    assert isinstance(after_loss(Retry(losses=9), 8), RetryAfter)
    assert isinstance(after_loss(Retry(quarantine=False), 3), GiveUp)
    assert isinstance(after_loss(Retry(on=ConnectionError), 0), RetryAfter)


def test_timeouts_have_a_budget_of_their_own() -> None:
    """There may be as many timeouts as attempts, whatever the attempts were spent on, and none if `on` and `never`
    would not retry a TimeoutError. A number that is given counts alone."""
    busy = Counts(attempt=5, timeouts=2)  # three of the step's own errors would have been the end
    assert isinstance(after(Retry(attempts=4), Failure.TIMEOUT, busy), RetryAfter)
    assert isinstance(after(Retry(attempts=3), Failure.TIMEOUT, busy), GiveUp)
    assert isinstance(after(Retry(on=ConnectionError), Failure.TIMEOUT, Counts()), GiveUp)
    assert isinstance(after(Retry(never=TimeoutError), Failure.TIMEOUT, Counts()), GiveUp)
    assert isinstance(after(Retry(on=OSError), Failure.TIMEOUT, Counts()), RetryAfter)
    assert isinstance(after(Retry(on=ConnectionError, timeouts=2), Failure.TIMEOUT, Counts()), RetryAfter)
    assert isinstance(after(Retry(attempts=1, timeouts=3), Failure.TIMEOUT, Counts(3, timeouts=2)), GiveUp)


def test_throttles_have_a_budget_of_their_own() -> None:
    """There are 20 for each attempt, or as many as the policy says."""
    assert isinstance(after(Retry(throttles=2), Failure.THROTTLED, Counts(2, throttled=1)), RetryAfter)
    assert isinstance(after(Retry(throttles=2), Failure.THROTTLED, Counts(3, throttled=2)), GiveUp)
    assert isinstance(after(Retry(throttles=0), Failure.THROTTLED, Counts()), GiveUp)


@pytest.mark.parametrize("failure", [Failure.APPLICATION, Failure.TIMEOUT, Failure.THROTTLED])
def test_quarantine_instead_of_failing_is_opted_into(failure: Failure) -> None:
    """With `quarantine=True` the step waits for a person, whichever budget is spent. An error that no retry can help
    fails as always."""
    policy = Retry(attempts=1, throttles=0)
    assert isinstance(after(policy, failure, Counts()), GiveUp)
    asked = msgspec.structs.replace(policy, quarantine=True)
    found = after(asked, failure, Counts())
    assert isinstance(found, WaitForPerson)
    assert found.failure is failure
    assert isinstance(verdict(asked, Stop("no")), GiveUp)
    assert isinstance(verdict(Retry(on=ConnectionError, quarantine=True), ValueError()), GiveUp)


def test_what_a_supervisor_must_know_stands_beside_the_step() -> None:
    """A Supervisor has none of the author's code. So budgets that the row does not show are recorded with the step, and
    nothing else."""
    assert Retry(attempts=7, delay=9).for_supervisor(timed=True) is None
    assert Retry(on=ConnectionError).for_supervisor(timed=False) is None
    for policy in (Retry(losses=1), Retry(quarantine=False), Retry(on=ConnectionError), Retry(timeouts=7)):
        raw = policy.for_supervisor(timed=True)
        assert raw is not None
        assert policy_of(raw, policy.attempts) == policy
    assert policy_of(None, 7) == Retry(attempts=7)


ENDINGS = st.sampled_from([Failure.APPLICATION, Failure.TIMEOUT, Failure.LOST, Failure.THROTTLED])
POLICIES = st.builds(
    Retry,
    attempts=st.integers(1, 6),
    timeouts=st.none() | st.integers(1, 6),
    losses=st.none() | st.integers(0, 6),
    throttles=st.none() | st.integers(0, 6),
    quarantine=st.none() | st.booleans(),
    on=st.sampled_from([(), ValueError, OSError]),
)


def allowed(policy: Retry, config: Config) -> dict[Failure, int]:
    """Return how many attempts of each class there may be, including the last one."""
    return {
        Failure.APPLICATION: policy.attempts if not policy.on or "ValueError" in str(policy.on) else 1,
        Failure.TIMEOUT: policy.timeouts_max,
        Failure.LOST: (config.losses_max if policy.losses is None else policy.losses) + 1,
        Failure.THROTTLED: policy.throttles_max + 1,
    }


class World:
    """A step as an agent and its store see it, and a ledger outside that counts executions."""

    def __init__(self, policy: Retry, config: Config) -> None:
        self.policy, self.config = policy, config
        self.row, self.executions, self.ended = Counts(attempt=0), 0, False

    def execute(self, failure: Failure, *, outage: bool) -> None:
        self.row.attempt += 1
        self.executions += 1
        found = after(self.policy, failure, self.row, self.config, outage=outage)
        if not isinstance(found, RetryAfter):
            self.ended = True
        elif found.excused:
            assert outage
            self.row.excused += 1
        else:
            self.row.losses += failure is Failure.LOST
            self.row.timeouts += failure is Failure.TIMEOUT
            self.row.throttled += failure is Failure.THROTTLED


@given(POLICIES, st.lists(st.tuples(ENDINGS, st.booleans()), max_size=80), st.none() | st.integers(0, 9))
def test_a_step_is_never_executed_more_often_than_its_budgets_allow(
    policy: Retry, history: list[tuple[Failure, bool]], outages: int | None
) -> None:
    """Executions stay within the sum of the budgets, whatever fails in whatever order, in an outage or not."""
    policy = msgspec.structs.replace(policy, outages=outages)
    world = World(policy, Config())
    for failure, outage in history:
        if world.ended:
            break
        world.execute(failure, outage=outage)
    limits = allowed(policy, world.config)
    most = sum(limits.values()) - len(limits) + 1 + policy.outages_max
    assert world.executions <= most
    assert world.row.excused <= policy.outages_max


@given(
    st.lists(st.booleans(), min_size=1, max_size=20), st.sampled_from([Failure.APPLICATION, Failure.TIMEOUT])
)
def test_one_attempt_is_one_execution(outages: list[bool], failure: Failure) -> None:
    """With `retry=1` the first failure of its own is the last, whatever is known about its dependency."""
    world = World(Retry(attempts=1), Config())
    for outage in outages:
        if not world.ended:
            world.execute(failure, outage=outage)
    assert world.executions == 1


def test_outages_have_a_budget_of_their_own() -> None:
    """A failure in an outage spends no attempt until the budget of outages is used up."""
    policy = Retry(attempts=2, outages=2)
    world = World(policy, Config())
    for _ in range(3):
        world.execute(Failure.APPLICATION, outage=True)
        assert not world.ended
    world.execute(Failure.APPLICATION, outage=True)
    assert (world.ended, world.executions, world.row.excused) == (True, 4, 2)


@pytest.mark.parametrize("error", [Stop("no"), InvalidInput("no"), KeyError("no")])
def test_what_is_never_retried_is_not_excused(error: Exception) -> None:
    """An outage does not make a policy retry what it would not."""
    policy = Retry(on=ConnectionError)
    found = decide(
        policy, Failure.APPLICATION, Counts(), error=error, elapsed_s=0, random=random.Random(1), outage=True
    )
    assert isinstance(found, GiveUp)


@given(POLICIES, st.lists(ENDINGS, max_size=60), st.booleans())
def test_budgets_are_never_exceeded_and_classes_are_independent(
    policy: Retry, endings: list[Failure], hand_back: bool
) -> None:
    """Whatever happens in whatever order, the step goes on exactly until one class has used up its own budget. Handing
    back changes nothing."""
    config, step, seen = Config(), Counts(attempt=0), Counter[Failure]()
    limits = allowed(policy, config)
    for failure in endings:
        if hand_back:
            step.attempt += 1
            step.excused += 1
        step.attempt += 1
        assert spent(step) == seen[Failure.APPLICATION] + 1
        seen[failure] += 1
        found = after(policy, failure, step, config)
        assert isinstance(found, RetryAfter) is (seen[failure] < limits[failure])
        if not isinstance(found, RetryAfter):
            poison = failure is Failure.LOST
            waits = policy.quarantine is not False if poison else policy.quarantine is True
            refused = (
                failure is Failure.APPLICATION and bool(policy.on) and "ValueError" not in str(policy.on)
            )
            assert isinstance(found, WaitForPerson) is (waits and not refused)
            break
        assert found.failure is failure
        step.losses += failure is Failure.LOST
        step.timeouts += failure is Failure.TIMEOUT
        step.throttled += failure is Failure.THROTTLED
    assert all(seen[failure] <= limits[failure] for failure in limits)


def test_a_fingerprint_is_short_and_stable() -> None:
    """It is the same for the same step, error and place in every version, because operators write it down."""
    assert fingerprint("shop.charge", "holdfast.errors.StepLost", "agent lost") == "1f02fa1ae505"
    assert fingerprint("shop.charge", "builtins.ValueError", "shop.py:7") != fingerprint(
        "shop.charge", "builtins.ValueError", "shop.py:8"
    )


@given(
    st.builds(
        Retry,
        attempts=st.integers(1, 100),
        delay=st.floats(0, 1e6),
        factor=st.floats(1, 100),
        max_delay=st.floats(0, 1e6),
        jitter=st.sampled_from(["full", "equal", "none"]),
    ),
    st.integers(1, 10_000),
    st.randoms(use_true_random=False),
)
def test_waits_stay_within_their_bounds(policy: Retry, spent: int, dice: random.Random) -> None:
    """Whatever the numbers, there is no overflow, and a wait is never above the maximum. With equal jitter it is never
    below half."""
    after_s = backoff_s(policy, spent, dice)
    assert 0 <= after_s <= policy.max_delay
    if policy.jitter == "equal":
        assert after_s >= backoff_s(msgspec.structs.replace(policy, jitter="none"), spent, dice) / 2


def test_a_policy_is_json() -> None:
    """It is written beside the step, and read without the author's code."""
    policy = Retry(attempts=5, on=(ConnectionError, DeclinedError), max_delay=9, jitter="none", total=3600)
    assert Retry.decode(policy.encode()) == policy
    assert msgspec.structs.replace(Retry.decode(policy.encode()), attempts=6).on == policy.on
    assert pickle.loads(pickle.dumps(policy)) == copy.deepcopy(policy) == policy
    assert Retry.decode("{}") == DEFAULT_RETRY


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"attempts": True},
        {"attempts": 1.5},
        {"on": int},
        {"on": "ConnectionError"},
        {"on": ("builtins.ConnectionError", ValueError)},
        {"on": ValueError("one")},
        {"on": None},
        {"never": "ValueError"},
        {"never": (ValueError, 3)},
        {"delay": -1},
        {"delay": "1"},
        {"delay": True},
        {"delay": timedelta(seconds=1)},
        {"max_delay": float("inf")},
        {"max_delay": -1},
        {"total": -1},
        {"total": "3"},
        {"attempts": -1},
        {"timeouts": -1},
        {"throttles": -1},
        {"factor": 0.5},
        {"max_delay": float("nan")},
        {"jitter": "some"},
        {"total": 0},
        {"timeouts": 0},
        {"losses": -1},
        {"throttles": True},
        {"quarantine": "yes"},
        {"outages": -1},
    ],
)
def test_a_policy_that_cannot_work_is_refused_when_written(wrong: dict[str, object]) -> None:
    """The author gets the error at import."""
    with pytest.raises(DefinitionError, match="Retry"):
        Retry(**wrong)  # type: ignore[arg-type]  # wrong on purpose
