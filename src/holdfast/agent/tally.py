"""Counts how an agent's attempts ended, since its start and lately."""

from __future__ import annotations

from collections import deque

RECENT_S = 300.0
"""How long ago "lately" is: long enough for slow steps, short enough to show what a deployment broke."""


class AttemptTally:
    def __init__(self) -> None:
        self.succeeded = 0
        self.failed = 0
        self._seen: deque[tuple[float, int, int]] = deque([(0.0, 0, 0)])

    @property
    def done(self) -> int:
        """How many attempts have ended here since the start."""
        return self.succeeded + self.failed

    def recent(self, at: float) -> tuple[int, int]:
        """Return how many attempts succeeded and failed lately. This compares with the counts of earlier calls, so it
        must be called now and then."""
        self._seen.append((at, self.succeeded, self.failed))
        while len(self._seen) > 1 and self._seen[1][0] < at - RECENT_S:
            self._seen.popleft()
        _, succeeded, failed = self._seen[0]
        return self.succeeded - succeeded, self.failed - failed
