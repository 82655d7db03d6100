"""Pools whose agents end soon after they are started. A pool records such trouble when it renews its lease, and the
leader keeps an alert open until the trouble is over."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

from holdfast.config import Config
from holdfast.model import AlertKind, Level, NewAlert, NodeRow
from holdfast.store.roles import SupervisorStore
from holdfast.supervisor.alerts import reconcile, trimmed

NODES_MAX = 10_000
"""At most this many live nodes are looked through."""
ROLE = "pool"


async def watch_pools(store: SupervisorStore, epoch: int, config: Config, kinds: Collection[str]) -> int:
    """Raise an alert for each pool in trouble, and clear those of pools that are well again. `kinds` are those of open
    alerts. Return how many are new."""
    troubled = judge_pools(await store.nodes.living(NODES_MAX))
    return await reconcile(store, epoch, config, AlertKind.POOL_TROUBLE, troubled, kinds)


def judge_pools(nodes: Iterable[NodeRow]) -> list[NewAlert]:
    """Return one alert for each pool and host that reports trouble."""
    found: dict[str, NewAlert] = {}
    for node in nodes:
        if node.roles != ROLE:
            continue
        offers = json.loads(node.offers)
        trouble = offers.get("pulse", {}).get("trouble")
        if trouble:
            key = f"{AlertKind.POOL_TROUBLE}:{node.host}:{offers.get('pool', {}).get('name', node.id)}"
            message = trimmed(f"{node.host} pid {node.pid}: {trouble}")
            found.setdefault(key, NewAlert(AlertKind.POOL_TROUBLE, Level.ERROR, key, message))
    return list(found.values())
