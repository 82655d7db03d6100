"""The alert that a node was buried: raised in the transaction that buries it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.model import AlertKind, Level, NewAlert


def offline(node: str, note: str, place: Sequence[Any]) -> NewAlert:
    """`place` is the node's (host, pid, roles). One alert per host, however many of its processes go."""
    host, pid, roles = place
    message = f"node {node} ({roles}; {host} pid {pid}) is gone: {note}"
    return NewAlert(AlertKind.AGENT_OFFLINE, Level.WARNING, f"{AlertKind.AGENT_OFFLINE}:{host}", message)
