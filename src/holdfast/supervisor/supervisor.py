"""The Supervisor: one bounded `tick` that leads, and then does each duty once.

May change only what is overdue or ownerless, only while it is leader, and says so in the journal. It knows no business
logic: it never looks into a payload.
"""

from __future__ import annotations

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.store.protocol import SupervisorStore
from holdfast.supervisor.alerts import log_alerts, raise_failures, raise_succession, watch_backlog
from holdfast.supervisor.breakers import tell_of_breakers, turn_breakers
from holdfast.supervisor.hedge import Hedging
from holdfast.supervisor.overdue import end_overdue
from holdfast.supervisor.pools import watch_pools
from holdfast.supervisor.quarantine import clear_released, stick_quarantined
from holdfast.supervisor.reclaim import reclaim_lost
from holdfast.supervisor.retention import Pruning
from holdfast.supervisor.stragglers import Stragglers
from holdfast.supervisor.tidy import close_signals, forget_journal, forget_nodes, forget_workflows


def leader_lease_s(config: Config) -> float:
    """The lease that is written: with the look by which those who stand by find that it ran out, no longer than
    `leader_lease_s`."""
    return max(config.leader_lease_s - 2 * config.sweep_s, config.leader_lease_s / 2)


class Supervisor:
    def __init__(
        self,
        store: SupervisorStore,
        node: str,
        environment: Environment,
        config: Config,
        *,
        logs: bool = True,
    ) -> None:
        self._logs = logs
        """Whether alerts stand in its log. In a process that is there for one run they would be taken for that run's."""
        self._store, self._node = store, node
        self._environment, self._config = environment, config
        self.epoch: int | None = None
        """The epoch this node leads in, as far as it knows. The store decides."""
        self._led_at = 0.0
        self._tidied_at = 0.0
        self._watched_at = 0.0
        self._forget_at = 0.0
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
            remedied += await close_signals(self._store, self.epoch, self._config)
            await watch_backlog(self._store, self.epoch, self._config, await self._store.now())
            await clear_released(self._store, self.epoch, self._config)
            await self._stragglers.watch(self.epoch, await self._store.now())
            await watch_pools(self._store, self.epoch, self._config)
            await self._pruning.prune(self.epoch, await self._store.now())
            if at > self._forget_at:
                await self._forget(self.epoch, at)
        elif self._pruning.walking:
            await self._pruning.prune(self.epoch, await self._store.now())
        if at - self._watched_at > self._config.watch_s:
            self._watched_at = at
            await raise_failures(self._store, self.epoch, self._config)
            if self._untold_gates:
                self._untold_gates = False
                await tell_of_breakers(self._store, self.epoch, self._config)
            remedied += await stick_quarantined(self._store, self.epoch, self._config)
            if self._logs:
                await log_alerts(self._store, self.epoch, self._config)
        return remedied

    async def _forget(self, epoch: int, at: float) -> None:
        now, most = await self._store.now(), self._config.prune_rows_max
        gone = await forget_nodes(self._store, epoch, self._config, now)
        gone = max(gone, await forget_journal(self._store, epoch, self._config, now))
        gone = max(gone, await forget_workflows(self._store, epoch, self._config, now))
        if gone < most:  # else there may be more: the next time round
            self._forget_at = at + self._config.prune_every_s

    async def _lead(self, at: float) -> None:
        led_before = self.epoch
        self.epoch = await self._store.lead(self._node, leader_lease_s(self._config))
        self._led_at = at
        if self.epoch is not None and self.epoch != led_before:
            leader = await self._store.leader()
            if leader is not None and leader.predecessor not in {None, self._node}:
                await raise_succession(self._store, leader)

    async def resign(self) -> None:
        """Let another node lead at once."""
        if self.epoch is not None:
            self.epoch = None
            await self._store.resign(self._node)
