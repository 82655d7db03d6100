"""An agent writes only to steps that it has, and nobody else gets these steps."""

import asyncio

import pytest

from holdfast.model import Ending, Outcome, RunState, StepState
from holdfast.store.answers import Answer
from holdfast.store.operations import HandBack, Hop, RetryStep, Save
from holdfast.store.store import Store
from tests.store.made import (
    ENVIRONMENT,
    LONG_S,
    A,
    B,
    D,
    begin,
    call,
    join,
    new_run,
    number_lane,
    reclaim,
    report,
    report_of,
    running_call,
    start,
    step,
)


async def test_a_report_ends_the_step_and_waits_for_its_owner(store: Store) -> None:
    """The outcome is recorded but not delivered, and the run's owner finds it."""
    run_id = await begin(store, running_call(1))
    at = ENVIRONMENT.now()
    failed = Outcome(run_id, 1, StepState.FAILED, None, '{"type": "x"}', at, 1)
    assert await store.batches.commit(A, [failed]) == [Answer.ACCEPTED]
    row = await step(store, run_id)
    assert (row.state, row.error, row.fence, row.delivered_seq) == (
        StepState.FAILED,
        '{"type": "x"}',
        2,
        None,
    )
    assert row.finished_at == pytest.approx(at, abs=0.001)
    assert [one.n for one in (await store.schedulers.undelivered(A, 10)).steps] == [1]
    assert (await store.schedulers.undelivered(B, 10)).steps == []


async def test_a_repeated_report_is_a_duplicate(store: Store) -> None:
    """A report whose answer got lost can be repeated. It is a duplicate then, also after its outcome was delivered."""
    run_id = await begin(store, running_call(1))
    assert await store.batches.commit(A, [report(run_id, 1, 1)]) == [Answer.ACCEPTED]
    assert await store.batches.commit(A, [report(run_id, 1, 1)]) == [Answer.DUPLICATE]
    assert await store.reads.attempts(run_id) == []


async def test_a_stale_report_is_refused_and_remembered(store: Store) -> None:
    """A report with an old fence changes nothing, but an attempt is kept that says it came."""
    run_id = await begin(store, call(1))
    (claimed,) = await store.agents.claim_steps(B, [1], 10)
    await store.batches.commit(B, [HandBack(run_id, 1, claimed.fence)])
    (again,) = await store.agents.claim_steps(A, [1], 10)
    assert await store.batches.commit(B, [report_of(claimed)]) == [Answer.FENCED]
    assert [(one.ending, one.agent) for one in await store.reads.attempts(run_id)] == [(Ending.REFUSED, B)]
    assert await store.batches.commit(A, [report_of(again, b'"mine"')]) == [Answer.ACCEPTED]
    assert (await step(store, run_id)).output == b'"mine"'


async def test_a_report_about_nothing_is_fenced(store: Store) -> None:
    """A report about an unknown run or step is refused and leaves no row."""
    run_id = await begin(store)
    assert await store.batches.commit(A, [report("no-such-run", 1, 1)]) == [Answer.FENCED]
    assert await store.batches.commit(A, [report(run_id, 5, 1)]) == [Answer.FENCED]
    assert await store.reads.attempts(run_id) == await store.reads.attempts("no-such-run") == []


async def test_another_nodes_report_is_not_a_duplicate(store: Store) -> None:
    """Only the agent whose report was accepted gets the answer that it is a duplicate."""
    run_id = await begin(store, running_call(1))
    await store.batches.commit(A, [report(run_id, 1, 1)])
    assert await store.batches.commit(B, [report(run_id, 1, 1)]) == [Answer.FENCED]


async def test_a_failed_attempt_backs_off(store: Store) -> None:
    """A retry keeps the attempt, frees the step, and makes it ready only after a delay."""
    run_id = await begin(store, running_call(1))
    again = RetryStep(run_id, 1, 1, LONG_S, Ending.FAILED, '{"type": "x"}')
    assert await store.batches.commit(A, [again]) == [Answer.ACCEPTED]
    row = await step(store, run_id)
    assert (row.state, row.agent, row.fence, row.attempt, row.excused) == (StepState.READY, None, 2, 1, 0)
    assert row.ready_at == pytest.approx(await store.now() + LONG_S, abs=5)
    (kept,) = await store.reads.attempts(run_id)
    assert (kept.attempt, kept.ending, kept.agent, kept.error) == (1, Ending.FAILED, A, '{"type": "x"}')
    assert await store.agents.claim_steps(B, [1], 10) == []
    left_s = row.ready_at - await store.now()
    assert await store.agents.next_ready([1]) == pytest.approx(left_s, abs=5)
    assert await store.agents.next_ready([1], [run_id]) == pytest.approx(left_s, abs=5)
    assert await store.agents.next_ready([1], ["another"]) is None
    assert await store.batches.commit(A, [again]) == [Answer.FENCED]
    assert len(await store.reads.attempts(run_id)) == 1


async def test_an_excused_attempt_spends_no_budget(store: Store) -> None:
    """An excused attempt is counted separately."""
    run_id = await begin(store, running_call(1))
    await store.batches.commit(A, [RetryStep(run_id, 1, 1, 0.0, Ending.FAILED, None, excused=True)])
    (claimed,) = await store.agents.claim_steps(A, [1], 10)
    assert (claimed.attempt, claimed.excused, claimed.fence) == (2, 1, 3)


async def test_handing_back_costs_nothing(store: Store) -> None:
    """A draining agent's step is ready at once, and its attempt does not count."""
    run_id = await begin(store, running_call(1))
    assert await store.batches.commit(A, [HandBack(run_id, 1, 1)]) == [Answer.ACCEPTED]
    assert await store.batches.commit(A, [HandBack(run_id, 1, 1)]) == [Answer.FENCED]
    (claimed,) = await store.agents.claim_steps(B, [1], 10)
    assert claimed.attempt - claimed.losses - claimed.excused == 1
    assert await store.reads.attempts(run_id) == []


async def test_a_checkpoint_survives_the_attempt(store: Store) -> None:
    """The next attempt finds what one attempt saved. None leaves a column as it is, and saving does not raise the
    fence."""
    run_id = await begin(store, running_call(1))
    assert await store.batches.commit(A, [Save(run_id, 1, 1, checkpoint=b"7", progress="half")]) == [
        Answer.ACCEPTED
    ]
    assert await store.batches.commit(A, [Save(run_id, 1, 1, progress="most")]) == [Answer.ACCEPTED]
    assert (await step(store, run_id)).progress == "most"
    await store.batches.commit(A, [RetryStep(run_id, 1, 1, 0.0, Ending.FAILED, None)])
    assert await store.batches.commit(A, [Save(run_id, 1, 1, checkpoint=b"8")]) == [Answer.FENCED]
    (claimed,) = await store.agents.claim_steps(B, [1], 10)
    assert claimed.checkpoint == b"7"


async def test_two_saves_of_one_step_share_a_commit(store: Store) -> None:
    """The later one wins."""
    run_id = await begin(store, running_call(1))
    saves = [Save(run_id, 1, 1, progress="half"), Save(run_id, 1, 1, progress="most")]
    assert await store.batches.commit(A, saves) == [Answer.ACCEPTED] * 2
    assert (await step(store, run_id)).progress == "most"


async def test_a_claim_counts_the_attempt_and_sets_its_deadline(store: Store) -> None:
    """A claim changes these columns, and returns these values."""
    run_id = await begin(store, call(1, timeout_s=30.0, retry='{"delay_s": 1}'))
    (claimed,) = await store.agents.claim_steps(B, [1], 10)
    assert (claimed.run_id, claimed.n) == (run_id, 1)
    assert (claimed.attempt, claimed.fence, claimed.attempts_max, claimed.timeout_s) == (1, 1, 3, 30.0)
    assert (claimed.key, claimed.name, claimed.input, claimed.retry) == (
        "charge#1",
        "shop.charge",
        b"[1]",
        '{"delay_s": 1}',
    )
    row = await step(store, run_id)
    assert (row.state, row.agent) == (StepState.RUNNING, B)
    assert row.started_at is not None
    assert row.complete_by == pytest.approx(row.started_at + 30, abs=0.01)
    assert row.issued_at == pytest.approx(claimed.issued_at, abs=0.001)


async def test_steps_are_claimed_by_priority_then_age(store: Store) -> None:
    """The highest priority comes first, and within it the oldest step, over all lanes of the claim and no others."""
    wanted = [(0, 20.0, 1), (5, 30.0, 2), (5, 10.0, 1), (-1, 1.0, 1), (9, 5.0, 3), (0, 40.0, 2)]
    steps = [
        call(n, priority=priority, ready_at=ready_at, lane=lane)
        for n, (priority, ready_at, lane) in enumerate(wanted, 1)
    ]
    await begin(store, *steps)
    claimed = await store.agents.claim_steps(B, [1, 2], 4)
    assert sorted(one.n for one in claimed) == [1, 2, 3, 6]
    assert [one.n for one in await store.agents.claim_steps(B, [1, 2], 4)] == [4]
    assert await store.agents.claim_steps(B, [1, 2], 4) == []
    assert [one.n for one in await store.agents.claim_steps(B, [3], 4)] == [5]


async def test_higher_priority_that_backs_off_does_not_hide_what_is_due(store: Store) -> None:
    """Steps whose time has not come do not keep others of their lane waiting."""
    later = ENVIRONMENT.now() + LONG_S
    await begin(store, *(call(n, priority=9, ready_at=later) for n in range(1, 30)), call(30, ready_at=1.0))
    assert [one.n for one in await store.agents.claim_steps(B, [1], 1)] == [30]


async def test_no_lanes_no_steps(store: Store) -> None:
    """An agent that serves nothing gets nothing."""
    await begin(store, call(1))
    assert await store.agents.claim_steps(B, [], 10) == []
    assert await store.agents.next_ready([]) is None


async def test_two_claimers_never_get_the_same_step(store: Store, other: Store) -> None:
    """Simultaneous claims through two connections share the steps between them."""
    await begin(store, *(call(n) for n in range(1, 201)))

    async def take(through: Store, node: str) -> list[int]:
        got: list[int] = []
        for _ in range(30):
            got += [one.n for one in await through.agents.claim_steps(node, [1], 10)]
        return got

    first, second = await asyncio.gather(take(store, A), take(other, B))
    assert sorted(first + second) == list(range(1, 201))


async def test_a_step_handed_back_with_a_hold_holds_its_run(store: Store) -> None:
    """That is one commit, whoever owns the run, and it is noted and journalled. An agent that lost its lease cannot
    hold a run."""
    run_id = await begin(store, running_call(1), call(2))
    assert await store.batches.commit(B, [HandBack(run_id, 1, 7, hold="why")]) == [Answer.FENCED]
    assert await store.batches.commit(B, [HandBack(run_id, 1, 1, hold="why")]) == [Answer.ACCEPTED]
    run = await store.reads.run(run_id)
    assert run is not None
    assert (run.state, run.resume, run.owner, run.note) == (RunState.HELD, RunState.RUNNING, None, "why")
    assert [(step.state, step.spent) for step in await store.reads.steps(run_id)] == [
        ("ready", 0),
        ("ready", 0),
    ]
    assert [(note.run_id, note.n) for note in await store.alerts.failures(10)] == [(run_id, 0)]
    assert ("agent", "hold", "why") in [
        (row.actor, row.verb, row.note) for row in await store.reads.journal(run_id)
    ]
    assert await store.batches.commit(A, [Hop(run_id, 1, park=True)]) == [Answer.FENCED]
    assert await store.agents.claim_steps(B, [1], 9) == []


async def test_steps_of_a_held_run_are_not_claimed(store: Store) -> None:
    """A hold keeps steps from beginning, and its release lets them begin."""
    run_id = await begin(store, call(1))
    await store.operators.hold(run_id, "ann", "look first")
    assert await store.agents.claim_steps(B, [1], 10) == []
    await store.operators.release(run_id, "ann", "looked")
    assert await store.schedulers.claim_run(A, run_id) is not None
    assert [one.run_id for one in await store.agents.claim_steps(B, [1], 10)] == [run_id]


async def test_an_agent_learns_what_it_lost(store: Store) -> None:
    """The store names only the steps that the agent no longer has: it reported them, they were reclaimed, or they never
    existed."""
    run_id = await begin(store, running_call(1), running_call(2), running_call(3))
    await store.batches.commit(A, [report(run_id, 2, 1)])
    asked = [(run_id, 1, 1), (run_id, 2, 1), (run_id, 3, 9), ("no-such-run", 1, 1)]
    lost = await store.agents.lost_steps(asked)
    assert sorted(lost) == sorted([(run_id, 2), (run_id, 3), ("no-such-run", 1)])


async def test_a_lane_has_one_number(store: Store, other: Store) -> None:
    """The same needs get the same lane through any connection, and are read back unchanged."""
    first, second = await asyncio.gather(
        number_lane(store, "shop.charge", ("gpu",)), number_lane(other, "shop.charge", ("gpu",))
    )
    third = await number_lane(store, "shop.charge", ())
    assert first == second != third
    assert [(one.id, one.name, one.needs) for one in await other.agents.lanes() if one.id == first] == [
        (first, "shop.charge", ("gpu",))
    ]


async def test_a_pending_runs_step_is_not_there_to_claim(store: Store) -> None:
    """A started run has no steps before a scheduler has owned it."""
    await start(store, new_run())
    assert await store.agents.claim_steps(B, [0, 1], 10) == []


async def test_a_late_report_is_refused_after_reclaim(store: Store) -> None:
    """The agent was reclaimed, and another agent got its step. From then on, its reports are refused."""
    await join(store, D, lease_s=-1.0)
    run_id = await begin(store, call(1))
    (claimed,) = await store.agents.claim_steps(D, [1], 10)
    epoch = await store.leader.lead(A, LONG_S)
    assert epoch is not None
    await reclaim(store, D, epoch, "its process is gone", 3, 100)
    (again,) = await store.agents.claim_steps(A, [1], 10)
    assert (again.attempt, again.losses) == (2, 1)
    assert await store.batches.commit(D, [report_of(claimed, b'"late"')]) == [Answer.FENCED]
    assert await store.batches.commit(A, [report_of(again, b'"in time"')]) == [Answer.ACCEPTED]
    assert await store.batches.commit(D, [report_of(claimed, b'"late"')]) == [Answer.FENCED]
    assert (await step(store, run_id)).output == b'"in time"'
    assert {one.ending for one in await store.reads.attempts(run_id)} == {Ending.LOST, Ending.REFUSED}


async def test_steps_of_a_held_run_do_not_keep_others_waiting(store: Store) -> None:
    """A step is claimed however many steps of held runs come before it."""
    first = await begin(store, *(call(n) for n in range(1, 6)))
    await store.operators.hold(first, "me", "wait")
    second = await begin(store, call(1))
    claimed = await store.agents.claim_steps(A, [1], 2)
    assert [(one.run_id, one.n) for one in claimed] == [(second, 1)]


async def test_a_report_of_a_step_dropped_after_it_is_a_duplicate(store: Store) -> None:
    """A repeated report is a duplicate even if the run has stopped waiting for the step meanwhile."""
    run_id = await begin(store, running_call(1))
    assert await store.batches.commit(A, [report(run_id, 1, 1)]) == [Answer.ACCEPTED]
    assert await store.batches.commit(A, [Hop(run_id, 1, dropped=[1])]) == [Answer.ACCEPTED]
    assert await store.batches.commit(A, [report(run_id, 1, 1)]) == [Answer.DUPLICATE]
    assert await store.reads.attempts(run_id) == []
