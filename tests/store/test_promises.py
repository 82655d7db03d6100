"""What was promised to end by some time, as the store has it."""

from __future__ import annotations

import pytest

from holdfast.model import AlertKind, Level, NewAlert, RunState, StepState
from holdfast.store.answers import Answer
from holdfast.store.operations import Close, Hop, Start
from holdfast.store.store import Store
from tests.store.made import A, begin, call, new_run

FIRST = (0.0, "")


@pytest.fixture
async def epoch(store: Store) -> int:
    led = await store.leader.lead("leader", 600.0)
    assert led is not None
    return led


def alert(run_id: str, kind: AlertKind = AlertKind.RUN_LATE) -> NewAlert:
    return NewAlert(kind, Level.WARNING, f"{kind}:{run_id}", "why", run_id)


async def ended(store: Store, run_id: str) -> None:
    now = await store.now()
    close = Close(RunState.SUCCEEDED, b"1", None, now, None, None)
    assert await store.batches.commit(A, [Hop(run_id, 1, close=close)]) == [Answer.ACCEPTED]


async def test_open_runs_that_are_due_come_in_the_order_in_which_they_are(store: Store) -> None:
    """Page by page, each once. Runs that promise nothing, and runs that have ended, are not among them."""
    now = await store.now()
    assert not await store.alerts.any_promised()
    runs = [new_run(f"r{n}", due_at=now + 100 - n) for n in range(5)]
    runs += [new_run("span", due_in_s=500.0), new_run("free"), new_run("same", due_at=now + 98)]
    await store.batches.commit(A, [Start(run) for run in runs])
    assert await store.alerts.any_promised()
    found, after = [], FIRST
    while page := await store.alerts.promised_runs(after, 3):
        found += page
        after = (page[-1].due_at, page[-1].id)
    assert [run.id for run in found] == ["r4", "r3", "r2", "same", "r1", "r0", "span"]
    assert found[-1].due_at == pytest.approx(now + 500, abs=30)
    assert {run.state for run in found} == {RunState.PENDING}
    await store.operators.cancel_run("r3", "ann", "")
    assert [run.id for run in await store.alerts.promised_runs(FIRST, 2)] == ["r4", "r2"]
    named = await store.alerts.promised_runs_of(["r1", "r3", "free", "nobody"])
    assert [run.id for run in named] == ["r1"]


async def test_steps_that_are_due_come_in_the_order_in_which_they_are(store: Store) -> None:
    """A step is due so long after its run asked for it."""
    await begin(store, call(1), call(2), call(3), run=new_run("r"))
    await store.batches.commit(A, [Hop("r", 1, issued=[call(4)], promised=[(4, 60.0), (2, 90.0)])])
    assert await store.alerts.any_promised()
    first, second = await store.alerts.promised_steps((0.0, "", 0), 10)
    assert (first.run_id, first.n, first.state) == ("r", 4, StepState.READY)
    assert second.due_at - second.issued_at == pytest.approx(90.0, abs=0.001)
    after = (first.due_at, first.run_id, first.n)
    assert [one.n for one in await store.alerts.promised_steps(after, 10)] == [2]
    assert [one.n for one in await store.alerts.promised_steps_of([("r", 2), ("r", 3), ("x", 4)])] == [2]


async def test_an_alert_is_raised_once_and_only_about_what_is_open_and_due(store: Store, epoch: int) -> None:
    """The statement itself looks: what has ended since the leader read it is not late any more."""
    await store.batches.commit(A, [Start(new_run("due", due_in_s=5.0)), Start(new_run("gone", due_in_s=5.0))])
    await begin(store, call(1), run=new_run("free"))
    await store.operators.cancel_run("gone", "ann", "")
    late = [(alert(one), None) for one in ("due", "gone", "free", "nobody")]
    assert await store.alerts.raise_late(epoch, late) == 1
    assert await store.alerts.raise_late(epoch, late) == 0
    (one,) = await store.alerts.open_alerts_of(AlertKind.RUN_LATE, 0, 10)
    assert (one.run_id, one.times) == ("due", 1)
    assert await store.alerts.raise_late(epoch + 1, late) == 0


async def test_an_alert_about_a_step_needs_an_open_step_that_is_due(store: Store, epoch: int) -> None:
    """And an open run."""
    await begin(store, call(1), call(2), run=new_run("r"))
    await store.batches.commit(A, [Hop("r", 1, issued=[call(3)], promised=[(2, 60.0)])])
    late = [(alert("r", AlertKind.STEP_LATE), n) for n in (1, 9)]
    assert await store.alerts.raise_late(epoch, late) == 0
    assert await store.alerts.raise_late(epoch, [(alert("r", AlertKind.STEP_LATE), 2)]) == 1
    await ended(store, "r")
    await store.alerts.clear_alerts(epoch, [1])
    assert await store.alerts.raise_late(epoch, [(alert("r", AlertKind.STEP_LATE), 2)]) == 0
