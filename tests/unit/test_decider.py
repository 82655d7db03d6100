"""The decider: workflow code as a pure function of what is delivered to it."""

import asyncio
import contextlib
import gc
import logging
import sys
import warnings
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from holdfast import Signal, continue_as_new, now, publish, random, set_progress, step, uuid4, workflow
from holdfast.decider.decider import Decider
from holdfast.errors import Unreadable
from holdfast.model import Outcome, StepKind, StepState
from holdfast.workflow.workflow import Workflow
from tests.unit.recorder import Recorder


@step
async def charge(card: str, cents: int) -> int:
    return cents


@step
def render(page: int) -> str:
    return str(page)


@step
async def release() -> None: ...


class BadCardError(Exception):
    """An author's own exception."""


paid = Signal("paid", int)


@dataclass
class Event:
    id: str


@workflow
async def order(card: str) -> int:
    first = await charge(card, 1)
    return first + await charge(card, 2)


def test_steps_are_issued_when_awaited_and_results_come_back_typed() -> None:
    """A run asks for one step, goes on with its result, and ends with its return value."""
    run = Recorder(order, "tok").begin()
    (issue,) = run.turns[0].issued
    assert (issue.n, issue.key, issue.kind, issue.name) == (
        1,
        "charge",
        StepKind.CALL,
        "tests.unit.test_decider.charge",
    )
    assert issue.input == b'{"card":"tok","cents":1}'
    assert issue.step is charge
    assert issue.arguments.cents == 1
    (second,) = run.succeed("charge", 10).issued
    assert (second.n, second.key) == (2, "charge#2")
    run.succeed("charge#2", 5)
    assert run.result() == 15
    assert run.decider.done


def test_numbers_start_above_the_base_and_are_never_used_twice() -> None:
    """A later generation goes on counting, and its keys say which generation they are of."""
    run = Recorder(order, "tok", base_n=40, generation=2).begin()
    assert [(i.n, i.key) for i in run.turns[0].issued] == [(41, "@2/charge")]


def test_using_overrides_travel_with_the_issue() -> None:
    """`charge.using(timeout=5)` is the same step with other settings, for this call."""

    @workflow
    async def flow() -> int:
        return await charge.using(timeout=5, priority=3, needs=["gpu", "eu"])("tok", 1)

    (issue,) = Recorder(flow).begin().turns[0].issued
    assert issue.step is not None
    assert (issue.name, issue.step.timeout_s, issue.step.priority, issue.step.needs) == (
        charge.name,
        5.0,
        3,
        ("eu", "gpu"),
    )


class TestKeys:
    """A key is the place in the task tree, the name, and the occurrence."""

    def test_gathered_calls_and_direct_calls_share_one_counter(self) -> None:
        """`await render(0)` then `gather(render(1), render(2))`: the wrapping tasks add no level."""

        @workflow
        async def flow() -> None:
            await render(0)
            await asyncio.gather(render(1), render(2), asyncio.sleep(5))
            await asyncio.sleep(1)

        run = Recorder(flow).begin()
        run.succeed("render", "0")
        for key in ("render#2", "render#3"):
            run.succeed(key, "x")
        run.fire("sleep")
        assert run.keys == ["render", "render#2", "render#3", "sleep", "sleep#2"]

    def test_tasks_of_own_coroutines_add_a_level(self) -> None:
        """Two branches of one name are distinguished by their number."""

        @workflow
        async def flow() -> None:
            async def branch(card: str) -> None:
                await charge(card, 1)
                await charge(card, 2)

            await asyncio.gather(branch("a"), branch("b"))

        run = Recorder(flow).begin()
        run.succeed("branch#2/charge", 1)
        assert run.keys == ["branch/charge", "branch#2/charge", "branch#2/charge#2"]

    def test_task_names_become_components(self) -> None:
        """An explicit task name is the component, in `create_task` and in a TaskGroup, on every version."""

        @workflow
        async def flow() -> None:
            async def branch() -> None:
                await charge("a", 1)

            async with asyncio.TaskGroup() as group:
                group.create_task(branch(), name="left")
                group.create_task(branch(), name="right/hand")
                group.create_task(branch())
                group.create_task(charge("b", 2), name="only")
                await asyncio.create_task(branch(), name="left")

        assert Recorder(flow).begin().keys == [
            "left/charge",
            "right_hand/charge",
            "branch/charge",
            "only",
            "left#2/charge",
        ]

    def test_wait_for_adds_no_level_on_any_version(self) -> None:
        """Before 3.12 `wait_for` makes a task, since then it does not: the keys are the same."""

        @workflow
        async def flow() -> None:
            async def branch() -> None:
                await charge("a", 1)

            await asyncio.wait_for(charge("a", 0), 5)
            await asyncio.wait_for(branch(), 5)

        run = Recorder(flow).begin()
        run.succeed("charge", 1)
        assert run.keys == ["timeout", "charge", "timeout#2", "charge#2"]

    def test_explicit_keys_stand_beside_the_counter(self) -> None:
        """`using(key=…)` names a call; a key with a slash in it stays one key."""

        @workflow
        async def flow() -> None:
            await asyncio.gather(
                charge.using(key="o/1#2")("a", 1), charge("a", 2), charge.using(key="second")("a", 3)
            )

        assert Recorder(flow).begin().keys == ["charge:o/1#2", "charge", "charge:second"]

    def test_the_same_explicit_key_twice_is_the_authors_error(self) -> None:
        """Two calls may not claim one key in one run."""

        @workflow
        async def flow() -> None:
            for _ in range(2):
                await charge.using(key="k")("a", 1)

        run = Recorder(flow).begin()
        run.succeed("charge:k", 1)
        assert "'charge:k' is used twice" in run.failure()

    def test_timers_are_named_by_what_set_them(self) -> None:
        """sleep, timeout, wait's timeout, and a bare call_later."""

        @workflow
        async def flow() -> None:
            asyncio.get_running_loop().call_later(9, list)
            async with asyncio.timeout(8):
                await asyncio.wait([asyncio.create_task(asyncio.sleep(7))], timeout=6)
                await release()

        run = Recorder(flow).begin()
        assert [(row.key, row.name, row.ready_at) for row in run.steps.values()] == [
            ("timer", "timer", 1009.0),
            ("timeout", "timeout", 1008.0),
            ("timeout#2", "timeout", 1006.0),
            ("sleep", "sleep", 1007.0),
        ]


class TestAsyncio:
    """The standard library works, because it only needs a loop."""

    def test_timeout_gives_up_a_step(self) -> None:
        """When the timer is delivered first, the code sees TimeoutError and the step is dropped."""

        @workflow
        async def flow() -> str:
            try:
                async with asyncio.timeout(5):
                    await charge("a", 1)
            except TimeoutError:
                return "late"
            return "paid"

        run = Recorder(flow).begin()
        turn = run.fire("timeout")
        assert turn.dropped == [run.n("charge")]
        assert run.result() == "late"

    def test_a_timer_that_is_not_needed_any_more_is_dropped(self) -> None:
        """The step came in time, so the recorded timer is dropped."""

        @workflow
        async def flow() -> int:
            async with asyncio.timeout(5):
                return await charge("a", 1)

        run = Recorder(flow).begin()
        assert run.succeed("charge", 7).dropped == [run.n("timeout")]
        assert run.result() == 7

    def test_what_is_cancelled_in_the_same_turn_is_never_issued(self) -> None:
        """A timer or step that the code asked for and gave up in the same turn leaves no trace."""

        @workflow
        async def flow() -> str:
            async with asyncio.timeout(5):  # noqa: ASYNC100  that is the point
                pass
            task = asyncio.create_task(charge("a", 1))
            await asyncio.sleep(0)
            task.cancel()
            return "done"

        run = Recorder(flow).begin()
        assert run.result() == "done"
        assert run.steps == {}

    def test_an_outcome_may_come_in_the_turn_that_gives_it_up(self) -> None:
        """It gets its number, and is not cancelled as well: a row ends once."""

        @workflow
        async def flow() -> str:
            try:
                async with asyncio.timeout(5):
                    await charge("a", 1)
            except TimeoutError:
                await charge("b", 2)
            return "late"

        run = Recorder(flow).begin()
        run.decider.deliver(Outcome("", run.n("timeout"), StepState.SUCCEEDED, None, None, 1005.0))
        assert run.decider.deliver(Outcome("", run.n("charge"), StepState.SUCCEEDED, b"1", None, 1005.0)) == 2
        turn = run.decider.take()
        assert turn.dropped == ()
        assert [issue.key for issue in turn.issued] == ["charge#2"]

    def test_first_completed_wins_and_the_rest_can_be_cancelled(self) -> None:
        """`asyncio.wait` picks by the order of delivery."""

        @workflow
        async def flow() -> int:
            tasks = [asyncio.create_task(charge("a", n)) for n in range(3)]
            done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in rest:
                task.cancel()
            return done.pop().result()

        run = Recorder(flow).begin()
        turn = run.succeed("charge#2", 42)
        assert run.result() == 42
        assert sorted(turn.dropped) == [1, 3]

    def test_a_task_group_cancels_its_siblings(self) -> None:
        """A failure in a group drops the other steps, and the code gets an exception group."""

        @workflow
        async def flow() -> str:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(charge("a", 1))
                    group.create_task(charge("b", 2))
            except ExceptionGroup as caught:
                return str(caught.exceptions[0])
            return "no"

        run = Recorder(flow).begin()
        assert run.fail("charge", ValueError("bad")).dropped == [2]
        assert run.result() == "bad"

    def test_queue_event_lock_semaphore_and_as_completed(self) -> None:
        """Tasks may talk to each other."""

        @workflow
        async def flow() -> list[int]:
            queue: asyncio.Queue[int] = asyncio.Queue(1)
            begun, lock, slots = asyncio.Event(), asyncio.Lock(), asyncio.Semaphore(1)

            async def produce() -> None:
                begun.set()
                for n in range(3):
                    async with lock, slots:
                        await queue.put(await charge("a", n))

            producing = asyncio.create_task(produce())
            await begun.wait()
            found = [await queue.get() for _ in range(3)]
            await producing
            return found + [await done for done in asyncio.as_completed([charge("b", 8), charge("b", 9)])]

        run = Recorder(flow).begin()
        for n, key in enumerate(["produce/charge", "produce/charge#2", "produce/charge#3"]):
            run.succeed(key, n)
        run.succeed("charge#2", 9)
        run.succeed("charge", 8)
        assert run.result() == [0, 1, 2, 9, 8]

    def test_as_completed_takes_its_order_from_the_code(self) -> None:
        """The standard library puts the coroutines in a set. Here the k-th coroutine has the k-th key all the same."""

        @workflow
        async def flow() -> list[int]:
            async def branch(n: int) -> int:
                return await charge("b", n)

            calls = [charge("a", n) for n in range(30)] + [branch(n) for n in range(30, 60)]
            return [await done for done in asyncio.as_completed(calls)]

        run = Recorder(flow).begin()
        asked = [int(row.input.split(b":")[-1][:-1]) for row in run.steps.values() if row.input]
        assert asked == list(range(60))
        assert run.keys[28:32] == ["charge#29", "charge#30", "branch/charge", "branch#2/charge"]

    def test_as_completed_of_a_set_is_refused(self) -> None:
        """A set has no order, so the error says what to pass instead."""

        @workflow
        async def flow() -> None:
            calls = [asyncio.sleep(0)]
            try:
                for done in asyncio.as_completed(set(calls)):
                    await done
            finally:
                calls[0].close()

        assert "give it a list or tuple" in Recorder(flow).begin().failure()

    def test_sets_of_tasks_have_one_order(self) -> None:
        """`asyncio.wait` returns sets. Iterating over one gives the same order at every replay."""

        @workflow
        async def flow() -> list[str]:
            tasks = [asyncio.create_task(charge("a", n), name=f"t{n}") for n in range(40)]
            done, _ = await asyncio.wait(tasks)
            return [task.get_name() for task in done]

        run = Recorder(flow).begin()
        for n in range(40):
            run.succeed(f"t{n}", n)
        assert run.result() == [f"t{n}" for n in range(40)]

    def test_shield_keeps_a_step_from_being_dropped(self) -> None:
        """A shielded step outlives the timeout around it."""

        @workflow
        async def flow() -> int:
            paying = asyncio.ensure_future(charge("a", 1))
            try:
                async with asyncio.timeout(5):
                    await asyncio.shield(paying)
            except TimeoutError:
                pass
            return await paying

        run = Recorder(flow).begin()
        assert run.fire("timeout").dropped == ()
        run.succeed("charge", 3)
        assert run.result() == 3

    def test_time_is_the_time_of_the_last_delivery(self) -> None:
        """now() and loop.time() follow the history, never the machine; a timer is never early."""

        @workflow
        async def flow() -> list[float]:
            first = now()
            assert first == datetime.fromtimestamp(1000, UTC)
            await charge("a", 1)
            times = [now().timestamp(), asyncio.get_running_loop().time()]
            await asyncio.sleep(60)
            return [*times, now().timestamp()]

        run = Recorder(flow).begin()
        run.succeed("charge", 1, after=25)
        assert run.steps[2].ready_at == 1085.0
        run.end("sleep", StepState.SUCCEEDED, None, None, after=1)  # a clock that went back
        assert run.result() == [1025.0, 1025.0, 1085.0]

    def test_no_wait_needs_no_row(self) -> None:
        """sleep(0) and elapsed timers are turns of the loop, not steps."""

        @workflow
        async def flow() -> int:
            for _ in range(10):
                await asyncio.sleep(0)
            await asyncio.sleep(-1)
            return 1

        run = Recorder(flow).begin()
        assert run.result() == 1
        assert run.steps == {}

    def test_sleeping_for_ever_is_a_timer_that_never_comes(self) -> None:
        """The timer of `asyncio.sleep(inf)` has a time that a database can store."""

        @workflow
        async def flow() -> None:
            await asyncio.sleep(float("inf"))

        (issue,) = Recorder(flow).begin().turns[0].issued
        assert issue.ready_at is not None
        assert datetime.fromtimestamp(issue.ready_at, UTC).year == 9999

    def test_async_generators_belong_to_the_run(self) -> None:
        """An abandoned generator runs its `finally` on the run's loop, with durable steps."""

        @workflow
        async def flow() -> list[int]:
            async def numbers() -> AsyncIterator[int]:
                try:
                    yield await charge("a", 1)
                    yield await charge("a", 2)
                finally:
                    await release()

            found = []
            async for n in numbers():
                found.append(n)
                break
            await charge("b", 3)
            return found

        run = Recorder(flow).begin()
        run.succeed("charge", 1)
        assert sorted(run.open) == ["aclose/release", "charge#2"]
        run.succeed("aclose/release")
        run.succeed("charge#2", 3)
        assert run.result() == [1]


class TestFailure:
    """How a run fails, and what its code sees before."""

    def test_a_failed_step_raises_its_own_exception(self) -> None:
        """The author catches the class the step raised, with a note that names the step."""

        @workflow
        async def flow() -> list[str]:
            try:
                await charge("a", 1)
            except BadCardError as error:
                return [str(error), *error.__notes__]
            return []

        run = Recorder(flow).begin()
        run.fail("charge", BadCardError("expired"))
        assert run.result() == ["expired", "in step charge"]

    def test_an_uncaught_exception_fails_the_run(self) -> None:
        """The exception is recorded with its type and message."""
        run = Recorder(order, "tok").begin()
        run.fail("charge", BadCardError("expired"))
        assert run.failure() == "BadCardError: expired"

    def test_a_cancelled_step_is_not_the_codes_own_cancellation(self) -> None:
        """An operator's cancelled step raises StepFailed, which `except Exception` catches."""

        @workflow
        async def flow() -> str:
            try:
                await charge("a", 1)
            except Exception as error:  # noqa: BLE001  what authors write
                return type(error).__name__ + " " + str(error)
            return ""

        run = Recorder(flow).begin()
        run.end("charge", StepState.CANCELLED, None, None)
        assert run.result() == "StepFailed step 'charge' was cancelled"

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
    def test_author_code_cannot_end_the_process(self, error: type[BaseException]) -> None:
        """KeyboardInterrupt and SystemExit from workflow code fail the run."""

        @workflow
        async def flow() -> None:
            await charge("a", 1)
            raise error("boo")

        run = Recorder(flow).begin()
        run.succeed("charge", 1)
        assert run.failure() == f"{error.__name__}: boo"

    def test_a_wrong_result_type_fails_the_run(self) -> None:
        """The declared return type is checked."""

        @workflow
        async def flow() -> int:
            return "text"  # type: ignore[return-value]  # on purpose

        assert "flow() result: expected `int`, got `str`" in Recorder(flow).begin().failure()

    def test_a_wrong_argument_raises_in_the_code(self) -> None:
        """A step call is checked where it is made."""

        @workflow
        async def flow() -> str:
            try:
                await charge("a", "many")  # type: ignore[arg-type]  # on purpose
            except Exception as error:  # noqa: BLE001  what authors write
                return str(error)
            return ""

        assert Recorder(flow).begin().result() == "charge(): cents: expected `int`, got `str`"

    def test_a_result_that_no_longer_fits_holds_the_run(self) -> None:
        """A recorded result is checked when it is read. The code sees neither a part of it nor an error instead of
        it."""
        run = Recorder(order, "tok").begin()
        with pytest.raises(Unreadable) as held:
            run.succeed("charge", "ten")
        error = held.value
        assert (error.key, error.kind, error.recorded) == ("charge", "result", '"ten"')
        assert error.asked == "charge() result: expected `int`, got `str`"

    def test_a_run_that_waits_for_nothing_fails_at_once(self) -> None:
        """The code would wait for ever for a future that no step can resolve. The error says where it waits."""

        @workflow(timeout=60)
        async def flow() -> None:
            await charge("a", 1)
            await asyncio.get_running_loop().create_future()

        run = Recorder(flow, deadline=9999.0).begin()
        run.succeed("charge", 1)
        assert "not a step, timer, signal or child" in run.failure()
        assert "test_decider.py" in run.failure()

    def test_a_loop_that_never_rests_fails_the_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """sleep(0) for ever is caught by the limit of callbacks in a turn."""
        monkeypatch.setattr("holdfast.decider.loop.TURN_MAX_CALLBACKS", 1000)

        @workflow
        async def flow() -> None:
            while True:  # noqa: ASYNC110  that is the point
                await asyncio.sleep(0)

        run = Recorder(flow).begin()
        assert "without waiting for a step" in run.failure()
        run.decider.close()

    @pytest.mark.parametrize("what", ["thread", "connection", "subprocess", "threadsafe", "reader"])
    def test_the_outside_world_is_refused(self, what: str) -> None:
        """I/O, threads and processes on the run's loop raise an error that says: put it in a step."""

        async def touch() -> None:
            loop = asyncio.get_running_loop()
            if what == "thread":
                await asyncio.to_thread(print)
            elif what == "connection":
                await asyncio.open_connection("localhost", 1)
            elif what == "subprocess":
                await asyncio.create_subprocess_exec("true")
            elif what == "threadsafe":
                loop.call_soon_threadsafe(print)
            else:
                loop.add_reader(0, print)

        @workflow
        async def flow() -> None:
            await touch()

        assert "put it in a step" in Recorder(flow).begin().failure()

    def test_a_background_failure_that_nobody_awaits_is_logged_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is logged when the run ends, and not again at every replay."""

        @workflow
        async def flow() -> None:
            async def boom() -> None:
                raise ValueError("nobody listens")

            asyncio.create_task(boom())  # noqa: RUF006  that is the point
            await charge("a", 1)

        with caplog.at_level(logging.WARNING, "holdfast.workflow"):
            run = Recorder(flow).begin().adopt().adopt()
            run.succeed("charge", 1)
            run.decider.close()
            gc.collect()
        assert caplog.text.count("nobody listens") == 1


class TestEnding:
    """Cancelling, deadlines, continuing as new, and what is left behind."""

    def test_cancel_raises_in_the_code_and_ends_the_run_cancelled(self) -> None:
        """The code may clean up by durable steps first."""

        @workflow
        async def flow() -> None:
            try:
                await charge("a", 1)
            finally:
                await release()

        run = Recorder(flow).begin()
        assert run.cancel().dropped == [1]
        run.succeed("release")
        assert run.finish is not None
        assert run.finish.how == "cancelled"

    def test_a_cancel_may_be_refused(self) -> None:
        """As in asyncio, code that catches it goes on."""

        @workflow
        async def flow() -> int:
            try:
                await charge("a", 1)
            except asyncio.CancelledError:
                return await charge("b", 2)
            return 0

        run = Recorder(flow).begin()
        run.cancel()
        run.succeed("charge#2", 5)
        assert run.result() == 5

    def test_a_run_that_cancels_itself_has_failed(self) -> None:
        """Only somebody else can cancel a run."""

        @workflow
        async def flow() -> None:
            raise asyncio.CancelledError

        assert "cancelled itself" in Recorder(flow).begin().failure()

    def test_the_deadline_is_a_timer_and_fails_the_run(self) -> None:
        """At the deadline the code is cancelled; the run has failed, not been cancelled."""
        run = Recorder(order, "tok", deadline=1600.0).begin()
        row = run.steps[1]
        assert (row.key, row.name, row.ready_at) == ("$deadline", "deadline", 1600.0)
        assert run.fire("$deadline").dropped == [run.n("charge")]
        assert run.failure() == "RunTimeout: the run did not end before its deadline"

    def test_the_deadline_goes_when_the_run_ends(self) -> None:
        """Nothing stays behind."""
        run = Recorder(order, "tok", deadline=1600.0).begin()
        run.succeed("charge", 1)
        assert run.succeed("charge#2", 2).dropped == [run.n("$deadline")]

    def test_background_tasks_end_with_the_run(self) -> None:
        """What the code left running is cancelled, its steps are dropped, and what it asks for then is not issued."""

        @workflow
        async def flow() -> int:
            async def background() -> None:
                try:
                    await charge("b", 9)
                finally:
                    await release()

            task = asyncio.create_task(background())
            await charge("a", 1)
            assert not task.done()
            return 1

        run = Recorder(flow).begin()
        turn = run.succeed("charge", 1)
        assert turn.dropped == [run.n("background/charge")]
        assert turn.issued == []
        assert run.result() == 1
        run.decider.close()

    def test_continue_as_new_ends_the_generation(self) -> None:
        """The next input is checked and encoded, and the turn says which signals are unread."""

        @workflow
        async def flow(n: int, note: str = "x") -> None:
            async with asyncio.TaskGroup():
                await charge("a", n)
                continue_as_new(n + 1, note="y")

        run = Recorder(flow, 1).begin()
        run.signal("paid", 5)
        run.succeed("charge", 1)
        assert run.finish is not None
        assert (run.finish.how, run.finish.input, run.finish.unread) == (
            "continued",
            b'{"n":2,"note":"y"}',
            (1,),
        )

    def test_continue_as_new_is_not_for_tasks(self) -> None:
        """Only the workflow function itself can end the generation."""

        @workflow
        async def flow() -> None:
            async def branch() -> None:
                continue_as_new()

            await asyncio.create_task(branch())

        assert "not in a task it started" in Recorder(flow).begin().failure()

    def test_deliveries_after_the_end_do_nothing(self) -> None:
        """A late outcome gets a number, and the code does not see it."""
        run = Recorder(order, "tok").begin()
        run.fail("charge", ValueError("no"))
        seq = run.decider.seq
        assert run.decider.deliver(Outcome("", 1, StepState.SUCCEEDED, b"1", None, 5000.0)) == seq + 1
        assert run.decider.take().finish is None


class TestSignals:
    """Signals may come before, during or after a wait; each wait takes one."""

    def test_a_signal_ends_the_wait(self) -> None:
        """The wait is a step, ended by the signal's number and payload."""

        @workflow
        async def flow() -> int:
            return await paid.wait()

        run = Recorder(flow).begin()
        assert [(row.key, row.kind) for row in run.steps.values()] == [("paid", StepKind.SIGNAL)]
        assert run.signal("paid", 7).ended == [(1, 1, b"7")]
        assert run.result() == 7

    def test_signals_that_come_early_wait_for_the_wait(self) -> None:
        """The waits take them in their order, one each. The step is issued and ended in one turn."""

        @workflow
        async def flow() -> list[int]:
            await charge("a", 1)
            return [await paid.wait(), await paid.wait(timeout=5)]

        run = Recorder(flow).begin()
        run.signal("paid", 7)
        run.signal("other", 1)
        run.signal("paid", 8)
        turn = run.succeed("charge", 1)
        assert turn.ended == [(2, 1, b"7"), (3, 3, b"8")]
        assert [i.key for i in turn.issued] == ["paid", "paid#2"]
        assert run.result() == [7, 8]

    def test_a_wait_can_time_out(self) -> None:
        """The code gets TimeoutError, and the wait is dropped. A later signal is for the next wait."""

        @workflow
        async def flow() -> int:
            try:
                await paid.wait(timeout=5)
            except TimeoutError:
                return await paid.wait()
            return 0

        run = Recorder(flow).begin()
        assert run.fire("timeout").dropped == [run.n("paid")]
        run.signal("paid", 3)
        assert run.result() == 3

    def test_what_fits_no_wait_is_set_aside(self) -> None:
        """The first wait that can read a signal takes it. A signal that none can read is set aside, and no later wait
        takes it."""
        text = Signal("paid", str)

        @workflow
        async def flow() -> list[int | str]:
            found: list[int | str] = list(await asyncio.gather(paid.wait(), text.wait()))
            return [*found, await text.wait()]

        run = Recorder(flow).begin()
        assert run.signal("paid", "seven").ended == [(2, 1, b'"seven"')]
        assert run.signal("paid", "eight").set_aside == [(2, "signal paid: expected `int`, got `str`")]
        assert run.adopt().turns[-1].set_aside == ()
        assert run.signal("paid", 9).ended == [(1, 3, b"9")]
        run.signal("paid", "ten")
        assert run.result() == [9, "seven", "ten"]

    def test_early_signals_that_do_not_fit_are_set_aside_by_the_wait(self) -> None:
        """The turn that asks for the signal sets them aside, and takes the first one that fits."""

        @workflow
        async def flow() -> list[int]:
            await charge("a", 1)
            first = await paid.wait()
            await charge("b", 1)
            return [first, await paid.wait()]

        run = Recorder(flow).begin()
        for value in ("one", None, 3, "four"):
            run.signal("paid", value)
        turn = run.succeed("charge", 1)
        assert [seq for seq, _ in turn.set_aside] == [1, 2]
        assert turn.ended == [(2, 3, b"3")]
        run.adopt()
        assert run.succeed("charge#2", 1).set_aside == [(4, "signal paid: expected `int`, got `str`")]
        run.adopt()
        run.signal("paid", 5)
        assert run.result() == [3, 5]

    def test_a_wait_that_only_got_what_does_not_fit_times_out(self) -> None:
        """A signal that was set aside is not for the next wait, either, even after a replay by code that could read
        it."""
        wide = Signal("paid", int | str)  # type: ignore[arg-type]  # a union is not a type to mypy

        def made(signal: Signal[int], version: str) -> Workflow[[], list[int]]:
            @workflow(name="timed", version=version)
            async def flow() -> list[int]:
                try:
                    return [await signal.wait(timeout=5)]
                except TimeoutError:
                    await charge("a", 1)
                    return [0, await signal.wait()]

            return flow

        run = Recorder(made(paid, "old")).begin()
        run.signal("paid", "late")
        run.adopt(made(wide, "new"))
        run.fire("timeout")
        run.adopt(made(wide, "newer"))
        run.succeed("charge", 1)
        assert sorted(run.open) == ["paid#2"]
        run.signal("paid", 4)
        assert run.result() == [0, 4]

    def test_fields_that_the_code_does_not_read_are_not_recorded(self) -> None:
        """The wait records what the code saw of the signal, so that a replay reads all of it."""

        @workflow
        async def flow() -> str:
            got = await Signal("event", Event).wait()
            return got.id + str(await charge("a", 1))

        run = Recorder(flow).begin()
        assert run.signal("event", {"id": "e", "more": 1}).ended == [(1, 1, b'{"id":"e"}')]
        run.adopt()
        run.succeed("charge", 1)
        assert run.result() == "e1"

    def test_what_is_set_aside_in_the_last_turn_is_for_the_next_generation(self) -> None:
        """It is not recorded yet, so the next generation looks at it again, and sets it aside."""

        @workflow
        async def flow() -> None:
            await charge("a", 1)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await paid.wait()
            continue_as_new()

        run = Recorder(flow).begin()
        run.signal("paid", "no")
        run.signal("other", 1)
        turn = run.succeed("charge", 1)
        assert turn.finish is not None
        assert (turn.finish.how, turn.finish.unread) == ("continued", (1, 2))

    def test_sends_are_commands_with_a_key_of_their_own(self) -> None:
        """A signal that a workflow sends is in its commit, and has a key that is the same at every replay."""

        @workflow
        async def flow() -> None:
            await paid.send("other-run", 5)
            await paid.send("other-run", 6, key="mine")
            await charge("a", 1)

        run = Recorder(flow).begin()
        assert [(s.run_id, s.name, s.key, s.payload) for s in run.sends] == [
            ("other-run", "paid", "run-1/paid.send", b"5"),
            ("other-run", "paid", "mine", b"6"),
        ]


class TestSaying:
    """Progress, published values, chance and identity."""

    def test_progress_and_published_values_are_commands(self) -> None:
        """Only what changed is written."""

        @workflow
        async def flow() -> None:
            publish("stage", {"n": 1})
            set_progress(0.25, "begun")
            await charge("a", 1)
            publish("stage", {"n": 1})
            publish("other", None)

        run = Recorder(flow).begin()
        assert run.turns[0].published == {"stage": b'{"n":1}'}
        assert run.progress == ['{"fraction":0.25,"note":"begun"}']
        assert run.succeed("charge", 1).published == {"other": b"null"}

    def test_chance_follows_the_run(self) -> None:
        """The same run draws the same numbers; another run or generation draws others."""

        @workflow
        async def flow() -> list[str]:
            return [str(random().random()), str(uuid4())]

        first = Recorder(flow).begin().result()
        assert first == Recorder(flow).begin().result()
        assert first != Recorder(flow, run_id="run-2").begin().result()
        assert first != Recorder(flow, generation=2).begin().result()

    def test_each_task_has_dice_of_its_own(self) -> None:
        """What a task draws does not depend on what others drew before it."""

        @workflow(name="dice", version="1")
        async def quiet() -> list[int]:
            return list(await asyncio.gather(draw(0), draw(1)))

        @workflow(name="dice", version="2")
        async def busy() -> list[int]:
            for _ in range(7):
                random().random()
            return list(await asyncio.gather(draw(3), draw(1)))

        async def draw(before: int) -> int:
            for _ in range(before):
                random().random()
            return random().randint(0, 10**9)

        first, second = Recorder(quiet).begin().result()
        assert first != second
        assert Recorder(busy).begin().result()[1] == second

    def test_a_child_is_a_run_with_an_id_of_its_place(self) -> None:
        """A workflow called in a workflow is a step of kind child, and returns its typed result."""

        @workflow
        async def flow() -> list[int]:
            named = order.using(id="order-42", priority=3, tags={"a": "b"}, timeout=60)
            return list(await asyncio.gather(order("x"), named("y")))

        run = Recorder(flow).begin()
        first, second = run.turns[0].issued
        assert (first.key, first.kind, first.name, first.input) == (
            "order",
            StepKind.CHILD,
            "tests.unit.test_decider.order",
            b'{"card":"x"}',
        )
        assert first.child is not None
        assert second.child is not None
        assert (first.child.id, first.child.workflow) == ("run-1/order", order)
        assert (second.key, second.child.id, second.child.priority) == ("order#2", "order-42", 3)
        assert (second.child.timeout_s, second.child.tags) == (60.0, {"a": "b"})
        run.succeed("order", 1)
        run.succeed("order#2", 2)
        assert run.result() == [1, 2]


class TestMemory:
    """A run may leave memory at any rest, silently."""

    def test_closing_is_quiet_whatever_the_code_does(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Suspended code is closed: no warnings, no log, no endless awaits in a `finally`."""

        @workflow
        async def flow() -> None:
            async def stubborn() -> None:
                try:
                    await charge("a", 1)
                finally:
                    await release()
                    await asyncio.sleep(5)

            async def spinning() -> None:
                while True:
                    try:
                        await asyncio.get_running_loop().create_future()
                    except GeneratorExit:
                        await asyncio.sleep(0)
                        raise

            queue: asyncio.Queue[int] = asyncio.Queue()
            tasks = [asyncio.create_task(c) for c in (stubborn(), spinning(), asyncio.sleep(9), paid.wait())]
            try:
                await asyncio.gather(queue.get(), *tasks)
            finally:
                async with asyncio.Lock(), asyncio.timeout(3):
                    await queue.get()

        ignored: list[object] = []
        monkeypatch.setattr(sys, "unraisablehook", ignored.append)
        with warnings.catch_warnings(record=True) as warned, caplog.at_level(logging.DEBUG):
            warnings.simplefilter("always")
            run = Recorder(flow).begin()
            run.decider.close()
            del run
            gc.collect()
        assert [str(w.message) for w in warned] == []
        assert caplog.text == ""
        assert ignored == []

    def test_a_closed_run_leaves_nothing(self) -> None:
        """No reference cycle keeps a finished run alive."""

        def live() -> int:
            return sum(isinstance(thing, Decider) for thing in gc.get_objects())

        gc.collect()
        before = live()
        for _ in range(3):
            Recorder(order, "tok").begin().decider.close()
        gc.collect()
        assert live() == before

    async def test_it_runs_inside_another_loop(self) -> None:
        """A turn inside a task of a running loop leaves that loop and its current task as they were."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        @workflow
        async def flow() -> bool:
            me = asyncio.current_task()
            await charge("a", 1)
            return asyncio.current_task() is me and me is not task

        hooks = sys.get_asyncgen_hooks()
        run = Recorder(flow).begin()
        run.succeed("charge", 1)
        assert run.result() is True
        assert asyncio.get_running_loop() is loop
        assert asyncio.current_task() is task
        assert sys.get_asyncgen_hooks() == hooks
        await asyncio.sleep(0)

    def test_ten_thousand_parallel_steps(self) -> None:
        """The cost of a wide fan-out stays linear."""

        @workflow
        async def flow(k: int) -> int:
            return sum(await asyncio.gather(*(charge("a", n) for n in range(k))))

        raw, _ = flow.shape.checked((10_000,), {})
        decider = Decider(flow, "r", raw, begun_at=0.0)
        decider.begin()
        issued = decider.take().issued
        assert issued[-1].key == "charge#10000"
        for issue in issued:
            decider.deliver(Outcome("", issue.n, StepState.SUCCEEDED, b"1", None, 1.0))
        finish = decider.take().finish
        assert finish is not None
        assert finish.output == b"10000"


def test_map_bounds_its_concurrency_and_keeps_the_order() -> None:
    """`step.map` has at most `limit` steps open, and the k-th item has the k-th key."""

    @workflow
    async def flow() -> list[str]:
        return await render.map(range(5), limit=2)

    run = Recorder(flow).begin()
    assert sorted(run.open) == ["render", "render#2"]
    run.succeed("render#2", "b")
    assert sorted(run.open) == ["render", "render#3"]
    for key, value in {"render": "a", "render#3": "c", "render#5": "e", "render#4": "d"}.items():
        if key not in run.open:
            run.succeed("render#4", "d")
        if key in run.open:
            run.succeed(key, value)
    assert run.result() == ["a", "b", "c", "d", "e"]


def test_map_tolerates_some_failures_and_no_more() -> None:
    """Tolerated failures take the place of results. One more cancels the rest and is raised."""

    @workflow
    async def flow(tolerate: float) -> list[str]:
        found = await render.map(range(4), tolerate=tolerate)
        return [str(value) for value in found]

    run = Recorder(flow, 0.25).begin()
    run.fail("render", ValueError("one"))
    for key in ("render#2", "render#3", "render#4"):
        run.succeed(key, key)
    assert run.result() == ["one", "render#2", "render#3", "render#4"]
    run = Recorder(flow, 0.25).begin()
    run.fail("render", ValueError("one"))
    turn = run.fail("render#3", ValueError("two"))
    assert turn.dropped == [2, 4]
    assert run.failure() == "ValueError: two"


def test_map_spreads_tuples_over_several_parameters() -> None:
    """A step of two parameters takes an iterable of pairs."""

    @workflow
    async def flow() -> list[int]:
        return await charge.map([("a", 1), ("b", 2)])

    run = Recorder(flow).begin()
    assert [row.input for row in run.steps.values()] == [b'{"card":"a","cents":1}', b'{"card":"b","cents":2}']


@pytest.mark.parametrize(
    ("input", "problem"),
    [
        (b'{"card": 5}', "order(): card: expected `str`, got `int`"),
        (b'{"card": "c", "hat": 5}', "order(): hat: 5 is recorded, and nothing in this code takes it"),
        (b"{}", "order(): missing `card`"),
    ],
)
def test_an_input_that_the_code_no_longer_takes_holds_the_run(input: bytes, problem: str) -> None:
    """A node that takes up the run, for the first time or later, runs none of its code with a part of the input."""
    decider = Decider(order, "r", input, begun_at=0.0, deadline=50.0)
    with pytest.raises(Unreadable) as held:
        decider.replay([], [])
    assert (held.value.kind, held.value.recorded, held.value.asked) == ("input", input.decode(), problem)
    decider.close()
