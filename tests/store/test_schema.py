"""Migrations only go forward and have checksums, constraints agree with the code, and all statements are used."""

import asyncio
import re
import zlib
from enum import StrEnum
from importlib.resources import files
from pathlib import Path

import msgspec
import psycopg
import pytest

from holdfast.environment import Environment
from holdfast.errors import SchemaMismatch, StoreUnreachable
from holdfast.lifecycle import RUN_ACTIVE, RUN_ENDED
from holdfast.model import Ending, RunState, StepKind, StepState
from holdfast.store import open_store
from holdfast.store.migrations import EXPANDS, read_migrations
from holdfast.store.reads import RunFilter
from holdfast.store.statements import NOUNS, load, read_statements
from holdfast.store.store import Store
from holdfast.store.verbs import Verb
from tests.store.conftest import Tamper, run_sql
from tests.store.made import ENVIRONMENT, begin, running_call

DIALECTS = ["holdfast.store.sqlite", "holdfast.store.postgres"]


async def test_migrating_twice_changes_nothing(store: Store) -> None:
    """A current database is left alone."""
    current = len(read_migrations(DIALECTS[0]))
    assert await store.migrate() == (current, current)


async def test_a_new_database_is_migrated_from_nothing(empty_url: str) -> None:
    """It goes from schema 0 to the schema of this version."""
    store = open_store(empty_url, Environment())
    assert await store.migrate() == (0, len(read_migrations(DIALECTS[0])))
    await store.close()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            "INSERT INTO migrations SELECT 99, name, checksum, applied_at FROM migrations WHERE version = 1",
            "newer",
        ),
        ("UPDATE migrations SET checksum = 'other'", "another build"),
    ],
)
async def test_a_database_of_another_version_is_refused(
    store: Store, tamper: Tamper, change: str, says: str
) -> None:
    """It is too new, or was made by another build. The message says what to do."""
    tamper(change)
    again = open_store(store.url, Environment())
    with pytest.raises(SchemaMismatch, match=says):
        await again.open()
    await again.close()


def columns(package: str) -> dict[str, set[str]]:
    """Return the columns of each table, as the migrations declare them."""
    sql = "\n".join(migration.sql for migration in read_migrations(package))
    tables: dict[str, set[str]] = {}
    for table, body in re.findall(r"CREATE TABLE (?:holdfast\.)?(\w+) \((.*?)\n\)", sql, re.DOTALL):
        names = re.findall(r"^    (\w+) ", body, re.MULTILINE)
        tables[table] = {name for name in names if name.islower()}
    for table, changes in re.findall(r"ALTER TABLE (?:holdfast\.)?(\w+)(.*?);", sql, re.DOTALL):
        tables[table] |= set(re.findall(r"ADD COLUMN (\w+) ", changes))
        tables[table] -= set(re.findall(r"DROP COLUMN (\w+)", changes))
    return tables


def test_both_dialects_have_the_same_tables() -> None:
    """They have the same tables and columns, with three exceptions. PostgreSQL has a function instead of a computed
    column, and needs no table for the clock, nor for what a transaction says about itself."""
    sqlite, postgres = (columns(package) for package in DIALECTS)
    sqlite["steps"] -= {"spent"}
    assert sqlite.pop("clock") == {"one", "boot", "anchor"}
    assert sqlite.pop("retention") == {"since"}
    assert sqlite == postgres


def check_values(package: str, table: str, column: str) -> set[str]:
    """Return the values that a column's CHECK allows, as the newest migration that has one declares it."""
    found: str | None = None
    for migration in read_migrations(package):
        for body in re.findall(rf"CREATE TABLE (?:holdfast\.)?{table} \((.*?)\n\)", migration.sql, re.DOTALL):
            check = re.search(rf"^    {column} [^\n]*CHECK \((.*?)\),$", body, re.DOTALL | re.MULTILINE)
            found = check[1] if check else found
        changed = rf"ADD CONSTRAINT {table}_{column}_check\s+CHECK \((.*?)\);"
        for check in re.finditer(changed, migration.sql, re.DOTALL):
            found = check[1]
    assert found is not None, f"{package}: no CHECK on {table}.{column}"
    return set(re.findall(r"'([^']*)'", found))


RESERVED = {"marker", "ask", "callback"}
"""Kinds of steps that the schema allows and that code may not have yet."""


@pytest.mark.parametrize("package", DIALECTS)
@pytest.mark.parametrize(
    ("table", "column", "values"),
    [
        ("runs", "state", RunState),
        ("steps", "state", StepState),
        ("steps", "kind", StepKind),
        ("attempts", "ending", Ending),
    ],
)
def test_check_constraints_equal_the_model(
    package: str, table: str, column: str, values: type[StrEnum]
) -> None:
    """The database allows exactly what the code knows, and the kinds of steps that are reserved."""
    assert check_values(package, table, column) - set(values) <= RESERVED
    assert set(values) <= check_values(package, table, column)


@pytest.mark.parametrize("package", DIALECTS)
@pytest.mark.parametrize(
    ("constraint", "values"), [("ended_has_time", RUN_ENDED), ("owned_is_active", RUN_ACTIVE)]
)
def test_run_constraints_equal_the_lifecycle(package: str, constraint: str, values: frozenset[str]) -> None:
    """The code and the SQL agree on which states end a run, and in which states it may be owned."""
    sql = read_migrations(package)[0].sql
    found = re.search(rf"CONSTRAINT {constraint} CHECK(.*?)\n\s*(?:CONSTRAINT|\))", sql, re.DOTALL)
    assert found
    assert set(re.findall(r"'(\w+)'", found[1])) == set(values)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE runs SET state = 'sleeping'",
        "UPDATE runs SET state = 'succeeded', owner = NULL",
        "UPDATE runs SET owner = 'node-a', state = 'held'",
        "UPDATE steps SET state = 'done'",
        "UPDATE steps SET kind = 'task'",
        "UPDATE steps SET agent = NULL",
    ],
)
async def test_the_database_refuses_what_cannot_be(store: Store, tamper: Tamper, damage: str) -> None:
    """The database itself refuses states that contradict themselves."""
    await begin(store, running_call(1))
    with pytest.raises(Exception, match=r"(?i)constraint"):
        tamper(damage)


@pytest.mark.parametrize("package", DIALECTS)
def test_migrations_are_numbered_without_gaps(package: str) -> None:
    """They are numbered 1, 2, 3 …, and each has a checksum."""
    found = read_migrations(package)
    assert [one.version for one in found] == list(range(1, len(found) + 1))
    assert len({one.checksum for one in found}) == len(found)


def package_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str) -> str:
    """A package whose only statements are these."""
    name = f"a_dialect_{zlib.crc32(sql.encode())}"  # a package is imported once
    folder = tmp_path / name
    (folder / "statements").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "statements" / "things.sql").write_text(sql)
    monkeypatch.syspath_prepend(tmp_path)
    return name


VERBS = ("claim", "renew")


def test_statements_are_loaded_by_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments are removed, and the text stays."""
    package = package_with(
        tmp_path,
        monkeypatch,
        "-- about\n-- name: claim\nSELECT 1\n-- why\nFROM a\n\n-- name: renew\nSELECT 2\n",
    )
    assert load(package, VERBS) == {"claim": "SELECT 1\nFROM a", "renew": "SELECT 2"}


class Landed(msgspec.Struct):
    """A noun of the next test."""

    id: str
    at: float


def test_fragments_and_columns_are_put_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fragment may use another one. The name of a noun is replaced by its columns."""
    package = package_with(
        tmp_path,
        monkeypatch,
        "-- name: claim\nSELECT {Landed(s)} FROM s WHERE {done(s)}\n-- fragment: never\n7\n"
        "-- fragment: done(x)\n({x}.at < {never})\n-- name: renew\nSELECT {Landed}\n",
    )
    monkeypatch.setitem(NOUNS, "Landed", (__name__, "Landed"))
    assert load(package, VERBS) == {
        "claim": "SELECT s.id, s.at FROM s WHERE (s.at < 7)",
        "renew": "SELECT id, at",
    }


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("-- name: claim\nSELECT 1\n", "no statement for renew"),
        (
            "-- name: claim\nSELECT 1\n-- name: renew\nSELECT 2\n-- name: other\nSELECT 3\n",
            "no verb uses the statements other",
        ),
        ("-- name: claim\nSELECT 1\n-- name: claim\nSELECT 2\n", "is defined twice"),
        ("-- name: claim\n{gone}\n-- name: renew\nSELECT 2\n", "claim: there is no fragment 'gone'"),
        (
            "-- name: claim\n1\n-- name: renew\n2\n-- fragment: idle\n3\n",
            "no statement uses the fragments idle",
        ),
        ("-- name: claim\n{f}\n-- name: renew\n2\n-- fragment: f(x)\n{x}\n", "'f' takes an argument"),
        ("-- name: claim\n{f(s)}\n-- name: renew\n2\n-- fragment: f\n3\n", "'f' takes no argument"),
    ],
)
def test_a_missing_unused_or_doubled_statement_fails_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str, says: str
) -> None:
    """So the error shows when a process starts, and not when the statement is first needed."""
    package = package_with(tmp_path, monkeypatch, sql)
    with pytest.raises(ValueError, match=says):
        load(package, VERBS)


@pytest.mark.parametrize("package", DIALECTS)
def test_every_statement_is_used(package: str) -> None:
    """The code of the store or of the dialect uses each verb."""
    folders = files("holdfast.store"), files(package)
    code = "".join(
        file.read_text("utf-8")
        for folder in folders
        for file in folder.iterdir()
        if file.name.endswith(".py") and file.name != "verbs.py"
    )
    unused = [verb for verb in read_statements(package) if not re.search(rf"(?:Verb|Own)\.{verb}\b", code)]
    assert unused == []


def test_both_dialects_have_the_same_verbs() -> None:
    """Only the statements with which a dialect claims and keeps itself running may differ."""
    own = [set(read_statements(package)) - set(Verb) for package in DIALECTS]
    assert all(set(Verb) <= set(read_statements(package)) for package in DIALECTS)
    assert not own[0] & own[1]
    assert len(own[0] | own[1]) < len(Verb) / 6


@pytest.mark.parametrize("package", DIALECTS)
def test_statements_name_their_columns(package: str) -> None:
    """So a column can be added while nodes of an older version run, because none of their statements returns it."""
    starred = [
        verb
        for verb, text in read_statements(package).items()
        if re.search(r"(?:SELECT|RETURNING|,)\s+(?:DISTINCT\s+)?(?:\w+\.)?\*", text)
    ]
    assert starred == []


async def test_an_empty_database_migrates_itself(empty_url: str) -> None:
    """A database without our tables can be migrated without asking anybody."""
    store = open_store(empty_url, Environment())
    await store.open()
    assert await store.reads.runs_by_state() == {}
    await store.close()
    run_sql(empty_url, "SELECT version FROM migrations")


async def test_an_older_database_is_upgraded_with_what_is_in_it(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused until it is migrated. Then its alerts are there, one open alert for each run."""
    first = read_migrations(DIALECTS[0] if empty_url.startswith("sqlite") else DIALECTS[1])[:1]
    module = "sqlite.schema" if empty_url.startswith("sqlite") else "postgres.database"
    old = open_store(empty_url, Environment())
    with monkeypatch.context() as patch:
        patch.setattr(f"holdfast.store.{module}.read_migrations", lambda package: first)
        await old.migrate()
        await old.close()
    at = "0" if empty_url.startswith("sqlite") else "now()"
    for run_id in ("a", "a", "b"):
        row = f"({at}, 'run stuck', '{run_id}', '')"
        run_sql(empty_url, f"INSERT INTO alerts (at, kind, run_id, message) VALUES {row}")
    store = open_store(empty_url, Environment())
    with pytest.raises(SchemaMismatch, match="run `holdfast migrate`"):
        await store.open()
    await store.close()
    assert await store.migrate() == (1, len(read_migrations(DIALECTS[0])))
    await store.close()
    await store.open()
    assert [alert.key for alert in await store.alerts.open_alerts(10)] == ["run stuck:b", "run stuck:a"]
    assert len(await store.alerts.alerts()) == 3
    await store.close()


async def test_steps_of_an_older_database_have_spent_what_they_had(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counters that the older schema did not have are 0. Losses and excused attempts stay counted, and all other
    attempts count as failures of the application."""
    known = read_migrations(DIALECTS[0] if empty_url.startswith("sqlite") else DIALECTS[1])
    before = [migration for migration in known if migration.name != "quarantine" and migration.version < 5]
    module = "sqlite.schema" if empty_url.startswith("sqlite") else "postgres.database"
    old = open_store(empty_url, Environment())
    with monkeypatch.context() as patch:
        patch.setattr(f"holdfast.store.{module}.read_migrations", lambda package: before)
        await old.migrate()
        await old.close()
    at, raw = ("0", "x'7b7d'") if empty_url.startswith("sqlite") else ("now()", "'{}'::bytea")
    run_sql(
        empty_url,
        f"INSERT INTO runs (id, workflow, version, state, input, digest, created_at) "
        f"VALUES ('r', 'shop.order', '1', 'running', {raw}, {raw}, {at})",
    )
    run_sql(
        empty_url,
        f"INSERT INTO steps (run_id, n, key, kind, name, lane, state, ready_at, attempt, losses, excused, attempts_max, "
        f"issued_at) VALUES ('r', 1, 'charge', 'call', 'shop.charge', 1, 'ready', {at}, 7, 2, 3, 3, {at})",
    )
    store = open_store(empty_url, Environment())
    await store.migrate()
    await store.open()
    (row,) = await store.reads.steps("r")
    assert (row.spent, row.timeouts, row.throttled, row.quarantined) == (2, 0, 0, False)
    assert [name for name, _, rows in await store.reads.doctor() if rows] == []
    await store.close()


async def test_two_nodes_may_open_a_new_database_at_once(empty_url: str) -> None:
    """One of them migrates, and the other waits for it."""
    stores = [open_store(empty_url, Environment()) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    current = len(read_migrations(DIALECTS[0]))
    assert [await store.migrate() for store in stores] == [(current, current)] * 4
    for store in stores:
        await store.close()


async def test_the_wait_for_a_locked_schema_is_limited(pg_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which session has the lock."""
    monkeypatch.setattr("holdfast.store.postgres.database.SCHEMA_LOCK_S", 0.3)
    store = open_store(pg_url, ENVIRONMENT)
    with psycopg.connect(pg_url, application_name="migrating") as keeper:
        keeper.execute("SELECT pg_advisory_lock(4870117)")
        message = rf"session {keeper.info.backend_pid} of .* \(migrating\) has kept the schema locked"
        with pytest.raises(StoreUnreachable, match=message):
            await store.migrate()
    await store.migrate()
    await store.close()


async def test_a_schema_that_live_nodes_use_is_not_changed(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would go on with statements for the old schema. Nodes that left, or whose lease ran out, do not count."""
    sqlite = empty_url.startswith("sqlite")
    known = read_migrations(DIALECTS[0] if sqlite else DIALECTS[1])
    old = known[: max(one.version for one in known if not one.name.startswith(EXPANDS)) - 1]
    module = "sqlite.schema" if sqlite else "postgres.database"
    store = open_store(empty_url, Environment())
    with monkeypatch.context() as patch:
        patch.setattr(f"holdfast.store.{module}.read_migrations", lambda package: old)
        await store.migrate()
        await store.close()
    in_a_minute, before = (
        (f"{Environment().now()} + 60", "1") if sqlite else ("now() + '60 s'::interval", "'2020-01-01'")
    )
    for pid, until, left in ((17, in_a_minute, "NULL"), (18, in_a_minute, before), (19, before, "NULL")):
        run_sql(
            empty_url,
            "INSERT INTO nodes (id, host, pid, roles, offers, capacity, started_at, lease_until, retired_at) "
            f"VALUES ('{pid}', 'here', {pid}, '', '{{}}', 1, {before}, {until}, {left})",
        )
    with pytest.raises(SchemaMismatch, match=r"is in use by here pid 17: stop them, .* another (59|60) s"):
        await store.migrate()
    run_sql(empty_url, f"UPDATE nodes SET lease_until = {before}")
    assert await store.migrate() == (len(old), len(known))
    await store.close()


async def test_namespaces_of_an_older_database_become_walls(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs in other namespaces get stored names for their code and their steps, and lanes of their own. Ids stay as they
    are. What is in `default` is not touched, and what people list has its namespace."""
    is_sqlite = empty_url.startswith("sqlite")
    before = read_migrations(DIALECTS[0] if is_sqlite else DIALECTS[1])[:19]
    module = "sqlite.schema" if is_sqlite else "postgres.database"
    old = open_store(empty_url, Environment())
    with monkeypatch.context() as patch:
        patch.setattr(f"holdfast.store.{module}.read_migrations", lambda package: before)
        await old.migrate()
        await old.close()
    at, raw = ("0", "x'7b7d'") if is_sqlite else ("now()", "'{}'::bytea")
    run_sql(empty_url, "INSERT INTO lanes (name, needs, depends) VALUES ('shop.charge', '[]', 'bank')")
    for run_id, namespace in (("d", "default"), ("a", "acme"), ("b//new", "b")):
        run_sql(
            empty_url,
            "INSERT INTO runs (id, namespace, workflow, version, state, input, digest, created_at) "
            f"VALUES ('{run_id}', '{namespace}', 'shop.order', '1', 'running', {raw}, {raw}, {at})",
        )
        for n, kind in ((1, "call"), (2, "signal")):
            run_sql(
                empty_url,
                "INSERT INTO steps (run_id, n, key, kind, name, lane, state, ready_at, issued_at) VALUES "
                f"('{run_id}', {n}, 'k{n}', '{kind}', 'shop.charge', {2 - n}, 'ready', {at}, {at})",
            )
        row = f"({at}, 'ann', 'hold', '{run_id}')"
        run_sql(empty_url, f"INSERT INTO journal (at, actor, verb, run_id) VALUES {row}")
        row = f"({at}, 'run stuck', '{run_id}', '', '{run_id}')"
        run_sql(empty_url, f"INSERT INTO alerts (at, kind, run_id, message, key) VALUES {row}")
    run_sql(empty_url, f"INSERT INTO journal (at, actor, verb) VALUES ({at}, 'ann', 'token create')")
    store = open_store(empty_url, Environment())
    assert await store.migrate() == (19, len(read_migrations(DIALECTS[0])))
    await store.open()
    for run_id, prefix in (("d", ""), ("a", "acme//"), ("b//new", "b//")):
        found = await store.reads.run(run_id)
        assert found is not None
        assert found.workflow == f"{prefix}shop.order"
        call, waits = await store.reads.steps(run_id)
        assert (call.name, waits.name) == (f"{prefix}shop.charge", "shop.charge")
        (lane,) = [one for one in await store.agents.lanes() if one.id == call.lane]
        assert (lane.name, lane.depends) == (f"{prefix}shop.charge", f"{prefix}bank")
        assert [one.id for one in await store.reads.runs(RunFilter(namespace=found.namespace))] == [run_id]
    assert sorted(one.id for one in await store.reads.runs(RunFilter())) == ["a", "b//new", "d"]
    assert [one.run_id for one in await store.reads.journal(None, namespace="b")] == ["b//new"]
    assert len(await store.reads.journal(None)) == 4
    assert [one.run_id for one in await store.alerts.open_alerts(9, "b")] == ["b//new"]
    assert [name for name, _, rows in await store.reads.doctor() if rows and name == "I44"] == []
    await store.close()


async def test_the_migration_to_walls_takes_time_by_the_rows_it_changes(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20,000 steps of another namespace are changed within seconds: no row is looked at twice for each other row."""
    is_sqlite = empty_url.startswith("sqlite")
    before = read_migrations(DIALECTS[0] if is_sqlite else DIALECTS[1])[:19]
    module = "sqlite.schema" if is_sqlite else "postgres.database"
    old = open_store(empty_url, Environment())
    with monkeypatch.context() as patch:
        patch.setattr(f"holdfast.store.{module}.read_migrations", lambda package: before)
        await old.migrate()
        await old.close()
    at, raw = ("0", "x'7b7d'") if is_sqlite else ("now()", "'{}'::bytea")
    count = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 20000)"
    run_sql(empty_url, "INSERT INTO lanes (name, needs, depends) VALUES ('shop.charge', '[]', 'bank')")
    run_sql(
        empty_url,
        f"{count} INSERT INTO runs (id, namespace, workflow, version, state, input, digest, created_at) "
        f"SELECT 'r' || i, 'acme', 'shop.order', '1', 'running', {raw}, {raw}, {at} FROM c",
    )
    run_sql(
        empty_url,
        f"{count} INSERT INTO steps (run_id, n, key, kind, name, lane, state, ready_at, issued_at) "
        f"SELECT 'r' || i, 1, 'k', 'call', 'shop.charge', 1, 'ready', {at}, {at} FROM c",
    )
    store = open_store(empty_url, Environment())
    async with asyncio.timeout(60):
        await store.migrate()
    await store.open()
    row = await store.reads.run("r20000")
    assert row is not None
    assert row.workflow == "acme//shop.order"
    await store.close()
