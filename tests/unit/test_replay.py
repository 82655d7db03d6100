"""Replay: from its recorded history a run comes back to the same place, whatever the order of deliveries was."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import Signal, now, publish, random, set_progress, step, uuid4, workflow
from holdfast.decider.decider import Decider
from holdfast.errors import Drift
from holdfast.model import Outcome, StepKind, StepState
from holdfast.workflow.workflow import Workflow
from tests.unit.recorder import Recorder


@step
async def work(n: int) -> int:
    return n


@step
async def other(n: int) -> int:
    return n


go = Signal("go", int)
say = Signal("go", str)
"""The same name with another type: the sender knows neither."""

# A program is a tree of JSON values, interpreted by one workflow: every way of combining waits that authors have.


async def interpret(program: list[Any]) -> list[Any]:  # noqa: PLR0911  one case for each way of waiting
    kind, *rest = program
    match kind:
        case "work":
            return [await work(rest[0])]
        case "keyed":
            return [await other.using(key=f"{rest[0]}-{uuid4()}")(rest[0])]
        case "sleep":
            await asyncio.sleep(rest[0])
            return ["slept", round(now().timestamp())]
        case "signal":
            return [await go.wait(timeout=rest[0] or None)]
        case "say":
            return [await say.wait(timeout=rest[0] or None)]
        case "child":
            return [await child(rest[0])]
        case "chance":
            publish("chance", random().randint(0, 9))
            set_progress(0.5, "chance")
            await go.send("elsewhere", random().randint(0, 9))
            return [random().randint(0, 9)]
        case "seq":
            return [item for part in rest for item in await caught(part)]
        case "gather":
            return list(await asyncio.gather(*(caught(part) for part in rest)))
        case "group":
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(interpret(part), name=f"part{n % 2}") for n, part in enumerate(rest)
                ]
            return [task.result() for task in tasks]
        case "race":
            racing = [asyncio.create_task(caught(part)) for part in rest]
            done, losers = await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
            for task in losers:
                task.cancel()
            return [task.result() for task in done]
        case "completed":
            return [await done for done in asyncio.as_completed([caught(part) for part in rest])]
        case "timeout":
            async with asyncio.timeout(rest[0]):
                return await interpret(rest[1])
        case "wait_for":
            return await asyncio.wait_for(interpret(rest[1]), rest[0])
        case "queue":
            return await through_a_queue(rest)
        case "shield":
            return await asyncio.shield(asyncio.ensure_future(caught(rest[0])))
    raise AssertionError(kind)


async def caught(program: list[Any]) -> list[Any]:
    try:
        return await interpret(program)
    except (ValueError, TimeoutError, ExceptionGroup) as error:
        return [type(error).__name__]


async def through_a_queue(parts: list[Any]) -> list[Any]:
    queue: asyncio.Queue[list[Any]] = asyncio.Queue(1)

    async def produce(part: list[Any]) -> None:
        await queue.put(await caught(part))

    producers = [asyncio.create_task(produce(part)) for part in parts]
    found = [await queue.get() for _ in producers]
    await asyncio.gather(*producers)
    return found


@workflow
async def child(n: int) -> int:
    return n


@workflow(timeout=100_000)
async def program(tree: list[Any]) -> list[Any]:
    return await caught(tree)


def programs() -> st.SearchStrategy[list[Any]]:
    leaves = st.one_of(
        st.tuples(
            st.sampled_from(["work", "keyed", "sleep", "signal", "say", "child"]), st.integers(0, 9)
        ).map(list),
        st.just(["chance"]),
    )

    def grow(inner: st.SearchStrategy[list[Any]]) -> st.SearchStrategy[list[Any]]:
        many = st.lists(inner, min_size=1, max_size=4)
        return st.one_of(
            st.tuples(st.sampled_from(["seq", "gather", "group", "race", "completed", "queue"]), many).map(
                lambda pair: [pair[0], *pair[1]]
            ),
            st.tuples(st.sampled_from(["timeout", "wait_for"]), st.integers(1, 9), inner).map(list),
            inner.map(lambda part: ["shield", part]),
        )

    return st.recursive(leaves, grow, max_leaves=12)


def deliver_something(run: Recorder, data: st.DataObject) -> None:
    """One outcome, chosen at random from what can happen next."""
    waits = sorted(run.open)
    can = [key for key in waits if run.steps[run.open[key]].kind is not StepKind.SIGNAL]
    choice = data.draw(st.sampled_from([*can, "signal"] if can or waits else ["signal"]))
    if choice == "signal":
        run.signal("go", data.draw(st.one_of(st.integers(0, 99), st.sampled_from(["text", None]))))
    elif run.steps[run.open[choice]].kind is StepKind.TIMER:
        run.fire(choice)
    elif data.draw(st.integers(0, 5)) == 0:
        run.fail(choice, ValueError("no luck"))
    else:
        run.succeed(choice, data.draw(st.integers(0, 99)), after=data.draw(st.sampled_from([0.0, 0.5, 3.0])))


def same_place(a: Decider, b: Decider) -> None:
    assert {n: (op.key, op.kind, op.name, op.ready_at) for n, op in a.waiting.items()} == {
        n: (op.key, op.kind, op.name, op.ready_at) for n, op in b.waiting.items()
    }
    assert (a.seq, a.done, a.now()) == (b.seq, b.done, b.now())


EXPLORE = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@EXPLORE
@given(programs(), st.data())
def test_a_replayed_run_is_where_it_was_and_goes_on_alike(tree: list[Any], data: st.DataObject) -> None:
    """After a crash at any moment, the replayed run waits for the same, writes nothing again, and ends the same."""
    run = Recorder(program, tree, deadline=90_000.0).begin()
    shadow = Recorder(program, tree, deadline=90_000.0).begin()  # the same deliveries, without any crash
    for _ in range(60):
        if run.finish is not None:
            break
        if data.draw(st.booleans()):
            other = run.replayed()
            same_place(run.decider, other)
            turn = other.take()
            assert (turn.issued, turn.dropped, turn.ended, turn.sends) == ([], (), (), ())
            assert turn.set_aside == ()
            assert (turn.progress, turn.published, turn.finish) == (None, None, None)
            run.decider.close()
            run.decider = other
        before = len(run.turns)
        deliver_something(run, data)
        repeat(shadow, run)
        assert describe(run.turns[before]) == describe(shadow.turns[before])
    assert run.finish == shadow.finish
    assert run.keys == shadow.keys
    assert run.sends == shadow.sends


def repeat(shadow: Recorder, run: Recorder) -> None:
    """Deliver to the shadow what was just delivered to the run."""
    seq = run.decider.seq
    shadow.at = run.at
    for signal in run.signals:
        if signal.delivered_seq == seq:
            shadow.decider.deliver_signal(signal.name, signal.payload, signal.sent_at)
            shadow.signals.append(msgspec.structs.replace(signal, set_aside=None))
            shadow.commit()
            return
    (row,) = (r for r in run.steps.values() if r.delivered_seq == seq and r.kind is not StepKind.SIGNAL)
    assert row.finished_at is not None
    shadow.decider.deliver(Outcome("", row.n, row.state, row.output, row.error, row.finished_at))
    shadow.steps[row.n] = row
    shadow.commit()


def describe(turn: Any) -> Any:
    issued = [(i.n, i.key, i.kind, i.name, i.input, i.digest, i.ready_at) for i in turn.issued]
    others = turn.sends, turn.progress, turn.published, turn.finish
    return issued, sorted(turn.dropped), turn.ended, turn.set_aside, *others


@EXPLORE
@given(programs(), st.data())
def test_several_deliveries_in_one_turn_are_replayed_alike(tree: list[Any], data: st.DataObject) -> None:
    """A busy owner delivers several outcomes before it takes the commands. The history is the same."""
    run = Recorder(program, tree, deadline=90_000.0).begin()
    for _ in range(20):
        if run.finish is not None:
            break
        ready = [
            key
            for key in sorted(run.open)
            if run.steps[run.open[key]].kind in (StepKind.CALL, StepKind.CHILD)
        ]
        if not ready:
            deliver_something(run, data)
            continue
        delivered: dict[int, int] = {}
        run.at += 1.0
        for key in data.draw(st.permutations(ready))[:3]:
            n = run.n(key)
            if n in run.decider.waiting:
                delivered[n] = run.decider.deliver(Outcome("", n, StepState.SUCCEEDED, b"7", None, run.at))
        for n, seq in delivered.items():
            row = run.steps[n]
            run.steps[n] = type(row)(
                **{
                    **{f: getattr(row, f) for f in row.__struct_fields__},
                    "state": StepState.SUCCEEDED,
                    "output": b"7",
                    "delivered_seq": seq,
                    "finished_at": run.at,
                }
            )
        run.commit()
        if run.finish is None:
            other = run.replayed()
            same_place(run.decider, other)
            assert other.take().issued == []
            other.close()


@pytest.mark.parametrize("winner", ["work", "other"])
def test_a_race_has_the_same_winner_at_replay(winner: str) -> None:
    """The order of delivery is recorded, not the order of completion or of issue."""

    @workflow
    async def flow() -> str:
        tasks = [asyncio.create_task(work(1)), asyncio.create_task(other(1))]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(10)
        return "work" if tasks[0] in done else "other"

    run = Recorder(flow).begin()
    run.succeed(winner, 1)
    run.adopt()
    run.succeed({"work": "other", "other": "work"}[winner], 1)
    run.adopt().adopt()
    run.fire("sleep")
    assert run.result() == winner


def test_a_run_without_rows_begins_afresh() -> None:
    """After a crash before the first commit, nothing of the first turn is written."""

    @workflow
    async def flow() -> None:
        await go.send("elsewhere", 1)
        await work(1)

    decider = Decider(flow, "r", b"{}", begun_at=0.0)
    decider.replay([], [])
    turn = decider.take()
    assert (len(turn.sends), len(turn.issued)) == (1, 1)
    decider.close()


class TestChangedCode:
    """What happens to a run whose code was changed while it was in flight."""

    def flows(self) -> tuple[Workflow[[], int], Workflow[[], int]]:
        @workflow(name="changed", version="old")
        async def old() -> int:
            await work(1)
            await other(1)
            return await work(2)

        @workflow(name="changed", version="new")
        async def new() -> int:
            await other(1)
            await work(1)
            return await work(2)

        return old, new

    def test_differently_named_steps_may_change_places(self) -> None:
        """Keys count, not positions. An outcome that comes before the code asks for it is kept until it does."""
        old, new = self.flows()
        run = Recorder(old).begin()
        run.succeed("work", 1)
        run.adopt(new)
        assert sorted(run.open) == ["other"]
        run.succeed("other", 1)
        assert sorted(run.open) == ["work#2"]
        run.succeed("work#2", 5)
        assert run.result() == 5

    def test_an_outcome_may_arrive_before_the_changed_code_asks(self) -> None:
        """A recorded step that the code does not ask for yet is delivered, kept and handed over."""
        old, new = self.flows()
        run = Recorder(old).begin()
        run.adopt(new)
        assert sorted(run.open) == ["other"]
        assert run.decider.expects(run.n("work"))
        run.succeed("work", 1)
        run.succeed("other", 1)
        assert sorted(run.open) == ["work#2"]

    def test_a_removed_step_is_ignored(self) -> None:
        """Its outcome stays in the history, and nobody asks."""

        @workflow(name="removed", version="new")
        async def new() -> int:
            return await work(1)

        @workflow(name="removed", version="old")
        async def old() -> int:
            await other(1)
            return await work(1)

        run = Recorder(old).begin()
        run.succeed("other", 1)
        run.succeed("work", 2)
        assert run.result() == 2
        run = Recorder(old).begin()
        run.succeed("other", 1)
        run.adopt(new)
        run.succeed("work", 3)
        assert run.result() == 3

    def test_an_added_step_is_issued_after_the_replay(self) -> None:
        """It gets a new number."""

        @workflow(name="added", version="old")
        async def old() -> None:
            await work(1)
            await work(2)

        @workflow(name="added", version="new")
        async def new() -> None:
            await work(1)
            await other(1)
            await work(2)

        run = Recorder(old).begin()
        run.succeed("work", 1)
        run.adopt(new)
        assert [(i.n, i.key) for i in run.turns[-1].issued] == [(3, "other")]
        run.succeed("other", 1)
        assert sorted(run.open) == ["work#2"]

    def test_another_input_under_the_same_key_is_drift(self) -> None:
        """Nothing is silently executed again. The error shows what was recorded and what the code asks for."""

        @workflow(name="input", version="old")
        async def old() -> None:
            await work(1)

        @workflow(name="input", version="new")
        async def new() -> None:
            await work(2)

        run = Recorder(old).begin()
        with pytest.raises(Drift) as caught_drift:
            run.replayed(new)
        drift = caught_drift.value
        assert (drift.key, drift.recorded, drift.asked) == (
            "work",
            'call tests.unit.test_replay.work {"n":1}',
            'call tests.unit.test_replay.work {"n":2}',
        )

    def test_a_signal_that_was_renamed_is_drift(self) -> None:
        """The code leaves its open wait and asks for another: now, or after a step that was put before it."""

        @workflow(name="renamed", version="old")
        async def old() -> None:
            await asyncio.gather(work(1), go.wait())

        @workflow(name="renamed", version="new")
        async def new() -> None:
            await work(1)
            await Signal("gone", int).wait()

        run = Recorder(old).begin()
        run.replayed().close()
        other = run.replayed(new)  # it may still ask for `go`, as code that only waits later does
        with pytest.raises(
            Drift, match=r"step 'go' was recorded with signal go, the code now asks for signal gone"
        ):
            other.deliver(Outcome("", run.n("work"), StepState.SUCCEEDED, b"1", None, 1.0))
        other.close()

    def test_a_wait_may_come_later_or_beside_others(self) -> None:
        """As long as the code asks for it, what it waits for before or besides does not matter."""

        @workflow(name="besides", version="old")
        async def old() -> list[int]:
            return list(await asyncio.gather(work(1), go.wait()))

        @workflow(name="besides", version="new")
        async def new() -> list[int]:
            first = await work(1)
            return [first, *await asyncio.gather(go.wait(), Signal("else", int).wait())]

        run = Recorder(old).begin()
        run.adopt(new)
        run.succeed("work", 1)
        run.signal("else", 3)
        run.signal("go", 2)
        assert run.result() == [1, 2, 3]

    def test_a_wait_that_took_its_signal_elsewhere_is_drift(self) -> None:
        """Under another key it would wait for a signal that was sent and taken long ago."""

        @workflow(name="moved", version="old")
        async def old() -> None:
            await go.wait()
            await work(1)

        @workflow(name="moved", version="new")
        async def new() -> None:
            await asyncio.gather(asyncio.create_task(go.wait(), name="branch"))
            await work(1)

        run = Recorder(old).begin()
        run.signal("go", 1)
        run.replayed().close()
        with pytest.raises(
            Drift, match=r"recorded with signal go, the code now asks for signal go at 'branch"
        ):
            run.replayed(new)

    def test_a_wait_is_the_one_with_its_key(self) -> None:
        """The new code leaves out the first of two waits for one signal. The other one gets what was recorded under its
        own key."""

        @workflow(name="left out", version="old")
        async def old() -> int:
            await go.wait()
            await work(1)
            return await go.wait()

        @workflow(name="left out", version="new")
        async def new() -> int:
            await work(1)
            return await go.wait()

        run = Recorder(old).begin()
        run.signal("go", 1)
        run.adopt(new)
        run.succeed("work", 1)
        assert run.result() == 1

    def test_code_that_fails_where_the_run_waits_is_drift(self) -> None:
        """The run went on from there, so the new code is wrong. A retried run may fail where it failed."""

        @workflow(name="broken", version="old")
        async def old() -> int:
            return await work(1) + await work(2)

        @workflow(name="broken", version="new")
        async def new() -> int:
            await work(1)
            raise KeyError("x")

        run = Recorder(old).begin()
        run.succeed("work", 1)
        with pytest.raises(Drift, match="this code fails the run where it is now: KeyError: 'x'"):
            run.replayed(new)
        del run.steps[run.n("work#2")]
        run.adopt(new)
        assert run.failure() == "KeyError: 'x'"

    def test_another_kind_under_the_same_key_is_drift(self) -> None:
        """The code asks for a signal where there was a step."""

        @workflow(name="kind", version="old")
        async def old() -> None:
            await work(1)

        @workflow(name="kind", version="new")
        async def new() -> None:
            await Signal("work", int).wait()

        run = Recorder(old).begin()
        with pytest.raises(Drift, match=r"recorded with call .*, the code now asks for signal work"):
            run.replayed(new)

    def test_drift_may_show_only_later(self) -> None:
        """Code may ask for a recorded step only in a live turn. Then `deliver` holds the run."""

        @workflow(name="later", version="old")
        async def old() -> None:
            await asyncio.gather(work(1), other(1))

        @workflow(name="later", version="new")
        async def new() -> None:
            await work(1)
            await other(2)

        run = Recorder(old).begin()
        run.adopt(new)
        with pytest.raises(Drift, match="other"):
            run.decider.deliver(Outcome("", run.n("work"), StepState.SUCCEEDED, b"1", None, 1.0))

    def test_waiting_for_what_was_given_up_is_drift(self) -> None:
        """A dropped step is never delivered: code that now waits for it would wait for ever."""

        @workflow(name="ghost", version="old")
        async def old() -> None:
            try:
                async with asyncio.timeout(5):
                    await work(1)
            except TimeoutError:
                await other(1)

        @workflow(name="ghost", version="new")
        async def new() -> None:
            await work(1)

        run = Recorder(old).begin()
        run.fire("timeout")
        run.replayed().close()
        with pytest.raises(Drift, match="given up"):
            run.replayed(new)

    def test_a_changed_delay_keeps_the_recorded_time(self) -> None:
        """A timer that is running keeps its time."""

        @workflow(name="delay", version="old")
        async def old() -> None:
            await asyncio.sleep(60)

        @workflow(name="delay", version="new")
        async def new() -> None:
            await asyncio.sleep(5)

        run = Recorder(old).begin()
        run.adopt(new)
        (op,) = run.decider.waiting.values()
        assert op.ready_at == 1060.0

    def test_a_step_the_new_code_gives_up_is_dropped(self) -> None:
        """It still runs somewhere, so the turn reports it to the store."""

        @workflow(name="giving", version="old")
        async def old() -> None:
            await asyncio.gather(work(1), other(1))

        @workflow(name="giving", version="new")
        async def new() -> None:
            task = asyncio.create_task(other(1))
            await work(1)
            task.cancel()
            await work(2)

        run = Recorder(old).begin()
        run.succeed("work", 1)
        run.adopt(new)
        assert run.turns[-1].dropped == [run.n("other")]


def test_a_replay_may_end_the_run() -> None:
    """New code may end where old code waited. What the old code asked for is dropped."""

    @workflow(name="ending", version="old")
    async def old() -> int:
        await work(1)
        return await work(2)

    @workflow(name="ending", version="new")
    async def new() -> int:
        return await work(1)

    run = Recorder(old).begin()
    run.succeed("work", 1)
    run.adopt(new)
    assert run.result() == 1
    assert run.turns[-1].dropped == [run.n("work#2")]


def test_cancel_and_deadline_are_part_of_the_history() -> None:
    """A run that was being cancelled goes on with that after a crash, and still says why it ended."""

    @workflow
    async def flow() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await work(1)

    run = Recorder(flow, deadline=5000.0).begin()
    run.cancel()
    run.adopt()
    run.succeed("work", 1)
    assert run.finish is not None
    assert run.finish.how == "cancelled"
    run = Recorder(flow, deadline=1500.0).begin()
    run.fire("$deadline")
    run.adopt()
    run.succeed("work", 1)
    assert "RunTimeout" in run.failure()


def test_published_values_are_compared_over_a_replay() -> None:
    """What was published before the crash is not written again."""

    @workflow
    async def flow() -> None:
        publish("stage", 1)
        await work(1)
        publish("stage", 1)
        publish("next", 2)
        await work(2)

    run = Recorder(flow).begin().adopt()
    assert run.succeed("work", 1).published == {"next": b"2"}
