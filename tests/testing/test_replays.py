"""The kit finds workflows that decide by anything but their input and their results, and reports nothing about
others."""

from typing import Any

import pytest

from holdfast.testing import Report, Sim
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
