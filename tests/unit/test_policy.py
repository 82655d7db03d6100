"""Retry rules: pure decisions about failed attempts."""

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Retry, RetryIn, Stop
from holdfast.errors import DefinitionError, InvalidInput
from holdfast.policy import DEFAULT_RETRY, GiveUp, TryAgain, Verdict, backoff_s, decide


class DeclinedError(ConnectionError):
    """An author's own exception."""


def verdict(
    policy: Retry, error: BaseException, *, spent: int = 1, elapsed_s: float = 0.0, asked: int = 0
) -> Verdict:
    return decide(policy, spent=spent, error=error, elapsed_s=elapsed_s, random=random.Random(1), asked=asked)


def test_the_default_tries_three_times_within_seconds() -> None:
    """Two retries with growing waits, then the end."""
    first, second = (verdict(DEFAULT_RETRY, ValueError("x"), spent=n) for n in (1, 2))
    assert isinstance(first, TryAgain)
    assert isinstance(second, TryAgain)
    assert 0 <= first.after_s <= 1
    assert 0 <= second.after_s <= 2
    assert verdict(DEFAULT_RETRY, ValueError("x"), spent=3) == GiveUp("attempt 3 of 3 failed")


def test_stop_and_invalid_values_end_at_once() -> None:
    """A retry cannot help them."""
    for error in (Stop("no"), InvalidInput("charge() result: expected `int`, got `str`")):
        assert isinstance(verdict(Retry(attempts=99), error), GiveUp)


def test_on_and_never_match_base_classes_by_name() -> None:
    """A policy is data: classes are kept by name, and an exception matches by any of its bases."""
    assert Retry(on=ConnectionError).on == ("builtins.ConnectionError",)
    assert isinstance(verdict(Retry(on=ConnectionError), DeclinedError()), TryAgain)
    assert verdict(Retry(on=ConnectionError), ValueError()) == GiveUp("the policy does not retry ValueError")
    assert isinstance(verdict(Retry(on=OSError, never=(DeclinedError, KeyError)), DeclinedError()), GiveUp)
    assert isinstance(verdict(Retry(never=DeclinedError), ConnectionError()), TryAgain)
    assert isinstance(verdict(Retry(on="tests.unit.test_policy.DeclinedError"), ValueError()), GiveUp)


def test_retry_in_spends_nothing_and_is_bounded() -> None:
    """A server's Retry-After is honoured exactly, but not for ever and not in a busy loop."""
    policy = Retry(attempts=2)
    assert verdict(policy, RetryIn(60), spent=99) == TryAgain(60, spends=False)
    assert verdict(policy, RetryIn(0)) == TryAgain(0.1, spends=False)
    assert verdict(policy, RetryIn(float("nan"))) == TryAgain(0.1, spends=False)
    assert isinstance(verdict(policy, RetryIn(1), asked=40), GiveUp)
    assert isinstance(verdict(policy, RetryIn(1), elapsed_s=86_400), GiveUp)
    assert isinstance(verdict(Retry(total=100), RetryIn(60), elapsed_s=50), GiveUp)
    assert isinstance(verdict(Retry(total=1e9), RetryIn(60), elapsed_s=1e6), TryAgain)


def test_total_bounds_the_time_of_the_next_attempt() -> None:
    """The next attempt would begin too late."""
    policy = Retry(attempts=9, delay=10, jitter="none", total=30)
    assert verdict(policy, ValueError(), elapsed_s=20) == TryAgain(10)
    assert isinstance(verdict(policy, ValueError(), elapsed_s=20.1), GiveUp)


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
    """Whatever the numbers: no overflow, never above the maximum, equal jitter never below half."""
    after_s = backoff_s(policy, spent, dice)
    assert 0 <= after_s <= policy.max_delay
    if policy.jitter == "equal":
        assert after_s >= backoff_s(msgspec.structs.replace(policy, jitter="none"), spent, dice) / 2


def test_a_policy_is_json() -> None:
    """It is written beside the step, and read without the author's code."""
    policy = Retry(attempts=5, on=(ConnectionError, DeclinedError), max_delay=9, jitter="none", total=3600)
    assert Retry.decode(policy.encode()) == policy
    assert Retry.decode("{}") == DEFAULT_RETRY


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"attempts": True},
        {"attempts": 1.5},
        {"on": int},
        {"never": (ValueError, 3)},
        {"delay": -1},
        {"factor": 0.5},
        {"max_delay": float("nan")},
        {"jitter": "some"},
        {"total": 0},
    ],
)
def test_a_policy_that_cannot_work_is_refused_when_written(wrong: dict[str, object]) -> None:
    """The author hears of it at import."""
    with pytest.raises(DefinitionError, match="Retry"):
        Retry(**wrong)  # type: ignore[arg-type]  # wrong on purpose
