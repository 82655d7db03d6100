"""Hedged steps that take too long get a twin on another agent.

May change: twins. Must never: end a step. The leader makes a twin if a step has been running for longer than a bound
that was learned from earlier attempts, if another live agent offers the step, and if the step's allowance has room. It
also removes twins that are no longer wanted.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.config import Config
from holdfast.durations import sketches, step_name
from holdfast.environment import Environment
from holdfast.model import Lane, NodeRow
from holdfast.namespaces import ALL, bare
from holdfast.sketch import Sketch
from holdfast.store.answers import Overlong
from holdfast.store.roles import SupervisorStore

BURST = 10
"""An allowance can save up this many twins of one step, even if the step earned fewer lately."""
BURST_S = 10.0
"""It can also save up as many as the step earned within this time, if those are more."""
NODES_MAX = 1000
"""How many live nodes are asked what they offer."""
IDLE_S = 5.0
"""While no step is hedged, how often to look whether one is."""


class Offer(NamedTuple):
    """A live agent that offers a hedged step."""

    agent: str
    labels: frozenset[str]


class Allowance:
    """How many twins of one step may be made: a share of its attempts, which grows as attempts are counted."""

    def __init__(self) -> None:
        self.room = 0.0
        self._counted: float | None = None
        self._gains: deque[tuple[float, float]] = deque()

    def gain(self, counted: float, share: float, at: float) -> None:
        """Add room for the attempts since the last call. `counted` is the count of attempts by now, of which twins may
        be the share `share`. A smaller count than before is no loss of room: old counts are halved from time to
        time."""
        if self._counted is None:  # a new leader does not know how many twins were made for these attempts
            self._counted, self.room = counted, min(counted * share, BURST)
            return
        gained = max(0.0, counted - self._counted) * share
        self._counted = counted
        self._gains.append((at, gained))
        while self._gains[0][0] < at - BURST_S:
            self._gains.popleft()
        self.room = min(self.room + gained, max(BURST, sum(one for _, one in self._gains)))

    @property
    def patience(self) -> float:
        """How many times its bound a step must have run before it gets a twin. When room is scarce, it is kept for
        steps that are far too late: in a busy moment many steps are a little late, and would use it up."""
        return 1.0 if self.room >= BURST / 2 else 2.0 if self.room >= 2 else 4.0

    def spend(self) -> bool:
        """Take room for one twin; False if there is none."""
        if self.room < 1:
            return False
        self.room -= 1
        return True


class HedgeKeeper:
    def __init__(self, store: SupervisorStore, environment: Environment, config: Config) -> None:
        self._store, self._environment, self._config = store, environment, config
        self._allowances: dict[str, Allowance] = {}
        self._bounds: dict[str, float] = {}
        self._offers: dict[str, list[Offer]] = {}
        self._needs: dict[int, tuple[str, ...]] = {}
        self._learn_at = self._look_at = 0.0

    async def hedge(self, epoch: int, *, twins: bool = True) -> int:
        """Remove twins that are no longer wanted, if there are `twins`, and make new ones. Return the number of both
        together."""
        at = self._environment.monotonic()
        if at >= self._learn_at:
            await self._learn(at)
        swept = await self._store.twins.sweep_twins(epoch, self._config.claim_max) if twins else 0
        if not self._bounds or at < self._look_at:
            return swept
        # Steps that take an hour need not be looked at five times a second.
        self._look_at = at + min(1.0, min(self._bounds.values()) / 10)
        overlong = await self._store.durations.overlong_steps(
            list(self._bounds.items()), self._config.claim_max
        )
        if not overlong:
            return swept
        late = lateness(overlong, self._bounds, await self._store.now())
        chosen = choose(late, self._offers, self._needs, self._allowances)
        if not chosen:
            return swept
        made = await self._store.twins.make_twins(
            epoch, [(step.run_id, step.n, step.fence) for step in chosen]
        )
        return swept + len(made)

    async def _learn(self, at: float) -> None:
        """Learn which agents offer which hedged steps, and when each of these steps takes too long."""
        lanes = await self._store.agents.lanes()
        self._offers = offers_of(await self._store.nodes.living(NODES_MAX), await self._store.now(), lanes)
        self._learn_at = at + (self._config.learn_s if self._offers else IDLE_S)
        self._bounds = {}
        if not self._offers:
            return
        self._needs = {lane.id: lane.needs for lane in lanes}
        known = sketches(await self._store.durations.durations([step_name(name) for name in self._offers]))
        for name in self._offers:
            sketch = known.get(step_name(name))
            if sketch is None:
                continue
            self._allowances.setdefault(name, Allowance()).gain(sketch.total, self._config.hedge_share, at)
            bound = bound_of(sketch, self._config)
            if bound is not None:
                self._bounds[name] = bound


def offers_of(nodes: Iterable[NodeRow], now: float, lanes: Sequence[Lane] = ()) -> dict[str, list[Offer]]:
    """Return the live agents by the hedged steps they offer. A draining agent is left out: it claims no twins. An agent
    for all namespaces offers a step wherever there is a lane of it."""
    found: dict[str, list[Offer]] = {}
    for node in nodes:
        if node.retired_at is not None or node.lease_until < now or "agent" not in node.roles:
            continue
        offers = json.loads(node.offers)
        if offers.get("pulse", {}).get("draining"):
            continue
        hedged = offers.get("hedged", ())
        if ALL in offers.get("namespaces", ()):
            hedged = {lane.name for lane in lanes if bare(lane.name) in hedged}
        for name in sorted(hedged):
            found.setdefault(name, []).append(Offer(node.id, frozenset(offers.get("labels", ()))))
    return found


def bound_of(sketch: Sketch, config: Config) -> float | None:
    """Return how long a step may run before it gets a twin; None while too few attempts are known."""
    usual = sketch.quantile(0.95)
    if usual is None or sketch.total < config.hedge_samples:
        return None
    return max(usual * config.hedge_factor, config.hedge_floor_s)


def lateness(
    overlong: Iterable[Overlong], bounds: Mapping[str, float], now: float
) -> list[tuple[float, Overlong]]:
    """Return each step with how many times its bound it has been running."""
    return [((now - step.started_at) / bounds[step.name], step) for step in overlong]


def choose(
    overlong: Sequence[tuple[float, Overlong]],
    offers: Mapping[str, Sequence[Offer]],
    needs: Mapping[int, tuple[str, ...]],
    allowances: Mapping[str, Allowance],
) -> list[Overlong]:
    """Return the steps that get a twin, those that are most late first. A step gets one if it never had one, if another
    agent can execute it, and if its allowance has room. Takes that room."""
    return [
        step
        for late, step in sorted(overlong, key=lambda one: one[0], reverse=True)
        if not step.twinned
        and any(
            offer.agent != step.agent and offer.labels.issuperset(needs.get(step.lane, ()))
            for offer in offers.get(step.name, ())
        )
        and step.name in allowances
        and late >= allowances[step.name].patience
        and allowances[step.name].spend()
    ]
