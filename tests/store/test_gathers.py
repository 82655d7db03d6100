"""One run takes several starts: each is taken once, whoever starts them, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from holdfast import codec
from holdfast.model import Gathering, NewRun, RunRow, RunState
from holdfast.store.answers import Answer
from holdfast.store.operations import Start
from holdfast.store.store import Store
from tests.store.made import LONG_S, SERVED, A, ids, new_run

DEBOUNCED = Gathering("shop.order@1:doc:1", LONG_S, LONG_S, 2 * LONG_S, 0, "")
BATCH = Gathering("shop.order@1:site:a", LONG_S, LONG_S, 0.0, 4, "pages")


def debounced(value: Any, gather: Gathering = DEBOUNCED, **more: Any) -> NewRun:
    raw = json.dumps({"value": value}).encode()
    return new_run(input=raw, digest=codec.digest(raw), gather=gather, **more)


def batched(*pages: Any, gather: Gathering = BATCH, **more: Any) -> NewRun:
    raw = json.dumps({"site": "a", "pages": pages}, separators=(",", ":")).encode()
    return new_run(input=raw, digest=codec.digest(raw), gather=gather, **more)


async def run_row(store: Store, run_id: str) -> RunRow:
    row = await store.reads.run(run_id)
    assert row is not None
    return row


async def test_the_newest_start_counts(store: Store) -> None:
    """The run has the first start's id and the newest one's input. It waits for the quiet time anew, and its deadline with
    it."""
    first, second = debounced(1, timeout_s=60.0), debounced(2, timeout_s=60.0, tags={"by": "ann"})
    assert await store.gathers.take(first) == (Answer.ACCEPTED, first.id)
    before = await run_row(store, first.id)
    assert await store.gathers.take(second) == (Answer.ACCEPTED, first.id)
    row = await run_row(store, first.id)
    assert (row.state, row.input, row.digest) == (RunState.PENDING, second.input, second.digest)
    assert row.tags == '{"by": "ann"}'
    assert before.begin_at is not None
    assert row.begin_at is not None
    assert row.begin_at > before.begin_at
    assert row.deadline == pytest.approx(row.begin_at + 60, abs=0.01)
    assert await store.reads.run(second.id) is None
    assert await store.schedulers.claim_runs(A, SERVED, 10) == []


async def test_a_debounced_run_begins_in_any_case(store: Store) -> None:
    """`at_most` after its first start, however many come."""
    gather = Gathering("k", LONG_S, LONG_S, 1.5 * LONG_S, 0, "")
    first = debounced(1, gather)
    await store.gathers.take(first)
    late = Gathering("k", LONG_S, 2 * LONG_S, 1.5 * LONG_S, 0, "")
    await store.gathers.take(debounced(2, late))
    row = await run_row(store, first.id)
    assert row.begin_at == pytest.approx(row.created_at + 1.5 * LONG_S, abs=0.01)


async def test_once_it_may_begin_the_next_start_makes_another_run(store: Store) -> None:
    """A run that was admitted, cancelled or held is as it is. The next start makes a new one."""
    due = Gathering("k", 0.001, 0.001, LONG_S, 0, "")
    for leave in ("admit", "cancel", "hold"):
        first, second = debounced(1, due), debounced(2, due)
        assert await store.gathers.take(first) == (Answer.ACCEPTED, first.id)
        if leave == "admit":
            await asyncio.sleep(0.01)
            assert await store.schedulers.admit_runs(10) == 1
        elif leave == "cancel":
            await store.operators.cancel_run(first.id, "ann", "")
        else:
            await store.operators.hold(first.id, "ann", "")
        assert await store.gathers.take(second) == (Answer.ACCEPTED, second.id)
        assert (await run_row(store, first.id)).input == first.input
        await store.operators.cancel_run(second.id, "ann", "")


@pytest.mark.parametrize("make", [debounced, batched])
async def test_the_same_start_again_is_taken_once(store: Store, make: Any) -> None:
    """Whether it made the run or joined it, before and after the run began. Its id with another input is refused, and
    changes nothing."""
    first, second = make(1), make(2)
    await store.gathers.take(first)
    await store.gathers.take(second)
    for _ in range(2):
        assert await store.gathers.take(first) == (Answer.DUPLICATE, first.id)
        assert await store.gathers.take(second) == (Answer.DUPLICATE, first.id)
        for known in (first, second):
            other = make(9, run_id=known.id)
            assert (await store.gathers.take(other)).answer is Answer.FENCED
        await store.operators.cancel_run(first.id, "ann", "")
    third = make(3)
    assert await store.gathers.take(third) == (Answer.ACCEPTED, third.id)


async def test_an_id_that_another_run_has_is_refused(store: Store) -> None:
    """Also if that run was not gathered. The same workflow and input is the same run."""
    plain = new_run(input=b'{"value": 1}', digest=codec.digest(b'{"value": 1}'))
    await store.batches.commit(A, [Start(plain)])
    assert await store.gathers.take(debounced(1, run_id=plain.id)) == (Answer.DUPLICATE, plain.id)
    assert (await store.gathers.take(debounced(2, run_id=plain.id))).answer is Answer.FENCED
    fresh = debounced(3)
    assert await store.gathers.take(fresh) == (Answer.ACCEPTED, fresh.id)


async def test_a_batch_begins_with_all_its_items(store: Store) -> None:
    """In the order of the starts, when it has enough of them. The next start begins another one."""
    starts = [batched(1), batched(2, 3), batched(4, 5), batched(6)]
    found = [await store.gathers.take(one) for one in starts]
    assert [one.run_id for one in found] == [starts[0].id] * 3 + [starts[3].id]
    (claimed,) = await store.schedulers.claim_runs(A, SERVED, 10)
    assert json.loads(claimed.run.input) == {"site": "a", "pages": [1, 2, 3, 4, 5]}
    assert claimed.run.digest == codec.digest(claimed.run.input)
    assert claimed.run.input == batched(1, 2, 3, 4, 5).input


async def test_a_batch_begins_when_its_time_has_come(store: Store) -> None:
    """With what it has by then."""
    gather = Gathering("k", 0.001, 0.001, 0.0, 100, "pages")
    first = batched("a", gather=gather)
    await store.gathers.take(first)
    await store.gathers.take(batched("b", gather=gather))
    await asyncio.sleep(0.01)
    assert await store.schedulers.admit_runs(10) == 1
    (claimed,) = await store.schedulers.claim_runs(A, SERVED, 10)
    assert (claimed.run.id, json.loads(claimed.run.input)["pages"]) == (first.id, ["a", "b"])


async def test_starts_at_the_same_time_are_each_taken_once(store: Store, other: Store) -> None:
    """Two processes start for one key while a third lets runs begin: every item is in exactly one run."""
    gather = Gathering("k", 0.001, 0.001, 0.0, 7, "pages")
    everything = [batched(n, gather=gather) for n in range(60)]

    async def insist(through: Store, runs: list[NewRun]) -> None:
        for run in runs:
            taken = await through.gathers.take(run)
            assert taken.answer is Answer.ACCEPTED
            assert await through.gathers.take(run) == (Answer.DUPLICATE, taken.run_id)

    async def admit() -> None:
        for _ in range(30):
            await store.schedulers.admit_runs(2)
            await asyncio.sleep(0)

    await asyncio.gather(insist(store, everything[:30]), insist(other, everything[30:]), admit())
    await asyncio.sleep(0.01)
    while await store.schedulers.admit_runs(100):
        pass
    items: list[int] = []
    while claimed := await store.schedulers.claim_runs(A, SERVED, 100):
        assert len(ids(claimed)) == len(set(ids(claimed)))
        for one in claimed:
            items += json.loads(one.run.input)["pages"]
    assert sorted(items) == list(range(60))


async def test_a_batch_never_has_more_than_an_input_may_have(store: Store) -> None:
    """A start with which it would have too much begins another one, and the first begins at once."""
    much = "x" * 600_000
    gather = Gathering("k", LONG_S, LONG_S, 0.0, 100, "pages")
    first, second, third = (batched(much, gather=gather) for _ in range(3))
    assert await store.gathers.take(first) == (Answer.ACCEPTED, first.id)
    limit = store.database.config.payload_max_bytes
    took = [first.id, *[(await store.gathers.take(one)).run_id for one in (second, third)]]
    assert len(set(took)) > 1 or 3 * len(first.input) <= limit
    for run_id in set(took):
        assert len((await run_row(store, run_id)).input) <= limit


async def test_what_was_gathered_goes_with_its_run(store: Store) -> None:
    """Pruning the run removes it all, and its key is free."""
    first, second = batched(1), batched(2)
    for one in (first, second):
        await store.gathers.take(one)
    await store.operators.cancel_run(first.id, "ann", "")
    pruned = await store.retention.prune(
        None, actor="ann", state="cancelled", before=1e11, after=(0.0, ""), runs_max=10, rows_max=100
    )
    assert pruned.runs == 1
    assert pruned.rows >= 4
    assert await store.gathers.take(second) == (Answer.ACCEPTED, second.id)
