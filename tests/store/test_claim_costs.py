"""What a claim costs, counted instead of timed: pages that PostgreSQL reads, and operations of SQLite's machine. With fair keys
and limits it may be dearer than without, by so much and not more."""

from __future__ import annotations

import asyncio
from typing import Any

import apsw
import psycopg

from holdfast.queues import NO_QUEUE, LimitKey, Queue, QueueKey
from holdfast.store import open_store
from holdfast.store.store import Store
from holdfast.store.walk import Turns
from tests.store.made import ENVIRONMENT, A, begin, call, new_run

KEYS, EACH, PLACES, CLAIMS = 100, 100, 20, 40
MOST = PLACES * CLAIMS // KEYS + 2
"""Of each limit: as many as these claims need, and a few more."""
PLAIN, FAIR, LIMITED = 1, 2, 3
"""The lanes of these steps."""
FAIR_MAX, LIMITED_MAX = 1.45, 1.7
PAGES = """
SELECT sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0))
FROM pg_statio_user_tables WHERE schemaname = 'holdfast' AND relname <> 'migrations'"""
OTHERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


async def test_a_claim_with_fair_keys_or_limits_is_not_much_dearer(store: Store) -> None:
    """A hundred keys wait, and each has a limit of its own."""
    names = [f"customer-{number}" for number in range(KEYS)]
    fair = await store.queues.number_queues([QueueKey(name, ()) for name in names])
    limited = await store.queues.number_queues(
        [QueueKey(name, (LimitKey(f"of:{name}", MOST),)) for name in names]
    )
    for lane, queues in ((PLAIN, [NO_QUEUE] * KEYS), (FAIR, fair), (LIMITED, limited)):
        await fill(store, lane, queues)
    await store.close()  # so that all that it has read is counted
    plain = await cost(store, PLAIN, None)
    assert await cost(store, FAIR, Turns()) <= FAIR_MAX * plain
    assert await cost(store, LIMITED, Turns()) <= LIMITED_MAX * plain


async def fill(store: Store, lane: int, queues: list[Queue]) -> None:
    for queue in queues:
        steps = [call(n, lane=lane, queue=queue) for n in range(1, EACH + 1)]
        await begin(store, *steps, run=new_run())


async def pages(url: str) -> int:
    """Return how many pages were read so far. A session says so when it ends, at the latest."""
    with psycopg.connect(url, autocommit=True) as session:
        async with asyncio.timeout(60):
            while session.execute(OTHERS.encode()).fetchall()[0][0]:  # noqa: ASYNC110  sessions of the server
                await asyncio.sleep(0.01)
        return int(session.execute(PAGES.encode()).fetchall()[0][0])


async def cost(store: Store, lane: int, turns: Turns | None) -> float:
    """Return what it costs to claim one step of this lane."""
    is_sqlite = store.url.startswith("sqlite")
    counted = 0 if is_sqlite else -await pages(store.url)
    beside = open_store(store.url, ENVIRONMENT)
    await beside.open()
    database: Any = beside.database

    if is_sqlite:

        def count(event: dict[str, Any]) -> None:
            nonlocal counted
            counted += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

        database.connections.writer.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)
    taken = 0
    for _ in range(CLAIMS):
        taken += len(await beside.agents.claim_steps(A, [lane], PLACES, turns=turns))
    if is_sqlite:
        database.connections.writer.trace_v2(0, None)
    await beside.close()
    if not is_sqlite:
        counted += await pages(store.url)
    assert taken == CLAIMS * PLACES
    return counted / taken
