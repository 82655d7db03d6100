"""Bells wake loops, at once or later."""

from __future__ import annotations

from typing import Any

from holdfast.bells import Bells
from holdfast.store.bell import Bell
from holdfast.testing.loop import VirtualLoop


def test_a_loop_that_asks_again_whenever_it_is_woken_has_one_timer() -> None:
    """However often it asked before, it is woken once when the first of these times has come. With a timer for each of them, each
    would wake it and make it ask again."""
    loop = VirtualLoop()  # type: ignore[abstract]
    nothing: Any = None
    bells = Bells(nothing, nothing)
    woken: list[float] = []

    async def look() -> None:
        for delay_s in (0.3, 0.2, 0.25, 0.2):
            bells.ring_here_within(delay_s, Bell.STEPS)
        while len(woken) < 3:
            await bells[Bell.STEPS].wait()
            bells[Bell.STEPS].clear()
            woken.append(round(loop.now, 1))
            bells.ring_here_within(0.2, Bell.STEPS)

    loop.run_until_complete(look())
    loop.close()
    assert woken == [0.2, 0.4, 0.6]
