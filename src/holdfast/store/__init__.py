"""The State Store: the one truth. `open_store(url)` picks the dialect.

A dialect is a folder with a module `dialect`, which says what its addresses look like, and how its database and the heart's way
to it are made.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from urllib.parse import urlsplit

from holdfast.addresses import shown_address
from holdfast.config import DEFAULT, Config
from holdfast.environment import Environment
from holdfast.errors import StoreUnsupported
from holdfast.store.store import Store

DIALECTS = {
    "sqlite": "holdfast.store.sqlite",
    "postgresql": "holdfast.store.postgres",
    "postgres": "holdfast.store.postgres",
}
"""The folder of each dialect, by how its addresses begin."""


def dialect_of(url: str) -> ModuleType:
    """The module `dialect` of the folder that serves this address. Only the one in use is loaded."""
    package = DIALECTS.get(urlsplit(url).scheme)
    if package is None:
        raise StoreUnsupported(
            f"cannot tell the store from {shown_address(url)!r}: use sqlite:///file.db or postgresql://user@host/database"
        )
    return import_module(f"{package}.dialect")


def open_store(url: str, environment: Environment, config: Config = DEFAULT) -> Store:
    """The store behind `url`, not connected yet: `await store.open()`."""
    return Store(dialect_of(url).open_database(url, environment, config))
