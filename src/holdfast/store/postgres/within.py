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
from holdfast.store import gathers
from holdfast.store.answers import Answer
from holdfast.store.bell import Bell
from holdfast.store.postgres.verbs import STATEMENTS, PostgresVerb
from holdfast.store.rows import start_row
from holdfast.store.transaction import Transaction, no_transaction
from holdfast.store.verbs import Verb

CHANNEL = "holdfast"

Script: TypeAlias = Generator[tuple[str, Sequence[Any]], Sequence[Any], str]
"""Yields statements with their arguments, and receives the rows of each. Returns the id of the run that it started, if it started one."""


def _demand_same(identity: str) -> Generator[tuple[str, Sequence[Any]], Sequence[Any], None]:
    """Raise if the caller is connected to another database than Holdfast itself."""
    ((callers_identity,),) = yield STATEMENTS[PostgresVerb.database_identity], ()
    if callers_identity != identity:
        raise StoreUnsupported(
            "hf.within() got a connection to another database than the store's, and a transaction is about one database only: use "
            "the same database in both addresses"
        )


def start(run: NewRun, identity: str, bytes_max: int) -> Script:
    """The statements that start a run. `identity` is that of the database to which Holdfast itself is connected."""
    yield from _demand_same(identity)
    run_id = run.id
    if run.gather is not None:
        run_id = yield from _gather(run, bytes_max)
    known: Sequence[Any] = () if run.gather is None else (run_id,)
    while not known:
        known = yield STATEMENTS[Verb.start_runs], [[value] for value in start_row(run)]
        if not known:
            # If there is no row, the id was taken a moment ago, and was pruned since.
            known = yield STATEMENTS[Verb.started_as], [[run.id]]
            for _, workflow, digest in known:
                if (workflow, bytes(digest)) != (run.workflow, run.digest):
                    raise Conflict.of_start(run.id)
    yield "SELECT pg_catalog.pg_notify($1, $2)", [CHANNEL, Bell.RUNS.value]
    return run_id


def _gather(run: NewRun, bytes_max: int) -> Script:
    """The statements that let a run take a start."""
    script = gathers.take(run, bytes_max)
    rows: Sequence[Any] | None = None
    while True:
        try:
            ask = next(script) if rows is None else script.send(rows)
        except StopIteration as done:
            taken: gathers.TakenStart = done.value
            if taken.answer is Answer.FENCED:
                raise Conflict.of_start(run.id) from None
            return taken.run_id
        values = [[value] for value in ask.values] if ask.verb is Verb.start_runs else ask.values
        rows = yield STATEMENTS[ask.verb], values


class _Asked:
    """A statement that is executed while a coroutine waits for its rows."""

    def __init__(self, statement: str, arguments: Sequence[Any]) -> None:
        self._asked = statement, arguments

    def __await__(self) -> Generator[tuple[str, Sequence[Any]], Sequence[Any], Sequence[Any]]:
        return (yield self._asked)


class ScriptSession:
    """A session whose statements become a script: only those methods that such work needs."""

    async def rows(self, verb: Verb, *values: Any) -> Sequence[Any]:
        return await _Asked(STATEMENTS[verb], values)

    async def all(self, verb: Verb, rows: Sequence[Any], *same: Any) -> Sequence[Any]:
        if not rows:
            return []
        columns = [list(column) for column in zip(*rows, strict=True)]
        return await _Asked(STATEMENTS[verb], [*columns, *same])

    async def each(self, verb: Verb, rows: Sequence[Any], *same: Any) -> int:
        """Run a statement that returns no rows: how many it changed is not known."""
        if rows:
            columns = [list(column) for column in zip(*rows, strict=True)]
            asked = f"WITH done AS ({STATEMENTS[verb]} RETURNING 1) SELECT 1 FROM done LIMIT 0"  # noqa: S608
            await _Asked(asked, [*columns, *same])
        return 0


def work(act: Callable[[Any], Any], identity: str, bells: Sequence[Bell]) -> Script:
    """The statements that `act` executes with a session."""
    yield from _demand_same(identity)
    yield from act(ScriptSession()).__await__()
    for bell in bells:
        yield "SELECT pg_catalog.pg_notify($1, $2)", [CHANNEL, bell.value]
    return ""


async def execute(script: Script, transaction: Transaction, environment: Environment) -> str:
    """Execute a script in the caller's transaction. Return what it returns."""
    connection = await transaction.connection()
    if isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
        return await _by_asyncpg(script, connection, transaction)
    if any(cls.__module__.partition(".")[0] == "psycopg" for cls in type(connection).__mro__):
        import psycopg  # noqa: PLC0415  only when the caller uses it

        if isinstance(connection, psycopg.AsyncConnection):
            _demand_begun(connection, transaction)
            return await _by_async_psycopg(script, connection)
        if isinstance(connection, psycopg.Connection):
            _demand_begun(connection, transaction)
            return await environment.blocking(lambda: _by_psycopg(script, connection))
    driver = f"{type(connection).__module__}.{type(connection).__qualname__}"
    through = "" if driver == transaction.what else f" of {driver}"
    raise StoreUnsupported(
        f"hf.within() got a {transaction.what}{through}: pass what the transaction was begun on, a connection of asyncpg or psycopg "
        "3 to the store's PostgreSQL, or SQLAlchemy's or Django's on one of these drivers (postgresql+psycopg://…)"
    )


async def _by_asyncpg(script: Script, connection: Any, transaction: Transaction) -> str:
    if not connection.is_in_transaction():
        raise no_transaction(transaction.what, "`async with connection.transaction():`")
    return await _each(script, connection.fetch)


async def _by_async_psycopg(script: Script, connection: Any) -> str:
    from psycopg import AsyncRawCursor, rows  # noqa: PLC0415  as above

    async with AsyncRawCursor(connection, row_factory=rows.tuple_row) as cursor:

        async def fetch(statement: str, *arguments: Any) -> Any:
            done = await cursor.execute(statement.encode(), arguments)
            return await done.fetchall() if done.description is not None else []

        return await _each(script, fetch)


async def _each(script: Script, fetch: Callable[..., Any]) -> str:
    try:
        statement, arguments = next(script)
        while True:
            statement, arguments = script.send(await fetch(statement, *arguments))
    except StopIteration as done:
        return str(done.value)


def _by_psycopg(script: Script, connection: Any) -> str:
    from psycopg import RawCursor, rows  # noqa: PLC0415  as above

    with RawCursor(connection, row_factory=rows.tuple_row) as cursor:
        try:
            statement, arguments = next(script)
            while True:
                done = cursor.execute(statement.encode(), arguments)
                statement, arguments = script.send(done.fetchall() if done.description is not None else [])
        except StopIteration as ended:
            return str(ended.value)


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
