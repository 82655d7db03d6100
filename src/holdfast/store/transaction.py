"""A transaction of the caller, in which a run is to be started. This module finds the driver's connection in what the
caller has.

SQLAlchemy and Django wrap the driver's connection. They know better than the driver whether a transaction is open,
because both begin it on the server only with the first statement. Their objects belong to the caller's thread, so they
are used there. None of these libraries is loaded here unless the caller uses it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from holdfast.errors import NoTransaction, StoreUnsupported


class Transaction(NamedTuple):
    what: str
    """The type of what the caller passed, for messages."""
    connection: Callable[[], Awaitable[Any]]
    """Returns the driver's connection. If SQLAlchemy begins transactions itself, this has begun the transaction."""
    vouched: bool = False
    """True if SQLAlchemy or Django says that a transaction is open. The server begins it with the driver's first
    statement."""


def transaction_of(given: Any) -> Transaction:
    """Return the transaction in what the caller passed. Called in the thread that began the transaction."""
    if isinstance(given, Transaction):
        return given
    what = f"{type(given).__module__}.{type(given).__qualname__}"
    libraries = {cls.__module__.partition(".")[0] for cls in type(given).__mro__}
    if "sqlalchemy" in libraries:
        return _of_sqlalchemy(given, what)
    if "django" in libraries:
        return _of_django(given, what)

    async def as_it_is() -> Any:
        return given

    return Transaction(what, as_it_is)


def _of_sqlalchemy(given: Any, what: str) -> Transaction:
    if "scoped_session" in type(given).__name__:
        given = given()  # the session of this thread or task
    if not hasattr(given, "in_transaction"):
        raise StoreUnsupported(f"hf.within() got a {what}: pass the session or connection itself")
    if not given.in_transaction():
        raise no_transaction(what, "`with session.begin():`, or your own statements first")
    if hasattr(given, "run_sync"):
        return Transaction(what, lambda: _of_async_sqlalchemy(given), vouched=True)
    connection = given.connection() if callable(given.connection) else given
    driver = connection.connection.driver_connection

    async def of_the_driver() -> Any:
        return driver

    return Transaction(what, of_the_driver, vouched=True)


async def _of_async_sqlalchemy(given: Any) -> Any:
    connection = given if hasattr(given, "get_raw_connection") else await given.connection()
    raw = (await connection.get_raw_connection()).driver_connection
    is_open = getattr(raw, "is_in_transaction", None)
    if is_open is not None and not is_open():
        # With asyncpg, SQLAlchemy itself begins the transaction, before its first statement.
        await connection.exec_driver_sql("SELECT 1")
    return raw


def _of_django(given: Any, what: str) -> Transaction:
    if not hasattr(given, "in_atomic_block"):
        raise StoreUnsupported(f"hf.within() got a {what}: pass `django.db.connection`")
    if not given.in_atomic_block and given.get_autocommit():
        raise no_transaction(what, "`with transaction.atomic():`")
    driver = given.connection

    async def of_the_driver() -> Any:
        return driver

    return Transaction(what, of_the_driver, vouched=True)


def no_transaction(what: str, begin: str) -> NoTransaction:
    return NoTransaction(
        f"hf.within() got a {what} outside a transaction, so the run would be started at once or never: begin one ({begin}), "
        "or start the run with hf.start()"
    )
