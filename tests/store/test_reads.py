"""What anybody may read: filters, pages and counts."""

from typing import Any

import msgspec
import pytest

from holdfast.model import BreakerState, Ending, RunState
from holdfast.store.answers import Answer
from holdfast.store.operations import Hop, RetryStep
from holdfast.store.reads import RunFilter
from holdfast.store.store import Store
from holdfast.workflow.pages import PREFIX
from tests.store.made import (
    LONG_S,
    A,
    asked,
    asks_people,
    begin,
    call,
    child,
    closing,
    ended,
    new_run,
    number_lane,
    start,
    timer,
    wait,
)


async def test_the_stores_clock_goes_forward(store: Store) -> None:
    """A second look never returns an earlier time."""
    first = await store.now()
    assert await store.now() >= first > 1_700_000_000


async def test_what_is_not_there_is_none_or_empty(store: Store) -> None:
    """Reading an unknown run is no error."""
    assert await store.reads.run("no-such-run") is None
    for read in (
        store.reads.steps,
        store.reads.attempts,
        store.reads.signals,
        store.reads.children,
        store.reads.journal,
    ):
        assert await read("no-such-run") == []
    assert await store.reads.ended_runs([]) == []
    assert await store.reads.unknown_runs([]) == []
    assert await store.leader.leader() is None


async def test_ids_that_no_run_has_are_found(store: Store) -> None:
    """So a caller that waits for a run learns that there is none."""
    known = [await start(store), await ended(store)]
    assert sorted(await store.reads.unknown_runs([*known, "no-such-run", "nor-this"])) == [
        "no-such-run",
        "nor-this",
    ]
    assert await store.reads.unknown_runs(known) == []


async def test_runs_are_listed_newest_first_in_pages(store: Store) -> None:
    """The cursor goes on where the last page ended, without gaps and without repeats."""
    made = [await start(store) for _ in range(7)]
    seen: list[str] = []
    before = None
    while page := await store.reads.runs(RunFilter(limit=3, before=before)):
        seen += [run.id for run in page]
        before = (page[-1].created_at, page[-1].id)
    assert seen == made[::-1]


@pytest.mark.parametrize("prefix", [None, "run-"])
async def test_runs_are_listed_oldest_first_in_pages(store: Store, prefix: str | None) -> None:
    """The other way round, with the same cursor, in all namespaces together, and within a span of time."""
    made = [await start(store, new_run(f"run-{n}", namespace="a" if n % 2 else "b")) for n in range(7)]
    seen: list[str] = []
    where = RunFilter(limit=3, prefix=prefix, is_oldest_first=True)
    while page := await store.reads.runs(where):
        seen += [run.id for run in page]
        where.before = (page[-1].created_at, page[-1].id)
    assert seen == made
    at = {run.id: run.created_at for run in await store.reads.runs(RunFilter())}
    part = RunFilter(prefix=prefix, is_oldest_first=True, since=at[made[2]], until=at[made[5]])
    assert [run.id for run in await store.reads.runs(part)] == made[2:5]
    one = RunFilter(prefix=prefix, is_oldest_first=True, namespace="a", states=("pending",))
    assert [run.id for run in await store.reads.runs(one)] == made[1::2]


async def test_runs_are_filtered(store: Store) -> None:
    """The filters are the state, the workflow with or without its module, and tags. They can be combined."""
    a = await start(store, new_run(tags={"customer": "7", "region": "eu"}))
    b = await start(store, new_run(tags={"customer": "8"}, workflow="shop.refund"))
    c = await ended(store)

    async def found(**where: Any) -> list[str]:
        return [run.id for run in await store.reads.runs(RunFilter(**where))]

    assert await found(states=(RunState.PENDING,)) == [b, a]
    assert await found(states=(RunState.SUCCEEDED, RunState.FAILED)) == [c]
    assert await found(workflow="shop.refund") == await found(workflow="refund") == [b]
    assert await found(workflow="fund") == []
    assert await found(workflow="ref_nd") == await found(workflow="%") == []  # names, not patterns
    assert await found(tags={"customer": "7"}) == [a]
    assert await found(tags={"customer": "7", "region": "us"}) == []
    assert await found(states=(RunState.PENDING,), workflow="order", tags={"region": "eu"}) == [a]


async def test_runs_are_filtered_by_time_namespace_error_and_beginning(store: Store) -> None:
    """`since` belongs to the span and `until` does not. An error is meant by the name of its class, with or without its
    module. A beginning of an id is text and no pattern. Pages go on within all of them."""
    a = await start(store, new_run("order-1"))
    b = await start(store, new_run("order-2", namespace="other"))
    c, broken = await begin(store), await begin(store)
    for run_id, error in ((c, '{"type":"shop.CardDeclined","message":"no"}'), (broken, "no JSON")):
        hop = Hop(run_id, 1, close=closing(RunState.FAILED, error=error))
        assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    d = await start(store, new_run("order_3"))
    at = {run.id: run.created_at for run in await store.reads.runs(RunFilter())}

    async def found(**where: Any) -> list[str]:
        return [run.id for run in await store.reads.runs(RunFilter(**where))]

    assert await found(since=at[c]) == [d, broken, c]
    assert await found(until=at[c]) == [b, a]
    assert await found(since=at[b], until=at[c]) == [b]
    assert await found(until=at[c], before=(at[b], b)) == await found(before=(at[b], b)) == [a]
    assert await found(namespace="other") == [b]
    assert await found(error="CardDeclined") == await found(error="shop.CardDeclined") == [c]
    assert await found(error="Declined") == await found(error="%") == []
    assert await found(prefix="order-") == [b, a]
    assert await found(prefix="order") == [d, b, a]
    assert await found(prefix="order-", limit=1) == [b]
    assert await found(prefix="order-", limit=1, before=(at[b], b)) == [a]
    assert await found(prefix="order", namespace="default", since=at[b]) == [d]
    assert await found(prefix="rder") == await found(prefix="order%") == []


async def test_runs_are_filtered_by_what_they_wait_for(store: Store) -> None:
    """Open runs that are to be tried again, that are late, or that wait for something: all of what is asked for, in lists, in
    counts and for acts."""
    lane = await number_lane(store, "shop.charge", (), None, "stripe")
    tried = await begin(store, call(1, lane=lane), run=new_run("tried"))
    (claimed,) = await store.agents.claim_steps(A, [lane], 1)
    again = RetryStep(tried, 1, claimed.fence, LONG_S, Ending.FAILED, '{"type": "x"}')
    assert await store.batches.commit(A, [again]) == [Answer.ACCEPTED]
    await begin(store, call(1), run=new_run("ready"))
    await begin(store, timer(1, 1e12), run=new_run("sleeps"))
    await begin(store, wait(1), timer(2, 1e12), run=new_run("waits"))
    await asks_people(store, asked(), run=new_run("asks"))
    for name in ("promised", "over"):
        await start(store, new_run(name, due_at=1.0))
    await start(store, new_run("later", due_at=await store.now() + LONG_S))
    await store.operators.cancel_run("over", "ann", "")

    async def found(*traits: str, **more: Any) -> set[str]:
        where = RunFilter(traits=traits, **more)
        listed = {run.id for run in await store.reads.runs(where)}
        oldest = msgspec.structs.replace(where, is_oldest_first=True)
        assert {run.id for run in await store.reads.runs(oldest)} == listed
        assert {run.id for run in await store.acts.meant_runs(where)} == listed
        assert sum((await store.overview.count_meant(where)).values()) == len(listed)
        return listed

    assert await found("retrying") == await found("retrying", prefix="t") == {"tried"}
    assert await found("late") == {"promised"}
    assert await found("waiting-for-agent") == {"ready"}
    assert await found("waiting-for-signal") == {"waits"}
    assert await found("waiting-for-timer") == {"sleeps", "waits"}
    assert await found("waiting-for-timer", "waiting-for-signal") == {"waits"}
    assert await found("waiting-for-ask") == {"asks"}
    assert await found("waiting-for-child") == await found("late", "retrying") == set()
    assert await found("waiting-for-breaker") == set()
    await store.gates.force_breaker("stripe", BreakerState.OPEN, "ann", "")
    assert await found("waiting-for-breaker") == {"tried", "ready"}


async def test_runs_are_counted_by_state(store: Store) -> None:
    """States without runs are left out."""
    await start(store)
    await start(store)
    await ended(store)
    assert await store.reads.runs_by_state() == {"pending": 2, "succeeded": 1}


async def test_steps_are_read_in_pages(store: Store) -> None:
    """They come in the order in which they were issued, beginning after a number, and at most `limit` of them."""
    run_id = await begin(store, *(call(n) for n in range(1, 8)))
    assert [one.n for one in await store.reads.steps(run_id, limit=3)] == [1, 2, 3]
    assert [one.n for one in await store.reads.steps(run_id, after=5)] == [6, 7]


@pytest.mark.parametrize("value", [b"", b"\x00\xff", "ü€😀".encode(), b"x" * 100_000])
async def test_payloads_come_back_as_they_were(store: Store, value: bytes) -> None:
    """The store does not change the bytes."""
    run_id = await begin(store, call(1, input=value), run=new_run(input=value))
    run = await store.reads.run(run_id)
    assert run is not None
    assert run.input == (await store.reads.steps(run_id))[0].input == value


async def test_the_journal_is_newest_first_and_bounded(store: Store) -> None:
    """That is so for one run and for all."""
    one, two = await begin(store), await begin(store)
    await store.operators.hold(one, "ann", "first")
    await store.operators.hold(two, "bob", "second")
    await store.operators.release(one, "cay", "third")
    assert [entry.note for entry in await store.reads.journal(None)] == ["third", "second", "first"]
    assert [entry.note for entry in await store.reads.journal(None, 1)] == ["third"]
    assert [(entry.actor, entry.run_id) for entry in await store.reads.journal(two)] == [("bob", two)]


async def test_pages_of_maps_can_be_left_out(store: Store) -> None:
    """A page that waits for a person is listed all the same. A run that only has such an input is none."""
    parent = await begin(store, child(1), child(2))
    for n, name in enumerate(("page-1", "page-2"), 1):
        run = msgspec.structs.replace(new_run(name, parent_id=parent, parent_n=n), input=PREFIX + b"{}}")
        await begin(store, run=run)
    await begin(store, run=msgspec.structs.replace(new_run("no-page"), input=PREFIX + b"{}}"))
    await store.operators.hold("page-2", "ann", "")

    async def listed(**where: Any) -> set[str]:
        return {run.id for run in await store.reads.runs(RunFilter(**where))}

    assert await listed() == {parent, "page-1", "page-2", "no-page"}
    assert await listed(has_pages=False) == {parent, "page-2", "no-page"}
    assert await listed(has_pages=False, prefix="page-") == {"page-2"}
    assert await listed(has_pages=True, prefix="page-") == {"page-1", "page-2"}


async def test_steps_with_a_child_are_not_those_that_joined_a_run(store: Store) -> None:
    """Only the numbers are read: a run may have thousands of children."""
    parent = await begin(store, child(1), child(2), child(3))
    for n in (1, 3):
        await begin(store, run=new_run(parent_id=parent, parent_n=n))
    assert await store.schedulers.child_steps(parent) == {1, 3}
