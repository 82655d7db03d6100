"""The report names what was not tried, and then it does not say that all is right."""

import asyncio
from datetime import timedelta

import pytest

from holdfast import Signal, Stop, here, step, undo_with, workflow
from holdfast.testing import NotEnded, Sim
from tests.testing import kit_flows as flows
from tests.testing.kit_flows import mail, paid

late = Signal("late", int)
seen: list[int] = []


@step
async def ask(what: str) -> dict[str, int]:
    return {what: len(here.key) * 0}


@step
async def act(what: str) -> str:
    return here.key


@act.undo
async def undo_act(done: str | None, what: str) -> None:
    assert here.undoes


@step
async def count() -> int:
    seen.append(1)
    return len(seen)


@workflow
async def sub(what: str) -> str:
    await late.wait()
    return await act(what)


@workflow
async def branches(what: str) -> str:
    if (await ask(what)).get("x", 0) > 5:
        return await sub(what)
    return "small"


@workflow
async def waits_when_it_fails(what: str) -> str:
    try:
        return await act(what)
    except Stop:
        return str(await late.wait())


@workflow
async def waits_for_whoever_comes_first(what: str) -> str:
    waiting = asyncio.create_task(late.wait())
    if not (await asyncio.wait([asyncio.create_task(flows.slow(1)), waiting], timeout=2))[0]:
        return "nobody"
    return what if waiting.done() else str(await waiting)


@workflow
async def handles_everything(what: str) -> str:
    try:
        return await act(what)
    except Stop:
        return "no"


@workflow
async def adds_an_undo(what: str) -> str:
    await mail(what)
    undo_with(mail, f"sorry for {what}")
    return await mail("done")


@workflow
async def grows(what: str) -> int:
    for _ in range(await count()):
        await mail(what)
    return 1


def test_steps_children_and_signals_that_never_came_up_are_named(sim: Sim) -> None:
    """The result of `ask` leads past them. Another result leads there, and then the parts that they name must be
    reached, too."""
    sim.stub(ask, {})
    sim = sim.using(final=[ask, act])
    report = sim.crash_everywhere(branches, "x")
    assert [each.what for each in report.untried] == ["the workflow sub, which never ran"]
    assert not report.ok
    assert str(report).endswith("tried: nothing was found, but not all was tried")
    assert report.as_json()["untried"][0]["why"].endswith("say so: sim.using(unreached=[sub])")
    assert sim.using(unreached=[sub]).crash_everywhere(branches, "x").ok
    sim.stub(ask, {"x": 6})
    with pytest.raises(NotEnded, match="child run simulated/sub"):
        sim.crash_everywhere(branches, "x")
    sim.will_send(late, 1)  # it is sent to children, too
    report = sim.crash_everywhere(branches, "x")
    assert report.ok, report


def test_a_signal_that_only_a_timeout_ended_is_named(sim: Sim) -> None:
    """Time passed until the wait ended; what happens when the signal comes was not tried."""
    report = sim.crash_everywhere(flows.awaits)
    assert [each.what for each in report.untried] == ["the signal paid, which never came"]
    assert paid.name == "paid"


def test_a_wait_that_begins_when_a_step_fails_is_named(sim: Sim) -> None:
    """The exploration goes on: everything else is tried."""
    report = sim.crash_everywhere(waits_when_it_fails, "x")
    whats = [each.what for each in report.untried]
    assert "what follows when act fails" in whats
    assert (
        report.untried[0].why.startswith("It waits for the signal 'late'") or "late" in report.untried[0].why
    )
    assert len(report.boundaries) > 6
    sim.will_send(late, 3)
    assert sim.crash_everywhere(waits_when_it_fails, "x").ok


def test_what_only_a_cancel_can_undo_is_cancelled(sim: Sim) -> None:
    """No failure makes this run undo anything. So the run is cancelled while its step runs."""
    report = sim.crash_everywhere(handles_everything, "x")
    assert report.ok, report
    assert {each.cancelled for each in report.boundaries} == {None, "act"}
    assert any(each.crash == "before undo:act" for each in report.boundaries)


def test_an_undo_that_nothing_led_to_is_named(sim: Sim) -> None:
    """With `failures=False` undos need not run. Without it they do, also the one that a workflow adds."""
    assert sim.using(failures=False).crash_everywhere(handles_everything, "x").ok
    report = sim.using(idempotent=[mail]).crash_everywhere(adds_an_undo, "x")
    assert report.ok, report


def test_a_limit_is_reported(sim: Sim) -> None:
    """The report counts the boundaries that are known to be left."""
    report = sim.using(boundaries_max=5).crash_everywhere(flows.order, "tok")
    assert len(report.boundaries) == 5
    assert report.left > 5
    assert any("boundaries or more" in each.what for each in report.untried)
    assert "`sim.using(boundaries_max=…)` tries more" in str(report)


def test_a_boundary_that_was_not_reached_again_is_reported(sim: Sim) -> None:
    """The step returns something else each time, and the workflow takes another branch. So no process died where it
    should have."""
    seen.clear()

    def fewer() -> int:
        seen.append(1)
        return max(1, 4 - len(seen))

    sim.stub(count, fewer)
    report = sim.using(idempotent=[mail, count]).crash_everywhere(grows, "x")
    assert not report.ok
    assert any("did not get there: it is not the same every time" in each.why for each in report.untried)


def test_code_that_is_held_without_a_crash_is_found(sim: Sim) -> None:
    """After a long wait another process goes on, and replays. A workflow that decides otherwise then does not even end
    undisturbed."""
    report = sim.using(final=[act]).crash_everywhere(counts_before_it_sleeps)
    assert [each.step for each in report.ended_otherwise] == [
        "tests.testing.test_untried.counts_before_it_sleeps"
    ]
    assert "It is held because its code has changed" in report.ended_otherwise[0].key
    assert report.ended_otherwise[0].why == "this happens without a crash, too"
    assert not report.ok


@workflow
async def counts_before_it_sleeps() -> str:
    seen.append(1)
    await act(str(len(seen)))
    await asyncio.sleep(86_400)
    return await act("y")


def test_what_cannot_be_imported_is_not_called_replayed(sim: Sim) -> None:
    """Other interpreters cannot find a workflow that is defined inside a function. `interpreters=0` says that this is
    intended."""

    @workflow(name="test_untried.local")
    async def local(what: str) -> str:
        return await act(what)

    report = sim.crash_everywhere(local, "x")
    assert [each.what for each in report.untried] == ["replays in other interpreters, under other hash seeds"]
    assert "is defined inside a function" in report.untried[0].why
    assert sim.using(interpreters=0).crash_everywhere(local, "x").ok


def test_what_a_test_changes_is_no_finding(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other interpreters do not know of the change. They agree with one another, so the report has no finding."""
    monkeypatch.setattr(f"{__name__}.PAUSE", "patched")
    report = sim.crash_everywhere(configured)
    assert report.findings == []
    assert "does the test change this?" in report.untried[0].why
    monkeypatch.undo()
    assert sim.crash_everywhere(configured).ok


PAUSE = "plain"


@workflow
async def configured() -> str:
    return await act(PAUSE)


def test_a_child_that_is_left_behind_is_followed_to_its_end(sim: Sim) -> None:
    """The parent has ended, and the child it gave up undoes itself: that belongs to the run."""
    report = sim.crash_everywhere(gives_up_a_child, "x")
    assert report.ok, report
    assert any("undo:act" in (each.crash or "") for each in report.boundaries if each.failing is None)


@workflow
async def long_child(what: str) -> str:
    await act(what)
    await asyncio.sleep(timedelta(days=1).total_seconds())
    return what


@workflow
async def gives_up_a_child(what: str) -> str:
    try:
        async with asyncio.timeout(60):
            return await long_child(what)
    except TimeoutError:
        return "too long"


def test_what_a_child_left_behind_is_found(sim: Sim) -> None:
    """The parent handles the failure and succeeds. What the child did must be undone all the same."""
    report = sim.using(idempotent=[mail]).crash_everywhere(bears_a_child, "x")
    assert {(each.kind, each.step) for each in report.findings} == {
        ("not undone", "tests.testing.kit_flows.book")
    }


@workflow
async def bears_a_child(what: str) -> str:
    try:
        return await flows.books(what)
    except Exception:  # noqa: BLE001  the child may fail for any reason
        return "never mind"
