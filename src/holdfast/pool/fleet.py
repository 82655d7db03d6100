"""What a pool needs of whatever runs its agents: processes on this host, actors, containers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class How(StrEnum):
    """How an agent is stopped."""

    DRAIN = "drain"
    """It finishes or hands back what it holds, which costs no attempt."""
    HURRY = "hurry"
    """It has been told to drain, and ends at once."""
    KILL = "kill"


class Seen(NamedTuple):
    """An agent as its fleet sees it."""

    member: str
    ended: str | None = None
    """How it ended, in words; None while it lives."""
    orderly: bool = False
    """It left by itself and in order, to be started afresh."""
    hopeless: bool = False
    """It says that it cannot work with what it was given, so that another one could not either."""


class Fleet(Protocol):
    async def start(self, member: str, badge: str) -> None:
        """Start an agent and do not wait for it. It finds `badge` in its environment as HOLDFAST_POOL, and shows it to the
        store, by which the pool knows it again. Raises OSError when nothing can be started now."""

    async def stop(self, member: str, how: How) -> None:
        """Tell it to stop and do not wait for it. One that is gone already is no error."""

    async def living(self) -> Sequence[Seen]:
        """Every agent that was started and has not ended; and each that has, once."""
