"""Cursors: where the next page begins. A cursor is the keyset of the last row of a page and a digest of the filter, so
that a cursor of another list is refused. Rows that are inserted meanwhile neither repeat nor leave out others."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from datetime import UTC, datetime

import msgspec

FIRST, LAST = [datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (1, 9999)]
"""No row is older or newer. A store may have no date beyond the calendar."""


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    at: bytes
    """The time of the last row, exactly as the store has it."""
    id: str
    filter: str


def cursor_text(at: float, id: str, filter: str) -> str:
    raw = msgspec.json.encode(Cursor(struct.pack(">d", at), id, filter))
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def read_cursor(text: str, filter: str) -> tuple[float, str] | None:
    """Return the keyset of a cursor. None if it is no cursor of the list with this filter."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        found = msgspec.json.decode(raw, type=Cursor)
        (at,) = struct.unpack(">d", found.at)
    except (binascii.Error, ValueError, msgspec.MsgspecError, struct.error):
        return None
    if found.filter != filter or not FIRST <= at <= LAST or "\0" in found.id:
        return None
    try:
        found.id.encode()
    except UnicodeEncodeError:
        return None
    return at, found.id


def filter_digest(parts: object) -> str:
    """Return a short digest of what a list is filtered by."""
    return hashlib.blake2b(msgspec.json.encode(parts, order="sorted"), digest_size=6).hexdigest()
