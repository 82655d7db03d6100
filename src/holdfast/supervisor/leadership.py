"""Who leads: one Supervisor at a time, by a lease with a number, the epoch. Every write of a leader names its epoch.

    standing by ──takes the lease──▶ leading ──renews it──▶ leading
         ▲                             │
         └─────────────────────────────┘
           it resigns; or another Supervisor takes the lease, which it learns when it renews, or when a write is refused

The lease is free when its holder has resigned, when it has run out, and when its holder's process is gone. A Supervisor
that takes a free lease raises the epoch. So the store refuses what the leader before still writes: that one may have
been paused, and not know. A leader renews five times within `leader_lease_s`. Supervisors that stand by try to take the
lease at every pass, so there is no leader for `leader_lease_s` at most.
"""

from __future__ import annotations

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.model import LeaderLease as Lead
from holdfast.store.leader import Leader


def lease_s(config: Config) -> float:
    """Return how long the lease lasts. It is shorter than `leader_lease_s`, because those who stand by notice only at
    their next pass that it has run out."""
    return max(config.leader_lease_s - 2 * config.sweep_s, config.leader_lease_s / 2)


class Leadership:
    def __init__(self, store: Leader, node: str, environment: Environment, config: Config) -> None:
        self._store, self._node = store, node
        self._environment, self._config = environment, config
        self.epoch: int | None = None
        """The epoch in which this node believes it leads; None if it stands by. The store decides whether that is
        so."""
        self._led_at = 0.0

    async def lead(self) -> Lead | None:
        """Take or renew the lease, if it is time to. Return the lease if this node has just taken it over from a node
        that did not resign; else None."""
        at = self._environment.monotonic()
        if self.epoch is not None and at - self._led_at <= self._config.leader_lease_s / 5:
            return None
        before = self.epoch
        self.epoch = await self._store.lead(self._node, lease_s(self._config))
        self._led_at = at
        if self.epoch is None or self.epoch == before:
            return None
        lead = await self._store.leader()
        return lead if lead is not None and lead.predecessor not in {None, self._node} else None

    async def resign(self) -> None:
        """Let another node lead at once."""
        if self.epoch is not None:
            self.epoch = None
            await self._store.resign(self._node)
