"""Claims for an agent: steps of the lanes it can serve, probes of breakers that are probed, and twins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from holdfast.agent.assignment import Assignment
from holdfast.agent.gatekeeper import Gatekeeper
from holdfast.agent.host import AgentHost, StepRef
from holdfast.agent.places import Places
from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.store.answers import ClaimedStep
from holdfast.store.roles import AgentStore
from holdfast.workflow.step import Step

SUSPECT_LOOK_S = 0.02
"""How often an agent looks whether the outcome of a suspect is written. It is as long as a few commits take."""


class Served(NamedTuple):
    """The lanes that an agent can serve, either those of `async def` steps or those of `def` steps."""

    depends: dict[int, str]
    """The dependency of each lane's steps."""
    hedged: set[int]
    """The lanes whose steps may have twins."""


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
        self._suspects_ended: set[StepRef] = set()
        """Suspects that have ended here and whose outcomes may not be written yet."""
        self._suspects_look_at = 0.0
        self.closing = False

    def can_serve(self, name: str, needs: tuple[str, ...]) -> bool:
        """True if this agent has the step's code, and all labels that the step needs."""
        step = self._steps.get(name)
        return step is not None and not step.elsewhere and self._labels.issuperset(needs)

    async def learn_lanes(self) -> None:
        """Find the lanes that this agent can serve, separately for `async def` steps and for `def` steps."""
        served = {True: Served({}, set()), False: Served({}, set())}
        for lane in await self._store.agents.lanes():
            if self.can_serve(lane.name, lane.needs):
                step = self._steps[lane.name]
                served[step.is_async].depends[lane.id] = lane.depends
                if step.hedge:
                    served[step.is_async].hedged.add(lane.id)
        self._served = served

    async def claim(self, assignments: Iterable[Assignment]) -> int:
        """Claim as many steps as there are free places, and return how many. Probes and twins come first: twins belong
        to steps that are late already."""
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
        """Claim as many probes as the current waves allow."""
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
        """Return when the next step that backs off, and that this agent can execute, becomes ready."""
        lanes = [*self._served[True].depends, *self._served[False].depends]
        return await self._store.agents.next_ready(lanes, self._runs()) if lanes else None

    def _runs(self) -> list[str] | None:
        return None if self._only is None else sorted(self._only)

    def _open_lanes(self, is_async: bool) -> list[int]:
        """Return the lanes to claim from. Those with a dependency that this agent has paused by itself are left out.
        The store knows all other gates."""
        paused = self._gates.paused
        return [lane for lane, depends in self._served[is_async].depends.items() if depends not in paused]

    # --- suspects -----------------------------------------------------------------------------------------------------

    def suspect_ended(self, ref: StepRef) -> None:
        """Note that a suspect has ended. The next one may begin when the outcome of this one is written."""
        self._suspects_ended.add(ref)
        self._host.claim_after(SUSPECT_LOOK_S)

    def _has_suspect(self, assignments: Iterable[Assignment]) -> bool:
        """True if this agent must not claim another suspect now, because it may still die from the last one.

        An agent begins one suspect at a time. One of them may kill agents, and the others only ran beside it. If they
        ran together again, each of them would have one more loss.
        """
        since = self._environment.monotonic() - self._config.suspect_s
        if any(assignment.began_at > since for assignment in assignments):
            return True
        if self._suspects_ended:
            # If this agent died before the outcome of a suspect is written, the suspect would have one more loss.
            self._suspects_ended &= self._host.known_steps()
            now = self._environment.monotonic()
            if self._suspects_ended and now >= self._suspects_look_at:
                # Claim again later, but only once within this time. Each claim comes here twice, for `async def` and
                # for `def` steps. If both asked for another claim, there would be more and more of them.
                self._suspects_look_at = now + SUSPECT_LOOK_S / 2
                self._host.claim_after(SUSPECT_LOOK_S)
        return bool(self._suspects_ended)
