"""Pure functions that turn rows into words and pictures."""

import msgspec
import pytest

from holdfast.model import Attempt, Ending, StepKind, StepRow, StepState
from holdfast.terminal.timeline import BarScale, bar, tree_rows
from holdfast.terminal.wording import chosen_steps, detail, span, waits_for
from holdfast.timeline.places import components

PLAIN = StepRow(
    run_id="r", n=1, key="work", kind=StepKind.CALL, name="app.work", lane=1, state=StepState.SUCCEEDED,
    priority=0, ready_at=0.0, attempt=1, losses=0, excused=0, attempts_max=3, timeout_s=None, fence=1,
    agent=None, complete_by=None, input=None, digest=None, output=None, error=None, retry=None,
    checkpoint=None, progress=None, delivered_seq=None, issued_at=0.0, started_at=0.0, finished_at=10.0,
)  # fmt: skip


def step(**other: object) -> StepRow:
    return msgspec.structs.replace(PLAIN, **other)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 ms"),
        (0.34, "340 ms"),
        (0.9999, "1.0 s"),
        (1.26, "1.3 s"),
        (65, "65 s"),
        (720, "12 min"),
        (3 * 3600, "3 h"),
        (5 * 86_400, "5 d"),
    ],
)
def test_a_duration_has_two_digits_and_a_unit(seconds: float, words: str) -> None:
    """A duration reads as people say it."""
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("charge", ["charge"]),
        ("branch#2/charge", ["branch#2", "charge"]),
        ("a/b/charge:eu/west:1", ["a", "b", "charge:eu/west:1"]),
    ],
)
def test_a_key_splits_at_the_task_tree_only(key: str, parts: list[str]) -> None:
    """The free text of an explicit key keeps its slashes."""
    assert components(key) == parts


def test_rows_keep_a_branch_together() -> None:
    """Steps of parallel branches were issued in turn. Each branch is one block, in the order of its first step."""
    keys = ["first", "left/a", "right/a", "left/b", "right/b", "last"]
    rows = tree_rows([step(n=n, key=key) for n, key in enumerate(keys, 1)])
    assert [(lane.depth, lane.label) for lane in rows] == [
        (0, "first"),
        (0, "left"),
        (1, "a"),
        (1, "b"),
        (0, "right"),
        (1, "a"),
        (1, "b"),
        (0, "last"),
    ]


def test_a_bar_shows_waiting_running_and_failing() -> None:
    """The step was issued at 0, failed from 2 to 4, backed off, and ran from 6 to 10."""
    tried = [Attempt("r", 1, 1, Ending.FAILED, None, None, 2.0, 4.0)]
    drawn = bar(step(started_at=6.0, finished_at=9.9), tried, BarScale(0.0, 10.0, 10), 10.0)
    assert drawn.plain == "┄┄━━✗┄━━━━"


def test_a_short_list_prefers_what_goes_on_and_what_failed() -> None:
    """Of many steps it chooses running ones, then waiting, then failed, then those that ended last, in the order of
    their numbers."""
    steps = [step(n=n, finished_at=float(n)) for n in range(1, 101)]
    steps[3] = step(n=4, state=StepState.FAILED, finished_at=4.0)
    steps[9] = step(n=10, state=StepState.RUNNING, finished_at=None)
    steps[19] = step(n=20, state=StepState.READY, finished_at=None)
    chosen, left_out = chosen_steps(steps, 6)
    assert ([one.n for one in chosen], left_out) == ([4, 10, 20, 99, 100], 95)


def test_what_a_step_waits_for() -> None:
    """Each kind of waiting is described in a few words."""
    live = {"state": StepState.WAITING, "finished_at": None}
    assert detail(step(**live, kind=StepKind.TIMER, ready_at=100.0), (), 40.0) == "another 60 s"
    assert detail(step(**live, kind=StepKind.SIGNAL, name="paid"), (), 40.0) == "for signal 'paid'"
    backing_off = step(state=StepState.READY, finished_at=None, ready_at=43.0)
    assert detail(backing_off, (), 40.0) == "attempt 2 of 3 in 3.0 s"
    running = step(n=2, key="other", state=StepState.RUNNING, finished_at=None)
    assert waits_for([backing_off, running], 40.0) == "other and 1 more"
