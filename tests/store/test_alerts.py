"""Alerts. An open alert is raised once, and is sent through an outbox that only the holder of its lease writes."""

import pytest

from holdfast.model import Alert, AlertKind, Level, NewAlert, NewSignal, Outcome, RunState, StepState
from holdfast.store.answers import AlertRoute, Answer
from holdfast.store.operations import Hop
from holdfast.store.store import Store
from tests.store.conftest import Tamper
from tests.store.made import (
    ENVIRONMENT,
    LONG_S,
    A,
    B,
    C,
    D,
    begin,
    broken,
    call,
    child,
    closing,
    end_overdue,
    join,
    new_id,
    new_run,
    number_lane,
    parked,
    reclaim,
    report,
    running_call,
    start,
    succeeded,
    timer,
    wait,
)

FAILURE = '{"type": "builtins.ValueError", "message": "bad card"}'


def alert(key: str = "k", times: int = 1) -> NewAlert:
    return NewAlert(AlertKind.RUN_FAILED, Level.ERROR, key, "it failed", "r", times)


async def lead(store: Store, node: str = A, lease: str = "leader", lease_s: float = LONG_S) -> int:
    epoch = await store.leader.lead(node, lease_s, lease)
    assert epoch is not None
    return epoch


async def raised(store: Store, key: str = "k") -> Alert:
    assert await store.alerts.raise_alerts(await lead(store), [alert(key)])
    return (await store.alerts.open_alerts(10))[0]


async def test_an_open_alert_is_raised_once_and_counted(store: Store) -> None:
    """Until it is cleared, the same key is the same alert. After that it is a new one."""
    epoch = await lead(store)
    assert await store.alerts.raise_alerts(epoch, [alert(), alert("other")])
    assert await store.alerts.raise_alerts(epoch, [alert(times=3)])
    first = {one.key: one for one in await store.alerts.open_alerts(10)}
    assert {key: one.times for key, one in first.items()} == {"k": 4, "other": 1}
    assert first["k"].last_at >= first["k"].at
    assert await store.alerts.clear_alerts(epoch, [first["k"].id]) == 1
    assert await store.alerts.clear_alerts(epoch, [first["k"].id]) == 0
    assert [one.key for one in await store.alerts.open_alerts(10)] == ["other"]
    assert await store.alerts.raise_alerts(epoch, [alert()])
    assert [(one.key, one.times) for one in await store.alerts.alerts()] == [("k", 1), ("other", 1), ("k", 4)]


async def test_open_alerts_of_a_kind_are_read_in_parts(store: Store) -> None:
    """They come in the order of their ids, beginning after any id. Alerts of other kinds and cleared ones are left
    out."""
    epoch = await lead(store)
    others = [NewAlert(AlertKind.BACKLOG, Level.WARNING, f"b{i}", "it waits") for i in range(3)]
    await store.alerts.raise_alerts(
        epoch, [alert("k1"), others[0], alert("k2"), others[1], alert("k3"), others[2]]
    )
    first, second, third = await store.alerts.open_alerts_of(AlertKind.RUN_FAILED, 0, 10)
    assert [one.key for one in (first, second, third)] == ["k1", "k2", "k3"]
    assert await store.alerts.open_alerts_of(AlertKind.RUN_FAILED, 0, 2) == [first, second]
    assert await store.alerts.open_alerts_of(AlertKind.RUN_FAILED, second.id, 2) == [third]
    await store.alerts.clear_alerts(epoch, [second.id])
    assert await store.alerts.open_alerts_of(AlertKind.RUN_FAILED, 0, 10) == [first, third]
    assert await store.alerts.open_alerts_of(AlertKind.STRAGGLER, 0, 10) == []
    assert await store.alerts.open_kinds() == {AlertKind.RUN_FAILED, AlertKind.BACKLOG}
    await store.alerts.clear_alerts(epoch, [first.id, third.id])
    assert await store.alerts.open_kinds() == {AlertKind.BACKLOG}


async def test_a_deposed_leader_raises_clears_and_logs_nothing(store: Store) -> None:
    """Each write names its epoch. With an old one nothing is changed, and no failure is forgotten."""
    run_id = await begin(store)
    await store.batches.commit(A, [Hop(run_id, 1, close=closing(RunState.FAILED, error=FAILURE))])
    one = await raised(store)
    await store.leader.resign(A)
    old = await lead(store, B, lease_s=-1.0)
    await lead(store, C)
    notes = await store.alerts.failures(10)
    assert not await store.alerts.raise_alerts(old, [alert("new")], [note.id for note in notes])
    assert await store.alerts.clear_alerts(old, [one.id]) == 0
    assert await store.alerts.log_alerts(old, 10) == []
    assert await store.alerts.open_alerts(10) == [one]
    assert [note.id for note in await store.alerts.failures(10)] == [note.id for note in notes]


async def test_failures_are_noted_with_what_fails(store: Store) -> None:
    """A failed or undone run, and a step that fails through its agent or in a hop, are noted in the same commit. A run
    that succeeds is not noted, and neither is a child."""
    by_hop, by_agent = await begin(store, running_call(1)), await begin(store, running_call(1))
    failed = Outcome("", 1, StepState.FAILED, None, FAILURE, ENVIRONMENT.now(), 1, 1)
    hop = Hop(by_hop, 1, outcomes=[failed], close=closing(RunState.FAILED, error=FAILURE))
    report = Outcome(by_agent, 1, StepState.FAILED, None, FAILURE, ENVIRONMENT.now(), 1)
    assert await store.batches.commit(A, [hop, report]) == [Answer.ACCEPTED] * 2
    parent = await begin(store, child(1))
    family = new_run(parent_id=parent, parent_n=1)
    await begin(store, run=family)
    close = closing(RunState.FAILED, error=FAILURE, parent_id=parent, parent_n=1)
    good = await begin(store, running_call(1))
    assert await store.batches.commit(
        A, [Hop(family.id, 1, close=close), Hop(good, 1, outcomes=[succeeded(1, 1, 1)], close=closing())]
    )
    notes = {(note.run_id, note.n): note for note in await store.alerts.failures(10)}
    assert set(notes) == {(by_hop, 1), (by_hop, 0), (by_agent, 1)}
    whole, step = notes[by_hop, 0], notes[by_agent, 1]
    assert (whole.workflow, whole.state, whole.error) == ("shop.order", "failed", FAILURE)
    assert (step.key, step.name, step.attempt, step.attempts_max) == ("charge#1", "shop.charge", 1, 3)
    assert await store.alerts.raise_alerts(await lead(store), [], [note.id for note in notes.values()])
    assert await store.alerts.failures(10) == []


async def test_a_refused_commit_notes_nothing(store: Store) -> None:
    """A late report leaves no failure."""
    run_id = await begin(store, running_call(1))
    report = Outcome(run_id, 1, StepState.FAILED, None, FAILURE, ENVIRONMENT.now(), 7)
    assert await store.batches.commit(A, [report]) == [Answer.FENCED]
    assert await store.alerts.failures(10) == []


async def test_what_the_supervisor_lets_fail_is_noted(store: Store) -> None:
    """That is a step that lost its agents too often, and one whose last attempt is overdue."""
    epoch = await lead(store)
    await join(store, D, lease_s=-1.0)
    lost = await begin(store, running_call(1), node=D)
    late = await begin(store, running_call(1, timeout_s=-60.0, attempts_max=1))
    await reclaim(store, D, epoch, "gone", 0, 100)
    await end_overdue(store, epoch, 0.0, 100)
    assert {(note.run_id, note.n) for note in await store.alerts.failures(10)} == {(lost, 1), (late, 1)}


async def test_a_reclaimed_node_is_an_alert(store: Store) -> None:
    """The alert is raised in the transaction that reclaims the node. All nodes of a host share one."""
    epoch = await lead(store)
    for node in (D, "node-e"):
        await join(store, node, lease_s=-1.0)
        await reclaim(store, node, epoch, "its process is gone", 3, 100)
    (one,) = await store.alerts.open_alerts(10)
    assert (one.kind, one.level, one.key, one.times) == ("agent offline", "warning", "agent offline:here", 2)
    assert D in one.message
    assert "its process is gone" in one.message


async def test_a_stuck_run_is_an_alert_until_it_is_steered(store: Store) -> None:
    """The commit that makes the run stuck raises the alert, and the commit that lets it go on clears it."""
    run_id = await begin(store)
    assert await store.batches.commit(A, [Hop(run_id, 1, close=closing(RunState.STUCK, error=FAILURE))])
    (one,) = await store.alerts.open_alerts(10)
    assert (one.kind, one.run_id, one.key, one.level) == ("run stuck", run_id, f"run stuck:{run_id}", "error")
    await store.operators.steer_undo(run_id, "retry", None, "tester", "")
    assert await store.alerts.open_alerts(10) == []


async def test_each_alert_is_logged_once(store: Store) -> None:
    """Whoever leads next does not repeat it."""
    epoch = await lead(store)
    await store.alerts.raise_alerts(epoch, [alert(), alert("other")])
    assert [one.key for one in await store.alerts.log_alerts(epoch, 10)] == ["k", "other"]
    assert await store.alerts.log_alerts(epoch, 10) == []


async def test_a_step_that_waits_too_long_is_found(store: Store, tamper: Tamper) -> None:
    """The oldest step of each lane is found, unless its run is held. A step that backs off does not wait."""
    lane, other = (
        await number_lane(store, "shop.charge", ()),
        await number_lane(store, "shop.print", ("printer",)),
    )
    old = await begin(store, call(1, lane=lane), call(2, lane=lane, priority=5))
    frozen = await begin(store, call(1, lane=lane))
    await begin(store, call(1, lane=other, ready_at=ENVIRONMENT.now() + 60))
    back = "now() - interval '{} s'" if store.url.startswith("postgres") else "unixepoch() - {}"
    for run_id, age in ((old, 100), (frozen, 900)):
        tamper(f"UPDATE steps SET ready_at = {back.format(age)} WHERE run_id = '{run_id}' AND n = 1")
    await store.operators.hold(frozen, "tester", "")
    (found,) = await store.alerts.late_steps(60.0, 10)
    assert (found.what, found.run_id) == ("shop.charge", old)
    assert await store.alerts.late_steps(200.0, 10) == []
    assert await store.alerts.late_steps(60.0, 1) == [found]  # a held step does not hide the one behind it


async def test_a_run_that_waits_too_long_is_found(store: Store, tamper: Tamper) -> None:
    """The oldest run of each workflow and version that has never begun is found, whatever its priority."""
    runs = [
        new_run(workflow="a", priority=3),
        new_run(workflow="a"),
        new_run(workflow="b", version="2"),
        new_run(workflow="b", version="3"),
    ]
    for run in runs:
        await start(store, run)
    back = "now() - interval '{} s'" if store.url.startswith("postgres") else "unixepoch() - {}"
    for run, age in zip(runs, (70, 100, 80, 1), strict=True):
        tamper(f"UPDATE runs SET created_at = {back.format(age)} WHERE id = '{run.id}'")
    found = {(one.what, one.run_id) for one in await store.alerts.late_runs(60.0, 10)}
    assert {("a@1", runs[1].id), ("b@2", runs[2].id)} <= found
    assert {what for what, _ in found} == {"a@1", "b@2"}
    tamper(f"UPDATE runs SET started_at = created_at WHERE id = '{runs[1].id}'")
    await start(store, again := new_run(workflow="a"))
    tamper(f"UPDATE runs SET created_at = {back.format(90)} WHERE id = '{again.id}'")
    assert ("a@1", again.id) in {(one.what, one.run_id) for one in await store.alerts.late_runs(60.0, 10)}
    (oldest,) = await store.alerts.late_runs(60.0, 1)
    assert oldest.run_id == again.id  # a run that has begun before does not hide the one behind it
    tamper("UPDATE runs SET started_at = created_at")
    assert await store.alerts.late_runs(60.0, 10) == []


async def test_a_run_whose_outcome_nobody_delivers_is_found(store: Store, tamper: Tamper) -> None:
    """A begun run without an owner is found if an outcome, a signal or a due timer waits for it too long. A run that is
    owned or held, or got it just now, is not found."""
    now = ENVIRONMENT.now()
    outcome = await begin(store, running_call(1), run=new_run(workflow="outcome"))
    signal = await parked(store, wait(1), run=new_run(workflow="signal"))
    timer_due = await parked(store, timer(1, now - 100), run=new_run(workflow="timer"))
    owned = await begin(store, running_call(1), run=new_run(workflow="owned"))
    frozen = await begin(store, running_call(1), run=new_run(workflow="frozen"))
    for run_id in (outcome, owned, frozen):
        assert await store.batches.commit(A, [report(run_id, 1, 1)]) == [Answer.ACCEPTED]
    assert await store.batches.commit(A, [Hop(outcome, 1, park=True)]) == [Answer.ACCEPTED]
    await store.operators.send_signal(NewSignal(signal, "paid", "k", b"1"))
    await store.operators.hold(frozen, "tester", "")
    assert [one.what for one in await store.alerts.late_wakes(60.0, 100, 10)] == ["timer@1"]
    back = "now() - interval '90 s'" if store.url.startswith("postgres") else "unixepoch() - 90"
    tamper(f"UPDATE steps SET finished_at = {back} WHERE finished_at IS NOT NULL")
    tamper(f"UPDATE signals SET sent_at = {back}")
    found = {one.what: one.run_id for one in await store.alerts.late_wakes(60.0, 100, 10)}
    assert found == {"outcome@1": outcome, "signal@1": signal, "timer@1": timer_due}
    assert await store.alerts.late_wakes(200.0, 100, 10) == []


async def test_a_run_that_its_scheduler_holds_is_noted(store: Store) -> None:
    """The commit that holds it notes that. It is not noted if an operator holds a run, because the operator knows."""
    by_itself, by_hand = await begin(store), await begin(store)
    assert await store.schedulers.hold_run(by_itself, 1, "{}") is Answer.ACCEPTED
    await store.operators.hold(by_hand, "ann", "")
    (note,) = await store.alerts.failures(10)
    assert (note.run_id, note.n, note.state) == (by_itself, 0, "held")


# --- the outbox -----------------------------------------------------------------------------------------------------


async def routed(store: Store, epoch: int, *channels: str) -> Alert:
    one = await raised(store)
    route = AlertRoute(one.id, "raised", 1, [(new_id(), channel) for channel in channels])
    assert await store.alerts.route_alerts(epoch, [route]) == 1
    return one


async def test_an_alert_is_routed_once(store: Store) -> None:
    """First that it was raised, then that it was cleared. Routing the same again adds nothing."""
    epoch = await lead(store, B, "alerts")
    one = await routed(store, epoch, "ops", "mail")
    assert await store.alerts.unrouted_alerts(10) == []
    assert await store.alerts.route_alerts(epoch, [AlertRoute(one.id, "raised", 1, [(new_id(), "ops")])]) == 0
    assert sorted((row.channel, row.event) for row in await store.alerts.deliveries([one.id])) == [
        ("mail", "raised"),
        ("ops", "raised"),
    ]
    await store.alerts.clear_alerts(await lead(store), [one.id])
    ((far, cleared),) = await store.alerts.unrouted_alerts(10)
    assert (far, cleared.id, cleared.cleared_at is not None) == (1, one.id, True)
    await store.alerts.route_alerts(epoch, [AlertRoute(one.id, "cleared", 2)])
    assert await store.alerts.unrouted_alerts(10) == []


async def test_alerts_are_routed_oldest_first_and_no_more_than_asked_for(store: Store) -> None:
    """A flood of alerts is routed in parts."""
    await store.alerts.raise_alerts(await lead(store), [alert(key) for key in "abc"])
    assert [one.key for _, one in await store.alerts.unrouted_alerts(2)] == ["a", "b"]


async def test_deliveries_are_listed_by_their_ids(store: Store) -> None:
    """The order of the alerts that are asked for does not matter."""
    epoch, leader = await lead(store, B, "alerts"), await lead(store)
    await store.alerts.raise_alerts(leader, [alert(), alert("other")])
    newer, older = await store.alerts.open_alerts(10)
    for one, name in ((newer, "d1"), (older, "d2"), (newer, "d3")):
        event = "cleared" if name == "d3" else "raised"
        await store.alerts.route_alerts(epoch, [AlertRoute(one.id, event, 1, [(name, "ops")])])
    for asked in ([newer.id, older.id], [older.id, newer.id]):
        assert [one.id for one in await store.alerts.deliveries(asked)] == ["d1", "d2", "d3"]


async def test_a_delivery_is_claimed_by_one_and_comes_again_unless_ended(store: Store, other: Store) -> None:
    """A claim counts as an attempt, and nobody else gets the delivery meanwhile. If nobody ends it, it is due again."""
    epoch = await lead(store, B, "alerts")
    one = await routed(store, epoch, "ops")
    (sending,) = await store.alerts.claim_deliveries(epoch, "ops", 10, 60.0)
    assert (sending.attempt, sending.event, sending.alert.id) == (1, "raised", one.id)
    assert await other.alerts.claim_deliveries(epoch, "ops", 10, 60.0) == []
    assert await store.alerts.claim_deliveries(epoch, "mail", 10, 60.0) == []
    assert await store.alerts.end_delivery(epoch, sending.id, 1, "refused", -1.0)
    (again,) = await other.alerts.claim_deliveries(epoch, "ops", 10, -1.0)
    assert (again.id, again.attempt) == (sending.id, 2)
    (crashed,) = await store.alerts.claim_deliveries(epoch, "ops", 10, 60.0)
    assert crashed.attempt == 3
    assert not await store.alerts.end_delivery(epoch, sending.id, 2, None, None), (
        "an older try says nothing any more"
    )
    assert await store.alerts.end_delivery(epoch, sending.id, 3, None, None)
    (row,) = await store.alerts.deliveries([one.id])
    assert (row.attempts, row.sent_at is not None, row.last_error) == (3, True, None)
    assert (await store.alerts.open_alerts(10))[0].sent_at is not None
    assert await store.alerts.claim_deliveries(epoch, "ops", 10, -1.0) == []


async def test_a_delivery_is_given_up(store: Store) -> None:
    """It is not claimed again, and its row says why."""
    epoch = await lead(store, B, "alerts")
    one = await routed(store, epoch, "ops", "gone")
    (sending,) = await store.alerts.claim_deliveries(epoch, "ops", 10, -1.0)
    await store.alerts.end_delivery(epoch, sending.id, 1, "it answered 500", None)
    assert await store.alerts.claim_deliveries(epoch, "ops", 10, -1.0) == []
    assert await store.alerts.expire_deliveries(epoch, 3600.0) == 0
    assert await store.alerts.expire_deliveries(epoch, -60.0) == 1
    rows = {row.channel: row for row in await store.alerts.deliveries([one.id])}
    assert (rows["ops"].last_error, rows["gone"].last_error) == ("it answered 500", "nobody sent it")
    assert all(row.given_up_at is not None and row.sent_at is None for row in rows.values())


async def test_who_lost_the_outbox_claims_and_records_nothing(store: Store) -> None:
    """Each write checks the epoch of the lease `alerts`. The epoch of the leader's lease does not count."""
    old = await lead(store, B, "alerts")
    one = await routed(store, old, "ops")
    await store.leader.resign(B)
    new = await lead(store, C, "alerts")
    assert new > old
    assert await store.leader.lead(B, LONG_S, "alerts") is None
    before = await store.alerts.deliveries([one.id])
    assert await store.alerts.claim_deliveries(old, "ops", 10, 60.0) == []
    assert await store.alerts.route_alerts(old, [AlertRoute(one.id, "cleared", 2, [(new_id(), "ops")])]) == 0
    assert not await store.alerts.end_delivery(old, before[0].id, 0, None, None)
    assert await store.alerts.expire_deliveries(old, -60.0) == 0
    assert await store.alerts.deliveries([one.id]) == before


async def test_an_operator_clears_an_alert(store: Store) -> None:
    """Once, and the journal says who."""
    one = await raised(store)
    assert await store.alerts.clear_alert(one.id, "tester")
    assert not await store.alerts.clear_alert(one.id, "tester")
    assert any((row.actor, row.verb) == ("tester", "clear") for row in await store.reads.journal("r"))


@pytest.mark.parametrize("lease", ["leader", "alerts"])
async def test_leases_are_apart(store: Store, lease: str) -> None:
    """The leader's lease and that of the outbox do not depend on each other. Resigning gives up both."""
    await lead(store, A, lease)
    other = "alerts" if lease == "leader" else "leader"
    await lead(store, B, other)
    assert await store.leader.lead(C, LONG_S, lease) is None
    await store.leader.resign(A)
    assert await store.leader.lead(C, LONG_S, lease) is not None
    assert await broken(store) == set()
