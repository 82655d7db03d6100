"""What callers and operators may do to a run, in which states, and what the journal says about it."""

import json

import pytest

from holdfast.errors import UnknownRun, WrongState
from holdfast.model import CANCEL, NewSignal, RunState, StepState
from holdfast.store.answers import Answer
from holdfast.store.operations import BeginUndo, Hop, RetryStep
from holdfast.store.store import Store
from tests.store.made import (
    ENVIRONMENT,
    LONG_S,
    SERVED,
    A,
    B,
    begin,
    broken,
    call,
    child,
    closing,
    ended,
    ids,
    new_run,
    running_call,
    start,
    step,
    succeeded,
    timer,
)

UNKNOWN = "no-such-run"


async def verbs(store: Store, run_id: str) -> list[tuple[str, str, str]]:
    """Return the journalled acts on a run, oldest first."""
    return [(one.actor, one.verb, one.note) for one in reversed(await store.reads.journal(run_id))]


async def test_a_signal_is_accepted_once(store: Store) -> None:
    """The same key again is a duplicate; another key or name is another signal."""
    run_id = await start(store)
    signal = NewSignal(run_id, "paid", "k", b"1")
    assert await store.operators.send_signal(signal) is Answer.ACCEPTED
    assert await store.operators.send_signal(NewSignal(run_id, "paid", "k", b"2")) is Answer.DUPLICATE
    assert await store.operators.send_signal(NewSignal(run_id, "paid", "other", b"3")) is Answer.ACCEPTED
    assert await store.operators.send_signal(NewSignal(run_id, "sent", "k", b"4")) is Answer.ACCEPTED
    assert [one.payload for one in await store.reads.signals(run_id)] == [b"1", b"3", b"4"]


async def test_an_ended_run_takes_no_signals(store: Store) -> None:
    """A signal is refused then. But one that arrived in time is still a duplicate when it is sent again."""
    run_id = await begin(store)
    signal = NewSignal(run_id, "paid", "k", b"1")
    await store.operators.send_signal(signal)
    await store.batches.commit(A, [Hop(run_id, 1, close=closing())])
    assert await store.operators.send_signal(signal) is Answer.DUPLICATE
    assert await store.operators.send_signal(NewSignal(run_id, "paid", "late", b"1")) is Answer.FENCED


async def test_unknown_runs_are_named(store: Store) -> None:
    """Every request about a run that does not exist raises an error that says so."""
    for ask in (
        lambda: store.operators.send_signal(NewSignal(UNKNOWN, "paid", "k", b"1")),
        lambda: store.operators.cancel_run(UNKNOWN, "ann", ""),
        lambda: store.operators.hold(UNKNOWN, "ann", ""),
        lambda: store.operators.release(UNKNOWN, "ann", ""),
        lambda: store.operators.retry_now(UNKNOWN, "ann"),
        lambda: store.operators.retry_run(UNKNOWN, "ann"),
    ):
        with pytest.raises(UnknownRun, match=UNKNOWN):
            await ask()


async def test_a_pending_run_is_cancelled_at_once(store: Store) -> None:
    """It has done nothing, so there is nothing to undo."""
    run_id = await start(store)
    assert await store.operators.cancel_run(run_id, "ann", "not wanted") is RunState.CANCELLED
    run = await store.reads.run(run_id)
    assert run is not None
    assert (run.state, run.fence) == (RunState.CANCELLED, 1)
    assert run.finished_at is not None
    assert await store.schedulers.claim_runs(A, SERVED, 10) == []
    assert await verbs(store, run_id) == [("ann", "cancel", "not wanted")]


async def test_a_cancelled_pending_child_ends_its_parents_step(store: Store) -> None:
    """The parent's step fails with RunCancelled, and that wakes the parent."""
    parent = await begin(store, child(1))
    kid = new_run(parent_id=parent, parent_n=1)
    await store.batches.commit(A, [Hop(parent, 1, children=[kid], park=True)])
    await store.operators.cancel_run(kid.id, "ann", "")
    waiting = await step(store, parent)
    assert waiting.state is StepState.FAILED
    assert json.loads(waiting.error or "")["type"] == "holdfast.errors.RunCancelled"
    assert ids(await store.schedulers.claim_runs(B, SERVED, 10)) == [parent]


async def test_a_running_run_gets_the_cancel_signal(store: Store) -> None:
    """It cancels itself and undoes what it did. Two requests send one signal."""
    run_id = await begin(store, running_call(1))
    assert await store.operators.cancel_run(run_id, "ann", "stop") is RunState.RUNNING
    assert await store.operators.cancel_run(run_id, "ann", "stop") is RunState.RUNNING
    (signal,) = (await store.schedulers.undelivered(A, 10)).signals
    assert signal.name == CANCEL
    assert await verbs(store, run_id) == [("ann", "cancel", "stop")]


async def test_a_run_that_got_a_cancel_is_asked_again_if_the_caller_insists(store: Store) -> None:
    """A plain second request does nothing, because the code may be cleaning up. And while a request is not delivered
    yet, insisting adds no other one."""
    run_id = await begin(store, running_call(1))
    await store.operators.cancel_run(run_id, "ann", "stop", again=True)
    await store.operators.cancel_run(run_id, "ann", "stop", again=True)
    (first,) = (await store.schedulers.undelivered(A, 10)).signals
    assert await store.batches.commit(A, [Hop(run_id, 1, signals=[(first.id, 1)])]) == [Answer.ACCEPTED]
    await store.operators.cancel_run(run_id, "ann", "stop")
    assert (await store.schedulers.undelivered(A, 10)).signals == []
    for _ in range(2):
        await store.operators.cancel_run(run_id, "ann", "now", again=True)
    (second,) = (await store.schedulers.undelivered(A, 10)).signals
    assert (second.name, second.key) == (CANCEL, "cancel#2")
    assert await verbs(store, run_id) == [("ann", "cancel", "stop"), ("ann", "cancel", "now")]


async def test_cancelling_a_held_run_releases_it(store: Store) -> None:
    """A held run cannot cancel itself, so it is released."""
    run_id = await begin(store, running_call(1))
    await store.operators.hold(run_id, "ann", "")
    assert await store.operators.cancel_run(run_id, "ann", "stop") is not RunState.HELD
    (claimed,) = await store.schedulers.claim_runs(B, SERVED, 10)
    assert [one.name for one in claimed.signals] == [CANCEL]


async def test_a_released_run_with_a_history_is_not_cancelled_at_once(store: Store) -> None:
    """It waits for a scheduler like a new run, but it has done something that its own code must undo."""
    run_id = await begin(store, running_call(1), call(2))
    await store.batches.commit(A, [Hop(run_id, 1, outcomes=[succeeded(1, 1, 1)])])
    await store.operators.hold(run_id, "ann", "")
    await store.operators.release(run_id, "ann", "")
    assert await store.operators.cancel_run(run_id, "ann", "stop") is not RunState.CANCELLED
    (claimed,) = await store.schedulers.claim_runs(B, SERVED, 10)
    assert [one.name for one in claimed.signals] == [CANCEL]
    assert await broken(store) == set()


async def test_cancelling_what_has_ended_changes_nothing(store: Store) -> None:
    """The answer is the state in which it ended."""
    run_id = await ended(store)
    before = await store.reads.run(run_id)
    assert await store.operators.cancel_run(run_id, "ann", "") is RunState.SUCCEEDED
    assert await store.reads.run(run_id) == before


async def test_a_held_run_stands_still(store: Store) -> None:
    """Nobody owns it, writes of its former owner are refused, and outcomes wait. A second hold changes nothing."""
    run_id = await begin(store, running_call(1))
    assert await store.operators.hold(run_id, "ann", "look first") is RunState.HELD
    assert await store.operators.hold(run_id, "bob", "me too") is RunState.HELD
    run = await store.reads.run(run_id)
    assert run is not None
    assert (run.state, run.owner, run.fence, run.note) == (RunState.HELD, None, 2, "look first")
    assert await store.batches.commit(A, [Hop(run_id, 1, issued=[call(2)])]) == [Answer.FENCED]
    assert await store.schedulers.claim_runs(B, SERVED, 10) == []
    assert await store.schedulers.claim_run(B, run_id) is None
    assert await verbs(store, run_id) == [("ann", "hold", "look first")]


async def test_a_released_run_goes_on(store: Store) -> None:
    """A scheduler can claim it at once, with its history."""
    run_id = await begin(store, running_call(1))
    await store.operators.hold(run_id, "ann", "")
    state = await store.operators.release(run_id, "ann", "go on")
    run = await store.reads.run(run_id)
    assert run is not None
    assert (run.state, run.resume, run.note) == (state, None, None)
    (claimed,) = await store.schedulers.claim_runs(B, SERVED, 10)
    assert (claimed.run.id, [one.n for one in claimed.steps]) == (run_id, [1])
    assert [verb for _, verb, _ in await verbs(store, run_id)] == ["hold", "release"]


async def test_hold_and_release_refuse_the_wrong_state(store: Store) -> None:
    """A run that has ended cannot be held, and a run that is not held cannot be released."""
    over, running = await ended(store), await begin(store)
    with pytest.raises(WrongState, match="succeeded"):
        await store.operators.hold(over, "ann", "")
    with pytest.raises(WrongState, match="running"):
        await store.operators.release(running, "ann", "")


async def test_backing_off_can_be_cut_short(store: Store) -> None:
    """Steps that wait for their next attempt are ready now. Others are not changed."""
    run_id = await begin(store, running_call(1), running_call(2), timer(3, ENVIRONMENT.now() + LONG_S))
    await store.batches.commit(A, [RetryStep(run_id, 1, 1, LONG_S, "failed", None)])
    assert await store.agents.claim_steps(B, [1], 10) == []
    assert await store.operators.retry_now(run_id, "ann") == 1
    assert [one.n for one in await store.agents.claim_steps(B, [1], 10)] == [1]
    assert await store.operators.retry_now(run_id, "ann") == 0
    assert [verb for _, verb, _ in await verbs(store, run_id)] == ["retry"]


async def test_an_act_on_one_undo_names_its_step(store: Store) -> None:
    """The journal names it, too."""
    run_id = await begin(store, running_call(1))
    hop = Hop(run_id, 1, undo=BeginUndo("failed", "boom"))
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    await store.operators.steer_undo(run_id, "skip", 7, "tester", "by hand")
    (entry, *_) = await store.reads.journal(run_id)
    assert (entry.actor, entry.verb, entry.n, entry.note) == ("tester", "skip", 7, "by hand")
