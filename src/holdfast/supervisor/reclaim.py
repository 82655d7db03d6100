"""What happens when a node dies: its runs become ownerless, its steps ready again, and whatever it still writes finds
no row, because both fences were raised."""

from __future__ import annotations

from holdfast.config import Config
from holdfast.store.protocol import SupervisorStore


async def reclaim_lost(store: SupervisorStore, epoch: int, config: Config) -> int:
    """Bury the nodes that are dead. Bounded: a node with more than `claim_max` rows is finished by the next passes."""
    reclaimed = 0
    for node, reason in await store.dead_nodes():
        done = await store.reclaim(node, epoch, reason, config.losses_max, config.claim_max)
        if done is None:
            break  # deposed: the new leader does it
        reclaimed += done.runs + done.steps + 1
    return reclaimed
