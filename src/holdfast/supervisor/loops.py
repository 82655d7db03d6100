"""The loops of a Supervisor: one does pass after pass over every duty, the other sends alerts."""

from __future__ import annotations

from holdfast.environment import StoreClock
from holdfast.loops import Loops
from holdfast.store.bell import Bell
from holdfast.supervisor.outbox import Outbox
from holdfast.supervisor.supervisor import Supervisor


async def supervise(supervisor: Supervisor, loops: Loops, clock: StoreClock) -> None:
    while not loops.is_over:
        if await loops.guarded("supervising", supervisor.tick):
            for bell in (Bell.RUNS, Bell.STEPS, Bell.OUTCOMES, Bell.CANCELS):
                loops.bells.ring(bell)
        if supervisor.breakers_changed:
            supervisor.breakers_changed = False
            loops.bells.ring(Bell.GATES)
        left_s = None if supervisor.next_at is None else supervisor.next_at - clock.now()
        if left_s is not None and 0 < left_s < loops.config.sweep_s:
            await loops.rest(left_s)  # a schedule is due before the next pass
        else:
            await loops.pause(loops.config.sweep_s)


async def send_alerts(outbox: Outbox, loops: Loops) -> None:
    while not loops.is_over:
        await loops.guarded("sending alerts", outbox.tick)
        await loops.pause(loops.config.watch_s)
