"""The address of a store on SQLite."""

from __future__ import annotations

from urllib.parse import unquote

from holdfast.addresses import shown_address
from holdfast.errors import StoreUnsupported

IN_MEMORY = ":memory:"


def path_of(url: str) -> str:
    """Return the path in a URL, as SQLite needs it: `sqlite:///relative.db`, `sqlite:////absolute.db` or
    `sqlite://:memory:`."""
    rest = unquote(url.removeprefix("sqlite:"))
    name = rest[3:] if rest.startswith("///") else rest.removeprefix("//")
    if name == IN_MEMORY:
        return name
    if not rest.startswith("///") or not name or name.endswith("/"):
        raise StoreUnsupported(
            f"{shown_address(url)!r} names no file: use sqlite:///file.db or sqlite:////folder/file.db"
        )
    return name
