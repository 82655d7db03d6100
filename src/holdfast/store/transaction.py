"""A transaction of the caller, in which a run is to be started: from what the caller has to the driver's own connection.

SQLAlchemy and Django wrap the driver's connection and know better than it whether a transaction is open: both begin it on the
server with the first statement only. What they wrap is asked for in the caller's own thread, where their objects belong; none of
these libraries is loaded here unless the caller uses it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from holdfast.errors import NoTransaction, StoreUnsupported


class Transaction(NamedTuple):
    what: str
    """What the caller gave, for messages."""
    connection: Callable[[], Awaitable[Any]]
    """The driver's connection, with the transaction begun as far as its library does that."""
    vouched: bool = False
    """A library around the driver says that a transaction is open: the driver's first statement begins it."""


def transaction_of(given: Any) -> Transaction:
    """Called by whoever began the transaction, in their thread."""
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
        given = given()  # the session of this thread, or task
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
        await connection.exec_driver_sql(
            "SELECT 1"
        )  # with asyncpg it is SQLAlchemy that begins, with its first statement
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
        f"hf.within() got a {what} outside a transaction, where the run would exist at once or never: begin one ({begin}), or "
        "start the run by hf.start()"
    )
