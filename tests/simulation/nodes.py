"""Processes and nodes of the simulation. They are those of the product, with executors that call the simulation when a
step is about to begin."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, cast

from holdfast.agent.agent import Agent
from holdfast.agent.assignment import Assignment
from holdfast.agent.executor import Executor
from holdfast.agent.outcome import Raised
from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.heartbeat import Heartbeat
from holdfast.node import Node
from holdfast.store.bell import Bell
from holdfast.store.nodes import Nodes
from holdfast.testing.world import Process
from holdfast.workflow.here import CurrentAttempt, here_var
from holdfast.workflow.step import Step
from tests.simulation.ledger import ledger


async def _in_simulated_child(
    step: Step[Any, Any], arguments: Any, here: CurrentAttempt, limit: int
) -> bytes | Raised:
    """Execute an isolated step as if it had a process of its own. The part that declares the step plays the process."""
    here_var.set(here)
    value = await ledger.simulation.play_child(step, arguments)
    return step.shape.encode_result(value, limit)


class WatchedExecutor(Executor):
    execute_isolated = staticmethod(_in_simulated_child)

    def begin(self, assignment: Assignment) -> None:
        ledger.simulation.hands_over(assignment)
        super().begin(assignment)


class WatchedAgent(Agent):
    executor_type = WatchedExecutor


def _heartbeat_type(store: Nodes, environment: Environment, config: Config) -> type[Heartbeat]:
    """Return the kind of heartbeat that the seed plays."""
    from tests.simulation.parts.hearts import SimulatedHeartProcess

    return SimulatedHeartProcess if ledger.simulation.parts.plays("hearts") else Heartbeat


class WatchedNode(Node):
    agent_type = WatchedAgent
    _heartbeat_type = staticmethod(_heartbeat_type)

    def _fence_self(self, why: str) -> None:
        ledger.simulation.gives_up(self, why)
        super()._fence_self(why)


class WatchedProcess(Process):
    _node_type = WatchedNode

    @property
    def node(self) -> Node:
        """The node of this process. Checks ask for it at every effect, and it is not theirs to ask whether this is the
        event loop that opened it."""
        return cast("Node", self._remote_node or self._caller)


async def carried_out(process: Process, act: Coroutine[Any, Any, Any]) -> Any:
    """Do what an operator asks of the store, and ring the bells as the desk does."""
    answer = await act
    caller = process._caller
    if isinstance(caller, Node):
        for bell in (Bell.RUNS, Bell.STEPS, Bell.OUTCOMES, Bell.CANCELS):
            caller.ring(bell)
    return answer
