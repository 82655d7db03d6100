"""The hall: where claims of remote agents wait for steps. Those that ask for the same lanes are one group, and one look
serves the group, so a thousand idle agents cost one read and not a thousand.
The agent that has waited longest is served first.

If there are queues, claims go from queue to queue as those of other agents do. Each group goes round by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.bells import Bells
from holdfast.config import Config
from holdfast.desk.opened import Opened
from holdfast.errors import StoreError
from holdfast.loops import wait_for
from holdfast.model import Lane
from holdfast.store.bell import Bell
from holdfast.store.claims import StepClaim
from holdfast.store.remotes import TakenStep, TwinClaim
from holdfast.store.walk import Turns

log = logging.getLogger("holdfast.http")

CROWD = 50
"""The most steps that one claim gets while others wait for the same lanes."""
CONTENDED_S = 0.02
"""When the hall looks again after a claim passed over a limit because another one had it locked."""
TURNS_MAX = 1000
"""For how many groups the hall remembers where their claims stopped."""


class Wanted(NamedTuple):
    """What an agent can execute, as the hall sees it. Agents with equal values are one group."""

    groups: tuple[tuple[str, frozenset[str]], ...]
    """(name, steps) of each group of its steps."""
    labels: frozenset[str]
    hedged: frozenset[str] = frozenset()
    """Those of its steps whose twins it takes."""

    def lanes(self, steps: frozenset[str], known: Sequence[Lane]) -> list[Lane]:
        return [lane for lane in known if lane.name in steps and self.labels.issuperset(lane.needs)]


class Waiter:
    """A claim that waits."""

    def __init__(self, agent: str, turn: int, wanted: Wanted, free: dict[str, int], suspects: int) -> None:
        self.agent, self.turn, self.wanted, self.free, self.suspects = agent, turn, wanted, free, suspects
        self.served: asyncio.Future[list[TakenStep]] = asyncio.get_running_loop().create_future()
        self.is_overtaken = False
        self.claiming: asyncio.Event | None = None
        """Set when the claim that is under way for it has ended."""


class Hall:
    def __init__(self, hf: Opened) -> None:
        self._hf = hf
        self._waiters: dict[str, Waiter] = {}
        """By agent, in the order in which they came."""
        self._lanes: list[Lane] = []
        self._probing: dict[str, int] = {}
        self._read_at = float("-inf")
        self._rung: asyncio.Event | None = None
        self._bells: Bells | None = None
        self._looking: asyncio.Task[None] | None = None
        self._looks_at = float("-inf")
        """When it looks next, if no bell rings before."""
        self._due_at = float("inf")
        self._turns: dict[tuple[Wanted, str], Turns] = {}
        """Where the claims of each group have stopped, for each group of its steps."""
        self.is_walking = False
        """True if there are queues: then claims go from queue to queue."""

    @property
    def _config(self) -> Config:
        return self._hf.config

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    async def claim(self, waiter: Waiter) -> list[TakenStep]:
        """Claim what there is now. What the agent asked before is overtaken."""
        before = self._waiters.pop(waiter.agent, None)
        if before is not None and not before.served.done():
            before.is_overtaken = True
            before.served.set_result([])
        return await self._claim(waiter, len(self._waiters) > 0)

    async def wait(self, waiter: Waiter, wait_s: float, left: asyncio.Future[None]) -> list[TakenStep]:
        """Wait for the first steps. `left` is done when nobody waits for the answer any more."""
        self._waiters[waiter.agent] = waiter
        self._begin()
        if self._due_at < self._looks_at and self._rung is not None:
            self._rung.set()  # its look is planned for later than the new waiter is due
        try:
            waited: list[asyncio.Future[Any]] = [waiter.served, left]
            await asyncio.wait(waited, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self._waiters.get(waiter.agent) is waiter:
                del self._waiters[waiter.agent]
        if waiter.claiming is not None:
            await waiter.claiming.wait()
        return waiter.served.result() if waiter.served.done() else []

    def drop(self, agent: str) -> None:
        """Let an agent wait no longer: its connection is gone."""
        waiter = self._waiters.pop(agent, None)
        if waiter is not None and not waiter.served.done():
            waiter.served.set_result([])

    def _begin(self) -> None:
        bells = self._hf.caller.bells
        if (
            self._rung is None or self._bells is not bells
        ):  # a node that lost its lease has a successor with its own
            self._bells, self._rung = bells, bells.follow(Bell.STEPS)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_on(), name="holdfast-hall")

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    async def _look_on(self) -> None:
        """Look whenever a bell says that there may be steps, and now and then, until nobody waits."""
        assert self._rung is not None
        environment = self._hf.environment
        while self._waiters:
            due_s = min(self._config.poll_s, max(0.001, self._due_at - environment.monotonic()))
            self._looks_at = environment.monotonic() + due_s
            await wait_for(self._rung, due_s)
            try:
                await self._look()
            except StoreError as error:
                log.warning("the hall cannot look for steps: %s", error)
                await environment.sleep(0.2 + environment.random.random() * 0.3)

    async def _look(self) -> None:
        """Serve the groups: in each, the longest waiter first, for as long as there is something."""
        groups: dict[Wanted, list[Waiter]] = {}
        self._due_at = float("inf")
        for waiter in self._waiters.values():
            groups.setdefault(waiter.wanted, []).append(waiter)
        for wanted, waiters in groups.items():
            for number, waiter in enumerate(waiters):
                if self._waiters.get(waiter.agent) is not waiter:
                    continue
                waiter.claiming = asyncio.Event()
                try:
                    taken = await self._claim(waiter, number + 1 < len(waiters))
                    if (taken or waiter.is_overtaken) and not waiter.served.done():
                        waiter.served.set_result(taken)
                        self._waiters.pop(waiter.agent, None)
                finally:
                    waiter.claiming.set()
                if not taken:
                    await self._note_due(wanted)
                    break

    async def _note_due(self, wanted: Wanted) -> None:
        """Note when the first step that backs off becomes ready. No bell rings for it."""
        lanes = [lane.id for _, steps in wanted.groups for lane in wanted.lanes(steps, self._lanes)]
        left_s = await self._hf.store.agents.next_ready(lanes) if lanes else None
        if left_s is not None:
            self._look_in(left_s)

    def _look_in(self, left_s: float) -> None:
        if left_s < self._config.poll_s:
            self._due_at = min(self._due_at, self._hf.environment.monotonic() + left_s)

    async def _claim(self, waiter: Waiter, is_crowded: bool) -> list[TakenStep]:
        await self._learn()
        claims: list[StepClaim] = []
        twins: list[TwinClaim] = []
        for name, steps in waiter.wanted.groups:
            free = min(waiter.free.get(name, 0), CROWD if is_crowded else self._config.claim_max)
            lanes = waiter.wanted.lanes(steps, self._lanes) if free > 0 else []
            turns = self._turns_of(waiter.wanted, name)
            behind = {one: [lane.id for lane in lanes if lane.depends == one] for one in self._probing}
            claims += [
                StepClaim(waiter.agent, those, free, probes_of=breaker, turns=turns and turns.beside())
                for breaker, those in behind.items()
                if those
            ]
            if hedged := [lane.id for lane in lanes if lane.name in waiter.wanted.hedged]:
                twins.append(TwinClaim(hedged, free))
            if lanes:
                claims.append(
                    StepClaim(
                        waiter.agent,
                        [lane.id for lane in lanes],
                        free,
                        self._config.suspect_losses,
                        waiter.suspects,
                        turns=turns and turns.beside(),
                    )
                )
        if not claims:
            return []
        taken = await self._hf.store.remotes.claim(waiter.agent, waiter.turn, claims, twins)
        waiter.is_overtaken = taken is None
        if not taken and self.is_walking:
            await self._note_turns([claim.turns for claim in claims if claim.turns is not None])
        return taken or []

    def _turns_of(self, wanted: Wanted, group: str) -> Turns | None:
        if not self.is_walking:
            return None
        found = self._turns.get((wanted, group))
        if found is None:
            if len(self._turns) >= TURNS_MAX:
                self._turns.clear()
            found = self._turns[wanted, group] = Turns()
        return found

    async def _note_turns(self, seen: Sequence[Turns]) -> None:
        """Note when there may be something to claim again that claims have passed over. No bell rings for it."""
        if any(turns.is_contended for turns in seen):
            self._look_in(CONTENDED_S)
        rates = [turns.again_at for turns in seen if turns.again_at is not None]
        if rates:
            self._look_in(max(0.001, min(rates) - await self._hf.store.now()))

    async def _learn(self) -> None:
        """Read lanes and breakers again, if the last time was a while ago."""
        now = self._hf.environment.monotonic()
        if now > self._read_at + self._config.poll_s / 2:
            self._read_at = now
            self._lanes = await self._hf.store.agents.lanes()
            self.is_walking = self.is_walking or await self._hf.store.agents.any_queue()
            gates = await self._hf.store.gates.gates(self._config.breaker_window_s)
            self._probing = {
                row.name: row.allowance
                for row in gates.breakers
                if row.state == "probing" and row.allowance > 0 and not row.forced
            }
