"""The supervisor acts only while it leads, and only on nodes that are gone and attempts that are overdue."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.environment import Environment
from holdfast.errors import StoreUnreachable
from holdfast.model import Ending, NewSignal, RunState, StepState
from holdfast.policy import Retry, fingerprint
from holdfast.store import open_store
from holdfast.store.answers import Answer, ClaimedStep, Reclaimed
from holdfast.store.bell import Bell
from holdfast.store.operations import Hop
from holdfast.store.store import Store
from holdfast.supervisor.reclaim import Death
from tests.store.conftest import Tamper, run_sql
from tests.store.made import (
    LONG_S,
    SERVED,
    A,
    B,
    C,
    D,
    begin,
    broken,
    call,
    closing,
    deaths,
    end_overdue,
    ids,
    join,
    new_id,
    reclaim,
    report,
    report_of,
    running_call,
    say_gone,
    start,
    step,
    succeeded,
    wait,
)


async def lead(store: Store, node: str = A, lease_s: float = LONG_S) -> int:
    epoch = await store.leader.lead(node, lease_s)
    assert epoch is not None
    return epoch


async def test_one_node_leads(store: Store) -> None:
    """The first node that asks leads, and goes on leading in the same epoch. The others do not lead."""
    epoch = await lead(store)
    assert await store.leader.lead(B, LONG_S) is None
    assert await lead(store) == epoch
    leader = await store.leader.leader()
    assert leader is not None
    assert leader[:2] == (A, epoch)
    assert leader[2] > await store.now()


async def test_two_candidates_get_one_leader(store: Store, other: Store) -> None:
    """If two nodes ask at the same time through two connections, there is one epoch and one leader."""
    answers = await asyncio.gather(store.leader.lead(B, LONG_S), other.leader.lead(C, LONG_S))
    assert sorted(answer is None for answer in answers) == [False, True]


async def test_an_expired_lease_is_taken_with_a_new_epoch(store: Store) -> None:
    """A leader whose lease has run out is deposed. Even if it comes back first, it leads in a new epoch."""
    first = await lead(store, B, -1.0)
    second = await lead(store, C, -1.0)
    third = await lead(store, C, LONG_S)
    assert first < second < third
    assert await store.leader.lead(B, LONG_S) is None


async def test_a_leader_that_resigns_is_succeeded_at_once(store: Store) -> None:
    """Only the leader itself can resign."""
    epoch = await lead(store)
    await store.leader.resign(B)
    assert await store.leader.lead(B, LONG_S) is None
    await store.leader.resign(A)
    assert await store.leader.leader() is None
    assert await lead(store, B) > epoch


async def test_a_takeover_says_how_long_nobody_led(store: Store, tamper: Tamper) -> None:
    """The lease says since when its holder leads, who led before, and for how long that one had not renewed. Renewing
    does not change this. A leader that resigned was not lost."""
    first = await lead(store, B)
    leader = await store.leader.leader()
    assert leader is not None
    assert (leader.vacant_s, leader.predecessor) == (None, None)
    interval = " - interval '40 seconds'" if store.url.startswith("postgresql") else " - 40"
    tamper(
        f"UPDATE leases SET renewed_at = renewed_at{interval}, expires_at = expires_at{interval}{interval * 100}"
    )
    assert await lead(store, C) == first + 1
    taken = await store.leader.leader()
    assert taken is not None
    assert taken.vacant_s is not None
    assert taken.since is not None
    assert taken.predecessor == B
    assert 40 <= taken.vacant_s < 70
    assert taken.since >= (leader.since or 0)
    assert await lead(store, C) == first + 1
    kept = await store.leader.leader()
    assert kept is not None
    assert kept._replace(expires_at=0) == taken._replace(expires_at=0)
    await store.leader.resign(C)
    await lead(store, A)
    after = await store.leader.leader()
    assert after is not None
    assert after.vacant_s is not None
    assert after.predecessor is None
    assert after.vacant_s < 30
    await lead(store, A)
    tamper(f"UPDATE leases SET renewed_at = renewed_at{interval}")
    await store.nodes.retire(A)
    await lead(store, B)
    last = await store.leader.leader()
    assert last is not None
    assert last.vacant_s is not None
    assert (last.predecessor, last.vacant_s < 30) == (None, True)  # a leader that leaves resigns


async def test_a_leader_whose_process_is_gone_is_succeeded_at_once(store: Store) -> None:
    """Nobody waits for a dead leader's lease."""
    await join(store, D)
    epoch = await lead(store, D)
    assert await store.leader.lead(A, LONG_S) is None
    await say_gone(store.url, D)
    assert await lead(store) > epoch


async def test_a_node_whose_lease_ran_out_is_gone(store: Store) -> None:
    """If nobody says that its process is gone, the lease counts."""
    await join(store, D, lease_s=-1.0)
    assert (await deaths(store))[D] == Death.LAPSED


async def test_a_node_whose_process_ended_is_gone_before_its_lease_ends(store: Store) -> None:
    """Its heart says so in the store."""
    await join(store, D)
    assert await deaths(store) == {}
    await say_gone(store.url, D)
    assert await deaths(store) == {D: Death.GONE}
    assert await store.nodes.renew(D, LONG_S) is None
    (node,) = [node for node in await store.nodes.nodes() if node.id == D]
    assert node.lease_until <= await store.now()


async def test_nothing_is_said_of_a_node_that_left(store: Store) -> None:
    """Its heart may come late. A node that retired is not counted as gone."""
    await join(store, D)
    await store.nodes.retire(D)
    await say_gone(store.url, D)
    assert await deaths(store) == {}


async def test_a_file_lock_vanishes_with_its_process(tmp_path: Path) -> None:
    """On one host the kernel releases the lock, even if the heart died together with its node."""
    url = f"sqlite:///{tmp_path}/holdfast.db"
    looking, doomed = open_store(url, Environment()), open_store(url, Environment())
    for store in (looking, doomed):
        await store.open()
    await join(doomed, D)
    assert await deaths(looking) == {}
    epoch = await lead(doomed, D)
    await doomed.close()
    assert await deaths(looking) == {D: Death.GONE}
    assert await lead(looking) > epoch
    await looking.close()


async def test_a_lost_connection_says_nothing_of_a_process(pg_url: str) -> None:
    """A node is not gone because all its sessions were terminated. Only its lease counts, and its writes are
    accepted."""
    looking, cut = open_store(pg_url, Environment()), open_store(pg_url, Environment())
    for store in (looking, cut):
        await store.open()
    await join(cut, D)
    await cut.nodes.listen(lambda bell: None)
    epoch = await lead(cut, D)
    run_sql(
        pg_url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    while True:
        with suppress(StoreUnreachable):
            assert await deaths(looking) == {}
            assert await looking.leader.lead(A, LONG_S) is None
            break
    while True:
        with suppress(StoreUnreachable):
            assert await cut.leader.lead(D, LONG_S) == epoch
            break
    for store in (looking, cut):
        await store.close()


async def test_whoever_listens_hears_again_after_a_cut(pg_url: str) -> None:
    """The listening connection is made again although nobody uses it. All bells ring then, because some may have been
    missed."""
    idle, other = open_store(pg_url, Environment()), open_store(pg_url, Environment())
    for store in (idle, other):
        await store.open()
    rung = asyncio.Event()
    await idle.nodes.listen(lambda bell: rung.set())
    for _ in range(3):
        rung.clear()
        run_sql(
            pg_url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'",
        )
        await asyncio.wait_for(rung.wait(), 20)
        rung.clear()
        await other.nodes.ring({Bell.RUNS})
        await asyncio.wait_for(rung.wait(), 20)
    for store in (idle, other):
        await store.close()


async def test_a_node_that_is_not_live_and_has_something_is_found(store: Store, tamper: Tamper) -> None:
    """The leader looks at who has steps and runs. A node that left or was never there, and still has something, is
    gone."""
    owned, assignment = await begin(store, node=B), await begin(store, running_call(1))
    tamper("UPDATE runs SET owner = 'never-registered' WHERE owner = 'node-b'")
    tamper("UPDATE steps SET agent = 'long-gone'")
    assert set(await deaths(store)) == {"never-registered", "long-gone"}
    epoch = await lead(store)
    for node in ("never-registered", "long-gone"):
        assert await reclaim(store, node, epoch, "it left", 3, 100) is not None
    assert (await step(store, assignment)).state is StepState.READY
    run = await store.reads.run(owned)
    assert run is not None
    assert run.owner is None
    assert await deaths(store) == {}


async def test_a_reclaimed_node_claims_nothing(store: Store) -> None:
    """A paused process that wakes up after it was reclaimed gets no work."""
    await join(store, D, lease_s=-1.0)
    await reclaim(store, D, await lead(store), "its lease ran out", 3, 100)
    await start(store)
    await begin(store, call(1))
    assert await store.schedulers.claim_runs(D, SERVED, 10) == []
    assert await store.agents.claim_steps(D, [1], 10) == []
    assert await store.nodes.renew(D, LONG_S) is None


async def test_a_node_that_is_gone_loses_its_runs_and_steps(store: Store) -> None:
    """The fences of both rise, the attempts are kept as lost, the node is retired, and the journal says so."""
    await join(store, D, lease_s=-1.0)
    run_id = await begin(store, running_call(1), call(2), wait(3), node=D)
    reclaimed = await reclaim(store, D, await lead(store), "its lease ran out", 3, 100)
    assert reclaimed is not None
    assert (reclaimed.runs, reclaimed.steps, reclaimed.failed) == (1, 1, 0)
    run = await store.reads.run(run_id)
    assert run is not None
    assert (run.owner, run.fence, run.state) == (None, 2, RunState.RUNNING)
    row = await step(store, run_id)
    assert (row.state, row.agent, row.fence, row.attempt, row.losses) == (StepState.READY, None, 2, 1, 1)
    assert [(one.ending, one.agent) for one in await store.reads.attempts(run_id)] == [(Ending.LOST, D)]
    assert await store.batches.commit(D, [Hop(run_id, 1, issued=[call(4)])]) == [Answer.FENCED]
    assert await store.batches.commit(D, [report(run_id, 1, 1)]) == [Answer.FENCED]
    assert sorted(one.n for one in await store.agents.claim_steps(A, [1], 10)) == [1, 2]
    assert D not in await deaths(store)
    (node,) = [one for one in await store.nodes.nodes() if one.id == D]
    assert node.retired_at is not None
    assert any(one.verb == "reclaim" and D in one.note for one in await store.reads.journal(None))
    assert await broken(store) == set()


async def test_a_deposed_leader_reclaims_nothing(store: Store) -> None:
    """A write with an old epoch is refused."""
    await join(store, D, lease_s=-1.0)
    run_id = await begin(store, running_call(1, timeout_s=-60.0), node=D)
    old = await lead(store, B, -1.0)
    await lead(store, C)
    before = await store.reads.run(run_id), await store.reads.steps(run_id)
    assert await reclaim(store, D, old, "", 3, 100) is None
    assert await end_overdue(store, old, 0.0, 100) == 0
    assert (await store.reads.run(run_id), await store.reads.steps(run_id)) == before


async def test_a_leader_whose_lease_lapsed_changes_nothing(store: Store) -> None:
    """A leader leads until a time on the store's clock, not until somebody else takes over."""
    await join(store, D, lease_s=-1.0)
    run_id = await begin(store, running_call(1), node=D)
    assert await reclaim(store, D, await lead(store, A, -1.0), "", 3, 100) is None
    assert (await step(store, run_id)).state is StepState.RUNNING


async def test_reclaiming_is_bounded_and_goes_on(store: Store) -> None:
    """At most `limit` runs and steps are reclaimed at a time. The node is not retired until it has nothing left."""
    await join(store, D, lease_s=-1.0)
    runs = [await begin(store, running_call(1), node=D) for _ in range(5)]
    epoch = await lead(store)
    counts = []
    for _ in range(4):
        reclaimed = await reclaim(store, D, epoch, "", 3, 2)
        assert reclaimed is not None
        counts.append((reclaimed.runs, reclaimed.steps))
        if D not in await deaths(store):
            break
    assert sum(runs for runs, _ in counts) == sum(steps for _, steps in counts) == 5
    assert all(part <= 2 for count in counts for part in count)
    assert all([(await step(store, run_id)).state is StepState.READY for run_id in runs])


async def test_a_node_that_still_has_a_step_or_a_run_is_not_retired(store: Store) -> None:
    """Neither if its runs are done with first, nor if its steps are."""
    epoch = await lead(store)
    for steps, runs in ((3, 1), (0, 3)):
        node = new_id()
        await join(store, node, lease_s=-1.0)
        for _ in range(runs):
            await begin(store, *(running_call(n + 1) for n in range(steps)), node=node)
        found = [await reclaim(store, node, epoch, "", 3, 2) for _ in range(2)]
        assert [one is not None and one.is_retired for one in found] == [False, True]


async def lose(store: Store, times: int, losses_max: int = 3) -> list[tuple[str, ClaimedStep]]:
    """Let agents claim what is ready and die, this many one after another. Return who claimed what."""
    claims = []
    for _ in range(times):
        node = new_id()
        await join(store, node, lease_s=-1.0)
        claims += [(node, one) for one in await store.agents.claim_steps(node, [1], 10)]
        await reclaim(store, node, await lead(store), "its process is gone", losses_max, 100)
        for run_id in {one.run_id for _, one in claims}:
            await store.operators.retry_now(run_id, "the test, which does not wait")
    return claims


async def test_a_step_that_kills_its_agents_is_quarantined(store: Store) -> None:
    """After more losses than allowed, the step is ready but never due, it is listed by its fingerprint, and a late
    report is refused. The rest of its run is not changed."""
    run_id = await begin(store, call(1), running_call(2))
    claims = await lose(store, 4, losses_max=2)
    assert [one.losses for _, one in claims] == [0, 1, 2]
    row = await step(store, run_id)
    assert (row.state, row.losses, row.attempt, row.quarantined) == (StepState.READY, 3, 3, True)
    error = json.loads(row.error or "")
    assert (error["type"], error["ending"]) == ("holdfast.errors.StepLost", "lost")
    for node, claimed in claims:
        assert await store.batches.commit(node, [report_of(claimed)]) == [Answer.FENCED]
    (one,) = await store.quarantine.quarantined(run_id)
    assert one.fingerprint == fingerprint("shop.charge", "holdfast.errors.StepLost", "agent lost")
    assert (one.n, one.step, one.place) == (1, "shop.charge", "agent lost")
    run = await store.reads.run(run_id)
    assert run is not None
    assert (run.state, run.owner, run.fence) == (RunState.RUNNING, A, 1)
    left_s = await store.agents.next_ready([1])
    assert left_s is None or left_s > 1000 * LONG_S, "only a person makes it ready"
    (entry,) = [entry for entry in await store.reads.journal(run_id) if entry.verb == "quarantine"]
    assert (entry.actor, entry.n, entry.note) == ("supervisor", 1, f"{one.fingerprint} agent lost")
    assert await broken(store) == set()


async def test_losses_back_off_after_the_first(store: Store) -> None:
    """After the first loss the step is ready at once, and later after growing delays."""
    run_id = await begin(store, running_call(1))
    waits = []
    for losses in range(3):
        before = await store.now()
        await reclaim(store, A if losses == 0 else f"{D}-{losses}", await lead(store), "", 9, 100)
        after, ready_at = await store.now(), (await step(store, run_id)).ready_at
        waits.append((ready_at - after, ready_at - before))
        await store.operators.retry_now(run_id, "the test")
        await join(store, f"{D}-{losses + 1}")
        assert len(await store.agents.claim_steps(f"{D}-{losses + 1}", [1], 10)) == 1
    for (least, most), meant in zip(waits, (0.0, 1.0, 2.0), strict=True):
        assert least <= meant <= most


@pytest.mark.parametrize(
    ("policy", "state"),
    [
        (Retry(losses=0), "quarantined"),
        (Retry(losses=0, quarantine=False), StepState.FAILED),
        (Retry(losses=1), StepState.READY),
    ],
)
async def test_a_policy_beside_the_step_has_its_own_budget_of_losses(
    store: Store, policy: Retry, state: str
) -> None:
    """The supervisor reads the policy from the step's row."""
    run_id = await begin(store, call(1, retry=policy.encode()))
    await lose(store, 1, losses_max=7)
    row = await step(store, run_id)
    assert ("quarantined" if row.quarantined else row.state) == state
    if row.state is StepState.FAILED:
        assert [one.n for one in (await store.schedulers.undelivered(A, 10)).steps] == [1]


async def test_a_run_whose_owner_died_before_its_first_hop_is_claimed_again(store: Store) -> None:
    """Nothing could wake a run that has not asked for anything yet. So it is pending again."""
    run_id = await start(store)
    await join(store, D, lease_s=-1.0)
    assert ids(await store.schedulers.claim_runs(D, SERVED, 10)) == [run_id]
    await reclaim(store, D, await lead(store), "", 3, 100)
    assert ids(await store.schedulers.claim_runs(A, SERVED, 10)) == [run_id]


async def test_a_retried_run_whose_owner_died_before_its_first_hop_is_claimed_again(store: Store) -> None:
    """The same is true for a run that began with a copied history. All of it is delivered, so none of it would wake the
    run."""
    first = await begin(store, running_call(1))
    await store.batches.commit(A, [Hop(first, 1, outcomes=[succeeded(1, 1, 1)])])
    await store.operators.cancel_run(first, "ann", "")
    run = await store.reads.run(first)
    assert run is not None
    (signal,) = (await store.schedulers.undelivered(A, 10)).signals
    await store.batches.commit(
        A, [Hop(first, 1, signals=[(signal.id, 2)], close=closing(RunState.CANCELLED))]
    )
    again = await store.operators.retry_run(first, "ann")
    await join(store, D, lease_s=-1.0)
    assert ids(await store.schedulers.claim_runs(D, SERVED, 10)) == [again]
    await reclaim(store, D, await lead(store), "", 3, 100)
    assert ids(await store.schedulers.claim_runs(A, SERVED, 10)) == [again]


async def test_an_overdue_attempt_is_ended(store: Store) -> None:
    """After the grace period the attempt has timed out, its step is ready again soon, and the agent's report is
    refused."""
    run_id = await begin(
        store, running_call(1, timeout_s=-60.0), running_call(2, timeout_s=LONG_S), running_call(3)
    )
    epoch = await lead(store)
    assert await end_overdue(store, epoch, LONG_S, 100) == 0
    assert await end_overdue(store, epoch, 2.0, 100) == 1
    rows = await store.reads.steps(run_id)
    assert [one.state for one in rows] == [StepState.READY, StepState.RUNNING, StepState.RUNNING]
    assert rows[0].agent is None
    assert rows[0].ready_at > rows[0].issued_at
    assert [(one.ending, one.agent) for one in await store.reads.attempts(run_id)] == [(Ending.TIMED_OUT, A)]
    assert await store.batches.commit(A, [report(run_id, 1, 1)]) == [Answer.FENCED]
    assert any(one.verb == "end_overdue" for one in await store.reads.journal(None))
    assert await end_overdue(store, epoch, 2.0, 100) == 0


async def test_an_overdue_attempt_that_was_the_last_fails_the_step(store: Store) -> None:
    """The budget counts attempts that were neither lost nor excused."""
    run_id = await begin(store, running_call(1, timeout_s=-60.0, attempts_max=1))
    assert await end_overdue(store, await lead(store), 2.0, 100) == 1
    row = await step(store, run_id)
    assert (row.state, row.delivered_seq) == (StepState.FAILED, None)
    assert json.loads(row.error or "")["type"] == "holdfast.errors.StepTimeout"
    assert await store.batches.commit(A, [report(run_id, 1, 1)]) == [Answer.FENCED]


async def test_timeouts_do_not_spend_the_steps_attempts(store: Store) -> None:
    """Timeouts have their own budget. It is as large as that of attempts, unless the policy has another one."""
    run_id = await begin(
        store,
        running_call(1, timeout_s=-60.0, attempts_max=2),
        running_call(2, timeout_s=-60.0, attempts_max=1),
    )
    epoch = await lead(store)
    assert await end_overdue(store, epoch, 2.0, 100) == 2
    first, second = await store.reads.steps(run_id)
    assert (first.state, first.timeouts, first.spent) == (StepState.READY, 1, 0)
    assert second.state is StepState.FAILED
    policy = Retry(attempts=1, timeouts=2).encode()
    other = await begin(store, running_call(1, timeout_s=-60.0, attempts_max=1, retry=policy))
    assert await end_overdue(store, epoch, 2.0, 100) == 1
    assert (await step(store, other)).state is StepState.READY
    assert await broken(store) == set()


async def test_an_overdue_step_goes_into_quarantine_if_its_policy_says_so(store: Store) -> None:
    """It does not matter which budget is used up."""
    policy = Retry(attempts=1, quarantine=True).encode()
    run_id = await begin(store, running_call(1, timeout_s=-60.0, attempts_max=1, retry=policy))
    assert await end_overdue(store, await lead(store), 2.0, 100) == 1
    assert (await step(store, run_id)).quarantined
    (one,) = await store.quarantine.quarantined(run_id)
    assert (one.error, one.place) == ("holdfast.errors.StepTimeout", "attempt overdue")


async def test_ending_overdue_attempts_is_bounded(store: Store) -> None:
    """One call ends no more than `limit` attempts."""
    await begin(store, *(running_call(n, timeout_s=-60.0) for n in range(1, 6)))
    epoch = await lead(store)
    assert [await end_overdue(store, epoch, 2.0, 2) for _ in range(4)] == [2, 2, 1, 0]


async def test_signals_that_came_too_late_are_closed(store: Store, tamper: Tamper) -> None:
    """Signals that an ended run never got are marked, and nobody finds them again. Only the leader does this."""
    live, over = await begin(store), await begin(store)
    for run_id in (live, over):
        await store.operators.send_signal(NewSignal(run_id, "paid", "k", b"1"))
    await store.batches.commit(A, [Hop(over, 1, close=closing())])
    tamper("UPDATE signals SET delivered_seq = NULL")
    epoch = await lead(store)
    assert await store.leader.close_signals(epoch + 1, 10) == 0
    assert await store.leader.close_signals(epoch, 10) == 1
    assert await store.leader.close_signals(epoch, 10) == 0
    assert [one.delivered_seq for one in await store.reads.signals(over)] == [0]
    assert [one.delivered_seq for one in await store.reads.signals(live)] == [None]


@pytest.mark.parametrize("node", [B, "no-such-node"])
async def test_reclaiming_a_node_that_has_nothing_does_no_harm(store: Store, node: str) -> None:
    """The node was reclaimed twice, or never existed."""
    epoch = await lead(store)
    for _ in range(2):
        reclaimed = await reclaim(store, node, epoch, "", 3, 100)
        assert reclaimed is not None
        assert (reclaimed.runs, reclaimed.steps, reclaimed.failed) == (0, 0, 0)


async def test_a_node_that_renewed_since_it_was_looked_at_is_not_reclaimed(store: Store) -> None:
    """A node may renew after the leader found that its lease had run out, and before it is reclaimed. It keeps what it
    has."""
    epoch = await lead(store)
    await join(store, D, lease_s=-1.0)
    run_id = await begin(store, running_call(), node=D)
    assert (await deaths(store))[D] == Death.LAPSED
    assert await store.nodes.renew(D, LONG_S) is not None
    assert await reclaim(store, D, epoch) == Reclaimed(0, 0, 0)
    assert (await step(store, run_id)).agent == D
    assert await reclaim(store, D, epoch, "its process is gone", 3, 100) == Reclaimed(
        1, 1, 0, is_retired=True
    )


async def test_a_leader_that_leaves_leads_no_more(store: Store) -> None:
    """A leader that retires gives up its lease, and nothing is accepted with its epoch any more."""
    epoch = await store.leader.lead(A, LONG_S)
    assert epoch is not None
    await store.nodes.retire(A)
    assert await store.leader.leader() is None
    assert await reclaim(store, B, epoch, "late", 3, 10) is None


async def test_reclaiming_a_node_that_left_and_has_something_is_journalled(
    store: Store, tamper: Tamper
) -> None:
    """The journal says what was reclaimed, whatever the node's row says. There is no entry if nothing was reclaimed."""
    await begin(store, running_call(1), node=B)
    at = "now()" if store.url.startswith("postgresql") else "unixepoch()"
    tamper(f"UPDATE nodes SET retired_at = {at} WHERE id = '{B}'")
    epoch = await lead(store, A)
    for _ in range(2):
        await reclaim(store, B, epoch, "it left and still holds something", 3, 100)
    notes = [entry.note for entry in await store.reads.journal(None) if entry.verb == "reclaim"]
    assert len(notes) == 1
    assert f"node {B}: it left and still holds something: 1 runs freed, 1 steps reclaimed" in notes[0]
