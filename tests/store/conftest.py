"""An open, empty store of each dialect, a second connection to it, and raw SQL to damage it."""

from collections.abc import AsyncIterator, Callable

import apsw
import psycopg
import pytest

from holdfast.store import open_store
from holdfast.store.store import Store
from tests.store.made import ENVIRONMENT, A, B, C, join

Tamper = Callable[[str], None]


def run_sql(url: str, sql: str) -> None:
    """Change the database behind the store's back."""
    if url.startswith("sqlite:"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        connection.set_busy_timeout(5000)
        connection.execute(sql).fetchall()
        connection.close()
    else:
        with psycopg.connect(url, autocommit=True, options="-c search_path=holdfast") as session:
            session.execute(sql.encode())


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    """An open store with three nodes. A is registered through this store. B and C have no file lock."""
    first = open_store(store_url, ENVIRONMENT)
    await first.migrate()
    await first.close()
    store = open_store(store_url, ENVIRONMENT)
    await store.open()
    await join(store, A)
    for node in (B, C):
        run_sql(
            store_url,
            f"INSERT INTO nodes (id, host, pid, roles, offers, capacity, started_at, lease_until) "
            f"SELECT '{node}', host, pid, roles, offers, capacity, started_at, lease_until FROM nodes WHERE id = '{A}'",
        )
    yield store
    await store.close()


@pytest.fixture
async def other(store: Store) -> AsyncIterator[Store]:
    """The same database through other connections, as another process would have them."""
    other = open_store(store.url, ENVIRONMENT)
    await other.open()
    yield other
    await other.close()


@pytest.fixture
def tamper(store: Store) -> Tamper:
    """Change the database behind the store's back."""
    return lambda sql: run_sql(store.url, sql)
