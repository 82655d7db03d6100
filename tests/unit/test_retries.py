"""What a retry keeps of the run before it, for each kind of row."""

from __future__ import annotations

import itertools
import json
from typing import Any, NamedTuple

import pytest

from holdfast.model import Inherited, RunRow, RunState, SignalRow, StepKind, StepRow, StepState
from holdfast.store.retries import next_ids, plan
from tests.unit.undo_recorder import run_of, step_of

FAILED, CANCELLED = StepState.FAILED, StepState.CANCELLED


def ended(state: RunState = RunState.FAILED, **more: Any) -> RunRow:
    """Return a run that ended in this state. Its error says how far its code had come, and what ended it."""
    fields = {name: more.pop(name) for name in ("kept_n", "ending", "retry_of", "base_n") if name in more}
    error = json.dumps({"type": "x", "message": ""} | more) if more else None
    return run_of(id="old", state=state, error=error, **({"ending": None} | fields))


def row(n: int, key: str, seq: int | None, **fields: Any) -> StepRow:
    return step_of(n, key, run_id="old", delivered_seq=seq, **({"attempt": 1} | fields))


class Planned(NamedTuple):
    """A plan with the kept steps as (n, place)."""

    steps: list[tuple[int, int | None]]
    signals: list[tuple[int, int | None]]
    taken_over: list[tuple[str, int]]
    inherited: list[Inherited]
    kept_n: int


def planned(run: RunRow, *steps: StepRow, **more: Any) -> Planned:
    found = plan(run, steps, more.get("signals", ()), more.get("children", {}), more.get("inherited", ()))
    return Planned([(one.n, one.seq) for one in found.steps], *found[1:])


def heritage(found: Planned) -> dict[str, str | None]:
    return {one.key: one.effect or one.child for one in found.inherited}


def test_all_that_was_delivered_is_kept_but_what_ended_the_run() -> None:
    """This includes a failure that was handled. A step that was given up while it ran keeps its `here.key`; one that
    never began has none."""
    found = planned(
        ended(seq=3, steps=[3]),
        row(1, "a", 1),
        row(2, "handled", 2, state=FAILED),
        row(3, "end", 3, state=FAILED),
        row(4, "given up", 0, state=CANCELLED),
        row(5, "never began", 0, state=CANCELLED, attempt=0),
    )
    assert found.steps == [(1, 1), (2, 2)]
    assert heritage(found) == {"": "old", "end": "old::end", "given up": "old::given up"}


def test_a_success_that_nobody_heard_of_is_still_to_be_delivered() -> None:
    """Its outcome is recorded, so it is not executed again."""
    assert planned(ended(seq=1), row(1, "a", 1), row(2, "late", 0)).steps == [(1, 1), (2, None)]
    assert planned(ended(seq=1), row(1, "a", 1), row(2, "late", 5)).steps == [(1, 1), (2, None)]
    assert planned(ended(seq=1), row(1, "a", 1), row(2, "late", 0, state=FAILED)).steps == [(1, 1)]
    # Nobody is asked again who has answered.
    assert planned(ended(seq=1), row(1, "ask", 0, kind=StepKind.ASK)).steps == [(1, None)]


def test_a_request_counts_as_made_if_its_answer_is_kept() -> None:
    """The other system has got it, whatever became of its code. Without an answer it is made again, under its key. If it was
    undone, its answer is gone with it."""
    answer = row(2, "charge", 1, kind=StepKind.CALLBACK)
    found = planned(ended(RunState.CANCELLED, seq=1), row(1, "request:charge", 0, state=CANCELLED), answer)
    assert (found.steps, heritage(found)) == ([(1, None), (2, 1)], {"": "old"})
    open_ = row(2, "charge", 0, kind=StepKind.CALLBACK, state=CANCELLED)
    found = planned(ended(RunState.CANCELLED, seq=1), row(1, "request:charge", 1), open_)
    assert (found.steps, heritage(found)) == ([], {"": "old", "request:charge": "old::request:charge"})
    undone = ended(RunState.UNDONE, ending="cancelled", seq=1, undone=[1])
    found = planned(undone, row(1, "request:charge", 0, state=CANCELLED), answer)
    assert (found.steps, heritage(found)) == ([], {"": "old"})


def test_what_was_undone_goes_with_its_undo_and_its_key() -> None:
    """What a saga undid, and the code knows of, stays: the step and its undo."""
    found = planned(
        ended(RunState.UNDONE, ending="failed", seq=5, steps=[5], undone=[1, 2]),
        row(1, "undone", 1),
        row(2, "by saga", 2),
        row(3, "undo:by saga", 3),
        row(4, "no undo", 4),
        row(5, "end", 5, state=FAILED),
        row(6, "undo:undone", 6),
    )
    assert found.steps == [(2, 2), (3, 3), (4, 4)]
    assert heritage(found) == {"": "old", "end": "old::end"}


def test_an_undo_of_a_saga_that_gave_up_is_tried_again() -> None:
    found = planned(
        ended(ending="failed", seq=2), row(1, "by saga", 1), row(2, "undo:by saga", 2, state=FAILED)
    )
    assert found.steps == [(1, 1)]


def test_keys_are_carried_along_a_chain() -> None:
    """This holds for keys that the run before used, and for those that it inherited and never used."""
    found = planned(
        ended(seq=1, steps=[1]),
        row(1, "again", 1, state=FAILED, effect="first::again"),
        row(2, "not begun", 0, state=CANCELLED, attempt=0, effect="first::not begun"),
        inherited=[
            Inherited("", "first"),
            Inherited("again", "first::again"),
            Inherited("unasked", "first::unasked"),
            Inherited("kid", child="first/kid"),
        ],
    )
    assert heritage(found) == {
        "": "first",
        "again": "first::again",
        "not begun": "first::not begun",
        "unasked": "first::unasked",
        "kid": "first/kid",
    }


@pytest.mark.parametrize(
    ("state", "kept"), [(RunState.SUCCEEDED, True), (RunState.UNDONE, False)], ids=["succeeded", "undone"]
)
def test_a_child_is_kept_while_what_it_did_stands(state: RunState, kept: bool) -> None:
    """Then it belongs to the new run. Otherwise the new run starts a child that goes on from it."""
    child = run_of(id="kid", state=state, parent_id="old", parent_n=1)
    found = planned(ended(seq=1), row(1, "kid", 1, kind=StepKind.CHILD), children={1: child})
    assert (found.steps, found.taken_over) == (([(1, 1)], [("kid", 1)]) if kept else ([], []))
    assert heritage(found) == ({"": "old"} if kept else {"": "old", "kid": "kid"})


def test_a_child_whose_failure_was_handled_stays_where_it_is() -> None:
    child = run_of(id="kid", state=RunState.FAILED, parent_id="old", parent_n=1)
    found = planned(ended(seq=1), row(1, "kid", 1, kind=StepKind.CHILD, state=FAILED), children={1: child})
    assert (found.steps, found.taken_over, heritage(found)) == ([(1, 1)], [], {"": "old"})


def test_waits_that_ended_are_kept_and_others_begin_anew() -> None:
    """The run's deadline always begins anew, in every generation."""
    found = planned(
        ended(seq=4),
        row(1, "sleep", 1, kind=StepKind.TIMER, name="sleep"),
        row(2, "paid", 2, kind=StepKind.SIGNAL),
        row(3, "@2/$deadline", 3, kind=StepKind.TIMER, name="deadline"),
        row(4, "sleep#2", 0, kind=StepKind.TIMER, name="sleep", state=CANCELLED),
        row(5, "sleep#3", 0, kind=StepKind.TIMER, name="sleep"),
        row(6, "tidy", None, kind=StepKind.UNDO, state=CANCELLED),
    )
    assert found.steps == [(1, 1), (2, 2)]


def test_signals_that_the_code_never_heard_are_undelivered_again() -> None:
    """Signals for Holdfast itself are not copied."""
    names = itertools.count(1)

    def signal(name: str, seq: int | None) -> SignalRow:
        return SignalRow(next(names), "old", name, "k", b"1", seq, 0.0)

    signals = [
        signal("paid", 1),
        signal("paid", 0),
        signal("paid", None),
        signal("paid", 9),
        signal("$cancel", 2),
    ]
    assert planned(ended(seq=3), signals=signals).signals == [(1, 1), (2, None), (3, None), (4, None)]


def test_the_point_of_no_return_is_the_last_kept_row_before_it() -> None:
    """New steps get numbers above the kept rows, and none of them may come before that point."""
    found = planned(
        ended(seq=3, kept_n=2, steps=[3]), row(1, "a", 1), row(2, "lost", 0, state=CANCELLED), row(3, "b", 3)
    )
    assert (found.steps, found.kept_n) == ([(1, 1)], 1)


def test_a_run_that_its_parent_undid_keeps_the_steps_that_were_not_undone() -> None:
    """It had succeeded, so no step ended it."""
    run = ended(RunState.UNDONE, by="parent", undone=[1])
    assert planned(run, row(1, "booked", 1), row(2, "noted", 2)).steps == [(2, 2)]


def test_a_run_of_an_older_version_is_judged_by_its_rows() -> None:
    """The step that failed last ended it, and a step that has an undo row was undone."""
    found = planned(
        ended(), row(1, "handled", 1, state=FAILED), row(2, "a", 2), row(3, "end", 3, state=FAILED)
    )
    assert found.steps == [(1, 1), (2, 2)]
    found = planned(
        ended(RunState.UNDONE, ending="failed"),
        row(1, "booked", 1),
        row(2, "noted", 2),
        row(3, "end", 3, state=FAILED),
        row(4, "undo:booked", 4),
    )
    assert found.steps == [(2, 2)]
    found = planned(ended(RunState.CANCELLED), row(1, "a", 1), row(2, "handled", 2, state=FAILED))
    assert found.steps == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("name", "retry_of", "ids"),
    [
        ("order", None, ["order~2", "order~3"]),
        ("order~2", "order", ["order~3", "order~4"]),
        ("order~2", None, ["order~2~2", "order~2~3"]),
        ("order~2~2", "order~2", ["order~2~3", "order~2~4"]),
        ("order~2/leg", "order/leg", ["order~2/leg~2", "order~2/leg~3"]),
        ("a~x", "a", ["a~x~2", "a~x~3"]),
    ],
)
def test_ids_of_retries(name: str, retry_of: str | None, ids: list[str]) -> None:
    """A number at the end is counted up only if an earlier retry made it."""
    run = run_of(id=name, retry_of=retry_of)
    assert list(itertools.islice(next_ids(run, None), 2)) == ids
    assert next(next_ids(run, "wanted")) == "wanted"
