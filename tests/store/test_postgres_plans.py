"""PostgreSQL runs the writer's batches by primary key, whatever it believes about the size of tables."""

import re

import psycopg
import pytest

from holdfast.environment import Environment
from holdfast.store import open_store
from holdfast.store.postgres.store import PINNED
from holdfast.store.postgres.verbs import VERBS

HOT = [
    "hop",
    "deliver_signals",
    "end_waits",
    "drop_steps",
    "send_signals",
    "note_runs",
    "tell_parents",
    "park_runs",
    "report",
    "try_again",
    "hand_back",
    "save",
]
LARGE = """
UPDATE pg_class SET reltuples = 1e7, relpages = 500000 WHERE relname IN ('runs', 'steps', 'signals', 'attempts')
"""
ALLOWED = {"runs_pkey", "steps_pkey", "signals_pkey", "signals_run_id_name_key", "nodes_pkey"}


@pytest.mark.parametrize("size", ["empty", "large"])
async def test_hot_statements_use_primary_keys(pg_url: str, size: str) -> None:
    """On the pinned connection no statement of a batch scans a table or takes a partial index."""
    store = open_store(pg_url, Environment())
    await store.migrate()
    await store.close()
    settings = " ".join(f"-c {name}={value}" for name, value in PINNED.items())
    with psycopg.connect(pg_url, autocommit=True, options=settings) as session:
        if size == "large":
            session.execute(LARGE.encode())
        for verb in HOT:
            explained = session.execute(f"EXPLAIN (GENERIC_PLAN) {getattr(VERBS, verb)}".encode()).fetchall()
            plan = "\n".join(row[0] for row in explained)
            assert not re.search(r"Seq Scan on (runs|steps|signals|attempts)", plan), f"{verb}\n{plan}"
            assert set(re.findall(r"Index (?:Only )?Scan using (\w+)", plan)) <= ALLOWED, f"{verb}\n{plan}"


@pytest.mark.parametrize("size", ["empty", "large"])
async def test_a_pool_finds_its_backlog_by_index(pg_url: str, size: str) -> None:
    """One range of the index of ready steps for each lane and priority, and one look at the run of each row."""
    store = open_store(pg_url, Environment())
    await store.migrate()
    await store.close()
    with psycopg.connect(pg_url, autocommit=True) as session:
        if size == "large":
            session.execute(LARGE.encode())
            session.execute("SET enable_seqscan = off")  # the statistics are made up, the pages are not there
        explained = session.execute(f"EXPLAIN (GENERIC_PLAN) {VERBS.backlog}".encode()).fetchall()
        plan = "\n".join(row[0] for row in explained)
        assert re.search(
            r"using steps_ready.*\n *Index Cond: .*lane = .*priority = .*ready_at <= .InitPlan", plan
        ), plan
        assert "Seq Scan on steps" not in plan, plan
        if size == "large":
            assert "using runs_pkey" in plan, plan


@pytest.mark.parametrize("size", ["empty", "large"])
@pytest.mark.parametrize(
    ("verb", "index"),
    [
        ("forget_nodes", "nodes_left"),
        ("forget_journal", "journal_apart"),
        ("old_runs", "runs_ended"),
        ("prunable", "runs_pkey"),
        ("prune_steps", "steps_pkey"),
        ("prune_attempts", "attempts_of"),
        ("prune_signals", "signals_run_id_name_key_key"),
        ("prune_journal", "journal_of"),
    ],
)
async def test_pruning_finds_its_rows_by_index(pg_url: str, size: str, verb: str, index: str) -> None:
    """In its transaction nothing is found by looking at all of a table."""
    store = open_store(pg_url, Environment())
    await store.migrate()
    await store.close()
    with psycopg.connect(pg_url) as session:
        if size == "large":
            session.execute(LARGE.encode())
        session.execute(VERBS.by_index.encode())
        explained = session.execute(f"EXPLAIN (GENERIC_PLAN) {getattr(VERBS, verb)}".encode()).fetchall()
        plan = "\n".join(row[0] for row in explained)
        assert re.search(rf"(?:using|on) {index}\b", plan), plan
        assert not re.search(r"Seq Scan on (runs|steps|signals|attempts|journal) \w+_1", plan), plan
