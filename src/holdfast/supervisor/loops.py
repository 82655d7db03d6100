"""The loops of a Supervisor: one does pass after pass over every duty, the other sends alerts."""

from __future__ import annotations

from holdfast.loops import Loops
from holdfast.store.bell import Bell
from holdfast.supervisor.outbox import Outbox
from holdfast.supervisor.supervisor import Supervisor


async def supervise(supervisor: Supervisor, loops: Loops) -> None:
    while not loops.is_over:
        if await loops.guarded("supervising", supervisor.tick):
            for bell in (Bell.RUNS, Bell.STEPS, Bell.OUTCOMES, Bell.CANCELS):
                loops.bells.ring(bell)
        if supervisor.breakers_changed:
            supervisor.breakers_changed = False
            loops.bells.ring(Bell.GATES)
        await loops.pause(loops.config.sweep_s)


async def send_alerts(outbox: Outbox, loops: Loops) -> None:
    while not loops.is_over:
        await loops.guarded("sending alerts", outbox.tick)
        await loops.pause(loops.config.watch_s)
