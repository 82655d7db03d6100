"""The doctor names what is broken, and nothing else."""

import msgspec
import pytest

from holdfast import codec
from holdfast.model import ChildUndo, NewSignal, Outcome, StepState, undo_key
from holdfast.store.operations import Hop
from holdfast.store.store import Store
from tests.store.conftest import Tamper
from tests.store.made import (
    A,
    asks_people,
    begin,
    broken,
    call,
    child,
    closing,
    ended,
    new_run,
    parked,
    running_call,
    start,
    succeeded,
    timer,
    wait,
)

DAMAGE = {
    "I1": "UPDATE steps SET key = 'same' WHERE run_id = '{run}'",
    "I4": "UPDATE steps SET state = 'succeeded', finished_at = issued_at, delivered_seq = 1 WHERE run_id = '{parked}'",
    "I8": "UPDATE steps SET attempt = 99, fence = 100 WHERE run_id = '{run}' AND n = 1",
    "I10": "UPDATE steps SET agent = 'nobody' WHERE run_id = '{run}' AND n = 1",
    "I10b": "UPDATE runs SET owner = 'nobody' WHERE id = '{run}'",
    "I23": """UPDATE nodes SET offers = '{{"pulse": {{"at": 9e9, "lease_s": 10, "known": 0}}}}' WHERE id = 'node-a'""",
    "I11": "UPDATE steps SET delivered_seq = 7 WHERE run_id = '{delivered}'",
    "I12": "UPDATE steps SET state = 'ready', finished_at = NULL WHERE run_id = '{ended}'",
    "I17": "UPDATE signals SET run_id = 'nobody' WHERE run_id = '{run}'",
    "I24": "UPDATE signals SET set_aside = 'why' WHERE run_id = '{run}'",
    "I27": "UPDATE signals SET run_id = '{ended}', name = '$update:change', delivered_seq = 1 WHERE run_id = '{run}'",
    "I26": "UPDATE runs SET tags = '{{' WHERE id = '{ended}'",
    "I18": "UPDATE runs SET parent_n = 99 WHERE parent_id = '{run}'",
    "I50": "UPDATE asks SET state = 'withdrawn', ended_at = asked_at WHERE run_id = '{asking}'",
    "I50b": "UPDATE asks SET quorum = 0 WHERE run_id = '{asking}'",
    "I44": "UPDATE runs SET namespace = 'acme' WHERE id = '{ended}'",
}
"""A change that breaks the invariant, for each invariant."""


async def healthy(store: Store) -> dict[str, str]:
    """Make a run for each kind of situation."""
    run = await begin(store, running_call(1), call(2), timer(3, 1.0), wait(4), child(5))
    kid = await start(store)
    await store.operators.send_signal(NewSignal(run, "paid", "k", b"1"))
    delivered = await begin(store, running_call(1), running_call(2), wait(3))
    await store.batches.commit(A, [Hop(delivered, 1, outcomes=[succeeded(1, 1, 1), succeeded(2, 1, 2)])])
    return {
        "run": run,
        "kid": kid,
        "delivered": delivered,
        "parked": await parked(store, wait(1)),
        "asking": await asks_people(store),
        "ended": await ended(store, call(1)),
        "pending": await start(store),
    }


async def adopt(store: Store, tamper: Tamper, runs: dict[str, str]) -> None:
    """Make the kid the child of the first run, as a hop would."""
    tamper(f"UPDATE runs SET parent_id = '{runs['run']}', parent_n = 5 WHERE id = '{runs['kid']}'")
    assert [one.id for one in await store.reads.children(runs["run"])] == [runs["kid"]]


async def test_a_healthy_store_breaks_nothing(store: Store, tamper: Tamper) -> None:
    """With runs in every kind of situation, no invariant is broken. Each has a text that says what it means."""
    await adopt(store, tamper, await healthy(store))
    facts = await store.reads.doctor()
    assert {name for name, _, _ in facts} >= DAMAGE.keys()
    assert all(meaning and rows == 0 for _, meaning, rows in facts)


@pytest.mark.parametrize("name", DAMAGE)
async def test_planted_damage_is_named(store: Store, tamper: Tamper, name: str) -> None:
    """A row broken behind the store's back is found under the invariant's name."""
    runs = await healthy(store)
    await adopt(store, tamper, runs)
    tamper(DAMAGE[name].format(**runs))
    assert name in await broken(store)


async def test_a_closed_run_is_healthy(store: Store) -> None:
    """A hop that closes a run and drops its live steps breaks no invariant."""
    run_id = await begin(store, running_call(1), timer(2, 1.0), wait(3))
    await store.batches.commit(
        A, [Hop(run_id, 1, outcomes=[succeeded(1, 1, 1)], dropped=[2, 3], close=closing())]
    )
    assert await broken(store) == set()


async def test_a_child_that_is_undone_is_healthy(store: Store, tamper: Tamper) -> None:
    """The step of its parent that waits for this is no step without a child, as long as the child knows of it."""
    parent = await begin(store, child(1))
    kid = await begin(store, child(1), run=new_run(parent_id=parent, parent_n=1))
    await store.batches.commit(A, [Hop(kid, 1, dropped=[1], close=closing(parent_id=parent, parent_n=1))])
    undo = msgspec.structs.replace(child(2), key=undo_key(child(1).key))
    wanted = ChildUndo(2, 1, codec.revoked_error(parent, 2, None))
    outcomes = [Outcome(parent, 1, StepState.SUCCEEDED, None, None, 0.0, None, 1)]
    await store.batches.commit(A, [Hop(parent, 1, outcomes=outcomes, issued=[undo], child_undos=[wanted])])
    assert await broken(store) == set()
    tamper(f"UPDATE runs SET error = NULL WHERE id = '{kid}'")
    assert await broken(store) == {"I18c"}
