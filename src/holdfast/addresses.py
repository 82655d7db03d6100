"""Shows addresses of stores and channels without their passwords, however an address is written."""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

HIDDEN = "…"
_USER = re.compile(r"^(?P<scheme>(?>(?:[^:/?#\s]*://+)?))(?P<user>[^:/?#@\s=]*):(?P<password>.*)@", re.DOTALL)
"""The password goes up to the last @, because a password that nobody encoded may contain any character."""
_SECRET = re.compile(r"pass|pwd|secret|token|credential|api_?key", re.IGNORECASE)
_WORDS = re.compile(r"(?P<name>\w+)\s*=\s*(?:'(?:[^'\\]|\\.)*'|\S+)")
"""libpq has a second way to write an address: host=db password='a b'."""


SERVERS = ("http://", "https://")


def is_remote(address: object) -> bool:
    """True if this is the address of a server, and not of a database."""
    return isinstance(address, str) and address.startswith(SERVERS)


def shown_address(address: str) -> str:
    """Return the address without its secrets. It also hides what cannot be distinguished from a password."""
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
    """True if the user or the password contains a raw / ? or #. These characters end them, so a part of the password
    would be read as the host."""
    _, _, rest = address.partition("://")
    place = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in place or "@" not in rest:
        return False
    port = place.rpartition(":")[2] if ":" in place.rpartition("]")[2] else "0"
    return not all(part.isdecimal() or not part for part in port.split(",")) or "@" in rest.partition("?")[0]
