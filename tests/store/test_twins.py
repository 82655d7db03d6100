"""Twins: a step is executed twice and has one outcome. A twin changes the step's row only with that outcome."""

import asyncio
import json

import pytest

from holdfast.model import NEVER, BreakerState, HoldScope, RunState, StepState, TwinState
from holdfast.store.answers import Answer, ClaimedStep
from holdfast.store.operations import HandBack, Hop, RetryStep
from holdfast.store.store import Store
from tests.store.conftest import Tamper
from tests.store.made import (
    WORKFLOW,
    A,
    B,
    C,
    begin,
    broken,
    call,
    closing,
    delivered,
    number_lane,
    reclaim,
    report,
    running_call,
    step,
    succeeded,
)

OUTRAN = json.dumps(
    {"type": "holdfast.errors.StepLost", "message": "its twin was first", "ending": "refused"}
)
LIMIT = 100


async def lead(store: Store) -> int:
    epoch = await store.leader.lead(A, 60)
    assert epoch is not None
    return epoch


async def twinned(store: Store, run_id: str, n: int = 1, agent: str = B) -> ClaimedStep:
    """Let the leader make a twin of the step, and another agent claim it. Return the twin's claim."""
    row = await step(store, run_id, n)
    assert await store.twins.make_twins(await lead(store), [(run_id, n, row.fence)]) == [(run_id, n)]
    (claimed,) = await store.twins.claim_twins(agent, [1], LIMIT)
    return claimed


async def win(store: Store, twin: ClaimedStep, agent: str = B, output: bytes = b'"twin"') -> Answer:
    return await store.twins.end_twin(agent, (twin.run_id, twin.n, twin.fence), TwinState.WON, output, OUTRAN)


async def twin_of(store: Store, run_id: str) -> TwinState:
    (twin,) = await store.twins.twins(run_id)
    return twin.state


async def test_a_twin_is_the_same_step_on_another_agent(store: Store) -> None:
    """It has the same key and input, and is the next attempt. The step's own agent does not get it, and the step's row
    is unchanged."""
    run_id = await begin(store, running_call(1))
    before = await step(store, run_id)
    assert await store.twins.make_twins(await lead(store), [(run_id, 1, before.fence)]) == [(run_id, 1)]
    assert await store.twins.claim_twins(A, [1], LIMIT) == []
    assert await store.twins.claim_twins(B, [2], LIMIT) == []
    (twin,) = await store.twins.claim_twins(B, [1], LIMIT)
    assert (twin.key, twin.name, twin.input) == (before.key, before.name, before.input)
    assert twin.attempt == before.attempt + 1
    assert await store.twins.claim_twins(C, [1], LIMIT) == []
    assert await step(store, run_id) == before
    assert await store.reads.steps(run_id) == [before]


async def test_a_twin_that_succeeds_is_the_steps_outcome(store: Store) -> None:
    """The outcome is recorded once with its agent, and is not delivered yet. The attempt that was outrun is kept, and
    late reports are refused."""
    run_id = await begin(store, running_call(1))
    before = await step(store, run_id)
    twin = await twinned(store, run_id)
    assert await win(store, twin) is Answer.ACCEPTED
    after = await step(store, run_id)
    assert (after.state, after.output, after.agent) == (StepState.SUCCEEDED, b'"twin"', B)
    assert after.fence == before.fence + 1
    (outran,) = await store.reads.attempts(run_id)
    assert (outran.agent, outran.ending) == (A, "refused")
    assert await store.batches.commit(A, [report(run_id, 1, before.fence)]) == [Answer.FENCED]
    assert await store.batches.commit(A, [Hop(run_id, 1, outcomes=[succeeded(1, before.fence, 1)])]) == [
        Answer.FENCED
    ]
    assert await win(store, twin) is Answer.DUPLICATE
    assert await store.batches.commit(A, [Hop(run_id, 1, outcomes=[delivered(1, 1)], close=closing())]) == [
        Answer.ACCEPTED
    ]
    assert await broken(store) == set()


async def test_a_step_that_ended_takes_nothing_from_its_twin(store: Store) -> None:
    """The first outcome stays. The twin's agent learns that it has lost it, and its end is refused."""
    run_id = await begin(store, running_call(1))
    twin = await twinned(store, run_id)
    assert await store.twins.lost_twins(B, [(run_id, 1, twin.fence)]) == []
    assert await store.batches.commit(A, [report(run_id, 1, 1, b'"first"')]) == [Answer.ACCEPTED]
    assert await store.twins.lost_twins(B, [(run_id, 1, twin.fence)]) == [(run_id, 1)]
    assert await win(store, twin) is Answer.FENCED
    assert (await step(store, run_id)).output == b'"first"'
    assert await twin_of(store, run_id) is TwinState.OUTRUN
    assert await store.reads.attempts(run_id) == []


async def test_both_ending_at_once_leave_one_outcome(store: Store, other: Store) -> None:
    """The one that commits first wins, and the other is refused."""
    for _ in range(20):
        run_id = await begin(store, running_call(1))
        twin = await twinned(store, run_id)
        answers = await asyncio.gather(
            store.batches.commit(A, [report(run_id, 1, 1, b'"step"')]), win(other, twin, output=b'"twin"')
        )
        first = answers[0][0] is Answer.ACCEPTED
        assert (answers[1] is Answer.ACCEPTED) is not first
        assert (await step(store, run_id)).output == (b'"step"' if first else b'"twin"')
        assert (await step(store, run_id)).fence == 2


async def test_one_step_gets_one_twin(store: Store) -> None:
    """That is so however often the leader asks. A leader whose epoch is over makes none."""
    run_id = await begin(store, running_call(1))
    epoch = await lead(store)
    assert await store.twins.make_twins(epoch + 1, [(run_id, 1, 1)]) == []
    assert await store.twins.make_twins(epoch, [(run_id, 1, 1)]) == [(run_id, 1)]
    assert await store.twins.make_twins(epoch, [(run_id, 1, 1)]) == []
    assert [entry.verb for entry in await store.reads.journal(run_id)] == ["hedge"]


async def test_only_a_step_that_is_still_running_gets_a_twin(store: Store) -> None:
    """A step that was handed back meanwhile, or has ended, gets none."""
    back, done, ready = (
        await begin(store, running_call(1)),
        await begin(store, running_call(1)),
        await begin(store, call(1)),
    )
    epoch = await lead(store)
    await store.batches.commit(A, [HandBack(back, 1, 1), report(done, 1, 1)])
    assert (
        await store.twins.make_twins(epoch, [(back, 1, 1), (done, 1, 1), (ready, 1, 0), (back, 1, 2)]) == []
    )


@pytest.mark.parametrize("act", ["hand back", "hold", "succeed"])
async def test_a_twin_does_not_begin_when_the_step_has_moved_on(store: Store, act: str) -> None:
    """Its step can be claimed by any agent again, is held, or has ended."""
    run_id = await begin(store, running_call(1))
    epoch = await lead(store)
    await store.twins.make_twins(epoch, [(run_id, 1, 1)])
    if act == "hand back":
        await store.batches.commit(A, [HandBack(run_id, 1, 1)])
    elif act == "hold":
        await store.operators.hold(run_id, "me", "")
    else:
        await store.batches.commit(A, [report(run_id, 1, 1)])
    assert await store.twins.claim_twins(B, [1], LIMIT) == []
    assert await store.twins.sweep_twins(epoch, LIMIT) == (0 if act == "hold" else 1)
    if act == "hold":
        await store.operators.release(run_id, "me", "")
        await store.schedulers.claim_run(A, run_id)
        assert len(await store.twins.claim_twins(B, [1], LIMIT)) == 1


async def test_a_twin_outlives_the_loss_of_the_steps_agent(store: Store) -> None:
    """The step is ready again, or another agent has claimed it. The twin's success ends it anyway, and later reports of
    that agent are refused."""
    run_id = await begin(store, running_call(1), node=C)
    twin = await twinned(store, run_id)
    epoch = await lead(store)
    assert await reclaim(store, C, epoch, "gone", 3, LIMIT) is not None
    assert await store.twins.sweep_twins(epoch, LIMIT) == 0
    (again,) = await store.agents.claim_steps(A, [1], LIMIT)
    assert await win(store, twin) is Answer.ACCEPTED
    assert await store.batches.commit(A, [report(run_id, 1, again.fence)]) == [Answer.FENCED]
    assert (await step(store, run_id)).output == b'"twin"'


async def test_a_step_that_backs_off_takes_its_twins_success(store: Store) -> None:
    """Its attempt failed, and the twin's success makes another one unnecessary."""
    run_id = await begin(store, running_call(1))
    twin = await twinned(store, run_id)
    await store.batches.commit(A, [RetryStep(run_id, 1, 1, 60.0, "failed", '{"type": "x", "message": "y"}')])
    assert await win(store, twin) is Answer.ACCEPTED
    after = await step(store, run_id)
    assert (after.state, after.error) == (StepState.SUCCEEDED, None)
    assert await store.agents.claim_steps(C, [1], LIMIT) == []


async def test_the_twin_of_a_lost_agent_is_swept(store: Store) -> None:
    """What that agent still writes about it is refused, and nobody claims it again."""
    run_id = await begin(store, running_call(1))
    twin = await twinned(store, run_id, agent=C)
    epoch = await lead(store)
    assert await reclaim(store, C, epoch, "gone", 3, LIMIT) is not None
    assert await win(store, twin, agent=C) is Answer.FENCED
    assert await store.twins.sweep_twins(epoch + 1, LIMIT) == 0
    assert await store.twins.sweep_twins(epoch, LIMIT) == 1
    assert await twin_of(store, run_id) is TwinState.OUTRUN
    assert (await step(store, run_id)).state is StepState.RUNNING
    assert await broken(store) == set()


async def test_a_swept_twin_cannot_win(store: Store) -> None:
    """Its fence was raised, so its agent is refused even if it is alive."""
    run_id = await begin(store, running_call(1))
    twin = await twinned(store, run_id)
    await store.twins.stop_twin(run_id, 1)
    assert await store.twins.lost_twins(B, [(run_id, 1, twin.fence)]) == [(run_id, 1)]
    assert await win(store, twin) is Answer.FENCED
    assert (await step(store, run_id)).state is StepState.RUNNING


async def test_a_twin_that_fails_leaves_the_step_alone(store: Store) -> None:
    """It changes nothing, and no attempt counts."""
    run_id = await begin(store, running_call(1))
    before = await step(store, run_id)
    twin = await twinned(store, run_id)
    ended = await store.twins.end_twin(B, (run_id, 1, twin.fence), TwinState.FAILED, None, "")
    assert ended is Answer.ACCEPTED
    assert await step(store, run_id) == before
    assert await twin_of(store, run_id) is TwinState.FAILED


async def test_a_step_about_to_fail_bars_its_twin(store: Store) -> None:
    """No twin may begin any more, whether it was made or not. If one has begun, the answer says so."""
    none, made, begun = [await begin(store, running_call(1)) for _ in range(3)]
    epoch = await lead(store)
    assert (await store.twins.bar_twin(none, 1)).started_at is None
    assert await store.twins.make_twins(epoch, [(none, 1, 1)]) == []
    await store.twins.make_twins(epoch, [(made, 1, 1)])
    assert (await store.twins.bar_twin(made, 1)).started_at is None
    assert await store.twins.claim_twins(B, [1], LIMIT) == []
    twin = await twinned(store, begun)
    seen = await store.twins.bar_twin(begun, 1)
    assert (seen.state, seen.agent, seen.ended_at) == (TwinState.RUNNING, B, None)
    assert await win(store, twin) is Answer.ACCEPTED
    assert (await store.twins.bar_twin(begun, 1)).ended_at is not None


@pytest.mark.parametrize("end", ["cancelled", "dropped", "continued"])
async def test_the_end_of_the_run_ends_the_twin(store: Store, end: str) -> None:
    """Its success comes too late. Nothing is written into a step that was dropped, or into a later generation."""
    run_id = await begin(store, running_call(1))
    twin = await twinned(store, run_id)
    hop = {
        "cancelled": Hop(run_id, 1, dropped=[1], close=closing(RunState.CANCELLED)),
        "dropped": Hop(run_id, 1, dropped=[1], issued=[call(2)]),
        "continued": Hop(run_id, 1, next_input=b"{}", begun_at=0.0, issued=[]),
    }[end]
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    assert await store.twins.lost_twins(B, [(run_id, 1, twin.fence)]) == [(run_id, 1)]
    before = await store.reads.steps(run_id)
    assert await win(store, twin) is Answer.FENCED
    assert await store.reads.steps(run_id) == before
    assert await broken(store) == set()


async def test_pruning_removes_the_twins_with_the_run(store: Store) -> None:
    """No row of a run is left."""
    run_id = await begin(store, running_call(1))
    await win(store, await twinned(store, run_id))
    await store.batches.commit(A, [Hop(run_id, 1, outcomes=[delivered(1, 1)], close=closing())])
    gone = await store.retention.prune(
        None, actor="me", state="succeeded", before=1e11, after=(0.0, ""), runs_max=10, rows_max=100
    )
    assert gone.runs == 1
    assert await store.twins.twins(run_id) == []
    assert await broken(store) == set()


@pytest.mark.parametrize(
    ("scope", "value"),
    [
        (HoldScope.ALL, ""),
        (HoldScope.WORKFLOW, WORKFLOW),
        (HoldScope.STEP, "shop.charge"),
        (HoldScope.NAMESPACE, "default"),
        (HoldScope.DEPENDENCY, "bank"),
    ],
)
async def test_the_same_gates_apply_to_a_twin(store: Store, scope: HoldScope, value: str) -> None:
    """The twin of a held step does not begin before the release."""
    lane = await number_lane(store, "shop.charge", (), depends="bank")
    run_id = await begin(store, running_call(1, lane=lane))
    await store.twins.make_twins(await lead(store), [(run_id, 1, 1)])
    await store.gates.add_hold(scope, value, "me", "")
    assert await store.twins.claim_twins(B, [lane], LIMIT) == []
    await store.gates.remove_hold(scope, value, "me", "")
    await store.gates.force_breaker("bank", BreakerState.OPEN, "me", "")
    assert await store.twins.claim_twins(B, [lane], LIMIT) == []
    await store.gates.force_breaker("bank", BreakerState.CLOSED, "me", "")
    assert len(await store.twins.claim_twins(B, [lane], LIMIT)) == 1


async def test_a_step_that_lost_an_agent_gets_no_twin(store: Store) -> None:
    """The step may be what kills agents."""
    run_id = await begin(store, running_call(1), node=C)
    epoch = await lead(store)
    assert await reclaim(store, C, epoch, "gone", 3, LIMIT) is not None
    (again,) = await store.agents.claim_steps(A, [1], LIMIT)
    assert await store.twins.make_twins(epoch, [(run_id, 1, again.fence)]) == []


async def test_a_step_in_quarantine_waits_for_a_person(store: Store, tamper: Tamper) -> None:
    """It does not wait for its twin, which is swept up and cannot win."""
    run_id = await begin(store, running_call(1))
    twin = await twinned(store, run_id)
    await store.batches.commit(A, [HandBack(run_id, 1, 1)])
    never = NEVER if store.url.startswith("sqlite") else f"to_timestamp({NEVER})"
    tamper(f"UPDATE steps SET ready_at = {never}")
    assert await win(store, twin) is Answer.FENCED
    assert (await step(store, run_id)).quarantined
    assert await twin_of(store, run_id) is TwinState.OUTRUN


async def test_the_oldest_twin_is_claimed_first(store: Store) -> None:
    """Neither its lane nor the order of the lanes in the claim matters."""
    run_id = await begin(store, running_call(1, lane=2), running_call(2, lane=1))
    epoch = await lead(store)
    for n in (1, 2):
        assert await store.twins.make_twins(epoch, [(run_id, n, 1)]) == [(run_id, n)]
    (first,) = await store.twins.claim_twins(B, [1, 2], 1)
    assert first.n == 1


async def test_a_repeated_win_is_a_duplicate(store: Store) -> None:
    """That is so even if its agent was retired since. The outcome is recorded, and only the answer got lost."""
    run_id = await begin(store, running_call(1))
    twin = await twinned(store, run_id)
    assert await win(store, twin) is Answer.ACCEPTED
    await store.nodes.retire(B)
    assert await win(store, twin) is Answer.DUPLICATE
