"""Fairness inside a node: a step that its own scheduler issues must not pass those that wait in the store for their turn.

The agent keeps a virtual time for each queue: how many of its steps have begun here, divided by its weight. While its last
claim saw that others wait, it takes steps without the store only for queues whose time is not ahead of theirs. The others
are issued as ready, and the walk takes them. Losing this memory costs a moment of unfairness, never work.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.store.queues import QueueNumbers
from holdfast.store.walk import Turns

SEEN_S = 1.0
"""For how long it counts that a claim saw others waiting. The next claim comes much sooner while they do."""
QUEUES_MAX = 10_000
"""For how many queues an agent remembers the times."""


class Fairness:
    def __init__(self, monotonic: Callable[[], float], queues: QueueNumbers) -> None:
        self._monotonic, self.queues = monotonic, queues
        self.turns = {True: Turns(), False: Turns()}
        """For `async def` steps and for `def` steps."""
        self.is_walking = False
        """True if claims go from queue to queue."""
        self.waiting: dict[int, int] = {}
        """The queues that wait according to the last claim, with their weights."""
        self._seen_at = 0.0
        self._times: dict[int, float] = {}

    def seen(self, waiting: dict[int, int]) -> None:
        """Note who waits after a claim."""
        self.waiting, self._seen_at = waiting, self._monotonic()
        if len(self._times) > QUEUES_MAX:
            self._times.clear()

    def may_begin(self, queue: int) -> bool:
        """True if it is this queue's turn, as far as this agent knows. Then the step counts as begun."""
        if self._monotonic() - self._seen_at > SEEN_S:
            self.waiting = {}
            return True
        times, weight = self._times, self.waiting.get(queue, 1)
        least = min(times.get(one, 0.0) for one in self.waiting)
        # A queue that comes back has not saved up what it did not use.
        mine = max(times.get(queue, 0.0), least - 1)
        if mine > least:
            return False
        times[queue] = mine + 1 / weight
        return True

    def began(self, queue: int, weight: int, number: int) -> None:
        """Count steps that a claim has got."""
        self._times[queue] = self._times.get(queue, 0.0) + number / weight
