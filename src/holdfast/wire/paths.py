"""Ids in paths. A run's id may have any printable character, and a child's always has a `/`, which proxies decode or
refuse. So an id of letters, digits and a few signs stands as it is, and any other one as `~` and base64url."""

from __future__ import annotations

import base64
import binascii
import re

_PLAIN = re.compile(r"[A-Za-z0-9._:@-][A-Za-z0-9._:@~-]*")
_CODED = re.compile(r"~[A-Za-z0-9_-]+")


def path_of(id: str) -> str:
    """Return the form of an id that stands in a path."""
    if _PLAIN.fullmatch(id) and set(id) != {"."}:
        return id
    return "~" + base64.urlsafe_b64encode(id.encode()).decode().rstrip("=")


def id_of(path: str) -> str | None:
    """Return the id that a part of a path stands for. None if it is no such part. Each id has exactly one form."""
    if not path.startswith("~"):
        return path if path_of(path) == path else None
    if _CODED.fullmatch(path) is None:
        return None
    try:
        found = base64.urlsafe_b64decode(path[1:] + "=" * (-len(path[1:]) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return found if path_of(found) == path else None
