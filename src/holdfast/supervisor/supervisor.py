"""The Supervisor: one bounded `tick` that takes or keeps the leadership, and then does each duty once.

It may change only what is overdue or has no owner, only while it leads, and records that in the journal. It knows no
business logic: it never looks into a payload.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.model import AlertKind
from holdfast.store.answers import Duties
from holdfast.store.bell import Bell
from holdfast.store.roles import SupervisorStore
from holdfast.supervisor.acts import ActKeeper
from holdfast.supervisor.adaptive_limits import AdaptiveLimits
from holdfast.supervisor.alerts import log_alerts, raise_failures, raise_succession, watch_backlog
from holdfast.supervisor.asks import AskKeeper
from holdfast.supervisor.breakers import alert_on_breakers, update_breakers
from holdfast.supervisor.callbacks import CallbackKeeper
from holdfast.supervisor.events import EventKeeper
from holdfast.supervisor.hedge import HedgeKeeper
from holdfast.supervisor.lateness import Explain, Lateness, unexplained
from holdfast.supervisor.leadership import Leadership
from holdfast.supervisor.occasions import OccasionKeeper
from holdfast.supervisor.pools import watch_pools
from holdfast.supervisor.quarantine import clear_released, stick_quarantined
from holdfast.supervisor.reclaim import end_overdue, reclaim_lost
from holdfast.supervisor.retention import RowPruner, RunPruner
from holdfast.supervisor.schedules import ScheduleKeeper
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
        explain: Explain = unexplained,
    ) -> None:
        self._is_logging = is_logging
        """Whether it writes alerts to its log. It does not in a process that exists for one run: there, people would
        take them for messages about that run."""
        self._store = store
        self._environment, self._config = environment, config
        self._leadership = Leadership(store.leader, node, environment, config)
        self._tidied_at = 0.0
        self._watched_at = 0.0
        self._run_pruner = RunPruner(store.retention, environment, config)
        self._row_pruner = RowPruner(store.retention, config)
        self._hedges = HedgeKeeper(store, environment, config)
        self._stragglers = Stragglers(store, environment, config)
        self._schedules = ScheduleKeeper(store, config)
        self._events = EventKeeper(store, config)
        self._occasions = OccasionKeeper(store)
        self._asks = AskKeeper(store.asks)
        self._callbacks = CallbackKeeper(store)
        self._lateness = Lateness(store, config, explain)
        self._limits = AdaptiveLimits(store)
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
        """When the next schedule, occasion, ask, callback or promise is due, by the store's clock. None if none is, or this
        node does not lead."""
        if self.epoch is None:
            return None
        duties = (self._schedules, self._occasions, self._asks, self._callbacks, self._lateness)
        due = [duty.next_at for duty in duties if duty.next_at is not None]
        return min(due, default=None)

    async def tick(self) -> int:
        """Do one pass over every duty. Return how many things were mended, so that the caller can ring the bells."""
        at = self._environment.monotonic()
        taken_over = await self._leadership.lead()
        epoch = self.epoch
        if epoch is None:
            return 0
        if taken_over is not None:
            await raise_succession(self._store, taken_over)
        # What has to do with a node that is gone comes first: that may make more to do.
        remedied = await reclaim_lost(self._store.leader, epoch, self._environment, self._config)
        config = self._config
        duties = await self._store.leader.duties(config.timeout_grace_s, config.breaker_window_s)
        remedied += await self._recover(epoch, duties)
        remedied += await self._keep_time(epoch, duties)
        if at - self._tidied_at > config.leader_lease_s:
            self._tidied_at = at
            remedied += await self._tidy(epoch, at, duties)
        elif self._run_pruner.walking:
            await self._run_pruner.prune(epoch, await self._store.now())
        if at - self._watched_at > config.watch_s:
            self._watched_at = at
            remedied += await self._watch(epoch, duties)
        return remedied

    async def _recover(self, epoch: int, duties: Duties) -> int:
        """At every pass: mend what keeps work from going on."""
        store, remedied = self._store, 0
        if duties.overdue:
            remedied += await end_overdue(store.leader, epoch, self._environment, self._config)
        if duties.breakers and await update_breakers(store, epoch, self._config):
            self.breakers_changed = self._look_at_breakers = True
        return remedied + await self._hedges.hedge(epoch, twins=bool(duties.twins))

    async def _keep_time(self, epoch: int, duties: Duties) -> int:
        """At every pass: do what is due. Return how many runs were started and steps ended."""
        started = 0
        times = [at for at in (duties.part_at, duties.occasion_at) if at is not None]
        self._schedules.next_at, self._occasions.next_at = duties.schedule_at, min(times, default=None)
        self._asks.next_at, self._callbacks.next_at = duties.ask_at, duties.callback_at
        if duties.fires or duties.is_due(duties.schedule_at) or self._schedules.is_new(epoch):
            started += await self._schedules.fire(epoch)
        if duties.is_due(self._occasions.next_at):
            started += await self._occasions.mind(epoch)
        if duties.is_due(duties.ask_at):
            started += await self._asks.mind(epoch)
        if duties.is_due(duties.callback_at):
            started += await self._callbacks.expire(epoch)
        await self._lateness.mind(epoch)
        return started

    async def _tidy(self, epoch: int, at: float, duties: Duties) -> int:
        """Every few seconds: do what can wait that long, and remove what would otherwise pile up."""
        store, config, now = self._store, self._config, duties.now
        closed = await store.leader.close_signals(epoch, config.claim_max) if duties.signals else 0
        kinds = await store.alerts.open_kinds()
        self._look_at_breakers |= bool(duties.breakers) or AlertKind.BREAKER_OPEN in kinds
        await watch_backlog(store, epoch, config, now, kinds)
        await clear_released(store, epoch, config, kinds)
        await self._stragglers.watch(epoch, now, kinds)
        await self._lateness.watch(epoch, kinds, promises=bool(duties.promises))
        await watch_pools(store, epoch, config, kinds)
        if duties.declared:
            await self._schedules.reconcile(epoch)
            await self._events.reconcile(epoch)
            closed += await self._occasions.reconcile(epoch)
        if duties.waits:
            closed += await self._events.look_again()
        if at - self._reviewed_at > config.prune_every_s:
            self._reviewed_at = at
            await self._schedules.watch(epoch, now)
        await self._run_pruner.prune(epoch, now)
        await self._row_pruner.forget(epoch, at, now)
        return closed

    async def _watch(self, epoch: int, duties: Duties) -> int:
        """About once a second: find what people should know, and move adaptive limits."""
        store, config = self._store, self._config
        if duties.failures:
            await raise_failures(store, epoch, config)
        if self._look_at_breakers:
            self._look_at_breakers = False
            await alert_on_breakers(store, epoch, config)
        if duties.acts:
            await self._acts.look()
        stuck = await stick_quarantined(store, epoch, config) if duties.quarantine else 0
        risen = await self._limits.move(epoch) if duties.limits else 0
        if self._is_logging:
            await log_alerts(store, epoch, config)
        return stuck + risen

    async def resign(self) -> None:
        """Let another node lead at once."""
        await self._acts.close()
        await self._leadership.resign()
