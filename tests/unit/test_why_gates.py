"""What `why` says about a step that may not begin: who holds it, or the state of its dependency."""

from typing import Any

import pytest

from holdfast.model import (
    Breaker,
    BreakerState,
    Hold,
    HoldScope,
    Lane,
    RunRow,
    RunState,
    StepKind,
    StepRow,
    StepState,
)
from holdfast.supervisor.breakers import judge_breakers
from holdfast.supervisor.facts import Facts
from holdfast.supervisor.why import explain

NOW = 1_000_000.0


def filled(noun: Any, /, **more: Any) -> Any:
    return noun(**(dict.fromkeys(noun.__struct_fields__) | more))


RUN: RunRow = filled(
    RunRow, id="r", workflow="shop.order", state=RunState.RUNNING, namespace="acme", kept_n=0
)
STEP: StepRow = filled(
    StepRow,
    key="charge",
    n=1,
    name="shop.charge",
    lane=3,
    kind=StepKind.CALL,
    state=StepState.READY,
    ready_at=NOW - 20,
    issued_at=NOW - 20,
)
LANE = Lane(3, "shop.charge", (), None, "stripe")


def row(state: BreakerState, **more: Any) -> Breaker:
    values: dict[str, Any] = dict.fromkeys(Breaker.__struct_fields__, 0)
    values |= {
        "name": "stripe",
        "state": state,
        "forced": False,
        "actor": "supervisor",
        "opened_at": NOW - 30,
    }
    values |= {
        "note": "25 of 28 attempts failed within 1 s",
        "error": "ConnectionError: refused",
        "open_until": None,
    }
    return Breaker(**(values | more))


def why(*breakers: Breaker, holds: tuple[Hold, ...] = ()) -> str:
    return explain(Facts(RUN, [STEP], [], [], [], [LANE], NOW, breakers, holds))


def test_an_open_breaker_says_until_when() -> None:
    """It says since when, after what, for how long, and that no attempt is spent."""
    assert why(row(BreakerState.OPEN, open_until=NOW + 12)) == (
        "Step charge has been waiting for 20 s: stripe has been in trouble for 30 s (25 of 28 attempts failed within 1 s: "
        "ConnectionError: refused); its breaker is open for another 12 s, then one step tries it again; waiting costs no "
        "attempt; `holdfast breakers reset stripe` tries it now. But that takes a Supervisor, and none is up: start one with "
        "`holdfast supervisor`."
    )


def test_a_probed_breaker_says_how_many_try() -> None:
    """It says how large the wave is."""
    assert "it is being tried with 4 steps at a time" in why(row(BreakerState.PROBING, wave=4))
    assert "it is being tried with 1 step at a time" in why(row(BreakerState.PROBING, wave=1))


def test_a_breaker_opened_by_hand_says_by_whom() -> None:
    """It also says how to try it again."""
    assert why(row(BreakerState.OPEN, forced=True, actor="ada", note="maintenance")) == (
        "Step charge has been waiting for 20 s: the breaker of stripe was opened by ada 30 s ago (maintenance); "
        "it stays open until `holdfast breakers reset stripe` lets one step try it."
    )


def test_a_closed_breaker_is_no_reason() -> None:
    """Neither is the breaker of another dependency."""
    other = row(BreakerState.OPEN, name="mail")
    assert "no live agent has shop.charge" in why(row(BreakerState.CLOSED), other)


@pytest.mark.parametrize(
    ("scope", "value", "words"),
    [
        (HoldScope.WORKFLOW, "shop.order", "the workflow shop.order"),
        (HoldScope.STEP, "shop.charge", "the step shop.charge"),
        (HoldScope.DEPENDENCY, "stripe", "the dependency stripe"),
        (HoldScope.NAMESPACE, "acme", "the namespace acme"),
    ],
)
def test_a_hold_says_by_whom(scope: HoldScope, value: str, words: str) -> None:
    """It also says what releases it. It comes before any breaker, because closing that would not help."""
    hold = Hold(scope, value, "ada", "stocktaking", NOW - 60)
    assert why(row(BreakerState.OPEN), holds=(hold,)) == (
        f"Step charge has been waiting for 20 s: {words} has been held by ada for 60 s (stocktaking); "
        f"`holdfast release --{scope} {value}` lets it go on."
    )
    other = Hold(scope, "another", "ada", "", NOW)
    assert "has been held" not in why(holds=(other,))


def test_everything_held_says_so() -> None:
    """It names the option that releases it."""
    message = why(holds=(Hold(HoldScope.ALL, "", "ada", "", NOW - 1),))
    assert message == (
        "Step charge has been waiting for 20 s: everything has been held by ada for 1.0 s; `holdfast release --all --namespace '*'` lets it go on."
    )


def test_an_alert_is_raised_for_what_opened_by_itself() -> None:
    """There is none for what an operator opened. Each dependency has a key of its own."""
    raised = judge_breakers(
        [
            row(BreakerState.OPEN),
            row(BreakerState.PROBING, name="mail"),
            row(BreakerState.CLOSED, name="x"),
            row(BreakerState.OPEN, name="y", forced=True),
        ]
    )
    assert [alert.key for alert in raised] == ["breaker open:stripe", "breaker open:mail"]
    assert raised[0].message == (
        "stripe is in trouble: 25 of 28 attempts failed within 1 s (ConnectionError: refused); its steps wait, which costs them "
        "no attempt, until it is well again: `holdfast breakers` shows more"
    )
