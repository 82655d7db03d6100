"""A run in time: which rows it has, what their bars say, and what is folded."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from holdfast.model import (
    Attempt,
    Ending,
    RunRow,
    RunState,
    StepKind,
    StepRow,
    StepState,
    Twin,
    TwinState,
)
from holdfast.timeline import Bar, Row, Sources, Timeline, drawn
from holdfast.timeline.bars import Gated
from holdfast.timeline.quiet import folds, gaps
from holdfast.timeline.rows import PAGE, ROWS_MAX, SLICES

BEGUN = 1_000.0
RUN = RunRow(
    id="r", namespace="default", workflow="app.flow", version="1", state=RunState.RUNNING, priority=0,
    owner="node", fence=1, input=b"{}", digest=b"", output=None, error=None, tags=None, parent_id=None,
    parent_n=None, retry_of=None, generation=1, base_n=0, progress=None, published=None, resume=None, note=None,
    deadline=None, created_at=BEGUN, started_at=BEGUN, finished_at=None,
)  # fmt: skip
STEP = StepRow(
    run_id="r", n=1, key="work", kind=StepKind.CALL, name="app.work", lane=1, state=StepState.SUCCEEDED,
    priority=0, ready_at=0.0, attempt=1, losses=0, excused=0, attempts_max=3, timeout_s=None, fence=1,
    agent=None, complete_by=None, input=None, digest=None, output=None, error=None, retry=None,
    checkpoint=None, progress=None, delivered_seq=1, issued_at=0.0, started_at=0.0, finished_at=10.0,
)  # fmt: skip


def step(n: int, key: str, begun: float, ended: float | None = None, **more: Any) -> StepRow:
    """A call that was asked for and begun at `begun`. Without an end it runs."""
    state = StepState.RUNNING if ended is None else StepState.SUCCEEDED
    given = {
        "name": f"app.{key.rpartition('/')[2].partition('#')[0]}",
        "state": state,
        "issued_at": BEGUN + begun,
        "ready_at": BEGUN + begun,
        "started_at": BEGUN + begun,
        "finished_at": None if ended is None else BEGUN + ended,
        "agent": "a" if ended is None else None,
    }
    return msgspec.structs.replace(STEP, n=n, key=key, **{**given, **more})


def timer(n: int, key: str, begun: float, ended: float | None = None, **more: Any) -> StepRow:
    state = StepState.WAITING if ended is None else StepState.SUCCEEDED
    given = {
        "kind": StepKind.TIMER,
        "name": "sleep",
        "state": state,
        "started_at": None,
        "attempt": 0,
        "agent": None,
    }
    return step(n, key, begun, ended, **{**given, **more})


def error(kind: str, message: str) -> str:
    return json.dumps({"type": kind, "message": message})


def attempt(n: int, number: int, begun: float, ended: float, ready: float | None, **more: Any) -> Attempt:
    given = {"ending": Ending.FAILED, "error": error("builtins.OSError", "no"), **more}
    return Attempt(
        "r", n, number, given["ending"], "a", given["error"], BEGUN + begun, BEGUN + ended,
        None if ready is None else BEGUN + ready,
    )  # fmt: skip


def picture(
    steps: Sequence[StepRow],
    now: float,
    attempts: Sequence[Attempt] = (),
    run: RunRow = RUN,
    *,
    only: Any = "all",
    group: str = "",
    after: int = 0,
    scheduler: bool = False,
    **more: Any,
) -> Timeline:
    """Draw a run, without the row for its waits for a scheduler."""
    found = drawn(Sources(run, steps, attempts, BEGUN + now, **more), only=only, group=group, after=after)
    found.rows = [row for row in found.rows if scheduler or row.kind != "run"]
    return found


def bars(row: Row) -> list[tuple[str, float, float, str]]:
    return [(bar.kind, bar.begun, bar.ended, bar.fill) for bar in row.bars]


# --- bars -------------------------------------------------------------------------------------------------------------


def test_waiting_for_an_agent_is_not_working() -> None:
    """The wait from being asked for to the beginning is a bar of its own."""
    (row,) = picture([step(1, "work", 0, 8, started_at=BEGUN + 3)], 9).rows
    assert bars(row) == [("queued", 0, 3, "idle"), ("work", 3, 8, "ok")]
    assert (row.state, row.took_s, row.attempts, row.wrong) == ("succeeded", 5, 1, 0)


def test_each_attempt_is_a_bar_and_back_off_is_apart_from_waiting() -> None:
    """`ready_at` of an attempt is where the back-off ends and the wait for an agent begins."""
    tried = [attempt(1, 1, 1, 4, 0), attempt(1, 2, 9, 10, 7, ending=Ending.LOST)]
    last = step(1, "work", 0, 20, attempt=3, ready_at=BEGUN + 14, started_at=BEGUN + 15)
    (row,) = picture([last], 30, tried).rows
    assert bars(row) == [
        ("queued", 0, 1, "idle"), ("work", 1, 4, "fail"),
        ("off", 4, 7, "back"), ("queued", 7, 9, "idle"), ("work", 9, 10, "lost"),
        ("off", 10, 14, "back"), ("queued", 14, 15, "idle"), ("work", 15, 20, "ok"),
    ]  # fmt: skip
    assert [(mark.at, mark.glyph) for mark in row.marks] == [(4, "fail"), (10, "lost")]
    assert (row.wrong, row.took_s) == (2, 5)
    assert row.bars[1].words == "OSError: no"
    assert row.bars[4].hatch


def test_an_attempt_of_an_older_version_has_no_time_at_which_it_was_ready() -> None:
    """Then all the time before it is a wait."""
    rows = picture(
        [step(1, "work", 0, 20, attempt=2, started_at=BEGUN + 15)], 30, [attempt(1, 1, 1, 4, None)]
    ).rows
    assert bars(rows[0]) == [
        ("queued", 0, 1, "idle"),
        ("work", 1, 4, "fail"),
        ("queued", 4, 15, "idle"),
        ("work", 15, 20, "ok"),
    ]


def test_a_back_off_goes_beyond_now_with_the_next_attempt_in_words() -> None:
    backs = step(1, "work", 0, state=StepState.READY, attempt=2, ready_at=BEGUN + 50, agent=None)
    found = picture([backs], 26, [attempt(1, 2, 1, 20, 0)])
    (row,) = found.rows
    assert bars(row)[-1] == ("off", 20, 50, "back")
    assert (row.state, row.says[-1].words) == ("backing off", "attempt 3 in 24 s")
    assert found.until > 50


def test_what_is_far_away_does_not_stretch_the_picture() -> None:
    """A back-off to the end of next week would leave no room for what happened."""
    backs = step(1, "work", 0, state=StepState.READY, attempt=1, ready_at=BEGUN + 9_999, agent=None)
    assert picture([backs], 10, [attempt(1, 1, 0, 5, 0)]).until < 25


@pytest.mark.parametrize("fill", ["held", "fail"])
def test_a_gate_colours_the_wait_from_when_it_closed(fill: Any) -> None:
    ready = step(1, "work", 0, state=StepState.READY, attempt=0, started_at=None, agent=None)
    (row,) = picture([ready], 20, gate=lambda _: Gated(fill, "is held by ada", BEGUN + 5)).rows
    assert bars(row) == [("queued", 0, 5, "idle"), ("queued", 5, 20, fill)]
    assert row.says[-1].words == "is held by ada"


def test_a_step_in_quarantine_says_so() -> None:
    from holdfast.model import NEVER

    rows = picture(
        [step(1, "work", 0, state=StepState.READY, ready_at=NEVER, agent=None)], 20, [attempt(1, 1, 0, 4, 0)]
    ).rows
    assert rows[0].state == "quarantined"
    assert bars(rows[0]) == [("work", 0, 4, "fail"), ("queued", 4, 20, "fail")]


def test_sleeping_is_a_line_to_now_with_an_open_end() -> None:
    """Nothing is foretold of it."""
    (row,) = picture([timer(1, "sleep", 0, ready_at=BEGUN + 500)], 20).rows
    assert (bars(row), row.marks[0].glyph, row.state) == ([("sleep", 0, 20, "wait")], "open", "waiting")


def test_a_twin_is_below_its_step() -> None:
    twin = Twin("r", 1, TwinState.WON, "a", "b", BEGUN + 2, BEGUN + 3, BEGUN + 6)
    (row,) = picture([step(1, "work", 0, 6)], 9, twins={1: twin}).rows
    assert [(bar.begun, bar.ended, bar.half) for bar in row.bars] == [(0, 6, "above"), (3, 6, "below")]


def test_a_straggler_says_how_long_such_steps_take() -> None:
    (row,) = picture([step(1, "work", 0)], 54, bounds={"app.work": 21.0}).rows
    assert (row.says[0].words, row.says[0].before) == ("54 s, at most 21 s as a rule", True)
    assert row.bars[0].live


def test_a_late_report_is_no_attempt_that_went_wrong() -> None:
    """It was refused after the step had been cancelled."""
    late = Attempt("r", 1, 1, Ending.REFUSED, "a", None, None, BEGUN + 6)
    (row,) = picture([step(1, "work", 0, 5, state=StepState.CANCELLED)], 9, [late]).rows
    assert (bars(row), row.marks, row.wrong) == ([("work", 0, 5, "idle")], [], 0)


def test_a_child_is_a_line_with_its_run() -> None:
    rows = picture(
        [step(1, "family", 0, 5, kind=StepKind.CHILD, started_at=None, attempt=0)],
        9,
        children={1: "r/family"},
    ).rows
    assert (bars(rows[0]), rows[0].child, rows[0].small) == ([("child", 0, 5, "ok")], "r/family", "child run")


# --- rows -------------------------------------------------------------------------------------------------------------


def test_calls_one_after_the_other_share_a_row_with_their_naps() -> None:
    """A row is a place in the code."""
    steps = [
        step(1, "is_up", 0, 1), timer(2, "sleep", 1, 3), step(3, "is_up#2", 3, 4),
        timer(4, "sleep#2", 4, 6), step(5, "is_up#3", 6, 7), timer(6, "sleep#3", 7),
    ]  # fmt: skip
    (row,) = picture(steps, 8).rows
    assert (row.id, row.name, row.small, row.steps, row.n) == ("s1", "is_up", "× 3", 3, 5)
    assert [bar.kind for bar in row.bars] == ["work"] * 3 + ["nap"] * 3
    assert (row.state, row.ended) == ("waiting", None)


def test_a_sleep_that_is_no_nap_has_a_row() -> None:
    steps = [step(1, "book", 0, 1), timer(2, "sleep", 1, 3), step(3, "pay", 3, 4)]
    assert [row.name for row in picture(steps, 8).rows] == ["book", "sleep", "pay"]


def test_calls_side_by_side_have_a_row_each() -> None:
    steps = [step(1, "fetch", 0, 5), step(2, "fetch#2", 0, 3), step(3, "fetch#3", 0, 4)]
    assert [row.name for row in picture(steps, 8).rows] == ["fetch", "fetch#2", "fetch#3"]


def test_a_branch_has_a_heading_only_if_it_has_more_than_three_rows() -> None:
    few = [step(1, "database/create", 0, 1), step(2, "machine/create", 0, 1), step(3, "database/check", 1, 2)]
    assert [(row.path, row.name) for row in picture(few, 3).rows] == [
        ("database/", "create"), ("database/", "check"), ("machine/", "create"),
    ]  # fmt: skip
    many = [step(n, f"database/{name}", n, n + 1) for n, name in enumerate(("a", "b", "c", "d"), 1)]
    head, *rows = picture(many, 9).rows
    assert (head.kind, head.id, head.name, head.is_open) == ("branch", "b:database/", "database", True)
    assert [(row.level, row.path, row.name) for row in rows] == [(2, "", name) for name in "abcd"]


def test_a_timeout_that_did_not_fire_is_no_row() -> None:
    limit: dict[str, Any] = {"name": "timeout"}
    steps = [
        timer(1, "timeout", 0, **limit),
        timer(2, "timeout#2", 0, 5, **limit, state=StepState.CANCELLED),
        timer(3, "late/timeout", 0, 5, **limit),
        timer(4, "$deadline", 0),
    ]
    assert [(row.path, row.name) for row in picture(steps, 9).rows] == [("late/", "timeout")]


def test_open_and_what_went_wrong_can_be_asked_for() -> None:
    steps = [
        step(1, "a", 0, 1),
        step(2, "b", 1, 3, attempt=2),
        step(3, "c", 3),
        step(4, "d", 3, 4, state=StepState.FAILED),
    ]
    tried = [attempt(2, 1, 1, 2, 1)]
    assert [row.name for row in picture(steps, 9, tried, only="open").rows] == ["c"]
    assert [row.name for row in picture(steps, 9, tried, only="wrong").rows] == ["b", "d"]


def test_a_wait_for_a_scheduler_stands_on_the_runs_own_row() -> None:
    """Only if it took more than a hundredth of the whole."""
    found = picture([step(1, "a", 20, 40), step(2, "b", 40.2, 100)], 100, scheduler=True)
    assert (found.rows[0].kind, bars(found.rows[0])) == ("run", [("queued", 0, 20, "idle")])
    assert [row.kind for row in picture([step(1, "a", 0.5, 100)], 100, scheduler=True).rows] == ["step"]


# --- many steps -------------------------------------------------------------------------------------------------------


def fanned(count: int, failing: int = 0, running: int = 0) -> list[StepRow]:
    """Calls of one name side by side. Every tenth fails until so many have failed; the last ones run."""
    found = []
    for n in range(1, count + 1):
        key = "post" if n == 1 else f"post#{n}"
        if n > count - running:
            found.append(step(n, key, n / 100))
        elif n % 10 == 0 and n // 10 <= failing:
            wrong = {"state": StepState.FAILED, "error": error("builtins.ValueError", f"row {n % 20}")}
            found.append(step(n, key, n / 100, n / 100 + 2, **wrong))
        else:
            found.append(step(n, key, n / 100, n / 100 + 2))
    return found


def test_many_of_one_name_are_one_tall_row_with_outcomes_below() -> None:
    head, *below = picture(fanned(200, failing=12, running=60), 9).rows
    assert (head.kind, head.id, head.name, head.small) == ("group", "g:post", "post", "× 200")
    assert head.density is not None
    assert len(head.density.work) == len(head.density.wrong) == SLICES
    assert max(head.density.work) == 1.0
    assert any(head.density.wrong)
    assert (below[0].name, below[0].is_open, below[0].id) == ("128 succeeded", False, "g:post:succeeded")
    singles = [row for row in below if row.kind == "step"]
    assert [row.state for row in singles] == ["failed"] * 5 + ["running"] * 50
    assert [row.name for row in below[-2:]] == ["7 more failed", "10 more running"]
    assert below[-2].small.startswith("as post#")


def test_a_shut_row_is_opened_by_its_id_a_page_at_a_time() -> None:
    steps = fanned(1_300)
    first = picture(steps, 30, group="g:post:succeeded")
    assert (len(first.rows), first.next, first.rows[0].name) == (PAGE, PAGE, "post")
    last = picture(steps, 30, group="g:post:succeeded", after=1_000)
    assert (len(last.rows), last.next, last.rows[-1].name) == (300, None, "post#1300")
    assert picture(steps, 30, group="g:nothing").rows == []


def test_a_run_with_many_rows_opens_with_its_branches_shut() -> None:
    steps, n = [step(1, "begin", 0, 1)], 1
    for branch in range(120):
        for name in ("a", "b", "c", "d"):
            n += 1
            steps.append(step(n, f"item-{branch}/{name}", n, n + 1))
    found = picture(steps, 999)
    assert len(found.rows) == 121 < ROWS_MAX
    assert {row.is_open for row in found.rows[1:]} == {False}
    inside = picture(steps, 999, group="b:item-7/")
    assert [row.name for row in inside.rows] == ["a", "b", "c", "d"]


def test_ten_thousand_steps_are_quick_and_small() -> None:
    """The whole picture is made in well under a second, and its first part is small."""
    steps = fanned(10_000, failing=40, running=80)
    tried = [attempt(step.n, 1, step.n / 100, step.n / 100 + 1, 0) for step in steps[::50]]
    begun = time.process_time()
    found = picture(steps, 200, tried)
    assert time.process_time() - begun < 3.0  # a tenth of it on an idle machine
    assert len(msgspec.json.encode(found)) < 60_000
    assert sum(row.steps for row in found.rows if row.kind in {"rest", "step"}) == 10_000


# --- undo -------------------------------------------------------------------------------------------------------------

TURNED = msgspec.structs.replace(
    RUN, state=RunState.UNDOING, ending="failed",
    error=json.dumps({"type": "holdfast.errors.Stop", "message": "no", "seq": 3, "steps": [3]}),
)  # fmt: skip


def test_undos_mirror_what_was_done() -> None:
    """Below the fold the newest effect comes first, each with its pair, and what is to come is dashed."""
    steps = [
        step(1, "network", 0, 1, delivered_seq=1), step(2, "database", 1, 2, delivered_seq=2),
        step(3, "machine", 1, 4, state=StepState.FAILED, error=error("Stop", "full"), delivered_seq=3),
        step(4, "undo:machine", 5, 6, after_seq=3), step(5, "undo:database", 5, after_seq=3),
    ]  # fmt: skip
    found = picture(steps, 9, run=TURNED, to_undo=[steps[1], steps[0]])
    assert found.turn is not None
    assert (found.turn.at, found.turn.words) == (5, "failed")
    assert [(row.name, row.pair) for row in found.rows] == [
        ("network", "u1"),
        ("database", "u2"),
        ("machine", "u3"),
    ]
    undo = found.undo
    assert undo is not None
    assert (undo.done, undo.total) == (1, 3)
    assert [(row.id, row.name, row.state, row.pair) for row in undo.rows] == [
        ("u3", "undo:machine", "succeeded", "s3"),
        ("u2", "undo:database", "running", "s2"),
        ("u1", "undo:network", "planned", "s1"),
    ]
    assert [(bar.kind, bar.fill, bar.hatch) for bar in undo.rows[0].bars] == [("work", "back", True)]
    assert [bar.kind for bar in undo.rows[2].bars] == ["ghost"]


def test_what_has_no_undo_is_named_once() -> None:
    steps = [
        step(1, "check", 0, 1),
        step(2, "check#2", 1, 2),
        step(3, "pay", 2, 3),
        step(4, "undo:pay", 4, 5, after_seq=3),
    ]
    undo = picture(steps, 9, run=TURNED).undo
    assert undo is not None
    assert undo.kept == ["check"]


def test_a_run_that_did_nothing_has_no_fold() -> None:
    """Where nothing is undone and nothing is kept, there is nothing to say."""
    steps = [step(1, "pay", 0, 1, state=StepState.FAILED, error=error("Stop", "no"), delivered_seq=1)]
    assert picture(steps, 9, run=TURNED).undo is None


def test_tries_of_one_undo_share_a_row() -> None:
    gave_up = {"state": StepState.FAILED, "after_seq": 3, "error": error("OSError", "in use")}
    steps = [
        step(1, "pay", 0, 1),
        step(2, "undo:pay", 4, 5, **gave_up),
        step(3, "undo:#2:pay", 6, 7, after_seq=5),
    ]
    undo = picture(steps, 9, run=TURNED).undo
    assert undo is not None
    (row,) = undo.rows
    assert (row.name, row.small, row.state, undo.done) == ("undo:pay", "2 tries", "succeeded", 1)


def test_what_a_saga_undid_stands_inside_its_branch() -> None:
    steps = [
        step(1, "trip/flight", 0, 1), step(2, "trip/hotel", 1, 2, state=StepState.FAILED),
        step(3, "undo:trip/flight", 2, 3), step(4, "apologise", 3, 4),
    ]  # fmt: skip
    found = picture(steps, 9)
    assert found.undo is None
    assert [(row.kind, row.name) for row in found.rows] == [
        ("branch", "trip"), ("step", "flight"), ("step", "hotel"),
        ("undone", "Undone, newest first"), ("undo", "undo:trip/flight"), ("step", "apologise"),
    ]  # fmt: skip


# --- time -------------------------------------------------------------------------------------------------------------


def test_long_quiet_stretches_are_folded_when_most_of_the_run_is_quiet() -> None:
    steps = [step(1, "book", 0, 10), timer(2, "sleep", 10, 1_000), step(3, "pay", 1_000, 1_010)]
    found = picture(
        steps, 1_010, run=msgspec.structs.replace(RUN, state=RunState.SUCCEEDED, finished_at=BEGUN + 1_010)
    )
    (fold,) = found.folds
    assert 10 <= fold.begun < 12
    assert 998 < fold.ended <= 1_000
    assert (fold.words, found.is_folded) == ("16 min", True)


def test_a_busy_run_is_not_folded() -> None:
    found = picture([step(1, "a", 0, 60), step(2, "b", 80, 100)], 100)
    assert (len(found.folds), found.is_folded) == (1, False)


def test_folds_never_cover_work_and_are_few() -> None:
    """Whatever works, it is outside of every fold."""
    working = [(n * 100.0, n * 100.0 + 1) for n in range(12)]
    found, is_folded = folds(working, 1_101)
    assert is_folded
    assert len(found) <= 5
    for fold in found:
        assert all(ended <= fold.begun or begun >= fold.ended for begun, ended in working)


def test_gaps_are_what_nothing_covers() -> None:
    assert gaps([(2, 3), (1, 2.5), (5, 9)], 0, 7) == [(0, 1), (3, 5)]
    assert gaps([], 0, 7) == [(0, 7)]


def test_the_point_of_no_return_stands_where_the_kept_steps_ended() -> None:
    run = msgspec.structs.replace(RUN, kept_n=2)
    assert picture([step(1, "a", 0, 1), step(2, "b", 1, 4), step(3, "c", 4)], 9, run=run).kept_at == 4


def test_a_likely_end_is_in_the_picture_if_it_is_near() -> None:
    assert picture([step(1, "a", 0)], 10, eta_s=5.0).eta_at == 15
    assert picture([step(1, "a", 0)], 10, eta_s=500.0).eta_at is None


def test_hostile_keys_are_rows_like_others() -> None:
    """Slashes, colons, hashes and markup in a key break nothing."""
    keys = ["a//b", "/", "x:</script>/y", "undo", "#2", "a#2/b#3", "é" * 200]
    steps = [step(n, key, n, n + 1) for n, key in enumerate(keys, 1)]
    assert {row.n for row in picture(steps, 20).rows if row.kind == "step"} == set(range(1, len(keys) + 1))


def test_every_field_of_a_bar_is_written_only_if_it_says_something() -> None:
    assert json.loads(msgspec.json.encode(Bar(kind="nap", begun=1, ended=2))) == {
        "kind": "nap",
        "begun": 1.0,
        "ended": 2.0,
    }
