"""A node's row, its lease, what it gives up, and its bells."""

import asyncio

import pytest

from holdfast.model import RunState, StepState
from holdfast.store.answers import Answer
from holdfast.store.bell import Bell
from holdfast.store.operations import Hop, Start
from holdfast.store.store import Store
from tests.store.made import (
    LONG_S,
    SERVED,
    A,
    B,
    D,
    begin,
    call,
    deaths,
    ids,
    join,
    new_run,
    report,
    running_call,
    say_gone,
    start,
    step,
    wait,
)


async def test_a_registered_node_is_listed(store: Store) -> None:
    """The list has what the node registered with, and a lease that begins now."""
    await store.nodes.register(
        D, host="here", pid=7, roles="agent", offers='{"a": 1}', capacity=5, lease_s=60.0
    )
    (node,) = [one for one in await store.nodes.nodes() if one.id == D]
    assert (node.host, node.pid, node.roles, node.offers, node.capacity) == (
        "here",
        7,
        "agent",
        '{"a": 1}',
        5,
    )
    assert node.lease_until == pytest.approx(await store.now() + 60, abs=5)
    assert node.retired_at is None


async def test_renewing_moves_the_lease_and_returns_the_time(store: Store) -> None:
    """The answer is the time of the store's clock."""
    await join(store, D, lease_s=1.0)
    at = await store.nodes.renew(D, LONG_S)
    assert at == pytest.approx(await store.now(), abs=5)
    (node,) = [one for one in await store.nodes.nodes() if one.id == D]
    assert node.lease_until == pytest.approx(await store.now() + LONG_S, abs=5)


async def test_an_unknown_or_retired_node_cannot_renew(store: Store) -> None:
    """The answer is None, and a node that gets it must stop."""
    assert await store.nodes.renew("no-such-node", LONG_S) is None
    await store.nodes.retire(B)
    assert await store.nodes.renew(B, LONG_S) is None


async def test_a_node_whose_process_is_gone_cannot_renew(store: Store) -> None:
    """What was said in the store stays true: a renewal that was on its way does not bring the lease back."""
    await join(store, D)
    await say_gone(store.url, D)
    (gone,) = [one for one in await store.nodes.nodes() if one.id == D]
    assert await store.nodes.renew(D, LONG_S) is None
    assert [one.lease_until for one in await store.nodes.nodes() if one.id == D] == [gone.lease_until]


async def test_a_retired_node_has_nothing(store: Store) -> None:
    """Its runs are freed, its steps are handed back and no attempt counts, and its lease as leader is given up."""
    run_id = await begin(store, running_call(1), wait(2))
    await store.leader.lead(A, LONG_S)
    await store.nodes.retire(A)
    run = await store.reads.run(run_id)
    assert run is not None
    assert (run.owner, run.fence, run.state) == (None, 2, RunState.RUNNING)
    row = await step(store, run_id)
    assert (row.state, row.agent, row.fence, row.excused) == (StepState.READY, None, 2, 1)
    assert await store.leader.lead(B, LONG_S) is not None
    assert A not in dict(await deaths(store))
    assert await store.batches.commit(A, [report(run_id, 1, 1)]) == [Answer.FENCED]


async def test_reconciling_gives_up_what_the_node_does_not_know(store: Store) -> None:
    """An answer got lost, so the node has more than it knows of. What it knows of stays as it is."""
    known, lost = await begin(store, running_call(1), running_call(2)), await begin(store, running_call(1))
    theirs = await begin(store, running_call(1), node=B)
    assert await store.nodes.reconcile(A, [(known, 1)], [(known, 1, 1)]) == (1, 2)
    assert {one.n: one.state for one in await store.reads.steps(known)} == {
        1: StepState.RUNNING,
        2: StepState.READY,
    }
    assert (await step(store, known, 2)).excused == 1
    assert await store.schedulers.lost_runs(A, [(known, 1), (lost, 1)]) == [lost]
    assert (await step(store, theirs)).state is StepState.RUNNING
    assert await store.nodes.reconcile(A, [(known, 1)], [(known, 1, 1)]) == (0, 0)


async def test_reconciling_goes_by_fences(store: Store) -> None:
    """If a node knows a run or a step by an older fence, it claimed it again and the answer got lost."""
    run_id = await begin(store, running_call(1))
    await store.nodes.reconcile(A, [], [])
    assert await store.schedulers.claim_run(A, run_id) is not None
    assert [one.fence for one in await store.agents.claim_steps(A, [1], 10)] == [3]
    assert await store.nodes.reconcile(A, [(run_id, 1)], [(run_id, 1, 1)]) == (1, 1)
    assert await store.nodes.reconcile(A, [(run_id, 1)], [(run_id, 1, 1)]) == (0, 0)


async def test_a_run_given_up_before_its_first_hop_is_claimed_again(store: Store) -> None:
    """The answer to the claim got lost, and nothing else would wake the run."""
    run_id = await start(store)
    await store.schedulers.claim_runs(A, SERVED, 10)
    assert await store.nodes.reconcile(A, [], []) == (1, 0)
    assert ids(await store.schedulers.claim_runs(B, SERVED, 10)) == [run_id]


async def test_a_listener_hears_that_others_wrote(store: Store, other: Store) -> None:
    """A write of another process rings bells here. Bells are hints: any of them may come, and nothing depends on
    them."""
    heard: set[Bell] = set()
    rung = asyncio.Event()

    def hear(bell: Bell) -> None:
        heard.add(bell)
        if bell is Bell.RUNS:
            rung.set()

    close = await store.nodes.listen(hear)
    await other.batches.commit(B, [Start(new_run())])
    await other.nodes.ring({Bell.RUNS})
    await asyncio.wait_for(rung.wait(), 10)
    await close()
    assert Bell.RUNS in heard


async def test_nobody_rings_after_closing(store: Store, other: Store) -> None:
    """A closed listener hears nothing any more."""
    heard: list[Bell] = []
    close = await store.nodes.listen(heard.append)
    await close()
    await other.batches.commit(B, [Hop(await begin(other, call(1), node=B), 1, park=True)])
    await other.nodes.ring(set(Bell))
    await store.now()
    assert heard == []
