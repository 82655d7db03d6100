"""Starts a run inside a transaction of the caller, through the caller's own driver.

The statements are the same for every driver, so they are written once, as a script. How the script is executed depends
on the driver. A blocking driver executes it in a thread. Our event loop must go on meanwhile, because the caller's
transaction may have to wait for one of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias

import asyncpg

from holdfast.environment import Environment
from holdfast.errors import Conflict, StoreUnsupported
from holdfast.model import NewRun
from holdfast.store.bell import Bell
from holdfast.store.postgres.verbs import STATEMENTS, PostgresVerb
from holdfast.store.rows import start_row
from holdfast.store.transaction import Transaction, no_transaction
from holdfast.store.verbs import Verb

CHANNEL = "holdfast"

Script: TypeAlias = Generator[tuple[str, Sequence[Any]], Sequence[Any], None]
"""Yields statements with their arguments, and receives the rows of each."""


def start(run: NewRun, identity: str) -> Script:
    """The statements that start a run. `identity` is that of the database to which Holdfast itself is connected."""
    ((callers_identity,),) = yield STATEMENTS[PostgresVerb.database_identity], ()
    if callers_identity != identity:
        raise StoreUnsupported(
            "hf.within() got a connection to another database than the store's, and a transaction is about one database only: use "
            "the same database in both addresses"
        )
    known: Sequence[Any] = ()
    while not known:
        known = yield STATEMENTS[Verb.start_runs], [[value] for value in start_row(run)]
        if not known:
            # If there is no row, the id was taken a moment ago, and was pruned since.
            known = yield STATEMENTS[Verb.started_as], [[run.id]]
            for _, workflow, digest in known:
                if (workflow, bytes(digest)) != (run.workflow, run.digest):
                    raise Conflict.of_start(run.id)
    yield "SELECT pg_catalog.pg_notify($1, $2)", [CHANNEL, Bell.RUNS.value]


async def execute(script: Script, transaction: Transaction, environment: Environment) -> None:
    """Execute a script in the caller's transaction."""
    connection = await transaction.connection()
    if isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
        await _by_asyncpg(script, connection, transaction)
        return
    if any(cls.__module__.partition(".")[0] == "psycopg" for cls in type(connection).__mro__):
        import psycopg  # noqa: PLC0415  only when the caller uses it

        if isinstance(connection, psycopg.AsyncConnection):
            _demand_begun(connection, transaction)
            await _by_async_psycopg(script, connection)
            return
        if isinstance(connection, psycopg.Connection):
            _demand_begun(connection, transaction)
            await environment.blocking(lambda: _by_psycopg(script, connection))
            return
    driver = f"{type(connection).__module__}.{type(connection).__qualname__}"
    through = "" if driver == transaction.what else f" of {driver}"
    raise StoreUnsupported(
        f"hf.within() got a {transaction.what}{through}: pass what the transaction was begun on, a connection of asyncpg or psycopg "
        "3 to the store's PostgreSQL, or SQLAlchemy's or Django's on one of these drivers (postgresql+psycopg://…)"
    )


async def _by_asyncpg(script: Script, connection: Any, transaction: Transaction) -> None:
    if not connection.is_in_transaction():
        raise no_transaction(transaction.what, "`async with connection.transaction():`")
    await _each(script, connection.fetch)


async def _by_async_psycopg(script: Script, connection: Any) -> None:
    from psycopg import AsyncRawCursor, rows  # noqa: PLC0415  as above

    async with AsyncRawCursor(connection, row_factory=rows.tuple_row) as cursor:

        async def fetch(statement: str, *arguments: Any) -> Any:
            return await (await cursor.execute(statement.encode(), arguments)).fetchall()

        await _each(script, fetch)


async def _each(script: Script, fetch: Callable[..., Any]) -> None:
    try:
        statement, arguments = next(script)
        while True:
            statement, arguments = script.send(await fetch(statement, *arguments))
    except StopIteration:
        return


def _by_psycopg(script: Script, connection: Any) -> None:
    from psycopg import RawCursor, rows  # noqa: PLC0415  as above

    with RawCursor(connection, row_factory=rows.tuple_row) as cursor:
        try:
            statement, arguments = next(script)
            while True:
                statement, arguments = script.send(cursor.execute(statement.encode(), arguments).fetchall())
        except StopIteration:
            return


def _demand_begun(connection: Any, transaction: Transaction) -> None:
    from psycopg.pq import TransactionStatus  # noqa: PLC0415  as above

    status = connection.info.transaction_status
    if status == TransactionStatus.INTRANS:
        return
    begins = status == TransactionStatus.IDLE and transaction.vouched
    if (
        begins or status == TransactionStatus.ACTIVE
    ) and not connection.autocommit:  # it is active in a pipeline
        return
    raise no_transaction(
        transaction.what,
        "`with connection.transaction():`, or your own statements first, not in autocommit mode",
    )
