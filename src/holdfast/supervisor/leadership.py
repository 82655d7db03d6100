"""Who leads: one Supervisor at a time, by a lease with a number, the epoch. Every write of a leader names its epoch.

    standing by ──takes the lease──▶ leading ──renews it──▶ leading
         ▲                             │
         └─────────────────────────────┘
           it resigns; or another took the lease over, which it learns when it renews, or when a write is refused

A lease is free when it was resigned, when it ran out, and when its holder's process is gone. Whoever takes a free lease raises
the epoch, so that what the leader before still writes is refused: it may have been paused, and not know. A leader renews five
times as often as its lease runs out. Those who stand by try to take it at every pass, so nobody leads for `leader_lease_s` at most.
"""

from __future__ import annotations

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.model import LeaderLease as Lead
from holdfast.store.leader import Leader


def lease_s(config: Config) -> float:
    """The lease that is written: together with the pass in which those who stand by find that it ran out, no longer than
    `leader_lease_s`."""
    return max(config.leader_lease_s - 2 * config.sweep_s, config.leader_lease_s / 2)


class Leadership:
    def __init__(self, store: Leader, node: str, environment: Environment, config: Config) -> None:
        self._store, self._node = store, node
        self._environment, self._config = environment, config
        self.epoch: int | None = None
        """The epoch this node leads in, as far as it knows. The store decides."""
        self._led_at = 0.0

    async def lead(self) -> Lead | None:
        """Take or keep the lease, if it is time to ask; the lease as it stands when this node has just taken it over from another
        that did not resign."""
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
