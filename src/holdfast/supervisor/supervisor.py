"""The Supervisor: one bounded `tick` that takes or keeps the leadership, and then does each duty once.

It may change only what is overdue or has no owner, only while it leads, and records that in the journal. It knows no
business logic: it never looks into a payload.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.store.bell import Bell
from holdfast.store.roles import SupervisorStore
from holdfast.supervisor.acts import ActKeeper
from holdfast.supervisor.alerts import log_alerts, raise_failures, raise_succession, watch_backlog
from holdfast.supervisor.breakers import alert_on_breakers, update_breakers
from holdfast.supervisor.hedge import Hedging
from holdfast.supervisor.leadership import Leadership
from holdfast.supervisor.pools import watch_pools
from holdfast.supervisor.quarantine import clear_released, stick_quarantined
from holdfast.supervisor.reclaim import end_overdue, reclaim_lost
from holdfast.supervisor.retention import Forgetting, Pruning
from holdfast.supervisor.schedules import Scheduling
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
        ring: Callable[[Bell], None] = lambda bell: None,
    ) -> None:
        self._is_logging = is_logging
        """Whether it writes alerts to its log. It does not in a process that exists for one run: there, people would
        take them for messages about that run."""
        self._store = store
        self._environment, self._config = environment, config
        self._leadership = Leadership(store.leader, node, environment, config)
        self._tidied_at = 0.0
        self._watched_at = 0.0
        self._pruning = Pruning(store.retention, environment, config)
        self._forgetting = Forgetting(store.retention, config)
        self._hedging = Hedging(store, environment, config)
        self._stragglers = Stragglers(store, environment, config)
        self._scheduling = Scheduling(store, config)
        self._reviewed_at = 0.0
        self._acts = ActKeeper(store.acts, node, config, ring)
        self.breakers_changed = False
        """True after a breaker changed, so that agents should look. The loop that rings their bell sets it back."""
        self._look_at_breakers = True
        """True if a breaker may have changed since the alerts about breakers were last looked over."""

    @property
    def epoch(self) -> int | None:
        """The epoch in which this node believes it leads; None if it stands by."""
        return self._leadership.epoch

    @property
    def next_at(self) -> float | None:
        """When the next schedule is due, by the store's clock. None if none is, or this node does not lead."""
        return None if self.epoch is None else self._scheduling.next_at

    async def tick(self) -> int:
        """Do one pass over every duty. Return how many things were mended, so that the caller can ring the bells."""
        at = self._environment.monotonic()
        taken_over = await self._leadership.lead()
        epoch = self.epoch
        if epoch is None:
            return 0
        if taken_over is not None:
            await raise_succession(self._store, taken_over)
        remedied = await self._recover(epoch)
        remedied += await self._scheduling.fire(epoch)
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
        """At every pass: mend what keeps work from going on."""
        store, environment, config = self._store, self._environment, self._config
        remedied = await reclaim_lost(store.leader, epoch, environment, config)
        remedied += await end_overdue(store.leader, epoch, environment, config)
        if await update_breakers(store, epoch, config):
            self.breakers_changed = self._look_at_breakers = True
        return remedied + await self._hedging.hedge(epoch)

    async def _tidy(self, epoch: int, at: float) -> int:
        """Every few seconds: do what can wait that long, and remove what would otherwise pile up."""
        store, config = self._store, self._config
        self._look_at_breakers = True
        closed = await store.leader.close_signals(epoch, config.claim_max)
        now = await store.now()
        await watch_backlog(store, epoch, config, now)
        await clear_released(store, epoch, config)
        await self._stragglers.watch(epoch, now)
        await watch_pools(store, epoch, config)
        await self._scheduling.reconcile(epoch)
        if at - self._reviewed_at > config.prune_every_s:
            self._reviewed_at = at
            await self._scheduling.watch(epoch, now)
        await self._pruning.prune(epoch, now)
        await self._forgetting.forget(epoch, at, now)
        return closed

    async def _watch(self, epoch: int) -> int:
        """About once a second: find what people should know."""
        store, config = self._store, self._config
        await raise_failures(store, epoch, config)
        if self._look_at_breakers:
            self._look_at_breakers = False
            await alert_on_breakers(store, epoch, config)
        await self._acts.look()
        stuck = await stick_quarantined(store, epoch, config)
        if self._is_logging:
            await log_alerts(store, epoch, config)
        return stuck

    async def resign(self) -> None:
        """Let another node lead at once."""
        await self._acts.close()
        await self._leadership.resign()
