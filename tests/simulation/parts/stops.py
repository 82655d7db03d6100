"""Processes that are stopped for longer than their lease while an answer is on its way to them. When they go on, the
answer is the first thing they see, before they notice that their lease has ended. Answers to renewals are late, too."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from holdfast.agent.agent import Agent
from holdfast.heartbeat import Heartbeat
from holdfast.store.writer import Writer
from holdfast.testing.world import Process
from tests.simulation.mutants import code, mutant
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

STOPS_MAX = 3
VERBS = frozenset({"claim_steps", "claim_runs", "commit"})


class Stops(Part):
    name = "stops"
    share = 0.15
    _left = STOPS_MAX

    async def answer(self, simulation: Simulation, process: Process, verb: str) -> None:
        if verb in VERBS and self._left and not simulation.healed and self.dice.random() < 0.15:
            self._left -= 1
            simulation.sometimes("a process was stopped before it got an answer")
            simulation.log(f"{process.name} is stopped before the answer to {verb}")
            simulation.pause(process, simulation.config.lease_s * self.dice.choice((0.7, 1.2, 1.8)))
            await process.environment.sleep(0)
        elif verb == "renew" and not simulation.healed and self.dice.random() < 0.3:
            simulation.sometimes("the answer to a renewal was late")
            await process.environment.sleep(simulation.config.lease_s * (0.75 + self.dice.random() * 0.22))


class _WithLease:
    """A node that always says that it has its lease."""

    def __init__(self, node: Any) -> None:
        self._node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def has_lease(self) -> bool:
        return True


@mutant("an agent begins a step only while it has its lease", within=60, part="stops")
def begins_without_a_lease(stack: ExitStack) -> None:
    real = Agent._begin

    def begin(self: Any, *args: Any, **more: Any) -> None:
        host, self._host = self._host, _WithLease(self._host)
        try:
            real(self, *args, **more)
        finally:
            self._host = host

    code(stack, Agent, "_begin", begin)


@mutant("a node writes only while it has its lease", within=60, part="stops")
def writes_without_a_lease(stack: ExitStack) -> None:
    real = Writer.__init__

    def init(self: Any, store: Any, node: Any, environment: Any, config: Any, host: Any) -> None:
        real(self, store, node, environment, config, _WithLease(host))

    code(stack, Writer, "__init__", init)


@mutant("a lease counts from when it was asked for", within=60, part="stops")
def leases_count_from_the_answer(stack: ExitStack) -> None:
    def renewed(self: Any, sent: float) -> None:
        sent = self._environment.monotonic()
        if sent > self.sent:
            self.sent, self.until = sent, sent + self._config.lease_s

    code(stack, Heartbeat, "renewed", renewed)
