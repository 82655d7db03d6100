"""Claims about what becomes of the times of schedules: every cell of the tables of policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from holdfast.model import (
    BackfillRow,
    BackfillState,
    FireFate,
    OpenFire,
    RunState,
    ScheduleRow,
    ScheduleState,
)
from holdfast.times import TZDATA, Plan
from holdfast.times.backfill import fill, left_of, starts_as, times_of
from holdfast.times.decision import COUNTED_MAX, Decision, decide, decide_now, resume, run_id, scheduled
from holdfast.times.plan import BUFFERED_MAX, LATE_S

HOUR = 3600.0
T = 1000 * HOUR
"""A time of an hourly schedule."""
BEFORE = T - HOUR


def schedule(**fields: Any) -> ScheduleRow:
    row = ScheduleRow(
        "nightly", "default", "", "app.nightly", "1", b"{}", b"d", 0, None, None, "", ScheduleState.ACTIVE, "", "",
        BEFORE, T, 0, 0, 0, None, None, TZDATA, 0.0,
    )  # fmt: skip
    return msgspec.structs.replace(row, **fields)


def opened(at: float = BEFORE, state: RunState | None = RunState.RUNNING, **fields: Any) -> OpenFire:
    return OpenFire("nightly", at, 1, "started", run_id("nightly", at), None, False, state)._replace(**fields)


def buffered(at: float) -> OpenFire:
    return OpenFire("nightly", at, 1, "buffered", None, None, False, None)


def plan(**fields: Any) -> Plan:
    made = Plan("1h", **fields)
    made.check()
    return made


def fates(decision: Decision) -> list[tuple[float, str, int]]:
    """The times relative to T, in hours, their fates, and how many times a row stands for."""
    return [((fire.at - T) / HOUR, str(fire.fate), fire.times) for fire in decision.fires]


def started(decision: Decision) -> list[float]:
    return [(fire.at - T) / HOUR for fire in decision.starts]


def changes(decision: Decision) -> list[tuple[float, str, bool]]:
    return [((one.at - T) / HOUR, str(one.fate), one.ended) for one in decision.changes]


@pytest.mark.parametrize(
    ("overlap", "fate", "starts", "cancels"),
    [
        ("skip", "skipped", [], 0),
        ("buffer_one", "buffered", [], 0),
        ("buffer_all", "buffered", [], 0),
        ("cancel_other", "buffered", [], 1),
        ("allow", "started", [0.0], 0),
    ],
)
@pytest.mark.parametrize(
    "state", [RunState.RUNNING, RunState.UNDOING, RunState.HELD, RunState.PENDING, RunState.STUCK]
)
def test_a_time_that_comes_while_a_run_is_open(
    overlap: str, fate: str, starts: list[float], cancels: int, state: RunState
) -> None:
    """The overlap policy decides, whatever keeps the run open."""
    made = decide(schedule(), plan(overlap=overlap), [opened(state=state)], T + 1)
    assert fates(made) == [(0, fate, 1)]
    assert started(made) == starts
    assert made.cancels == [run_id("nightly", BEFORE)] * cancels
    assert (made.row.cursor, made.row.next_at) == (T, T + HOUR)


@pytest.mark.parametrize("overlap", ["skip", "buffer_one", "buffer_all", "cancel_other", "allow"])
def test_a_time_that_comes_while_nothing_is_open_starts(overlap: str) -> None:
    """Also if the run before has ended and nobody has noted that yet."""
    made = decide(schedule(), plan(overlap=overlap), [opened(state=RunState.SUCCEEDED)], T + 1)
    assert fates(made) == [(0, "started", 1)]
    assert started(made) == [0]
    assert changes(made) == [(-1, "started", True)]
    assert (made.row.last_run, made.row.last_at) == (run_id("nightly", BEFORE), BEFORE)


def test_a_time_that_waited_starts_when_the_open_run_ends() -> None:
    """And the run is no longer open."""
    made = decide(
        schedule(cursor=T, next_at=T + HOUR),
        plan(overlap="buffer_one"),
        [opened(state=RunState.FAILED), buffered(T)],
        T + 60,
    )
    assert changes(made) == [(-1, "started", True), (0, "started", False)]
    assert started(made) == [0]
    assert fates(made) == []


def test_buffer_one_keeps_the_newest() -> None:
    """The one that waited is replaced."""
    row = schedule(cursor=T, next_at=T + HOUR)
    made = decide(row, plan(overlap="buffer_one"), [opened(), buffered(T)], T + HOUR)
    assert changes(made) == [(0, "replaced", True)]
    assert fates(made) == [(1, "buffered", 1)]


@pytest.mark.parametrize("overlap", ["buffer_one", "cancel_other"])
def test_a_time_that_was_replaced_is_no_run_of_all(overlap: str) -> None:
    """Of three runs in all, one is open, and one that waited is replaced: after the newest, one is left."""
    row = schedule(cursor=T, next_at=T + HOUR, started=2)
    made = decide(row, plan(overlap=overlap, count=3), [opened(), buffered(T)], T + HOUR)
    assert changes(made) == [(0, "replaced", True)]
    assert fates(made) == [(1, "buffered", 1)]
    assert (made.row.started, made.row.state) == (2, ScheduleState.ACTIVE)


def test_buffer_all_starts_the_oldest_and_has_a_limit() -> None:
    """Beyond the limit, times are skipped, and there is an alert."""
    row = schedule(cursor=T + HOUR, next_at=T + 2 * HOUR)
    made = decide(
        row, plan(overlap="buffer_all"), [opened(state=None), buffered(T), buffered(T + HOUR)], T + 2 * HOUR
    )
    assert started(made) == [0]
    assert fates(made) == [(2, "buffered", 1)]
    many = [buffered(T - n * HOUR) for n in range(1, BUFFERED_MAX + 1)]
    made = decide(schedule(), plan(overlap="buffer_all"), [opened(), *many], T)
    assert fates(made) == [(0, "skipped", 1)]
    assert [about for about, _ in made.alerts] == ["full"]


@pytest.mark.parametrize(
    ("missed", "expected", "starts"),
    [
        ({"missed": "skip"}, [(1, "missed", 47), (48, "missed", 24)], []),
        ({}, [(1, "missed", 47), (48, "missed", 23), (71, "started", 1)], [71]),
        (
            {"missed": "all", "missed_max": 3, "overlap": "allow"},
            [
                (1, "missed", 47),
                (48, "missed", 21),
                (69, "started", 1),
                (70, "started", 1),
                (71, "started", 1),
            ],
            [69, 70, 71],
        ),
        (
            {"missed": "all", "missed_max": 3},
            [
                (1, "missed", 47),
                (48, "missed", 21),
                (69, "started", 1),
                (70, "skipped", 1),
                (71, "skipped", 1),
            ],
            [69],
        ),
    ],
)
def test_three_days_down(missed: dict[str, Any], expected: list[Any], starts: list[float]) -> None:
    """What is made up for is the newest within the window of a day. Each time has one fate."""
    row, now = schedule(cursor=T, next_at=T + HOUR), T + 72 * HOUR - 600
    made = decide(row, plan(**missed), [], now)
    assert fates(made) == expected
    assert started(made) == starts
    assert sum(times for _, _, times in fates(made)) == 71
    assert (made.row.cursor, made.row.next_at) == (T + 71 * HOUR, T + 72 * HOUR)


def test_a_time_on_time_after_a_pause_of_everybody_takes_the_place_of_what_was_missed() -> None:
    """With `once`, the newest time runs, and if that is on time the others were missed."""
    made = decide(schedule(cursor=T, next_at=T + HOUR), plan(), [], T + 5 * HOUR + 1)
    assert fates(made) == [(1, "missed", 4), (5, "started", 1)]


def test_very_many_missed_times_are_counted_in_several_decisions() -> None:
    """A year of minutes does not keep the leader for seconds."""
    row, cron, now = schedule(), Plan("* * * * *"), T + 365 * 24 * HOUR
    made = decide(row, cron, [], now)
    assert [fire.times for fire in made.fires] == [COUNTED_MAX]
    assert made.row.next_at == row.next_at
    assert made.row.cursor == BEFORE + COUNTED_MAX * 60


def test_jitter_delays_the_start_and_not_the_time() -> None:
    """Before the start nothing is decided. The run's id has the nominal time."""
    made_plan = plan(jitter_s=600.0)
    start = made_plan.starts_at("nightly", T)
    assert T < start < T + 600
    row = scheduled(schedule(), made_plan)
    assert row.next_at == start
    assert fates(decide(row, made_plan, [], start - 0.001)) == []
    made = decide(row, made_plan, [], start)
    assert [fire.run_id("nightly") for fire in made.starts] == ["nightly@1970-02-11T16:00Z"]


def test_a_start_that_jitter_delays_is_not_late() -> None:
    """It counts as late from its start on. So a schedule that makes up for nothing still starts it."""
    made_plan = plan(jitter_s=1800.0, missed="skip")
    row = next(
        one
        for one in (scheduled(schedule(name=f"nightly-{n}"), made_plan) for n in range(100))
        if one.next_at is not None and one.next_at > T + 10 * LATE_S
    )
    assert row.next_at is not None
    on_time = decide(row, made_plan, [], row.next_at + LATE_S)
    assert fates(on_time) == [(0, "started", 1)]
    assert fates(decide(row, made_plan, [], row.next_at + LATE_S + 1)) == [(0, "missed", 1)]


def test_a_paused_schedule_decides_nothing() -> None:
    """Runs that have ended are still noted."""
    made = decide(
        schedule(state=ScheduleState.PAUSED), plan(), [opened(state=RunState.SUCCEEDED), buffered(T)], T + 99
    )
    assert (fates(made), started(made)) == ([], [])
    assert changes(made) == [(-1, "started", True)]


def test_what_passed_in_a_pause_was_missed() -> None:
    """One row says so, and a time that waited starts."""
    made = resume(schedule(state=ScheduleState.PAUSED), plan(), [buffered(BEFORE)], T + 5 * HOUR + 1)
    assert fates(made) == [(0, "missed", 6)]
    assert started(made) == [-1]
    assert (made.row.state, made.row.cursor, made.row.next_at) == (
        ScheduleState.ACTIVE,
        T + 5 * HOUR,
        T + 6 * HOUR,
    )


def test_a_schedule_that_is_resumed_has_no_failures() -> None:
    """Neither those from before the pause, nor those of runs that ended in it. Else its next failure would pause it
    again."""
    before = schedule(state=ScheduleState.PAUSED, failures=3, note="3 runs in a row did not succeed")
    made = resume(before, plan(pause_after=3), [opened(state=RunState.FAILED)], T - 1)
    assert (made.row.failures, made.row.note, made.row.state) == (0, "", ScheduleState.ACTIVE)
    assert changes(made) == [(-1, "started", True)]


def pausing(states: Sequence[RunState | None], failures: int = 0) -> Decision:
    runs = [opened(BEFORE - n * HOUR, state) for n, state in enumerate(reversed(states))]
    return decide(schedule(next_at=T, failures=failures), plan(pause_after=3), runs, T - 1)


def test_failures_in_a_row_pause_a_schedule() -> None:
    """Failed, undone and stuck runs count. One that succeeded begins the count anew; a cancelled one does not count."""
    failed, undone, stuck, good = RunState.FAILED, RunState.UNDONE, RunState.STUCK, RunState.SUCCEEDED
    assert pausing([failed, undone, stuck]).row.state is ScheduleState.PAUSED
    assert pausing([failed], failures=2).row.state is ScheduleState.PAUSED
    assert pausing([failed, good, failed, failed]).row.failures == 2
    assert pausing([failed, RunState.CANCELLED, failed]).row.failures == 2
    made = pausing([failed, undone, stuck])
    assert made.row.note.startswith("3 runs in a row did not succeed")
    assert [about for about, _ in made.alerts] == ["paused"]


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.FAILED, RunState.STUCK])
def test_runs_of_a_backfill_do_not_count(state: RunState) -> None:
    """They say nothing about the schedule's own runs: they neither pause it nor begin the count anew. A result counts
    as the last one."""
    made = decide(schedule(failures=2), plan(pause_after=3), [opened(state=state, backfill="b1")], T - 1)
    assert (made.row.failures, made.row.state) == (2, ScheduleState.ACTIVE)
    assert (made.row.last_at is not None) == (state is RunState.SUCCEEDED)


def test_a_stuck_run_counts_once() -> None:
    """However often it is looked at, and also when it fails later."""
    (stuck,) = decide(schedule(), plan(), [opened(state=RunState.STUCK)], T - 1).changes
    (failed,) = decide(schedule(), plan(), [opened(state=RunState.FAILED, counted=True)], T - 1).changes
    assert [(one.ended, one.counted) for one in (stuck, failed)] == [(False, True), (True, True)]
    assert decide(schedule(), plan(), [opened(state=RunState.STUCK, counted=True)], T - 1).row.failures == 0
    assert decide(schedule(), plan(), [opened(state=RunState.FAILED, counted=True)], T - 1).row.failures == 0


def test_a_schedule_ends_after_its_count_and_after_its_last_time() -> None:
    """Then it is never due again."""
    made = decide(schedule(started=1), plan(count=2), [], T)
    assert (made.row.state, made.row.next_at) == (ScheduleState.ENDED, None)
    made = decide(schedule(), plan(end=T + 60), [], T)
    assert (made.row.state, made.row.next_at) == (ScheduleState.ENDED, None)
    assert started(made) == [0]


def test_what_waits_starts_although_the_schedule_has_ended() -> None:
    """The last time may have been buffered."""
    made = decide(schedule(state=ScheduleState.ENDED, next_at=None), plan(), [buffered(T)], T + 9)
    assert started(made) == [0]


def test_run_now_goes_by_the_overlap_policy_unless_somebody_insists() -> None:
    """Its time is never one of the schedule's own."""
    at = T + 0.5
    assert [
        f.fate for f in decide_now(schedule(), plan(), [opened()], at, at, "ann", anyway=False).fires
    ] == [FireFate.SKIPPED]
    made = decide_now(schedule(), plan(), [opened()], at, at, "ann", anyway=True)
    assert [fire.run_id("nightly") for fire in made.starts] == ["nightly@1970-02-11T16:00:00.500Z"]
    assert made.row.cursor == BEFORE


# --- backfills --------------------------------------------------------------------------------------------------------


def backfill(**fields: Any) -> BackfillRow:
    row = BackfillRow(
        "b1",
        "nightly",
        T,
        T + 4 * HOUR,
        False,
        2,
        "none",
        BackfillState.RUNNING,
        None,
        0,
        0,
        "ann",
        "",
        0,
        0.0,
        None,
    )
    return msgspec.structs.replace(row, **fields)


def test_a_backfill_keeps_so_many_runs_open() -> None:
    """It goes on where it was, oldest or newest first."""
    times = times_of(plan(), T, T + 4 * HOUR, newest_first=False)
    assert times == [T + n * HOUR for n in range(5)]
    done = fill(backfill(), times, {}, frozenset(), 0)
    assert [(fire.at, fire.repeat) for fire in done.starts] == [(T, 2), (T + HOUR, 2)]
    assert done.cursor == T + HOUR
    assert left_of(backfill(cursor=done.cursor), times) == times[2:]
    newest = times_of(plan(), T, T + 4 * HOUR, newest_first=True)
    done = fill(backfill(newest_first=True), newest, {}, frozenset(), 1)
    assert [fire.at for fire in done.starts] == [T + 4 * HOUR]
    assert left_of(backfill(newest_first=True, cursor=done.cursor), newest) == newest[1:]


def test_a_backfill_is_done_when_its_last_run_has_ended() -> None:
    """And not before."""
    assert fill(backfill(), [], {}, frozenset(), 1).state is BackfillState.RUNNING
    assert fill(backfill(), [], {}, frozenset(), 0).state is BackfillState.DONE


@pytest.mark.parametrize(
    ("again", "state", "repeat"),
    [
        ("none", RunState.SUCCEEDED, None),
        ("none", RunState.FAILED, None),
        ("failed", RunState.SUCCEEDED, None),
        ("failed", RunState.FAILED, 2),
        ("failed", RunState.CANCELLED, 2),
        ("all", RunState.SUCCEEDED, 2),
        ("all", RunState.RUNNING, None),
        ("failed", RunState.STUCK, None),
    ],
)
def test_which_times_run_again(again: str, state: RunState, repeat: int | None) -> None:
    """What has run, has run; a time whose run is open is left alone."""
    assert starts_as("nightly", T, [opened(T, state)], frozenset(), again) == repeat


def test_a_time_that_never_ran_runs_whatever_the_rule_says() -> None:
    """It was skipped, missed or replaced, or is older than the schedule. An id that a retry took is passed over."""
    for fate in ("skipped", "missed", "replaced"):
        assert starts_as("nightly", T, [opened(T, None, fate=fate, run_id=None)], frozenset(), "none") == 2
    assert starts_as("nightly", T, [], frozenset(), "none") == 2
    assert starts_as("nightly", T, [], frozenset({run_id("nightly", T, 2)}), "none") == 3
    assert starts_as("nightly", T, [buffered(T)], frozenset(), "all") is None
