"""Events in the store: one row for a source and an id, in one transaction with all that it starts and wakes."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast.config import DEFAULT
from holdfast.event_names import Awaited, awaited_of, value_at, wait_name
from holdfast.model import NewEvent, Trigger
from holdfast.store.events import MISSED_MAX, Arrival, EventWait, signal_key, write_triggers
from holdfast.store.schedules import DeclaredSet
from holdfast.store.store import Store
from holdfast.supervisor.events import EventKeeper
from holdfast.supervisor.retention import RowPruner
from tests.store.conftest import Tamper
from tests.store.made import A, new_run, parked, wait

NAME = wait_name(Awaited("default", "paid", "subject", "o1"))


def event(name: str, *, subject: str = "o1", **more: Any) -> NewEvent:
    return NewEvent("default", "bank", name, "paid", b'{"cents":1}', subject, **more)


async def waiting(store: Store, run_id: str = "r1", name: str = NAME) -> None:
    """Make a run that waits for an event, and whose scheduler has not looked yet."""
    await parked(store, msgspec.structs.replace(wait(1), name=name), run=new_run(run_id))


async def got(store: Store, run_id: str = "r1") -> list[str]:
    return [signal.name for signal in await store.reads.signals(run_id)]


@pytest.fixture
async def epoch(store: Store) -> int:
    led = await store.leader.lead("leader", 600.0)
    assert led is not None
    return led


async def test_an_event_is_written_once_with_what_it_starts(store: Store, other: Store) -> None:
    first, second = await asyncio.gather(
        *(one.events.emit([Arrival(event("e1"), [new_run("by-e1")])], "ann") for one in (store, other))
    )
    assert sorted([first[0].is_new, second[0].is_new]) == [False, True]
    assert first[0].started == second[0].started == ["by-e1"]
    again = await store.events.emit([Arrival(event("e1"), [new_run("not-again")])], "ann")
    assert (again[0].is_new, again[0].started) == (False, ["by-e1"])
    assert await store.reads.run("not-again") is None


async def test_the_same_event_twice_in_one_batch_is_one(store: Store) -> None:
    found = await store.events.emit([Arrival(event("e1")), Arrival(event("e1")), Arrival(event("e2"))], "ann")
    assert [one.is_new for one in found] == [True, False, True]


async def test_a_wait_finds_what_came_before_it_once(store: Store) -> None:
    """Whoever looks, and however often: the scheduler that began to wait, the next owner, the leader."""
    await waiting(store)
    await store.events.emit([Arrival(event("e1")), Arrival(event("other", subject="o2"))], "ann")
    assert await got(store) == []  # nobody has waited by this path before
    assert await store.events.catch_up([EventWait("r1", NAME)]) == 1
    assert await store.events.catch_up([EventWait("r1", NAME)]) == 0
    assert await got(store) == [NAME]
    (sent,) = await store.events.emit([Arrival(event("e2"))], "ann")
    assert sent.woke == ["r1"]
    assert await store.events.catch_up([EventWait("r1", NAME)]) == 0
    assert await got(store) == [NAME, NAME]


async def test_a_wait_finds_more_events_of_one_moment_than_one_look_takes(store: Store) -> None:
    """One look takes some of them, and the next one goes on with that moment, not after it."""
    await waiting(store)
    await store.events.emit([Arrival(event(f"e{i}")) for i in range(MISSED_MAX + 3)], "ann")
    assert await store.events.catch_up([EventWait("r1", NAME)]) == MISSED_MAX
    assert await store.events.catch_up([EventWait("r1", NAME)]) == 3
    assert await store.events.catch_up([EventWait("r1", NAME)]) == 0


async def test_an_event_from_before_the_run_does_not_count(store: Store, tamper: Tamper) -> None:
    await waiting(store)
    await store.events.emit([Arrival(event("e1"))], "ann")
    ago = "1.0" if store.url.startswith("sqlite") else "to_timestamp(1)"
    tamper(f"UPDATE events SET received_at = {ago}")
    assert await store.events.catch_up([EventWait("r1", NAME)]) == 0


async def test_a_run_does_not_wait_for_the_event_that_started_it(store: Store) -> None:
    await store.events.emit([Arrival(event("e1"), [new_run("r2")])], "ann")
    await waiting(store, "r1")
    (sent,) = await store.events.emit([Arrival(event("e2"), [new_run("r3")])], "ann")
    assert sent.started == ["r3"]
    assert await store.events.catch_up([EventWait("r1", NAME)]) == 1


async def test_a_run_that_no_longer_waits_gets_nothing(store: Store, tamper: Tamper) -> None:
    await waiting(store)
    await store.events.catch_up([EventWait("r1", NAME)])
    tamper(
        "UPDATE steps SET state = 'cancelled', finished_at = issued_at, delivered_seq = 0 WHERE run_id = 'r1'"
    )
    (sent,) = await store.events.emit([Arrival(event("e1"))], "ann")
    assert sent.woke == []
    assert await store.events.catch_up([EventWait("r1", NAME)]) == 0
    assert await got(store) == []


async def test_an_event_does_not_hide_one_that_came_before_the_wait(store: Store, tamper: Tamper) -> None:
    """The first came while the run did not wait. The second comes before anybody has looked: it brings the first along."""
    await waiting(store)
    await store.events.catch_up([EventWait("r1", NAME)])
    tamper(
        "UPDATE steps SET state = 'cancelled', finished_at = issued_at, delivered_seq = 0 WHERE run_id = 'r1'"
    )
    await store.events.emit([Arrival(event("first"))], "ann")
    tamper("UPDATE steps SET state = 'waiting', finished_at = NULL, delivered_seq = NULL WHERE run_id = 'r1'")
    (sent,) = await store.events.emit([Arrival(event("second"))], "ann")
    assert sent.woke == ["r1"]
    assert [signal.key for signal in await store.reads.signals("r1")] == [
        signal_key("bank", "first"),
        signal_key("bank", "second"),
    ]
    assert await store.events.catch_up([EventWait("r1", NAME)]) == 0


async def test_sender_and_waiter_never_miss_each_other(store: Store, other: Store) -> None:
    """Whichever comes first, one of them finds the other."""
    for i in range(40):
        subject = f"s{i}"
        name = wait_name(Awaited("default", "paid", "subject", subject))
        await waiting(store, f"run-{i}", name)
        await asyncio.gather(
            other.events.emit([Arrival(event(f"e{i}", subject=subject))], "ann"),
            store.events.catch_up([EventWait(f"run-{i}", name)]),
        )
        assert await got(store, f"run-{i}") == [name], i


async def test_the_leader_looks_again(store: Store, epoch: int) -> None:
    await waiting(store)
    await store.events.emit([Arrival(event("e1"))], "ann")
    keeper = EventKeeper(store, DEFAULT)
    assert await keeper.look_again() == 1
    assert await keeper.look_again() == 0
    assert await got(store) == [NAME]


def lines(*types: str, version: str = "1") -> DeclaredSet:
    triggers = [Trigger("default", one, "shop.ship", version, "order") for one in types]
    return DeclaredSet("shop", f"{types}{version}", write_triggers(triggers))


async def on(store: Store, *types: str) -> list[tuple[str, str]]:
    return [(one.type, one.version) for one in await store.events.triggers_on("default", types)]


async def register(store: Store, node: str, *sets: DeclaredSet) -> None:
    offers = msgspec.json.encode({"triggers": [one.digest for one in sets]}).decode()
    await store.nodes.register(
        node, host="h", pid=1, roles="scheduler", offers=offers, capacity=1, lease_s=600.0, triggers=sets
    )


async def test_the_newest_code_says_what_events_start(store: Store, epoch: int) -> None:
    """It holds from when its first node registers. An old process that restarts changes nothing while a new one lives;
    when only the old one lives, its set is in force again."""
    keeper = EventKeeper(store, DEFAULT)
    await register(store, A, lines("paid", "sent"))
    assert await on(store, "paid", "sent") == [("paid", "1"), ("sent", "1")]
    await register(store, "node-new", lines("paid", version="2"))
    assert await on(store, "paid", "sent") == [("paid", "2")]
    await register(store, A, lines("paid", "sent"))
    await keeper.reconcile(epoch)
    assert await on(store, "paid", "sent") == [("paid", "2")]
    await store.nodes.retire("node-new")
    await keeper.reconcile(epoch)
    assert await on(store, "paid", "sent") == [("paid", "1"), ("sent", "1")]
    await register(store, "node-none", lines())
    assert await on(store, "paid", "sent") == []
    await store.events.reconcile_triggers(epoch + 1, lines("paid"))
    assert await on(store, "paid") == []


async def test_what_nobody_declares_any_more_still_holds(store: Store, epoch: int) -> None:
    """While the application is down, its events start runs, which wait for it."""
    await register(store, "node-one", lines("paid"))
    await store.nodes.retire("node-one")
    await EventKeeper(store, DEFAULT).reconcile(epoch)
    assert await on(store, "paid") == [("paid", "1")]


async def test_old_events_are_forgotten(store: Store, tamper: Tamper, epoch: int) -> None:
    """With their keys and takers, after `keep_events_days`. An event that is sent again then starts no second run."""
    await waiting(store)
    await store.events.catch_up([EventWait("r1", NAME)])
    await store.events.emit([Arrival(event("e1"), [new_run("by-e1")]), Arrival(event("e2"))], "ann")
    ago = 8 * 86_400
    moved = (
        f"received_at - {ago}"
        if store.url.startswith("sqlite")
        else f"received_at - make_interval(secs => {ago})"
    )
    for table in ("events", "event_keys", "event_takers"):
        tamper(f"UPDATE {table} SET received_at = {moved} WHERE id = 'e1'")
    now = await store.now()
    await RowPruner(store.retention, DEFAULT).forget(epoch, 1.0, now)
    assert [seen.row.id for seen in await store.events.events("default")] == ["e2"]
    (again,) = await store.events.emit([Arrival(event("e1"), [new_run("by-e1")])], "ann")
    assert (again.is_new, again.started) == (True, ["by-e1"])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("subject", "o1"),
        ("source", "bank"),
        ("region", "eu"),
        ("data.order.id", "42"),
        ("data.name", "x=y z"),
        ("data.order", None),
        ("data.flag", None),
        ("data.half", None),
        ("data.missing.more", None),
        ("absent", None),
        ("data.empty", None),
    ],
)
def test_what_stands_at_a_path(path: str, value: str | None) -> None:
    raw = b'{"order":{"id":42},"name":"x=y z","flag":true,"half":0.5,"empty":""}'
    one = NewEvent("acme", "bank", "e", "paid", raw, "o1", None, '{"region":"eu"}')
    assert value_at(one, path) == value
    if value is not None:
        awaited = Awaited("acme", "paid", path, value)
        assert awaited_of(wait_name(awaited)) == awaited


def test_data_that_is_no_object_has_no_paths() -> None:
    assert value_at(NewEvent("acme", "bank", "e", "paid", b"[1]"), "data.x") is None
    assert value_at(NewEvent("acme", "bank", "e", "paid", b'"\\ud800'), "data.x") is None
