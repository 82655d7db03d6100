"""How a node is doing. Pure: its row, what it holds and the time in, the verdict out."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import NamedTuple

from holdfast.config import DEFAULT
from holdfast.model import NodeRow


class NodeState(StrEnum):
    IDLE = "idle"
    BUSY = "busy"
    """It holds steps or owns runs."""
    DRAINING = "draining"
    """It takes nothing new, and leaves when what it holds is done or handed back."""
    STALLED = "stalled"
    """It lives by its heart alone: its event loop has said nothing for as long as a lease."""
    OFFLINE = "offline"
    """It left, or its lease ran out."""


class NodeHealth(NamedTuple):
    node: NodeRow
    state: NodeState
    steps: int
    """Steps it holds."""
    runs: int
    """Runs it owns."""
    succeeded: int
    """Attempts of the last minutes that succeeded there."""
    failed: int
    silent_s: float
    """Since it last said something of itself."""
    offers: dict[str, list[str]]
    """What it can serve: workflows, steps, labels."""
    pool: str | None = None
    """The pool it belongs to, or is."""
    strength: dict[str, int] | None = None
    """Of a pool: its limits, how many agents it wants and how many are at work."""

    @property
    def success_rate(self) -> float | None:
        """Of the attempts of the last minutes; None when there were none."""
        ended = self.succeeded + self.failed
        return self.succeeded / ended if ended else None


def examine(node: NodeRow, load: tuple[int, int], now: float) -> NodeHealth:
    """`load` is (steps held, runs owned)."""
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
