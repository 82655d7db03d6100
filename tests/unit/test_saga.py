"""Sagas, points of no return and undos by hand, as the decider handles them."""

import asyncio

import msgspec
import pytest

from holdfast import Stop, continue_as_new, keep, saga, step, undo_with, workflow
from holdfast.codec import describe_error, end_of
from holdfast.decider.decider import Decider
from holdfast.errors import Drift, Unreadable, WorkflowError
from holdfast.model import StepKind, StepState
from holdfast.workflow import registry
from holdfast.workflow.workflow import Workflow
from tests.unit.undo_recorder import UndoRecorder


@step
async def book(what: str) -> str:
    return what


@book.undo
async def unbook(done: str | None, what: str) -> None: ...


@step(undo_failed=True)
async def build(what: str) -> str:
    return what


@build.undo
async def tear_down(done: str | None, what: str) -> None: ...


@step
async def look(what: str) -> str:
    return what


@step
async def tidy(place: str) -> None: ...


@workflow
async def inner(n: int) -> int:
    await book("inside")
    return n


class RefusedError(Exception):
    """What the third booking raises."""


def issued(run: UndoRecorder) -> list[str]:
    return [issue.key for issue in run.turns[-1].issued]


def undone(run: UndoRecorder) -> list[str]:
    return [key.removeprefix("undo:") for key in run.keys if key.startswith("undo:")]


def decoded(run: UndoRecorder, key: str) -> dict[str, object]:
    raw = run.steps[run.n(key)].input
    assert raw is not None
    found: dict[str, object] = msgspec.json.decode(raw)
    return found


class TestUndoing:
    """What a saga does when its body raises."""

    def test_it_undoes_newest_first_and_lets_the_code_go_on(self) -> None:
        """The undos are steps; the exception goes on when they are done, and the workflow may catch it."""

        @workflow
        async def trip() -> str:
            try:
                async with saga():
                    await book("flight")
                    await look("weather")
                    await book("hotel")
                    raise RefusedError("no car")
            except RefusedError as error:
                return f"stayed: {error}"

        run = UndoRecorder(trip).begin()
        run.succeed("book", "F1")
        run.succeed("look", "rain")
        run.succeed("book#2", "H1")
        assert issued(run) == ["undo:book#2"]
        assert run.turns[-1].issued[0].step is unbook
        assert run.turns[-1].issued[0].arguments.what == "hotel"
        assert decoded(run, "undo:book#2")["$done"] == "H1"
        run.succeed("undo:book#2")
        assert issued(run) == ["undo:book"]
        run.succeed("undo:book")
        assert run.result() == "stayed: no car"

    def test_what_overlapped_is_undone_side_by_side(self) -> None:
        """Steps of a gather are undone together, and after them what completed before them."""

        @workflow
        async def trip() -> None:
            try:
                async with saga():
                    await book("first")
                    await asyncio.gather(book("a"), book("b"))
                    raise RefusedError
            except RefusedError:
                pass

        run = UndoRecorder(trip).begin()
        run.succeed("book", "1")
        run.succeed("book#2", "2")
        run.succeed("book#3", "3")
        assert issued(run) == ["undo:book#3", "undo:book#2"]
        run.succeed("undo:book#2")
        assert issued(run) == []
        run.succeed("undo:book#3")
        assert issued(run) == ["undo:book"]
        run.succeed("undo:book")
        assert run.result() is None

    def test_only_what_may_have_had_an_effect_is_undone(self) -> None:
        """An error of the step's own says that it did nothing. After a lost or timed out attempt nobody knows.
        `undo_failed` undoes it anyway."""

        @workflow
        async def trip() -> None:
            try:
                async with saga():
                    for one in (book, book, book, build):
                        try:
                            await one("x")
                        except Exception:  # noqa: BLE001  any error will do
                            pass
                    raise RefusedError
            except RefusedError:
                pass

        run = UndoRecorder(trip).begin()
        run.fail("book", ValueError("no"))
        run.fail("book#2", TimeoutError(), ending="timed out")
        run.fail("book#3", ConnectionError(), ending="lost")
        run.fail("build", ValueError("half built"))
        for key in ("undo:build", "undo:book#3", "undo:book#2"):
            assert issued(run) == [key]
            assert decoded(run, key)["$done"] is None
            run.succeed(key)
        assert run.result() is None

    def test_an_attempt_whose_outcome_is_unknown_counts_whatever_came_later(self) -> None:
        """`unsure` in the error says that an earlier attempt may have done it."""

        @workflow
        async def trip() -> None:
            async with saga():
                await book("x")

        run = UndoRecorder(trip).begin()
        error = '{"type":"builtins.ValueError","message":"no","unsure":true}'
        run.end("book", StepState.FAILED, None, error)
        assert issued(run) == ["undo:book"]

    def test_steps_that_still_run_are_given_up_and_undone_with_none(self) -> None:
        """One branch fails, and the others are cancelled. Nobody knows what they did, so they are undone, a moment
        later."""

        @workflow
        async def trip() -> None:
            try:
                async with saga():
                    await asyncio.gather(book("a"), book("b"))
            except RefusedError:
                await look("other")

        run = UndoRecorder(trip).begin()
        run.start("book#2")
        turn = run.fail("book", RefusedError())
        assert turn.dropped == [run.n("book#2")]
        (undo,) = turn.issued
        assert (undo.key, undo.after_stop, undo.arguments.done) == ("undo:book#2", True, None)
        run.succeed("undo:book#2")
        assert issued(run) == ["look"]

    def test_a_step_that_was_never_issued_is_not_undone(self) -> None:
        """The code asked for it and gave it up in one turn, so no agent ever saw it."""

        @workflow
        async def trip() -> None:
            async with saga():
                task = asyncio.create_task(book("x"))
                await asyncio.sleep(0)
                task.cancel()
                raise RefusedError

        run = UndoRecorder(trip).begin()
        assert run.keys == []
        assert run.finish is not None

    def test_tasks_started_in_it_belong_to_it(self) -> None:
        """Tasks that were started around it do not."""

        @workflow
        async def trip() -> None:
            outside = asyncio.create_task(book("outside"), name="outside")
            try:
                async with saga(), asyncio.TaskGroup() as group:
                    group.create_task(book("a"))
                    group.create_task(book("b"))
                    await look("x")
                    raise RefusedError
            except* RefusedError:
                pass
            await outside

        run = UndoRecorder(trip).begin()
        run.succeed("book", "A")
        run.succeed("outside", "O")
        run.start("book#2")
        run.succeed("look", "")
        assert sorted(issued(run)) == ["undo:book", "undo:book#2"]
        run.succeed("undo:book")
        run.succeed("undo:book#2")
        assert run.result() is None

    def test_a_task_that_outlives_its_saga_belongs_to_the_one_around(self) -> None:
        """What it asks for after the inner saga was left is undone with the outer one."""

        @workflow
        async def trip() -> None:
            async def later() -> None:
                await look("x")
                await book("late")

            async with saga():
                async with saga():
                    task = asyncio.create_task(later())
                    await asyncio.sleep(0)
                await task
                raise RefusedError

        run = UndoRecorder(trip).begin()
        run.succeed("later/look", "")
        run.succeed("later/book", "L")
        assert issued(run) == ["undo:later/book"]

    def test_an_undo_that_cannot_read_the_result_holds_the_run(self) -> None:
        """It is not called with what it cannot read, and the run does not fail. A person has to mend the code."""

        @step
        async def odd(n: int) -> int:
            return n

        @odd.undo  # type: ignore[arg-type]  # the claim
        async def even(done: str | None, n: int) -> None: ...

        @workflow
        async def flow() -> None:
            async with saga():
                await odd(1)
                raise RefusedError

        run = UndoRecorder(flow).begin()
        with pytest.raises(
            Unreadable, match=r"even gets to undo step 'odd' .* expected `str \| null`, got `int`"
        ):
            run.succeed("odd", 5)


class TestNesting:
    def test_an_inner_saga_left_normally_is_part_of_the_outer_one(self) -> None:
        """What the inner one did is undone when the outer one raises."""

        @workflow
        async def trip() -> None:
            async with saga():
                await book("a")
                async with saga():
                    await book("b")
                raise RefusedError

        run = UndoRecorder(trip).begin()
        run.succeed("book", "A")
        run.succeed("book#2", "B")
        run.succeed("undo:book#2")
        assert issued(run) == ["undo:book"]

    def test_what_the_inner_saga_undid_is_not_undone_again(self) -> None:
        """Each effect is undone once."""

        @workflow
        async def trip() -> None:
            async with saga():
                await book("a")
                try:
                    async with saga():
                        await book("b")
                        raise RefusedError
                except RefusedError:
                    pass
                raise RefusedError

        run = UndoRecorder(trip).begin()
        run.succeed("book", "A")
        run.succeed("book#2", "B")
        run.succeed("undo:book#2")
        assert issued(run) == ["undo:book"]
        run.succeed("undo:book")
        assert run.finish is not None
        assert run.finish.how == "undoing"
        plan = run.undone()
        plan.commit()
        assert plan.finish is not None
        assert (plan.asked, plan.how) == ([], "undone")


class TestKeep:
    def test_what_was_asked_for_before_keep_is_not_undone(self) -> None:
        """The point of no return counts in a saga and in the run."""

        @workflow
        async def trip() -> None:
            async with saga():
                await book("a")
                keep()
                await book("b")
                raise RefusedError

        run = UndoRecorder(trip).begin()
        run.succeed("book", "A")
        assert run.kept_n == run.n("book")
        run.succeed("book#2", "B")
        assert issued(run) == ["undo:book#2"]
        run.succeed("undo:book#2")
        assert run.undone().all() == []

    @pytest.mark.parametrize("replayed_after", ["book", "book#2"])
    def test_a_replay_remembers_what_was_kept_in_a_saga(self, replayed_after: str) -> None:
        """Past the point of no return nothing before it is undone, also by a process that took the run over."""

        @workflow
        async def trip() -> None:
            async with saga():
                await book("a")
                keep()
                await book("b")
                await look("x")
                raise RefusedError

        run = UndoRecorder(trip).begin()
        for key in ("book", "book#2"):
            run.succeed(key, key)
            if key == replayed_after:
                run.adopt()
        run.succeed("look", "")
        assert issued(run) == ["undo:book#2"]
        run.succeed("undo:book#2")
        assert run.undone().all() == []

    def test_what_is_asked_for_in_the_same_turn_is_distinguished(self) -> None:
        """Steps before `keep()` are kept and those after it are not, although all get their numbers together."""

        @workflow
        async def trip() -> None:
            tasks = [asyncio.create_task(book("a")), asyncio.create_task(book("b"))]
            await asyncio.sleep(0)
            keep()
            tasks.append(asyncio.create_task(book("c")))
            await asyncio.gather(*tasks)
            raise RefusedError

        run = UndoRecorder(trip).begin()
        assert run.kept_n == 2
        for key in ("book", "book#2", "book#3"):
            run.succeed(key, key)
        assert run.undone().all() == [["undo:book#3"]]

    def test_a_run_that_kept_everything_fails_as_it_is(self) -> None:
        """There is nothing to undo, so the run does not become `undoing`."""

        @workflow
        async def trip() -> None:
            await book("a")
            undo_with(tidy, "desk")
            keep()
            raise RefusedError

        run = UndoRecorder(trip).begin()
        run.succeed("book", "A")
        assert "Refused" in run.failure()

    def test_a_replay_does_not_report_it_again(self) -> None:
        """It was committed with the turn in which it happened."""

        @workflow
        async def trip() -> None:
            await book("a")
            keep()
            await book("b")

        run = UndoRecorder(trip).begin()
        run.succeed("book", "A")
        assert run.turns[-1].kept_n == 1
        run.adopt()
        assert run.turns[-1].kept_n is None


class TestByHand:
    def test_an_undo_by_hand_is_recorded_and_called_in_its_turn(self) -> None:
        """`undo_with` writes a row that waits; the run's undoing calls the step it names."""

        @workflow
        async def trip() -> None:
            await book("a")
            undo_with(tidy, "desk")
            await book("b")
            raise RefusedError

        run = UndoRecorder(trip).begin()
        turn = run.succeed("book", "A")
        by_hand, call = turn.issued
        assert (by_hand.key, by_hand.kind, by_hand.name, by_hand.step) == (
            "tidy",
            StepKind.UNDO,
            tidy.name,
            tidy,
        )
        assert (by_hand.input, call.key) == (b'{"place":"desk"}', "book#2")
        assert list(run.decider.waiting) == [call.n]
        run.succeed("book#2", "B")
        assert run.undone().all() == [["undo:book#2"], ["undo:tidy"], ["undo:book"]]

    def test_in_a_saga_it_takes_its_turn_among_the_others(self) -> None:
        """Of several in one turn the newest comes first."""

        @workflow
        async def trip() -> None:
            try:
                async with saga():
                    await book("a")
                    undo_with(tidy, "desk")
                    undo_with(tidy, "floor")
                    await book("b")
                    raise RefusedError
            except RefusedError:
                pass

        run = UndoRecorder(trip).begin()
        run.succeed("book", "A")
        run.succeed("book#2", "B")
        for key in ("undo:book#2", "undo:tidy#2", "undo:tidy"):
            assert issued(run) == [key]
            run.succeed(key)
        assert decoded(run, "undo:tidy") == {"place": "desk"}
        assert issued(run) == ["undo:book"]
        run.succeed("undo:book")
        assert run.result() is None
        assert {row.key: row.delivered_seq for row in run.steps.values() if row.kind is StepKind.UNDO} == {
            "tidy": 0,
            "tidy#2": 0,
        }, "a run that has ended has no live step"

    def test_it_is_not_something_to_wait_for(self) -> None:
        """A run that only registered an undo and waits for nothing else is stalled."""

        @workflow
        async def trip() -> None:
            undo_with(tidy, "desk")
            await asyncio.Event().wait()

        run = UndoRecorder(trip).begin()
        assert run.finish is not None
        assert run.finish.error is not None
        assert "not a step, timer, signal or child" in describe_error(run.finish.error)

    def test_a_run_that_ends_well_never_writes_one_of_its_last_turn(self) -> None:
        """Nobody will need the row."""

        @workflow
        async def trip() -> None:
            undo_with(tidy, "desk")

        run = UndoRecorder(trip).begin()
        assert run.result() is None
        assert run.steps == {}

    def test_arguments_are_checked_where_it_is_written(self) -> None:
        """They are not checked only when the run is in trouble already."""

        @workflow
        async def trip() -> None:
            undo_with(tidy, 5)  # type: ignore[arg-type]  # the claim

        assert "place: expected `str`, got `int`" in UndoRecorder(trip).begin().failure()

    def test_it_takes_steps_only(self) -> None:
        """A plain function is not durable."""

        @workflow
        async def trip() -> None:
            undo_with(len, "x")  # type: ignore[arg-type]  # the claim

        assert "put @step on it" in UndoRecorder(trip).begin().failure()


class TestEnding:
    """How a run whose code ends is handed over."""

    def test_a_run_with_nothing_to_undo_fails_at_once(self) -> None:
        """Without an undo, a child or an undo by hand the run is `failed`."""

        @workflow
        async def flow() -> None:
            await look("x")
            raise RefusedError

        run = UndoRecorder(flow).begin()
        run.succeed("look", "")
        assert "Refused" in run.failure()

    def test_a_failed_run_is_undone(self) -> None:
        """The decider says `undoing`, and how it would have ended."""

        @workflow
        async def flow() -> None:
            await book("a")
            raise Stop("no")

        run = UndoRecorder(flow).begin()
        run.succeed("book", "A")
        assert run.finish is not None
        assert (run.finish.how, run.finish.ending) == ("undoing", "failed")
        assert run.finish.error is not None
        assert describe_error(run.finish.error) == "Stop: no"
        plan = run.undone()
        assert plan.all() == [["undo:book"]]
        assert plan.finish is not None
        assert (plan.how, describe_error(plan.error)) == ("undone", "Stop: no")
        assert (end_of(plan.error).seq, list(end_of(plan.error).undone)) == (1, [1])

    def test_a_cancelled_run_is_undone_and_the_saga_leaves_it_to_the_run(self) -> None:
        """The saga issues nothing. The step that ran is given up, and its undo gets None."""

        @workflow
        async def flow() -> None:
            async with saga():
                await book("a")
                await book("b")

        run = UndoRecorder(flow).begin()
        run.succeed("book", "A")
        run.start("book#2")
        turn = run.cancel()
        assert turn.finish is not None
        assert (turn.issued, turn.dropped) == ([], [run.n("book#2")])
        assert (turn.finish.how, turn.finish.ending) == ("undoing", "cancelled")
        plan = run.undone()
        assert plan.all() == [["undo:book#2"], ["undo:book"]]
        assert plan.after_stop == ["undo:book#2"]
        assert plan.how == "cancelled"

    def test_code_that_catches_the_cancellation_of_a_saga_does_not_keep_its_effects(self) -> None:
        """The saga left its part to the run. So the run is undone, even if its code returns."""

        @workflow
        async def flow() -> str:
            try:
                async with saga():
                    await book("a")
                    await book("b")
            except asyncio.CancelledError:
                pass
            return "fine"

        run = UndoRecorder(flow).begin()
        run.succeed("book", "A")
        run.cancel()
        assert run.finish is not None
        assert (run.finish.how, run.finish.ending) == ("undoing", "cancelled")
        assert run.undone().all() == [["undo:book"]]

    def test_a_run_at_its_deadline_is_undone_as_failed(self) -> None:
        """A deadline that has passed is a failure."""

        @workflow
        async def flow() -> None:
            await book("a")
            await asyncio.sleep(1e6)

        run = UndoRecorder(flow, deadline=1100.0).begin()
        run.succeed("book", "A")
        run.fire("$deadline")
        assert run.finish is not None
        assert (run.finish.how, run.finish.ending) == ("undoing", "failed")
        assert run.undone().all() == [["undo:book"]]

    def test_continuing_as_new_keeps_what_was_done(self) -> None:
        """A generation that ended well is not undone, and its undos by hand are dropped."""

        @workflow
        async def flow(n: int) -> None:
            async with saga():
                await book("a")
                undo_with(tidy, "desk")
                await look("x")
                continue_as_new(n + 1)

        run = UndoRecorder(flow, 1).begin()
        run.succeed("book", "A")
        turn = run.succeed("look", "")
        assert run.finish is not None
        assert run.finish.how == "continued"
        assert (turn.issued, turn.dropped) == ([], [run.n("tidy")])

    def test_a_saga_left_behind_in_a_task_is_undone_before_the_run_ends(self) -> None:
        """The task is cancelled when the workflow returns, and its saga undoes its part."""

        @workflow
        async def flow() -> str:
            async def side() -> None:
                async with saga():
                    await book("a")
                    await book("b")

            task = asyncio.create_task(side())
            await look("x")
            del task
            return "done"

        run = UndoRecorder(flow).begin()
        run.succeed("side/book", "A")
        run.start("side/book#2")
        run.succeed("look", "")
        assert issued(run) == ["undo:side/book#2"]
        assert run.finish is None
        run.adopt()
        run.succeed("undo:side/book#2")
        run.succeed("undo:side/book")
        assert run.result() == "done"


class TestGivingUp:
    def trip(self) -> UndoRecorder:
        @workflow
        async def trip() -> str:
            try:
                async with saga():
                    await book("a")
                    await book("b")
                    raise RefusedError("no car")
            except RefusedError:
                return "went on"

        run = UndoRecorder(trip).begin()
        run.succeed("book", "A")
        run.succeed("book#2", "B")
        return run

    def test_the_others_are_still_tried_and_then_the_run_ends(self) -> None:
        """The workflow cannot go on as if its part were undone. So the whole run is `undoing`, and then stuck."""
        run = self.trip()
        run.fail("undo:book#2", ValueError("bank is down"))
        assert run.finish is None
        assert issued(run) == ["undo:book"]
        turn = run.succeed("undo:book")
        assert turn.finish is not None
        assert (turn.finish.how, turn.finish.ending) == ("undoing", "failed")
        assert turn.finish.error is not None
        assert describe_error(turn.finish.error) == "RefusedError: no car"
        plan = run.undone()
        plan.commit()
        assert plan.asked == []
        assert plan.how == "stuck"
        assert "bank is down" in describe_error(plan.error)

    def test_a_replay_ends_it_too(self) -> None:
        """A crash before the commit of that end changes nothing."""
        run = self.trip()
        run.fail("undo:book#2", ValueError("bank is down"))
        run.adopt()
        turn = run.succeed("undo:book")
        assert turn.finish is not None
        assert turn.finish.how == "undoing"

    def test_an_operator_lets_it_try_again(self) -> None:
        """Each try has a key of its own."""
        run = self.trip()
        run.fail("undo:book#2", ValueError("bank is down"))
        run.succeed("undo:book")
        plan = run.undone()
        plan.commit()
        plan.rebuild().say("retry")
        assert plan.asked == [["undo:#2:book#2"]]
        plan.succeed("undo:#2:book#2")
        assert plan.how == "undone"


class TestInterrupting:
    def test_a_timeout_does_not_interrupt_the_undoing(self) -> None:
        """It is raised when the part is undone."""

        @workflow
        async def trip() -> str:
            try:
                async with asyncio.timeout(10), saga():
                    await book("a")
                    raise RefusedError
            except (RefusedError, TimeoutError):
                return "caught"

        run = UndoRecorder(trip).begin()
        run.succeed("book", "A")
        assert issued(run) == ["undo:book"]
        run.fire("timeout")
        assert run.finish is None
        assert run.turns[-1].dropped == ()
        run.succeed("undo:book")
        assert run.result() == "caught"

    def test_a_step_that_times_out_in_it_is_undone(self) -> None:
        """A cancellation by the code itself is a reason to undo, like any exception."""

        @workflow
        async def trip() -> str:
            try:
                async with asyncio.timeout(10), saga():
                    await book("a")
                    await look("x")
            except TimeoutError:
                return "late"
            return "in time"

        run = UndoRecorder(trip).begin()
        run.succeed("book", "A")
        run.fire("timeout")
        assert issued(run) == ["undo:book"]
        run.succeed("undo:book")
        assert run.result() == "late"

    def test_cancelling_the_run_hands_the_undo_in_flight_over(self) -> None:
        """Its row stays. The run waits for it while it is undone, and does not begin a second one."""

        @workflow
        async def trip() -> None:
            await book("before")
            async with saga():
                await book("a")
                raise RefusedError

        run = UndoRecorder(trip).begin()
        run.succeed("book", "0")
        run.succeed("book#2", "A")
        run.start("undo:book#2")
        turn = run.cancel()
        assert turn.finish is not None
        assert (turn.finish.how, turn.finish.ending, turn.dropped) == ("undoing", "cancelled", ())
        plan = run.undone()
        plan.commit()
        assert (plan.asked, plan.open) == ([], ["undo:book#2"])
        plan.succeed("undo:book#2")
        assert plan.asked == [["undo:book"]]

    def test_a_cancel_after_the_code_returned_still_cancels_the_run(self) -> None:
        """Only a task that the code left behind in a saga is being undone then. The run has not ended, so it can be
        cancelled, and does not end as succeeded with everything it did."""

        @workflow
        async def flow() -> str:
            async def side() -> None:
                async with saga():
                    await book("a")
                    await book("b")

            await book("main")
            task = asyncio.create_task(side())
            await look("x")
            del task
            return "done"

        run = UndoRecorder(flow).begin()
        run.succeed("book", "M")
        run.succeed("side/book", "A")
        run.start("side/book#2")
        run.succeed("look", "")
        assert issued(run) == ["undo:side/book#2"]
        run.cancel()
        while run.finish is None:
            run.succeed(min(run.open))
        assert (run.finish.how, run.finish.ending) == ("undoing", "cancelled")
        assert ["undo:book"] in run.undone().all()


class TestChildren:
    def test_a_child_the_code_gave_up_is_asked_to_cancel_and_its_row_waits(self) -> None:
        """What it did until it ended may have to be undone. Its end is delivered, and changes nothing."""

        @workflow
        async def flow() -> str:
            try:
                async with asyncio.timeout(10):
                    await inner(1)
            except TimeoutError:
                pass
            return await look("x")

        run = UndoRecorder(flow).begin()
        turn = run.fire("timeout")
        n = run.n("inner")
        assert (turn.dropped, turn.cancelled) == ([], [2])
        assert run.decider.expects(n)
        run.adopt()
        assert run.turns[-1].cancelled == ()
        assert run.decider.expects(n)
        run.end("inner", StepState.FAILED, None, '{"type":"x","message":"cancelled"}')
        assert not run.decider.expects(n)
        run.adopt()
        run.succeed("look", "sun")
        assert run.result() == "sun"

    def test_at_a_normal_end_it_is_dropped(self) -> None:
        """A run that has ended has no live step."""

        @workflow
        async def flow() -> None:
            try:
                async with asyncio.timeout(10):
                    await inner(1)
            except TimeoutError:
                await look("x")

        run = UndoRecorder(flow).begin()
        run.fire("timeout")
        turn = run.succeed("look", "")
        assert turn.dropped == [run.n("inner")]

    def test_when_the_run_is_undone_children_are_asked_to_cancel_and_awaited(self) -> None:
        """Their rows stay open until they end."""

        @workflow
        async def flow() -> None:
            await asyncio.gather(inner(1), book("a"))

        run = UndoRecorder(flow).begin()
        turn = run.fail("book", ValueError("no"))
        assert turn.finish is not None
        assert (turn.finish.how, turn.dropped, turn.cancelled) == ("undoing", [], [1])
        plan = run.undone({1})
        plan.commit()
        assert plan.open == ["inner"]
        plan.end("inner", StepState.FAILED)
        assert plan.how == "failed", "there was nothing to undo"


class TestChildrenInSagas:
    """A saga undoes what its children did, as if their steps stood in the saga."""

    def test_a_child_is_undone_in_its_place(self) -> None:
        """The step that undoes it names the step that waited for it. The code goes on when that step has ended."""

        @workflow
        async def flow() -> str:
            try:
                async with saga():
                    await book("first")
                    await inner(1)
                    await book("last")
                    raise RefusedError("no car")
            except RefusedError:
                return await look("x")

        run = UndoRecorder(flow).begin()
        run.succeed("book", "1")
        run.succeed("inner", 1)
        run.succeed("book#2", "2")
        run.succeed("undo:book#2")
        (issue,) = run.turns[-1].issued
        assert (issue.key, issue.kind, issue.child) == ("undo:inner", StepKind.CHILD, None)
        assert issue.child_undo is not None
        assert (issue.child_undo.child_n, issue.child_undo.joins) == (run.n("inner"), False)
        assert "no car" in (issue.child_undo.error or "")
        run.adopt()
        assert issued(run) == []
        run.succeed("undo:inner", value=True)
        assert issued(run) == ["undo:book"]
        run.succeed("undo:book")
        assert issued(run) == ["look"]

    def test_what_was_kept_or_only_started_is_not_undone(self) -> None:
        """Nor is a child that failed: it has undone itself. A run that may be joined is left to the store."""

        @workflow
        async def flow() -> None:
            try:
                async with saga():
                    await inner(1)
                    keep()
                    await inner.start(2)
                    try:
                        await inner(3)
                    except ValueError:
                        pass
                    await inner.using(id="joined", existing="join")(4)
                    raise RefusedError
            except RefusedError:
                pass

        run = UndoRecorder(flow).begin()
        run.succeed("inner", 1)
        run.succeed("inner#2", "run-1/inner#2")
        run.fail("inner#3", ValueError("no"))
        run.succeed("inner#4", 4)
        assert issued(run) == ["undo:inner#4"]
        undo = run.turns[-1].issued[0].child_undo
        assert undo is not None
        assert undo.joins
        run.succeed("undo:inner#4", value=False)
        assert run.result() is None

    @pytest.mark.parametrize("ends", ["cancelled", "succeeded"])
    @pytest.mark.parametrize("crashes", [False, True])
    def test_a_child_that_was_given_up_is_awaited(self, ends: str, crashes: bool) -> None:
        """It is cancelled, and undoes itself. If it succeeds instead, it is undone then. What was done before it waits
        for that."""

        @workflow
        async def flow() -> str:
            try:
                async with saga():
                    await book("first")
                    async with asyncio.timeout(10):
                        await inner(1)
            except TimeoutError:
                return "too late"
            return "in time"

        run = UndoRecorder(flow).begin()
        run.succeed("book", "1")
        turn = run.fire("timeout")
        assert (turn.cancelled, turn.issued) == ([run.n("inner")], [])
        if crashes:
            run.adopt()
        if ends == "succeeded":
            run.succeed("inner", 1)
            assert issued(run) == ["undo:inner"]
            if crashes:
                run.adopt()
            run.succeed("undo:inner", value=True)
        else:
            run.end("inner", StepState.FAILED, None, '{"type":"x","message":"cancelled"}')
        assert issued(run) == ["undo:book"]
        if crashes:
            run.adopt()
        run.succeed("undo:book")
        assert run.result() == "too late"

    def test_a_child_that_cannot_be_undone_ends_the_code(self) -> None:
        """The others are tried. Then the run undoes itself as a whole, and is stuck."""

        @workflow
        async def flow() -> None:
            try:
                async with saga():
                    await book("first")
                    await inner(1)
                    raise RefusedError
            except RefusedError:
                await look("x")

        run = UndoRecorder(flow).begin()
        run.succeed("book", "1")
        run.succeed("inner", 1)
        run.fail("undo:inner", ValueError("no"))
        run.succeed("undo:book")
        plan = run.undone({run.n("inner")})
        plan.commit()
        assert plan.how == "stuck"
        plan.finish = None
        plan.rebuild().say("retry")
        assert plan.asked == [["undo:#2:inner"]]
        plan.succeed("undo:#2:inner")
        assert plan.how == "undone"

    def test_a_run_that_is_cancelled_meanwhile_waits_for_it(self) -> None:
        """The child is not undone a second time."""

        @workflow
        async def flow() -> None:
            async with saga():
                await book("first")
                await inner(1)
                raise RefusedError

        run = UndoRecorder(flow).begin()
        run.succeed("book", "1")
        run.succeed("inner", 1)
        assert issued(run) == ["undo:inner"]
        turn = run.cancel()
        assert (turn.cancelled, turn.dropped) == ((), ())
        plan = run.undone({run.n("inner")})
        plan.commit()
        assert (plan.asked, plan.open) == ([], ["undo:inner"])
        plan.succeed("undo:inner")
        assert plan.asked == [["undo:book"]]

    def test_what_a_child_added_by_hand_last_is_recorded(self) -> None:
        """Its parent may undo it later. Of a run without a parent it is not."""

        @workflow
        async def flow() -> None:
            await look("x")
            undo_with(tidy, "desk")

        for is_child in (True, False):
            run = UndoRecorder(flow)
            run.settings["is_child"] = is_child
            run.decider = Decider(flow, "run-1", run.input, **run.settings)
            run.begin()
            turn = run.succeed("look", "sun")
            assert [issue.key for issue in turn.issued] == (["tidy"] if is_child else [])
            assert list(turn.dropped) == [issue.n for issue in turn.issued]


def test_a_saga_survives_a_crash_at_any_point() -> None:
    """Replayed after every delivery, the run asks for nothing twice and ends the same."""

    @workflow
    async def trip() -> str:
        await book("kept")
        keep()
        try:
            async with saga():
                await book("a")
                undo_with(tidy, "desk")
                await asyncio.gather(book("b"), book("c"), look("x"))
                raise RefusedError
        except RefusedError:
            return await look("other")

    run = UndoRecorder(trip).begin()
    while run.finish is None:
        run.adopt()
        assert issued(run) == []
        run.succeed(min(run.open), "v")
    assert run.result() == "v"
    assert undone(run) == ["book#4", "book#3", "tidy", "book#2"]


def test_an_undo_of_another_name_is_a_drift() -> None:
    """The code changed while a saga was undoing. The run is held, and nothing runs twice."""

    def flow_with(name: str) -> Workflow[[], None]:
        @step(name="drifting")
        async def work(n: int) -> int:
            return n

        @work.undo(name=name)
        async def unwork(done: int | None, n: int) -> None: ...

        @workflow(name="drifting_flow")
        async def flow() -> None:
            async with saga():
                await work(1)
                raise RefusedError

        return flow

    run = UndoRecorder(flow_with("one")).begin()
    run.succeed("drifting", 1)
    for name in ("drifting", "one"):
        del registry.steps[name]
    with pytest.raises(Drift, match="call one"):
        run.adopt(flow_with("two"))


def test_outside_of_a_run_there_is_nothing_to_undo() -> None:
    """Each error says where the function works."""

    async def use() -> None:
        async with saga():
            pass

    with pytest.raises(WorkflowError, match=r"undo_with\(\) works in a workflow only"):
        undo_with(tidy, "x")
    with pytest.raises(WorkflowError, match=r"keep\(\) works in a workflow only"):
        keep()
    with pytest.raises(WorkflowError, match=r"saga\(\) works in a workflow only"):
        asyncio.run(use())
