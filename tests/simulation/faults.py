"""What goes wrong. Each seed picks a few kinds of fault and how often each comes. After `heal` nothing goes wrong any
more.

Faults between a process and the store are decided here, call by call. Those that come by themselves (a kill, a pause, a
clock that is corrected) are made by the simulation, from the same `Swarm`.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from holdfast.agent.loops import AgentLoops
from holdfast.errors import StoreUnreachable
from holdfast.store.bell import Bell
from holdfast.testing.world import Faults, Process, WriteFate

if TYPE_CHECKING:
    from tests.simulation.invariants import Gates
    from tests.simulation.simulation import Simulation

KINDS = {
    "late": (0.05, 0.5),
    "lost": (0.01, 0.15),
    "unanswered": (0.01, 0.15),
    "dies before": (0.005, 0.05),
    "dies after": (0.005, 0.05),
    "bells lost": (0.1, 1.0),
    "bells late": (0.1, 0.6),
    "bells doubled": (0.1, 0.6),
    "doubled": (0.05, 0.4),
    "kill": (0.2, 1.0),
    "vanish": (0.2, 1.0),
    "pause": (0.2, 1.0),
    "pause the leader": (0.2, 1.0),
    "cut off": (0.2, 1.0),
    "outage": (0.2, 1.0),
    "full": (0.2, 1.0),
    "clock": (0.2, 1.0),
    "skew": (0.2, 1.0),
    "drain": (0.2, 1.0),
    "cancel": (0.2, 1.0),
    "hold": (0.2, 1.0),
    "retry now": (0.2, 1.0),
}
"""Kinds of fault: for each, a probability per call or a number per two seconds, from rare to often."""
DEATHS_MAX = 6
"""At most this many processes die, so that a seed is not only restarts."""


class Swarm:
    """The faults of this seed, and how often each comes."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.rates: dict[str, float] = {}
        if dice.random() < 0.95:
            for kind in dice.sample(sorted(KINDS), dice.randint(1, 7)):
                low, high = KINDS[kind]
                self.rates[kind] = low + (high - low) * dice.random() ** 2

    def __getitem__(self, kind: str) -> float:
        return self.rates.get(kind, 0.0)

    def strikes(self, kind: str) -> bool:
        rate = self.rates.get(kind)
        return rate is not None and self.dice.random() < rate


class Seams(Faults):
    """Applies the swarm's faults between processes and the store."""

    def __init__(self, simulation: Simulation, swarm: Swarm) -> None:
        self._simulation, self._swarm = simulation, swarm
        self.healed = False
        self.outage = False
        self.full = False
        self.cut_off: set[str] = set()
        self.deaths = 0
        self._dice = swarm.dice
        self._late, self._lost = swarm["late"], swarm["lost"]
        self._fates = [
            (swarm["lost"] / 2, WriteFate.LOST),
            (swarm["unanswered"], WriteFate.UNANSWERED),
            (swarm["dies before"], WriteFate.DIES_BEFORE),
            (swarm["dies after"], WriteFate.DIES_AFTER),
        ]
        self._fates = [(rate, fate) for rate, fate in self._fates if rate]
        self._any = bool(self._fates)
        self._gates_read: dict[str, Gates] = {}

    async def reach(self, process: Process, verb: str, writes: bool) -> None:
        if self._late and not self.healed and self._dice.random() < self._late:
            self._simulation.count("late")
            await process.environment.sleep(self._late_s())
        if self.is_cut_off(process) or (not self.healed and self._lost and self._dice.random() < self._lost):
            self._simulation.count("lost")
            raise StoreUnreachable("the store is away")
        if verb == "gates" and self._asks_for_its_agent():
            self._gates_read[process.name] = self._simulation.checker.gates()

    def _asks_for_its_agent(self) -> bool:
        """True if the agent's own loop asks. The leader reads the same, and its agent does not get that answer."""
        task = asyncio.current_task()
        return (
            task is not None
            and getattr(task.get_coro(), "cr_code", None) is AgentLoops._exchange_gates.__code__
        )

    def is_cut_off(self, process: Process) -> bool:
        """True if the process cannot reach the store."""
        return not self.healed and (self.outage or process.name in self.cut_off)

    def fate(self, process: Process, verb: str) -> WriteFate:
        if self.healed:
            return WriteFate.COMMITTED
        if self.full:
            self._simulation.sometimes("the disk was full")
            self._simulation.count("full")
            return WriteFate.FULL
        if not self._any:
            return WriteFate.COMMITTED
        for rate, fate in self._fates:
            if self._dice.random() < rate:
                if fate in (WriteFate.DIES_BEFORE, WriteFate.DIES_AFTER):
                    if self.deaths >= DEATHS_MAX:
                        continue
                    self.deaths += 1
                self._simulation.count(fate.value)
                self._simulation.sometimes(f"a commit's fate: {fate.value}")
                return fate
        return WriteFate.COMMITTED

    async def answer(self, process: Process, verb: str, writes: bool) -> None:
        if self._late and not self.healed and self._dice.random() < self._late:
            await process.environment.sleep(self._late_s())
        for part in self._simulation.parts.more:
            await part.answer(self._simulation, process, verb)
        if verb == "gates" and self._asks_for_its_agent():
            known = self._simulation.loop.now, self._gates_read[process.name]
            self._simulation.checker.known[process.node.id] = known

    def _late_s(self) -> float:
        """Return a delay: mostly short, now and then longer than any lease."""
        share = self._dice.random()
        return 1.0 + 2 * share if self._dice.random() < 0.05 else share**3 * 1.2

    def bells(self, source: Process, target: Process, bell: Bell) -> list[float]:
        if self.healed:
            return [0.0]
        if (
            self.outage
            or source.name in self.cut_off
            or target.name in self.cut_off
            or self._swarm.strikes("bells lost")
        ):
            self._simulation.count("bells lost")
            return []
        delay_s = self._dice.random() if self._swarm.strikes("bells late") else 0.0
        return [delay_s, self._dice.random()] if self._swarm.strikes("bells doubled") else [delay_s]
