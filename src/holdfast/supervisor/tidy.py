"""Rows that nobody will look at again and that would otherwise be found by every look."""

from __future__ import annotations

from holdfast.config import Config
from holdfast.store.protocol import SupervisorStore

DAY_S = 86_400.0


async def close_signals(store: SupervisorStore, epoch: int, config: Config) -> int:
    """Signals that reached a run after it could take them in."""
    return await store.close_signals(epoch, config.claim_max)


async def forget_nodes(store: SupervisorStore, epoch: int, config: Config, now: float) -> int:
    """Processes that left long ago. Until then `why` names the last one that could do what is asked for."""
    return await store.forget_nodes(epoch, now - config.keep_nodes_days * DAY_S, config.prune_rows_max)


async def forget_workflows(store: SupervisorStore, epoch: int, config: Config, now: float) -> int:
    """Workflows that no code has had for long. Should a run of one still be open, signals to it are taken unchecked."""
    return await store.forget_workflows(
        epoch, now - config.keep_workflows_days * DAY_S, config.prune_rows_max
    )


async def forget_journal(store: SupervisorStore, epoch: int, config: Config, now: float) -> int:
    """What was done long ago to no run in particular: a run's own journal goes with the run."""
    return await store.forget_journal(epoch, now - config.keep_journal_days * DAY_S, config.prune_rows_max)
