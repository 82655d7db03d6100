"""What a pool asks: how many steps wait for its agents, and which nodes there are."""

import pytest

from holdfast.model import BreakerState, HoldScope
from holdfast.store.answers import Backlog
from holdfast.store.operations import Hop
from holdfast.store.store import Store
from tests.store.conftest import Tamper
from tests.store.made import (
    ENVIRONMENT,
    WORKFLOW,
    A,
    B,
    C,
    begin,
    call,
    join,
    number_lane,
    reclaim,
    running_call,
)

SOON_S = 3600.0


async def test_what_is_due_in_its_lanes_is_counted(store: Store) -> None:
    """Steps of all priorities count that are ready and due. Steps that run, back off or belong to another lane do not.
    The age of the oldest is measured from when it became ready."""
    assert await store.agents.backlog([1, 2], 100) == Backlog(0, None)
    now = await store.now()
    await begin(store, call(1, ready_at=now - 50), call(2, ready_at=now - 90, priority=5), running_call(3))
    await begin(store, call(1, ready_at=now - 10, lane=2), call(2, ready_at=now + SOON_S), call(3, lane=9))
    found = await store.agents.backlog([1, 2], 100)
    assert (found.ready, round(now - (found.since or 0))) == (3, 90)
    assert (await store.agents.backlog([2], 100)).ready == 1
    assert await store.agents.backlog([], 100) == Backlog(0, None)


async def test_counting_stops_at_the_limit(store: Store) -> None:
    """A long queue costs no more than the limit in each lane and priority."""
    now = await store.now()
    await begin(store, *(call(n, ready_at=now - n) for n in range(1, 31)))
    found = await store.agents.backlog([1], 10)
    assert (found.ready, round(now - (found.since or 0))) == (10, 30)


async def test_what_is_held_waits_for_nobody(store: Store) -> None:
    """More agents would not help a run that an operator holds."""
    run_id = await begin(store, call(1, ready_at=ENVIRONMENT.now() - 50))
    await store.operators.hold(run_id, "ann", "")
    assert await store.agents.backlog([1], 10) == Backlog(0, None)
    await store.operators.release(run_id, "ann", "")
    assert await store.schedulers.claim_run(A, run_id) is not None
    assert (await store.agents.backlog([1], 10)).ready == 1


@pytest.mark.parametrize(
    ("scope", "value"),
    [
        (HoldScope.WORKFLOW, WORKFLOW),
        (HoldScope.NAMESPACE, "default"),
        (HoldScope.STEP, "shop.charge"),
        (HoldScope.DEPENDENCY, "bank"),
        (HoldScope.ALL, ""),
    ],
)
async def test_what_is_behind_a_gate_waits_for_nobody(store: Store, scope: HoldScope, value: str) -> None:
    """More agents would not open the gate."""
    lane = await number_lane(store, "shop.charge", (), depends="bank")
    await begin(store, call(1, lane=lane, ready_at=ENVIRONMENT.now() - 50))
    await store.gates.add_hold(scope, value, "ann", "")
    assert await store.agents.backlog([lane], 10) == Backlog(0, None)
    await store.gates.remove_hold(scope, value, "ann", "")
    assert (await store.agents.backlog([lane], 10)).ready == 1


async def test_what_waits_for_its_dependency_waits_for_no_agent(store: Store) -> None:
    """An open breaker lets nothing begin, however many agents there are."""
    lane = await number_lane(store, "shop.charge", (), depends="bank")
    await begin(store, call(1, lane=lane, ready_at=ENVIRONMENT.now() - 50))
    await store.gates.force_breaker("bank", BreakerState.OPEN, "ann", "")
    assert await store.agents.backlog([lane], 10) == Backlog(0, None)
    await store.gates.force_breaker("bank", BreakerState.CLOSED, "ann", "")
    assert (await store.agents.backlog([lane], 10)).ready == 1


async def test_live_nodes_are_listed(store: Store) -> None:
    """Nodes that left are not listed, and at most `limit` are."""
    await join(store, "node-late", lease_s=-1.0)
    assert {node.id for node in await store.nodes.living(10)} == {A, B, C, "node-late"}
    await store.nodes.retire(B)
    assert {node.id for node in await store.nodes.living(10)} == {A, C, "node-late"}
    assert "node-late" not in {node.id for node in await store.nodes.living(2)}


async def test_nodes_that_left_long_ago_are_forgotten(store: Store, tamper: Tamper) -> None:
    """The leader removes them, oldest first, at most `limit` at a time. Live nodes stay, and so does one that still has
    something."""
    epoch = await store.leader.lead(A, 60.0)
    assert epoch is not None
    now = await store.now()
    assignment = await begin(store, running_call(1), node=C)
    for node in ("old-1", "old-2", "old-3"):
        await join(store, node)
        await store.nodes.retire(node)
    await store.nodes.retire(B)
    long_ago = "'2020-01-01'" if store.url.startswith("postgresql") else "1577836800.0"
    tamper(f"UPDATE nodes SET retired_at = {long_ago} WHERE id LIKE 'old-%' OR id = '{C}'")
    assert await store.retention.forget_nodes(epoch + 1, now - SOON_S, 100) == 0
    assert await store.retention.forget_nodes(epoch, now - SOON_S, 2) == 2
    assert await store.retention.forget_nodes(epoch, now - SOON_S, 2) == 1
    assert await store.retention.forget_nodes(epoch, now - SOON_S, 2) == 0
    assert {node.id for node in await store.nodes.nodes()} == {A, B, C}
    assert await store.batches.commit(C, [Hop(assignment, 1, park=True)])


async def test_the_journal_of_no_run_is_forgotten(store: Store, tamper: Tamper) -> None:
    """Entries about a run stay as long as the run. Entries about no run are removed when they are old."""
    epoch = await store.leader.lead(A, 60.0)
    assert epoch is not None
    now = await store.now()
    run_id = await begin(store, call(1))
    await store.operators.hold(run_id, "ann", "why not")
    await join(store, "doomed", lease_s=-1.0)
    await reclaim(store, "doomed", epoch, "its lease ran out", 3, 100)
    assert await store.retention.forget_journal(epoch, now - SOON_S, 100) == 0
    long_ago = "'2020-01-01'" if store.url.startswith("postgresql") else "1577836800.0"
    tamper(f"UPDATE journal SET at = {long_ago}")
    assert await store.retention.forget_journal(epoch + 1, now - SOON_S, 100) == 0
    assert await store.retention.forget_journal(epoch, now - SOON_S, 100) == 1
    assert [one.verb for one in await store.reads.journal(None)] == ["hold"]
