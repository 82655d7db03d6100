"""The loops of a scheduler: claim runs, deliver what others recorded, fire timers, let waiting runs leave memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from typing import Any

from holdfast.environment import Environment, StoreClock
from holdfast.loops import Loops, wait_for
from holdfast.scheduler.scheduler import Scheduler
from holdfast.store.bell import Bell

PARK_EVERY_S = 1.0


class SchedulerLoops:
    def __init__(
        self,
        scheduler: Scheduler,
        loops: Loops,
        claim: Callable[[], Awaitable[int]],
        declare: Callable[[], Awaitable[None]],
        environment: Environment,
        clock: StoreClock,
    ) -> None:
        """`claim` is the scheduler's `claim`, guarded by its node. `declare` records the code that was declared since
        the node registered."""
        self._scheduler, self._loops, self._claim, self._declare = scheduler, loops, claim, declare
        self._environment, self._clock = environment, clock

    def all(self) -> list[Coroutine[Any, Any, None]]:
        return [self._claim_runs(), self._collect(), self._fire_timers(), self._park()]

    async def _claim_runs(self) -> None:
        loops = self._loops
        while not loops.is_over:
            await loops.wait(Bell.RUNS, loops.config.poll_s)
            while await loops.guarded("claiming runs", self._claim):
                pass

    async def _collect(self) -> None:
        loops = self._loops
        while not loops.is_over:
            await loops.wait(Bell.OUTCOMES, loops.config.poll_s)
            if self._scheduler.unlooked:
                await loops.guarded("looking for events", self._scheduler.look_for_events)
            await loops.guarded("delivering", self._scheduler.collect)
            # Some outcomes may belong to runs that are in nobody's memory. Those runs can be claimed now.
            loops.bells.ring_here(Bell.RUNS)

    async def _fire_timers(self) -> None:
        scheduler, loops, now, monotonic = (
            self._scheduler,
            self._loops,
            self._clock.now,
            self._environment.monotonic,
        )
        timers = scheduler.timers
        look_at = 0.0
        """When to ask the store again, by the monotonic clock. The store's clock may have been set back. Then `now()`
        stands still, and what the store says comes later does not seem to."""
        while not loops.is_over:
            scheduler.fire()
            is_due = monotonic() >= look_at or now() >= timers.parked_due
            if scheduler.joins_due or is_due:
                scheduler.joins_due = False
                await loops.guarded("answering joined steps", scheduler.answer_joins)
            if is_due:
                timers.parked_due = inf
                if await loops.guarded("firing timers", scheduler.fire_sleeping):
                    if scheduler.room > 0:
                        loops.bells.ring_here(Bell.RUNS)
                    else:
                        loops.bells.ring(Bell.RUNS)  # others may have room
                    look_at = 0.0  # there may be more, and the next one may be due before the next poll
                    continue
                look_at = monotonic() + loops.config.poll_s
                left_s = await loops.guarded("looking at timers", scheduler.next_sleeping)
                if left_s:
                    look_at = min(look_at, monotonic() + left_s)
            mine = timers.next_due()
            next_due = min(timers.parked_due, inf if mine is None else mine)
            left_s = min(look_at - monotonic(), next_due - now())
            await wait_for(timers.changed, max(0.0005, left_s))

    async def _park(self) -> None:
        scheduler, loops = self._scheduler, self._loops
        while not loops.is_over:
            await self._environment.sleep(PARK_EVERY_S)
            scheduler.park_quiet()
            await loops.guarded("declaring", self._declare)
            await loops.guarded("checking runs", scheduler.check_lost)
            await loops.guarded("lanes", scheduler.learn_lanes)
