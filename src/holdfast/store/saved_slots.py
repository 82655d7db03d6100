"""Saving slots up for what takes several at once. Pure.

A step that takes three slots cannot begin while there are two. If others under the limit take one each, they begin as soon as
one is free, so three may never be free together. So when the first of a queue has waited long and has too few slots, the claim
that sees this saves them up: it writes the queue into the limit's row, and nobody else begins under that limit. When what runs
has ended, there are enough. After that nothing is saved up for a while, so that the others get on, too.

The row says until when the slots are saved up. Claims that still see the queue wait write a later time. So if what they are
saved up for is gone, or nobody serves it, they are free again by themselves.
"""

from __future__ import annotations

from typing import NamedTuple

PATIENCE_S = 10.0
"""How long something waits for more slots than are free before they are saved up for it, and how long nothing is saved up under
a limit after that has begun."""
SAVED_S = 10.0
"""For how long slots are saved up, unless a claim writes a later time. Agents claim several times in this time."""


class SavedSlots(NamedTuple):
    """What a limit's row says about slots that are saved up."""

    queue: int
    """For which queue they are, or were last."""
    for_s: float
    """For how long they still are. Not above 0 if they are not."""
    rests_s: float
    """For how long nothing is saved up."""

    def bars(self, queue: int) -> bool:
        """True if the slots are saved up, and not for this queue."""
        return self.for_s > 0 and queue != self.queue

    def may_be_for(self, queue: int) -> bool:
        """True if slots may be saved up for this queue, or are."""
        return queue == self.queue if self.for_s > 0 else self.rests_s <= 0

    def is_new_for(self, queue: int) -> bool:
        """True if it was written for this queue a short time ago."""
        return queue == self.queue and self.for_s > SAVED_S / 2
