"""SQLite finds rows by primary key or by the right index, whatever its estimates of the size of tables are."""

from typing import Any

import apsw
import pytest

from holdfast.environment import Environment
from holdfast.store.sqlite import schema
from holdfast.store.sqlite.clock import Clock
from holdfast.store.sqlite.verbs import STATEMENTS

LOOKS_AT_ALL = {
    "lanes",
    "nodes",
    "journal",
    "runs_by_state",
    "doctor",
    "applied_migrations",
    "resign",
    "move_leases",
    "move_nodes",
    "move_steps",
}
"""Statements that may scan a table. They read a small table, or run in their own thread because they read everything,
or run once after a clock was set."""
BY_INDEX_ALONE = {
    "awake_runs": {"steps_undelivered", "signals_undelivered"},
    "undelivered_steps": {"steps_undelivered"},
    "undelivered_signals": {"signals_undelivered"},
    "late_signals": {"signals_undelivered"},
    "any_ready": {"steps_ready"},
    "next_timer": {"steps_timers"},
    "living": {"nodes_live"},
    "late_runs": {"runs_pending"},
    "late_wakes": {"steps_undelivered", "signals_undelivered"},
    "loads": {"steps_held", "runs_owned"},
    "overlong_steps": {"steps_held"},
    "idle_twins": {"twins_live"},
    "breaker_looks": {"steps_held"},
    "schedule_looks": {"schedules_due"},
    "gone_schedules": {"schedules_due"},
    "other_tzdata": {"schedules_due"},
    "failures": {"f"},
}
"""Statements that read a whole partial index or table, which has only rows that wait."""
TABLES = {
    "runs",
    "steps",
    "attempts",
    "signals",
    "nodes",
    "journal",
    "leases",
    "lanes",
    "s",
    "r",
    "twins",
    "t",
    "schedules",
    "fires",
    "f",
}


def plan(connection: apsw.Connection, sql: str) -> list[str]:
    """Return the plan of a statement, with any number of parameters."""
    found: Any = connection.execute("EXPLAIN QUERY PLAN " + sql, (None,) * parameters(connection, sql))
    return [row[3] for row in found]


def parameters(connection: apsw.Connection, sql: str) -> int:
    for count in range(30):
        try:
            connection.execute("EXPLAIN " + sql, (None,) * count).fetchall()
        except apsw.BindingsError:
            continue
        return count
    raise AssertionError(sql)


@pytest.fixture(params=["empty", "large"])
def planner(request: pytest.FixtureRequest) -> apsw.Connection:
    """A database with this schema. It is empty, or its statistics say that it is large."""
    connection = apsw.Connection(":memory:")
    Clock(Environment(), is_shared=False).serve(connection)
    schema.migrate(connection, "the database")
    if request.param == "large":
        connection.execute("ANALYZE")
        rows = [
            ("runs", "sqlite_autoindex_runs_1", "1000000 1"),
            ("runs", "runs_pending", "500000 250000 250000 50000 1"),
            ("runs", "runs_owned", "1000 300"),
            ("runs", "runs_newest", "1000000 500000 1 1"),
            ("steps", "sqlite_autoindex_steps_1", "10000000 10 1"),
            ("steps", "steps_ready", "100000 50000 20000 1"),
            ("steps", "steps_held", "1000 300 1"),
            ("steps", "steps_timers", "1000000 1"),
            ("steps", "steps_undelivered", "10 1"),
            ("signals", "sqlite_autoindex_signals_1", "1000000 5 2 1"),
            ("signals", "signals_undelivered", "10 1 1"),
        ]
        connection.executemany("INSERT INTO sqlite_stat1 VALUES (?, ?, ?)", rows)
        connection.execute("ANALYZE sqlite_schema")
    return connection


@pytest.mark.parametrize("verb", sorted(STATEMENTS.keys() - LOOKS_AT_ALL - {"make_migrations"}))
def test_statements_find_their_rows_by_index(planner: apsw.Connection, verb: str) -> None:
    """No statement scans a table. Those that read a whole index read a partial one, and are listed."""
    for line in plan(planner, STATEMENTS[verb]):
        words = line.split()
        if words[0] == "SCAN" and words[1] in TABLES:
            assert verb in BY_INDEX_ALONE, line
            assert words[-1] in BY_INDEX_ALONE[verb], line


@pytest.mark.parametrize(
    ("verb", "index"),
    [
        ("own_runs", "sqlite_autoindex_runs_1 (id=?)"),
        ("record_outcomes", "sqlite_autoindex_steps_1 (run_id=? AND n=?)"),
        ("deliver_steps", "sqlite_autoindex_steps_1 (run_id=? AND n=?)"),
        ("end_waits", "sqlite_autoindex_steps_1 (run_id=? AND n=?)"),
        ("drop_steps", "sqlite_autoindex_steps_1 (run_id=? AND n=?)"),
        ("close_runs", "sqlite_autoindex_runs_1 (id=?)"),
        ("due_steps", "steps_ready (lane=? AND priority=? AND ready_at<?)"),
        ("probe_lanes", "lanes_depends (depends=? AND rowid=?)"),
        ("pending_runs", "runs_pending (workflow=? AND version=?)"),
        ("due_timers", "steps_timers (ready_at<?)"),
        ("overdue_steps", "steps_held (agent=? AND complete_by<?)"),
        ("backlog", "steps_ready (lane=? AND priority=? AND ready_at<?)"),
        ("left_nodes", "nodes_left (retired_at<?)"),
        ("old_journal", "journal_apart (at<?)"),
        ("claimed_by", "steps_held (agent=?)"),
        ("owned_by", "runs_owned (owner=?)"),
        ("due_deliveries", "deliveries_due (channel=? AND next_try_at<?)"),
        ("open_alerts_of", "alerts_open_by_kind (kind=? AND id>?)"),
        ("count_old_runs", "runs_ended (state=? AND finished_at>? AND finished_at<?)"),
        ("runs", "runs_newest (namespace=? AND created_at>? AND (created_at,id)<(?,?))"),
        ("namespaces", "runs_newest (namespace>?)"),
        ("journal_in", "journal_in (namespace=?)"),
        ("alerts_in", "alerts_in (namespace=?)"),
        ("open_alerts_in", "alerts_open_in (namespace=?)"),
        ("acts_in", "acts_in (namespace=?)"),
        ("fires", "PRIMARY KEY (schedule=? AND at<?)"),
        ("old_fires", "fires_decided (decided_at<?)"),
        ("backfills", "backfills_of (schedule=?)"),
        ("outrun_step", "sqlite_autoindex_steps_1 (run_id=? AND n=?)"),
        ("landmarks", "sqlite_autoindex_steps_1 (run_id=?)"),
    ],
)
def test_hot_statements_use_the_index_made_for_them(planner: apsw.Connection, verb: str, index: str) -> None:
    """They use the primary key or the index with this name, with all its columns, and do not sort."""
    lines = plan(planner, STATEMENTS[verb])
    assert any(line.endswith(index) for line in lines), lines
    assert not any("TEMP B-TREE" in line for line in lines), lines


def test_runs_are_found_by_the_beginning_of_their_id(planner: apsw.Connection) -> None:
    """The primary key bounds what is read. Only what was found is put in order."""
    lines = plan(planner, STATEMENTS["runs_beginning"])
    assert any(line.endswith("sqlite_autoindex_runs_1 (id>? AND id<?)") for line in lines), lines
