"""How a store on SQLite is opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.environment import Environment
from holdfast.store.heart import Order, Renewer
from holdfast.store.sqlite.address import IN_MEMORY, path_of

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.store.database import Database

IS_LOCAL = True
"""The store is a file on this host, and a commit waits for this host's disk."""


def open_database(url: str, environment: Environment, config: Config) -> Database:
    from holdfast.store.sqlite.database import SqliteDatabase  # noqa: PLC0415  a heart does not need it

    return SqliteDatabase(url, environment, config)


def open_renewer(order: Order) -> Renewer:
    from holdfast.store.sqlite.heart import SqliteRenewer  # noqa: PLC0415  only a heart needs it

    return SqliteRenewer(order.url, order.node, order.lease_s, Environment())


def missing(url: str) -> str | None:
    """Return what is missing to look at this store: the path of its file, or None if the file exists."""
    path = path_of(url)
    return None if path == IN_MEMORY or Path(path).exists() else path
