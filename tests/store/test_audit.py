"""The audit: what the journal says about those who came by a way. Nobody changes it, and it outlives its runs."""

from __future__ import annotations

from typing import Any

import apsw
import psycopg
import pytest

from holdfast.actor import Actor
from holdfast.config import AUDIT_STAYS_DAYS, Config
from holdfast.environment import Environment
from holdfast.errors import InvalidSettings
from holdfast.store.reads import JournalFilter
from holdfast.store.store import Store
from holdfast.store.tokens import RefusedEntry
from holdfast.supervisor.retention import DAY_S, RowPruner
from holdfast.supervisor.supervisor import Supervisor
from holdfast.testing.world import _Memory
from tests.store.made import ENVIRONMENT, A, begin, call, new_run, start
from tests.store.test_prune import ended, prune

ANN = Actor("ann (12345678)", "http", "request-1")


def is_sqlite(store: Store) -> bool:
    return store.url.startswith("sqlite")


def change(store: Store, sql: str) -> int:
    """Run a statement behind the store's back, as a node does, and return how many rows it changed."""
    if is_sqlite(store):
        connection = apsw.Connection(store.url.removeprefix("sqlite:///"))
        connection.set_busy_timeout(5000)
        connection.create_scalar_function("store_now", lambda *_: ENVIRONMENT.now(), 0)
        connection.execute(sql).fetchall()
        changed = connection.changes()
        connection.close()
        return int(changed)
    with psycopg.connect(store.url, autocommit=True, options="-c search_path=holdfast") as session:
        return session.execute(sql.encode()).rowcount


def ago(store: Store, days: float) -> str:
    if is_sqlite(store):
        return f"({ENVIRONMENT.now()} - {days * DAY_S})"
    return f"(clock_timestamp() - interval '{days * DAY_S} seconds')"


def planted(store: Store, verb: str, days: float, via: str = "'cli'", run: str = "NULL") -> None:
    """Make a row of the journal that is so old."""
    change(
        store,
        f"INSERT INTO journal (at, actor, verb, run_id, via) VALUES ({ago(store, days)}, 'ann', '{verb}', {run}, {via})",
    )


async def verbs(store: Store) -> list[str]:
    return [entry.verb for entry in reversed(await store.reads.journal(None))]


async def test_the_audit_outlives_its_run(store: Store) -> None:
    """What the engine wrote about a run is removed with it. What somebody did stays, and pruning goes on."""
    run_id = await ended(store)
    change(
        store, f"INSERT INTO journal (at, actor, verb, run_id) VALUES ({ago(store, 0)}, 'x', 'y', '{run_id}')"
    )
    planted(store, "hold by ann", 0, run=f"'{run_id}'")
    planted(store, "hold by bob", 300, run=f"'{run_id}'")
    assert (await prune(store)).runs == 1
    assert await store.reads.run(run_id) is None
    assert await verbs(store) == ["hold by ann", "hold by bob", "prune"]


async def test_the_journal_of_a_run_begins_with_the_run(store: Store) -> None:
    """What was done to an earlier run of the same id is not said about this one."""
    planted(store, "cancel", 1, run="'again'")
    await start(store, new_run("again"))
    await store.operators.hold("again", ANN, "look")
    assert [entry.verb for entry in await store.reads.journal("again")] == ["hold"]
    assert await verbs(store) == ["cancel", "hold"]


async def test_nobody_changes_the_audit(store: Store) -> None:
    """Nor makes it out of what belongs to a role. Other rows of the journal are as they were."""
    run_id = await begin(store, call(1))
    await store.operators.hold(run_id, ANN, "why not")
    await store.operators.release(run_id, "supervisor", "")
    wrong: Any = apsw.ConstraintError if is_sqlite(store) else psycopg.errors.RaiseException
    for sql in (
        "UPDATE journal SET actor = 'bob'",
        "UPDATE journal SET via = NULL WHERE verb = 'hold'",
        "UPDATE journal SET via = 'cli' WHERE verb = 'release'",
    ):
        with pytest.raises(wrong, match="nobody changes the audit"):
            change(store, sql)
    assert change(store, "UPDATE journal SET note = 'x' WHERE verb = 'release'") == 1
    assert [(one.actor, one.via) for one in await store.reads.journal(run_id)] == [
        ("supervisor", None),
        (str(ANN), "http"),
    ]


async def test_only_the_retention_removes_the_audit(store: Store) -> None:
    """A statement that tries removes the other rows, however old the audit is."""
    planted(store, "young", 0)
    planted(store, "old", 900)
    planted(store, "old, of a run", 900, run="'r'")
    planted(store, "reclaim", 0, via="NULL")
    assert change(store, "DELETE FROM journal") == 1
    assert change(store, "DELETE FROM journal WHERE verb = 'old'") == 0
    assert await verbs(store) == ["young", "old", "old, of a run"]


async def test_the_retention_leaves_what_is_young(store: Store) -> None:
    """Whatever it is asked for: there is no setting or flag by which one could remove it. What the retention says about
    its transaction is over with it."""
    planted(store, "young", AUDIT_STAYS_DAYS - 0.1)
    planted(store, "old", AUDIT_STAYS_DAYS + 0.1)
    epoch = await store.leader.lead(A, 60.0)
    assert epoch is not None
    assert await store.retention.forget_audit(epoch, await store.now() + 60, 100) == 1
    assert await verbs(store) == ["young"]
    planted(store, "old again", 900)
    assert change(store, "DELETE FROM journal") == 0
    assert await verbs(store) == ["young", "old again"]


async def test_what_older_nodes_prune_by_does_not_fail(store: Store) -> None:
    """Their statements, as they were before the audit had triggers, remove what they may. What stays is counted by none
    of them, so that they do not try again and again."""
    planted(store, "audit of the run", 1, run="'r'")
    planted(store, "engine", 1, via="NULL", run="'r'")
    planted(store, "audit", 29)
    planted(store, "older audit", 91)
    if is_sqlite(store):
        of_run = (
            "DELETE FROM journal WHERE rowid IN (SELECT t.rowid FROM json_each(json_array('r')) u CROSS JOIN journal t "
            "INDEXED BY journal_of ON t.run_id = u.value LIMIT 100)"
        )
        old = "SELECT id FROM journal INDEXED BY journal_apart WHERE run_id IS NULL AND at < {} ORDER BY at LIMIT 9"
    else:
        of_run = (
            "DELETE FROM holdfast.journal WHERE ctid = ANY(ARRAY(SELECT ctid FROM holdfast.journal "
            "WHERE run_id = ANY(ARRAY['r']) AND run_id IS NOT NULL LIMIT 100))"
        )
        old = "SELECT id FROM holdfast.journal WHERE run_id IS NULL AND at < {} ORDER BY at LIMIT 9"
    assert change(store, of_run) == 1
    assert change(store, f"DELETE FROM journal WHERE id IN ({old.format(ago(store, 7))})") == 0
    assert await verbs(store) == ["audit of the run", "audit", "older audit"]


async def test_the_leader_prunes_the_audit_when_its_time_has_come(store: Store) -> None:
    """By `keep_audit_days`, whatever it is about, and not by `keep_journal_days`, which is for the other rows."""
    for days in (399, 401):
        planted(store, f"audit {days}", days)
        planted(store, f"audit of a run {days}", days, run="'r'")
    planted(store, "reclaim", 91, via="NULL")
    await Supervisor(store, A, Environment(), Config()).tick()
    assert await verbs(store) == ["audit 399", "audit of a run 399"]
    await Supervisor(store, A, Environment(), Config(keep_audit_days=390)).tick()
    assert await verbs(store) == []


async def test_the_leader_prunes_the_audit_in_batches(store: Store) -> None:
    """A transaction removes so many rows at most, the oldest first, and the next pass goes on at once."""
    for days in range(405, 400, -1):
        planted(store, f"audit {days}", days)
    epoch = await store.leader.lead(A, 60.0)
    assert epoch is not None
    forgetting = RowPruner(store.retention, Config(prune_rows_max=2, prune_every_s=3600))
    left = []
    for at in (1.0, 2.0, 3.0):
        await forgetting.forget(epoch, at, await store.now())
        left.append(await verbs(store))
    assert left == [["audit 403", "audit 402", "audit 401"], ["audit 401"], []]


async def test_only_the_leader_prunes_the_audit(store: Store) -> None:
    """A leader whose epoch is over removes nothing. Neither does the command that prunes runs."""
    planted(store, "old", 900, run="'r'")
    epoch = await store.leader.lead(A, 60.0)
    assert epoch is not None
    now = await store.now()
    assert await store.retention.forget_audit(epoch + 1, now - 400 * DAY_S, 100) == 0
    await ended(store)
    assert (await prune(store)).runs == 1
    assert "old" in await verbs(store)
    assert await store.retention.forget_audit(epoch, now - 400 * DAY_S, 100) == 1
    assert "old" not in await verbs(store)


def test_the_setting_is_not_below_what_stores_keep() -> None:
    """It would promise what no store does."""
    with pytest.raises(InvalidSettings, match="at least"):
        Config(keep_audit_days=29)
    assert Config(keep_audit_days=AUDIT_STAYS_DAYS).keep_audit_days == AUDIT_STAYS_DAYS


async def test_refused_requests_are_in_the_namespace_of_who_asked(store: Store) -> None:
    """If it is one. What is about nobody, or about somebody for several, is about the whole store."""
    rows = [RefusedEntry(ANN, namespace, f"by {namespace}") for namespace in ("default", "acme", None)]
    await store.tokens.journal_refused(rows)
    for namespace in ("default", "acme"):
        (entry,) = await store.reads.journal(None, namespace=namespace)
        assert (entry.verb, entry.note, entry.via) == ("refuse", f"by {namespace}", "http")
        assert (entry.request, entry.run_id) == ("request-1", None)
    (entry,) = await store.reads.journal(None, namespace="")
    assert entry.note == "by None"


async def test_the_journal_is_searched(store: Store) -> None:
    """By parts of names in any case, and by the way and the request as they are. Newest first, in one namespace or all."""
    run_id = await begin(store, call(1))
    await store.operators.hold(run_id, ANN, "")
    await store.operators.release(run_id, Actor("bob", "cli"), "")
    await store.tokens.journal_refused([RefusedEntry(ANN, "acme", "1 request")])
    found: dict[str, JournalFilter] = {
        "refuse hold": JournalFilter(actor="ANN"),
        "refuse": JournalFilter(verb="REFU"),
        "release": JournalFilter(via="cli"),
        "": JournalFilter(via="cl"),
        "hold": JournalFilter(verb="hold", request="request-1"),
        "refuse release hold": JournalFilter(),
    }
    for wanted, where in found.items():
        entries = await store.reads.journal_found(where, 10)
        assert " ".join(entry.verb for entry in entries) == wanted, where
        entries = await store.reads.journal_found(where, 10, "acme")
        assert " ".join(entry.verb for entry in entries) == ("refuse" if "refuse" in wanted else ""), where
    assert [entry.verb for entry in await store.reads.journal_found(JournalFilter(), 1)] == ["refuse"]
    await store.operators.hold(run_id, "supervisor", "")
    entries = await store.reads.journal_found(JournalFilter(via="*"), 10)
    assert [entry.verb for entry in entries] == ["refuse", "release", "hold"], (
        "no role of Holdfast came by a way"
    )
    assert len(await store.reads.journal_found(JournalFilter(), 10)) == 4


def test_a_store_that_is_used_again_in_tests_begins_without_an_audit() -> None:
    """The worlds of `holdfast.testing` use one database after another. What was done in one is not known in the next."""
    memory = _Memory()
    memory.connection.execute("INSERT INTO journal (at, actor, verb, via) VALUES (1e9, 'ann', 'hold', 'cli')")
    memory.empty()
    assert memory.connection.execute("SELECT count(*) FROM journal").get == 0
