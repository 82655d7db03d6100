"""How a store on PostgreSQL is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.addresses import has_raw_password, shown_address
from holdfast.environment import Environment
from holdfast.errors import StoreUnsupported
from holdfast.store.heart import Order, Renewer

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.store.database import Database

IS_LOCAL = False
"""The store is a server, and a commit waits for the server's disk."""


def open_database(url: str, environment: Environment, config: Config) -> Database:
    try:
        from holdfast.store.postgres.database import PostgresDatabase  # noqa: PLC0415  an optional dependency
    except ModuleNotFoundError as error:
        raise StoreUnsupported("PostgreSQL needs its driver: pip install 'holdfast[postgres]'") from error
    if has_raw_password(url):
        raise StoreUnsupported(
            f"cannot read the store's address {shown_address(url)!r}: in a user or password write / as %2F, ? as %3F, "
            "# as %23 and @ as %40"
        )
    return PostgresDatabase(url, environment, config)


def open_renewer(order: Order) -> Renewer:
    from holdfast.store.postgres.heart import PostgresRenewer  # noqa: PLC0415  an optional dependency

    return PostgresRenewer(order.url, order.node, order.lease_s)


def missing(url: str) -> str | None:
    """Return what is missing to look at this store, or None. A server reports that itself."""
    return None
