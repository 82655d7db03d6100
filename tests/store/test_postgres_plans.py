"""PostgreSQL finds rows by the right index, whatever its estimates of the size of tables are."""

import re
from collections.abc import AsyncIterator
from itertools import product

import psycopg
import pytest

from holdfast.environment import Environment
from holdfast.store import open_store
from holdfast.store.batch import ORDER
from holdfast.store.postgres.database import PINNED
from holdfast.store.postgres.session import HOP_PARTS, demanded, hop_of
from holdfast.store.postgres.verbs import STATEMENTS

HOT = [
    "deliver_signals",
    "answer_updates",
    "end_waits",
    "drop_steps",
    "send_signals",
    "note_runs",
    "end_child_steps",
    "park_runs",
    "continue_runs",
    "forget_steps",
    "forget_attempts",
    "forget_logs",
    "unread_signals",
    "keep_answers",
    "forget_signals",
    "keep_attempts",
    "retry_steps",
    "hand_back_steps",
    "save_steps",
]
LARGE = """
UPDATE pg_class SET reltuples = 1e7, relpages = 500000 WHERE relname IN ('runs', 'steps', 'signals', 'attempts', 'logs')
"""
MANY = """
INSERT INTO holdfast.runs (id, workflow, version, state, input, digest, finished_at)
SELECT 'r' || i, 'w', '1', 'succeeded', '', '', clock_timestamp() FROM generate_series(1, 20000) i;
INSERT INTO holdfast.steps (run_id, n, state, kind, key, name, ready_at, issued_at, started_at, finished_at, agent)
SELECT 'r' || i, 1, CASE WHEN i % 100 = 0 THEN 'running' ELSE 'succeeded' END, 'call', 'k', 's', clock_timestamp(),
       clock_timestamp(), clock_timestamp(), CASE WHEN i % 100 > 0 THEN clock_timestamp() END, 'a'
FROM generate_series(1, 20000) i;
INSERT INTO holdfast.twins (run_id, n, state, step_fence, lane, ended_at)
SELECT 'r' || i, 1, 'won', 1, 1, clock_timestamp() FROM generate_series(1, 20000) i;
ANALYZE holdfast.runs, holdfast.steps, holdfast.twins;
"""
CALLBACKS = """
INSERT INTO holdfast.steps (run_id, n, state, kind, key, name, ready_at, issued_at)
SELECT 'r' || i, 2, 'waiting', 'callback', 'c', 's', clock_timestamp(), clock_timestamp() FROM generate_series(1, 20000) i;
ANALYZE holdfast.steps;
"""
ALLOWED = {
    "runs_pkey",
    "steps_pkey",
    "signals_pkey",
    "signals_run_id_name_key_key",
    "attempts_of",
    "logs_pkey",
    "logs_in_time",
    "nodes_pkey",
}


@pytest.fixture
async def session(pg_url: str) -> AsyncIterator[psycopg.Connection]:
    """A connection to a store without rows or statistics."""
    store = open_store(pg_url, Environment())
    await store.migrate()
    await store.close()
    with psycopg.connect(pg_url, autocommit=True) as connection:
        yield connection


def planned(session: psycopg.Connection, statement: str) -> str:
    """Return the generic plan of a prepared statement, which is the same for all parameters."""
    parameters = max((int(number) for number in re.findall(r"\$(\d+)", statement)), default=0)
    given = f"({', '.join(['NULL'] * parameters)})" if parameters else ""
    session.execute("SET plan_cache_mode = force_generic_plan")
    session.execute(f"PREPARE asked AS {statement}".encode())
    explained = session.execute(f"EXPLAIN EXECUTE asked{given}".encode()).fetchall()
    session.execute("DEALLOCATE asked")
    return "\n".join(row[0] for row in explained)


@pytest.mark.parametrize("size", ["empty", "large"])
async def test_hot_statements_use_primary_keys(session: psycopg.Connection, size: str) -> None:
    """On the connection with pinned plans, no statement of a batch scans a table or uses a partial index."""
    for name, value in PINNED.items():
        session.execute(f"SET {name} = {value}".encode())
    if size == "large":
        session.execute(LARGE.encode())
    hot = {verb: STATEMENTS[verb] for verb in HOT}
    hot |= {f"demanded {verb}": demanded(verb) for verb, is_demanded in ORDER if is_demanded}
    for has_rows in product([True, False], repeat=len(HOP_PARTS)):
        if any(has_rows):
            hot[f"hop_of{has_rows}"] = hop_of(*has_rows)
    for verb, statement in hot.items():
        plan = planned(session, statement)
        assert not re.search(r"Seq Scan on (runs|steps|signals|attempts)", plan), f"{verb}\n{plan}"
        assert set(re.findall(r"Index (?:Only )?Scan using (\w+)", plan)) <= ALLOWED, f"{verb}\n{plan}"


@pytest.mark.parametrize(
    ("verb", "index"),
    [
        ("overlong_steps", "steps_held"),
        ("ready_twins", "twins_live"),
        ("idle_twins", "twins_live"),
        ("held_twins", "twins_live"),
        ("landmarks", "steps_pkey"),
    ],
)
async def test_what_the_leader_asks_often_is_found_by_index(
    session: psycopg.Connection, verb: str, index: str
) -> None:
    """If the tables have rows, the planner chooses the index by itself."""
    session.execute(MANY.encode())
    plan = planned(session, STATEMENTS[verb])
    assert re.search(rf"(?:using|on) {index}\b", plan), plan
    assert not re.search(r"Seq Scan on (runs|steps|twins)", plan), plan


@pytest.mark.parametrize(
    ("verb", "index"),
    [
        ("runs", "runs_newest"),
        ("runs_beginning", "runs_pkey"),
        ("runs_oldest", "runs_newest"),
        ("runs_beginning_oldest", "runs_pkey"),
        ("meant_runs_named", "runs_pkey"),
    ],
)
async def test_lists_of_runs_read_a_range_of_an_index(
    session: psycopg.Connection, verb: str, index: str
) -> None:
    """A list reads the runs of its span of time, newest first, and a beginning of an id is a range of the primary
    key."""
    session.execute(MANY.encode())
    plan = planned(session, STATEMENTS[verb])
    assert re.search(rf"(?:using|on) {index}\b", plan), plan
    assert not re.search(r"Seq Scan on runs", plan), plan


@pytest.mark.parametrize("size", ["empty", "large"])
async def test_a_pool_finds_its_backlog_by_index(session: psycopg.Connection, size: str) -> None:
    """It reads one range of the index of ready steps for each lane and priority, and looks up the run of each row."""
    if size == "large":
        session.execute(LARGE.encode())
        # The statistics are made up, and the tables have no pages.
        session.execute("SET enable_seqscan = off")
    plan = planned(session, STATEMENTS["backlog"])
    assert re.search(
        r"using steps_ready.*\n *Index Cond: .*lane = .*priority = .*queue = 0.*ready_at <= (?:.InitPlan|\$\d)",
        plan,
    ), plan
    assert "Seq Scan on steps" not in plan, plan
    if size == "large":
        assert "using runs_pkey" in plan, plan


@pytest.mark.parametrize("size", ["empty", "large"])
@pytest.mark.parametrize(
    ("verb", "index"),
    [
        ("left_nodes", "nodes_left"),
        ("old_journal", "journal_own"),
        ("old_audit", "journal_audit"),
        ("old_runs", "runs_ended"),
        ("prunable", "runs_pkey"),
        ("prune_steps", "steps_pkey"),
        ("prune_attempts", "attempts_of"),
        ("prune_logs", "logs_(?:pkey|in_time)"),
        ("prune_signals", "signals_run_id_name_key_key"),
        ("prune_journal", "journal_of"),
        ("prune_twins", "twins_pkey"),
        ("prune_gathers", "gathers_of"),
        ("prune_gathered", "gathered_of"),
    ],
)
async def test_pruning_finds_its_rows_by_index(
    session: psycopg.Connection, size: str, verb: str, index: str
) -> None:
    """No statement in its transaction scans a whole table."""
    with session.transaction():
        if size == "large":
            session.execute(LARGE.encode())
        session.execute(STATEMENTS["by_index"].encode())
        plan = planned(session, STATEMENTS[verb])
        assert re.search(rf"(?:using|on) {index}\b", plan), plan
        assert not re.search(r"Seq Scan on (runs|steps|signals|attempts|logs|journal) \w+_1", plan), plan


@pytest.mark.parametrize("size", ["empty", "large"])
@pytest.mark.parametrize(
    ("verb", "index"),
    [("undelivered_steps", "steps_undelivered"), ("undelivered_signals", "signals_undelivered")],
)
async def test_what_a_scheduler_has_to_deliver_is_found_from_its_own_runs(
    session: psycopg.Connection, size: str, verb: str, index: str
) -> None:
    """A plan that was made when the tables were empty is kept for hours. It must not read every run for every
    outcome."""
    if size == "large":
        session.execute(LARGE.encode())
        # The statistics are made up, and the tables have no pages.
        session.execute("SET enable_seqscan = off")
    plan = planned(session, STATEMENTS[verb])
    owned, found = plan.find("runs_owned"), plan.find(f"Index Scan using {index}")
    assert 0 < owned < found, plan
    assert re.search(r"Index Cond: \(run_id = runs\.id\)", plan[found:]), plan
    assert "Seq Scan" not in plan, plan


ASKED_OFTEN = [
    "claim_pending",
    "claim_awake",
    "claim_run",
    "history_steps",
    "history_signals",
    "undelivered_steps",
    "undelivered_signals",
    "fire_timers",
    "next_timer",
    "next_start",
    "due_starts",
    "admit_runs",
    "lost_runs",
    "claim_steps",
    "next_ready",
    "step_levels",
    "step_queues",
    "take_steps",
    "run_levels",
    "run_queues",
    "take_runs",
    "limit_rooms",
    "steps_wait_long",
    "runs_wait_long",
    "adaptive_limits",
    "waiting_queues",
    "lost_steps",
    "ended_runs",
    "unknown_runs",
    "duties",
]


@pytest.mark.parametrize("verb", ASKED_OFTEN)
async def test_what_nodes_ask_often_reads_no_table_whatever_was_there_when_it_was_planned(
    session: psycopg.Connection, verb: str
) -> None:
    """A connection keeps a plan until there are new statistics, which takes a minute after the first run at least."""
    plan = planned(session, STATEMENTS[verb])
    assert not re.search(r"Seq Scan on (runs|steps|signals)", plan), plan


FILLED = """
INSERT INTO holdfast.runs (id, workflow, version, state, input, digest)
SELECT 'r' || i, 'w', '1', 'running', '', '' FROM generate_series(1, 5000) i;
INSERT INTO holdfast.steps (run_id, n, key, kind, name, lane, state, priority, ready_at, issued_at)
SELECT 'r' || (i % 5000 + 1), i, 'k' || i, 'call', 's', i % 7, CASE WHEN i % 2 = 0 THEN 'ready' ELSE 'succeeded' END, i % 3,
       clock_timestamp() - make_interval(secs => i), clock_timestamp()
FROM generate_series(1, 30000) i;
ANALYZE holdfast.runs, holdfast.steps;
"""


@pytest.mark.parametrize("verb", ["claim_steps", "claim_probes"])
async def test_a_claim_reads_each_lane_in_the_order_of_its_index(
    session: psycopg.Connection, verb: str
) -> None:
    """In a store with a backlog, no table is scanned, no lane is sorted, and each step's run is found by its key."""
    session.execute(FILLED.encode())
    plan = planned(session, STATEMENTS[verb])
    assert re.search(r"Index Scan using steps_ready on steps w", plan), plan
    assert re.search(r"Index Scan using runs_pkey on runs r", plan), plan
    assert not re.search(r"Seq Scan on (runs|steps)", plan), plan
    assert not re.search(r"Sort Key: w\.", plan), plan


@pytest.mark.parametrize(
    ("verb", "indexes"),
    [
        ("schedule_looks", {"schedules_due", "fires_open", "runs_pkey", "backfills_running"}),
        ("open_fires", {"fires_open", "runs_pkey"}),
        ("fires", {"fires_pkey"}),
        ("fires_at", {"fires_pkey", "runs_pkey"}),
        ("move_schedules", {"schedules_pkey"}),
        ("change_fires", {"fires_open"}),
        ("old_fires", {"fires_decided"}),
        ("schedules_of", {"schedules_origin"}),
    ],
)
async def test_schedules_are_found_by_index(
    session: psycopg.Connection, verb: str, indexes: set[str]
) -> None:
    """What a pass of the leader asks reads ranges of indexes."""
    session.execute("SET enable_seqscan = off")  # as the planner does if the table has rows
    session.execute("SET enable_bitmapscan = off")
    session.execute("SET enable_hashjoin = off")
    session.execute("SET enable_mergejoin = off")
    plan = planned(session, STATEMENTS[verb])
    assert not re.search(r"Seq Scan on (runs|fires|schedules|backfills)", plan), plan
    assert set(re.findall(r"Index (?:Only )?Scan (?:Backward )?using (\w+)", plan)) == indexes, plan


async def test_adaptive_limits_are_found_by_when_they_were_reported(session: psycopg.Connection) -> None:
    """However many limits there are, the leader reads those that agents have reported about lately."""
    session.execute("SET enable_seqscan = off")  # as the planner does if the table has rows
    session.execute("SET enable_bitmapscan = off")
    plan = planned(session, STATEMENTS["adaptive_limits"])
    assert re.search(
        r"Index Scan using limits_reported on limits l .*\n *Index Cond: \(reported_at > ", plan
    ), plan
    assert "Seq Scan" not in plan, plan


async def test_runs_that_begin_later_are_not_read(session: psycopg.Connection) -> None:
    """However many runs wait for their time, the time bounds the index range, and a claim passes over none of them."""
    session.execute("SET enable_seqscan = off")  # as the planner does if the table has rows
    session.execute("SET enable_bitmapscan = off")
    plan = planned(session, STATEMENTS["due_starts"])
    assert re.search(r"Index Scan using runs_delayed on runs .*\n.*\n?.*Index Cond: .*begin_at <= ", plan), (
        plan
    )


@pytest.mark.parametrize(
    ("verb", "indexes"),
    [
        ("any_promised", {"runs_due", "steps_due"}),
        ("promised_runs", {"runs_due"}),
        ("promised_runs_of", {"runs_pkey"}),
        ("promised_steps", {"steps_due"}),
        ("promised_steps_of", {"steps_pkey"}),
        ("raise_late", {"runs_pkey", "steps_pkey"}),
    ],
)
async def test_what_is_due_is_found_by_index(
    session: psycopg.Connection, verb: str, indexes: set[str]
) -> None:
    """However many runs are open, only those that are due are read, in the order in which they are."""
    session.execute("SET enable_seqscan = off")  # as the planner does if the table has rows
    session.execute("SET enable_bitmapscan = off")
    session.execute("SET enable_hashjoin = off")
    session.execute("SET enable_mergejoin = off")
    plan = planned(session, STATEMENTS[verb])
    assert "Sort" not in plan, plan
    assert set(re.findall(r"Index (?:Only )?Scan (?:Backward )?using (\w+)", plan)) == indexes, plan


@pytest.mark.parametrize("size", ["empty", "many"])
@pytest.mark.parametrize(
    ("verb", "index", "bounds"),
    [
        ("waiting_callbacks", "steps_called", r"CASE .*ROW\(issued_at, run_id, n\) > ROW"),
        ("waiting_callbacks_of", "steps_pkey", r"run_id = .*n > "),
    ],
)
async def test_a_list_of_callbacks_reads_a_range_of_an_index(
    session: psycopg.Connection, size: str, verb: str, index: str, bounds: str
) -> None:
    """However many callbacks wait, a page reads its own rows, in their order, and one run and one request for each."""
    if size == "many":
        session.execute(MANY.encode())
        session.execute(CALLBACKS.encode())
    else:
        session.execute("SET enable_seqscan = off")  # as the planner does if the table has rows
        session.execute("SET enable_bitmapscan = off")
    plan = planned(session, STATEMENTS[verb])
    assert re.search(rf"using {index} on steps c .*\n *Index Cond: .*{bounds}", plan), plan
    assert "Sort" not in plan, plan
    found = set(re.findall(r"Index (?:Only )?Scan (?:Backward )?using (\w+)", plan))
    assert found == {index, "runs_pkey", "steps_pkey"}, plan
    assert "Seq Scan" not in plan, plan


@pytest.mark.parametrize(
    ("verb", "indexes"),
    [
        ("event_paths", {"event_paths_pkey"}),
        ("event_takers", {"event_takers_pkey"}),
        ("event_waits", {"steps_events", "runs_pkey"}),
        (
            "missed_events",
            {"event_keys_pkey", "event_takers_pkey", "event_takers_run", "events_pkey", "runs_pkey"},
        ),
        ("events_of_type", {"events_type"}),
        ("open_event_waits", {"steps_events"}),
        ("triggers_on", {"triggers_pkey"}),
        ("triggers_of", {"triggers_origin"}),
        ("old_events", {"events_received", "collected_event"}),
        ("composed_due", {"composed_pkey", "composed_times_pkey"}),
        ("old_event_keys", {"event_keys_received"}),
        ("old_event_takers", {"event_takers_received"}),
    ],
)
async def test_events_are_found_by_index(session: psycopg.Connection, verb: str, indexes: set[str]) -> None:
    """What senders, waiting runs and the leader ask reads ranges of indexes."""
    session.execute("SET enable_seqscan = off")  # as the planner does if the table has rows
    session.execute("SET enable_bitmapscan = off")
    session.execute("SET enable_hashjoin = off")
    session.execute("SET enable_mergejoin = off")
    plan = planned(session, STATEMENTS[verb])
    assert "Seq Scan" not in plan, plan
    found = set(re.findall(r"Index (?:Only )?Scan (?:Backward )?using (\w+)", plan))
    assert found - {"steps_pkey", "steps_run_id_key_key"} == indexes, plan


@pytest.mark.parametrize("verb", ["fire_timers", "claim_steps"])
async def test_what_is_not_due_is_not_read(session: psycopg.Connection, verb: str) -> None:
    """However many timers are not due yet and steps back off, the time bounds the index range and is not a filter over
    all of them."""
    session.execute("SET enable_seqscan = off")  # as the planner does if the table has rows
    session.execute("SET enable_bitmapscan = off")
    plan = planned(session, STATEMENTS[verb])
    assert re.search(r"Index Cond: .*ready_at <= ", plan), plan
    assert not re.search(r"Filter: .*ready_at <= ", plan), plan
