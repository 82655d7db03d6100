"""The leader prunes old ended runs in small batches, oldest first, for a bounded time in each pass. It also removes old
rows that belong to no run.

For each ended state a cursor walks from the oldest run to the newest one that is old enough. It passes over runs that
must stay, because their children are still in the store or because an open run still needs them. At the end of a walk,
pruning rests for `prune_every_s`.
"""

from __future__ import annotations

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import RunState
from holdfast.store.retention import Retention

DAY_S = 86_400.0
RUNS_MAX = 100
"""How many ended runs one batch looks at."""
BEGINNING = (0.0, "")


def keeps_s(config: Config) -> dict[str, float]:
    """Return how long runs are kept, by the state they ended in. Runs of a state that is missing are kept for ever."""
    found = {}
    for state in sorted(RUN_ENDED):
        days = config.keep_days
        if state != RunState.SUCCEEDED and config.keep_failed_days is not None:
            days = config.keep_failed_days
        if days is not None:
            found[str(state)] = days * DAY_S
    return found


class RunPruner:
    def __init__(self, store: Retention, environment: Environment, config: Config) -> None:
        self._store, self._environment, self._config = store, environment, config
        self._keeps_s = keeps_s(config)
        self._walks: list[tuple[str, tuple[float, str]]] = []
        self._rest_until = 0.0

    @property
    def walking(self) -> bool:
        """True if a walk is under way, so that there is more to do at the next pass."""
        return bool(self._walks)

    async def prune(self, epoch: int, now: float) -> int:
        """Remove batches of old runs for as long as one pass may take. Return how many runs were removed."""
        begun, removed = self._environment.monotonic(), 0
        if not self._keeps_s or begun < self._rest_until:
            return 0
        if not self._walks:
            self._walks = [(state, BEGINNING) for state in self._keeps_s]
        while self._walks:
            state, after = self._walks.pop()
            done = await self._store.prune(
                epoch,
                actor="supervisor",
                state=state,
                before=now - self._keeps_s[state],
                after=after,
                runs_max=RUNS_MAX,
                rows_max=self._config.prune_rows_max,
                failed_before=now - self._keeps_s.get(RunState.FAILED, 0.0),
                kept=sorted(RUN_ENDED - self._keeps_s.keys()),
            )
            removed += done.runs
            if done.after is not None:
                self._walks.append((state, done.after))
            if self._environment.monotonic() - begun > self._config.prune_share_s:
                return removed
        await self._store.prune_alerts(epoch, now - min(self._keeps_s.values()), self._config.claim_max)
        self._rest_until = self._environment.monotonic() + self._config.prune_every_s
        return removed


class RowPruner:
    """Removes old rows that belong to no run: nodes that left, journal entries about no run, the audit, acts on many
    runs that ended long ago, workflows and schedules that no code has any more, and what became of times of schedules, occasions, and events."""

    def __init__(self, store: Retention, config: Config) -> None:
        self._store, self._config = store, config
        self._rest_until = 0.0

    async def forget(self, epoch: int, at: float, now: float) -> None:
        """Remove such rows. `at` is a time of the monotonic clock, `now` one of the store's clock."""
        if at <= self._rest_until:
            return
        config, most = self._config, self._config.prune_rows_max
        removed = (
            await self._store.forget_nodes(epoch, now - config.keep_nodes_days * DAY_S, most),
            await self._store.forget_journal(epoch, now - config.keep_journal_days * DAY_S, most),
            await self._store.forget_audit(epoch, now - config.keep_audit_days * DAY_S, most),
            await self._forget_acts(epoch, now),
            await self._store.forget_workflows(epoch, now - config.keep_workflows_days * DAY_S, most),
            await self._store.forget_fires(epoch, now - config.keep_fires_days * DAY_S, most),
            await self._store.forget_backfills(epoch, now - config.keep_fires_days * DAY_S, most),
            await self._store.forget_occasions(epoch, now - config.keep_events_days * DAY_S, most),
            await self._store.forget_events(epoch, now - config.keep_events_days * DAY_S, most),
            await self._store.forget_sets(epoch, now - config.keep_workflows_days * DAY_S, most),
        )
        if max(removed) < most:  # else there may be more, which the next call removes
            self._rest_until = at + config.prune_every_s

    async def _forget_acts(self, epoch: int, now: float) -> int:
        """Remove old acts, one after the other, and return how many rows."""
        config, most, removed = self._config, self._config.prune_rows_max, 0
        ended, planned = now - config.keep_acts_days * DAY_S, now - config.plan_s
        while removed < most:
            rows = await self._store.forget_acts(epoch, ended, planned, most - removed)
            if not rows:
                break
            removed += rows
        return removed
