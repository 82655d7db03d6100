"""A node that hosts an agent and reaches the store through a server. It is the same node with the same agent; only what
they ask goes over HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from holdfast.agent.agent import Agent
from holdfast.agent.assignment import Assignment
from holdfast.agent.claims import Claimer
from holdfast.agent.host import StepRef
from holdfast.config import DEFAULT, Config
from holdfast.environment import Environment
from holdfast.node import Node
from holdfast.remote.connection import AgentConnection
from holdfast.remote.store import LOOP, THREADS, RemoteStore, claimed_step
from holdfast.remote.transport import Transport
from holdfast.store.store import Store
from holdfast.wire.agents import Group
from holdfast.workflow import registry

LEASE_S, RENEW_S = 30.0, 8.0
"""The lease of an agent behind a server is longer than one at the store: a server's restart must not cost it its steps.
The end of its stream shows that its process has died."""


def remote_config(config: Config) -> Config:
    """Return the settings of a remote agent: those given, with a longer lease if the lease is the usual one."""
    if config.lease_s != DEFAULT.lease_s:
        return config
    renew_s = RENEW_S if config.renew_s == DEFAULT.renew_s else config.renew_s
    return msgspec.structs.replace(config, lease_s=LEASE_S, renew_s=renew_s)


class RemoteClaimer(Claimer):
    """Takes up what the connection has claimed, and says to it how much room there is."""

    async def learn_lanes(self) -> None:
        """Do nothing: the server knows the lanes."""

    async def claim(self, assignments: Iterable[Assignment]) -> int:
        store = cast("RemoteStore", self._store)
        connection, sealed_steps = store.connection, store.sealed_steps
        for found in connection.take():
            item = sealed_steps.open(claimed_step(found))
            if found.trace is not None:
                store.agents.note_trace(found.run, found.trace)
            if not found.twin:
                self._host.note_claim(item.run_id, item.n)
            self._begin(item, found.probe, found.twin)
        is_shut = self.closing or bool(self._gates.paused)
        kinds = {step.is_async for step in registry.steps.values() if not step.elsewhere}
        # If there are no steps of a kind, no place waits for them.
        free = {
            LOOP if kind else THREADS: 0 if is_shut else self._places.free(kind) for kind in sorted(kinds)
        }
        if not all(free.values()):
            self._places.is_short = True  # so that the connection hears when there is room again
        connection.want(free, 0 if self._has_suspect(assignments) else 1)
        return 0

    async def next_ready(self) -> float | None:
        return None


class RemoteAgent(Agent):
    claims_type = RemoteClaimer


class RemoteNode(Node):
    agent_type = RemoteAgent

    def __init__(
        self, transport: Transport, *, environment: Environment, config: Config, **given: Any
    ) -> None:
        config = remote_config(config)
        self.connection = AgentConnection(transport, self, environment, config)
        store = cast("Store", RemoteStore(self.connection, _groups, environment))
        super().__init__(store, roles=("agent",), environment=environment, config=config, **given)

    async def renew_lease(self) -> None:
        if not self.fenced:
            await self.heartbeat.renew()

    def lose_lease(self, why: str) -> None:
        self._fence_self(why)

    def group_of(self, step: str) -> str:
        return _group_of(step)

    def _begin_watching(self) -> None:
        """Keep the connection open. Nobody waits here for the end of runs."""
        self.loops.spawn(self.connection.poll(), self.connection.listen())

    def known_steps(self) -> set[StepRef]:
        return super().known_steps() | self._in_hand(is_twin=False)

    def known_twins(self) -> set[StepRef]:
        """Return (run, n, fence) of each twin that is executed here, or has ended here and is not reported yet."""
        assignments = self.agent.assignments.values() if self.agent is not None else ()
        twins = {assignment.ref for assignment in assignments if assignment.twin}
        return twins | self._in_hand(is_twin=True) | cast("RemoteStore", self.store).twins.ending

    def _in_hand(self, *, is_twin: bool) -> set[StepRef]:
        return {(one.run, one.n, one.fence) for one in self.connection.hand if one.twin is is_twin}

    async def _drain(self, agent: Agent, limit_s: float) -> None:
        self.connection.close()
        await super()._drain(agent, limit_s)


def _groups() -> list[Group]:
    """Return the steps that this process can execute, as groups that share places."""
    found = {LOOP: Group(LOOP, [], 1000), THREADS: Group(THREADS, [], 100)}
    for name in sorted(registry.steps):
        if not registry.steps[name].elsewhere:
            found[_group_of(name)].steps.append(name)
    return list(found.values())


def _group_of(step: str) -> str:
    return LOOP if registry.steps[step].is_async else THREADS
