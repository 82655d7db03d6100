"""How far `why` says that a run has come with undoing what it did."""

from typing import Any

import pytest

from holdfast.model import Lane, StepKind, StepRow, StepState
from holdfast.supervisor.why import _undo_count
from tests.unit.test_why_gates import filled

LANES = [Lane(1, "shop.book", (), "shop.unbook", "shop.book"), Lane(2, "shop.look", (), None, "shop.look")]


def row(n: int, key: str, state: StepState, **more: Any) -> StepRow:
    found: StepRow = filled(
        StepRow, **{"n": n, "key": key, "state": state, "kind": StepKind.CALL, "lane": 1, "attempt": 1} | more
    )
    return found


@pytest.mark.parametrize(
    ("one", "counts"),
    [
        (row(2, "b", StepState.SUCCEEDED), True),
        (row(2, "b", StepState.CANCELLED), True),
        (row(2, "b", StepState.CANCELLED, attempt=0), False),
        (row(2, "b", StepState.FAILED), False),
        (row(2, "b", StepState.SUCCEEDED, lane=2), False),
        (row(2, "b", StepState.SUCCEEDED, kind=StepKind.SIGNAL), False),
        (row(1, "b", StepState.SUCCEEDED), False),
        (row(2, "b", StepState.SUCCEEDED, kind=StepKind.UNDO, lane=2), True),
        (row(2, "undo:c", StepState.SUCCEEDED, kind=StepKind.CHILD, output=b"false"), False),
    ],
    ids=[
        "it succeeded",
        "it was stopped and had begun",
        "it was stopped before it began",
        "it failed",
        "it has no undo",
        "it is no call",
        "it is kept",
        "an undo that the code asked for",
        "a child that had nothing to undo",
    ],
)
def test_what_may_have_had_an_effect_is_counted(one: StepRow, counts: bool) -> None:
    """The number of undos in all has what is still to be undone, and what was."""
    steps = [one, row(3, "a", StepState.SUCCEEDED), row(4, "undo:a", StepState.SUCCEEDED)]
    assert _undo_count(steps, LANES, kept_n=1) == (1, 1 + counts)
