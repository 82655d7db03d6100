"""Steps in quarantine wait for a person, who decides about all that have the same fingerprint. Then their runs go
on."""

import asyncio
import json
from typing import Any

import pytest

from holdfast.model import NEVER, Ending, Failure, NewSignal, RunState, StepKind, StepState
from holdfast.store.answers import Answer
from holdfast.store.operations import Hop, NewStep, QuarantineStep, RetryStep
from holdfast.store.store import Store
from holdfast.store.walk import Turns
from tests.store.conftest import Tamper
from tests.store.made import (
    LONG_S,
    SERVED,
    A,
    B,
    begin,
    broken,
    call,
    closing,
    delivered,
    ids,
    report,
    running_call,
    step,
    succeeded,
    wait,
)

ERROR = json.dumps({"type": "builtins.ValueError", "message": "bad card", "place": "shop.py:7"})


def poisoned(
    run_id: str, n: int = 1, fence: int = 1, fingerprint: str = "aaaa", **more: Any
) -> QuarantineStep:
    values: dict[str, Any] = {
        "ending": Ending.LOST,
        "error": ERROR,
        "failure": Failure.POISON,
        "fingerprint": fingerprint,
        "step": "shop.charge",
        "kind": "builtins.ValueError",
        "place": "shop.py:7",
    }
    return QuarantineStep(run_id, n, fence, **(values | more))


async def stuck(store: Store, *others: Any, fingerprint: str = "aaaa") -> str:
    """Make a run whose first step is in quarantine. It is stuck if it has no other step. Return its id."""
    run_id = await begin(store, running_call(1), *others)
    assert await store.batches.commit(A, [poisoned(run_id, fingerprint=fingerprint)]) == [Answer.ACCEPTED]
    await stick(store)
    return run_id


async def stick(store: Store) -> int:
    epoch = await store.leader.lead(A, LONG_S)
    assert epoch is not None
    return await store.quarantine.stick_quarantined(epoch, 100)


async def resolve(store: Store, act: str, fingerprint: str | None = "aaaa", **more: Any) -> int:
    values: dict[str, Any] = {
        "fingerprint": fingerprint,
        "run_id": None,
        "before": await store.now() + 1,
        "result": b"null",
        "actor": "ann",
        "note": "as agreed",
        "limit": 100,
    }
    return await store.quarantine.resolve_quarantine(act, **(values | more))


async def state(store: Store, run_id: str) -> RunState:
    run = await store.reads.run(run_id)
    assert run is not None
    return run.state


async def test_an_agent_puts_its_step_into_quarantine(store: Store) -> None:
    """The fence makes sure that this happens once. The attempt is kept, the step is never due, and the failure is noted
    for an alert. The run's row is not changed, because an agent changes only the step that it has."""
    run_id = await begin(store, running_call(1), running_call(2))
    assert await store.batches.commit(A, [poisoned(run_id)]) == [Answer.ACCEPTED]
    assert await store.batches.commit(A, [poisoned(run_id)]) == [Answer.FENCED]
    assert await store.batches.commit(A, [report(run_id, 1, 1)]) == [Answer.FENCED]
    row = await step(store, run_id)
    assert (row.state, row.ready_at, row.agent, row.fence, row.losses) == (StepState.READY, NEVER, None, 2, 1)
    assert [one.ending for one in await store.reads.attempts(run_id)] == [Ending.LOST, Ending.REFUSED]
    (note,) = await store.alerts.failures(10)
    assert (note.n, note.fingerprint) == (1, "aaaa")
    assert await store.agents.claim_steps(A, [1], 10) == []
    run = await store.reads.run(run_id)
    assert run is not None
    assert (run.state, run.owner, run.fence) == (RunState.RUNNING, A, 1)
    assert await broken(store) == set()


async def test_each_step_in_quarantine_has_its_own_fingerprint(store: Store) -> None:
    """Two steps of one run are two failures, and each is noted once."""
    run_id = await begin(store, running_call(1), running_call(2))
    await store.batches.commit(A, [poisoned(run_id), poisoned(run_id, 2, fingerprint="bbbb")])
    notes = await store.alerts.failures(10)
    assert [(note.n, note.fingerprint) for note in notes] == [(1, "aaaa"), (2, "bbbb")]


@pytest.mark.parametrize(
    ("failure", "counts"),
    [
        (Failure.APPLICATION, (1, 0, 0, 0)),
        (Failure.LOST, (0, 1, 0, 0)),
        (Failure.TIMEOUT, (0, 0, 1, 0)),
        (Failure.THROTTLED, (0, 0, 0, 1)),
    ],
)
async def test_a_failed_attempt_spends_the_budget_of_its_class(
    store: Store, failure: Failure, counts: tuple[int, ...]
) -> None:
    """An agent that claims the step gets the counts. An excused attempt does not count against any budget."""
    run_id = await begin(store, running_call(1), running_call(2))
    again = [RetryStep(run_id, n, 1, 0.0, "failed", ERROR, n == 2, failure) for n in (1, 2)]
    assert await store.batches.commit(A, again) == [Answer.ACCEPTED] * 2
    rows = [(one.spent, one.losses, one.timeouts, one.throttled) for one in await store.reads.steps(run_id)]
    assert rows == [counts, (0, 0, 0, 0)]
    claimed = {one.n: one for one in await store.agents.claim_steps(B, [1], 10)}
    assert (claimed[1].losses, claimed[1].timeouts, claimed[1].throttled) == counts[1:]


async def test_suspects_are_claimed_as_many_as_there_is_room_for(store: Store, tamper: Tamper) -> None:
    """A step that lost its agent too often is not claimed if the agent may have no suspect, and does not hide the steps
    behind it. A step that is not claimed is not changed."""
    run_id = await begin(store, *(call(n) for n in range(1, 7)))
    tamper(f"UPDATE steps SET losses = 2, attempt = 2, fence = 4 WHERE run_id = '{run_id}' AND n <= 4")
    before = await store.reads.steps(run_id)
    assert [one.n for one in await store.agents.claim_steps(B, [1], 1, suspect_losses=2, suspects=0)] == [5]
    assert [one.n for one in await store.agents.claim_steps(B, [1], 10, suspect_losses=2, suspects=0)] == [6]
    assert await store.agents.claim_steps(B, [1], 10, suspect_losses=2, suspects=0) == []
    assert (await store.reads.steps(run_id))[:4] == before[:4]
    assert len(await store.agents.claim_steps(B, [1], 10, suspect_losses=2, suspects=1)) == 1
    assert len(await store.agents.claim_steps(B, [1], 10, suspect_losses=2, suspects=2)) == 2
    assert len(await store.agents.claim_steps(B, [1], 10)) == 1
    assert await broken(store) == set()


async def test_a_walk_takes_no_more_suspects_than_a_claim(store: Store, tamper: Tamper) -> None:
    """It takes several times, for each priority and queue, and all of that is one claim."""
    run_id = await begin(store, *(call(n, priority=n) for n in range(1, 7)))
    tamper(f"UPDATE steps SET losses = 2, attempt = 2, fence = 4 WHERE run_id = '{run_id}' AND n <= 4")
    for suspects, found in ((1, [4, 5, 6]), (2, [2, 3]), (0, []), (9, [1])):
        claimed = await store.agents.claim_steps(
            B, [1], 10, suspect_losses=2, suspects=suspects, turns=Turns()
        )
        assert sorted(one.n for one in claimed) == found


# --- stuck ------------------------------------------------------------------------------------------------------------


async def test_a_run_is_stuck_when_nothing_else_can_go_on(store: Store) -> None:
    """Its owner is cleared and its fence is raised, so that the owner's writes are refused. The note says why it is
    stuck."""
    run_id = await stuck(store)
    run = await store.reads.run(run_id)
    assert run is not None
    assert (run.state, run.resume, run.owner, run.fence) == (RunState.STUCK, RunState.RUNNING, None, 2)
    assert run.note == ERROR
    assert await store.batches.commit(A, [Hop(run_id, 1, issued=[call(2)])]) == [Answer.FENCED]
    assert await store.schedulers.claim_runs(A, SERVED, 10) == []
    assert [one.id for one in await store.reads.ended_runs([run_id])] == [run_id]
    assert [one.verb for one in await store.reads.journal(run_id)] == ["stick"]
    assert await stick(store) == 0
    assert await broken(store) == set()


@pytest.mark.parametrize("other", [running_call(2), call(2), wait(2)], ids=["running", "ready", "waiting"])
async def test_a_run_goes_on_as_long_as_something_can(store: Store, other: Any) -> None:
    """Parallel branches go on. When they have ended, the run is stuck."""
    run_id = await stuck(store, other)
    assert await state(store, run_id) is RunState.RUNNING
    await store.batches.commit(A, [Hop(run_id, 1, dropped=[2])])
    assert await stick(store) == 1
    assert await state(store, run_id) is RunState.STUCK


async def test_a_run_with_something_to_deliver_is_not_stuck(store: Store) -> None:
    """The run may go on with an outcome or a signal that is not delivered yet."""
    first, second = await begin(store, running_call(1), running_call(2)), await begin(store, running_call(1))
    await store.batches.commit(A, [poisoned(first), poisoned(second), report(first, 2, 1)])
    await store.operators.send_signal(NewSignal(second, "paid", "k", b"1"))
    assert await stick(store) == 0
    (signal,) = (await store.schedulers.undelivered(A, 10)).signals
    await store.batches.commit(
        A, [Hop(first, 1, outcomes=[delivered(2, 1)]), Hop(second, 1, signals=[(signal.id, 1)])]
    )
    assert await stick(store) == 2


async def test_an_operator_gets_a_stuck_run_going_even_if_nothing_is_in_quarantine(
    store: Store, tamper: Tamper
) -> None:
    """There should be no stuck run without a step in quarantine. If there is one, it goes on when an operator names
    it."""
    run_id = await stuck(store)
    tamper(f"UPDATE steps SET state = 'failed', finished_at = issued_at WHERE run_id = '{run_id}'")
    assert await resolve(store, "release", None, run_id=run_id) == 0
    assert await state(store, run_id) is RunState.RUNNING
    assert ids(await store.schedulers.claim_runs(B, SERVED, 10)) == [run_id]


async def test_only_the_leader_sticks_runs(store: Store) -> None:
    """An old epoch changes nothing."""
    run_id = await begin(store, running_call(1))
    await store.batches.commit(A, [poisoned(run_id)])
    old = await store.leader.lead(B, -1.0)
    assert await store.leader.lead(A, LONG_S) is not None
    assert old is not None
    assert await store.quarantine.stick_quarantined(old, 100) == 0
    assert await state(store, run_id) is RunState.RUNNING


async def test_what_left_quarantine_another_way_is_forgotten(store: Store) -> None:
    """A step that its run dropped, or whose run has ended, is not listed, and its entry is removed."""
    run_id, other = await begin(store, running_call(1)), await begin(store, running_call(1))
    await store.batches.commit(A, [poisoned(run_id), poisoned(other)])
    await store.batches.commit(
        A, [Hop(run_id, 1, dropped=[1]), Hop(other, 1, dropped=[1], close=closing(RunState.FAILED))]
    )
    assert await store.quarantine.quarantine(10) == []
    assert await store.quarantine.quarantined(run_id) == []
    assert await stick(store) == 0
    assert await state(store, run_id) is RunState.RUNNING
    assert await resolve(store, "release") == 0
    assert await broken(store) == set()


# --- the list ---------------------------------------------------------------------------------------------------------


async def test_quarantine_is_listed_by_fingerprint(store: Store) -> None:
    """The list says how many steps of how many runs there are, and names one run. The oldest comes first."""
    first = await begin(store, running_call(1), running_call(2))
    await store.batches.commit(A, [poisoned(first, 1), poisoned(first, 2)])
    second = await begin(store, running_call(1), running_call(2))
    await store.batches.commit(
        A, [poisoned(second, 1), poisoned(second, 2, fingerprint="bbbb", place="shop.py:9")]
    )
    one, other = await store.quarantine.quarantine(10)
    assert (one.fingerprint, one.step, one.error, one.place) == (
        "aaaa",
        "shop.charge",
        "builtins.ValueError",
        "shop.py:7",
    )
    assert (one.steps, one.runs, one.example) == (3, 2, first)
    assert one.since <= one.last_at <= await store.now()
    assert (other.fingerprint, other.steps, other.example) == ("bbbb", 1, second)
    assert [(one.n, one.fingerprint) for one in await store.quarantine.quarantined(second)] == [
        (1, "aaaa"),
        (2, "bbbb"),
    ]
    assert len(await store.quarantine.quarantine(1)) == 1


# --- what a person decides ----------------------------------------------------------------------------------------------


async def test_a_released_step_has_fresh_budgets(store: Store) -> None:
    """It is ready now, its run goes on where it was, and its error still says that an attempt may have had its
    effect."""
    run_id = await stuck(store)
    assert await resolve(store, "release") == 1
    row = await step(store, run_id)
    assert (row.state, row.quarantined, row.attempt, row.spent, row.losses) == (
        StepState.READY,
        False,
        1,
        0,
        0,
    )
    assert row.error == ERROR
    run = await store.reads.run(run_id)
    assert run is not None
    assert (run.state, run.resume, run.note) == (RunState.RUNNING, None, None)
    (claimed,) = await store.agents.claim_steps(B, [1], 10)
    assert (claimed.attempt, claimed.losses, claimed.error) == (2, 0, ERROR)
    assert await store.quarantine.quarantine(10) == []
    (entry,) = [one for one in await store.reads.journal(run_id) if one.verb == "release"]
    assert (entry.actor, entry.n, entry.note) == ("ann", 1, "aaaa as agreed")
    assert await broken(store) == set()


async def test_a_released_step_that_kills_again_comes_back(store: Store) -> None:
    """It has the same fingerprint, and its run is stuck again."""
    run_id = await stuck(store)
    await resolve(store, "release")
    (claimed,) = await store.agents.claim_steps(B, [1], 10)
    assert await store.batches.commit(B, [poisoned(run_id, 1, claimed.fence)]) == [Answer.ACCEPTED]
    assert await stick(store) == 1
    assert [one.steps for one in await store.quarantine.quarantine(10)] == [1]


@pytest.mark.parametrize(("act", "ended"), [("skip", StepState.SUCCEEDED), ("fail", StepState.FAILED)])
async def test_a_skipped_or_failed_step_is_an_outcome_to_deliver(
    store: Store, act: str, ended: StepState
) -> None:
    """Its run is claimed and gets the operator's result, or the error that was recorded."""
    run_id = await stuck(store)
    assert await resolve(store, act, result=b"7") == 1
    row = await step(store, run_id)
    assert (row.state, row.delivered_seq) == (ended, None)
    assert (row.output, row.error) == ((b"7", None) if act == "skip" else (None, ERROR))
    (claimed,) = await store.schedulers.claim_runs(B, SERVED, 10)
    assert claimed.run.id == run_id
    hop = Hop(run_id, claimed.run.fence, outcomes=[delivered(1, 1)], close=closing())
    assert await store.batches.commit(B, [hop]) == [Answer.ACCEPTED]
    assert await broken(store) == set()


async def test_a_run_with_several_steps_in_quarantine_goes_on_with_the_first_decision(store: Store) -> None:
    """The released step can be claimed at once. The others still wait."""
    run_id = await begin(store, running_call(1), running_call(2))
    await store.batches.commit(A, [poisoned(run_id, 1), poisoned(run_id, 2, fingerprint="bbbb")])
    assert await stick(store) == 1
    assert await resolve(store, "release", "bbbb") == 1
    assert await state(store, run_id) is RunState.RUNNING
    assert [one.n for one in await store.agents.claim_steps(B, [1], 10)] == [2]
    assert await stick(store) == 0


async def test_deciding_is_bounded_and_by_run_or_fingerprint(store: Store) -> None:
    """A decision has a limit, may be about one run alone, and leaves out steps that went into quarantine later."""
    runs = [await stuck(store, fingerprint=fingerprint) for fingerprint in ("aaaa", "aaaa", "aaaa", "bbbb")]
    assert await resolve(store, "release", before=await store.now() - LONG_S) == 0
    assert await resolve(store, "release", run_id=runs[1]) == 1
    assert await resolve(store, "release", None, run_id=runs[3]) == 1
    assert [await resolve(store, "fail", limit=1) for _ in range(3)] == [1, 1, 0]
    assert await resolve(store, "release", "no-such") == 0


async def test_two_operators_decide_once(store: Store, other: Store) -> None:
    """If two operators decide at the same time through two connections, each step gets one decision."""
    runs = [await stuck(store) for _ in range(10)]
    await asyncio.gather(resolve(store, "release"), resolve(other, "fail"))
    rows = [await step(store, run_id) for run_id in runs]
    assert {row.fence for row in rows} == {3}
    assert all((row.finished_at is None) is (row.state is StepState.READY) for row in rows)
    assert await broken(store) == set()


async def test_a_release_that_meets_the_leader_leaves_no_run_behind(store: Store, other: Store) -> None:
    """Whichever comes first, a run with a step that can be claimed is not stuck."""
    for _ in range(10):
        run_id = await begin(store, running_call(1))
        await store.batches.commit(A, [poisoned(run_id)])
        epoch = await store.leader.lead(A, LONG_S)
        assert epoch is not None
        await asyncio.gather(store.quarantine.stick_quarantined(epoch, 100), resolve(other, "release"))
        assert await state(store, run_id) is RunState.RUNNING
        assert not (await step(store, run_id)).quarantined


# --- other operators' acts ------------------------------------------------------------------------------------------------


async def test_a_stuck_run_can_be_cancelled(store: Store) -> None:
    """It is claimed because of the request, and drops the step. The step leaves quarantine."""
    run_id = await stuck(store)
    assert await store.operators.cancel_run(run_id, "ann", "") is RunState.RUNNING
    (claimed,) = await store.schedulers.claim_runs(B, SERVED, 10)
    (signal,) = claimed.signals
    hop = Hop(
        run_id, claimed.run.fence, signals=[(signal.id, 1)], dropped=[1], close=closing(RunState.CANCELLED)
    )
    assert await store.batches.commit(B, [hop]) == [Answer.ACCEPTED]
    assert (await step(store, run_id)).state is StepState.CANCELLED
    assert await store.quarantine.quarantine(10) == []
    assert await broken(store) == set()


async def test_a_cancel_that_meets_the_leader_is_delivered(store: Store, other: Store) -> None:
    """Whichever comes first, the run can be claimed."""
    for _ in range(10):
        run_id = await begin(store, running_call(1), node=B)
        await store.batches.commit(B, [poisoned(run_id)])
        epoch = await store.leader.lead(A, LONG_S)
        assert epoch is not None
        await asyncio.gather(
            store.quarantine.stick_quarantined(epoch, 100), other.operators.cancel_run(run_id, "ann", "")
        )
        assert await state(store, run_id) is RunState.RUNNING


async def test_there_is_no_undo_to_steer_in_a_run_that_only_waits(store: Store) -> None:
    """A request to skip or abandon an undo must not make a run undo itself."""
    run_id = await stuck(store)
    for act in ("skip", "abandon", "retry"):
        with pytest.raises(Exception, match="quarantine"):
            await store.operators.steer_undo(run_id, act, None, "ann", "")
    assert await state(store, run_id) is RunState.STUCK


async def test_retrying_what_backs_off_leaves_quarantine_alone(store: Store) -> None:
    """A step in quarantine is only released explicitly, with fresh budgets."""
    run_id = await begin(store, running_call(1), call(2, ready_at=await store.now() + LONG_S))
    await store.batches.commit(A, [poisoned(run_id)])
    assert await store.operators.retry_now(run_id, "ann") == 1
    assert (await step(store, run_id)).quarantined


async def test_an_undoing_run_waits_and_goes_on_in_its_own_state(store: Store, tamper: Tamper) -> None:
    """If an undo kills its agents, its run is stuck, and is undoing again when the step is released. An operator can
    steer the undo meanwhile."""
    run_id = await begin(store, running_call(1))
    tamper(f"UPDATE runs SET state = 'undoing', ending = 'failed' WHERE id = '{run_id}'")
    await store.batches.commit(A, [poisoned(run_id)])
    assert await stick(store) == 1
    assert await resolve(store, "release") == 1
    assert await state(store, run_id) is RunState.UNDOING
    (claimed,) = await store.agents.claim_steps(B, [1], 10)
    await store.batches.commit(B, [poisoned(run_id, 1, claimed.fence)])
    assert await stick(store) == 1
    assert await store.operators.steer_undo(run_id, "skip", 1, "ann", "") is RunState.UNDOING


async def test_a_held_run_keeps_its_steps_in_quarantine(store: Store) -> None:
    """It does not become stuck while it is held. A decision about its step does not release the run."""
    run_id = await begin(store, running_call(1))
    await store.operators.hold(run_id, "ann", "")
    await store.batches.commit(A, [poisoned(run_id)])
    assert await stick(store) == 0
    assert await resolve(store, "release") == 1
    assert await state(store, run_id) is RunState.HELD


async def test_an_undo_added_by_hand_keeps_no_run_from_being_stuck(store: Store) -> None:
    """The row of such an undo waits for nothing."""
    by_hand = NewStep(2, "undo_with#2", StepKind.UNDO, "shop.tidy", 1, StepState.WAITING)
    run_id = await stuck(store, by_hand)
    assert await state(store, run_id) is RunState.STUCK


async def test_pruning_removes_the_entries_in_quarantine(store: Store) -> None:
    """No entry stays without its run."""
    run_id = await begin(store, running_call(1), running_call(2))
    await store.batches.commit(A, [poisoned(run_id, 1)])
    hop = Hop(run_id, 1, outcomes=[succeeded(2, 1, 1)], close=closing(), dropped=[1])
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    done = await store.retention.prune(
        None,
        actor="ann",
        state="succeeded",
        before=await store.now() + LONG_S,
        after=(0.0, ""),
        runs_max=10,
        rows_max=100,
    )
    assert done.runs == 1
    assert await store.reads.run(run_id) is None
    assert await broken(store) == set()
