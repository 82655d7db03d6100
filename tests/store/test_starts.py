"""A run is started once, however often and by whomever."""

import asyncio

import pytest

from holdfast.errors import StoreUnsupported
from holdfast.model import RunState
from holdfast.store.answers import Answer
from holdfast.store.operations import Hop, Start
from holdfast.store.store import Store
from holdfast.store.transaction import transaction_of
from tests.store.made import SERVED, A, begin, call, new_run, start


async def test_a_start_makes_a_pending_run(store: Store) -> None:
    """A started run is pending, has no owner, and has what its caller passed."""
    run = new_run(priority=5, tags={"customer": "7"}, timeout_s=60.0, namespace="eu")
    assert await store.batches.commit(A, [Start(run)]) == [Answer.ACCEPTED]
    row = await store.reads.run(run.id)
    assert row is not None
    assert (row.state, row.owner, row.fence, row.priority) == (RunState.PENDING, None, 0, 5)
    assert (row.input, row.digest, row.namespace, row.generation) == (run.input, run.digest, "eu", 1)
    assert row.tags is not None
    assert '"customer"' in row.tags
    assert row.deadline == pytest.approx(row.created_at + 60, abs=0.01)
    assert (row.started_at, row.finished_at) == (None, None)


async def test_the_same_start_again_is_a_duplicate(store: Store) -> None:
    """A start whose answer got lost can be repeated, and there is still one run."""
    run = new_run()
    assert await store.batches.commit(A, [Start(run)]) == [Answer.ACCEPTED]
    assert await store.batches.commit(A, [Start(run)]) == [Answer.DUPLICATE]


@pytest.mark.parametrize("change", [{"workflow": "shop.refund"}, {"digest": b"another digest.."}])
async def test_the_same_id_for_something_else_is_refused(store: Store, change: dict[str, object]) -> None:
    """One id names one workflow and one input."""
    run = new_run()
    await start(store, run)
    assert await store.batches.commit(A, [Start(new_run(run.id, **change))]) == [Answer.FENCED]
    row = await store.reads.run(run.id)
    assert row is not None
    assert (row.workflow, row.digest) == (run.workflow, run.digest)


async def test_starts_never_fail_their_batch(store: Store) -> None:
    """Every start in a commit gets its own answer, even if the commit has one id twice."""
    old, new, twice = new_run(), new_run(), new_run()
    await start(store, old)
    batch = [Start(old), Start(new), Start(twice), Start(twice), Start(new_run(twice.id, digest=b"x" * 16))]
    assert await store.batches.commit(A, batch) == [
        Answer.DUPLICATE,
        Answer.ACCEPTED,
        Answer.ACCEPTED,
        Answer.DUPLICATE,
        Answer.FENCED,
    ]


async def test_one_start_tried_in_parallel_makes_one_run(store: Store, other: Store) -> None:
    """Two nodes keep starting one run at the same time: one start is accepted, the others are duplicates."""
    run = new_run()

    async def insist(through: Store) -> list[Answer]:
        return [(await through.batches.commit(A, [Start(run)]))[0] for _ in range(10)]

    answers = [answer for part in await asyncio.gather(insist(store), insist(other)) for answer in part]
    assert sorted(answers) == [Answer.ACCEPTED] + [Answer.DUPLICATE] * 19


async def test_a_begun_run_is_running_and_owned(store: Store) -> None:
    """A hop that begins a run makes it running, owned by the writer, with its first steps."""
    run = new_run()
    hop = Hop(run.id, 1, begin=run, begun_at=1000.0, deadline=2000.0, issued=[call()])
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    row = await store.reads.run(run.id)
    assert row is not None
    assert (row.state, row.owner, row.fence) == (RunState.RUNNING, A, 1)
    assert (row.created_at, row.started_at, row.deadline) == (1000.0, 1000.0, 2000.0)
    assert [one.n for one in await store.reads.steps(run.id)] == [1]


async def test_beginning_a_run_twice_is_a_duplicate(store: Store) -> None:
    """The second hop changes neither the run nor its steps."""
    run = new_run()
    await begin(store, call(), run=run)
    again = Hop(run.id, 1, begin=run, begun_at=1.0, issued=[call(2)])
    assert await store.batches.commit(A, [again]) == [Answer.DUPLICATE]
    assert [one.n for one in await store.reads.steps(run.id)] == [1]


async def test_a_started_run_can_be_claimed_by_its_id(store: Store) -> None:
    """The node that asked for a run may claim it at once, and then nobody else gets it."""
    run_id = await start(store)
    claimed = await store.schedulers.claim_run(A, run_id)
    assert claimed is not None
    assert (claimed.run.owner, claimed.run.state, claimed.run.fence) == (A, RunState.RUNNING, 1)
    assert claimed.run.started_at is not None
    assert await store.schedulers.claim_run("node-b", run_id) is None
    assert await store.schedulers.claim_runs("node-b", SERVED, 10) == []


async def test_an_unknown_run_cannot_be_claimed(store: Store) -> None:
    """A claim of a run that does not exist returns nothing."""
    assert await store.schedulers.claim_run(A, "no-such-run") is None


async def test_a_foreign_connection_is_refused(store: Store) -> None:
    """`start_within` raises an error that says what it needs."""
    with pytest.raises(StoreUnsupported):
        await store.batches.start_within(transaction_of(object()), new_run())
