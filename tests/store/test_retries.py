"""A retry goes on from where another run ended: what is copied, what belongs to it from then on, and that there is only
one."""

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.errors import WrongState
from holdfast.model import Inherited, NewSignal, Outcome, RunState, StepState
from holdfast.store.answers import Answer
from holdfast.store.operations import Hop
from holdfast.store.store import Store
from tests.store.made import (
    ENVIRONMENT,
    SERVED,
    A,
    begin,
    broken,
    call,
    child,
    closing,
    delivered,
    new_id,
    new_run,
    running_call,
    start,
    step,
    succeeded,
    timer,
)


def failed(n: int, fence: int, seq: int) -> Outcome:
    return Outcome("", n, StepState.FAILED, None, json.dumps({"type": "x"}), ENVIRONMENT.now(), fence, seq)


def why(**more: Any) -> str:
    """Return the error of a run, as its scheduler records it."""
    return json.dumps({"type": "builtins.ValueError", "message": "no"} | more)


async def history(store: Store, **more: Any) -> str:
    """Make a run that was ended by its fourth step. One step was delivered, one failure was handled, one signal was
    delivered and one was not, one running step was dropped, and the timer of the deadline fired."""
    run = new_run(priority=3, tags={"a": "b"})
    steps = [running_call(1), running_call(2), running_call(3), running_call(4), timer(5, 1.0, "$deadline")]
    run_id = await begin(store, *steps, run=run)
    for key in ("heard", "unheard"):
        await store.operators.send_signal(NewSignal(run_id, "paid", key, b"1"))
    signal = (await store.schedulers.undelivered(A, 10)).signals[0]
    hop = Hop(
        run_id,
        1,
        outcomes=[succeeded(1, 1, 1, b"1"), failed(2, 1, 3), failed(4, 1, 4)],
        signals=[(signal.id, 2)],
        dropped=[3, 5],
        published='{"a": 1}',
        kept_n=3,
        close=closing(RunState.FAILED, error=why(seq=4, steps=[4], **more)),
    )
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    return run_id


async def test_a_retry_keeps_what_was_recorded(store: Store) -> None:
    """It keeps all that was delivered, except for the step that ended the run. A step that ran and is not kept has the
    same key again."""
    run_id = await history(store)
    again = await store.operators.retry_run(run_id, "ann")
    assert again == f"{run_id}~2"
    (claimed,) = await store.schedulers.claim_runs(A, SERVED, 10)
    old, new = await store.reads.run(run_id), claimed.run
    assert old is not None
    assert (new.id, new.retry_of, new.priority, new.tags, new.published) == (
        again,
        run_id,
        3,
        old.tags,
        old.published,
    )
    assert (new.input, new.digest, new.output, new.error, new.kept_n) == (
        old.input,
        old.digest,
        None,
        None,
        2,
    )
    assert new.started_at == old.started_at, "its clock goes on"
    assert [(one.n, one.state, one.delivered_seq) for one in claimed.steps] == [
        (1, StepState.SUCCEEDED, 1),
        (2, StepState.FAILED, 3),
    ]
    assert [one.effect_key for one in claimed.steps] == [f"{run_id}::charge#1", f"{run_id}::charge#2"]
    assert [(one.key, one.delivered_seq) for one in claimed.signals] == [("heard", 2), ("unheard", None)]
    assert claimed.inherited == await store.reads.inherited(again)
    assert claimed.inherited == [
        Inherited("", run_id),
        Inherited("charge#3", f"{run_id}::charge#3"),
        Inherited("charge#4", f"{run_id}::charge#4"),
    ]
    assert await broken(store) == set()


async def test_what_was_undone_is_not_kept(store: Store) -> None:
    """Neither its outcome nor its key is kept."""
    again = await store.operators.retry_run(await history(store, undone=[1, 3]), "ann")
    assert [one.n for one in await store.reads.steps(again)] == [2]
    assert [one.key for one in await store.reads.inherited(again)] == ["", "charge#4"]


async def test_a_retry_is_one_run(store: Store, other: Store) -> None:
    """That is so however often and by however many callers it is asked for. Of a chain, only the newest run can be
    retried."""
    run_id = await history(store)
    retries = await asyncio.gather(*(door.operators.retry_run(run_id, "ann") for door in (store, other) * 3))
    assert set(retries) == {f"{run_id}~2"}
    assert len([one for one in await store.reads.journal(run_id) if one.verb == "retry"]) == 1
    (claimed,) = await store.schedulers.claim_runs(A, SERVED, 10)
    close = closing(RunState.FAILED, error=why(seq=3))
    await store.batches.commit(A, [Hop(claimed.run.id, claimed.run.fence, close=close)])
    assert await store.operators.retry_run(run_id, "ann") == retries[0]
    third = await store.operators.retry_run(retries[0], "ann")
    assert third == f"{run_id}~3"
    with pytest.raises(WrongState, match=third):
        await store.operators.retry_run(run_id, "ann")


async def test_an_id_that_is_taken_is_passed_over(store: Store) -> None:
    run_id = await history(store)
    await start(store, new_run(f"{run_id}~2"))
    assert await store.operators.retry_run(run_id, "ann") == f"{run_id}~3"


async def test_only_what_ended_badly_is_retried(store: Store) -> None:
    """An open run still goes on, and a run that succeeded has nothing to retry."""
    run_id = await begin(store, running_call(1))
    with pytest.raises(WrongState, match="only a run that has ended"):
        await store.operators.retry_run(run_id, "ann")
    await store.batches.commit(A, [Hop(run_id, 1, dropped=[1], close=closing())])
    with pytest.raises(WrongState, match="nothing to retry"):
        await store.operators.retry_run(run_id, "ann")


async def family(store: Store, *ends: RunState) -> tuple[str, list[str]]:
    """Make a failed run with one child for each of these states, each of which was delivered."""
    parent = await begin(store, *(child(n) for n, _ in enumerate(ends, 1)))
    kids = [new_run(parent_id=parent, parent_n=n) for n, _ in enumerate(ends, 1)]
    await store.batches.commit(A, [Hop(parent, 1, children=kids)])
    for kid, end in zip(kids, ends, strict=True):
        claimed = await store.schedulers.claim_run(A, kid.id)
        assert claimed is not None
        error = None if end is RunState.SUCCEEDED else why(seq=0)
        close = closing(end, output=b"7", error=error, parent_id=parent, parent_n=kid.parent_n)
        await store.batches.commit(A, [Hop(kid.id, claimed.run.fence, close=close)])
    heard = [delivered(n, n) for n, _ in enumerate(ends, 1)]
    ended = [n for n, end in enumerate(ends, 1) if end is not RunState.SUCCEEDED]
    close = closing(RunState.FAILED, error=why(seq=len(ends), steps=ended))
    assert await store.batches.commit(A, [Hop(parent, 1, outcomes=heard, close=close)]) == [Answer.ACCEPTED]
    return parent, [kid.id for kid in kids]


async def test_children_that_succeeded_are_taken_over(store: Store) -> None:
    """They belong to the new run. The others stay where they are, and a child of the new run goes on from them when the
    code asks for it."""
    parent, (good, bad) = await family(store, RunState.SUCCEEDED, RunState.FAILED)
    again = await store.operators.retry_run(parent, "ann")
    assert [one.id for one in await store.reads.children(again)] == [good]
    assert [one.id for one in await store.reads.children(parent)] == [bad]
    assert await store.reads.inherited(again) == [Inherited("", parent), Inherited("child#2", child=bad)]
    claimed = await store.schedulers.claim_run(A, again)
    assert claimed is not None
    wanted = new_run(f"{again}/child#2", parent_id=again, parent_n=2, retry_of=bad)
    hop = Hop(again, claimed.run.fence, issued=[child(2)], children=[wanted])
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    found = {one.id: one.retry_of for one in await store.reads.children(again)}
    assert found == {good: None, wanted.id: bad}
    assert await broken(store) == set()


async def test_a_child_whose_success_was_not_delivered_is_taken_over(store: Store) -> None:
    """Nothing is started. The step that asks for the child ends with its outcome."""
    parent, (good,) = await family(store, RunState.SUCCEEDED)
    other = await begin(store, child(1))
    wanted = new_run(new_id(), parent_id=other, parent_n=1, retry_of=good)
    await store.batches.commit(A, [Hop(other, 1, children=[wanted])])
    waiting = await step(store, other)
    assert (waiting.state, waiting.output, waiting.delivered_seq) == (StepState.SUCCEEDED, b"7", None)
    assert [one.id for one in await store.reads.children(other)] == [good]
    assert await store.reads.children(parent) == []


async def test_a_child_is_retried_with_its_parent(store: Store) -> None:
    """It is not retried by itself. And a run is not retried while a run below it is open."""
    parent, (bad,) = await family(store, RunState.FAILED)
    with pytest.raises(WrongState, match=f"retry {parent}"):
        await store.operators.retry_run(bad, "ann")
    live = await begin(store, child(1))
    kid = new_run(parent_id=live, parent_n=1)
    await store.batches.commit(A, [Hop(live, 1, children=[kid])])
    await store.batches.commit(
        A, [Hop(live, 1, dropped=[1], close=closing(RunState.FAILED, error=why(seq=0)))]
    )
    with pytest.raises(WrongState, match=kid.id):
        await store.operators.retry_run(live, "ann")


async def test_what_a_live_run_may_go_on_from_is_not_pruned(store: Store) -> None:
    """It is removed when the run that may go on from it has ended."""
    parent, (bad,) = await family(store, RunState.FAILED)
    again = await store.operators.retry_run(parent, "ann")

    async def prune() -> int:
        later = ENVIRONMENT.now() + 60
        done = await store.retention.prune(
            None, actor="t", state="failed", before=later, after=(0.0, ""), runs_max=9, rows_max=99
        )
        return done.runs

    assert await prune() == 0
    await store.operators.cancel_run(again, "ann", "")
    assert await prune() == 1
    assert await store.reads.run(bad) is None
    assert await broken(store) == set()


async def test_a_step_of_a_retry_is_claimed_with_its_key(store: Store) -> None:
    """The key is that of the earlier run, because an attempt there may have had its effect."""
    run_id = await begin(store)
    hop = Hop(run_id, 1, issued=[running_call(1), call(2)], effects=[(2, "before::charge#2")])
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    (claimed,) = await store.agents.claim_steps(A, [1], 10)
    assert claimed.effect == "before::charge#2"
    assert (await step(store, run_id, 1)).effect is None


async def test_a_result_that_was_set_gets_its_place_where_the_code_asks_for_it(store: Store) -> None:
    """The row of the step is from another run. Only its place changes."""
    run_id = await begin(store, call(1))
    before = await step(store, run_id, 1)
    assert await store.batches.commit(A, [Hop(run_id, 1, placed=[(1, 7)])]) == [Answer.ACCEPTED]
    assert await step(store, run_id, 1) == replace(before, after_seq=7)
