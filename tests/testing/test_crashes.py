"""`crash_everywhere`: every boundary of a workflow, and what happens when the process dies there."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Stop, here, saga, workflow
from holdfast.testing import NotEnded, Sim
from holdfast.testing.crashes import CrashSettings, Explorer
from holdfast.testing.judge import RunOutcomes
from holdfast.testing.stand_ins import StandIn
from holdfast.workflow.workflow import Workflow
from tests.testing import kit_flows as flows
from tests.testing.kit_flows import Charge, book, charge, mail, paid, refund

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def clean_log() -> None:
    flows.log.clear()


def test_a_step_that_reads_its_key_has_one_effect(sim: Sim) -> None:
    """It runs again after a crash, and whoever got `here.key` recognizes it."""
    report = sim.crash_everywhere(flows.sells_for_good, "tok")
    assert report.effects(charge) == {1}
    twice = [line for line in flows.log if line.startswith("charge")]
    assert len(twice) > len(set(twice)) == 1  # it is executed again and again, with one key


def test_a_step_that_does_not_is_named_with_its_boundary(sim: Sim) -> None:
    """The report names the step, the first boundary where it happened, what to do next, and how to see it again."""
    report = sim.using(failures=False).crash_everywhere(flows.order, "tok")
    assert report.effects(mail) == {1, 2}
    assert {finding.step for finding in report.twice} == {"tests.testing.kit_flows.mail"}
    first = report.twice[0]
    assert first.boundary.crash == "after mail, before its result is recorded"
    text = str(report)
    assert "mail ran twice\n  when the process dies after mail, before its result is recorded" in text
    assert f"sim.using(boundary={first.boundary.number}, seed=0)" in text
    again = sim.using(boundary=first.boundary.number).crash_everywhere(flows.order, "tok")
    assert again.twice == [first]
    assert any("the process dies after mail" in line for line in again.trace)


def test_all_boundaries_are_tried(sim: Sim) -> None:
    """Each boundary, before and after every step and every commit, is tried once, in the order in which a run passes
    them."""
    report = sim.using(failures=False).crash_everywhere(flows.sells_for_good, "tok")
    assert [boundary.crash for boundary in report.boundaries] == [
        "before the commit that starts the run and issues charge",
        "after the commit that starts the run and issues charge",
        "before charge",
        "after charge, before its result is recorded",
        "before the commit of charge's result, which issues mail",
        "after the commit of charge's result, which issues mail",
        "before mail",
        "after mail, before its result is recorded",
        "before the commit of mail's result, which ends the run",
        "after the commit of mail's result, which ends the run",
    ]
    assert [boundary.number for boundary in report.boundaries] == list(range(1, 11))


def test_what_counts_can_be_said(sim: Sim) -> None:
    """A step can be declared idempotent; keys need not be trusted; a test can count effects itself."""
    assert sim.using(idempotent=[mail]).crash_everywhere(flows.order, "tok").ok
    strict = sim.using(trust_keys=False, failures=False).crash_everywhere(flows.order, "tok")
    assert strict.effects(charge) == {1, 2}

    def counted(text: str) -> str:
        sim.effect(here.key)
        return text

    sim.stub(mail, counted)
    assert sim.crash_everywhere(flows.order, "tok").effects(mail) == {1}
    sim.stub(mail, lambda text: f"{text} {sim.effect()}")
    assert sim.crash_everywhere(flows.order, "tok").effects(mail) == {1, 2}


def test_a_stub_counts_as_the_step_it_stands_for(sim: Sim) -> None:
    """A value runs no code. So the kit reads the step's own code to find out whether it reads its key."""
    sim.stub(charge, Charge("c", 1))
    sim.stub(mail, "sent")
    report = sim.crash_everywhere(flows.order, "tok")
    assert (report.effects(charge), report.effects(mail)) == ({1}, {1, 2})


def test_undos_are_explored_too(sim: Sim) -> None:
    """Each step fails in turn, and the process dies at every boundary of the undoing."""
    report = sim.using(idempotent=[mail]).crash_everywhere(flows.order, "tok")
    assert report.ok
    assert {boundary.failing for boundary in report.boundaries} == {
        None,
        "charge",
        "mail",
        "its next attempt",
    }
    assert any(boundary.crash == "before undo:charge" for boundary in report.boundaries)
    assert any(line.startswith("refund simulated::charge ?") for line in flows.log)  # the outcome was unknown


def test_what_is_not_undone_is_named(sim: Sim) -> None:
    """`book` reads its key, so it changes something. When a later step fails, nothing undoes it."""
    report = sim.using(idempotent=[mail]).crash_everywhere(flows.books, "lamp")
    assert {(finding.kind, finding.step) for finding in report.not_undone} == {
        ("not undone", "tests.testing.kit_flows.book")
    }
    assert report.not_undone[0].boundary.failing == "mail"
    assert "it has no undo: declare one with @book.undo" in str(report)
    assert sim.using(idempotent=[mail], final=[book]).crash_everywhere(flows.books, "lamp").ok


def test_an_undo_that_does_not_look_twice_is_named(sim: Sim) -> None:
    """Undos run at least once, like any step."""
    sim.stub(refund, lambda done, card, cents: None)
    report = sim.using(idempotent=[mail]).crash_everywhere(flows.sells, "tok")
    assert {finding.step for finding in report.twice} == {"tests.testing.kit_flows.refund"}
    assert "it does not pass on here.undoes or here.key" in str(report)
    assert "if running twice does no harm, say so: sim.using(idempotent=[refund])" in str(report)
    assert "undisturbed, it ends undone: Stop: out of stock" in str(report)


@pytest.mark.parametrize(
    "workflow", [flows.tries, flows.parent, flows.sells_for_good], ids=lambda each: each.name
)
def test_sagas_children_and_points_of_no_return_hold(sim: Sim, workflow: object) -> None:
    """Wherever the process dies, what was done is undone or kept, as the workflow says."""
    assert isinstance(workflow, type(flows.tries))
    report = sim.using(idempotent=[mail]).crash_everywhere(workflow, "tok")
    assert report.ok, str(report)
    assert len(report.boundaries) > 20


def test_signals_can_be_promised(sim: Sim) -> None:
    """Every run gets them. Without them, the error says what the workflow waits for. A timeout is passed by waiting."""
    with pytest.raises(NotEnded, match=r"for the signal 'paid'.*`sim\.will_send\(signal, value\)`"):
        sim.crash_everywhere(flows.hurries)
    assert sim.using(unreached=[paid]).crash_everywhere(flows.awaits).ok
    sim.will_send(paid, 4)
    assert sim.crash_everywhere(flows.hurries).ok
    assert sim.crash_everywhere(flows.awaits).ok


def test_the_same_seed_explores_the_same(sim: Sim) -> None:
    """Another seed lets parallel steps end in another order."""
    sim.stub(flows.render)
    names = [
        [
            boundary.crash
            for boundary in sim.using(seed=seed, failures=False).crash_everywhere(flows.gallery).boundaries
        ]
        for seed in (1, 1, 2)
    ]
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize(
    "workflow",
    [flows.order, flows.parent, flows.tries, flows.sells, flows.sells_for_good, flows.gallery, flows.monthly],
    ids=lambda each: each.name,
)
def test_what_is_not_done_again_would_come_out_the_same(workflow: Workflow[Any, Any], seed: int) -> None:
    """A run that begins from the rows a crash left, and one whose crash left the same as another, end like runs that
    are run from the beginning: all rows are equal."""
    stubs = {charge.name: StandIn(charge, (ConnectionError("busy"), Charge("c", 1)))}
    arguments = {flows.gallery: (), flows.monthly: (3,)}.get(workflow, ("tok",))
    raw, _ = workflow.shape.checked(arguments, {})
    explored = []
    for whole in (True, False):
        settings = CrashSettings(seed=seed, pretend=True, interpreters=0, whole=whole)
        explorer = Watching(workflow, raw, settings=settings, stand_ins=stubs, signals=())
        explored.append((str(explorer.explore()), explorer.ends))
    assert explored[0] == explored[1]
    assert len(explored[0][1]) > 10


class Watching(Explorer):
    """Records how the run ended at every boundary. It leaves out which process did what, because there may be one
    more."""

    ends: list[Any]

    def _try(self, *given: Any, **more: Any) -> RunOutcomes | None:
        ended = super()._try(*given, **more)
        if ended is not None:
            rows = [msgspec.to_builtins(one) for one in ended.histories.values()]
            for row in (row for one in rows for row in [one["run"], *one["steps"]]):
                row.pop("agent", None)
                row.pop("owner", None)
                row |= {name: round(value, 3) for name, value in row.items() if isinstance(value, float)}
            self.__dict__.setdefault("ends", []).append((rows, ended.why, len(ended.executions)))
        return ended


TWENTY = """
import sys, time
from holdfast.testing.crashes import CrashSettings, Explorer
from tests.testing import kit_flows
workflow = getattr(kit_flows, sys.argv[1])
raw, _ = workflow.shape.checked((20,), {})
begun = time.process_time()
settings = CrashSettings(pretend=True, interpreters=2, final=frozenset({kit_flows.book.name}))
report = Explorer(workflow, raw, settings=settings, stand_ins={}, signals=()).explore()
print(report.ok, len(report.boundaries), time.process_time() - begun)
"""


@pytest.mark.parametrize("workflow", [flows.many, flows.many_at_once], ids=lambda each: each.name)
def test_twenty_steps_take_seconds(workflow: Workflow[[int], int]) -> None:
    """Each step has an undo. The limit is in processor time, with room for a slow machine. It runs in a new process,
    which has loaded what an application loads, and not everything that this suite declares."""
    command = [sys.executable, "-c", TWENTY, workflow.fn.__name__]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    ok, boundaries, took_s = ended.stdout.split()
    assert ok == "True", ended
    assert int(boundaries) > 1000
    assert float(took_s) < 30


@workflow
async def sold(token: str) -> str:
    done = await charge(token, 300)
    return done.id


@workflow
async def sells_in_a_saga(token: str) -> str:
    """The child ends well, and the saga fails."""
    try:
        async with saga():
            await sold(token)
            raise Stop("no stock")
    except Stop:
        return "not sold"


def test_what_a_child_did_in_a_saga_is_undone_after_every_crash(sim: Sim) -> None:
    """The process dies at every boundary of the child, of its undoing, and of the parent."""
    report = sim.crash_everywhere(sells_in_a_saga, "tok")
    assert report.ok, str(report)
    assert any("undo:charge" in str(boundary.crash) for boundary in report.boundaries)
    assert any(line.startswith("refund") for line in flows.log)
