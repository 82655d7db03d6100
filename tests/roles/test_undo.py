"""What undoing does, on both stores: order, unknown outcomes, sagas, keep, by hand, children, stuck runs."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Holdfast
from holdfast.errors import RunCancelled, RunFailed, RunUndone, WrongState
from holdfast.model import RunState
from holdfast.workflow import registry
from tests.roles import undone
from tests.roles.conftest import until
from tests.roles.undone import gates, log


@pytest.fixture(autouse=True)
def clean() -> None:
    log.clear()
    gates.clear()
    undone.broken.clear()


async def state_of(hf: Holdfast, run_id: str, wanted: RunState) -> None:
    async with asyncio.timeout(60):
        while await hf.run(run_id).state() is not wanted:  # noqa: ASYNC110  the store has no event for it
            await asyncio.sleep(0.01)


async def test_a_failed_run_undoes_itself_newest_first(hf: Holdfast) -> None:
    """Every step that succeeded is undone with its result and arguments, in reverse; the run ends `undone`."""
    run = await hf.start(undone.in_a_row, 3, True)
    with pytest.raises(RunUndone, match="no more"):
        await run.result(60)
    assert log == ["do 0", "do 1", "do 2", "undo 2 made 2", "undo 1 made 1", "undo 0 made 0"]
    assert [name for name, _, broken in await hf.store.reads.doctor() if broken] == []


async def test_a_run_that_succeeds_undoes_nothing(hf: Holdfast) -> None:
    """Undos run only when a run is undone."""
    assert await (await hf.start(undone.in_a_row, 3, False)).result(60) == 3
    assert log == ["do 0", "do 1", "do 2"]


async def test_parallel_steps_are_undone_in_parallel(hf: Holdfast) -> None:
    """Steps that overlapped are undone together, and before what they came after."""
    run = await hf.start(undone.fan_out)
    with pytest.raises(RunUndone):
        await run.result(60)
    undos = [entry for entry in log if entry.startswith("undo")]
    assert set(undos[:3]) == {f"undo {i} made {i}" for i in (1, 2, 3)}
    assert undos[3] == "undo 0 made 0"
    rows = {row.key: row for row in (await run.rows()).steps}
    begun = [rows[f"undo:make#{i}"].issued_at for i in (2, 3, 4)]
    assert max(begun) - min(begun) < 0.001 or len({rows[f"undo:make#{i}"].after_seq for i in (2, 3, 4)}) == 1


@pytest.mark.parametrize(
    ("errors", "is_undone"), [(["lost"], True), (["lost", "refused"], True), (["refused"], False)]
)
async def test_named_exceptions_leave_the_effect_unsure(
    hf: Holdfast, errors: list[str], is_undone: bool
) -> None:
    """With `undo_failed=ConnectionError` a step is undone if any attempt raised one, or a subclass. Other exceptions
    say that nothing happened."""
    run = await hf.start(undone.loses_reply, errors)
    with pytest.raises(RunFailed) as failed:
        await run.result(60)
    assert isinstance(failed.value, RunUndone) is is_undone
    assert (log[-1] == f"undo {'+'.join(errors)} None") is is_undone


async def test_an_unknown_outcome_is_undone_with_none(hf: Holdfast) -> None:
    """A step whose attempt timed out may have had its effect. Its undo gets None, and the key to find out."""
    run = await hf.start(undone.unknown.using(id="u"))
    with pytest.raises(RunUndone):
        await run.result(60)
    assert log == ["slow began", "undo slow None u::slow"]


async def test_an_application_error_is_no_effect(hf: Holdfast) -> None:
    """A step that failed by its own exception is not undone, unless it asks for that."""
    with pytest.raises(RunFailed):
        await (await hf.start(undone.refused, False)).result(60)
    assert log == ["refused"]
    log.clear()
    with pytest.raises(RunUndone):
        await (await hf.start(undone.refused, True)).result(60)
    assert log == ["refused loudly", "undo refused loudly None"]


async def test_a_cancelled_run_is_undone_and_ends_cancelled(hf: Holdfast) -> None:
    """Cancelling undoes what was done, the step that was running included; the state is `cancelled`."""
    gates["hold"] = asyncio.Event()
    run = await hf.start(undone.holds)
    await until(lambda: "hold began" in log)
    await run.cancel("enough")
    with pytest.raises(RunCancelled):
        await run.result(60)
    assert log == ["do 0", "hold began", "undo hold None", "undo 0 made 0"]


async def test_a_saga_undoes_its_part_and_the_workflow_goes_on(hf: Holdfast) -> None:
    """`async with saga()` undoes only what was done in it, then raises; the workflow may catch it."""
    assert await (await hf.start(undone.part)).result(60) == "went on"
    assert log == ["do 0", "do 1", "do 2", "undo 2 made 2", "undo 1 made 1", "do 3"]


async def test_keep_is_the_point_of_no_return(hf: Holdfast) -> None:
    """What was done before `keep()` stays done."""
    with pytest.raises(RunUndone):
        await (await hf.start(undone.keeps)).result(60)
    assert log == ["do 0", "do 1", "undo 1 made 1"]


async def test_an_undo_may_be_added_by_hand(hf: Holdfast) -> None:
    """`undo_with` adds a call that is made when the run is undone, in its place in the order."""
    with pytest.raises(RunUndone):
        await (await hf.start(undone.by_hand, True)).result(60)
    assert log == ["do 0", "do 1", "undo 1 made 1", "by hand x", "undo 0 made 0"]
    log.clear()
    assert await (await hf.start(undone.by_hand, False)).result(60) == "done"
    assert log == ["do 0", "do 1"]


async def test_a_child_is_undone_by_undoing_its_steps(hf: Holdfast) -> None:
    """What a child run did is undone when its parent fails, in the child's own reverse order."""
    run = await hf.start(undone.parent.using(id="p"))
    with pytest.raises(RunUndone):
        await run.result(60)
    assert log == ["do 0", "do 1", "undo 1 made 1", "undo 0 made 0"]


async def test_a_child_that_fails_undoes_itself(hf: Holdfast) -> None:
    """The child's own undo is enough. The parent sees the failure and does not undo anything twice."""
    assert await (await hf.start(undone.parent_of_failing)).result(60) == "the child is undone"
    assert log == ["do 0", "undo 0 made 0"]


async def test_an_undo_that_gives_up_makes_the_run_stuck_and_the_others_are_tried(hf: Holdfast) -> None:
    """A broken undo does not stop the others. Then the run is `stuck`, with an alert, and a retry mends it."""
    undone.broken.add(1)
    run = await hf.start(undone.in_a_row.using(id="s"), 3, True)
    await state_of(hf, "s", RunState.STUCK)
    assert [entry for entry in log if entry.startswith("undo")] == ["undo 2 made 2", "undo 0 made 0"]
    alerts = await hf.store.alerts.alerts()
    assert [(alert.kind, alert.run_id) for alert in alerts] == [("run stuck", "s")]
    assert "broken" in await run.why()
    undone.broken.clear()
    await run.retry()
    with pytest.raises(RunUndone):
        await run.result(60)
    assert log[-1] == "undo 1 made 1"


async def test_an_operator_may_skip_an_undo(hf: Holdfast) -> None:
    """Skipping counts as done by hand; the run ends `undone`, and the journal says who decided what."""
    undone.broken.add(0)
    run = await hf.start(undone.in_a_row.using(id="k"), 2, True)
    await state_of(hf, "k", RunState.STUCK)
    await run.skip("make", note="refunded by phone")
    with pytest.raises(RunUndone):
        await run.result(60)
    notes = [(entry.verb, entry.note) for entry in await hf.store.reads.journal("k")]
    assert ("skip", "refunded by phone") in notes


async def test_cancelling_a_run_that_undoes_does_not_stop_it_unless_forced(hf: Holdfast) -> None:
    """The first cancel is answered with the state; `force` ends the undoing where it is."""
    gates["undo"] = asyncio.Event()
    run = await hf.start(undone.slow_undo.using(id="c"))
    await until(lambda: "undo waits" in log)
    assert await run.cancel() is RunState.UNDOING
    assert await run.state() is RunState.UNDOING
    await run.cancel("leave it", force=True)
    with pytest.raises(RunFailed):
        await run.result(60)
    assert "undo finished" not in log


async def test_two_cancels_at_once_are_one(hf: Holdfast) -> None:
    """Cancelling twice undoes once."""
    gates["hold"] = asyncio.Event()
    run = await hf.start(undone.holds)
    await until(lambda: "hold began" in log)
    await asyncio.gather(run.cancel(), run.cancel())
    with pytest.raises(RunCancelled):
        await run.result(60)
    assert log.count("undo 0 made 0") == 1


async def test_skipping_is_for_runs_that_are_undone(hf: Holdfast) -> None:
    """A run that is not undoing or stuck has no undo to skip."""
    run = await hf.start(undone.in_a_row, 1, False)
    await run.result(60)
    with pytest.raises(WrongState):
        await run.skip()


async def test_undos_are_ordinary_steps_in_the_timeline(hf: Holdfast) -> None:
    """An undo has a row of its own with attempts, agent and times, and its input carries what it undoes."""
    run = await hf.start(undone.in_a_row.using(id="t"), 1, True)
    with pytest.raises(RunUndone):
        await run.result(60)
    undo = next(row for row in await run.steps() if row.key == "undo:make")
    assert (undo.name, undo.state, undo.attempt) == ("tests.roles.undone.unmake", "succeeded", 1)
    assert undo.input["$key"] == "t::make"


async def test_an_undo_whose_code_is_gone_holds_the_run_with_an_explanation(hf: Holdfast) -> None:
    """After a deploy that lost an undo, the run that needs it is held and says so; with the code back it goes on."""
    undone.broken.add(0)
    run = await hf.start(undone.in_a_row.using(id="gone"), 1, True)
    await state_of(hf, "gone", RunState.STUCK)
    undone.broken.clear()
    gone = registry.steps.pop("tests.roles.undone.unmake")
    try:
        await run.retry()
        await state_of(hf, "gone", RunState.HELD)
        assert "tests.roles.undone.unmake" in await run.why()
    finally:
        registry.steps["tests.roles.undone.unmake"] = gone
    await run.release()
    with pytest.raises(RunUndone):
        await run.result(60)
    assert log == ["do 0", "undo 0 made 0"]


async def test_a_run_that_was_stuck_still_says_what_made_it_fail(hf: Holdfast) -> None:
    """The error of a run is what made it undo itself, even if an undo gave up on the way."""
    undone.broken.add(0)
    run = await hf.start(undone.in_a_row.using(id="said"), 1, True)
    await state_of(hf, "said", RunState.STUCK)
    undone.broken.clear()
    await run.retry()
    with pytest.raises(RunUndone, match="no more"):
        await run.result(60)


async def test_an_undo_whose_code_is_gone_may_be_skipped(hf: Holdfast) -> None:
    """An operator need not wait for the code: the undo counts as done by hand."""
    undone.broken.add(0)
    run = await hf.start(undone.in_a_row.using(id="skipped"), 1, True)
    await state_of(hf, "skipped", RunState.STUCK)
    gone = registry.steps.pop("tests.roles.undone.unmake")
    try:
        await run.retry()
        await state_of(hf, "skipped", RunState.HELD)
        await run.skip("make", note="undone by hand")
        with pytest.raises(RunUndone):
            await run.result(60)
    finally:
        registry.steps["tests.roles.undone.unmake"] = gone
