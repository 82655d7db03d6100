"""The Supervisor: one bounded `tick` that leads, and then does each duty once.

May change only what is overdue or ownerless, only while it is leader, and says so in the journal. It knows no business
logic: it never looks into a payload.
"""

from __future__ import annotations

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.store.protocol import SupervisorStore
from holdfast.supervisor.alerting import log_alerts, raise_failures, raise_succession, watch_backlog
from holdfast.supervisor.breakers import tell_of_breakers, turn_breakers
from holdfast.supervisor.hedge import Hedging
from holdfast.supervisor.overdue import end_overdue
from holdfast.supervisor.quarantine import clear_released, stick_quarantined
from holdfast.supervisor.reclaim import reclaim_lost
from holdfast.supervisor.retention import Pruning
from holdfast.supervisor.stragglers import Stragglers
from holdfast.supervisor.tidy import hush_signals


class Supervisor:
    def __init__(self, store: SupervisorStore, node: str, environment: Environment, config: Config) -> None:
        self._store, self._node = store, node
        self._environment, self._config = environment, config
        self.epoch: int | None = None
        """The epoch this node leads in, as far as it knows. The store decides."""
        self._led_at = 0.0
        self._tidied_at = 0.0
        self._watched_at = 0.0
        self._pruning = Pruning(store, environment, config)
        self.turned_gates = False
        """A breaker changed: agents should look. Set back by whoever tells them."""
        self._untold_gates = True
        self._hedging = Hedging(store, environment, config)
        self._stragglers = Stragglers(store, environment, config)

    async def tick(self) -> int:
        """One pass over every duty. Returns how many things were remedied, so that the caller can go on at once."""
        at = self._environment.monotonic()
        if self.epoch is None or at - self._led_at > self._config.leader_lease_s / 5:
            await self._lead(at)
        if self.epoch is None:
            return 0
        remedied = await reclaim_lost(self._store, self.epoch, self._config)
        remedied += await end_overdue(self._store, self.epoch, self._config)
        if await turn_breakers(self._store, self.epoch, self._config):
            self.turned_gates = self._untold_gates = True
        remedied += await self._hedging.hedge(self.epoch)
        if at - self._tidied_at > self._config.leader_lease_s:
            self._tidied_at = at
            self._untold_gates = True
            remedied += await hush_signals(self._store, self.epoch, self._config)
            await watch_backlog(self._store, self.epoch, self._config, await self._store.now())
            await clear_released(self._store, self.epoch, self._config)
            await self._stragglers.watch(self.epoch, await self._store.now())
            await self._pruning.prune(self.epoch, await self._store.now())
        elif self._pruning.walking:
            await self._pruning.prune(self.epoch, await self._store.now())
        if at - self._watched_at > self._config.watch_s:
            self._watched_at = at
            await raise_failures(self._store, self.epoch, self._config)
            if self._untold_gates:
                self._untold_gates = False
                await tell_of_breakers(self._store, self.epoch, self._config)
            remedied += await stick_quarantined(self._store, self.epoch, self._config)
            await log_alerts(self._store, self.epoch, self._config)
        return remedied

    async def _lead(self, at: float) -> None:
        before = await self._store.leader() if self.epoch is None else None
        self.epoch = await self._store.lead(self._node, self._config.leader_lease_s)
        self._led_at = at
        if self.epoch is not None and before is not None and before[0] != self._node:
            await raise_succession(self._store, self.epoch, self._node, before[0])

    async def resign(self) -> None:
        """Let another node lead at once."""
        if self.epoch is not None:
            self.epoch = None
            await self._store.resign(self._node)
