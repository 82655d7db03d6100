"""Addresses of stores and channels as people may see them: without passwords, however an address is written."""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

HIDDEN = "…"
_USER = re.compile(r"^(?P<scheme>(?>(?:[^:/?#\s]*://+)?))(?P<user>[^:/?#@\s=]*):(?P<password>.*)@", re.DOTALL)
"""The password goes on to the last @: whoever forgot to encode one may have any character in it."""
_SECRET = re.compile(r"pass|pwd|secret|token|credential|api_?key", re.IGNORECASE)
_WORDS = re.compile(r"(?P<name>\w+)\s*=\s*(?:'(?:[^'\\]|\\.)*'|\S+)")
"""libpq's other way to write an address: host=db password='a b'."""


def shown_address(address: str) -> str:
    """The address without what is secret in it. What cannot be told from a password is hidden with it."""
    head, mark, query = _USER.sub(rf"\g<scheme>\g<user>:{HIDDEN}@", address, count=1).partition("?")
    if not mark:
        return _WORDS.sub(_without_value, head)
    return f"{head}?{re.sub(r'[^&;]+', _without_pair, query)}"


def _without_pair(found: re.Match[str]) -> str:
    name, mark, _ = found[0].partition("=")
    return f"{name}={HIDDEN}" if mark and _SECRET.search(unquote_plus(name)) else found[0]


def _without_value(found: re.Match[str]) -> str:
    return f"{found['name']}={HIDDEN}" if _SECRET.search(found["name"]) else found[0]


def has_raw_password(address: str) -> bool:
    """Whether characters that end a user and password, / ? #, stand inside of them: the rest would be taken for a host."""
    _, _, rest = address.partition("://")
    place = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in place or "@" not in rest:
        return False
    port = place.rpartition(":")[2] if ":" in place.rpartition("]")[2] else "0"
    return not all(one.isdecimal() or not one for one in port.split(",")) or "@" in rest.partition("?")[0]
