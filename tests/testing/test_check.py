"""`check` finds nothing where nothing has changed, at every moment of a run."""

from collections.abc import Coroutine
from typing import Any

import pytest

from holdfast import Stop
from holdfast.model import RunState
from holdfast.scheduler.fit import Misfit, fit
from holdfast.store.answers import ClaimedRun
from holdfast.store.reads import RunFilter
from holdfast.testing import Sim
from holdfast.testing.stage import Stage
from holdfast.testing.world import Process
from holdfast.workflow import registry
from holdfast.workflow.workflow import Workflow, Workflows
from tests.testing import kit_flows as flows
from tests.testing.kit_flows import charge, mail, paid

ENDED = {RunState.SUCCEEDED, RunState.FAILED, RunState.UNDONE, RunState.CANCELLED}


def at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine that never has to wait."""
    try:
        work.send(None)
    except StopIteration as answer:
        return answer.value
    raise AssertionError("it waits")


def all_misfits(stage: Stage, workflows: Workflows = registry.workflows) -> list[Misfit]:
    """Return what does not fit in all open runs, as the store has them now."""
    lanes = {lane.id: lane for lane in at_once(stage.store.agents.lanes())}
    found: list[Misfit] = []
    for run in at_once(stage.store.reads.runs(RunFilter(limit=100))):
        if run.state in ENDED:
            continue
        history = ClaimedRun(
            run,
            at_once(stage.store.reads.steps(run.id, limit=1000)),
            at_once(stage.store.reads.signals(run.id)),
        )
        found += fit(
            history,
            workflows=workflows,
            find=registry.steps.get,
            lanes=lanes,
        ).misfits
    return found


@pytest.mark.parametrize("fails", [False, True], ids=["", "failing"])
@pytest.mark.parametrize(
    "workflow",
    [flows.order, flows.parent, flows.sells, flows.tries, flows.books, flows.sells_for_good],
    ids=lambda each: each.name,
)
def test_unchanged_code_fits_after_every_commit(
    sim: Sim, workflow: Workflow[[str], str], fails: bool
) -> None:
    """The code fits whether the run goes on, sleeps, waits for a child, fails, undoes itself or is cancelled."""
    stage, world = sim.stage, sim.stage.world
    looks: list[list[Misfit]] = []
    committed = world.committed

    def look(process: Process, verb: str, asked: dict[str, Any]) -> None:
        committed(process, verb, asked)
        looks.append(all_misfits(stage))

    world.committed = look  # type: ignore[method-assign]
    sim.stub(charge, ConnectionError("busy"), flows.Charge("c", 1))
    if fails:
        sim.stub(mail, Stop("no mail today"))
    run = sim.start(workflow, "tok")
    sim.kill_agent()
    sim.advance(hours=20)
    if not fails and workflow is flows.order:
        sim.cancel(run)
    sim.advance(days=2)
    waits = sim.start(flows.awaits)
    sim.send(waits, paid, 4)
    assert run.state in ENDED
    assert len(looks) > 10
    assert [found for found in looks if found] == []


def test_a_run_that_is_stuck_going_forward_is_replayed(sim: Sim) -> None:
    """One of its steps is in quarantine. Its code has to fit, unlike that of a run that only undoes."""

    def kills(text: str) -> str:
        sim.kill_agent()
        return text

    sim.stub(mail, kills)
    run = sim.start(flows.sells, "tok")
    sim.advance(minutes=1)
    assert run.state == "stuck"
    assert all_misfits(sim.stage) == []
    assert [found.kind for found in all_misfits(sim.stage, {})] == ["unknown workflow"]
