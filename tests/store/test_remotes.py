"""Nodes that reach the store through a server: what any server knows of them, and whose turn it is."""

from __future__ import annotations

from holdfast.model import StepState, TwinState
from holdfast.store.claims import StepClaim
from holdfast.store.remotes import NewTurn, RemoteNodeRow, TurnBegun, TwinClaim
from holdfast.store.store import Store
from tests.store.made import LONG_S, A, begin, call, join, running_call, step

R = "node-remote"
OFFERS = '{"steps": ["shop.charge"]}'


async def joined(store: Store, token: str = "token-1", secret: bytes = b"first") -> bytes | None:
    return await store.remotes.register(R, ("host", 1, "agent", OFFERS, 10, LONG_S), token, secret)


async def test_a_server_that_never_met_a_node_reads_all_about_it(store: Store) -> None:
    """Its token, its secret, what it offers, and its newest turn that took something."""
    assert await store.remotes.remote(R) is None
    assert await joined(store) == b"first"
    assert await joined(store, secret=b"second") == b"first", "it keeps the secret of its claims"
    assert await joined(store, token="token-2") is None, "another token is another node"
    assert await store.remotes.remote(R) == RemoteNodeRow("token-1", b"first", OFFERS, 0)
    await begin(store, call(1))
    claim = StepClaim(R, [1], 5)
    taken = await store.remotes.claim(R, 3, [claim])
    assert taken is not None
    assert [(one.step.n, one.probe) for one in taken] == [(1, None)]
    assert await store.remotes.remote(R) == RemoteNodeRow("token-1", b"first", OFFERS, 3)
    await store.nodes.retire(R)
    assert await store.remotes.remote(R) is None


async def test_nobody_registers_as_a_node_of_somebody_else(store: Store) -> None:
    """Neither as one at the store, nor as one of another token, and nor as one that has left. Nothing of it changes."""
    await join(store)
    await joined(store)
    about = {one.id: (one.offers, one.capacity) for one in await store.nodes.nodes()}
    other = ("elsewhere", 2, "agent", '{"steps": ["shop.other"], "namespaces": ["acme"]}', 7, LONG_S)
    for node in (A, R):
        assert await store.remotes.register(node, other, "token-2", b"second") is None
    assert {one.id: (one.offers, one.capacity) for one in await store.nodes.nodes()} == about
    assert await store.remotes.remote(A) is None
    assert await store.remotes.register(R, other, "token-1", b"second") == b"first"
    assert await store.remotes.remote(R) == RemoteNodeRow("token-1", b"first", other[3], 0)
    await store.nodes.retire(R)
    assert await joined(store) is None


async def test_a_turn_takes_once_and_an_overtaken_one_nothing(store: Store) -> None:
    """A request that is sent again, or arrives late, takes nothing. A turn that finds nothing may try again."""
    await joined(store)
    claim = StepClaim(R, [1], 1)
    assert await store.remotes.claim(R, 2, [claim]) == []
    run_id = await begin(store, call(1), call(2))
    taken = await store.remotes.claim(R, 2, [claim])
    assert taken is not None
    assert len(taken) == 1
    assert await store.remotes.claim(R, 2, [claim]) is None
    assert await store.remotes.claim(R, 1, [claim]) is None
    assert [(await step(store, run_id, n)).state for n in (1, 2)] == [StepState.RUNNING, StepState.READY]


async def test_a_new_turn_hands_back_what_its_node_does_not_know_of(store: Store) -> None:
    """The answer to a claim was lost. Claims of turns before this one take nothing any more; this one still may."""
    await joined(store)
    run_id = await begin(store, call(1), call(2))
    claim = StepClaim(R, [1], 1)
    assert await store.remotes.claim(R, 1, [claim])
    (known,) = await store.remotes.begin_turns([NewTurn(R, 4, LONG_S, [(run_id, 1, 1)])])
    assert known.now is not None
    assert abs(known.now - await store.now()) < LONG_S
    assert known == TurnBegun(known.now)
    (lost,) = await store.remotes.begin_turns([NewTurn(R, 4, LONG_S, [])])
    assert lost == TurnBegun(lost.now, handed_back=1)
    assert (await step(store, run_id, 1)).state is StepState.READY
    assert await store.remotes.claim(R, 3, [claim]) is None
    (late,) = await store.remotes.begin_turns([NewTurn(R, 3, LONG_S, [])])
    assert late == TurnBegun(late.now, is_overtaken=True)
    (beat,) = await store.remotes.begin_turns([NewTurn(R, 0, LONG_S, None, pulse='{"has": 7}')])
    assert beat == TurnBegun(beat.now)
    assert '"has": 7' in next(row.offers for row in await store.nodes.nodes() if row.id == R).replace(
        '":7', '": 7'
    )
    assert await store.remotes.claim(R, 4, [claim])
    assert await store.remotes.begin_turns([NewTurn("nobody", 9, LONG_S, [])]) == [TurnBegun(None)]


async def test_a_lease_is_only_shortened(store: Store) -> None:
    """A connection that ends lets the lease end soon, and never later than it would have ended."""
    await joined(store)

    async def left_s(node: str) -> float:
        (row,) = [one for one in await store.nodes.nodes() if one.id == node]
        return row.lease_until - await store.now()

    before = await left_s(R)
    assert await store.remotes.shorten(R, 2 * LONG_S) in (0, 1)
    assert await left_s(R) <= before
    assert await store.remotes.shorten(R, 60.0) == 1
    assert 0 < await left_s(R) <= 60
    assert await store.remotes.shorten(A, 60.0) == 0, "it is no remote node"


async def test_a_turn_takes_twins_first_and_then_nothing_else(store: Store) -> None:
    """Twins belong to steps that are late. A turn that is overtaken takes none, and a twin that its node does not know of
    ends, while its step goes on."""
    await joined(store)
    run_id = await begin(store, running_call(1), call(2))
    epoch = await store.leader.lead(A, 60)
    assert epoch is not None
    before = await step(store, run_id, 1)
    assert await store.twins.make_twins(epoch, [(run_id, 1, before.fence)])
    steps, twins = [StepClaim(R, [1], 5)], [TwinClaim([1], 5)]
    assert (await store.remotes.begin_turns([NewTurn(R, 3, LONG_S, [])]))[0].is_member
    assert await store.remotes.claim(R, 2, steps, twins) is None
    taken = await store.remotes.claim(R, 3, steps, twins)
    assert taken is not None
    assert [(one.step.n, one.step.attempt, one.is_twin) for one in taken] == [(1, before.attempt + 1, True)]
    held = (run_id, 1, taken[0].step.fence)
    for known, state in (([held], TwinState.RUNNING), ([], TwinState.FAILED)):
        await store.remotes.begin_turns([NewTurn(R, 4, LONG_S, [], known)])
        assert [one.state for one in await store.twins.twins(run_id)] == [state]
    assert await step(store, run_id, 1) == before
    taken = await store.remotes.claim(R, 5, steps, twins)
    assert taken is not None
    assert [(one.step.n, one.is_twin) for one in taken] == [(2, False)]
