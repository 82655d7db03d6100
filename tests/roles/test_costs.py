"""What one hop costs, counted instead of timed, so that the same change gives the same answer on every machine.

A hop is one advance of a run: an outcome is recorded and delivered, and the next step is issued. A run of n steps is n
+ 1 hops. Whoever adds a statement, a row or a layer of calls to that path changes a number here, and says why.
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import pstats
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import apsw
import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.bench.work import chain
from holdfast.config import Config
from holdfast.store.sqlite.database import SqliteDatabase
from tests.roles import logging_flows

QUIET = Config(poll_s=600, sweep_s=600, beat_s=600, park_after_s=600, learn_s=600, rests_per_s=0)
"""No safety net and no timed sample runs in between, so only the work itself is counted."""
STEPS = 40
RUNS = 50

# For one run alone. SQLite: BEGIN, a look around, the run's fence, the outcome, the next step, COMMIT.
# PostgreSQL takes all of it as one statement, which commits by itself.
STATEMENTS_OF_A_HOP = {"sqlite": 6, "postgresql": 1}
# For many runs together. SQLite runs its three statements for each of them, and the rest once per commit.
STATEMENTS_OF_A_SHARED_HOP = {"sqlite": 3, "postgresql": 0}
STATEMENTS_OF_A_COMMIT = {"sqlite": 3, "postgresql": 1}
STATEMENTS_OF_BEGINNING_AND_END = (
    10  # of a run or a batch: is the node alive, the run's row, its close, sweeping
)
ROWS_OF_A_STEP = 2  # inserted when it is issued, updated when it has ended
ROWS_OF_A_RUN = 2  # inserted when it begins, updated when it has ended
# Of a run with one step, from its start to its result: of our own code, without what asyncio does.
BYTECODES_OF_A_RUN_MAX = 5_450  # measured on Python 3.11: 5,275 and 5,258
CALLS_OF_A_HOP_MAX = {"sqlite": 150, "postgresql": 174}  # measured on Python 3.11: 138 and 161
BYTES_OF_A_STEP_MAX = {
    "sqlite": 260,
    "postgresql": 270,
}  # measured: 237 with its primary key, and 249 without


@pytest.fixture
def dialect(store_url: str) -> str:
    return store_url.partition(":")[0]


@pytest.fixture
async def quiet(store_url: str) -> AsyncIterator[Holdfast]:
    """A node that is warm: it is connected, its lanes are known, its statements are prepared."""
    async with Holdfast(store_url, config=QUIET) as hf:
        await together(hf, RUNS, 3)
        yield hf


async def together(hf: Holdfast, runs: int, steps: int) -> None:
    async def one() -> None:
        assert await (await hf.start(chain, steps)).result(60) == steps

    await asyncio.gather(*(one() for _ in range(runs)))


@asynccontextmanager
async def counted(hf: Holdfast) -> AsyncIterator[list[str]]:
    """Collect the statements that the writer's connection runs in the block."""
    seen: list[str] = []
    database: Any = hf.store.database
    if isinstance(database, SqliteDatabase):
        writer = database.connections.writer
        writer.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: seen.append(event["sql"]))
        yield seen
        writer.trace_v2(0, None)
    else:
        hot: asyncpg.Connection[Any] = database.hot

        def note(record: Any) -> None:
            seen.append(record.query)

        hot.add_query_logger(note)
        yield seen
        await asyncio.sleep(0)
        hot.remove_query_logger(note)


def without_looks(statements: list[str]) -> int:
    """How many statements there are, without those by which a node looks from time to time whether others wrote."""
    return sum(statement != "PRAGMA data_version" for statement in statements)


async def rows_written(hf: Holdfast) -> int:
    """Return how many rows were inserted, updated and deleted so far."""
    database: Any = hf.store.database
    if isinstance(database, SqliteDatabase):
        changes: int = database.connections.writer.total_changes()
        return changes
    await database.hot.execute("SELECT pg_stat_force_next_flush()")
    await database.hot.execute("SELECT 1")
    written = (
        "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables WHERE schemaname = 'holdfast' "
        "AND relname IN ('runs', 'steps', 'signals', 'attempts', 'journal')"
    )
    return int(await database.on_pool(lambda connection: connection.fetchval(written)))


async def test_a_hop_is_one_commit(quiet: Holdfast) -> None:
    """A run that is alone commits once for each step and once to begin. Many runs share their commits."""
    before = quiet.node.writer.commits
    await together(quiet, 1, STEPS)
    assert quiet.node.writer.commits - before == STEPS + 1
    before = quiet.node.writer.commits
    await together(quiet, RUNS, STEPS)
    assert quiet.node.writer.commits - before <= (STEPS + 1) * 1.5  # measured: STEPS + 1


async def test_a_hop_is_so_many_statements(quiet: Holdfast, dialect: str) -> None:
    """While one run alone goes from step to step, the writer's connection runs these statements and no others."""
    async with counted(quiet) as seen:
        await together(quiet, 1, STEPS)
    allowed = STATEMENTS_OF_A_HOP[dialect] * (STEPS + 1) + STATEMENTS_OF_BEGINNING_AND_END
    assert STEPS < len(seen) <= allowed


async def test_statements_are_shared(quiet: Holdfast, dialect: str) -> None:
    """Runs that go on together share a commit, and every statement that is not about a row of their own."""
    before = quiet.node.writer.commits
    async with counted(quiet) as seen:
        await together(quiet, RUNS, STEPS)
    commits = quiet.node.writer.commits - before
    hops = RUNS * (STEPS + 1)
    allowed = (
        hops * STATEMENTS_OF_A_SHARED_HOP[dialect]
        + (commits + 1) * STATEMENTS_OF_A_COMMIT[dialect]
        + RUNS * (STATEMENTS_OF_BEGINNING_AND_END if dialect == "sqlite" else 0)
    )
    assert commits <= len(seen) <= allowed


async def test_logs_cost_a_statement_and_no_commit(
    quiet: Holdfast, dialect: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What a step and its workflow log goes with the same commits. On SQLite it is one statement more for a row of what
    was logged, and on PostgreSQL none."""
    caplog.set_level("INFO", "shop.bank")
    await (await quiet.start(logging_flows.order, 0)).result(60)  # warm
    caplog.set_level("ERROR", "shop.bank")
    before = quiet.node.writer.commits
    async with counted(quiet) as silent:
        await (await quiet.start(logging_flows.order, 0)).result(60)
    commits, before = quiet.node.writer.commits - before, quiet.node.writer.commits
    caplog.set_level("INFO", "shop.bank")
    async with counted(quiet) as talking:
        run = await quiet.start(logging_flows.order, 0)
        await run.result(60)
    assert quiet.node.writer.commits - before == commits
    assert len(await run.logs()) == 4
    rows = 4 if dialect == "sqlite" else 0
    assert without_looks(talking) == without_looks(silent) + rows


async def test_a_step_is_two_rows_written(quiet: Holdfast) -> None:
    """There is one insert and one update for a step, and the same for a run. Nothing else is written: no event log, no
    queue, no counter."""
    before = await rows_written(quiet)
    await together(quiet, RUNS, STEPS)
    after = await rows_written(quiet)
    assert after - before == RUNS * (STEPS * ROWS_OF_A_STEP + ROWS_OF_A_RUN)


async def test_a_hop_is_so_many_python_calls(quiet: Holdfast, dialect: str) -> None:
    """This counts from outcome to outcome, through agent, scheduler, decider, codec, writer and dialect, with built-in
    functions."""
    profile = cProfile.Profile()
    profile.enable()
    await together(quiet, RUNS, STEPS)
    profile.disable()
    calls = pstats.Stats(profile).total_calls / (RUNS * (STEPS + 1))  # type: ignore[attr-defined]  # not in the stubs
    assert calls <= CALLS_OF_A_HOP_MAX[dialect]


async def test_a_run_of_one_step_is_so_many_bytecodes(quiet: Holdfast) -> None:
    """This counts what starts, short runs and results cost. A hop in the middle of a run has no part in it."""
    count = 0

    def count_bytecode(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += event == "opcode"
        return count_bytecode

    def enter(frame: FrameType, _event: str, _: object) -> Any:
        if "/holdfast/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return count_bytecode

    before, counts = sys.gettrace(), []
    for _ in range(3):  # a busy machine makes more commits of the same work
        count = 0
        sys.settrace(enter)
        try:
            await together(quiet, RUNS, 1)
        finally:
            sys.settrace(before)
        counts.append(count)
    assert RUNS * 1_000 < min(counts) <= RUNS * BYTECODES_OF_A_RUN_MAX


async def test_runs_leave_no_cycles(quiet: Holdfast) -> None:
    """The objects of a run and its steps are freed when they end, without the cycle collector, which would have to go
    through everything that is in memory to find them."""
    left = []
    gc.disable()
    try:
        for _ in range(3):  # what earlier tests left behind may become garbage meanwhile
            gc.collect()
            await together(quiet, RUNS, STEPS)
            left.append(gc.collect())
        assert min(left) < RUNS  # measured: 4 in all
    finally:
        gc.enable()


async def test_a_step_is_so_many_bytes(quiet: Holdfast, dialect: str) -> None:
    """This is for a step with small payloads: its row stays narrow."""
    await together(quiet, RUNS, STEPS)
    database: Any = quiet.store.database
    if isinstance(database, SqliteDatabase):
        async with database.connections.reading() as connection:
            size: float = connection.execute(
                "SELECT sum(payload) FROM dbstat WHERE name IN ('steps', 'sqlite_autoindex_steps_1')"
            ).get
            size /= connection.execute("SELECT count(*) FROM steps").get
    else:
        average = "SELECT avg(pg_column_size(s.*)) FROM holdfast.steps s"
        size = float(await database.on_pool(lambda connection: connection.fetchval(average)))
    assert 100 < size <= BYTES_OF_A_STEP_MAX[dialect]
