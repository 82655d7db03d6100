"""Schedules in the store: every time has one fate, in one transaction with its run, and only the leader decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from holdfast.config import DEFAULT
from holdfast.errors import Conflict, UnknownSchedule, WrongState
from holdfast.model import (
    AlertKind,
    BackfillState,
    FireFate,
    NewSchedule,
    RunState,
    ScheduleState,
)
from holdfast.store.schedules import DeclaredSet, NewBackfill
from holdfast.store.store import Store
from holdfast.supervisor.schedules import ScheduleKeeper, decision_of, in_force
from holdfast.times import Plan
from holdfast.times.decision import Decision
from tests.store.conftest import Tamper

HOUR = 3600.0


def new(name: str = "nightly", times: str = "1h", origin: str = "", **fields: Any) -> NewSchedule:
    plan = msgspec.json.encode(Plan(times, **fields)).decode()
    return NewSchedule(name, "app.nightly", "1", b"{}", b"d", plan, origin=origin)


@pytest.fixture
async def epoch(store: Store) -> int:
    led = await store.leader.lead("leader", 600.0)
    assert led is not None
    return led


async def made(store: Store, tamper: Tamper, *schedules: NewSchedule, ago_s: float = HOUR) -> None:
    """Make schedules whose cursor is an hour ago, so that they are due."""
    for one in schedules:
        await store.schedules.create_schedule(one, "ann")
        row = await store.schedules.schedule(one.name)
        assert row is not None
        ago = (
            f"cursor - {ago_s}"
            if store.url.startswith("sqlite")
            else f"cursor - make_interval(secs => {ago_s})"
        )
        tamper(f"UPDATE schedules SET cursor = {ago}, next_at = cursor WHERE name = '{one.name}'")


async def fates(store: Store, name: str = "nightly") -> list[tuple[str, int]]:
    return [(str(fire.fate), fire.times) for fire in await store.schedules.fires(name)]


async def test_a_due_time_is_decided_once_and_starts_one_run(
    store: Store, epoch: int, tamper: Tamper
) -> None:
    """The run's id is the schedule's name and the time, and its tags say what it was started for."""
    await made(store, tamper, new())
    scheduling = ScheduleKeeper(store, DEFAULT)
    assert await scheduling.fire(epoch) == 1
    assert await scheduling.fire(epoch) == 0
    (fire,) = await store.schedules.fires("nightly")
    assert fire.fate is FireFate.STARTED
    assert fire.run_id is not None
    run = await store.reads.run(fire.run_id)
    assert run is not None
    assert (run.workflow, run.state) == ("app.nightly", RunState.PENDING)
    assert msgspec.json.decode(run.tags or "")["$schedule"] == "nightly"
    row = await store.schedules.schedule("nightly")
    assert row is not None
    assert (row.cursor, row.next_at) == (fire.at, fire.at + HOUR)
    assert scheduling.next_at == row.next_at


async def test_a_deposed_leader_changes_nothing(store: Store, epoch: int, tamper: Tamper) -> None:
    """Its decisions are refused as a whole."""
    await made(store, tamper, new())
    await store.leader.resign("leader")
    assert await store.leader.lead("another", 600.0) == epoch + 1
    assert await ScheduleKeeper(store, DEFAULT).fire(epoch) == 0
    assert await fates(store) == []
    assert await ScheduleKeeper(store, DEFAULT).fire(epoch + 1) == 1


async def test_of_two_decisions_about_one_schedule_the_first_counts(
    store: Store, epoch: int, tamper: Tamper
) -> None:
    """The second has an old fence. So a schedule that somebody changes meanwhile is decided again."""
    await made(store, tamper, new())
    (seen,) = await store.schedules.seen(["nightly"])
    decision = decision_of(seen, await store.now())
    assert await store.schedules.fire(epoch, [decision]) == 1
    assert await store.schedules.fire(epoch, [decision]) == 0
    assert await fates(store) == [("started", 1)]
    await made(store, tamper, new("other"))
    (seen,) = await store.schedules.seen(["other"])
    await store.schedules.pause_schedule("other", "ann", "")
    assert await store.schedules.fire(epoch, [decision_of(seen, await store.now())]) == 0
    assert await fates(store, "other") == []


async def test_a_thousand_due_schedules_start_in_one_pass(store: Store, epoch: int, tamper: Tamper) -> None:
    """In two batches of 500, however many are due at the same second."""
    await store.schedules.create_schedule(new("s0"), "ann")
    row = await store.schedules.schedule("s0")
    assert row is not None
    lines = [new(f"s{n}", origin="app") for n in range(1, 1001)]
    await store.schedules.reconcile_schedules(epoch, DeclaredSet("app", "x", DeclaredSet.write(lines)))
    back = "- 3600" if store.url.startswith("sqlite") else "- interval '1 hour'"
    tamper(f"UPDATE schedules SET cursor = cursor {back}, next_at = next_at {back} WHERE origin = 'app'")
    batches = 0
    inner = store.schedules.fire

    class Counting(ScheduleKeeper):
        async def _decide(self, epoch: int, names: Sequence[str]) -> int:
            nonlocal batches
            batches += 1
            return await super()._decide(epoch, names)

    assert await Counting(store, DEFAULT).fire(epoch) == 1000
    assert batches == 2
    assert inner is not None
    assert len(await store.reads.runs_by_state()) == 1


async def end(store: Store, tamper: Tamper, run_id: str, state: str = "succeeded") -> None:
    now = "unixepoch('now', 'subsec')" if store.url.startswith("sqlite") else "clock_timestamp()"
    output = "X'37'" if store.url.startswith("sqlite") else "'7'::bytea"
    tamper(f"UPDATE runs SET state = '{state}', finished_at = {now}, output = {output} WHERE id = '{run_id}'")


async def test_a_buffered_time_starts_when_the_run_before_it_has_ended(
    store: Store, epoch: int, tamper: Tamper
) -> None:
    """The leader finds the end by joining fires to runs. The hop that ends a run knows nothing of schedules."""
    await made(store, tamper, new(overlap="buffer_one"))
    scheduling = ScheduleKeeper(store, DEFAULT)
    await scheduling.fire(epoch)
    (first,) = await store.schedules.fires("nightly")
    asked = await store.schedules.run_schedule("nightly", "ann", "now")
    assert asked.fate is FireFate.BUFFERED
    assert await scheduling.fire(epoch) == 0
    await end(store, tamper, first.run_id or "")
    assert await scheduling.fire(epoch) == 1
    newest, *_ = await store.schedules.fires("nightly")
    assert (newest.fate, newest.at) == (FireFate.STARTED, asked.at)
    run = await store.reads.run(newest.run_id or "")
    assert run is not None
    assert msgspec.json.decode(run.tags or "")["$last"] == first.run_id
    assert {fire.ended for fire in await store.schedules.fires("nightly")} == {True, False}


async def test_cancel_other_asks_the_open_run_to_cancel(store: Store, epoch: int, tamper: Tamper) -> None:
    """A pending one is cancelled at once, and the time starts at the next pass."""
    await made(store, tamper, new(overlap="cancel_other"))
    scheduling = ScheduleKeeper(store, DEFAULT)
    await scheduling.fire(epoch)
    (first,) = await store.schedules.fires("nightly")
    await store.schedules.run_schedule("nightly", "ann", "")
    run = await store.reads.run(first.run_id or "")
    assert run is not None
    assert run.state is RunState.CANCELLED
    assert await scheduling.fire(epoch) == 1


async def test_a_cancel_that_a_schedule_asks_for_counts_as_done(
    store: Store, epoch: int, tamper: Tamper
) -> None:
    """So the leader rings the bells after it, and the run hears of it at once."""
    await made(store, tamper, new(overlap="cancel_other"))
    await ScheduleKeeper(store, DEFAULT).fire(epoch)
    (first,) = await store.schedules.fires("nightly")
    row = await store.schedules.schedule("nightly")
    assert row is not None
    decision = Decision(row, cancels=[first.run_id or ""])
    assert await store.schedules.fire(epoch, [decision]) == 1


async def test_failures_in_a_row_pause_and_are_an_alert(store: Store, epoch: int, tamper: Tamper) -> None:
    """A person resumes it, which clears the alert."""
    await made(store, tamper, new(pause_after=1))
    scheduling = ScheduleKeeper(store, DEFAULT)
    await scheduling.fire(epoch)
    (first,) = await store.schedules.fires("nightly")
    await end(store, tamper, first.run_id or "", "failed")
    await scheduling.fire(epoch)
    row = await store.schedules.schedule("nightly")
    assert row is not None
    assert row.state is ScheduleState.PAUSED
    assert [alert.kind for alert in await store.alerts.open_alerts(9)] == [AlertKind.SCHEDULE_TROUBLE]
    await store.schedules.resume_schedule("nightly", "ann", "mended")
    await scheduling.watch(epoch, await store.now())
    kinds = [alert.key for alert in await store.alerts.open_alerts(9)]
    assert kinds == ["schedule gone:nightly"]


async def test_a_schedule_whose_workflow_is_gone_is_an_alert_and_loses_nothing(
    store: Store, epoch: int, tamper: Tamper
) -> None:
    """Its run waits for the code to come back. The alert is raised once, and cleared then."""
    await made(store, tamper, new())
    scheduling = ScheduleKeeper(store, DEFAULT)
    assert await scheduling.fire(epoch) == 1
    for _ in range(2):
        await scheduling.watch(epoch, await store.now())
    (alert,) = await store.alerts.open_alerts(9)
    assert (alert.key, alert.times) == ("schedule gone:nightly", 1)
    offers = '{"workflows": ["app.nightly@1"]}'
    await store.nodes.register(
        "n", host="h", pid=1, roles="scheduler", offers=offers, capacity=1, lease_s=600.0
    )
    await scheduling.watch(epoch, await store.now())
    assert await store.alerts.open_alerts(9) == []


async def test_a_pause_is_noted_with_what_passed(store: Store, epoch: int, tamper: Tamper) -> None:
    """One row says how many times were missed, and so does the journal."""
    await made(store, tamper, new(), ago_s=5 * HOUR)
    await store.schedules.pause_schedule("nightly", "ann", "stock is counted")
    assert await ScheduleKeeper(store, DEFAULT).fire(epoch) == 0
    row = await store.schedules.resume_schedule("nightly", "bob", "done")
    assert (row.state, row.actor) == (ScheduleState.ACTIVE, "bob")
    assert await fates(store) == [("missed", 5)]
    verbs = {entry.verb: entry.note for entry in await store.reads.journal(None)}
    assert verbs["schedule pause"] == "nightly: stock is counted"
    assert verbs["schedule resume"] == "nightly: 5 times passed: done"
    with pytest.raises(WrongState, match="only a paused one"):
        await store.schedules.resume_schedule("nightly", "bob", "")


async def test_a_name_is_given_once(store: Store) -> None:
    """The same schedule again is the same. Another plan needs to be asked for."""
    assert await store.schedules.create_schedule(new(), "ann")
    assert not await store.schedules.create_schedule(new(), "bob")
    with pytest.raises(Conflict, match="another plan"):
        await store.schedules.create_schedule(new(times="2h"), "bob")
    assert await store.schedules.create_schedule(new(times="2h"), "bob", replace=True)
    row = await store.schedules.schedule("nightly")
    assert row is not None
    assert row.plan == new(times="2h").plan
    with pytest.raises(WrongState, match="no time after now"):
        await store.schedules.create_schedule(new("past", "2020-01-01"), "ann")
    await store.schedules.remove_schedule("nightly", "ann", "")
    assert await store.schedules.schedule("nightly") is None
    with pytest.raises(UnknownSchedule):
        await store.schedules.pause_schedule("nightly", "ann", "")


async def lines(store: Store, epoch: int, *declared: NewSchedule) -> Any:
    return await store.schedules.reconcile_schedules(
        epoch, DeclaredSet("app", "x", DeclaredSet.write(declared))
    )


async def test_lines_of_code_are_reconciled(store: Store, epoch: int) -> None:
    """New ones are added, changed ones changed, others removed. A pause and its note stay."""
    assert (await lines(store, epoch, new("a", origin="app"), new("b", origin="app"))).added == ["a", "b"]
    await store.schedules.pause_schedule("a", "ann", "not now")
    done = await lines(store, epoch, new("a", "2h", origin="app"), new("c", origin="app"))
    assert (done.added, done.changed, done.removed) == (["c"], ["a"], ["b"])
    row = await store.schedules.schedule("a")
    assert row is not None
    assert (row.state, row.note, row.plan) == (ScheduleState.PAUSED, "not now", new("a", "2h").plan)
    with pytest.raises(WrongState, match="the code of app declares"):
        await store.schedules.remove_schedule("a", "ann", "")
    await store.schedules.create_schedule(new("mine"), "ann")
    assert (await lines(store, epoch, new("mine", "2h", origin="app"))).taken == ["mine"]


async def test_a_changed_line_fires_nothing_late_and_nothing_twice(
    store: Store, epoch: int, tamper: Tamper
) -> None:
    """A time of the old line that has come gets its fate first. The new line begins with the change."""
    await lines(store, epoch, new(origin="app"))
    back = "- 3600" if store.url.startswith("sqlite") else "- interval '1 hour'"
    tamper(f"UPDATE schedules SET cursor = cursor {back}, next_at = next_at {back}")
    assert (await lines(store, epoch, new(times="1m", origin="app"))).changed == []
    assert await ScheduleKeeper(store, DEFAULT).fire(epoch) == 1
    before = await store.now()
    assert (await lines(store, epoch, new(times="1m", origin="app"))).changed == ["nightly"]
    row = await store.schedules.schedule("nightly")
    assert row is not None
    assert row.cursor >= before
    assert row.next_at is not None
    assert before < row.next_at < before + 120


async def register(
    store: Store, node: str, *digests: str, lease_s: float = 600.0, sets: Sequence[DeclaredSet] = ()
) -> None:
    offers = msgspec.json.encode({"schedules": digests}).decode()
    await store.nodes.register(
        node, host="h", pid=1, roles="scheduler", offers=offers, capacity=1, lease_s=lease_s, sets=sets
    )


@pytest.mark.parametrize("by", ["hand", "code"])
async def test_a_removed_schedule_leaves_nothing_behind(
    store: Store, epoch: int, tamper: Tamper, by: str
) -> None:
    """A time that waited is skipped. When the run that was open has ended, the leader has nothing to look at any more."""
    origin = "" if by == "hand" else "app"
    await made(store, tamper, new(overlap="buffer_one", origin=origin))
    scheduling = ScheduleKeeper(store, DEFAULT)
    assert await scheduling.fire(epoch) == 1
    assert (await store.schedules.run_schedule("nightly", "ann", "")).fate is FireFate.BUFFERED
    if by == "hand":
        await store.schedules.remove_schedule("nightly", "ann", "")
    else:
        done = await store.schedules.reconcile_schedules(epoch, DeclaredSet("app", "none", "[]"))
        assert done.removed == ["nightly"]
    first, second = await store.schedules.fires("nightly")
    assert (first.fate, first.why, first.ended) == ("skipped", "the schedule was removed", True)
    assert (second.fate, second.ended) == ("started", False)
    await end(store, tamper, second.run_id or "")
    assert await scheduling.fire(epoch) == 0
    assert (await store.schedules.schedule_looks("", 100)).names == []
    assert all(fire.ended for fire in await store.schedules.fires("nightly"))


async def test_a_schedule_that_comes_back_sees_the_run_that_is_open(
    store: Store, epoch: int, tamper: Tamper
) -> None:
    """So its overlap policy holds, as it does over a deploy and its rollback."""
    await made(store, tamper, new())
    scheduling = ScheduleKeeper(store, DEFAULT)
    assert await scheduling.fire(epoch) == 1
    (started,) = await store.schedules.fires("nightly")
    await store.schedules.remove_schedule("nightly", "ann", "")
    assert await scheduling.fire(epoch) == 0
    await made(store, tamper, new("nightly", "2s"), ago_s=2.0)
    assert await scheduling.fire(epoch) == 0
    newest = (await store.schedules.fires("nightly"))[0]
    assert (newest.fate, newest.why) == ("skipped", f"{started.run_id} was open")


async def test_a_schedule_with_more_open_runs_than_are_read_hides_no_others(
    store: Store, epoch: int, tamper: Tamper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is decided about the others without their open runs."""
    await made(store, tamper, new("many", overlap="allow"), new("other"))
    scheduling = ScheduleKeeper(store, DEFAULT)
    assert await scheduling.fire(epoch) == 2
    monkeypatch.setattr("holdfast.store.schedules.OPEN_MAX", 1)
    seen = await store.schedules.seen(["many", "other"])
    assert [(one.row.name, len(one.opened)) for one in seen] == [("many", 1)]


async def test_the_set_first_seen_last_among_live_nodes_is_in_force(store: Store) -> None:
    """A rolling deploy takes it up with the first new node. An old process that restarts does not bring the old set
    back. A rollback takes effect when the last new node is gone."""
    old, newer = (DeclaredSet("app", digest, DeclaredSet.write([new(digest)])) for digest in ("old", "new"))

    async def counts() -> list[str]:
        return [one.digest for one in in_force(await store.schedules.declared_sets())]

    assert await counts() == []
    await register(store, "a", "old", sets=[old])
    assert await counts() == ["old"]
    await register(store, "b", "new", sets=[newer])
    assert await counts() == ["new"]
    await register(store, "c", "old", sets=[old])
    assert await counts() == ["new"]
    await store.nodes.retire("b")
    assert await counts() == ["old"]
    await store.nodes.retire("a")
    await store.nodes.retire("c")
    assert await counts() == []


async def test_an_application_without_schedules_writes_no_set(store: Store) -> None:
    """Unless it had some: then they are removed."""
    await register(store, "a", "none", sets=[DeclaredSet("app", "none", "[]")])
    assert await store.schedules.declared_sets() == []
    await register(store, "b", "one", sets=[DeclaredSet("app", "one", DeclaredSet.write([new()]))])
    await register(store, "c", "none", sets=[DeclaredSet("app", "none", "[]")])
    assert [one.digest for one in in_force(await store.schedules.declared_sets())] == ["none"]


async def test_a_backfill_runs_each_time_once(store: Store, epoch: int, tamper: Tamper) -> None:
    """At most so many at once. What has run is left alone, and the backfill is done when its last run has ended."""
    await store.schedules.create_schedule(new(), "ann")
    now = await store.now()
    begin = now - now % HOUR - 3 * HOUR
    await store.schedules.add_backfill(
        NewBackfill("b1", "nightly", begin, begin + 2 * HOUR, False, 2, "none", "ann", "")
    )
    scheduling = ScheduleKeeper(store, DEFAULT)
    assert await scheduling.fire(epoch) == 2
    assert await scheduling.fire(epoch) == 0
    for fire in await store.schedules.fires("nightly"):
        assert fire.backfill == "b1"
        await end(store, tamper, fire.run_id or "")
    assert await scheduling.fire(epoch) == 1
    newest, *_ = await store.schedules.fires("nightly")
    assert newest.at == begin + 2 * HOUR
    await end(store, tamper, newest.run_id or "")
    for _ in range(2):
        await scheduling.fire(epoch)
    row = await store.schedules.backfill("b1")
    assert row is not None
    assert (row.state, row.started, row.passed) == (BackfillState.DONE, 3, 0)
    await store.schedules.add_backfill(
        NewBackfill("b2", "nightly", begin, begin + 2 * HOUR, False, 2, "none", "ann", "")
    )
    for _ in range(2):
        assert await scheduling.fire(epoch) == 0
    row = await store.schedules.backfill("b2")
    assert row is not None
    assert (row.state, row.started, row.passed) == (BackfillState.DONE, 0, 3)


async def test_a_stopped_backfill_starts_nothing(store: Store, epoch: int) -> None:
    """And one whose schedule is gone stops by itself."""
    await store.schedules.create_schedule(new(), "ann")
    now = await store.now()
    for name in ("b1", "b2"):
        await store.schedules.add_backfill(
            NewBackfill(name, "nightly", now - 9 * HOUR, now, False, 1, "all", "ann", "")
        )
    stopped = await store.schedules.stop_backfill("b1", "ann")
    assert stopped is not None
    assert stopped.state is BackfillState.STOPPED
    await store.schedules.remove_schedule("nightly", "ann", "")
    assert await ScheduleKeeper(store, DEFAULT).fire(epoch) == 0
    row = await store.schedules.backfill("b2")
    assert row is not None
    assert row.state is BackfillState.STOPPED


async def test_newer_rules_of_zones_compute_times_anew(store: Store, epoch: int, tamper: Tamper) -> None:
    """And older ones do not: nodes of two versions do not undo each other's work."""
    await store.schedules.create_schedule(new(), "ann")
    tamper("UPDATE schedules SET tzdata = '2000a'")
    await ScheduleKeeper(store, DEFAULT).fire(epoch)
    await ScheduleKeeper(store, DEFAULT).watch(epoch, await store.now())
    row = await store.schedules.schedule("nightly")
    assert row is not None
    assert row.tzdata > "2025"
    tamper("UPDATE schedules SET tzdata = '2999a'")
    scheduling = ScheduleKeeper(store, DEFAULT)
    await scheduling.fire(epoch)
    await scheduling.watch(epoch, await store.now())
    row = await store.schedules.schedule("nightly")
    assert row is not None
    assert row.tzdata == "2999a"


async def test_a_schedule_that_somebody_damaged_does_not_stop_the_others(
    store: Store, epoch: int, tamper: Tamper
) -> None:
    """It is an alert."""
    await made(store, tamper, new("bad"), new("good"))
    tamper("UPDATE schedules SET plan = '{}' WHERE name = 'bad'")
    assert await ScheduleKeeper(store, DEFAULT).fire(epoch) == 1
    assert [alert.key for alert in await store.alerts.open_alerts(9)] == ["schedule broken:bad"]


async def test_old_fates_are_forgotten(store: Store, epoch: int, tamper: Tamper) -> None:
    """Those that have ended. A time whose run is open is remembered for as long as it is."""
    await made(store, tamper, new(missed="skip"), ago_s=5 * HOUR)
    await ScheduleKeeper(store, DEFAULT).fire(epoch)
    await store.schedules.run_schedule("nightly", "ann", "")
    assert len(await store.schedules.fires("nightly")) >= 2
    await store.retention.forget_fires(epoch, await store.now() + 60, 100)
    assert [fire.ended for fire in await store.schedules.fires("nightly")] == [False] * len(
        await store.schedules.fires("nightly")
    )
