"""Rows that nobody will look at again and that would otherwise be found by every look."""

from __future__ import annotations

from holdfast.config import Config
from holdfast.store.protocol import SupervisorStore


async def hush_signals(store: SupervisorStore, epoch: int, config: Config) -> int:
    """Signals that reached a run after it could take them in."""
    return await store.hush_signals(epoch, config.claim_max)
