"""How a run is undone, planned from its rows alone."""

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import codec, step
from holdfast.codec import describe_error
from holdfast.decider.effect import undo_input
from holdfast.decider.undo_plan import Undoing
from holdfast.errors import UndoMissing, Unreadable
from holdfast.model import (
    CANCEL,
    ChildUndo,
    Outcome,
    RunRow,
    StepKind,
    StepRow,
    StepState,
    undo_key,
    undone_key,
)
from tests.unit.undo_recorder import Lanes, UndoPlanned, run_of, step_of


@step(name="undo_it")
async def undo_it(x: int, card: str = "") -> None: ...


KNOWN = {"undo_it": undo_it}
LANES = Lanes()
PLAIN, UNDONE, UNDONE_FAILED = LANES.of("a"), LANES.of("a", "undo_it"), LANES.of("a", "undo_it!")
NO = codec.encode_error(ValueError("no"))
LATE = codec.encode_error(TimeoutError(), ending="timed out")
UNSURE = codec.encode_error(ValueError("no"), unsure=True)


def planned(*steps: StepRow, children: Collection[int] = (), **run: Any) -> UndoPlanned:
    return UndoPlanned(run_of(**run), steps, LANES, children=children, steps_known=KNOWN)


def effect(n: int, key: str, **fields: Any) -> StepRow:
    return step_of(n, key, **{"lane": UNDONE, **fields})


class TestWhatIsUndone:
    @pytest.mark.parametrize(
        ("fields", "undone"),
        [
            ({"state": StepState.SUCCEEDED}, True),
            ({"state": StepState.SUCCEEDED, "lane": PLAIN}, False),
            ({"state": StepState.CANCELLED, "attempt": 1}, True),
            ({"state": StepState.CANCELLED, "attempt": 0}, False),
            ({"state": StepState.FAILED, "error": NO}, False),
            ({"state": StepState.FAILED, "error": LATE}, True),
            ({"state": StepState.FAILED, "error": UNSURE}, True),
            ({"state": StepState.FAILED, "error": NO, "losses": 1}, True),
            ({"state": StepState.FAILED, "error": NO, "lane": UNDONE_FAILED}, True),
            ({"state": StepState.FAILED, "error": None, "attempt": 0, "lane": UNDONE_FAILED}, False),
            ({"kind": StepKind.TIMER, "name": "sleep"}, False),
        ],
    )
    def test_every_call_that_may_have_had_an_effect(self, fields: dict[str, Any], undone: bool) -> None:
        """A call is undone if it succeeded, or if nobody knows how an attempt ended. A call that only failed or never
        began is not."""
        plan = planned(effect(1, "a", delivered_seq=1, **fields))
        assert plan.all() == ([["undo:a"]] if undone else [])
        assert plan.how == ("undone" if undone else "failed")

    def test_what_a_saga_tries_to_undo_is_waited_for_however_its_step_ended(self) -> None:
        """A saga gave a step up and asked for its undo. The step's failure came afterwards. What is older waits for that undo,
        and an undo that gives up is left to an operator."""
        steps = [
            effect(1, "a", after_seq=0, delivered_seq=1),
            effect(2, "b", after_seq=1, delivered_seq=2, state=StepState.FAILED, error=NO),
            step_of(
                3,
                undo_key("b"),
                state=StepState.READY,
                after_seq=2,
                delivered_seq=None,
                input=undo_input(b'{"x":1}', None, "b"),
            ),
        ]
        plan = planned(*steps)
        plan.commit()
        assert plan.asked == []
        plan.succeed("undo:b")
        assert plan.asked == [["undo:a"]]
        plan = planned(*steps)
        plan.commit()
        plan.fail("undo:b")
        plan.succeed("undo:a")
        assert plan.how == "stuck"

    def test_the_undo_gets_the_recorded_result_and_arguments(self) -> None:
        """They are made from the recorded bytes. The result is null when nobody knows it."""
        plan = planned(
            effect(1, "a", input=b'{"x":1,"card":"c"}', output=b'{"id":7}', delivered_seq=1),
            effect(2, "b", input=b'{"x":2}', output=None, state=StepState.CANCELLED, delivered_seq=0),
        )
        plan.all()
        inputs = [msgspec.json.decode(plan.steps[plan.n(key)].input or b"") for key in ("undo:a", "undo:b")]
        assert [one["$done"] for one in inputs] == [{"id": 7}, None]
        assert [one["$key"] for one in inputs] == ["run-1::a", "run-1::b"]
        assert inputs[0]["card"] == "c"

    def test_what_was_given_up_while_it_ran_is_undone_a_moment_later(self) -> None:
        """Its agent must first notice that it was given up."""
        plan = planned(
            effect(1, "a", delivered_seq=1),
            effect(2, "b", state=StepState.CANCELLED, delivered_seq=0),
        )
        plan.all()
        assert plan.after_stop == ["undo:b"]

    def test_what_is_kept_stays(self) -> None:
        """These are the steps up to `kept_n`, and those of earlier generations."""
        steps = [effect(n, str(n), delivered_seq=n) for n in (1, 2, 3)]
        assert planned(*steps, kept_n=2).all() == [["undo:3"]]
        assert planned(*steps, base_n=2).all() == [["undo:3"]]

    def test_what_a_saga_undid_is_not_undone_again(self) -> None:
        """An undo that succeeded counts, whoever asked for it. One that the code gave up is tried again."""
        plan = planned(
            effect(1, "a", delivered_seq=1),
            effect(2, "b", delivered_seq=2),
            step_of(3, "undo:a", name="undo_it", delivered_seq=3),
            step_of(4, "undo:b", name="undo_it", state=StepState.CANCELLED, delivered_seq=0),
        )
        assert plan.all() == [["undo:#2:b"]]

    def test_a_run_without_effects_ends_as_its_code_did(self) -> None:
        """Nothing was undone, so the run is not `undone`."""
        for ending in ("failed", "cancelled"):
            plan = planned(ending=ending, error="why")
            plan.commit()
            assert plan.finish is not None
            assert (plan.how, plan.finish.error) == (ending, "why")

    def test_live_rows_nobody_gave_up_are_given_up_first(self) -> None:
        """A held run is cancelled without its code. What agents began meanwhile is only known once the rows are read
        again."""
        plan = planned(
            effect(1, "a", state=StepState.READY, attempt=0),
            step_of(2, "sleep", kind=StepKind.TIMER, state=StepState.WAITING),
        )
        turn = plan.commit()
        assert (turn.dropped, turn.issued, turn.finish) == ([1, 2], [], None)
        assert plan.undoing.needs_reload
        plan.steps[1] = msgspec.structs.replace(plan.steps[1], attempt=1)
        assert plan.rebuild().all() == [["undo:a"]]


class TestOrder:
    def test_newest_completion_first_and_overlapping_ones_together(self) -> None:
        """The run asked for b and c when a was complete, and for d when b was."""
        plan = planned(
            effect(1, "a", after_seq=0, delivered_seq=1),
            effect(2, "b", after_seq=1, delivered_seq=2),
            effect(3, "c", after_seq=1, delivered_seq=4),
            effect(4, "d", after_seq=2, delivered_seq=3),
        )
        plan.commit()
        assert plan.asked == [["undo:c", "undo:d"]]
        plan.succeed("undo:d")
        assert plan.asked[1:] == [["undo:b"]]
        plan.succeed("undo:b")
        assert plan.asked[2:] == []
        plan.succeed("undo:c")
        assert plan.asked[2:] == [["undo:a"]]

    def test_ten_thousand_in_a_row_take_a_moment(self) -> None:
        """Planning costs n log n."""
        count = 10_000
        rows = [effect(n, f"a{n}", after_seq=n - 1, delivered_seq=n) for n in range(1, count + 1)]
        undoing = planned(*rows).undoing
        for n in range(count, 0, -1):
            (issue,) = undoing.take().issued
            assert issue.key == f"undo:a{n}"
            undoing.deliver(Outcome("", issue.n, StepState.SUCCEEDED, b"null", None, 0.0))
        finish = undoing.take().finish
        assert finish is not None
        assert finish.how == "undone"


class TestGivingUp:
    def stuck(self) -> UndoPlanned:
        plan = planned(
            effect(1, "a", after_seq=0, delivered_seq=1),
            effect(2, "b", after_seq=1, delivered_seq=2),
            effect(3, "c", after_seq=2, delivered_seq=3),
            error=NO,
        )
        plan.commit()
        plan.fail("undo:c", "bank is down")
        plan.fail("undo:b", "and so is the other")
        assert plan.finish is None
        plan.succeed("undo:a")
        return plan

    def test_the_others_are_still_tried_and_the_run_is_stuck(self) -> None:
        """Its error names the undos that gave up, and why the run was being undone."""
        plan = self.stuck()
        assert plan.asked == [["undo:c"], ["undo:b"], ["undo:a"]]
        assert plan.how == "stuck"
        message = describe_error(plan.error)
        assert message.startswith(
            "ValueError: undo_it, the undo of b, gave up: and so is the other; so did 1 more"
        )
        assert "undo_it of c: ValueError: bank is down" in message
        assert msgspec.json.decode(plan.error)["cause"] == {
            "type": "builtins.ValueError",
            "message": "no",
        }

    def test_retry_issues_them_again_in_their_order(self) -> None:
        """They get keys of their own. Until an operator asks for it, waking the run changes nothing."""
        plan = self.stuck()
        plan.rebuild().say("resume")
        assert plan.how == "stuck"
        plan.rebuild().say("retry")
        assert plan.asked[3:] == [["undo:#2:c"]]
        plan.rebuild()
        plan.fail("undo:#2:c")
        assert plan.asked[4:] == [["undo:#2:b"]]
        plan.rebuild().succeed("undo:#2:b")
        assert plan.how == "stuck"
        plan.rebuild().say("retry")
        assert plan.asked[5:] == [["undo:#3:c"]]
        plan.succeed("undo:#3:c")
        assert plan.how == "undone"

    def test_retry_may_name_one(self) -> None:
        """An operator names it by the n of the step or of its undo."""
        plan = self.stuck()
        plan.rebuild().say("retry", 2)
        assert plan.asked[3:] == [["undo:#2:b"]]

    def test_skip_counts_as_done(self) -> None:
        """An operator skips one, by the n of the step or of its undo's row, or all that gave up."""
        for n in (3, None):
            plan = self.stuck()
            plan.rebuild().say("skip", n)
            if n is not None:
                assert plan.how == "stuck"
                plan.rebuild().say("skip", plan.n("undo:b"))
            assert plan.how == "undone"
            plan.rebuild().commit()
            assert plan.how == "undone"

    def test_skip_stops_an_undo_that_is_under_way_or_still_to_come(self) -> None:
        """A person undid it by hand, so there is nothing to wait for."""
        plan = planned(effect(1, "a", delivered_seq=1), effect(2, "b", after_seq=1, delivered_seq=2))
        plan.commit()
        plan.say("skip", 1)
        turn = plan.say("skip", 2)
        assert turn.dropped == [plan.n("undo:b")]
        assert plan.asked == [["undo:b"]]
        assert plan.how == "undone"

    def test_skipping_all_touches_only_what_gave_up(self) -> None:
        """An undo that is under way goes on."""
        plan = planned(effect(1, "a", delivered_seq=1), effect(2, "b", delivered_seq=2))
        plan.commit()
        plan.fail("undo:a")
        plan.say("skip")
        assert (plan.finish, plan.open) == (None, ["undo:b"])

    def test_abandon_ends_it_with_what_was_done(self) -> None:
        """Live rows are dropped, and the run ends as its code did."""
        for ending in ("failed", "cancelled"):
            plan = planned(effect(1, "a", delivered_seq=1), effect(2, "b", delivered_seq=2), ending=ending)
            plan.commit()
            plan.succeed("undo:b")
            turn = plan.say("abandon")
            assert turn.dropped == [plan.n("undo:a")]
            assert plan.how == ending

    def test_a_cancel_meanwhile_changes_nothing(self) -> None:
        """Neither does a signal for its code, nor nonsense. All are delivered."""
        plan = planned(effect(1, "a", delivered_seq=1))
        plan.commit()
        seq = plan.undoing.seq
        plan.say("skip", 1, name=CANCEL)
        plan.say("skip", 1, name="paid")
        assert plan.undoing.deliver_signal("$undo", b"garbage", 0.0) == seq + 3
        assert plan.open == ["undo:a"]


class TestMissing:
    def test_an_undo_that_is_not_loaded_holds_the_run(self) -> None:
        """The message names it and its step. Whatever else can be undone in its turn is undone first."""
        gone = LANES.of("a", "gone")
        plan = planned(
            effect(1, "a", after_seq=0, delivered_seq=1),
            effect(2, "b", after_seq=1, delivered_seq=3, name="pay", lane=gone),
            effect(3, "c", after_seq=1, delivered_seq=2),
        )
        plan.commit()
        assert plan.asked == [["undo:c"]]
        with pytest.raises(UndoMissing, match=r"the undo 'gone' of step 'pay' is not loaded here"):
            plan.succeed("undo:c")

    def test_skipping_it_lets_the_run_go_on(self) -> None:
        """The plan applies what the operator asked for before it looks for code."""
        plan = planned(
            effect(1, "a", after_seq=0, delivered_seq=1),
            effect(2, "b", after_seq=1, delivered_seq=2, lane=LANES.of("a", "gone")),
        )
        with pytest.raises(UndoMissing):
            plan.commit()
        plan.rebuild().say("skip", 2)
        assert plan.asked == [["undo:a"]]

    @pytest.mark.parametrize("input", [b'{"x":"text"}', b'{"x":1,"y":2}', b"{}"])
    def test_an_undo_that_cannot_read_all_of_its_input_holds_the_run(self, input: bytes) -> None:
        """Whatever else can be undone in its turn is undone first. Nothing is called with a part of what was
        recorded."""
        plan = planned(
            effect(1, "a", after_seq=0, delivered_seq=3, input=input),
            effect(2, "b", after_seq=0, delivered_seq=2),
        )
        plan.commit()
        assert plan.asked == [["undo:b"]]
        with pytest.raises(Unreadable, match="what undo_it gets to undo step 'a' was recorded as") as held:
            plan.succeed("undo:b")
        assert (held.value.key, held.value.kind) == ("a", "input")
        plan.rebuild().say("skip", 1)
        assert plan.how == "undone"


class TestChildren:
    def child(self, n: int, key: str, **fields: Any) -> StepRow:
        return step_of(n, key, kind=StepKind.CHILD, **fields)

    def test_a_child_that_succeeded_is_undone_as_a_whole_in_its_place(self) -> None:
        """The step that undoes it names the step that waited for it, and why. What it did is its own business."""
        plan = planned(
            effect(1, "before", after_seq=0, delivered_seq=1),
            self.child(2, "inner", after_seq=1, delivered_seq=2),
            effect(3, "after", after_seq=2, delivered_seq=3),
            children={2},
        )
        plan.commit()
        (issue,) = plan.succeed("undo:after").issued
        assert (issue.kind, issue.step, issue.input) == (StepKind.CHILD, None, None)
        assert issue.child_undo == ChildUndo(0, 2, plan.run.error)
        plan.succeed("undo:inner")
        assert plan.asked == [["undo:after"], ["undo:inner"], ["undo:before"]]

    @pytest.mark.parametrize("state", [StepState.FAILED, StepState.CANCELLED])
    def test_a_child_that_did_not_succeed_took_care_of_itself(self, state: StepState) -> None:
        """It has undone what it did, and nothing of it is undone again."""
        plan = planned(self.child(1, "inner", state=state, delivered_seq=1), children={1})
        assert plan.all() == []
        assert plan.how == "failed"

    def test_a_child_that_was_given_up_may_have_succeeded_since(self) -> None:
        """The store knows how it ended, so it is asked."""
        row = self.child(1, "inner", state=StepState.CANCELLED, delivered_seq=0)
        assert planned(row, children={1}).all() == [["undo:inner"]]

    def test_a_child_that_still_runs_is_awaited(self) -> None:
        """What came before it waits. If it succeeds after all, it is undone then."""
        plan = planned(
            effect(1, "before", after_seq=0, delivered_seq=1),
            self.child(2, "inner", after_seq=1, state=StepState.WAITING),
            effect(3, "beside", after_seq=1, delivered_seq=2),
            children={2},
        )
        plan.commit()
        assert (plan.asked, plan.cancelled_children) == ([["undo:beside"]], [2])
        plan.succeed("undo:beside")
        assert (plan.asked[1:], plan.open) == ([], ["inner"])
        plan.rebuild().end("inner", StepState.SUCCEEDED)
        assert plan.rebuild().all()[1:] == [["undo:inner"], ["undo:before"]]

    def test_a_child_that_is_cancelled_has_undone_itself(self) -> None:
        """Then what came before it is undone."""
        plan = planned(
            effect(1, "before", after_seq=0, delivered_seq=1),
            self.child(2, "inner", after_seq=1, state=StepState.WAITING),
            children={2},
        )
        plan.commit()
        plan.end("inner", StepState.FAILED)
        assert (plan.asked, plan.rebuild().how) == ([["undo:before"]], None)

    def test_a_run_that_was_only_joined_is_not_awaited(self) -> None:
        """It has another owner. Its row ends with the run, nobody asks it to cancel, and nothing of it is undone."""
        plan = planned(
            effect(1, "before", after_seq=0, delivered_seq=1),
            self.child(2, "joined", after_seq=1, state=StepState.WAITING),
            self.child(3, "over", after_seq=1, delivered_seq=2),
        )
        assert plan.all() == [["undo:before"]]
        assert (plan.how, plan.cancelled_children) == ("undone", [])

    @pytest.mark.parametrize(("output", "how"), [(b"true", "undone"), (b"false", "failed")])
    def test_a_run_whose_children_had_nothing_to_undo_just_failed(self, output: bytes, how: str) -> None:
        """The undo of a child returns whether there was anything. After a crash, it is read from the rows."""
        plan = planned(self.child(1, "inner", delivered_seq=1), children={1})
        plan.commit()
        plan.end("undo:inner", StepState.SUCCEEDED, output=output)
        assert plan.how == how
        plan.finish = None
        plan.rebuild().commit()
        assert plan.how == how

    def test_skipping_a_child_goes_on_without_it(self) -> None:
        """An operator names it by the n of the step that waited for it."""
        plan = planned(
            effect(1, "before", delivered_seq=1),
            self.child(2, "inner", after_seq=1, delivered_seq=2),
            children={2},
        )
        plan.commit()
        plan.say("skip", 2)
        assert plan.asked == [["undo:inner"], ["undo:before"]]

    def test_a_child_that_still_runs_can_be_skipped(self) -> None:
        """The run does not wait for it any more, also after a crash."""
        plan = planned(
            effect(1, "before", delivered_seq=1),
            self.child(2, "inner", after_seq=1, state=StepState.WAITING),
            children={2},
        )
        plan.commit()
        assert plan.say("skip", 2).dropped == [2]
        assert plan.asked == [["undo:before"]]
        assert plan.rebuild().open == ["undo:before"]
        plan.succeed("undo:before")
        assert plan.how == "undone"


class TestRevoked:
    """A run that had succeeded, and that its parent wants undone."""

    ERROR = codec.revoked_error("top", 7, NO)

    def test_it_ends_undone_and_names_its_steps(self) -> None:
        """The error says who wanted that."""
        plan = planned(effect(1, "a", delivered_seq=1), error=self.ERROR, output=b"1")
        plan.say("resume")
        plan.all()
        assert plan.how == "undone"
        end = codec.end_of(plan.error)
        assert (end.by, end.by_n, end.undone) == ("top", 7, [1])

    def test_with_nothing_to_undo_it_has_succeeded_as_before(self) -> None:
        """It keeps its result. What a saga of its own had undone before does not count, and is not undone again."""
        plan = planned(
            effect(1, "kept", delivered_seq=1),
            effect(2, "tried", after_seq=1, delivered_seq=2),
            step_of(3, "undo:tried", after_seq=2, delivered_seq=3),
            kept_n=1,
            error=self.ERROR,
            output=b'"result"',
        )
        plan.say("resume")
        assert (plan.asked, plan.how) == ([], "succeeded")
        assert plan.finish is not None
        assert (plan.finish.output, plan.finish.error) == (b'"result"', None)

    def test_what_it_undoes_itself_counts_after_a_crash(self) -> None:
        """What a saga undid comes before its first instruction in the history."""
        plan = planned(
            effect(1, "a", delivered_seq=1),
            effect(2, "tried", after_seq=1, delivered_seq=2),
            step_of(3, "undo:tried", after_seq=2, delivered_seq=3),
            error=self.ERROR,
        )
        plan.say("resume")
        plan.rebuild().succeed("undo:a")
        assert plan.how == "undone"
        plan.finish = None
        plan.rebuild().commit()
        assert (plan.how, codec.end_of(plan.error).undone) == ("undone", [1])

    def test_somebody_who_stops_it_leaves_it_failed(self) -> None:
        """Its parent hears that it is not undone."""
        plan = planned(effect(1, "a", delivered_seq=1), error=self.ERROR)
        plan.say("resume")
        plan.say("abandon")
        assert plan.how == "failed"


def test_keys_of_undos_are_never_the_same() -> None:
    """The second try for `charge` is not the first for `charge#2`."""
    keys = ["charge", "charge#2", "a/charge", "charge:#2:x", "@2/charge"]
    made = {undo_key(key, number): (key, number) for key in keys for number in (1, 2, 3, 12)}
    assert len(made) == len(keys) * 4
    assert {key: undone_key(key) for key in made} == made


def test_progress_says_how_far_it_is() -> None:
    """It is written when it changes, and not again by a node that takes over."""
    plan = planned(effect(1, "a", delivered_seq=1), effect(2, "b", delivered_seq=2))
    assert msgspec.json.decode(plan.commit().progress or "") == {"fraction": 0.0, "note": "0 of 2 undone"}
    progress = plan.succeed("undo:b").progress
    assert progress is not None
    assert msgspec.json.decode(progress)["note"] == "1 of 2 undone"
    plan.run = msgspec.structs.replace(plan.run, progress=progress)
    assert plan.rebuild().commit().progress is None


@given(st.dictionaries(st.text(), st.integers()), st.one_of(st.none(), st.text(), st.integers()), st.text())
def test_an_undos_input_is_the_steps_input_and_two_members_more(
    arguments: dict[str, int], result: object, key: str
) -> None:
    """This holds whatever the recorded bytes are."""
    raw, output = msgspec.json.encode(arguments), msgspec.json.encode(result)
    arguments = {name: value for name, value in arguments.items() if name not in ("$done", "$key")}
    raw = msgspec.json.encode(arguments)
    assert msgspec.json.decode(undo_input(raw, output, key)) == {"$done": result, "$key": key, **arguments}
    assert msgspec.json.decode(undo_input(None, None, key)) == {"$done": None, "$key": key}


# --- random histories -----------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """The place of an effect: (asked, completed, number, by hand). `completed` is None if it was never delivered."""

    key: str
    span: tuple[int, int | None, int, bool]


class History(NamedTuple):
    run: RunRow
    steps: list[StepRow]
    children: set[int]
    expected: list[Place]


def precedes(b: Place, a: Place) -> bool:
    """True if `a` must be undone before `b`: b completed before a was asked for."""
    (mine, completed, n, by_hand), (asked, _, other, _) = b.span, a.span
    if by_hand:
        return (mine, n) < (asked, other)
    return completed is not None and 0 < completed <= asked


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Draw a history: steps are asked for and end in a random order, and some never end."""
    n = seq = 0
    open_: list[int] = []
    rows: dict[int, dict[str, Any]] = {}
    children: set[int] = set()
    for _ in range(draw(st.integers(0, 12))):
        if len(open_) > 0 and draw(st.booleans()):
            ended = open_.pop(draw(st.integers(0, len(open_) - 1)))
            seq += 1
            rows[ended]["delivered_seq"] = seq
            if rows[ended]["kind"] is StepKind.CALL:
                rows[ended] |= draw(
                    st.sampled_from(
                        [
                            {"state": StepState.SUCCEEDED},
                            {"state": StepState.FAILED, "error": NO},
                            {"state": StepState.FAILED, "error": LATE},
                        ]
                    )
                )
            else:
                rows[ended] |= {"state": StepState.SUCCEEDED}
                children.add(ended)
            continue
        n += 1
        kind = draw(st.sampled_from([StepKind.CALL, StepKind.CALL, StepKind.UNDO, StepKind.CHILD]))
        rows[n] = {
            "kind": kind,
            "after_seq": seq,
            "name": "undo_it" if kind is StepKind.UNDO else "a",
            "lane": draw(st.sampled_from([PLAIN, UNDONE, UNDONE_FAILED])),
            "state": StepState.WAITING if kind is StepKind.UNDO else StepState.CANCELLED,
            "attempt": draw(st.integers(0, 1)),
            "delivered_seq": None if kind is StepKind.UNDO else 0,
        }
        if kind is not StepKind.UNDO:
            open_.append(n)
    kept_n = draw(st.sampled_from([0, 0, 0, n // 2]))
    steps = []
    expected: list[Place] = []
    for n, fields in rows.items():
        if fields["delivered_seq"] and fields["kind"] is StepKind.CALL:
            fields["attempt"] = 1
        row = step_of(n, f"k{n}", **fields)
        steps.append(row)
        span = (row.after_seq, row.delivered_seq or None, n, row.kind is StepKind.UNDO)
        if n > kept_n and (n in children or had_effect(row)):
            expected.append(Place(f"k{n}", span))
    return History(run_of(kept_n=kept_n), steps, children, expected)


def had_effect(row: StepRow) -> bool:
    """The rule again, as a table."""
    if row.kind is StepKind.UNDO:
        return True
    if row.kind is not StepKind.CALL or row.lane == PLAIN:
        return False
    return {
        StepState.SUCCEEDED: True,
        StepState.CANCELLED: row.attempt > 0,
        StepState.FAILED: row.error == LATE or row.lane == UNDONE_FAILED,
    }[row.state]


def seen(undoing: Undoing) -> tuple[Any, ...]:
    """Return what a plan does next."""
    turn = undoing.take()
    return (
        [(issue.n, issue.key, issue.name, issue.input, issue.after_stop) for issue in turn.issued],
        turn.dropped,
        turn.finish,
        sorted(undoing.waiting),
        undoing.seq,
    )


def states(plan: UndoPlanned, expected: list[Place]) -> Iterator[tuple[Place, str]]:
    """Yield each effect, and how far its undo is: '', open, or ended."""
    rows = {undone_key(row.key)[0]: row for row in plan.steps.values() if row.key.startswith("undo:")}
    for place in expected:
        row = rows.get(place.key)
        yield place, "" if row is None else "open" if row.delivered_seq is None else "ended"


@settings(deadline=None, max_examples=300)
@given(histories(), st.data())
def test_every_effect_is_undone_once_in_the_reverse_of_completion(
    history: History, data: st.DataObject
) -> None:
    """For any history, and any order and outcome of the undos, none is missing, twice, too early or too late. A node
    that makes the plan again from the rows, at any point, goes on the same."""
    plan = UndoPlanned(history.run, history.steps, LANES, children=history.children, steps_known=KNOWN)
    failed: set[str] = set()
    plan.commit()
    while plan.finish is None:
        begun = {place.key: state for place, state in states(plan, history.expected)}
        for b in history.expected:
            blocked = any(precedes(b, a) and begun[a.key] != "ended" for a in history.expected)
            assert (begun[b.key] == "") == blocked, f"{b.key} of {begun}"
        key = data.draw(st.sampled_from(plan.open))
        if data.draw(st.booleans()):
            assert seen(plan.made())[0] == [], "what was ready is issued already"
            plan.rebuild()
        other = plan.made()
        n = plan.n(key)
        outcome = data.draw(st.sampled_from([StepState.SUCCEEDED] * 3 + [StepState.FAILED]))
        error = None if outcome is StepState.SUCCEEDED else NO
        if error:
            failed.add(key)
        other.deliver(Outcome("", n, outcome, b"null", error, 0.0))
        before = len(plan.steps)
        turn = plan.end(key, outcome, error)
        assert seen(other) == (
            [(issue.n, issue.key, issue.name, issue.input, issue.after_stop) for issue in turn.issued],
            turn.dropped,
            turn.finish,
            sorted(plan.undoing.waiting),
            plan.undoing.seq,
        )
        assert len(plan.steps) == before + len(turn.issued)
    undos = sorted(row.key for row in plan.steps.values() if row.key.startswith("undo:"))
    assert undos == sorted(f"undo:{place.key}" for place in history.expected)
    if failed:
        assert plan.how == "stuck"
        plan.rebuild().say("retry")
        again = {key for keys in plan.asked for key in keys if key.startswith("undo:#2:")}
        assert again, "what gave up is tried again"
        while plan.how == "stuck":
            for key in list(plan.open):
                plan.rebuild().succeed(key)
    assert plan.how == ("undone" if history.expected else "failed")
