"""Markers: which way a run goes where its code changed is decided once, recorded, and the same ever after."""

import asyncio
import warnings
from typing import Any

import pytest

from holdfast import HoldfastWarning, Stop, continue_as_new, keep, patched, saga, step, workflow
from holdfast.decider.decider import Decider
from holdfast.decider.heritage import Heritage
from holdfast.errors import Bug, DefinitionError, Drift, WorkflowError
from holdfast.model import Inherited, Outcome, StepKind, StepState
from holdfast.workflow.markers import markers_of
from holdfast.workflow.workflow import Workflow
from tests.unit.recorder import Recorder


@step
async def price(item: str) -> int:
    return 0


@step
async def discount(cents: int) -> int:
    return 0


@step
async def ship(item: str) -> str:
    return ""


@workflow(name="markers.old")
async def old(item: str) -> list[int]:
    cents = []
    for _ in range(3):
        cents.append(await price(item))
        await ship(item)
    return cents


@workflow(name="markers.new")
async def new(item: str) -> list[int]:
    cents = []
    for _ in range(3):
        found = await price(item)
        if patched("new-discount"):
            found = await discount(found)
        cents.append(found)
        await ship(item)
    return cents


@workflow(name="markers.cleaned")
async def cleaned(item: str) -> list[int]:
    cents = []
    for _ in range(3):
        cents.append(await discount(await price(item)))
        await ship(item)
    return cents


def markers(run: Recorder) -> dict[str, Any]:
    return {row.name: row.output for row in run.steps.values() if row.kind is StepKind.MARKER}


def test_a_run_that_arrives_live_goes_the_new_way() -> None:
    """The first code at this point is the new one: it is recorded with the steps that it asks for, in the same hop."""
    run = Recorder(new, "rope").begin()
    turn = run.succeed("price", 100)
    assert [issue.key for issue in turn.issued] == ["patched:new-discount", "discount"]
    assert markers(run) == {"new-discount": b"true"}


def test_a_run_that_went_past_goes_the_old_way_in_every_pass() -> None:
    """The first pass was replayed, so it is False. Later passes stay False, live and after another crash."""
    run = Recorder(old, "rope").begin()
    run.succeed("price", 100)
    run.adopt(new)
    assert markers(run) == {"new-discount": b"false"}
    run.succeed("ship", "")
    run.succeed("price#2", 200)
    assert "discount" not in run.keys
    run.adopt(new)  # another crash
    run.succeed("ship#2", "")
    run.succeed("price#3", 300)
    run.succeed("ship#3", "")
    assert run.result() == [100, 200, 300]


def test_the_old_way_is_decided_again_if_its_hop_was_lost() -> None:
    """A crash after the replay and before the hop that records the way: the next replay decides the same."""
    run = Recorder(old, "rope").begin()
    run.succeed("price", 100)
    run.replayed(new).close()  # nothing of it is written
    assert markers(run) == {}
    run.adopt(new)
    assert markers(run) == {"new-discount": b"false"}


def test_a_run_that_was_replayed_up_to_the_marker_goes_the_new_way() -> None:
    """What was replayed did not reach the marker: the run arrives there live."""
    run = Recorder(old, "rope").begin().adopt(new)
    assert markers(run) == {}
    run.succeed("price", 100)
    assert markers(run) == {"new-discount": b"true"}
    run.adopt(new)
    assert run.open == {"discount": run.n("discount")}


def test_a_run_of_which_nothing_is_recorded_goes_the_new_way() -> None:
    """A run that was started and never had a hop has not gone past anything."""

    @workflow(name="markers.at_once")
    async def at_once() -> str:
        return await ship("new" if patched("first") else "old")

    decider = Decider(at_once, "r", b"{}", begun_at=0.0)
    decider.replay([], [])
    turn = decider.take()
    assert turn.issued[-1].input == b'{"item":"new"}'
    assert turn.ended == [(1, 0, b"true")]
    decider.close()


def test_a_marker_asked_twice_and_in_tasks_is_one_marker() -> None:
    """Markers are known by their name alone: not by the task, not by how often they were asked for."""

    @workflow(name="markers.tasks")
    async def tasks() -> list[bool]:
        async def ask(item: str) -> bool:
            await price(item)
            return patched("one")

        return [patched("one"), *(await asyncio.gather(ask("a"), ask("b")))]

    run = Recorder(tasks).begin()
    for key in [key for key in run.keys if "price" in key]:
        run.adopt()
        run.succeed(key, 1)
    assert run.result() == [True, True, True]
    assert list(markers(run)) == ["one"]


def test_a_marker_removed_too_early_holds_the_run_and_is_named() -> None:
    """The run goes the old way, and the code does not ask any more: it would go the new way by mistake."""
    run = Recorder(old, "rope").begin()
    run.succeed("price", 100)
    run.adopt(new)
    with pytest.raises(Drift, match=r"the old way at the marker 'new-discount'.*holdfast check") as drift:
        run.replayed(cleaned)
    assert drift.value.kind == "marker"
    with pytest.raises(Drift, match="new-discount"):
        run.replayed(old)
    run.adopt(new)  # the marker is back


def test_a_marker_whose_run_goes_the_new_way_may_be_removed() -> None:
    """The code without the marker does what the run recorded."""
    run = Recorder(new, "rope").begin()
    run.succeed("price", 100)
    run.adopt(cleaned)
    run.succeed("discount", 50)
    assert run.open == {"ship": run.n("ship")}


def test_code_from_before_the_marker_does_not_take_a_run_that_went_the_new_way() -> None:
    """During a rolling deploy, or after going back, old code would pass over what the run did the new way."""
    run = Recorder(new, "rope").begin()
    run.succeed("price", 100)
    with pytest.raises(Drift, match=r"'new-discount'.*'discount'.*before the marker"):
        run.replayed(old)


def test_markers_are_not_kept_from_being_undone() -> None:
    """A marker that is decided in a replay does not move the point of no return that the replay passes."""

    @step
    async def book(item: str) -> str:
        return item

    @book.undo
    async def unbook(done: str | None, item: str) -> None: ...

    def flow(marked: bool) -> Workflow[[], None]:
        @workflow(name=f"markers.kept.{marked}")
        async def kept() -> None:
            if marked:
                patched("kept")
            await book("a")
            keep()
            await book("b")
            await ship("c")

        return kept

    run = Recorder(flow(False)).begin()
    run.succeed("book", "a")
    assert run.turns[-1].kept_n == 1
    run.succeed("book#2", "b")
    run.adopt(flow(True))
    assert markers(run) == {"kept": b"false"}
    assert run.turns[-1].kept_n is None


def test_a_run_that_only_asks_for_a_marker_and_waits_for_nothing_fails() -> None:
    """A marker is nothing that could wake the code."""

    @workflow(name="markers.stalls")
    async def stalls() -> None:
        patched("x")
        await asyncio.get_running_loop().create_future()

    run = Recorder(stalls).begin()
    assert "waits for something that is not a step" in run.failure()


def test_the_way_of_a_run_that_ends_in_the_same_turn_is_recorded() -> None:
    """A retry must go the same way."""

    @workflow(name="markers.ends")
    async def ends() -> None:
        await price("a")
        if patched("x"):
            raise Stop("no")

    run = Recorder(ends).begin()
    run.succeed("price", 1)
    assert run.finish is not None
    assert markers(run) == {"x": b"true"}


def retry(run: Recorder, flow: Workflow[Any, Any], kept: list[str], signals: Any = ()) -> Decider:
    """Return a retry of the run that keeps these steps, and its markers."""
    rows = [row for row in run.steps.values() if row.key in kept or row.kind is StepKind.MARKER]
    decider = Decider(
        flow, "r~2", run.input, begun_at=1000.0, heritage=Heritage("r~2", [Inherited("", "r")], 2000.0)
    )
    try:
        decider.replay(rows, signals)
    except Drift:
        decider.close()
        raise
    return decider


def test_a_retry_goes_the_way_of_the_run_before() -> None:
    """Recorded ways are kept; what the run before went past without a marker is the old way."""
    run = Recorder(new, "rope").begin()
    run.succeed("price", 100)
    again = retry(run, new, ["price"])
    assert [issue.key for issue in again.take().issued] == ["discount"]
    again.close()
    before = Recorder(old, "rope").begin()
    before.succeed("price", 100)
    again = retry(before, new, ["price"])
    assert [(issue.key, issue.kind) for issue in again.take().issued] == [
        ("patched:new-discount", StepKind.MARKER),
        ("ship", StepKind.CALL),
    ]
    again.close()


def test_a_retry_that_keeps_nothing_arrives_everywhere_live() -> None:
    """Everything was undone, so that nothing is left that went the old way."""
    run = Recorder(old, "rope").begin()
    again = retry(run, new, [])
    again.take()
    again.deliver(Outcome("r~2", 1, StepState.SUCCEEDED, b"100", None, 3000.0))
    assert again.ways == {"new-discount": True}
    again.close()


def test_a_retry_is_held_only_if_its_marker_is_surely_gone() -> None:
    """Where the retry has left out deliveries before the marker, the code may still get there."""
    run = Recorder(old, "rope").begin()
    run.succeed("price", 100)
    run.adopt(new)
    with pytest.raises(Drift, match="new-discount"):
        retry(run, cleaned, ["price"])
    retry(run, cleaned, []).close()


def test_a_new_generation_decides_anew() -> None:
    """`continue_as_new` begins with an empty history, so the run goes the new way from there on."""

    @workflow(name="markers.round")
    async def round_(left: int) -> bool:
        await price("a")
        way = patched("x")
        if left:
            continue_as_new(left - 1)
        return way

    run = Recorder(round_, 0, generation=2, base_n=7).begin()
    run.succeed("@2/price", 1)
    assert run.result() is True


def test_outside_of_a_run_it_is_the_new_way() -> None:
    """A workflow that is called like a function is a unit test of the new code."""
    assert patched("anything")
    assert asyncio.run(_called()) == [0, 0, 0]


async def _called() -> list[int]:
    return await new("rope")


@pytest.mark.parametrize("name", ["", " x", "$x", 7, None, "x" * 300])
def test_a_marker_needs_a_name(name: Any) -> None:
    """A name that cannot be stored or shown is refused where it is written."""
    with pytest.raises(DefinitionError, match=r"patched\(\): the name of a marker"):
        patched(name)


def test_a_name_that_is_no_constant_is_warned_of() -> None:
    """`holdfast check` lists the markers that it sees in the code."""
    with pytest.warns(HoldfastWarning, match="marker whose name is no constant"):

        @workflow(name="markers.varies")
        async def varies(name: str) -> None:
            patched(f"for-{name}")

    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @workflow(name="markers.constant")
        async def constant() -> None:
            import holdfast

            if patched("a") or holdfast.patched(name="b"):
                await helper()
                list("patched")

    assert markers_of(constant.fn) == {"a", "b", "c"}


async def helper() -> None:
    if not patched("c"):
        await price("x")


# --- bugs ---------------------------------------------------------------------------------------------------------------


def bug_of(body: Any, *, on_bug: Any = "hold") -> Recorder:
    """Return a run whose code does this after its first step."""

    @workflow(name=f"bugs.{body.__name__}", on_bug=on_bug)
    async def flow() -> None:
        try:
            await price("a")
        except ConnectionError as error:
            await body(error)
        else:
            await body(None)

    return Recorder(flow).begin()


async def looks_up(error: Any) -> None:
    dict[str, int]()["missing"]


async def stops(error: Any) -> None:
    raise Stop("on purpose")


async def stops_in_group(error: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(stops(error))


async def raises_again(error: Any) -> None:
    raise ValueError("the shop is closed") from error


async def times_out(error: Any) -> None:
    async with asyncio.timeout(5):
        await price("b")


async def waits_for_nothing(error: Any) -> None:
    await asyncio.get_running_loop().create_future()


async def passes_nonsense(error: Any) -> None:
    await price(7)  # type: ignore[arg-type]  # that is the bug


@pytest.mark.parametrize("body", [looks_up, waits_for_nothing, passes_nonsense])
def test_an_exception_of_the_code_itself_is_a_bug(body: Any) -> None:
    """It is raised to whoever delivers, with what it was and where, and nothing of the turn is kept."""
    run = bug_of(body)
    with pytest.raises(Bug) as bug:
        run.succeed("price", 1)
    if body is looks_up:
        assert str(bug.value).startswith("KeyError: 'missing' at test_markers.py:")
    assert run.finish is None
    same = run.replayed()  # the outcome is still to be delivered
    assert same.waiting
    same.close()
    other = bug_of(body, on_bug="undo")
    other.succeed("price", 1)
    assert other.finish is not None
    assert other.finish.how == "failed"


@pytest.mark.parametrize("body", [stops, stops_in_group])
def test_a_stop_is_no_bug(body: Any) -> None:
    """The author failed the run on purpose."""
    run = bug_of(body)
    run.succeed("price", 1)
    assert "on purpose" in run.failure()


def test_what_comes_from_a_step_is_no_bug() -> None:
    """Neither a step's own failure, nor what the code raises from it, nor a timeout around a step."""
    run = bug_of(raises_again)
    run.fail("price", ConnectionError("down"))
    assert "the shop is closed" in run.failure()
    run = bug_of(looks_up)
    run.fail("price", ValueError("a step's"))
    assert "a step's" in run.failure()
    run = bug_of(times_out)
    run.succeed("price", 1)
    run.fire("timeout")
    assert "TimeoutError" in run.failure()


def test_a_run_that_is_cancelled_has_no_bugs() -> None:
    """Whatever its code raises while it cleans up, it ends."""

    @workflow(name="bugs.cleans_up", on_bug="hold")
    async def cleans_up() -> None:
        try:
            await price("a")
        finally:
            dict[str, int]()["missing"]

    run = Recorder(cleans_up).begin()
    run.cancel()
    assert run.finish is not None
    assert run.finish.how == "failed"
    run = Recorder(cleans_up, deadline=1005.0).begin()
    run.fire("$deadline")
    assert run.finish is not None


def test_an_undo_in_a_saga_that_gives_up_is_no_bug() -> None:
    """The run is stuck then, as ever."""

    @step
    async def book(item: str) -> str:
        return item

    @book.undo
    async def unbook(done: str | None, item: str) -> None: ...

    @workflow(name="bugs.saga", on_bug="hold")
    async def flow() -> None:
        async with saga():
            await book("a")
            raise KeyError("bug")

    run = Recorder(flow).begin()
    run.succeed("book", "a")
    run.fail("undo:book", ConnectionError("down"))
    assert run.finish is not None
    assert run.finish.how == "undoing"


def test_what_to_do_about_bugs_is_one_of_two_words() -> None:
    """Anything else is refused where it is written."""
    with pytest.raises(DefinitionError, match=r'on_bug: expected "undo" or "hold", not \'keep\''):

        @workflow(on_bug="keep")  # type: ignore[call-overload,untyped-decorator]  # that is the mistake
        async def flow() -> None: ...


def test_the_old_way_asks_inside_steps_are_refused() -> None:
    """The way belongs to a run, and a step has no part in that."""
    from holdfast.workflow.here import CurrentAttempt, here_var

    async def nothing(raw: bytes) -> None: ...

    token = here_var.set(
        CurrentAttempt(
            run_id="r", key="r::a", attempt=1, step="a", on_beat=lambda share, note: None, on_save=nothing
        )
    )
    try:
        with pytest.raises(WorkflowError, match="pass the answer to the step as an argument"):
            patched("x")
    finally:
        here_var.reset(token)
