"""Composed triggers in the store: an occasion collects what arrives, and starts one run when all is there."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from holdfast.config import DEFAULT
from holdfast.errors import InvalidInput, UnknownOccasion, WrongState
from holdfast.model import AlertKind, ComposedRow, NewEvent, OccasionState
from holdfast.occasions import Composition, Group, Part
from holdfast.store.events import Arrival, Emitted
from holdfast.store.occasions import SeenOccasion, write_composed
from holdfast.store.schedules import DeclaredSet
from holdfast.store.store import Store
from holdfast.supervisor.occasions import OccasionKeeper
from holdfast.supervisor.retention import RowPruner
from holdfast.times.plan import Plan
from tests.store.conftest import Tamper
from tests.store.made import A

TIME = Part("time", times=Plan("@daily"))
RATES, FILES = Part("rates", "rates.published"), Part("files", "file.arrived", 2)


def composed(*parts: Part | Group, name: str = "report", need: Any = "all", **more: Any) -> ComposedRow:
    given = {"by": "subject", "within_s": 3600.0, "otherwise": "alert", "parameter": "arrived", **more}
    body = msgspec.json.encode(Composition(Group(need, parts), **given)).decode()
    return ComposedRow(name, "default", "shop.report", "1", body, f"digest of {body}"[:4000], "shop")


def lines(*rows: ComposedRow, origin: str = "shop") -> DeclaredSet:
    owned = [msgspec.structs.replace(row, origin=origin) for row in rows]
    return DeclaredSet(origin, f"{origin}{hash(owned.__repr__())}", write_composed(owned))


async def register(store: Store, node: str, *sets: DeclaredSet) -> None:
    offers = msgspec.json.encode({"composed": [one.digest for one in sets]}).decode()
    await store.nodes.register(
        node, host="h", pid=1, roles="scheduler", offers=offers, capacity=1, lease_s=600.0, composed=sets
    )


def arrival(type: str, id: str, subject: str = "d1", data: bytes = b"1", trigger: str = "report") -> Arrival:
    return Arrival(NewEvent("default", "bank", id, type, data, subject), collects=[trigger])


async def emit(store: Store, type: str, id: str, **more: Any) -> Emitted:
    (found,) = await store.events.emit([arrival(type, id, **more)], "ann")
    return found


async def the_occasion(store: Store, id: str = "report@when:d1") -> SeenOccasion:
    found = await store.occasions.occasion(id)
    assert found is not None
    return found


async def given(store: Store, id: str = "report@when:d1") -> Any:
    run = await store.reads.run(id)
    assert run is not None
    return msgspec.json.decode(run.input)["arrived"]


@pytest.fixture
async def epoch(store: Store) -> int:
    led = await store.leader.lead("leader", 600.0)
    assert led is not None
    return led


def end(tamper: Tamper) -> None:
    """Let the time of all occasions be over."""
    tamper("UPDATE occasions SET opened_at = opened_at - 4000, ends_at = ends_at - 4000")


async def test_the_last_part_starts_the_run_with_what_arrived(store: Store) -> None:
    """In any order. A part that takes several has a list. What is sent again changes nothing."""
    await register(store, A, lines(composed(RATES, FILES)))
    assert (await emit(store, "file.arrived", "1", data=b'"a"')).collected == ["report@when:d1"]
    assert (await emit(store, "rates.published", "2", data=b'{"eur":11}')).started == []
    again = await emit(store, "file.arrived", "1", data=b'"a"')
    assert (again.is_new, again.started) == (False, [])
    seen = await the_occasion(store)
    assert (seen.row.state, len(seen.collected)) == (OccasionState.OPEN, 2)
    done = await emit(store, "file.arrived", "3", data=b'"b"')
    assert done.started == done.collected == ["report@when:d1"]
    assert await given(store) == {"rates": {"eur": 11}, "files": ["a", "b"]}
    assert (await the_occasion(store)).row.state is OccasionState.STARTED
    run = await store.reads.run("report@when:d1")
    assert run is not None
    assert (run.workflow, run.version, run.state) == ("shop.report", "1", "pending")


async def test_each_value_is_an_occasion_of_its_own(store: Store) -> None:
    await register(store, A, lines(composed(RATES, Part("file", "file.arrived"))))
    for i in range(3):
        await emit(store, "rates.published", f"r{i}", subject=f"d{i}")
    assert (await emit(store, "file.arrived", "f", subject="d1")).started == ["report@when:d1"]
    opened = await store.occasions.occasions("default", state="open")
    assert sorted(one.row.value for one in opened) == ["d0", "d2"]


async def test_two_last_parts_at_once_start_one_run(store: Store, other: Store) -> None:
    """Through two connections, as two servers have them: neither misses what the other brings, and one of them starts it."""
    await register(store, A, lines(composed(RATES, Part("file", "file.arrived"))))
    for i in range(20):
        found = await asyncio.gather(
            emit(store, "rates.published", f"r{i}", subject=f"d{i}"),
            emit(other, "file.arrived", f"f{i}", subject=f"d{i}"),
        )
        assert sorted(len(one.started) for one in found) == [0, 1], i
        assert await given(store, f"report@when:d{i}") == {"rates": 1, "file": 1}


async def test_a_batch_with_all_parts_starts_the_run(store: Store) -> None:
    await register(store, A, lines(composed(RATES, FILES)))
    batch = [arrival("file.arrived", "1"), arrival("rates.published", "2"), arrival("file.arrived", "3")]
    found = await store.events.emit(batch, "ann")
    assert [run for one in found for run in one.started] == ["report@when:d1"]


async def test_a_newer_event_takes_the_place_of_the_oldest(store: Store) -> None:
    """What is corrected before the start counts as corrected. An occasion keeps no more than it needs."""
    await register(store, A, lines(composed(RATES, FILES)))
    await emit(store, "rates.published", "1", data=b'"wrong"')
    await emit(store, "rates.published", "2", data=b'"right"')
    await emit(store, "file.arrived", "3", data=b'"a"')
    assert len((await the_occasion(store)).collected) == 2
    await emit(store, "file.arrived", "4", data=b'"b"')
    assert await given(store) == {"rates": "right", "files": ["a", "b"]}


async def test_what_comes_after_the_end_is_late(store: Store, tamper: Tamper, epoch: int) -> None:
    """It starts nothing and is counted, also while nobody leads who could end the occasion."""
    await register(store, A, lines(composed(RATES, Part("file", "file.arrived"))))
    await emit(store, "rates.published", "1")
    end(tamper)
    late = await emit(store, "file.arrived", "2")
    assert (late.started, late.collected, late.late) == ([], [], ["report@when:d1"])
    assert (await the_occasion(store)).row.state is OccasionState.OPEN
    await OccasionKeeper(store).mind(epoch)
    assert (await emit(store, "file.arrived", "3")).late == ["report@when:d1"]
    seen = await the_occasion(store)
    assert (seen.row.state, seen.row.late) == (OccasionState.EXPIRED, 2)
    assert await store.reads.run("report@when:d1") is None
    (kept,) = [one for one in await store.events.events("default") if one.row.id == "3"]
    assert [one.wait for one in kept.takers] == ["late:file.arrived"]


@pytest.mark.parametrize("otherwise", ["skip", "alert", "run"])
async def test_what_becomes_of_an_occasion_that_is_not_complete_in_time(
    store: Store, tamper: Tamper, epoch: int, otherwise: str
) -> None:
    parts = (RATES, Part("file", "file.arrived"))
    await register(store, A, lines(composed(*parts, otherwise=otherwise)))
    await emit(store, "rates.published", "1", data=b'"r"')
    collecting = OccasionKeeper(store)
    assert await collecting.mind(epoch) == 0
    assert (await the_occasion(store)).row.state is OccasionState.OPEN
    assert collecting.next_at == (await the_occasion(store)).row.ends_at
    end(tamper)
    await collecting.mind(epoch)
    await collecting.mind(epoch)
    row = (await the_occasion(store)).row
    alerts = await store.alerts.open_alerts(9)
    if otherwise == "run":
        assert (row.state, row.note) == (OccasionState.STARTED, "without file")
        assert await given(store) == {"rates": "r"}
    else:
        assert (row.state, row.note) == (OccasionState.EXPIRED, "missing: file")
        assert await store.reads.run(row.id) is None
    assert [one.kind for one in alerts] == ([AlertKind.OCCASION_EXPIRED] if otherwise == "alert" else [])


async def test_a_deposed_leader_changes_nothing(store: Store, tamper: Tamper, epoch: int) -> None:
    await register(store, A, lines(composed(RATES, TIME)))
    await emit(store, "rates.published", "1")
    end(tamper)
    tamper("UPDATE composed_times SET cursor = cursor - 86400, next_at = next_at - 86400")
    await OccasionKeeper(store).mind(epoch + 1)
    assert (await the_occasion(store)).row.state is OccasionState.OPEN
    assert await OccasionKeeper(store).mind(epoch) == 0
    assert (await the_occasion(store)).row.state is OccasionState.EXPIRED


async def test_a_time_arrives_once_at_the_occasion_of_its_date(
    store: Store, tamper: Tamper, epoch: int
) -> None:
    await register(store, A, lines(composed(RATES, TIME, within_s=86_400.0 * 3)))
    tamper("UPDATE composed_times SET cursor = cursor - 86400, next_at = next_at - 86400")
    collecting = OccasionKeeper(store)
    await collecting.mind(epoch)
    (seen,) = await store.occasions.occasions("default")
    assert [one.part for one in seen.collected] == ["$time:time"]
    assert seen.row.opened_at == seen.collected[0].at
    await collecting.mind(epoch)
    assert collecting.next_at is not None
    assert collecting.next_at > await store.now()
    done = await emit(store, "rates.published", "1", subject=seen.row.value)
    assert done.started == [seen.row.id]
    assert (await given(store, seen.row.id))["time"] == f"{seen.row.value}T00:00:00Z"


async def test_a_time_that_nobody_noticed_still_counts(store: Store, tamper: Tamper, epoch: int) -> None:
    """Nobody led when the time came, nor when the occasion ended. The time was in time, so the run starts."""
    await register(store, A, lines(composed(RATES, TIME)))
    tamper("UPDATE composed_times SET cursor = cursor - 86400, next_at = next_at - 86400")
    (due,) = await store.occasions.due_times(["report"])
    assert due.next_at is not None
    await emit(store, "rates.published", "1", subject=f"{datetime.fromtimestamp(due.next_at, UTC):%Y-%m-%d}")
    tamper(f"UPDATE occasions SET opened_at = {due.next_at - 3540}, ends_at = {due.next_at + 60}")
    assert await OccasionKeeper(store).mind(epoch) == 1
    (seen,) = await store.occasions.occasions("default")
    assert seen.row.state is OccasionState.STARTED


async def test_times_older_than_the_window_do_not_arrive(store: Store, tamper: Tamper, epoch: int) -> None:
    await register(store, A, lines(composed(RATES, TIME)))
    tamper("UPDATE composed_times SET cursor = cursor - 864000, next_at = next_at - 864000")
    await OccasionKeeper(store).mind(epoch)
    assert len(await store.occasions.occasions("default")) == 1


async def test_the_newest_code_judges_what_is_open(store: Store, epoch: int) -> None:
    """A rolling deploy changes the trigger while an occasion is open: the first new node puts it in force. What has arrived
    counts for the new parts, and what is complete by them starts."""
    file, positions = Part("file", "file.arrived"), Part("positions", "positions.published")
    await register(store, A, lines(composed(RATES, file)))
    await emit(store, "rates.published", "1", subject="d1")
    await emit(store, "rates.published", "2", subject="d2")
    await register(store, "node-new", lines(composed(RATES, positions)))
    assert (await emit(store, "file.arrived", "3", subject="d1")).collected == []
    assert (await emit(store, "positions.published", "4", subject="d1")).started == ["report@when:d1"]
    await register(store, "node-newer", lines(composed(RATES)))
    assert await OccasionKeeper(store).reconcile(epoch) == 1
    assert await given(store, "report@when:d2") == {"rates": 1}
    assert await OccasionKeeper(store).reconcile(epoch) == 0


async def test_a_changed_time_to_wait_holds_for_what_is_open(store: Store, epoch: int) -> None:
    file = Part("file", "file.arrived")
    await register(store, A, lines(composed(RATES, file)))
    await emit(store, "rates.published", "1")
    await register(store, "node-new", lines(composed(RATES, file, within_s=60.0)))
    await OccasionKeeper(store).reconcile(epoch)
    row = (await the_occasion(store)).row
    assert row.ends_at == pytest.approx(row.opened_at + 60)
    assert row.state is OccasionState.OPEN


async def test_an_old_node_that_restarts_does_not_bring_the_old_trigger_back(
    store: Store, epoch: int
) -> None:
    """When only the old one lives, its set is in force again: a rollback."""
    old, new = lines(composed(RATES)), lines(composed(RATES, name="other"))
    collecting = OccasionKeeper(store)

    async def names() -> list[str]:
        await collecting.reconcile(epoch)
        return [one.row.name for one in await store.occasions.composed("default")]

    await register(store, A, old)
    await register(store, "node-new", new)
    await register(store, A, old)
    assert await names() == ["other"]
    await store.nodes.retire("node-new")
    assert await names() == ["report"]
    await store.nodes.retire(A)
    assert await names() == ["report"]


async def test_an_occasion_whose_trigger_is_gone_ends_at_its_time(
    store: Store, tamper: Tamper, epoch: int
) -> None:
    """Until then it waits: a rollback brings the trigger back, and it goes on."""
    file = Part("file", "file.arrived")
    await register(store, A, lines(composed(RATES, file)))
    await emit(store, "rates.published", "1")
    await register(store, "node-new", lines())
    await OccasionKeeper(store).mind(epoch)
    assert (await the_occasion(store)).row.state is OccasionState.OPEN
    end(tamper)
    await OccasionKeeper(store).mind(epoch)
    row = (await the_occasion(store)).row
    assert (row.state, row.note) == (OccasionState.EXPIRED, "no code declares its trigger any more")


async def test_a_time_goes_on_over_a_deploy(store: Store) -> None:
    """A changed plan begins now; the same plan goes on from where it was."""
    await register(store, A, lines(composed(RATES, TIME)))
    (before,) = await store.occasions.due_times(["report"])
    await register(store, "node-new", lines(composed(RATES, TIME, otherwise="skip")))
    assert await store.occasions.due_times(["report"]) == [before]
    other = Part("time", times=Plan("@hourly"))
    await register(store, "node-newer", lines(composed(RATES, other)))
    (after,) = await store.occasions.due_times(["report"])
    assert (after.cursor > before.cursor, after.plan != before.plan) == (True, True)


async def test_another_application_cannot_take_a_name(store: Store, epoch: int) -> None:
    await register(store, A, lines(composed(RATES)))
    await register(store, "node-other", lines(composed(FILES), origin="other"))
    await OccasionKeeper(store).reconcile(epoch)
    (one,) = await store.occasions.composed("default")
    assert one.row.origin == "shop"
    (alert,) = await store.alerts.open_alerts(9)
    assert "give it when(name=…)" in alert.message


async def test_what_an_open_occasion_has_is_kept(store: Store, tamper: Tamper, epoch: int) -> None:
    """However old the event is. When the occasion has been over for long enough, both are forgotten."""
    await register(store, A, lines(composed(RATES, Part("file", "file.arrived"))))
    await emit(store, "rates.published", "1", data=b'"old"')
    ago = 30 * 86_400
    moved = f"- {ago}" if store.url.startswith("sqlite") else f"- make_interval(secs => {ago})"
    tamper(f"UPDATE events SET received_at = received_at {moved}")
    await RowPruner(store.retention, DEFAULT).forget(epoch, 1.0, await store.now())
    assert (await emit(store, "file.arrived", "2")).started == ["report@when:d1"]
    assert (await given(store))["rates"] == "old"
    tamper(f"UPDATE occasions SET ended_at = ended_at - {ago}")
    for at in (1e6, 2e6):
        await RowPruner(store.retention, DEFAULT).forget(epoch, at, await store.now())
    assert await store.occasions.occasion("report@when:d1") is None
    assert [seen.row.id for seen in await store.events.events("default")] == ["2"]


async def test_sealed_data_is_refused(store: Store) -> None:
    """Several sealed payloads cannot be put together. The sender learns it, and nothing is written."""
    await register(store, A, lines(composed(RATES)))
    with pytest.raises(InvalidInput, match="sealed"):
        await emit(store, "rates.published", "1", data=b'{"$sealed":"k.AAAA"}')
    assert await store.events.events("default") == []


async def journal(store: Store) -> list[tuple[str, str, str]]:
    return [
        (one.actor, one.verb, one.note)
        for one in await store.reads.journal(None, 9)
        if one.verb.startswith("occasion")
    ]


async def test_an_operator_starts_an_occasion_without_what_is_missing(store: Store) -> None:
    """In one transaction with its fate and the journal. Once: then it has ended, and what was missing is late."""
    await register(store, A, lines(composed(RATES, Part("file", "file.arrived"))))
    await emit(store, "rates.published", "1", data=b'"r"')
    await store.occasions.start_occasion("report@when:d1", "ann", "no file today")
    row = (await the_occasion(store)).row
    assert (row.state, row.note) == (OccasionState.STARTED, "without file, by ann: no file today")
    assert await given(store) == {"rates": "r"}
    for act in (store.occasions.start_occasion, store.occasions.drop_occasion):
        with pytest.raises(WrongState, match="has ended already: started without file"):
            await act("report@when:d1", "bob", "")
    assert (await emit(store, "file.arrived", "2")).late == ["report@when:d1"]
    assert await journal(store) == [("ann", "occasion start", "report@when:d1: no file today")]
    with pytest.raises(UnknownOccasion):
        await store.occasions.start_occasion("report@when:d2", "ann", "")


async def test_an_operator_drops_an_occasion(store: Store, tamper: Tamper, epoch: int) -> None:
    """It starts nothing, whatever still comes, and raises no alert when its time is over."""
    await register(store, A, lines(composed(RATES, Part("file", "file.arrived"))))
    await emit(store, "rates.published", "1")
    await store.occasions.drop_occasion("report@when:d1", "ann", "a holiday")
    done = await emit(store, "file.arrived", "2")
    assert (done.started, done.late) == ([], ["report@when:d1"])
    end(tamper)
    assert await OccasionKeeper(store).mind(epoch) == 0
    row = (await the_occasion(store)).row
    assert (row.state, row.note) == (OccasionState.EXPIRED, "dropped by ann: a holiday")
    assert await store.reads.run("report@when:d1") is None
    assert await store.alerts.open_alerts(9) == []
    assert await journal(store) == [("ann", "occasion drop", "report@when:d1: a holiday")]


async def test_an_occasion_of_a_trigger_that_is_gone_can_only_be_dropped(store: Store) -> None:
    await register(store, A, lines(composed(RATES, FILES)))
    await emit(store, "rates.published", "1")
    await register(store, "node-new", lines())
    with pytest.raises(WrongState, match="can only be dropped"):
        await store.occasions.start_occasion("report@when:d1", "ann", "")
    await store.occasions.drop_occasion("report@when:d1", "ann", "")
    assert (await the_occasion(store)).row.note == "dropped by ann"


async def test_the_last_part_and_an_operator_at_once_start_one_run(store: Store, other: Store) -> None:
    """Whoever comes second finds what the first has done."""
    await register(store, A, lines(composed(RATES, Part("file", "file.arrived"))))
    for i in range(10):
        await emit(store, "rates.published", f"r{i}", subject=f"d{i}")
        drops = i % 2 == 1
        act = other.occasions.drop_occasion if drops else other.occasions.start_occasion
        sent, acted = await asyncio.gather(
            emit(store, "file.arrived", f"f{i}", subject=f"d{i}"),
            act(f"report@when:d{i}", "ann", ""),
            return_exceptions=True,
        )
        assert isinstance(sent, Emitted)
        assert (acted is None) == (sent.late == [f"report@when:d{i}"]), i
        assert isinstance(acted, WrongState) == (sent.started == [f"report@when:d{i}"]), i
        row = (await the_occasion(store, f"report@when:d{i}")).row
        run = await store.reads.run(row.id)
        assert (run is None) == (row.state is OccasionState.EXPIRED)
        if acted is None and not drops:
            assert await given(store, row.id) == {"rates": 1}
