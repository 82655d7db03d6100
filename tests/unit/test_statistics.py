"""How runs ended over time."""

from __future__ import annotations

from holdfast.store.overview import RunEnd
from holdfast.supervisor import statistics


def runs() -> list[RunEnd]:
    good = [RunEnd("a", "1", "succeeded", float(n), n + 1.0 + n / 100) for n in range(100)]
    return [
        *good,
        RunEnd("b", "1", "failed", 0.0, 30.0),
        RunEnd("b", "1", "undone", 0.0, 61.0),
        RunEnd("b", "1", "cancelled", 0.0, 61.0),
    ]


def test_slices_cover_the_window_and_count_each_run_once() -> None:
    found = statistics.slices(runs(), 0.0, 180.0, 60.0)
    assert [one.begun for one in found] == [0.0, 60.0, 120.0]
    assert sum(sum(one.ended.values()) for one in found) == 103
    assert found[1].ended["undone"] == found[1].ended["cancelled"] == 1
    assert found[2].took is None


def test_durations_are_those_of_runs_that_succeeded() -> None:
    found = statistics.took(runs())
    assert found is not None
    assert (found.half_s, found.most_s, found.slowest_s) == (1.5, 1.9, 1.99)
    assert statistics.took([]) is None


def test_what_was_cancelled_is_neither_success_nor_failure() -> None:
    bad, good = statistics.by_workflow(runs())
    assert (bad.workflow, bad.success, good.success) == ("b", 0.0, 1.0)
    assert statistics.by_workflow([RunEnd("c", "1", "cancelled", 0.0, 1.0)])[0].success == 1.0


def test_versions_are_counted_apart_the_worse_one_first() -> None:
    found = statistics.by_version(
        [*runs(), RunEnd("a", "2", "failed", 0.0, 1.0), RunEnd("a", "2", "succeeded", 0.0, 2.0)]
    )
    assert [(one.workflow, one.version, one.success) for one in found] == [
        ("b", "1", 0.0), ("a", "2", 0.5), ("a", "1", 1.0),
    ]  # fmt: skip


def test_usual_is_the_median_of_days_on_which_something_ended() -> None:
    days = {
        1: {"succeeded": 10, "failed": 0},
        2: {"succeeded": 0, "failed": 0},
        3: {"succeeded": 30},
        4: {"succeeded": 20},
    }
    assert statistics.usual(days) == {"failed": 0.0, "succeeded": 20.0}
    assert statistics.usual({1: {"succeeded": 0}}) is None
