"""What a server answers about events."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Raw


def _null() -> Raw:
    return Raw(b"null")


class EmittedEvent(msgspec.Struct):
    """What became of an event that was sent."""

    source: str
    id: str
    type: str
    new: bool
    """False if an event with this source and id had come before."""
    started: list[str]
    """The runs that it started."""
    woke: list[str]
    """The runs that waited for it."""
    collected: list[str] = []
    """The occasions of composed triggers that have it."""
    late: list[str] = []
    """The occasions for which it came too late."""


class EmittedEvents(msgspec.Struct):
    items: list[EmittedEvent]


class Event(msgspec.Struct, kw_only=True):
    source: str
    id: str
    type: str
    subject: str | None
    time: datetime | None
    """When the sender says that it happened."""
    received_at: datetime
    actor: str
    """Who sent it."""
    attributes: dict[str, str]
    started: list[str]
    woke: list[str]
    collected: list[str] = []
    late: list[str] = []
    hidden: bool = False
    """True if the data is not shown to this token."""
    data: Raw = msgspec.field(default_factory=_null)


class Events(msgspec.Struct):
    items: list[Event]
    next: str | None = None
    """The cursor of the next page. Null if this is the last one."""
