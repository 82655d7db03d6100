"""The loops of an agent: claim steps, write progress and stop lost steps, and exchange observations and gates with the
store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from holdfast.agent.agent import Agent
from holdfast.environment import Environment
from holdfast.loops import EARLIEST, Loops
from holdfast.store.bell import Bell


class AgentLoops:
    def __init__(
        self,
        agent: Agent,
        loops: Loops,
        claim: Callable[[], Awaitable[int]],
        declare: Callable[[], Awaitable[None]],
        environment: Environment,
    ) -> None:
        """`claim` is the agent's `claim`, guarded by its node. `declare` records the code that was declared since the
        node registered."""
        self._agent, self._loops, self._claim, self._declare = agent, loops, claim, declare
        self._environment = environment
        self._is_exchange_due = False

    def all(self) -> list[Coroutine[Any, Any, None]]:
        return [self._claim_steps(), self._beat(), self._exchange_gates()]

    async def _claim_steps(self) -> None:
        agent, loops = self._agent, self._loops
        poll_s, lanes_at = loops.config.poll_s, 0.0
        while not loops.is_over:
            await loops.wait(Bell.STEPS, poll_s)
            if self._environment.monotonic() - lanes_at > poll_s:
                lanes_at = self._environment.monotonic()
                await loops.guarded("declaring", self._declare)
                await loops.guarded("lanes", agent.learn_lanes)
            while await loops.guarded("claiming steps", self._claim):
                pass
            left_s = await loops.guarded("back-off", agent.next_ready)
            if left_s and left_s < poll_s:
                loops.bells.ring_here_within(left_s, Bell.STEPS)

    async def _beat(self) -> None:
        loops, beat_s = self._loops, self._loops.config.beat_s
        saved_at = self._environment.monotonic()
        while not loops.is_over:
            await loops.wait(Bell.CANCELS, max(0.0, saved_at + beat_s - self._environment.monotonic()))
            # The bell rings for lost steps. Progress is saved only as often as was set.
            if self._environment.monotonic() - saved_at >= beat_s * EARLIEST:
                await loops.guarded("saving progress", self._agent.save_progress)
                saved_at = self._environment.monotonic()
            await loops.guarded("stopping lost steps", self._agent.stop_lost_steps)

    def exchange_gates_after(self, delay_s: float) -> None:
        """Exchange once after `delay_s`, for all observations until then."""
        if not self._is_exchange_due:
            self._is_exchange_due = True
            self._loops.bells.ring_here_after(delay_s, Bell.GATES)

    async def _exchange_gates(self) -> None:
        loops = self._loops
        while not loops.is_over:
            await loops.wait(Bell.GATES, loops.config.poll_s)
            self._is_exchange_due = False
            if await loops.guarded("looking at gates", self._agent.exchange_gates):
                loops.bells.ring(Bell.GATES)
            await self._environment.sleep(loops.config.breaker_report_s / 2)  # bells may ring at every commit
