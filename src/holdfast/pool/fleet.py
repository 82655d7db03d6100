"""A fleet starts and stops the agents of a pool. It can run them as processes on this host, as actors or as
containers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol


class StopMode(StrEnum):
    """How a pool stops an agent."""

    DRAIN = "drain"
    """The agent finishes its steps or hands them back, which costs no attempt."""
    HURRY = "hurry"
    """The agent is draining already, and now ends at once."""
    KILL = "kill"


class FleetAgent(NamedTuple):
    """An agent as its fleet sees it."""

    member: str
    ended: str | None = None
    """How it ended, in words; None while it lives."""
    orderly: bool = False
    """True if it left in good order, of its own accord, so that another one can be started at once."""
    hopeless: bool = False
    """True if it cannot work with what it was given, so that another one could not either."""


class Fleet(Protocol):
    async def start(self, member: str, badge: str) -> None:
        """Start an agent, and do not wait for it. The agent finds `badge` in its environment as HOLDFAST_POOL and shows
        it in the store, so that the pool recognises it there. Raises OSError if no agent can be started now."""

    async def stop(self, member: str, mode: StopMode) -> None:
        """Stop an agent, and do not wait for it. It is no error if the agent is gone already."""

    async def living(self) -> Sequence[FleetAgent]:
        """Return every agent that was started and has not ended. An agent that has ended is returned once more."""
