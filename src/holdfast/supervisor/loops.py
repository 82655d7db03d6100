"""The loops of a Supervisor: one does pass after pass over every duty, the other sends alerts."""

from __future__ import annotations

from holdfast.environment import StoreClock
from holdfast.loops import Loops
from holdfast.store.bell import Bell
from holdfast.supervisor.outbox import Outbox
from holdfast.supervisor.supervisor import Supervisor

SOONEST_S = 0.002
"""How soon one pass follows another because something is due. After somebody has set the store's clock back,
`StoreClock.now()` returns the same time until that clock has caught up. Something that is due a moment later stays so for
all that time, and without this pause the loop would spin."""


async def supervise(supervisor: Supervisor, loops: Loops, clock: StoreClock) -> None:
    """Do pass after pass. The first one is over when this begins: the node has done it before it claimed anything."""
    while not loops.is_over:
        left_s = None if supervisor.next_at is None else supervisor.next_at - clock.now()
        if left_s is not None and 0 < left_s < loops.config.sweep_s:
            # A schedule or an ask is due before the next pass.
            await loops.rest(max(left_s, SOONEST_S))
        else:
            await loops.pause(loops.config.sweep_s)
        if await loops.guarded("supervising", supervisor.tick):
            for bell in (Bell.RUNS, Bell.STEPS, Bell.OUTCOMES, Bell.CANCELS):
                loops.bells.ring(bell)
        if supervisor.breakers_changed:
            supervisor.breakers_changed = False
            loops.bells.ring(Bell.GATES)


async def send_alerts(outbox: Outbox, loops: Loops) -> None:
    while not loops.is_over:
        await loops.guarded("sending alerts", outbox.tick)
        await loops.pause(loops.config.watch_s)
