"""Runs that begin later: recorded at once, begun when their time has come, whoever is up then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from holdfast import Holdfast, RunState, workflow
from holdfast.errors import DefinitionError
from holdfast.schedules import every
from holdfast.testing import Sim
from tests.roles.conftest import FAST

DAY = timedelta(days=1)


@workflow
async def early(x: int) -> int:
    return x


@workflow
async def later_child(seconds: float) -> int:
    return await early.using(begin_in=seconds)(1)


@workflow
async def later_start(seconds: float) -> str:
    return await early.using(begin_in=seconds).start(1)


async def test_a_run_begins_when_its_time_has_come(store_url: str) -> None:
    """Not before, also if a node has nothing else to do; `why` and `info` say when."""
    async with Holdfast(store_url, config=FAST) as hf:
        later = await hf.start(early.using(begin_in=DAY), 8)
        run = await hf.start(early.using(begin_in=0.3), 7)
        assert await later.state() is RunState.PENDING
        assert "It is to begin in" in await later.why()
        assert await run.result(60) == 7
        info = await run.info()
        assert info.begin_at is not None
        assert info.started_at is not None
        assert info.begin_at <= info.started_at


async def test_a_run_waits_for_its_time_while_nobody_is_up(store_url: str) -> None:
    """The process that started it is gone. The next one begins it, when its time has come."""
    async with Holdfast(store_url, config=FAST, roles=()) as hf:
        soon = await hf.start(early.using(begin_in=0.2), 1)
        never = await hf.start(early.using(begin_at=datetime.now(UTC) + DAY), 2)
    async with Holdfast(store_url, config=FAST) as hf:
        assert await hf.run(soon.id, early).result(60) == 1
        assert await hf.run(never.id).state() is RunState.PENDING
        await hf.run(never.id).cancel()
        assert await hf.run(never.id).state() is RunState.CANCELLED


async def test_children_and_started_runs_begin_later(store_url: str) -> None:
    """`using(begin_in=…)` is said in a workflow as it is outside."""
    async with Holdfast(store_url, config=FAST) as hf:
        run = await hf.start(later_child, 0.2)
        assert await run.result(60) == 1
        started = await (await hf.start(later_start, 0.2)).result(60)
        info = await hf.run(started).info()
        assert info.begin_at is not None
        assert await hf.run(started, early).result(60) == 1


def test_tests_advance_to_the_time(sim: Sim) -> None:
    """`sim.advance` plays a run when its time has come."""
    run = sim.start(early.using(begin_in=DAY), 5)
    sim.advance(hours=23)
    assert run.state is RunState.PENDING
    sim.advance(hours=2)
    assert run.result() == 5


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"begin_in": 0}, "expected a time above 0"),
        ({"begin_in": "60"}, "expected seconds as a number"),
        ({"begin_at": datetime(2027, 1, 1)}, "has no time zone"),  # noqa: DTZ001  that is the point
        ({"begin_at": 5.0}, "expected a datetime"),
        ({"begin_in": 1, "begin_at": datetime(2027, 1, 1, tzinfo=UTC)}, "not both"),
    ],
)
def test_what_is_no_time_is_refused_where_it_is_written(given: dict[str, Any], says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        early.using(**given)


def test_what_says_itself_when_runs_begin_refuses_another_time() -> None:
    with pytest.raises(DefinitionError, match="a schedule says when its runs begin"):
        every("@daily", name="early")(early.using(begin_in=5), 1)
    with pytest.raises(DefinitionError, match="begin as soon as there is room"):
        _ = early.using(begin_in=5).map([1])


def test_a_time_is_an_instant() -> None:
    """Whatever its zone."""
    at = datetime(2027, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    assert early.using(begin_at=at).begin_at == datetime(2027, 1, 1, tzinfo=UTC).timestamp()
    assert early.using(begin_at=at).using(begin_at=None).begin_at is None
