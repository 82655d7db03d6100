"""Agents and lanes, for operators: who works, how they are doing, and what waits for them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from holdfast.access import Act, Identity
from holdfast.desk.opened import Opened
from holdfast.model import DEFAULT_NAMESPACE, Lane, LeaderLease
from holdfast.namespaces import ALL, namespace_of, shown, shown_row
from holdfast.store.answers import Backlog
from holdfast.store.store import Store
from holdfast.supervisor.health import NodeHealth, examine

Health = NodeHealth
"""How a node is doing."""


class LaneSeen(NamedTuple):
    lane: Lane
    backlog: Backlog


class AgentsSeen(NamedTuple):
    nodes: list[Health]
    lease: LeaderLease | None
    """The lease of the node that leads. None if nobody does."""
    now: float
    """The store's time."""

    @property
    def leader(self) -> str | None:
        return None if self.lease is None else self.lease.node


class AgentDesk(Protocol):
    """What operators may ask about nodes and lanes."""

    async def lanes(self, who: Identity) -> list[LaneSeen]: ...
    async def list(self, who: Identity, *, everything: bool = False) -> AgentsSeen: ...


class LocalAgentDesk:
    """An agent desk that works on the store."""

    def __init__(self, hf: Opened) -> None:
        self._hf = hf

    @property
    def _store(self) -> Store:
        return self._hf.store

    async def lanes(self, who: Identity) -> list[LaneSeen]:
        """Return the lanes of steps, and how many steps wait in each."""
        who.demand(Act.READ)
        agents, limit = self._store.agents, self._hf.config.pool_backlog_max
        return [
            LaneSeen(shown_row(who.namespace, lane), await agents.backlog([lane.id], limit))
            for lane in await self._store.agents.lanes()
            if who.sees(namespace_of(lane.name))
        ]

    async def list(self, who: Identity, *, everything: bool = False) -> AgentsSeen:
        """Return the nodes that work for the namespace, and how each is doing."""
        who.demand(Act.READ)
        nodes = [node for node in await self._store.nodes.nodes() if everything or node.retired_at is None]
        loads, leader = await self._store.nodes.loads(), await self._store.leader.leader()
        now = await self._store.now()
        found = [examine(node, loads.get(node.id, (0, 0)), now) for node in nodes]
        if who.namespace is None:
            return AgentsSeen(found, _leads(leader, now), now)
        seen = [_offers_in(who.namespace, one) for one in found]
        return AgentsSeen([one for one in seen if one is not None], _leads(leader, now), now)


def _offers_in(namespace: str, health: Health) -> Health | None:
    """Return a node as those in the namespace see it: with what it offers there. None if it does not work there."""
    offers = health.offers
    named = offers.get("namespaces", [DEFAULT_NAMESPACE])
    if ALL in named:
        return health
    if namespace not in named:
        return None
    mine = {
        kind: [shown(namespace, one) for one in offers.get(kind, ()) if namespace_of(one) == namespace]
        for kind in ("workflows", "steps", "hedged")
    }
    return health._replace(offers={**offers, **mine, "namespaces": [namespace]})


def _leads(leader: LeaderLease | None, now: float) -> LeaderLease | None:
    return None if leader is None or leader.expires_at < now else leader
