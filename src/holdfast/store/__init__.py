"""The State Store: the one truth. `open_store(url)` picks the dialect."""

from __future__ import annotations

from urllib.parse import urlsplit

from holdfast.addresses import has_raw_password, shown_address
from holdfast.config import DEFAULT, Config
from holdfast.environment import Environment
from holdfast.errors import StoreUnsupported
from holdfast.store.protocol import Store


def open_store(url: str, environment: Environment, config: Config = DEFAULT) -> Store:
    """The store behind `url`, not connected yet: `await store.open()`."""
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        from holdfast.store.sqlite.store import SqliteStore  # noqa: PLC0415  only the dialect in use is loaded

        return SqliteStore(url, environment, config)
    if scheme in {"postgresql", "postgres"}:
        try:
            from holdfast.store.postgres.store import PostgresStore  # noqa: PLC0415  an optional dependency
        except ModuleNotFoundError as error:
            raise StoreUnsupported("PostgreSQL needs its driver: pip install 'holdfast[postgres]'") from error
        if has_raw_password(url):
            raise StoreUnsupported(
                f"cannot read the store's address {shown_address(url)!r}: in a user or password write / as %2F, ? as %3F, "
                "# as %23 and @ as %40"
            )
        return PostgresStore(url, environment, config)
    raise StoreUnsupported(
        f"cannot tell the store from {shown_address(url)!r}: use sqlite:///file.db or postgresql://user@host/database"
    )
