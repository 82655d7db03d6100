"""Stragglers: the leader raises an alert about a step that takes much longer than such steps do, and does nothing else
about it. It also lets old counts of durations fade.

May change: alerts of its kind, and counts of durations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from holdfast.config import Config
from holdfast.durations import STEP, sketches
from holdfast.environment import Environment
from holdfast.model import AlertKind, Level, NewAlert
from holdfast.sketch import Sketch
from holdfast.store.answers import Overlong
from holdfast.store.roles import SupervisorStore
from holdfast.supervisor.alerts import reconcile

FADE_S = 60.0
"""How often the counts of durations are looked over for old ones."""
DAY_S = 86_400.0


class Stragglers:
    def __init__(self, store: SupervisorStore, environment: Environment, config: Config) -> None:
        self._store, self._environment, self._config = store, environment, config
        self._faded_at = environment.monotonic()

    async def watch(self, epoch: int, now: float, kinds: Collection[str]) -> int:
        """Raise an alert for each step name that has stragglers, and clear those of names that have none any more.
        `kinds` are those of open alerts. Return how many are new."""
        at, config = self._environment.monotonic(), self._config
        if at - self._faded_at > FADE_S:
            self._faded_at = at
            await self._store.durations.fade_durations(
                epoch,
                attempts_max=config.durations_max,
                keep_s=config.durations_keep_days * DAY_S,
                rows_max=config.durations_rows_max,
            )
        bounds = bounds_of(sketches(await self._store.durations.durations()), config)
        late = (
            await self._store.durations.overlong_steps(list(bounds.items()), config.claim_max)
            if bounds
            else []
        )
        found = judge(late, bounds, now)
        whole = len(late) < config.claim_max
        return await reconcile(self._store, epoch, config, AlertKind.STRAGGLER, found, kinds, whole=whole)


def bound_of(sketch: Sketch, config: Config) -> float | None:
    """Return how long a step may run before it is a straggler; None while too few attempts are known."""
    usual = sketch.quantile(0.99)
    if usual is None or sketch.total < config.straggler_samples:
        return None
    return max(usual * config.straggler_factor, config.straggler_floor_s)


def bounds_of(known: Mapping[str, Sketch], config: Config) -> dict[str, float]:
    """Return by step name how long such steps may run before they are stragglers. `known` has sketches by their own
    names."""
    bounds = ((name.removeprefix(STEP), bound_of(sketch, config)) for name, sketch in known.items())
    return {name: bound for name, bound in bounds if bound is not None}


def judge(late: Iterable[Overlong], bounds: Mapping[str, float], now: float) -> list[NewAlert]:
    """Return one alert for each step name. It names the first straggler in `late` and says how many there are."""
    found: dict[str, NewAlert] = {}
    for step in late:
        key = f"{AlertKind.STRAGGLER}:{step.name}"
        first = found.get(key)
        if first is None:
            message = (
                f"step {step.key} of run {step.run_id} has been running for {now - step.started_at:.0f} s, "
                f"and such steps usually take at most {bounds[step.name]:.3g} s: `holdfast why {step.run_id}` says more"
            )
            found[key] = NewAlert(AlertKind.STRAGGLER, Level.INFO, key, message, step.run_id)
        else:
            found[key] = NewAlert(
                first.kind, first.level, first.key, first.message, first.run_id, first.times + 1
            )
    return list(found.values())
