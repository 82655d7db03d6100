"""Callbacks in the store: one answer ends the step under its fence, or its time does, or the run that gives it up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import codec
from holdfast.errors import Gone, UnknownCallback
from holdfast.model import Ending, StepRow, StepState
from holdfast.store import open_store
from holdfast.store.answers import Answer
from holdfast.store.callbacks import CallbackFilter, GivenResult
from holdfast.store.operations import Hop
from holdfast.store.store import Store
from tests.store.made import (
    ENVIRONMENT,
    LONG_S,
    A,
    ask_step,
    begin,
    callback_steps,
    calls_back,
    new_run,
    report,
)


def given(output: bytes | None = b"7", error: str | None = None) -> GivenResult:
    return GivenResult(output, error, "other", "")


async def callback(store: Store, run_id: str) -> StepRow:
    return (await store.reads.steps(run_id))[1]


async def over(store: Store) -> str:
    """Return a run that waits for a callback whose time is over."""
    run = await calls_back(store, expires_s=0.001)
    until = (await callback(store, run)).complete_by
    assert until is not None
    while await store.now() <= until:
        pass
    return run


async def test_the_first_answer_counts(store: Store) -> None:
    """The same again is the same, another one is too late, and nothing of the row changes by that."""
    run = await calls_back(store)
    assert await store.callbacks.answer(run, 2, given())
    row = await callback(store, run)
    assert (row.state, row.output, row.fence, row.delivered_seq) == (StepState.SUCCEEDED, b"7", 1, None)
    assert not await store.callbacks.answer(run, 2, given(b" 7 "))
    for other in (given(b"8"), given(None, codec.encode_error(ValueError("no")))):
        with pytest.raises(Gone):
            await store.callbacks.answer(run, 2, other)
    assert await callback(store, run) == row


async def test_only_callbacks_are_answered(store: Store) -> None:
    """A request is no callback, and a step that is not there is none."""
    run = await calls_back(store)
    for n in (1, 3):
        with pytest.raises(UnknownCallback):
            await store.callbacks.answer(run, n, given())
        with pytest.raises(UnknownCallback):
            await store.callbacks.extend(run, n)
    with pytest.raises(UnknownCallback):
        await store.callbacks.answer("nobody", 2, given())


async def test_an_error_ends_it_as_failed(store: Store) -> None:
    """And the same error again is the same."""
    run = await calls_back(store)
    error = codec.encode_error(ValueError("declined"))
    assert await store.callbacks.answer(run, 2, given(None, error))
    row = await callback(store, run)
    assert (row.state, row.error) == (StepState.FAILED, error)
    assert not await store.callbacks.answer(run, 2, given(None, error))


async def test_time_begins_once_and_only_while_it_waits(store: Store) -> None:
    """A callback without a time never ends by time. Where the time has begun, a second beginning changes nothing."""
    endless, timed = await calls_back(store), await calls_back(store, expires_s=LONG_S)
    assert (await callback(store, endless)).complete_by is None
    first = (await callback(store, timed)).complete_by
    assert first is not None
    assert await store.callbacks.next_callback() == pytest.approx(first)
    await store.batches.commit(A, [Hop(timed, 1, begun_waits=[2])])
    assert (await callback(store, timed)).complete_by == first
    await store.callbacks.answer(timed, 2, given())
    assert await store.callbacks.next_callback() is None


async def test_extending_moves_the_end_and_never_revives(store: Store) -> None:
    """What has ended, or whose time is over, stays so."""
    run = await calls_back(store, expires_s=LONG_S)
    before = (await callback(store, run)).complete_by
    until = await store.callbacks.extend(run, 2)
    assert until is not None
    assert before is not None
    assert until > before
    assert await store.callbacks.extend(await calls_back(store), 2) is None
    await store.callbacks.answer(run, 2, given())
    late = await over(store)
    for ended in (run, late):
        with pytest.raises(Gone):
            await store.callbacks.extend(ended, 2)


async def test_an_answer_after_the_time_is_refused_although_nobody_has_looked(store: Store) -> None:
    """The leader ends it later, once, and says that nobody knows what the other system did."""
    run, other = await over(store), await calls_back(store, expires_s=LONG_S)
    with pytest.raises(Gone, match="expired"):
        await store.callbacks.answer(run, 2, given())
    epoch = await store.leader.lead(A, 60.0)
    assert epoch is not None
    assert await store.callbacks.expire_callbacks(epoch, 10) == 1
    assert await store.callbacks.expire_callbacks(epoch, 10) == 0
    row = await callback(store, run)
    assert row.state is StepState.FAILED
    assert row.error is not None
    assert codec.ending_of(row.error) == Ending.TIMED_OUT
    assert codec.is_unsure(0, row.error)
    assert (await callback(store, other)).state is StepState.WAITING
    assert await store.callbacks.expire_callbacks(epoch - 1, 10) == 0


async def test_a_run_that_gives_it_up_makes_answers_late(store: Store) -> None:
    """In the same commit."""
    run = await calls_back(store, expires_s=LONG_S)
    await store.batches.commit(A, [Hop(run, 1, dropped=[2])])
    with pytest.raises(Gone, match="nobody waits"):
        await store.callbacks.answer(run, 2, given())
    assert await store.callbacks.next_callback() is None


async def test_of_many_answers_at_once_one_counts(store: Store, store_url: str) -> None:
    """Through two connections, and with a hop that gives it up: one of them ends the row."""
    other = open_store(store_url, ENVIRONMENT)
    await other.open()
    for number in range(5):
        run = await calls_back(store, run=new_run(f"race-{number}"))
        hop = Hop(run, 1, dropped=[2])

        async def answer(where: Store, value: int, run: str = run) -> object:
            return await where.callbacks.answer(run, 2, given(b"%d" % value))

        found = await asyncio.gather(
            *(answer(store if value % 2 else other, value) for value in range(6)),
            store.batches.commit(A, [hop]),
            return_exceptions=True,
        )
        taken = [value for value, one in enumerate(found[:6]) if one is True]
        row = await callback(store, run)
        if row.state is StepState.CANCELLED:
            assert taken == []
        else:
            assert [b"%d" % value for value in taken] == [row.output]
        assert all(one is True or isinstance(one, Gone) for one in found[:6])
    await other.close()


async def listed(store: Store, **where: Any) -> list[str]:
    """Return the runs of the callbacks that wait."""
    return [one.run_id for one in await store.callbacks.waiting_callbacks(CallbackFilter(**where))]


async def test_a_list_has_exactly_the_callbacks_that_wait(store: Store) -> None:
    """With a time and without one, the oldest first. Those that were answered, have expired or were given up are not in it,
    and neither is any other step that waits."""
    runs = {name: new_run(name) for name in ("endless", "timed", "answered", "expired", "dropped")}
    for name, run in runs.items():
        await calls_back(store, run=run, expires_s={"endless": None, "expired": 0.0}.get(name, LONG_S))
    await begin(store, ask_step())
    await store.callbacks.answer("answered", 2, given())
    epoch = await store.leader.lead(A, 60.0)
    assert epoch is not None
    assert await store.callbacks.expire_callbacks(epoch, 10) == 1
    await store.batches.commit(A, [Hop("dropped", 1, dropped=[2])])
    assert await listed(store) == ["endless", "timed"]
    assert await listed(store, namespace="default") == ["endless", "timed"]


async def test_a_list_says_since_when_and_until_when_a_callback_waits(store: Store) -> None:
    """It waits since its request was made. While nobody has made it, there is no such time."""
    request, waits = callback_steps(1, LONG_S)
    request.state, waits.attempts_max = StepState.RUNNING, 3
    run = await begin(store, request, waits)
    (before,) = await store.callbacks.waiting_callbacks(CallbackFilter())
    assert (before.request, before.requested_at, before.complete_by) == (StepState.RUNNING, None, None)
    assert await store.batches.commit(A, [report(run, 1, 1)]) == [Answer.ACCEPTED]
    assert await store.batches.commit(A, [Hop(run, 1, begun_waits=[2])]) == [Answer.ACCEPTED]
    asked, row = await store.reads.steps(run)
    (found,) = await store.callbacks.waiting_callbacks(CallbackFilter())
    assert (found.request, found.requested_at) == (StepState.SUCCEEDED, asked.finished_at)
    assert (found.complete_by, found.timeout_s, found.attempts_max) == (row.complete_by, LONG_S, 3)
    assert (found.run_id, found.n, found.key, found.name) == (run, 2, "pay-1", "shop.pay")
    assert (found.namespace, found.workflow, found.issued_at) == ("default", "shop.order", row.issued_at)


async def test_a_list_of_callbacks_stops_at_the_wall(store: Store) -> None:
    """A namespace has its own and no others, also if the id of a run of another one is bare, as those of old runs are."""
    await calls_back(store, run=new_run("ours"))
    await calls_back(store, run=new_run("acme//theirs", namespace="acme", workflow="acme//shop.order"))
    await calls_back(store, run=new_run("old", namespace="acme", workflow="acme//shop.order"))
    assert await listed(store, namespace="default") == ["ours"]
    assert await listed(store, namespace="acme") == ["acme//theirs"]
    assert await listed(store, namespace="nobody") == []
    assert await listed(store) == ["ours", "acme//theirs"]


async def test_pages_of_callbacks_neither_repeat_nor_leave_out_any(store: Store) -> None:
    """Also if many were issued in one commit, and so at one time, in one run or in several, in all namespaces."""
    expected = set()
    for number in range(4):
        space = "acme" if number % 2 else "default"
        name = f"{'acme//' if number % 2 else ''}run-{number}"
        steps = [one for n in range(1, 11, 2) for one in callback_steps(n)]
        await begin(store, *steps, run=new_run(name, namespace=space))
        expected |= {(name, n) for n in range(2, 11, 2)}
    for namespace, wanted in (
        (None, expected),
        ("acme", {one for one in expected if one[0].startswith("acme")}),
    ):
        where, seen = CallbackFilter(namespace=namespace, limit=3), list[tuple[str, int]]()
        while page := await store.callbacks.waiting_callbacks(where):
            assert len(page) <= 3
            seen += [(one.run_id, one.n) for one in page]
            where.after = page[-1].place
        assert len(seen) == len(wanted)
        assert set(seen) == wanted
    where, numbers = CallbackFilter(limit=2), list[int]()
    while page := await store.callbacks.waiting_callbacks_of("run-0", where):
        numbers += [one.n for one in page]
        where.after = page[-1].place
    assert numbers == [2, 4, 6, 8, 10]


async def test_callbacks_are_listed_by_workflow_and_step(store: Store) -> None:
    """By the whole name, or by the last part of it."""
    await calls_back(store, run=new_run("a"))
    await calls_back(store, run=new_run("b", workflow="shop.refund"))
    await calls_back(store, run=new_run("acme//c", namespace="acme", workflow="acme//shop.refund"))
    for name, found in (
        ("shop.refund", ["b"]),
        ("refund", ["b"]),
        ("fund", []),
        ("acme//shop.refund", []),
    ):
        assert await listed(store, namespace="default", workflow=name) == found
    assert await listed(store, namespace="acme", workflow="shop.refund") == ["acme//c"]
    for name, found in (("shop.pay", ["a", "b"]), ("pay", ["a", "b"]), ("ay", []), ("shop.charge", [])):
        assert await listed(store, namespace="default", step=name) == found
    where = CallbackFilter(step="charge")
    assert await store.callbacks.waiting_callbacks_of("a", where) == []
    assert await store.callbacks.waiting_callbacks_of("nobody", CallbackFilter()) == []


async def test_a_setting_holds_for_all(store: Store) -> None:
    assert await store.settings.setting("public_url") is None
    assert await store.settings.set_setting("public_url", "https://a.example") == 1
    assert await store.settings.set_setting("public_url", "https://a.example") == 0
    assert await store.settings.set_setting("public_url", "https://b.example") == 1
    assert await store.settings.setting("public_url") == "https://b.example"
