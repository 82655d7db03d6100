"""Charts of pages: numbers in, rectangles out."""

from __future__ import annotations

from holdfast.http.pages.charts import HEIGHT, TALLEST, columns, wrong_share


def test_the_tallest_column_has_the_full_height_and_parts_stand_on_each_other() -> None:
    found = columns([[("ok", 3), ("fail", 1)], [], [("ok", 2)]])
    assert [(one.colour, one.x) for one in found] == [("ok", "0.00"), ("fail", "0.00"), ("ok", "66.67")]
    assert float(found[1].y) == HEIGHT - TALLEST
    assert float(found[0].height) + float(found[1].height) == TALLEST
    assert float(found[1].y) + float(found[1].height) == float(found[0].y)


def test_of_nothing_there_is_no_column() -> None:
    assert columns([]) == []
    assert columns([[("ok", 0)], []]) == []


def test_what_somebody_cancelled_did_not_go_wrong() -> None:
    assert wrong_share({"succeeded": 3, "failed": 1, "undone": 1, "cancelled": 5}) == 0.4
    assert wrong_share({"cancelled": 5}) is None
