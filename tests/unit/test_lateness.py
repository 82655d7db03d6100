"""Whether a run or a step keeps the promise of when it ends."""

from __future__ import annotations

import pytest

from holdfast.durations import Eta, rest_name, start_name, step_name
from holdfast.lateness import Promise, due_words, judge, run_promise, step_promise
from holdfast.model import DueRun, DueStep, Landmark, RunState, StepState
from holdfast.sketch import Sketch, bucket_of

HOUR = 3600.0


def took(seconds: float, times: int = 30) -> Sketch:
    return Sketch({bucket_of(seconds): times})


def due_run(state: RunState = RunState.RUNNING, **fields: object) -> DueRun:
    values = {"id": "r", "workflow": "w", "state": state, "generation": 1, "base_n": 0, "created_at": 0.0}
    values |= {
        "started_at": None if state is RunState.PENDING else 1e-6,
        "begin_at": None,
        "due_at": 2 * HOUR,
    }
    return DueRun(**(values | fields))  # type: ignore[arg-type]


def test_what_is_open_at_its_due_time_is_late() -> None:
    """Not a moment before, if nothing is known; and from then on always."""
    promise = Promise(due_at=100.0, begins=0.0, stands="", rest_s=None)
    assert judge(promise, 99.9) == ("", 100.0)
    assert judge(promise, 100.0).is_late
    assert judge(promise, 5000.0).look_at is None


@pytest.mark.parametrize(("now", "late"), [(39.0, False), (41.0, True)])
def test_it_is_late_as_soon_as_what_is_left_takes_too_long(now: float, late: bool) -> None:
    """Nine of ten took a minute from here, and it is due at 100."""
    verdict = judge(Promise(100.0, 0.0, "", 60.0), now)
    assert verdict.is_late is late
    assert verdict.look_at == (100.0 if late else 40.0)


def test_with_few_observations_only_half_of_the_time_warns_and_only_of_what_stands() -> None:
    """What goes on may well be in time. What has not begun at half of its time will probably not be."""
    assert not judge(Promise(100.0, 0.0, "", None), 99.0).is_late
    stands = Promise(100.0, 0.0, "has not begun", None)
    assert judge(stands, 49.0) == ("", 50.0)
    assert judge(stands, 50.0).is_late
    assert "has not begun, and half of the time is gone" in judge(stands, 50.0).why


def test_a_delay_is_no_lateness() -> None:
    """The time of a run that begins later counts from then. But if that is too late, it is known from the start."""
    planned = Promise(200.0, 100.0, "has not begun", None)
    assert judge(planned, 0.0) == ("", 150.0)
    assert judge(planned._replace(rest_s=90.0), 0.0) == ("", 110.0)
    assert judge(planned._replace(rest_s=110.0), 0.0).is_late


def test_what_people_were_notified_about_has_caught_up_only_with_a_margin() -> None:
    """Or it would be late, in time and late again within minutes."""
    promise = Promise(100.0, 0.0, "", 58.0)
    assert not judge(promise, 40.0).is_late
    assert judge(promise, 40.0, warned=True).is_late
    assert not judge(promise._replace(rest_s=50.0), 40.0, warned=True).is_late


def test_every_verdict_names_a_moment_ahead_or_none() -> None:
    """So a leader that looks at that moment looks again only when time has passed."""
    for now in range(0, 130, 5):
        for stands in ("", "is held"):
            for rest_s in (None, 0.5, 40.0, 99.0, 300.0):
                for warned in (False, True):
                    look_at = judge(Promise(100.0, 10.0, stands, rest_s), float(now), warned=warned).look_at
                    assert look_at is None if now >= 100 else look_at is not None and look_at > now


def test_the_rest_of_a_run_is_learned_from_its_landmark() -> None:
    """The newest landmark says more than the beginning, if 30 runs are known there."""
    mark = Landmark("r", 3, "ship", 50.0)
    known = {start_name("w"): took(1000.0), rest_name("w", "ship", 3): took(100.0)}
    rest_s = run_promise(due_run(), mark, known, 60.0).rest_s
    assert rest_s is not None
    assert rest_s == pytest.approx(90.0, abs=6)
    known[rest_name("w", "ship", 3)] = took(100.0, 29)
    rest_s = run_promise(due_run(), mark, known, 60.0).rest_s
    assert rest_s is not None
    assert rest_s == pytest.approx(940.0, rel=0.06)
    known[start_name("w")] = took(1000.0, 29)
    assert run_promise(due_run(), mark, known, 60.0).rest_s is None


@pytest.mark.parametrize("state", [RunState.HELD, RunState.STUCK, RunState.PENDING])
def test_a_run_that_stands_needs_what_is_left_from_where_it_stands(state: RunState) -> None:
    """A run that has not begun needs all of it."""
    known = {start_name("w"): took(1000.0)}
    promise = run_promise(due_run(state), None, known, 0.0)
    assert promise.rest_s == pytest.approx(1000.0, rel=0.06)
    assert promise.stands == ("has not begun" if state is RunState.PENDING else f"is {state}")


def test_nothing_is_known_about_undoing() -> None:
    """Learned durations are those of runs that succeeded."""
    assert run_promise(due_run(RunState.UNDOING), None, {start_name("w"): took(10.0)}, 0.0).rest_s is None


def test_a_steps_promise_counts_all_attempts_and_its_rest_the_newest() -> None:
    """It warns at the 90th percentile of its name."""
    known = {step_name("charge"): Sketch({bucket_of(10.0): 90, bucket_of(60.0): 10})}
    step = DueStep("r", 1, "charge", "charge", StepState.RUNNING, 0.0, 20.0, 100.0)
    promise = step_promise(step, known, 25.0)
    assert promise.begins == 0.0
    assert promise.stands == ""
    assert promise.rest_s == pytest.approx(5.0, abs=0.6)
    waits = step_promise(DueStep("r", 1, "charge", "charge", StepState.READY, 0.0, None, 100.0), known, 25.0)
    assert waits.stands
    assert waits.rest_s == pytest.approx(10.0, rel=0.06)


def test_words_say_when_something_is_due_and_whether_it_is_late() -> None:
    """The same words for a list, a page and `why`."""
    assert due_words(None, None, 0.0) == ""
    assert due_words(600.0, None, 0.0) == "due in 10 min"
    assert due_words(600.0, None, 0.0, Eta(500.0, 700.0, 30)) == "due in 10 min, probably late"
    assert due_words(600.0, None, 0.0, Eta(500.0, 700.0, 29)) == "due in 10 min"
    assert due_words(600.0, None, 900.0) == "late: due 5 min ago"
    assert due_words(600.0, 900.0, 1000.0) == "ended 5 min late"
    assert due_words(600.0, 500.0, 1000.0) == "ended in time"
