"""`crash_everywhere`: every boundary of a workflow, and what happens when the process dies there."""

import pytest

from holdfast import here
from holdfast.testing import NotEnded, Sim
from tests.testing import kit_flows as flows
from tests.testing.kit_flows import Charge, book, charge, mail, paid, refund


@pytest.fixture(autouse=True)
def clean_log() -> None:
    flows.log.clear()


def test_a_step_that_hands_on_its_key_has_one_effect(sim: Sim) -> None:
    """It runs again after a crash; whoever got `here.key` knows it."""
    report = sim.crash_everywhere(flows.sells_for_good, "tok")
    assert report.effects(charge) == {1}
    twice = [line for line in flows.log if line.startswith("charge")]
    assert len(twice) > len(set(twice)) == 1  # it is executed again and again, under one key


def test_a_step_that_does_not_is_named_with_its_boundary(sim: Sim) -> None:
    """The step, the first boundary that did it, the next move, and how to see it again."""
    report = sim.using(failures=False).crash_everywhere(flows.order, "tok")
    assert report.effects(mail) == {1, 2}
    assert {finding.step for finding in report.twice} == {"tests.testing.kit_flows.mail"}
    first = report.twice[0]
    assert first.boundary.crash == "after mail, before its result is recorded"
    told = str(report)
    assert "mail ran twice\n  when the process dies after mail, before its result is recorded" in told
    assert f"sim.using(boundary={first.boundary.number}, seed=0)" in told
    again = sim.using(boundary=first.boundary.number).crash_everywhere(flows.order, "tok")
    assert again.twice == [first]
    assert any("the process dies after mail" in line for line in again.trace)


def test_all_boundaries_are_tried(sim: Sim) -> None:
    """Before and after every step and every commit, each once, in the order in which they are passed."""
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
    """A step may be declared idempotent; keys need not be trusted; a test may count effects itself."""
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
    """A value runs no code: whether the key is handed on is read from the step's own."""
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
    assert any(line.startswith("refund simulated::charge ?") for line in flows.log)  # nobody knew


def test_what_is_not_undone_is_named(sim: Sim) -> None:
    """`book` hands on its key, so it changes something; when a later step fails, nothing takes it back."""
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
    assert "it does not hand on here.undoes or here.key" in str(report)
    assert "if twice does no harm, say so: sim.using(idempotent=[refund])" in str(report)
    assert "undisturbed, it ends undone: Stop: out of stock" in str(report)


@pytest.mark.parametrize(
    "workflow", [flows.tries, flows.parent, flows.sells_for_good], ids=lambda each: each.name
)
def test_sagas_children_and_points_of_no_return_hold(sim: Sim, workflow: object) -> None:
    """Whatever dies, what was done is undone or kept, as the workflow says."""
    assert isinstance(workflow, type(flows.tries))
    report = sim.using(idempotent=[mail]).crash_everywhere(workflow, "tok")
    assert report.ok, str(report)
    assert len(report.boundaries) > 20


def test_signals_can_be_promised(sim: Sim) -> None:
    """Every run is sent them; without, the error says what the workflow waits for. A timeout is passed by waiting."""
    with pytest.raises(NotEnded, match=r"waits for the signal 'paid'.*`sim\.will_send\(signal, value\)`"):
        sim.crash_everywhere(flows.hurries)
    assert sim.crash_everywhere(flows.awaits).ok
    sim.will_send(paid, 4)
    assert sim.crash_everywhere(flows.hurries).ok


def test_the_same_seed_explores_the_same(sim: Sim) -> None:
    """And another seed lets steps that run in parallel end in another order."""
    sim.stub(flows.render)
    names = [
        [
            boundary.crash
            for boundary in sim.using(seed=seed, failures=False).crash_everywhere(flows.gallery).boundaries
        ]
        for seed in (1, 1, 2)
    ]
    assert names[0] == names[1] != names[2]


def test_an_exploration_can_be_bounded(sim: Sim) -> None:
    """What was not tried is counted."""
    report = sim.using(boundaries_max=5).crash_everywhere(flows.order, "tok")
    assert len(report.boundaries) == 5
    assert report.left > 5
    assert "not tried: a limit was reached" in str(report)
