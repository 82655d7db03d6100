"""The words on the axis of a timeline."""

from __future__ import annotations

from itertools import pairwise

from holdfast.http.pages.timeline import AXIS_CHARACTER, placed


def test_words_on_the_axis_touch_no_others() -> None:
    """A tick whose words would stand in those of a fold, of the turn or of another tick says nothing."""
    every = [
        (0.0, "0 s"),
        (10.0, "503 ms"),
        (13.0, "+1 ms"),
        (40.0, "+20 ms"),
        (60.0, "+40 ms"),
        (90.0, "2.5 s"),
    ]
    folds, turn = [(18.0, "501 ms")], [(61.0, "failed")]
    found = placed(every, [*folds, *turn], turn)
    assert [one.words for one in found] == ["0 s", "+20 ms", "2.5 s"]
    spans = [(one.x, one.x + len(one.words) * AXIS_CHARACTER) for one in found]
    spans += [(x - 3 * AXIS_CHARACTER, x + 3 * AXIS_CHARACTER) for x, _ in (*folds, *turn)]
    spans.sort()
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_a_phone_has_room_for_fewer_words() -> None:
    """The words that do not fit there are marked. Folds say nothing there."""
    every = [(0.0, "0 s"), (7.0, "1.0 s"), (20.0, "2.0 s")]
    assert [(one.words, one.fits_phone) for one in placed(every, [], [])] == [
        ("0 s", True), ("1.0 s", False), ("2.0 s", True),
    ]  # fmt: skip
