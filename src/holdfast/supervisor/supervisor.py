"""The Supervisor: one bounded `tick` that leads, and then does each duty once.

May change only what is overdue or ownerless, only while it is leader, and says so in the journal. It knows no business
logic: it never looks into a payload.
"""

from __future__ import annotations

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.store.roles import SupervisorStore
from holdfast.supervisor.alerts import log_alerts, raise_failures, raise_succession, watch_backlog
from holdfast.supervisor.breakers import tell_of_breakers, turn_breakers
from holdfast.supervisor.hedge import Hedging
from holdfast.supervisor.leadership import Leadership
from holdfast.supervisor.pools import watch_pools
from holdfast.supervisor.quarantine import clear_released, stick_quarantined
from holdfast.supervisor.reclaim import end_overdue, reclaim_lost
from holdfast.supervisor.retention import Forgetting, Pruning
from holdfast.supervisor.stragglers import Stragglers


class Supervisor:
    def __init__(
        self,
        store: SupervisorStore,
        node: str,
        environment: Environment,
        config: Config,
        *,
        is_logging: bool = True,
    ) -> None:
        self._is_logging = is_logging
        """Whether alerts stand in its log. In a process that is there for one run they would be taken for that run's."""
        self._store = store
        self._environment, self._config = environment, config
        self._leadership = Leadership(store.leader, node, environment, config)
        self._tidied_at = 0.0
        self._watched_at = 0.0
        self._pruning = Pruning(store.retention, environment, config)
        self._forgetting = Forgetting(store.retention, config)
        self._hedging = Hedging(store, environment, config)
        self._stragglers = Stragglers(store, environment, config)
        self.turned_gates = False
        """A breaker changed: agents should look. Set back by whoever tells them."""
        self._untold_gates = True

    @property
    def epoch(self) -> int | None:
        """The epoch this node leads in, as far as it knows."""
        return self._leadership.epoch

    async def tick(self) -> int:
        """One pass over every duty. Returns how many things were remedied, so that the caller can go on at once."""
        at = self._environment.monotonic()
        taken_over = await self._leadership.lead()
        epoch = self.epoch
        if epoch is None:
            return 0
        if taken_over is not None:
            await raise_succession(self._store, taken_over)
        remedied = await self._recover(epoch)
        if at - self._tidied_at > self._config.leader_lease_s:
            self._tidied_at = at
            remedied += await self._tidy(epoch, at)
        elif self._pruning.walking:
            await self._pruning.prune(epoch, await self._store.now())
        if at - self._watched_at > self._config.watch_s:
            self._watched_at = at
            remedied += await self._watch(epoch)
        return remedied

    async def _recover(self, epoch: int) -> int:
        """At every pass: what keeps work from going on."""
        store, environment, config = self._store, self._environment, self._config
        remedied = await reclaim_lost(store.leader, epoch, environment, config)
        remedied += await end_overdue(store.leader, epoch, environment, config)
        if await turn_breakers(store, epoch, config):
            self.turned_gates = self._untold_gates = True
        return remedied + await self._hedging.hedge(epoch)

    async def _tidy(self, epoch: int, at: float) -> int:
        """Every few seconds: what would otherwise pile up, or be found by every look."""
        store, config = self._store, self._config
        self._untold_gates = True
        closed = await store.leader.close_signals(epoch, config.claim_max)
        now = await store.now()
        await watch_backlog(store, epoch, config, now)
        await clear_released(store, epoch, config)
        await self._stragglers.watch(epoch, now)
        await watch_pools(store, epoch, config)
        await self._pruning.prune(epoch, now)
        await self._forgetting.forget(epoch, at, now)
        return closed

    async def _watch(self, epoch: int) -> int:
        """About once a second: what people should know."""
        store, config = self._store, self._config
        await raise_failures(store, epoch, config)
        if self._untold_gates:
            self._untold_gates = False
            await tell_of_breakers(store, epoch, config)
        stuck = await stick_quarantined(store, epoch, config)
        if self._is_logging:
            await log_alerts(store, epoch, config)
        return stuck

    async def resign(self) -> None:
        """Let another node lead at once."""
        await self._leadership.resign()
