"""The State Store: the one truth. `open_store(url)` picks the dialect.

A dialect is a folder with a module `dialect`. That module opens the database, and the connection by which a heart
renews a lease.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.addresses import shown_address
from holdfast.errors import StoreUnsupported

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.environment import Environment
    from holdfast.store.store import Store

DIALECTS = {
    "sqlite": "holdfast.store.sqlite",
    "postgresql": "holdfast.store.postgres",
    "postgres": "holdfast.store.postgres",
}
"""The package of each dialect, by the scheme of its URLs."""


def dialect_of(url: str) -> ModuleType:
    """Return the module `dialect` of the package that serves this URL. Only that package is loaded."""
    package = DIALECTS.get(urlsplit(url).scheme)
    if package is None:
        raise StoreUnsupported(
            f"{shown_address(url)!r} is not the address of a store: use sqlite:///file.db or postgresql://user@host/database"
        )
    return import_module(f"{package}.dialect")


def open_store(url: str, environment: Environment, config: Config | None = None) -> Store:
    """Return the store at `url`, sealed with the keys of this process if it has any. It is not connected yet: call
    `await store.open()`."""
    from holdfast.config import DEFAULT  # noqa: PLC0415  a heart needs the dialect alone
    from holdfast.keyring import keys_here  # noqa: PLC0415
    from holdfast.store.store import Store  # noqa: PLC0415

    keys = keys_here(os.environ, environment.secret)
    return Store(dialect_of(url).open_database(url, environment, config or DEFAULT), keys)
