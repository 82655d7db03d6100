"""What an agent takes up: steps of the lanes it can serve, probes of breakers that are tried, and twins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from holdfast.agent.assignment import Assignment
from holdfast.agent.gatekeeper import Gatekeeper
from holdfast.agent.host import AgentHost, Place
from holdfast.agent.places import Places
from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.store.answers import ClaimedStep
from holdfast.store.roles import AgentStore
from holdfast.workflow.step import Step

SUSPECT_LOOK_S = 0.02
"""How often to look whether the outcome of a suspect is written: some commits."""


class Served(NamedTuple):
    """The lanes that an agent can serve, of `async def` steps or of others."""

    depends: dict[int, str]
    """What the steps of each depend on."""
    hedged: set[int]
    """Those whose steps may have twins."""


class Claimer:
    def __init__(
        self,
        store: AgentStore,
        host: AgentHost,
        node: str,
        begin: Callable[[ClaimedStep, tuple[str, int] | None, bool], None],
        *,
        steps: Mapping[str, Step[Any, Any]],
        labels: frozenset[str],
        places: Places,
        gates: Gatekeeper,
        environment: Environment,
        config: Config,
        only: set[str] | None,
    ) -> None:
        self._store, self._host, self._node, self._begin = store, host, node, begin
        self._steps, self._labels, self._only = steps, labels, only
        self._places, self._gates = places, gates
        self._environment, self._config = environment, config
        self._served: dict[bool, Served] = {True: Served({}, set()), False: Served({}, set())}
        self._suspects_ended: set[Place] = set()
        """Suspects that have ended here, and whose outcomes may not be written yet."""
        self._suspects_look_at = 0.0
        self.closing = False

    def can_serve(self, name: str, needs: tuple[str, ...]) -> bool:
        """Whether this agent has the step, and the labels that it needs."""
        return name in self._steps and self._labels.issuperset(needs)

    async def learn_lanes(self) -> None:
        """Which lanes this agent can serve, those of `async def` steps and those of threads apart."""
        served = {True: Served({}, set()), False: Served({}, set())}
        for lane in await self._store.agents.lanes():
            if self.can_serve(lane.name, lane.needs):
                step = self._steps[lane.name]
                served[step.is_async].depends[lane.id] = lane.depends
                if step.hedge:
                    served[step.is_async].hedged.add(lane.id)
        self._served = served

    async def claim(self, assignments: Iterable[Assignment]) -> int:
        """Claim as many steps as there are free places; twins first, because they are late already."""
        claimed = 0
        for is_async in (True, False):
            if self._gates.probing:
                claimed += await self._claim_probes(is_async)
            if self._served[is_async].hedged and self._only is None:
                claimed += await self._claim_twins(is_async)
            lanes, free = self._open_lanes(is_async), self._places.free(is_async)
            if free <= 0 or not lanes or self.closing:
                continue
            found = await self._store.agents.claim_steps(
                self._node,
                lanes,
                free,
                suspect_losses=self._config.suspect_losses,
                suspects=0 if self._has_suspect(assignments) else 1,
                runs=self._runs(),
            )
            claimed += self._take_up(found, free)
        return claimed

    async def _claim_probes(self, is_async: bool) -> int:
        """Take up what a wave of probes allows."""
        claimed = 0
        for name in list(self._gates.probing):
            lanes = [lane for lane, depends in self._served[is_async].depends.items() if depends == name]
            free = self._places.free(is_async)
            if free <= 0 or not lanes or self.closing:
                continue
            found = await self._store.gates.claim_probes(self._node, name, lanes, free, self._runs())
            claimed += self._take_up(found.steps, free, (name, found.round))
        return claimed

    def _take_up(self, found: list[ClaimedStep], free: int, probe: tuple[str, int] | None = None) -> int:
        for item in found:
            self._host.note_claim(item.run_id, item.n)
            self._begin(item, probe, False)
        if len(found) == free:
            self._places.is_short = True
        return len(found)

    async def _claim_twins(self, is_async: bool) -> int:
        free, hedged = self._places.free(is_async), self._served[is_async].hedged
        lanes = [lane for lane in self._open_lanes(is_async) if lane in hedged]
        if free <= 0 or not lanes or self.closing:
            return 0
        found = await self._store.twins.claim_twins(self._node, lanes, free)
        for item in found:
            self._begin(item, None, True)
        return len(found)

    async def next_ready(self) -> float | None:
        """When the earliest step that backs off and that this agent can do becomes ready."""
        lanes = [*self._served[True].depends, *self._served[False].depends]
        return await self._store.agents.next_ready(lanes, self._runs()) if lanes else None

    def _runs(self) -> list[str] | None:
        return None if self._only is None else sorted(self._only)

    def _open_lanes(self, is_async: bool) -> list[int]:
        """The lanes to claim from: not those this agent has stopped by itself. What else is shut the store knows."""
        paused = self._gates.paused
        return [lane for lane, depends in self._served[is_async].depends.items() if depends not in paused]

    # --- suspects -----------------------------------------------------------------------------------------------------

    def suspect_ended(self, place: Place) -> None:
        """The next one may begin, once this one's outcome is written."""
        self._suspects_ended.add(place)
        self._host.claim_after(SUSPECT_LOOK_S)

    def _has_suspect(self, assignments: Iterable[Assignment]) -> bool:
        """Is there a suspect that was begun so lately that nobody knows yet whether it kills this agent? One at a time: the step that
        kills agents must not take those with it that were beside it before. The others stay where they are until their turn."""
        since = self._environment.monotonic() - self._config.suspect_s
        if any(assignment.began_at > since for assignment in assignments):
            return True
        if self._suspects_ended:
            # Until its outcome is written, its agent's death would still be its loss.
            self._suspects_ended &= self._host.known_steps()
            now = self._environment.monotonic()
            if self._suspects_ended and now >= self._suspects_look_at:
                # Once for all who ask until then: every bell would be two questions, and each of them a bell.
                self._suspects_look_at = now + SUSPECT_LOOK_S / 2
                self._host.claim_after(SUSPECT_LOOK_S)
        return bool(self._suspects_ended)
