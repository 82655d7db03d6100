"""Limits that an administrator set for all sessions. Our sessions set their own, and an error names a limit that still
applies."""

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest

from holdfast import Holdfast, step, workflow
from holdfast.config import DEFAULT
from holdfast.environment import Environment
from holdfast.errors import StoreUnreachable
from holdfast.store.postgres.database import PostgresDatabase

LIMITS = ("statement_timeout", "lock_timeout", "idle_session_timeout")


@step
async def seven() -> int:
    return 7


@workflow
async def days() -> int:
    return sum([await seven() for _ in range(5)])


@pytest.fixture
def impatient_url(pg_url: str) -> Iterator[str]:
    """A database whose sessions may do nothing for longer than a millisecond."""
    name = urlsplit(pg_url).path.lstrip("/")
    with psycopg.connect(pg_url, autocommit=True) as session:
        for limit in LIMITS:
            session.execute(f'ALTER DATABASE "{name}" SET {limit} = 1'.encode())
    yield pg_url
    with psycopg.connect(
        pg_url, autocommit=True, options=" ".join(f"-c {one}=0" for one in LIMITS)
    ) as session:
        for limit in LIMITS:
            session.execute(f'ALTER DATABASE "{name}" RESET {limit}'.encode())


async def test_an_administrators_limits_do_not_reach_our_sessions(impatient_url: str) -> None:
    """A run goes on, and so does a node that is idle for a while."""
    async with Holdfast(impatient_url) as hf:
        assert await (await hf.start(days)).result(30) == 35
        await asyncio.sleep(0.2)
        assert await (await hf.start(days)).result(30) == 35


async def test_a_limit_that_still_applies_is_named(pg_url: str) -> None:
    """The error names the setting to look for, and is not an unexpected error."""
    store = PostgresDatabase(pg_url, Environment(), DEFAULT)
    await store.open()

    async def slow(connection: asyncpg.Connection) -> None:
        await connection.execute("SET statement_timeout = 5")
        try:
            await connection.execute("SELECT pg_sleep(1)")
        finally:
            await connection.execute("SET statement_timeout = 0")

    with pytest.raises(StoreUnreachable, match="statement_timeout"):
        await store.on_pool(slow)
    await store.close()
