"""What a server answers about composed triggers and their occasions."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Trigger(msgspec.Struct, kw_only=True):
    """Several events and times that start a workflow together."""

    name: str
    namespace: str
    workflow: str
    version: str
    origin: str
    """The code that declares it."""
    needs: str
    """What it waits for, in words."""
    parts: list[str]
    """The names of its parts, which the workflow's argument has them by."""
    by: str
    """What its events have in common."""
    within_s: float
    otherwise: str
    next_at: datetime | None
    """When its next time comes."""


class Triggers(msgspec.Struct):
    items: list[Trigger]


class Arrived(msgspec.Struct, kw_only=True):
    """An event or a time that an occasion has."""

    part: str
    at: datetime
    source: str | None = None
    """The source and the id of the event. None for a time."""
    event: str | None = None


class Occasion(msgspec.Struct, kw_only=True):
    """A composed trigger and a value: what has arrived, and what is missing."""

    id: str
    """The run has the same id."""
    ref: str
    """The id as it stands in URLs."""
    trigger: str
    value: str
    state: str
    opened_at: datetime
    """Since when it waits."""
    ends_at: datetime
    """Until when it waits."""
    ended_at: datetime | None
    arrived: list[Arrived]
    missing: list[str]
    late: int
    """How many events came too late."""
    note: str


class Occasions(msgspec.Struct):
    items: list[Occasion]
