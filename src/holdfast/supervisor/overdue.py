"""Attempts whose agent is alive but did not end them in time: a hung thread, a stopped process."""

from __future__ import annotations

from holdfast.config import Config
from holdfast.store.protocol import SupervisorStore


async def end_overdue(store: SupervisorStore, epoch: int, config: Config) -> int:
    """Time them out, after a grace in which the agent itself should have."""
    return await store.end_overdue(epoch, config.timeout_grace_s, config.claim_max)
