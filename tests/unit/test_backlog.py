"""What waits, who can do it, and what needs a person."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from holdfast.model import (
    Alert,
    AskPerson,
    AskRow,
    AskState,
    Breaker,
    BreakerState,
    Hold,
    HoldScope,
    Lane,
    NodeRow,
    Poison,
)
from holdfast.store.answers import Backlog
from holdfast.supervisor import attention
from holdfast.supervisor.backlog import BacklogItem, Capabilities, backlog

NOW = 1_000.0
CLOSED = Breaker(
    "bank", BreakerState.CLOSED, 1, 0, 0, 0.0, 0.0, 0, 0, None, None, 0.0, 0, False, None, "", None
)


def node(name: str, roles: str = "agent", **offers: Any) -> NodeRow:
    given = {"steps": [], "workflows": [], "labels": [], "files": ["shop.py"], **offers}
    return NodeRow(name, "host", 1, roles, json.dumps(given), 4, 0.0, NOW + 60, None)


def waiting(
    *nodes: NodeRow, holds: tuple[Hold, ...] = (), breakers: tuple[Breaker, ...] = ()
) -> list[BacklogItem]:
    lanes = [Lane(1, "shop.pay", (), None, "bank"), Lane(2, "shop.print", ("gpu",), None, "shop.print")]
    steps = {1: Backlog(3, 900.0), 2: Backlog(1, 950.0)}
    codes = {("shop.order", "2"): Backlog(4, 990.0)}
    return backlog(lanes, steps, codes, Capabilities(nodes, NOW), holds, breakers)


def test_what_nobody_can_do_comes_first() -> None:
    """Then what somebody can do, the oldest first."""
    able = node("a", steps=["shop.pay", "shop.print"])
    found = waiting(able, node("s", "scheduler", workflows=["shop.order@2"]))
    assert [(one.name, one.able, one.is_hopeless) for one in found] == [
        ("shop.print", 0, True), ("shop.pay", 1, False), ("shop.order@2", 1, False),
    ]  # fmt: skip
    assert found[0].start == "holdfast agent shop.py --label gpu"


def test_a_node_that_is_gone_can_do_nothing() -> None:
    gone = NodeRow("a", "h", 1, "agent", json.dumps({"steps": ["shop.pay"]}), 4, 0.0, NOW - 1, None)
    assert [one.able for one in waiting(gone) if one.name == "shop.pay"] == [0]


def test_a_role_and_a_label_are_needed_too() -> None:
    """A scheduler that has the code executes no step."""
    only = node("s", "scheduler", steps=["shop.pay", "shop.print"], labels=["gpu"])
    assert {one.able for one in waiting(only)} == {0}
    both = node("a", steps=["shop.print"], labels=["gpu", "fast"])
    assert [one.able for one in waiting(both) if one.name == "shop.print"] == [1]


def test_what_a_gate_parks_comes_last_and_is_not_hopeless() -> None:
    open_ = msgspec.structs.replace(CLOSED, state=BreakerState.OPEN, opened_at=900.0, open_until=1_060.0)
    found = waiting(breakers=(open_,))
    assert (found[-1].name, found[-1].is_hopeless) == ("shop.pay", False)
    assert found[-1].parked == "waits for bank, whose breaker is open"
    held = waiting(holds=(Hold(HoldScope.WORKFLOW, "shop.order", "ada", "deploy", 900.0),))
    assert [one.parked for one in held if one.kind == "workflow"] == ["is held by ada (deploy)"]


def test_the_most_urgent_comes_first_and_the_rest_is_counted() -> None:
    stuck = attention.Attention(kind="stuck run", id="run:x", title="", sentence="", since=999.0)
    hopeless = [attention.hopeless(one, NOW) for one in waiting() if one.is_hopeless]
    poison = attention.poison(
        Poison("f" * 12, "shop.pay", "OSError", "shop.py:3", 3, 2, 10.0, 20.0, "x"), NOW
    )
    found = attention.in_order([*hopeless, stuck, poison])
    assert [one.kind for one in found] == ["stuck run", "quarantine", *["nobody can do this"] * 3]
    assert [(one.kind, one.count) for one in attention.rest(found, 3)] == [("nobody can do this", 2)]
    many = [msgspec.structs.replace(stuck, id=f"run:{n}") for n in range(20)]
    crowd = attention.in_order([*many, *hopeless, poison])
    kinds = [one.kind for one in attention.named(crowd, 5)]
    assert kinds == ["stuck run"] * 2 + ["quarantine"] + ["nobody can do this"] * 2, (
        "many of one kind hide no other"
    )
    assert sum(one.count for one in attention.rest(crowd, 5)) + 5 == len(crowd)
    assert attention.named(crowd, 100) == crowd
    assert attention.headline(found) == "5 things need a person"
    assert attention.headline(found[:1]) == "1 thing needs a person"
    assert attention.headline([]) == "Nothing needs a person"


def test_an_alert_is_shown_only_if_nothing_else_says_it() -> None:
    """A stuck run is looked at itself. Trouble of the store is only in its alert."""
    given = (1, 900.0, "store trouble", None, "the disk is full", None, "error", "k", 3, 990.0)
    found = attention.alarm(Alert(*given, None), NOW)
    assert found is not None
    assert (found.kind, found.sentence) == ("store trouble", "the disk is full (3 times)")
    assert attention.alarm(Alert(*given, 995.0), NOW) is None
    other = Alert(1, 900.0, "run stuck", "x", "{}", None, "error", "k", 1, 990.0, None)
    assert attention.alarm(other, NOW) is None


def test_a_closed_breaker_needs_nobody() -> None:
    assert attention.breaker(CLOSED, NOW) is None


def asked(
    ask: str, expires_at: float | None = None, plan: str = "{}", question: str = "Pay it?"
) -> tuple[AskRow, list[AskPerson]]:
    row = AskRow(
        ask, "default", f"run-{ask}", 1, "shop.pay", AskState.OPEN, question, "{}", "null", 1, "[]", plan, 900.0,
        expires_at, None, None, None,
    )  # fmt: skip
    return row, [AskPerson(ask, "team:finance", 900.0, "asked", 0, None, None, "", "", None)]


def test_late_asks_need_a_person_singly_and_the_others_together() -> None:
    """Late is what expires within an hour, or what somebody more was asked about."""
    escalated = asked("b", plan='{"escalate": [[100.0, "person:cfo"]]}')
    not_yet = asked("c", plan='{"escalate": [[100.5, "person:cfo"]]}')
    given = [asked("a", NOW + 3_600), escalated, not_yet, asked("d", NOW + 3_601), asked("e")]
    found = attention.asks(given, NOW)
    assert [(one.kind, one.ask, one.count, one.run) for one in found] == [
        ("late ask", "a", 1, "run-a"), ("late ask", "b", 1, "run-b"), ("ask", "c", 3, None),
    ]  # fmt: skip
    assert found[0].title == "“Pay it?” is late"
    assert found[0].sentence == "waits for team:finance, and expires in 60 min."
    assert found[2].title == "3 asks wait"
    assert found[2].sentence.endswith("; and 1 more.")
    assert found[0].moves[0].command == "holdfast answer a --data JSON"
    assert attention.asks([], NOW) == []


def test_a_long_question_is_cut() -> None:
    (one,) = attention.asks([asked("a", question="why\n" * 100)], NOW)
    assert len(one.sentence) < 120
    assert (one.run, one.title) == ("run-a", "1 ask waits")
