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
    "journal_found",
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
    "next_start": {"runs_delayed"},
    "living": {"nodes_live"},
    "any_promised": {"runs_due", "steps_due"},
    "late_runs": {"runs_pending"},
    "pending_codes": {"runs_pending"},
    "late_wakes": {"steps_undelivered", "signals_undelivered"},
    "loads": {"steps_held", "runs_owned"},
    "overlong_steps": {"steps_held"},
    "idle_twins": {"twins_live"},
    "held_twins": {"twins_live"},
    "breaker_looks": {"steps_held"},
    "schedule_looks": {"schedules_due"},
    "gone_schedules": {"schedules_due"},
    "other_tzdata": {"schedules_due"},
    "open_event_waits": {"steps_events"},
    "occasion_looks": {"composed_times_due", "occasions_due"},
    "stale_occasions": {"occasions_due"},
    "failures": {"f"},
    "duties": {
        "schedules_due",
        "fires_open",
        "twins_live",
        "signals_undelivered",
        "steps_events",
        "runs_due",
        "steps_due",
    },
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
    "events",
    "event_keys",
    "event_takers",
    "triggers",
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


@pytest.fixture(scope="module", params=["empty", "large"])
def planner(request: pytest.FixtureRequest) -> apsw.Connection:
    """A database with this schema. It is empty, or its statistics say that it is large."""
    connection = apsw.Connection(":memory:")
    Clock(Environment(), is_shared=False).serve(connection)
    schema.migrate(connection, "the database")
    if request.param == "large":
        connection.execute("ANALYZE")
        rows = [
            ("runs", "sqlite_autoindex_runs_1", "1000000 1"),
            ("runs", "runs_pending", "500000 250000 250000 50000 500 1"),
            ("runs", "runs_owned", "1000 300"),
            ("runs", "runs_newest", "1000000 500000 1 1"),
            ("steps", "sqlite_autoindex_steps_1", "10000000 10 1"),
            ("steps", "steps_ready", "100000 50000 20000 500 1"),
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
        ("due_steps", "steps_ready (lane=? AND priority=? AND queue=? AND ready_at<?)"),
        ("probe_lanes", "lanes_depends (depends=? AND rowid=?)"),
        ("due_timers", "steps_timers (ready_at<?)"),
        ("due_starts", "runs_delayed (begin_at<?)"),
        ("promised_runs", "runs_due ((due_at,id)>(?,?))"),
        ("promised_steps", "steps_due ((due_at,run_id,n)>(?,?,?))"),
        ("batch_items", "gathered_of (run_id=?)"),
        ("overdue_steps", "steps_held (agent=? AND complete_by<?)"),
        ("duties", "steps_held (agent=? AND complete_by<?)"),
        ("backlog", "steps_ready (lane=? AND priority=? AND queue=? AND ready_at<?)"),
        ("backlog", "steps_queued (lane=? AND ready_at<?)"),
        ("next_ready", "steps_queued (lane=? AND ready_at>?)"),
        ("step_queues", "steps_ready (lane=? AND priority=? AND queue>? AND queue<?)"),
        ("due_in_queue", "steps_ready (lane=? AND priority=? AND queue=? AND ready_at<?)"),
        ("run_queues", "runs_pending (workflow=? AND version=? AND priority=? AND queue>? AND queue<?)"),
        (
            "pending_in_queue",
            "runs_pending (workflow=? AND version=? AND priority=? AND queue=? AND created_at<?)",
        ),
        ("limit_rooms", "steps_in_a (limit_a=? AND state=?)"),
        ("limit_rooms", "runs_in_c (limit_c=? AND state=?)"),
        ("steps_wait_long", "steps_ready (lane=? AND priority=? AND queue=? AND ready_at<?)"),
        (
            "runs_wait_long",
            "runs_pending (workflow=? AND version=? AND priority=? AND queue=? AND created_at<?)",
        ),
        ("adaptive_limits", "limits_reported (reported_at>?)"),
        ("adaptive_limits", "steps_in_a (limit_a=? AND state=?)"),
        ("move_limit", "INTEGER PRIMARY KEY (rowid=?)"),
        ("observe_limits", "INTEGER PRIMARY KEY (rowid=?)"),
        ("queue_numbers", "sqlite_autoindex_queues_1 (key=?)"),
        ("left_nodes", "nodes_left (retired_at<?)"),
        ("old_journal", "journal_own (at<?)"),
        ("old_audit", "journal_audit (at<?)"),
        ("claimed_by", "steps_held (agent=?)"),
        ("owned_by", "runs_owned (owner=?)"),
        ("due_deliveries", "deliveries_due (channel=? AND next_try_at<?)"),
        ("open_alerts_of", "alerts_open_by_kind (kind=? AND id>?)"),
        ("open_kinds", "alerts_open_by_kind (kind=?)"),
        ("count_old_runs", "runs_ended (state=? AND finished_at>? AND finished_at<?)"),
        ("runs", "runs_newest (namespace=? AND created_at>? AND (created_at,id)<(?,?))"),
        ("namespaces", "runs_newest (namespace>?)"),
        ("journal_in", "journal_in (namespace=?)"),
        ("journal_found_in", "journal_in (namespace=?)"),
        ("alerts_in", "alerts_in (namespace=?)"),
        ("open_alerts_in", "alerts_open_in (namespace=?)"),
        ("acts_in", "acts_in (namespace=?)"),
        ("fires", "PRIMARY KEY (schedule=? AND at<?)"),
        ("old_fires", "fires_decided (decided_at<?)"),
        ("backfills", "backfills_of (schedule=?)"),
        ("old_events", "events_received (received_at<?)"),
        ("old_event_keys", "event_keys_received (received_at<?)"),
        ("old_event_takers", "event_takers_received (received_at<?)"),
        ("triggers_of", "triggers_origin (origin=?)"),
        ("events_of_type", "events_type (namespace=? AND type=?)"),
        ("waiting_callbacks", "steps_called (<expr>=? AND (issued_at,run_id,n)>(?,?,?))"),
        ("waiting_callbacks_of", "sqlite_autoindex_steps_1 (run_id=? AND n>?)"),
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
    for verb in ("runs_beginning", "runs_beginning_oldest"):
        lines = plan(planner, STATEMENTS[verb])
        assert any(line.endswith("sqlite_autoindex_runs_1 (id>? AND id<?)") for line in lines), lines


def test_the_oldest_runs_are_read_in_the_order_of_the_index(planner: apsw.Connection) -> None:
    """No list is sorted, however many runs there are."""
    lines = plan(planner, STATEMENTS["runs_oldest"])
    assert any("runs_newest (namespace=? AND" in line for line in lines), lines
    assert not any("TEMP B-TREE" in line for line in lines), lines
