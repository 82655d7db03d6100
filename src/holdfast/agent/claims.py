"""Claims for an agent: steps of the lanes it can serve, probes of breakers that are probed, and twins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import asdict

from holdfast.access.signed_texts import KEY_BYTES
from holdfast.agent.assignment import Assignment
from holdfast.agent.fairness import Fairness
from holdfast.agent.gatekeeper import Gatekeeper
from holdfast.agent.host import AgentHost, StepRef
from holdfast.agent.places import Places
from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.model import REQUEST_PREFIX
from holdfast.namespaces import namespace_of
from holdfast.store.answers import ClaimedRequest, ClaimedStep
from holdfast.store.roles import AgentStore
from holdfast.store.walk import Turns
from holdfast.workflow.step import Step

PEEK_S = 0.05
"""How often an agent without a free place looks whether it is the turn of others that wait."""
CONTENDED_S = 0.02
"""How soon an agent claims again if it passed over a limit that another claim had locked. It is as long as a claim
takes."""
AGED_OF = 16
"""One place in this many is for steps that have waited long, whatever their priority."""
SUSPECT_LOOK_S = 0.02
"""How often an agent looks whether the outcome of a suspect is written. It is as long as a few commits take."""


class ServedLanes(NamedTuple):
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
        fairness: Fairness,
    ) -> None:
        self._store, self._host, self._node, self._begin = store, host, node, begin
        self._steps, self._labels, self._only = steps, labels, only
        self._places, self._gates = places, gates
        self._environment, self._config = environment, config
        self._fairness = fairness
        self._peek_at = 0.0
        self._owed = {True: 0.0, False: 0.0}
        """How many places are owed to steps that have waited long."""
        self._served: dict[bool, ServedLanes] = {True: ServedLanes({}, set()), False: ServedLanes({}, set())}
        self._calls_back = False
        """True if this agent serves a step with a callback."""
        self._suspects_ended: set[StepRef] = set()
        """Suspects that have ended here and whose outcomes may not be written yet."""
        self._suspects_look_at = 0.0
        self.closing = False

    def can_serve(self, name: str, needs: tuple[str, ...]) -> bool:
        """True if this agent has the step's code, and all labels that the step needs."""
        # Every step that is issued comes here, so nothing is called that need not be.
        try:
            step = self._steps[name]
        except KeyError:
            return False
        return not step.elsewhere and (not needs or self._labels.issuperset(needs))

    async def learn_lanes(self) -> None:
        """Find the lanes that this agent can serve, separately for `async def` steps and for `def` steps."""
        served = {True: ServedLanes({}, set()), False: ServedLanes({}, set())}
        namespaces: set[str] = set()
        calls_back = False
        for lane in await self._store.agents.lanes():
            if self.can_serve(lane.name, lane.needs):
                step = self._steps[lane.name]
                served[step.is_async].depends[lane.id] = lane.depends
                if step.hedge:
                    served[step.is_async].hedged.add(lane.id)
                namespaces.add(namespace_of(lane.name))
                calls_back = calls_back or step.callback
        self._served, self._calls_back = served, calls_back
        # The lanes of one namespace must not hide those of another one.
        self._fairness.is_walking = len(namespaces) > 1 or await self._store.agents.any_queue()

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
            if not lanes or self.closing:
                continue
            if free <= 0:
                # This node's scheduler may have taken the places meanwhile. Others may wait for the next one.
                self._places.is_short = True
                await self._peek(is_async, lanes)
                continue
            if aged := min(free, int(self._owed[is_async])):
                claimed += await self._claim_aged(is_async, lanes, aged, assignments)
                free = self._places.free(is_async)
                if free <= 0:
                    continue
            turns = self._fairness.turns[is_async] if self._is_walking else None
            found = await self._claim_steps(lanes, free, turns, assignments)
            if self._calls_back:
                await self._address(found)
            claimed += self._take_up(found, free)
            if len(found) == free:
                self._owed[is_async] = min(float(free), self._owed[is_async] + free / AGED_OF)
            else:
                self._owed[is_async] = 0.0
            if turns is not None:
                self._note_turns(turns)
        return claimed

    @property
    def _is_walking(self) -> bool:
        """True if claims go from queue to queue. They do so as soon as there is a queue, and if this agent serves several
        namespaces."""
        return self._fairness.is_walking or self._fairness.queues.exist

    async def _claim_steps(
        self, lanes: list[int], free: int, turns: Turns | None, assignments: Iterable[Assignment]
    ) -> list[ClaimedStep]:
        return await self._store.agents.claim_steps(
            self._node,
            lanes,
            free,
            suspect_losses=self._config.suspect_losses,
            suspects=0 if self._has_suspect(assignments) else 1,
            runs=self._runs(),
            turns=turns,
        )

    async def _claim_aged(
        self, is_async: bool, lanes: list[int], places: int, assignments: Iterable[Assignment]
    ) -> int:
        """Claim steps that have waited long, below the highest priority: all that is above them has the other places."""
        self._owed[is_async] -= places
        turns = self._fairness.turns[is_async]
        with turns.for_the_aged(self._config.age_s):
            found = await self._claim_steps(lanes, places, turns, assignments)
        if self._calls_back:
            await self._address(found)
        return self._take_up(found, places)

    def _note_turns(self, turns: Turns) -> None:
        """Note who waits, for those who begin without the store, and when there may be something to claim again."""
        for queue, (number, weight) in turns.took.items():
            self._fairness.began(queue, weight, number)
        self._fairness.seen(turns.waiting)
        if turns.is_contended:
            self._host.claim_after(CONTENDED_S)
        if turns.again_at is not None:
            self._host.claim_at(turns.again_at)

    async def _peek(self, is_async: bool, lanes: list[int]) -> None:
        """Look who waits while there is no free place: a node whose own runs keep its agent busy would never find out."""
        now = self._environment.monotonic()
        if not self._is_walking or self._runs() is not None or now < self._peek_at:
            return
        self._peek_at = now + PEEK_S
        waiting = await self._store.agents.waiting_queues(lanes)
        self._fairness.seen(waiting)
        if waiting:
            self._places.is_short = True

    async def _claim_probes(self, is_async: bool) -> int:
        """Claim as many probes as the current waves allow."""
        claimed = 0
        for name in list(self._gates.probing):
            lanes = [lane for lane, depends in self._served[is_async].depends.items() if depends == name]
            free = self._places.free(is_async)
            if free <= 0 or not lanes or self.closing:
                continue
            turns = self._fairness.turns[is_async] if self._is_walking else None
            found = await self._store.gates.claim_probes(self._node, name, lanes, free, self._runs(), turns)
            if self._calls_back:
                await self._address(found.steps)
            claimed += self._take_up(found.steps, free, (name, found.round))
        return claimed

    def _take_up(self, found: list[ClaimedStep], free: int, probe: tuple[str, int] | None = None) -> int:
        for item in found:
            self._host.note_claim(item.run_id, item.n)
            self._begin(item, probe, False)
        if len(found) == free:
            self._places.is_short = True
        return len(found)

    async def _address(self, found: list[ClaimedStep]) -> None:
        """Find out where other systems post the results for those of these steps that are requests. If that fails, nothing of
        the claim has begun, as if its answer had been lost."""
        for place, item in enumerate(found):
            if item.key.startswith(REQUEST_PREFIX) and type(item) is ClaimedStep:
                secret = self._environment.secret(KEY_BYTES)
                url = await self._store.callbacks.address(item.run_id, item.n, item.issued_at, secret)
                found[place] = ClaimedRequest(**asdict(item), callback=url)

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
        """Return in how many seconds the next step that backs off, and that this agent can execute, becomes ready."""
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
