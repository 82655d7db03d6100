"""Composed triggers: what is complete, what is missing, what an occasion is called, and what cannot be written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypedDict

import msgspec
import pytest

from holdfast import workflow
from holdfast.errors import DefinitionError
from holdfast.events import all_of, any_of, several, when
from holdfast.occasions import (
    Collected,
    Group,
    Part,
    certain,
    due_times,
    is_complete,
    missing,
    occasion_id,
    parts_of,
    words,
)
from holdfast.schedules import every
from holdfast.starts import Debounce
from holdfast.times.plan import Plan
from holdfast.workflow import options, registry

HOUR = timedelta(hours=1)
ANY: list[Any] = [7, None, "wait"]
"""What no type allows, and somebody without a type checker may write."""
A, B, C = Part("a", "type.a"), Part("b", "type.b", 2), Part("c", times=Plan("@daily"))


@pytest.mark.parametrize(
    ("needs", "have", "lacking"),
    [
        (Group("all", (A, B)), {}, ["a", "b (0 of 2)"]),
        (Group("all", (A, B)), {"type.a": 1, "type.b": 1}, ["b (1 of 2)"]),
        (Group("all", (A, B)), {"type.a": 1, "type.b": 2}, []),
        (Group("any", (A, B)), {"type.b": 1}, ["a or b (1 of 2)"]),
        (Group("any", (A, C)), {"$time:c": 1}, []),
        (Group("all", (A, Group("any", (B, C)))), {"$time:c": 1}, ["a"]),
        (Group("any", (A, Group("all", (B, C)))), {}, ["a or (b (0 of 2) and c)"]),
    ],
)
def test_what_is_missing(needs: Group, have: dict[str, int], lacking: list[str]) -> None:
    assert missing(needs, have) == lacking
    assert is_complete(needs, have) == (not lacking)


def test_which_parts_every_occasion_has() -> None:
    assert certain(Group("all", (A, Group("any", (B, C))))) == {"a"}
    assert certain(Group("any", (Group("all", (A, B)), Group("all", (A, C))))) == {"a"}


def test_what_a_trigger_waits_for_in_words() -> None:
    needs = Group("all", (Part("rates", "rates"), B, Group("any", (Part("time", times=Plan("15m")), A))))
    assert words(needs) == "all of (rates, b=2 × type.b, any of (every 15m UTC, a=type.a))"


@pytest.mark.parametrize(
    "value",
    [
        *(
            "2026-11-16",
            "order-42",
            "a b",
            "a-b",
            "ä",
            "a/b",
            "/",
            "a//b",
            "a::b",
            "x" * 500,
            "~",
            "$a",
            "a?b#c",
        ),
        *("A", "a", "a-0123456789abcdef0123", " x", "😀"),
    ],
)
def test_an_occasion_has_an_id_that_a_run_can_have(value: str) -> None:
    made = occasion_id("report", value)
    assert options.run_id(made, "id") == made
    assert not {"?", "#", "~"} & set(made)


def test_other_values_are_other_occasions() -> None:
    """Also those that look alike in an id."""
    values = ["a b", "a-b", "a/b", "a  b", "A b", "x" * 41, "x" * 42]
    values += [occasion_id("", one).removeprefix("@when:") for one in values]
    assert len({occasion_id("report", one) for one in set(values)}) == len(set(values))
    assert occasion_id("report", "2026-11-16") == "report@when:2026-11-16"


def test_times_that_have_come() -> None:
    plan = Plan("1h", window_s=7200.0)
    assert due_times(plan, 0.0, 3599.0) == ([], 0.0, 3600.0, 0)
    assert due_times(plan, 0.0, 7200.0) == ([3600.0, 7200.0], 7200.0, 10800.0, 0)
    late = due_times(plan, 0.0, 36_000.0)
    assert (late.times, late.passed) == ([28_800.0, 32_400.0, 36_000.0], 7)
    far = due_times(plan, 0.0, 3600.0 * 100_000)
    assert (len(far.times), far.passed) == (3, 99_997)
    by_cron = due_times(Plan("0 * * * *"), 0.0, 3600.0 * 100_000)
    assert (by_cron.times, by_cron.passed, by_cron.next_at) == ([], 1000, 3600.0 * 1001)


def test_what_arrived_is_a_row() -> None:
    assert Collected("o", "p", "s", "i", 1.0)[:4] == ("o", "p", "s", "i")


# --- what authors write -----------------------------------------------------------------------------------------------


class Arrived(msgspec.Struct):
    rates: dict[str, float]
    files: list[str]
    note: str = ""


class Typed(TypedDict):
    rates: int


@workflow(name="occasions.report")
async def report(arrived: Arrived) -> None: ...


@workflow(name="occasions.loose")
async def loose(arrived: dict[str, Any], day: str = "") -> None: ...


@workflow(name="occasions.number")
async def number(arrived: int) -> None: ...


@workflow(name="occasions.typed")
async def typed(arrived: Typed) -> None: ...


@workflow(name="occasions.two")
async def two(arrived: dict[str, Any], more: int) -> None: ...


@workflow(name="occasions.gathers", debounce=Debounce("doc", quiet=10))
async def gathers(arrived: dict[str, Any]) -> None: ...


@pytest.fixture(autouse=True)
def nothing_declared() -> Any:
    yield
    for name in ("report", "loose", "typed", "one", "morning"):
        registry.composed.pop(name, None)


def test_what_is_written_is_what_is_declared() -> None:
    needs = all_of(
        eight=every("0 8 * * 1-5", tz="Europe/Oslo"), rates="rates.published", files=several("f", 3)
    )
    made = when(needs, by="data.day", time_as="%Y-%m", within=HOUR, otherwise="skip", name="morning")
    made(loose)
    row = registry.composed["morning"].new("acme", "shop")
    assert (row.name, row.workflow, row.version) == ("acme//morning", "acme//occasions.loose", "1")
    composition = made.composition
    assert [part.name for part in parts_of(composition.needs)] == ["eight", "rates", "files"]
    assert (composition.by, composition.within_s, composition.time_as) == ("data.day", 3600.0, "%Y-%m")


def test_the_types_of_the_argument_say_what_the_parts_must_be() -> None:
    when(all_of(rates="rates.published", files=several("f", 2)), within=HOUR)(report)
    body = msgspec.json.decode(registry.composed["report"].new("default", "").body)
    assert body["schemas"]["rates"]["additionalProperties"] == {"type": "number"}
    assert body["schemas"]["files"]["type"] == "string"


def test_positional_parts_have_the_names_of_their_types() -> None:
    made = when(all_of(every("@daily"), "rates.published", any_of("a", several("b", 2))), within=60)
    assert [part.name for part in made.composition.parts] == ["time", "rates.published", "a", "b"]
    assert when("a", within=1).composition.needs == Group("all", (Part("a", "a"),))


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (all_of, "it needs at least one part"),
        (any_of, "it needs at least one part"),
        (lambda: all_of("with space"), "cannot be the type of an event"),
        (lambda: all_of("$x"), "cannot be the type of an event"),
        (lambda: all_of("a//b"), "cannot be the type of an event"),
        (lambda: all_of(""), "cannot be the type of an event"),
        (lambda: all_of(ANY[0]), "a part is the type of an event"),
        (lambda: all_of(x=any_of("a")), "only a part has a name"),
        (lambda: several("a", 0), "from 1 to"),
        (lambda: several("a", True), "whole number"),
        (lambda: several("a b", 2), "cannot be the type of an event"),
        (lambda: when(all_of("a"), within=0), "within"),
        (lambda: when(all_of("a"), within=-5), "within"),
        (lambda: when(all_of("a"), within=timedelta(days=900)), "at most a year"),
        (lambda: when(all_of("a"), within=ANY[1]), "within"),
        (lambda: when(all_of("a"), within=1, otherwise=ANY[2]), "expected one of skip, alert, run"),
        (lambda: when(all_of("a"), within=1, by="a b"), "by: expected an attribute"),
        (lambda: when(all_of("a", any_of("b", "a")), within=1), "the part 'a' is there twice"),
        (lambda: when(all_of("a", several("a", 2)), within=1), "the part 'a' is there twice"),
        (lambda: when(all_of("a", b="a"), within=1), "the part 'a' is there twice"),
        (lambda: when(all_of("b", b="a"), within=1), "the part 'b' is there twice"),
        (lambda: when(all_of("a", every("1h"), every("2h")), within=1), "the part 'time' is there twice"),
        (lambda: when(all_of(every("1h")), within=1), "there is no event among the parts"),
        (lambda: when(all_of("a", every("1h")), by="data.day", within=1), "say which occasion it belongs to"),
        (lambda: when(all_of("a"), time_as="%Y", within=1), "there is no every"),
        (lambda: when(all_of("a", every("1h")), time_as="day", within=1), "a format of strftime"),
        (lambda: when(all_of("a", every("1h", overlap="allow")), within=1), "overlap"),
        (lambda: when(all_of("a", every("1h", count=3)), within=1), "count"),
        (lambda: when(all_of("a", every("1h", name="x")), within=1), "name the part by a keyword"),
        (lambda: when(all_of(*map(str, range(51))), within=1), "at most 50 parts"),
        (lambda: when(all_of("a"), within=1, name="a@b"), "cannot be the name of a trigger"),
        (lambda: when(all_of("a"), within=1)(ANY[0]), "takes a workflow"),
        (lambda: when(all_of("a"), within=1)(number), "let it take a dict"),
        (lambda: when(all_of("a"), within=1)(two), "take one argument"),
        (lambda: when(all_of("a"), within=1)(gathers), "debounce= and batch="),
        (lambda: when(all_of("a"), within=1)(report), "it has no field 'a'"),
        (lambda: when(all_of(rates="a"), within=1)(report), "its field 'files' needs a default"),
        (lambda: when(any_of(rates="a", files="b"), within=1)(report), "needs a default"),
        (lambda: when(all_of(rates="a"), within=1, otherwise="run")(typed), "something may be missing"),
        (lambda: when(all_of("a"), within=1)(loose.using(id="x")), "leave out id"),
        (lambda: when(all_of("a"), within=1)(loose.using(fair="x")), "leave out fair"),
        (lambda: when(all_of("a"), within=1)(loose.using(begin_in=5)), "begin_in"),
        (lambda: when(all_of("a"), within=1)(loose.using(namespace="x")), "namespace"),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_is_written(write: Any, says: str) -> None:
    """With the file and the line, and nothing is declared."""
    known = dict(registry.composed)
    with pytest.raises(DefinitionError, match=says) as wrong:
        write()
    assert "test_occasions.py, line" in str(wrong.value) or "occasions.loose" in str(wrong.value)
    assert registry.composed == known


def test_two_triggers_need_two_names() -> None:
    when(all_of("a"), within=1)(loose)
    with pytest.raises(DefinitionError, match="there is a trigger 'loose' already"):
        when(all_of("b"), within=1)(loose)
