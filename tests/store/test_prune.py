"""Retention: runs that ended long ago are removed, in batches that leave no orphans. Open runs stay."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from holdfast.errors import WrongState
from holdfast.model import NewSignal, Outcome, RunState
from holdfast.store.answers import Pruned
from holdfast.store.forks import ForkRequest
from holdfast.store.operations import Hop, RetryStep
from holdfast.store.store import Store
from tests.store.conftest import Tamper
from tests.store.made import (
    ENVIRONMENT,
    LONG_S,
    A,
    B,
    C,
    begin,
    broken,
    child,
    closing,
    delivered,
    new_run,
    report,
    running_call,
    step,
    succeeded,
)

BEGINNING = (0.0, "")


async def prune(
    store: Store,
    *,
    epoch: int | None = None,
    state: str = "succeeded",
    before: float | None = None,
    failed_before: float | None = None,
    kept: Sequence[str] = (),
    after: tuple[float, str] = BEGINNING,
    runs_max: int = 100,
    rows_max: int = 1000,
) -> Pruned:
    before = ENVIRONMENT.now() + 60 if before is None else before
    return await store.retention.prune(
        epoch,
        actor="tester",
        state=state,
        before=before,
        after=after,
        runs_max=runs_max,
        rows_max=rows_max,
        failed_before=failed_before,
        kept=kept,
    )


async def ended(
    store: Store, state: RunState = RunState.SUCCEEDED, at: float | None = None, steps: int = 2
) -> str:
    """A run that has ended, with steps, an attempt, a signal and a line in the journal."""
    run_id = await begin(store, *(running_call(n) for n in range(1, steps + 1)))
    await store.operators.send_signal(NewSignal(run_id, "paid", "k", b"1"))
    await store.operators.hold(run_id, "tester", "")
    await store.operators.release(run_id, "tester", "")
    run = await store.schedulers.claim_run(A, run_id)
    assert run is not None
    await store.batches.commit(A, [RetryStep(run_id, 1, 1, 0.0, "failed", None)])
    outcomes = [succeeded(n, 1, n) for n in range(2, steps + 1)]
    close = closing(state, at=ENVIRONMENT.now() if at is None else at)
    await store.batches.commit(A, [Hop(run_id, run.run.fence, outcomes=outcomes, dropped=[1], close=close)])
    return run_id


async def left(store: Store, run_id: str) -> int:
    """Return how many rows of a run there are."""
    kept = int(await store.reads.run(run_id) is not None) + len(await store.reads.journal(run_id))
    return (
        kept
        + len(await store.reads.steps(run_id))
        + len(await store.reads.attempts(run_id))
        + len(await store.reads.signals(run_id))
    )


async def test_an_old_run_goes_with_all_that_belongs_to_it(store: Store) -> None:
    """Its row, steps, attempts, signals and journal are removed. The journal says that this was done."""
    run_id, other = await ended(store), await ended(store, RunState.FAILED)
    assert await left(store, run_id) >= 7
    before = await left(store, other)
    done = await prune(store)
    assert (done.runs, done.after) == (1, None)
    assert done.rows >= 7
    assert await left(store, run_id) == 0
    assert await left(store, other) == before
    assert any((row.actor, row.verb) == ("tester", "prune") for row in await store.reads.journal(None))
    assert await broken(store) == set()


async def test_only_what_is_old_enough_and_ended_so_goes(store: Store) -> None:
    """The state in which it ended counts, and when it ended. An open run is never removed, however old it is."""
    now = ENVIRONMENT.now()
    old = await ended(store, at=now - 100)
    young, failed, live = (
        await ended(store, at=now - 10),
        await ended(store, RunState.FAILED),
        await begin(store),
    )
    assert await store.retention.count_old_runs("succeeded", now - 50) == 1
    assert (await prune(store, before=now - 50)).runs == 1
    assert await store.reads.run(old) is None
    for run_id in (young, failed, live):
        assert await store.reads.run(run_id) is not None
    assert (await prune(store, state="cancelled")).runs == 0


async def test_pruning_is_bounded_and_goes_on(store: Store) -> None:
    """A batch removes at most `runs_max` runs and about `rows_max` rows. A cursor leads to the end. Wherever it stops,
    there are no orphans."""
    runs = [await ended(store, steps=5) for _ in range(6)]
    after: tuple[float, str] | None = BEGINNING
    batches = 0
    while after is not None:
        done = await prune(store, after=after, runs_max=2, rows_max=4)
        assert done.runs <= 2
        assert done.rows <= 6
        assert await broken(store) == set()
        after, batches = done.after, batches + 1
        assert batches < 100
    assert batches > 6
    assert [await left(store, run_id) for run_id in runs] == [0] * 6


async def test_many_that_ended_at_once_are_all_found(store: Store) -> None:
    """The cursor distinguishes runs that ended at the same time."""
    at = ENVIRONMENT.now() - 1
    for _ in range(7):
        await ended(store, at=at)
    after: tuple[float, str] | None = BEGINNING
    removed = 0
    while after is not None:
        done = await prune(store, after=after, runs_max=2)
        removed, after = removed + done.runs, done.after
    assert removed == 7


async def test_children_go_before_their_parent_and_not_while_a_run_above_is_open(store: Store) -> None:
    """An open run may have to undo what the runs below it did. A whole family is removed beginning with the lowest."""
    family = [await begin(store, child(1))]
    for n in (1, 1):
        run = new_run(parent_id=family[-1], parent_n=n)
        family.append(await begin(store, child(1), run=run))
    for parent, run_id in reversed(list(pairwise(family))):
        close = closing(parent_id=parent, parent_n=1)
        await store.batches.commit(A, [Hop(run_id, 1, dropped=[1], close=close)])
    assert (await prune(store)).runs == 0, "the one at the top is live"
    await store.batches.commit(A, [Hop(family[0], 1, outcomes=[delivered(1, 1)], close=closing())])
    removed = []
    for _ in family:
        assert (await prune(store)).runs == 1
        removed.append([await store.reads.run(run_id) is None for run_id in family])
        assert await broken(store) == set()
    assert removed == [[False, False, True], [False, True, True], [True, True, True]]


async def test_children_stay_with_a_parent_that_can_be_retried(store: Store) -> None:
    """The retry keeps the results of children that succeeded. If it fails, it must undo them."""
    parent = await begin(store, child(1))
    below = await begin(store, run=new_run(parent_id=parent, parent_n=1))
    await store.batches.commit(A, [Hop(below, 1, close=closing(parent_id=parent, parent_n=1))])
    close = closing(RunState.FAILED, at=ENVIRONMENT.now())
    await store.batches.commit(A, [Hop(parent, 1, outcomes=[delivered(1, 1)], close=close)])
    assert (await prune(store, kept=["failed"])).runs == 0
    assert (await prune(store, kept=["failed"], state="failed")).runs == 0
    assert (await prune(store, failed_before=ENVIRONMENT.now() - 60)).runs == 0
    assert (await prune(store, kept=["cancelled", "succeeded", "undone"])).runs == 1
    assert (await prune(store, state="failed")).runs == 1
    assert [await store.reads.run(run_id) for run_id in (below, parent)] == [None, None]


async def demand_nothing_goes_on_from(store: Store, run_id: str) -> None:
    with pytest.raises(WrongState, match=f"{run_id}' ended long ago and is being removed"):
        await store.operators.retry_run(run_id, "tester")
    with pytest.raises(WrongState, match=f"{run_id}' ended long ago and is being removed"):
        await store.operators.fork_run(run_id, ForkRequest(input=b"{}", digest=b"d"), "tester")


async def test_nothing_goes_on_from_a_run_that_is_half_removed(store: Store) -> None:
    """A retry would find a part of what the run did, and do the rest a second time."""
    run_id = await ended(store, RunState.FAILED, steps=5)
    assert await prune(store, state="failed", rows_max=2) == Pruned(0, 2, BEGINNING)
    await demand_nothing_goes_on_from(store, run_id)
    assert (await prune(store, state="failed")).runs == 1


async def test_nothing_goes_on_from_a_run_whose_children_are_removed(store: Store) -> None:
    """It could not undo them, or would do them a second time."""
    top = await begin(store, child(1))
    middle = await begin(store, child(1), run=new_run(parent_id=top, parent_n=1))
    below = await begin(store, run=new_run(parent_id=middle, parent_n=1))
    await store.batches.commit(A, [Hop(below, 1, close=closing(parent_id=middle, parent_n=1))])
    close = closing(parent_id=top, parent_n=1)
    await store.batches.commit(A, [Hop(middle, 1, outcomes=[delivered(1, 1)], close=close)])
    close = closing(RunState.FAILED, at=ENVIRONMENT.now())
    await store.batches.commit(A, [Hop(top, 1, outcomes=[delivered(1, 1)], close=close)])
    assert (await prune(store)).runs == 1
    assert await store.reads.run(below) is None
    await demand_nothing_goes_on_from(store, top)
    await store.operators.fork_run(middle, ForkRequest(input=b"{}", digest=b"d", id="anew"), "tester")


async def test_a_stuck_run_is_open(store: Store) -> None:
    """A person still has to decide about it."""
    run_id = await begin(store)
    await store.batches.commit(A, [Hop(run_id, 1, close=closing(RunState.STUCK))])
    for state in ("succeeded", "failed", "undone", "cancelled"):
        assert (await prune(store, state=state)).runs == 0
    assert await store.reads.run(run_id) is not None


async def test_a_run_may_be_the_retry_of_one_that_is_gone(store: Store) -> None:
    """Nothing needs the earlier run any more."""
    run_id = await ended(store, RunState.FAILED)
    new_id = await store.operators.retry_run(run_id, "tester")
    assert (await prune(store, state="failed")).runs == 1
    again = await store.reads.run(new_id)
    assert again is not None
    assert again.retry_of == run_id
    assert await broken(store) == set()


async def test_a_late_report_about_a_pruned_run_leaves_nothing(store: Store) -> None:
    """It is refused, and no attempt is kept."""
    run_id = await ended(store)
    await prune(store)
    answer = await store.batches.commit(A, [report(run_id, 1, 1)])
    assert answer == ["fenced"]
    assert await left(store, run_id) == 0
    assert await broken(store) == set()


async def test_a_pruned_id_can_be_started_anew(store: Store) -> None:
    """An id belongs to its run only for as long as the run is kept."""
    run = new_run("same")
    await begin(store, run=run)
    await store.batches.commit(A, [Hop("same", 1, close=closing())])
    await prune(store)
    await begin(store, run=run)
    found = await store.reads.run("same")
    assert found is not None
    assert found.state is RunState.RUNNING


async def test_a_deposed_leader_prunes_nothing(store: Store) -> None:
    """It removes neither runs nor alerts."""
    run_id = await ended(store)
    old = await store.leader.lead(B, -1.0)
    new = await store.leader.lead(C, LONG_S)
    assert old is not None
    assert new is not None
    assert (await prune(store, epoch=old)).runs == 0
    assert await store.reads.run(run_id) is not None
    assert (await prune(store, epoch=new)).runs == 1


async def test_cleared_alerts_go_with_their_deliveries(store: Store, tamper: Tamper) -> None:
    """Open alerts stay."""
    stuck, other = await begin(store), await begin(store)
    for run_id in (stuck, other):
        await store.batches.commit(A, [Hop(run_id, 1, close=closing(RunState.STUCK))])
    await store.operators.steer_undo(stuck, "retry", None, "tester", "")
    (gone,) = [one.id for one in await store.alerts.alerts() if one.run_id == stuck]
    at = "now()" if store.url.startswith("postgres") else "0"
    tamper(
        f"INSERT INTO deliveries (id, alert_id, channel, event, next_try_at) VALUES ('d', {gone}, 'c', 'raised', {at})"
    )
    epoch = await store.leader.lead(A, LONG_S)
    assert epoch is not None
    assert await store.retention.prune_alerts(epoch, ENVIRONMENT.now() + 60, 100) == 1
    assert [one.run_id for one in await store.alerts.alerts()] == [other]
    assert await store.alerts.deliveries([gone]) == []


async def test_a_refused_reports_attempt_goes_with_its_run(store: Store) -> None:
    """The attempt that says that a late report came belongs to the run."""
    run_id = await ended(store)
    await store.batches.commit(A, [Outcome(run_id, 1, (await step(store, run_id)).state, None, None, 0.0, 9)])
    assert await store.reads.attempts(run_id)
    await prune(store)
    assert await store.reads.attempts(run_id) == []
    assert await broken(store) == set()
