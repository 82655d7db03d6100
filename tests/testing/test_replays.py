"""The kit finds workflows that decide by anything but their input and their results, and reports nothing about
others."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.testing import Report, Sim
from holdfast.testing.interpreter import AHEAD_S
from holdfast.workflow.step import Step
from holdfast.workflow.workflow import Workflow
from tests.testing import careful_flows as careful
from tests.testing import careless_flows as careless


def tried(sim: Sim, workflow: Workflow[Any, Any], seed: int) -> Report:
    sim.will_send(careful.go, 1)
    sim.will_send(careful.halt, 2)
    steps: list[Step[Any, Any]] = [careful.act, careful.other, careful.flaky, careful.slow, careful.weigh]
    steps.append(careful.draw)
    # Not every branch is reached with every seed, and steps without an undo need none.
    there = sim.using(seed=seed, final=steps, unreached=[*steps, careful.go, careful.halt])
    return there.crash_everywhere(workflow)


@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")  # since Python 3.12
@pytest.mark.parametrize("workflow", careless.FLOWS, ids=lambda each: each.name.partition(".")[2])
def test_careless_code_is_found(sim: Sim, workflow: Workflow[[], Any]) -> None:
    """It decides otherwise on the same history: here, in another process, at another time or with another hash seed."""
    steps = [careless.act, careless.other]
    report = sim.using(idempotent=steps, unreached=steps).crash_everywhere(workflow)
    assert not report.ok
    assert report.replayed_otherwise, report
    assert "decides otherwise on the same history\n  when its history is replayed" in str(report)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("workflow", careful.FLOWS, ids=lambda each: each.name.partition(".")[2])
def test_careful_code_is_left_alone(sim: Sim, workflow: Workflow[[], Any], seed: int) -> None:
    """This includes workflows whose result depends on what comes first: after a crash, something else may come
    first."""
    report = tried(sim, workflow, seed)
    assert report.ok, report
    assert len(report.boundaries) > 4


def test_there_are_enough_of_both() -> None:
    """There are at least twenty of each kind."""
    assert len(careless.FLOWS) > 30
    assert len(careful.FLOWS) > 30


def test_a_changed_clock_changes_what_code_decides_by() -> None:
    """Whenever it is tried, it is another year, date and minute. One of the changes has another half of the day, and one
    a working day instead of a free one or the other way round."""
    for hours in range(5 * 366 * 24):
        now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hours, minutes=hours % 60)
        then = [now + timedelta(seconds=ahead_s) for ahead_s in AHEAD_S]
        assert all(one.year != now.year and one.minute != now.minute for one in then)
        assert any((one.weekday() >= 5) is not (now.weekday() >= 5) for one in then), now
        assert any((one.hour < 12) is not (now.hour < 12) for one in then), now
        assert any(one.month != now.month for one in then), now
        assert any(one.day != now.day for one in then), now
