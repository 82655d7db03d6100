"""Who owns a run, what is delivered to it, and when it wakes up."""

import asyncio

import pytest

from holdfast.config import Config
from holdfast.model import NewSignal, RunState, StepState
from holdfast.store import open_store
from holdfast.store.answers import Answer
from holdfast.store.operations import BeginUndo, Hop, Start
from holdfast.store.store import Store
from tests.store.made import (
    ENVIRONMENT,
    LONG_S,
    SERVED,
    A,
    B,
    begin,
    call,
    child,
    ids,
    new_run,
    parked,
    report,
    running_call,
    start,
    step,
    succeeded,
    timer,
    wait,
)


async def test_pending_runs_are_claimed_by_priority_then_age(store: Store) -> None:
    """The highest priority first, within it the oldest; a claimed run is running and owned."""
    old, new = await start(store), await start(store)
    high = await start(store, new_run(priority=7))
    first = await store.schedulers.claim_runs(A, SERVED, 2)
    assert set(ids(first)) == {high, old}
    assert all((one.run.owner, one.run.state, one.run.fence) == (A, RunState.RUNNING, 1) for one in first)
    assert ids(await store.schedulers.claim_runs(B, SERVED, 2)) == [new]


async def test_only_served_workflows_are_claimed(store: Store) -> None:
    """Another workflow or another version waits for a scheduler that has it."""
    await start(store, new_run(workflow="shop.refund"))
    await start(store, new_run(version="2"))
    parked_run = await parked(store, wait(1), run=new_run(version="2"))
    await store.operators.send_signal(NewSignal(parked_run, "paid", "k", b"1"))
    assert await store.schedulers.claim_runs(A, SERVED, 10) == []
    assert await store.schedulers.claim_runs(A, [], 10) == []
    assert len(await store.schedulers.claim_runs(A, [("shop.order", "2"), ("shop.refund", "1")], 10)) == 3


async def test_two_schedulers_never_get_the_same_run(store: Store, other: Store) -> None:
    """Simultaneous claims through two connections share the runs between them."""
    runs = [await start(store) for _ in range(60)]

    async def take(through: Store, node: str) -> list[str]:
        got: list[str] = []
        for _ in range(10):
            got += ids(await through.schedulers.claim_runs(node, SERVED, 7))
        return got

    first, second = await asyncio.gather(take(store, A), take(other, B))
    assert sorted(first + second) == sorted(runs)


async def test_a_claimed_run_comes_with_its_history(store: Store) -> None:
    """Steps in order of issue, delivered or not, and all its signals."""
    run_id = await begin(store, running_call(1), running_call(2), wait(3))
    await store.operators.send_signal(NewSignal(run_id, "paid", "k", b"1"))
    await store.batches.commit(A, [Hop(run_id, 1, outcomes=[succeeded(2, 1, 1)])])
    await store.batches.commit(A, [report(run_id, 1, 1), Hop(run_id, 1, park=True)])
    (claimed,) = await store.schedulers.claim_runs(B, SERVED, 10)
    assert [(one.n, one.state, one.delivered_seq) for one in claimed.steps] == [
        (1, StepState.SUCCEEDED, None),
        (2, StepState.SUCCEEDED, 1),
        (3, StepState.WAITING, None),
    ]
    assert [one.key for one in claimed.signals] == ["k"]
    assert claimed.run.fence == 3


async def test_an_owned_run_is_not_claimed(store: Store) -> None:
    """If a run has an owner, that owner delivers to it."""
    run_id = await begin(store, running_call(1))
    await store.batches.commit(A, [report(run_id, 1, 1)])
    assert await store.schedulers.claim_runs(B, SERVED, 10) == []
    assert await store.schedulers.claim_run(B, run_id) is None


async def test_a_claimed_run_wakes_nobody_twice(store: Store) -> None:
    """After a run was claimed because of an outcome, nobody else can claim it for the same outcome."""
    run_id = await parked(store, running_call(1))
    await store.batches.commit(A, [report(run_id, 1, 1)])
    assert ids(await store.schedulers.claim_runs(A, SERVED, 10)) == [run_id]
    assert await store.schedulers.claim_runs(B, SERVED, 10) == []


async def test_undelivered_names_what_others_recorded(store: Store) -> None:
    """It returns outcomes and signals of the runs that the node owns, at most `limit` of each, and of no others."""
    mine, theirs = (
        await begin(store, running_call(1), running_call(2)),
        await begin(store, running_call(1), node=B),
    )
    await store.batches.commit(A, [report(mine, 2, 1), report(mine, 1, 1)])
    await store.batches.commit(B, [report(theirs, 1, 1)])
    await store.operators.send_signal(NewSignal(mine, "paid", "k", b"1"))
    found = await store.schedulers.undelivered(A, 10)
    assert sorted(one.n for one in found.steps) == [1, 2]
    assert {one.run_id for one in found.steps} == {mine}
    assert [one.payload for one in found.signals] == [b"1"]
    assert len((await store.schedulers.undelivered(A, 1)).steps) == 1


async def test_due_timers_of_ownerless_runs_fire(store: Store) -> None:
    """A due timer ends its step. That is not delivered yet, so the run is claimed."""
    run_id = await parked(store, timer(1, 1000.0), timer(2, ENVIRONMENT.now() + LONG_S))
    assert await store.schedulers.fire_timers(10) == 1
    fired, waiting = await store.reads.steps(run_id)
    assert (fired.state, fired.delivered_seq, fired.fence) == (StepState.SUCCEEDED, None, 1)
    assert fired.finished_at is not None
    assert waiting.state is StepState.WAITING
    assert await store.schedulers.fire_timers(10) == 0
    assert ids(await store.schedulers.claim_runs(B, SERVED, 10)) == [run_id]


async def test_timers_fire_in_bounded_batches(store: Store) -> None:
    """One call fires at most `limit` timers, oldest first."""
    run_id = await parked(store, timer(1, 3000.0), timer(2, 1000.0), timer(3, 2000.0))
    assert await store.schedulers.fire_timers(2) == 2
    assert [one.n for one in await store.reads.steps(run_id) if one.state is StepState.WAITING] == [1]
    assert await store.schedulers.fire_timers(2) == 1


async def test_timers_of_owned_and_held_runs_are_left_alone(store: Store) -> None:
    """An owner fires the timers of its runs itself. The timers of a held run wait for its release."""
    await begin(store, timer(1, 1000.0))
    stopped = await parked(store, timer(1, 1000.0))
    await store.operators.hold(stopped, "ann", "")
    assert await store.schedulers.fire_timers(10) == 0
    assert await store.schedulers.next_timer() is None
    await parked(store, timer(1, 1000.0))
    assert await store.schedulers.fire_timers(10) == 1, "another run's timer is due, and fires alone"
    assert (await step(store, stopped)).state is StepState.WAITING


async def test_the_next_timer_is_the_earliest_of_a_run_without_an_owner(store: Store) -> None:
    """Timers of owned runs do not count."""
    soon, later = ENVIRONMENT.now() + 60, ENVIRONMENT.now() + 120
    assert await store.schedulers.next_timer() is None
    await begin(store, timer(1, soon))
    await parked(store, timer(1, later))
    assert await store.schedulers.next_timer() == pytest.approx(later - await store.now(), abs=5)


async def test_a_run_that_begins_later_is_not_claimed_before(store: Store) -> None:
    """Not even by somebody who asks for this very run. What could begin at once is claimed meanwhile. Its timeout counts
    from when it begins."""
    later = await start(store, new_run(begin_in_s=LONG_S, timeout_s=60.0, priority=9))
    at_once = await start(store, new_run(begin_at=1000.0))
    row, other = await store.reads.run(later), await store.reads.run(at_once)
    assert row is not None
    assert other is not None
    assert row.begin_at is not None
    assert row.begin_at == pytest.approx(row.created_at + LONG_S, abs=0.01)
    assert row.deadline == pytest.approx(row.begin_at + 60.0, abs=0.01)
    assert other.begin_at is None
    assert await store.schedulers.admit_runs(10) == 0
    assert await store.schedulers.claim_run(A, later) is None
    assert await store.schedulers.claim_runs(A, SERVED, 10, [later]) == []
    assert ids(await store.schedulers.claim_runs(A, SERVED, 10)) == [at_once]
    left_s = await store.schedulers.next_start()
    assert left_s is not None
    assert 0 < left_s <= LONG_S
    assert await store.alerts.late_runs(0.0, 10) == []


async def test_a_run_is_admitted_once_when_its_time_has_come(store: Store, other: Store) -> None:
    """By whoever looks first. It is claimed like any other run then."""
    runs = [await start(store, new_run(begin_in_s=0.01 * n)) for n in (1, 2, 3)]
    await asyncio.sleep(0.05)
    assert await store.schedulers.admit_runs(1) == 1
    both = await asyncio.gather(store.schedulers.admit_runs(10), other.schedulers.admit_runs(10))
    assert sum(both) == 2
    assert await store.schedulers.next_start() is None
    assert sorted(ids(await store.schedulers.claim_runs(A, SERVED, 10))) == sorted(runs)


async def test_a_held_run_is_admitted_after_its_release(store: Store) -> None:
    """Its time comes while it is held: nobody admits it then. A cancelled one is never admitted."""
    held, cancelled = [await start(store, new_run(begin_in_s=0.01)) for _ in range(2)]
    await store.operators.hold(held, "ann", "")
    await store.operators.cancel_run(cancelled, "ann", "")
    await asyncio.sleep(0.05)
    assert await store.schedulers.admit_runs(10) == 0
    await store.operators.release(held, "ann", "")
    assert await store.schedulers.claim_runs(A, SERVED, 10) == []
    assert await store.schedulers.admit_runs(10) == 1
    assert ids(await store.schedulers.claim_runs(A, SERVED, 10)) == [held]


async def test_an_owner_holds_its_run(store: Store) -> None:
    """A run whose code cannot go on is held with the reason, and has no owner then."""
    run_id = await begin(store, running_call(1))
    assert await store.schedulers.hold_run(run_id, 9, "stale") is Answer.FENCED
    assert await store.schedulers.hold_run(run_id, 1, "the code changed") is Answer.ACCEPTED
    run = await store.reads.run(run_id)
    assert run is not None
    assert (run.state, run.resume, run.note, run.owner, run.fence) == (
        RunState.HELD,
        RunState.RUNNING,
        "the code changed",
        None,
        2,
    )
    assert [(one.verb, one.note) for one in await store.reads.journal(run_id)] == [
        ("hold", "the code changed")
    ]
    assert await store.schedulers.hold_run("no-such-run", 1, "") is Answer.FENCED


async def test_a_run_that_is_held_while_it_undoes_itself_goes_on_undoing(store: Store) -> None:
    """Its code cannot read what an undo needs. When it is released, it does not run again as if nothing had failed."""
    run_id = await begin(store, running_call(1))
    await store.batches.commit(A, [Hop(run_id, 1, undo=BeginUndo("failed", "boom"))])
    run = await store.reads.run(run_id)
    assert run is not None
    assert run.state is RunState.UNDOING
    held = await store.schedulers.hold_run(run_id, run.fence, "the input of an undo cannot be read")
    assert held is Answer.ACCEPTED
    await store.operators.release(run_id, "ann", "")
    run = await store.reads.run(run_id)
    assert run is not None
    assert run.state is RunState.UNDOING


async def test_lost_runs_are_those_with_another_owner_or_fence(store: Store) -> None:
    """The store names those runs of a node that it no longer owns."""
    mine, left = await begin(store), await parked(store)
    assert sorted(await store.schedulers.lost_runs(A, [(mine, 1), (left, 1), ("no-such-run", 1)])) == sorted(
        [left, "no-such-run"]
    )
    assert await store.schedulers.lost_runs(B, [(mine, 1)]) == [mine]
    assert await store.schedulers.lost_runs(A, [(mine, 0)]) == [mine], "it was lost, and claimed again"
    assert await store.schedulers.lost_runs(A, []) == []


async def test_a_child_and_its_parent_may_begin_in_one_batch(store: Store) -> None:
    """After the commit, everybody sees what the hops in it started."""
    parent = new_run()
    kid = new_run(parent_id=parent.id, parent_n=1)
    hop = Hop(parent.id, 1, begin=parent, begun_at=ENVIRONMENT.now(), issued=[child(1)], children=[kid])
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    assert ids(await store.schedulers.claim_runs(B, SERVED, 10)) == [kid.id]


async def test_a_step_number_is_never_given_twice(store: Store) -> None:
    """Issuing a step whose number is taken changes nothing."""
    run_id = await begin(store, call(1, input=b"[1]"))
    before = await step(store, run_id)
    try:
        answer = (await store.batches.commit(A, [Hop(run_id, 1, issued=[call(1, input=b"[2]")])]))[0]
    except Exception:  # noqa: BLE001  the scheduler never does this: any refusal is right
        answer = Answer.FENCED
    assert answer is Answer.FENCED
    assert await step(store, run_id) == before


async def test_claiming_runs_with_long_histories_is_bounded(store: Store) -> None:
    """A claim stops when its runs have a certain number of steps. The next claim gets the rest, in the same order."""
    begun = []
    for _ in range(4):
        run_id = await begin(store, *(call(n) for n in range(1, 7)))
        (claimed,) = [
            one for one in await store.agents.claim_steps(A, [1], 100) if (one.run_id, one.n) == (run_id, 1)
        ]
        await store.batches.commit(A, [report(run_id, 1, claimed.fence), Hop(run_id, 1, park=True)])
        begun.append(run_id)
    sliced = open_store(store.url, ENVIRONMENT, Config(replay_slice_steps=10))
    await sliced.open()
    found = [ids(await sliced.schedulers.claim_runs(A, SERVED, 100)) for _ in range(3)]
    assert [sorted(one) for one in found] == [sorted(begun[:2]), sorted(begun[2:]), []]
    for _ in range(5):
        await store.batches.commit(A, [Start(new_run())])
    assert len(await sliced.schedulers.claim_runs(A, SERVED, 100)) == 5, "what has no history costs nothing"
    await sliced.close()
