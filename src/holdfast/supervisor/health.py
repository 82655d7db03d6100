"""How a node is doing. Pure: its row, its load and the time in, its health out."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import NamedTuple

from holdfast.config import DEFAULT
from holdfast.model import NodeRow


class NodeState(StrEnum):
    IDLE = "idle"
    BUSY = "busy"
    """It has steps or owns runs."""
    DRAINING = "draining"
    """It claims nothing new, and leaves when everything it has is done or handed back."""
    STALLED = "stalled"
    """Only its heart keeps its lease: its event loop has recorded no sign of life for longer than a lease lasts."""
    OFFLINE = "offline"
    """It left, or its lease ran out."""


class NodeHealth(NamedTuple):
    node: NodeRow
    state: NodeState
    steps: int
    """How many steps it has."""
    runs: int
    """How many runs it owns."""
    succeeded: int
    """Attempts on this node in the last minutes that succeeded."""
    failed: int
    """Attempts on this node in the last minutes that failed."""
    silent_s: float
    """Seconds since its event loop last recorded a sign of life."""
    offers: dict[str, list[str]]
    """What it can serve: workflows, steps, labels."""
    pool: str | None = None
    """The name of the pool that it belongs to, or that it is."""
    strength: dict[str, int] | None = None
    """For a pool: its limits, how many agents it wants and how many are at work."""

    @property
    def success_rate(self) -> float | None:
        """The share of attempts in the last minutes that succeeded; None if there were none."""
        ended = self.succeeded + self.failed
        return self.succeeded / ended if ended else None


def examine(node: NodeRow, load: tuple[int, int], now: float) -> NodeHealth:
    """Return the health of a node. `load` is (how many steps it has, how many runs it owns)."""
    offers = json.loads(node.offers)
    pulse, pool = offers.pop("pulse", {}), offers.pop("pool", {})
    silent_s = max(0.0, now - pulse.get("at", node.started_at))
    if node.retired_at is not None or node.lease_until < now:
        state = NodeState.OFFLINE
    elif silent_s > pulse.get("lease_s", DEFAULT.lease_s):
        state = NodeState.STALLED
    elif pulse.get("draining"):
        state = NodeState.DRAINING
    else:
        state = NodeState.BUSY if any(load) else NodeState.IDLE
    ended = pulse.get("succeeded", 0), pulse.get("failed", 0)
    return NodeHealth(node, state, *load, *ended, silent_s, offers, pool.get("name"), pulse.get("pool"))
