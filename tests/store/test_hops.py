"""Hops: everything in a hop is written, or nothing."""

import json

import pytest

from holdfast import codec
from holdfast.errors import Conflict
from holdfast.model import NewSignal, Outcome, RunState, StepState
from holdfast.store.answers import Answer, PreconditionFailed
from holdfast.store.operations import Hop, Op
from holdfast.store.store import Store
from tests.store.made import (
    ENVIRONMENT,
    SERVED,
    A,
    B,
    begin,
    broken,
    call,
    child,
    closing,
    delivered,
    ids,
    new_id,
    new_run,
    parked,
    report,
    running_call,
    start,
    step,
    succeeded,
    timer,
    wait,
)


async def test_an_outcome_is_recorded_delivered_and_followed(store: Store) -> None:
    """This is the usual hop: a step ends and gets its place in the history, and the writing node's agent gets the next
    step."""
    run_id = await begin(store, running_call(1, timeout_s=30.0))
    at = ENVIRONMENT.now()
    outcome = Outcome("", 1, StepState.SUCCEEDED, b'"paid"', None, at, 1, 1)
    assert await store.batches.commit(A, [Hop(run_id, 1, outcomes=[outcome], issued=[running_call(2)])]) == [
        Answer.ACCEPTED
    ]
    first, second = await store.reads.steps(run_id)
    assert (first.state, first.output, first.delivered_seq, first.fence) == (
        StepState.SUCCEEDED,
        b'"paid"',
        1,
        2,
    )
    assert first.finished_at == pytest.approx(at, abs=0.001)
    assert first.agent == A
    assert (second.state, second.agent, second.attempt, second.fence) == (StepState.RUNNING, A, 1, 1)


async def test_issued_steps_are_leased_ready_or_waiting(store: Store) -> None:
    """A running step has its agent, attempt and deadline from the start; the others have none yet."""
    run_id = await begin(store, running_call(1, timeout_s=30.0), call(2, ready_at=5.0), wait(3))
    running, ready, waiting = await store.reads.steps(run_id)
    assert running.started_at is not None
    assert running.complete_by == pytest.approx(running.started_at + 30, abs=0.01)
    assert (ready.state, ready.attempt, ready.fence, ready.agent, ready.ready_at) == (
        StepState.READY,
        0,
        0,
        None,
        5.0,
    )
    assert (waiting.state, waiting.complete_by) == (StepState.WAITING, None)
    assert waiting.ready_at == pytest.approx(waiting.issued_at, abs=0.01)


@pytest.mark.parametrize(
    "hop",
    [
        Hop("", 0, issued=[call(2)]),
        Hop("", 7, issued=[call(2)]),
        Hop("", 0, outcomes=[succeeded(1, 1, 1)]),
        Hop("", 1, outcomes=[succeeded(1, 0, 1)], issued=[call(2)]),
        Hop("", 1, outcomes=[succeeded(9, 1, 1)], issued=[call(2)]),
        Hop("", 1, outcomes=[delivered(9, 1)], issued=[call(2)]),
        Hop("", 0, close=closing()),
        Hop("", 0, park=True),
    ],
)
async def test_a_hop_with_a_stale_fence_changes_nothing(store: Store, hop: Hop) -> None:
    """If the fence of the run or of a step is not the current one, the whole hop is refused."""
    hop.run_id = run_id = await begin(store, running_call(1))
    before = await store.reads.run(run_id), await store.reads.steps(run_id)
    assert await store.batches.commit(A, [hop]) == [Answer.FENCED]
    assert (await store.reads.run(run_id), await store.reads.steps(run_id)) == before


async def test_a_hop_of_an_unknown_run_is_fenced(store: Store) -> None:
    """There is no row with its fence."""
    assert await store.batches.commit(A, [Hop("no-such-run", 1, issued=[call()])]) == [Answer.FENCED]


async def test_one_bad_operation_undoes_the_batch_and_each_gets_its_answer(store: Store) -> None:
    """If a precondition of a batch fails, nothing is written. Written one at a time, each operation gets its own
    answer."""
    good, bad = await begin(store, running_call(1)), await begin(store, running_call(1))
    batch = [
        Hop(good, 1, outcomes=[succeeded(1, 1, 1)], issued=[call(2)]),
        Hop(bad, 9, outcomes=[succeeded(1, 1, 1)]),
    ]
    with pytest.raises(PreconditionFailed):
        await store.batches.commit(A, batch)
    assert (await step(store, good)).state is StepState.RUNNING
    assert [(await store.batches.commit(A, [op]))[0] for op in batch] == [Answer.ACCEPTED, Answer.FENCED]
    assert len(await store.reads.steps(good)) == 2


async def test_a_batch_of_many_kinds_is_one_commit(store: Store) -> None:
    """Hops, reports and starts of many runs share a transaction."""
    runs = [await begin(store, running_call(1)) for _ in range(20)]
    ops = [
        Hop(run_id, 1, outcomes=[succeeded(1, 1, 1)], issued=[call(2)]) if n % 2 else report(run_id, 1, 1)
        for n, run_id in enumerate(runs)
    ]
    assert await store.batches.commit(A, ops) == [Answer.ACCEPTED] * 20
    assert [(await step(store, run_id)).delivered_seq for run_id in runs] == [None, 1] * 10


async def test_an_outcome_recorded_by_others_is_delivered_once(store: Store) -> None:
    """A delivery gives an ended step its place in the history. A second delivery is refused."""
    run_id = await begin(store, running_call(1))
    await store.batches.commit(A, [report(run_id, 1, 1)])
    assert await store.batches.commit(A, [Hop(run_id, 1, outcomes=[delivered(1, 1)])]) == [Answer.ACCEPTED]
    assert (await step(store, run_id)).delivered_seq == 1
    assert await store.batches.commit(A, [Hop(run_id, 1, outcomes=[delivered(1, 2)])]) == [Answer.FENCED]
    assert (await step(store, run_id)).delivered_seq == 1


async def test_a_signal_ends_the_wait_for_it(store: Store) -> None:
    """In one hop, the signal gets its place in the history, and the waiting step gets its output."""
    run_id = await begin(store, wait(1))
    await store.operators.send_signal(NewSignal(run_id, "paid", "k1", b"42"))
    (signal,) = (await store.schedulers.undelivered(A, 10)).signals
    at = ENVIRONMENT.now()
    hop = Hop(run_id, 1, signals=[(signal.id, 1)], ended=[(1, 1, b"42", at)])
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    ended = await step(store, run_id)
    assert (ended.state, ended.output, ended.delivered_seq) == (StepState.SUCCEEDED, b"42", 1)
    assert [one.delivered_seq for one in await store.reads.signals(run_id)] == [1]
    assert (await store.schedulers.undelivered(A, 10)).signals == []


async def test_a_signal_that_is_set_aside_is_delivered_once_and_noted(store: Store) -> None:
    """It is set aside with the reason, in the same hop or in a later one. A signal cannot be set aside twice, or before
    it is delivered."""
    run_id = await begin(store, wait(1))
    for key in ("k1", "k2"):
        await store.operators.send_signal(NewSignal(run_id, "paid", key, b"42"))
    first, second = (await store.schedulers.undelivered(A, 10)).signals
    hop = Hop(run_id, 1, signals=[(first.id, 1), (second.id, 2)], set_aside=[(1, "expected `int`")])
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    assert [one.set_aside for one in await store.reads.signals(run_id)] == ["expected `int`", None]
    assert [(note.n, note.name, note.error) for note in await store.alerts.failures(10)] == [
        (-1, "paid", "expected `int`")
    ]
    assert await store.batches.commit(A, [Hop(run_id, 1, set_aside=[(1, "again")])]) == [Answer.FENCED]
    assert await store.batches.commit(A, [Hop(run_id, 1, set_aside=[(3, "not there")])]) == [Answer.FENCED]
    assert await store.batches.commit(A, [Hop(run_id, 1, set_aside=[(2, "later")])]) == [Answer.ACCEPTED]
    assert await store.batches.commit(A, [Hop(run_id, 1, park=True)]) == [Answer.ACCEPTED]
    history = await store.schedulers.claim_run(B, run_id)
    assert history is not None
    assert [one.set_aside for one in history.signals] == ["expected `int`", "later"]


async def test_a_signal_that_came_before_its_wait_ends_it_in_the_hop_that_issues_it(store: Store) -> None:
    """One hop may issue a step that waits for a signal, and end it."""
    run_id = await begin(store)
    await store.operators.send_signal(NewSignal(run_id, "paid", "k", b"42"))
    (signal,) = await store.reads.signals(run_id)
    hop = Hop(run_id, 1, signals=[(signal.id, 1)], issued=[wait(1)], ended=[(1, 1, b"42", await store.now())])
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    row = await step(store, run_id)
    assert (row.state, row.output, row.delivered_seq) == (StepState.SUCCEEDED, b"42", 1)


async def test_dropped_steps_are_cancelled_and_never_delivered(store: Store) -> None:
    """A live step is cancelled, and its agent's writes are refused. An ended step keeps its outcome. Neither is
    delivered."""
    run_id = await begin(store, running_call(1), call(2), timer(3, ENVIRONMENT.now() + 60), running_call(4))
    await store.batches.commit(A, [report(run_id, 4, 1)])
    assert await store.batches.commit(A, [Hop(run_id, 1, dropped=[1, 2, 3, 4])]) == [Answer.ACCEPTED]
    states = {one.n: (one.state, one.delivered_seq) for one in await store.reads.steps(run_id)}
    assert states == {
        1: (StepState.CANCELLED, 0),
        2: (StepState.CANCELLED, 0),
        3: (StepState.CANCELLED, 0),
        4: (StepState.SUCCEEDED, 0),
    }
    assert all(one.finished_at is not None for one in await store.reads.steps(run_id))
    assert await store.batches.commit(A, [report(run_id, 1, 1)]) == [Answer.FENCED]
    assert await store.agents.lost_steps([(run_id, 1, 1)]) == [(run_id, 1)]
    assert await store.schedulers.next_timer() is None


async def test_a_closed_run_is_over(store: Store) -> None:
    """Its end is written, nobody owns it, and writes with its old fence are refused."""
    run_id = await begin(store, running_call(1))
    hop = Hop(run_id, 1, outcomes=[succeeded(1, 1, 1)], close=closing(output=b'"done"'))
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    run = await store.reads.run(run_id)
    assert run is not None
    assert (run.state, run.output, run.owner, run.fence) == (RunState.SUCCEEDED, b'"done"', None, 2)
    assert run.finished_at is not None
    assert await store.batches.commit(A, [hop]) == [Answer.FENCED]
    assert await store.schedulers.claim_run(B, run_id) is None
    assert [one.id for one in await store.reads.ended_runs([run_id, "no-such-run"])] == [run_id]


async def test_a_run_may_begin_and_end_in_one_hop(store: Store) -> None:
    """A workflow without steps is one commit."""
    run = new_run()
    hop = Hop(
        run.id,
        1,
        begin=run,
        begun_at=ENVIRONMENT.now(),
        close=closing(RunState.FAILED, error='{"type": "x"}'),
    )
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    row = await store.reads.run(run.id)
    assert row is not None
    assert (row.state, row.error) == (RunState.FAILED, '{"type": "x"}')


async def test_closing_leaves_nothing_undelivered(store: Store) -> None:
    """Nobody who looks for outcomes finds a late one that the last hop dropped."""
    run_id = await begin(store, running_call(1), running_call(2))
    await store.batches.commit(A, [report(run_id, 2, 1)])
    await store.batches.commit(
        A, [Hop(run_id, 1, outcomes=[succeeded(1, 1, 1)], dropped=[2], close=closing())]
    )
    assert (await store.schedulers.undelivered(A, 10)).steps == []
    assert await store.schedulers.claim_runs(A, SERVED, 10) == []
    assert all(rows == 0 for _, _, rows in await store.reads.doctor())


@pytest.mark.parametrize(
    ("end", "state"), [(RunState.SUCCEEDED, StepState.SUCCEEDED), (RunState.UNDONE, StepState.FAILED)]
)
async def test_a_childs_end_reaches_its_parents_step(store: Store, end: RunState, state: StepState) -> None:
    """The commit that closes a child ends the parent's step. It is not delivered yet, so the parent wakes up."""
    wanted = new_run()
    parent = await begin(store, child(1))
    wanted = new_run(parent_id=parent, parent_n=1)
    assert await store.batches.commit(A, [Hop(parent, 1, children=[wanted], park=True)]) == [Answer.ACCEPTED]
    assert [one.id for one in await store.reads.children(parent)] == [wanted.id]
    (claimed,) = await store.schedulers.claim_runs(B, SERVED, 10)
    assert claimed.run.id == wanted.id
    error = None if end is RunState.SUCCEEDED else json.dumps({"type": "x"})
    close = closing(end, output=b"1" if error is None else None, error=error, parent_id=parent, parent_n=1)
    assert await store.batches.commit(B, [Hop(wanted.id, claimed.run.fence, close=close)]) == [
        Answer.ACCEPTED
    ]
    waiting = await step(store, parent)
    assert (waiting.state, waiting.error, waiting.delivered_seq) == (state, error, None)
    assert ids(await store.schedulers.claim_runs(B, SERVED, 10)) == [parent]


async def test_starting_a_child_again_keeps_the_first(store: Store) -> None:
    """A step may ask for its child again and gets the same run. Another step that asks for the same id fails."""
    wanted = new_run()
    parent = await begin(store, child(1), child(2))
    first = new_run(wanted.id, parent_id=parent, parent_n=1)
    again = new_run(wanted.id, parent_id=parent, parent_n=2)
    for _ in range(2):
        assert await store.batches.commit(A, [Hop(parent, 1, children=[first])]) == [Answer.ACCEPTED]
    assert (await step(store, parent)).state is StepState.WAITING
    assert await store.batches.commit(A, [Hop(parent, 1, children=[again])]) == [Answer.ACCEPTED]
    assert [one.parent_n for one in await store.reads.children(parent)] == [1]
    waiting = await step(store, parent, 2)
    assert (waiting.state, waiting.delivered_seq) == (StepState.FAILED, None)
    assert isinstance(codec.decode_error(waiting.error or ""), Conflict)


async def test_one_id_for_children_of_two_runs_in_one_commit(store: Store) -> None:
    """One of them gets the run, and the step of the other one fails."""
    parents = [await begin(store, child(1)) for _ in range(2)]
    wanted = new_id()
    hops = [Hop(one, 1, children=[new_run(wanted, parent_id=one, parent_n=1)]) for one in parents]
    assert await store.batches.commit(A, hops) == [Answer.ACCEPTED] * 2
    assert sorted([(await step(store, one)).state for one in parents]) == [
        StepState.FAILED,
        StepState.WAITING,
    ]
    assert len([kid for one in parents for kid in await store.reads.children(one)]) == 1
    assert await broken(store) == set()


async def test_only_a_runs_own_children_are_asked_to_cancel(store: Store) -> None:
    """Children are found by the step that asked for them. A run that joined another run, or only knows its id, cannot
    cancel it."""
    other = await start(store)
    parent = await begin(store, child(1), child(2))
    kid = new_run(parent_id=parent, parent_n=1)
    joined = new_run(other, parent_id=parent, parent_n=2, joins=True)
    await store.batches.commit(A, [Hop(parent, 1, children=[kid, joined])])
    assert await store.reads.joins(parent) == {2: other}
    assert await store.batches.commit(A, [Hop(parent, 1, cancelled=[1, 2])]) == [Answer.ACCEPTED]
    assert [one.name for one in await store.reads.signals(kid.id)] == ["$cancel"]
    assert await store.reads.signals(other) == []
    assert await broken(store) == set()


async def test_a_step_that_joined_a_run_ends_once(store: Store) -> None:
    """When a scheduler looks, the step gets how the run ended, and it is not delivered yet. A step that was dropped
    meanwhile gets nothing."""
    other = await begin(store)
    parent = await begin(store, child(1), child(2))
    steps = [new_run(other, parent_id=parent, parent_n=n, joins=True) for n in (1, 2)]
    await store.batches.commit(A, [Hop(parent, 1, children=steps, dropped=[2])])
    assert await store.schedulers.answer_joins(10) == 0
    await store.batches.commit(A, [Hop(other, 1, close=closing(output=b"7"))])
    assert await store.schedulers.answer_joins(10) == 2
    assert await store.schedulers.answer_joins(10) == 0
    waiting = await step(store, parent)
    assert (waiting.state, waiting.output, waiting.delivered_seq) == (StepState.SUCCEEDED, b"7", None)
    assert (await step(store, parent, 2)).state is StepState.CANCELLED
    assert await store.reads.joins(parent) == {}


async def test_sends_reach_runs_that_can_take_them(store: Store) -> None:
    """A hop's signals arrive once, and only at runs that exist and have not ended."""
    sender, receiver, over = await begin(store), await begin(store, wait(1)), await begin(store)
    await store.batches.commit(A, [Hop(over, 1, close=closing())])
    to = [NewSignal(run_id, "paid", "k", b"1") for run_id in (receiver, receiver, over, "no-such-run")]
    assert await store.batches.commit(A, [Hop(sender, 1, sends=to)]) == [Answer.ACCEPTED]
    assert [one.payload for one in await store.reads.signals(receiver)] == [b"1"]
    assert await store.reads.signals(over) == await store.reads.signals("no-such-run") == []


async def test_progress_and_published_values_are_kept(store: Store) -> None:
    """Each is replaced if the hop has a new one, and otherwise stays as it is."""
    run_id = await begin(store)
    await store.batches.commit(A, [Hop(run_id, 1, progress="half", published='{"a": 1}')])
    await store.batches.commit(A, [Hop(run_id, 1, progress="most")])
    run = await store.reads.run(run_id)
    assert run is not None
    assert (run.progress, run.published, run.fence) == ("most", '{"a": 1}', 1)


async def test_continue_as_new_forgets_the_history(store: Store) -> None:
    """The next generation has a new input and no steps. Step numbers go on, and signals that no step took are
    undelivered again."""
    run_id = await begin(store, running_call(1), running_call(2))
    for key in ("read", "unread", "later"):
        await store.operators.send_signal(NewSignal(run_id, "paid", key, b"1"))
    read, unread, _ = (await store.schedulers.undelivered(A, 10)).signals
    await store.batches.commit(
        A,
        [Hop(run_id, 1, outcomes=[succeeded(1, 1, 1)], signals=[(read.id, 2), (unread.id, 3)], progress="p")],
    )
    hop = Hop(run_id, 1, begun_at=1234.0, dropped=[2], next_input=b"[2]", unread=[3])
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    run = await store.reads.run(run_id)
    assert run is not None
    assert (run.input, run.generation, run.base_n, run.progress, run.fence) == (b"[2]", 2, 2, None, 2)
    assert (run.owner, run.started_at, len(run.digest)) == (A, 1234.0, 16)
    assert await store.reads.steps(run_id) == []
    assert await store.reads.attempts(run_id) == []
    assert [(one.key, one.delivered_seq) for one in await store.reads.signals(run_id)] == [
        ("unread", None),
        ("later", None),
    ]
    assert await store.batches.commit(A, [report(run_id, 2, 1)]) == [Answer.FENCED]


async def test_continue_as_new_keeps_undelivered_signals(store: Store) -> None:
    """That is so even if there is no delivered signal that no step took."""
    run_id = await begin(store, running_call(1))
    await store.operators.send_signal(NewSignal(run_id, "paid", "later", b"1"))
    hop = Hop(run_id, 1, outcomes=[succeeded(1, 1, 1)], begun_at=1234.0, next_input=b"[2]")
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    assert [(one.key, one.delivered_seq) for one in await store.reads.signals(run_id)] == [("later", None)]


async def test_a_parked_run_has_no_owner(store: Store) -> None:
    """Parking clears the owner and raises the fence. Without an outcome to deliver, nobody claims the run."""
    run_id = await parked(store, wait(1))
    run = await store.reads.run(run_id)
    assert run is not None
    assert (run.owner, run.fence, run.state) == (None, 2, RunState.RUNNING)
    assert await store.schedulers.claim_runs(A, SERVED, 10) == []


@pytest.mark.parametrize("order", ["report first", "park first"])
async def test_parking_cannot_lose_a_wake_up(store: Store, order: str) -> None:
    """An outcome recorded before or after its run is parked makes the run claimable."""
    run_id = await begin(store, call(1))
    (claimed,) = await store.agents.claim_steps(B, [1], 10)
    writes: list[tuple[str, Op]] = [(B, report(run_id, 1, claimed.fence)), (A, Hop(run_id, 1, park=True))]
    for node, op in writes if order == "report first" else reversed(writes):
        assert await store.batches.commit(node, [op]) == [Answer.ACCEPTED]
    (run,) = await store.schedulers.claim_runs(A, SERVED, 10)
    assert run.run.id == run_id
    assert [(one.n, one.output, one.delivered_seq) for one in run.steps] == [(1, b'"ok"', None)]


async def test_a_signal_wakes_a_parked_run(store: Store) -> None:
    """A run that left memory is claimed when a signal came for it."""
    run_id = await parked(store, wait(1))
    await store.operators.send_signal(NewSignal(run_id, "paid", "k", b"1"))
    (run,) = await store.schedulers.claim_runs(B, SERVED, 10)
    assert (run.run.id, run.run.fence, [one.name for one in run.signals]) == (run_id, 3, ["paid"])


async def test_an_old_owner_finds_no_row(store: Store) -> None:
    """After another node has claimed the run, hops of the first owner are refused."""
    run_id = await start(store)
    first = await store.schedulers.claim_run(A, run_id)
    assert first is not None
    await store.batches.commit(A, [Hop(run_id, first.run.fence, issued=[running_call(1)], park=True)])
    await store.batches.commit(A, [report(run_id, 1, 1)])
    (second,) = await store.schedulers.claim_runs(B, SERVED, 1)
    assert await store.batches.commit(A, [Hop(run_id, first.run.fence, issued=[call(2)])]) == [Answer.FENCED]
    assert await store.schedulers.lost_runs(A, [(run_id, first.run.fence)]) == [run_id]
    assert await store.schedulers.lost_runs(B, [(run_id, second.run.fence)]) == []


async def test_one_bad_report_does_not_harm_a_hop(store: Store) -> None:
    """If one of two operations in a batch fails, the other is not written with it, but is accepted when it is written
    alone."""
    run_id = await begin(store, running_call(1), running_call(2))
    late = Outcome(run_id, 2, StepState.SUCCEEDED, b"1", None, 1.0, 9)
    hop = Hop(run_id, 1, outcomes=[succeeded(1, 1, 1)])
    with pytest.raises(PreconditionFailed):
        await store.batches.commit(A, [hop, late])
    assert await store.reads.attempts(run_id) == []
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    assert await store.batches.commit(A, [late]) == [Answer.FENCED]


async def test_only_its_owner_parks_a_run(store: Store) -> None:
    """Two nodes that begin the same run name the same fence. The second one still cannot park the other's run."""
    run = new_run()
    await begin(store, running_call(), run=run)
    late = Hop(run.id, 1, begin=run, begun_at=ENVIRONMENT.now())
    assert await store.batches.commit(B, [late]) == [Answer.DUPLICATE]
    await store.batches.commit(B, [Hop(run.id, 1, park=True)])
    found = await store.reads.run(run.id)
    assert found is not None
    assert (found.owner, found.fence) == (A, 1)


async def test_a_run_that_waits_for_nothing_yet_is_claimed_after_it_was_parked(store: Store) -> None:
    """A run that has just continued as new has no step. When it is parked then, it is pending, so that a scheduler
    claims it."""
    run_id = await begin(store, running_call())
    await store.batches.commit(
        A, [Hop(run_id, 1, begun_at=ENVIRONMENT.now(), dropped=[1], next_input=b"[2]")]
    )
    assert await store.batches.commit(A, [Hop(run_id, 2, park=True)]) == [Answer.ACCEPTED]
    found = await store.reads.run(run_id)
    assert found is not None
    assert (found.state, found.owner) == (RunState.PENDING, None)
    assert await broken(store) == set()


async def test_a_hop_of_the_last_generation_is_refused(store: Store) -> None:
    """The history that it is about is gone, and its fence is old."""
    run_id = await begin(store, running_call())
    await store.batches.commit(
        A, [Hop(run_id, 1, begun_at=ENVIRONMENT.now(), dropped=[1], next_input=b"[2]")]
    )
    assert await store.batches.commit(A, [Hop(run_id, 1, issued=[running_call()])]) == [Answer.FENCED]


async def test_what_was_delivered_is_not_delivered_again(store: Store) -> None:
    """A hop is refused if it delivers a signal twice, ends a wait that has ended, or delivers a step that has not
    ended."""
    run_id = await begin(store, wait(1), running_call(2))
    await store.operators.send_signal(NewSignal(run_id, "paid", "k", b"1"))
    (signal,) = await store.reads.signals(run_id)
    heard = Hop(run_id, 1, signals=[(signal.id, 1)], ended=[(1, 1, b"1", ENVIRONMENT.now())])
    assert await store.batches.commit(A, [heard]) == [Answer.ACCEPTED]
    assert await store.batches.commit(A, [Hop(run_id, 1, signals=[(signal.id, 2)])]) == [Answer.FENCED]
    assert await store.batches.commit(A, [Hop(run_id, 1, ended=[(1, 2, b"1", ENVIRONMENT.now())])]) == [
        Answer.FENCED
    ]
    assert await store.batches.commit(A, [Hop(run_id, 1, outcomes=[delivered(2, 2)])]) == [Answer.FENCED]
    assert [one.delivered_seq for one in await store.reads.steps(run_id)] == [1, None]


async def test_a_run_that_begins_and_ends_at_once_has_a_fence_that_nobody_knows(store: Store) -> None:
    """The end raises the fence, even in the hop that begins the run."""
    run = new_run()
    hop = Hop(run.id, 1, begin=run, begun_at=ENVIRONMENT.now(), close=closing())
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    assert await store.batches.commit(A, [Hop(run.id, 1, progress="late")]) == [Answer.FENCED]
    assert await store.schedulers.hold_run(run.id, 1, "late") is Answer.FENCED


async def test_the_next_generation_is_in_the_journal(store: Store) -> None:
    """Continuing as new removes a history: the journal says when."""
    run_id = await begin(store, running_call(1))
    hop = Hop(run_id, 1, outcomes=[succeeded(1, 1, 1)], next_input=b"2", begun_at=ENVIRONMENT.now())
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    assert [(one.actor, one.verb) for one in await store.reads.journal(run_id)] == [("scheduler", "continue")]


async def test_progress_ends_with_its_generation(store: Store) -> None:
    """Progress and the point of no return belong to the generation that ends, even if its last hop sets them."""
    run_id = await begin(store, running_call(1))
    done = [succeeded(1, 1, 1)]
    hop = Hop(
        run_id, 1, outcomes=done, progress="done", kept_n=1, next_input=b"2", begun_at=ENVIRONMENT.now()
    )
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    run = await store.reads.run(run_id)
    assert run is not None
    assert (run.progress, run.kept_n, run.base_n, run.generation) == (None, 0, 1, 2)


async def test_a_hop_that_issues_and_is_written_again_is_fenced(store: Store) -> None:
    """A hop whose answer got lost is written again. It is refused, and the steps that it issued are unchanged."""
    run_id = await begin(store)
    hop = Hop(run_id, 1, issued=[call(1), running_call(2)])
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    (claimed,) = await store.agents.claim_steps(B, [1], 1)
    assert await store.batches.commit(A, [hop]) == [Answer.FENCED]
    assert await store.batches.commit(B, [report(run_id, 1, claimed.fence)]) == [Answer.ACCEPTED]
