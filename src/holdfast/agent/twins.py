"""How an agent handles twins. When a twin succeeds, its result becomes the step's outcome. When it fails, nothing
happens, because the step itself goes on. A hedged step that is about to fail for good waits for its twin first.

These writes are rare, so each is a transaction of its own. If one gets lost, no work is lost: the step itself goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from holdfast.agent.assignment import Assignment
from holdfast.agent.host import AgentHost
from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.errors import StoreError
from holdfast.model import Ending, Twin, TwinState
from holdfast.store.answers import Answer
from holdfast.store.bell import Bell
from holdfast.store.twins import AgentTwins, outran_by

log = logging.getLogger("holdfast.agent")

GiveUp = Callable[[bool], None]
"""Reports how the step ended. It is called with True if the step may have had its effect."""

LOOK_S = 0.1
"""How often a step that failed looks whether its twin has ended."""
WAIT_MAX_S = 60.0
"""How long a step that failed and that has no timeout waits for its twin."""


class HedgingAgent(Protocol):
    """The agent, as its twins see it."""

    assignments: dict[tuple[str, int, bool], Assignment]

    def hand_back(self, assignment: Assignment) -> None: ...


class TwinKeeper:
    def __init__(
        self,
        agent: HedgingAgent,
        store: AgentTwins,
        host: AgentHost,
        node: str,
        environment: Environment,
        config: Config,
    ) -> None:
        self._agent, self._store, self._host, self._node = agent, store, host, node
        self._environment, self._config = environment, config
        self._writing: set[asyncio.Task[None]] = set()

    def win(self, twin: Assignment, output: bytes) -> None:
        """Report that the twin succeeded. Then the step has succeeded, too, unless it ended before."""
        self._soon(self._end(twin, TwinState.WON, output))

    def fail(self, twin: Assignment) -> None:
        """Report that the twin ended without a result, for whatever reason."""
        self._soon(self._end(twin, TwinState.FAILED, None))

    async def _end(self, twin: Assignment, state: TwinState, output: bytes | None) -> None:
        outran = outran_by(self._node)
        if not self._host.has_lease():
            return
        try:
            answer = await self._store.end_twin(self._node, twin.ref, state, output, outran, logs=twin.logs)
        except StoreError as error:
            log.warning("the twin of step %s of run %s: %s", twin.n, twin.run_id, error)
            return
        if state is TwinState.WON and answer is not Answer.FENCED:
            self._host.ring(Bell.OUTCOMES)
            self._host.ring(Bell.CANCELS)

    def wait_for_twin(self, assignment: Assignment, ending: Ending, unsure: bool, give_up: GiveUp) -> None:
        """Give up a step that failed for good, but wait for its twin first. A twin that has begun may still succeed, or
        may have had the effect. The agent keeps the assignment meanwhile."""
        self._agent.assignments[assignment.run_id, assignment.n, False] = assignment
        assignment.task = self._soon(self._wait_for_twin(assignment, ending, unsure, give_up))

    async def _wait_for_twin(
        self, assignment: Assignment, ending: Ending, unsure: bool, give_up: GiveUp
    ) -> None:
        try:
            twin = await self._ended(assignment, ending)
            if twin.state is TwinState.WON:
                return
            unsure = unsure or twin.started_at is not None
        except asyncio.CancelledError:
            if not assignment.lost:
                self._agent.hand_back(assignment)
            return
        except StoreError:
            unsure = True  # nobody knows whether the twin had the effect
        finally:
            self._agent.assignments.pop((assignment.run_id, assignment.n, False), None)
        if not assignment.lost:
            give_up(unsure)

    async def _ended(self, assignment: Assignment, ending: Ending) -> Twin:
        """Bar a twin of the step from beginning, wait until a running one has ended or stop it, and return the twin."""
        now = self._environment.monotonic
        until = (assignment.started or now()) + (assignment.timeout_s or WAIT_MAX_S)
        while True:
            twin = await self._store.bar_twin(assignment.run_id, assignment.n)
            if twin.ended_at is not None:
                return twin
            if ending is not Ending.FAILED or now() > until:
                await self._store.stop_twin(assignment.run_id, assignment.n)
                self._host.ring(Bell.CANCELS)
                await self._environment.sleep(self._config.stop_grace_s)
                return twin
            await self._environment.sleep(LOOK_S)

    def _soon(self, write: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(write)
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return task

    async def drain(self) -> None:
        """Wait for the writes that are under way."""
        if self._writing:
            await asyncio.wait(self._writing, timeout=5)
