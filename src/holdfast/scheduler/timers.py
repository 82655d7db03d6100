"""The timers of the runs in memory, ordered by the time at which they come due.

An entry may be stale. The scheduler asks the run whether it still waits for the timer.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterator
from math import inf


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[float, str, int]] = []
        self.changed = asyncio.Event()
        """Set when another timer is now the next one due, or when the loop should look for another reason."""
        self.parked_due = inf
        """When the earliest timer comes due, of the runs that have left memory since the loop last asked the store."""

    def set(self, ready_at: float, run_id: str, n: int) -> None:
        heapq.heappush(self._heap, (ready_at, run_id, n))
        if self._heap[0][0] == ready_at:
            self.changed.set()

    def park(self, ready_at: float) -> None:
        """Note that a run has left memory whose next timer comes due then."""
        if ready_at < self.parked_due:
            self.parked_due = ready_at
            self.changed.set()

    def next_due(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def take_due(self, now: float) -> Iterator[tuple[str, int]]:
        """Yield (run, n) of each timer that has come due, and remove it."""
        while self._heap and self._heap[0][0] <= now:
            _, run_id, n = heapq.heappop(self._heap)
            yield run_id, n
