"""How an agent's attempts end, since its start and lately."""

from __future__ import annotations

from collections import deque

RECENT_S = 300.0
"""What counts as lately: long enough for slow steps, short enough to show what a deployment broke."""


class Tally:
    def __init__(self) -> None:
        self.succeeded = 0
        self.failed = 0
        self._seen: deque[tuple[float, int, int]] = deque([(0.0, 0, 0)])

    @property
    def done(self) -> int:
        """Attempts that ended here since the start."""
        return self.succeeded + self.failed

    def recent(self, at: float) -> tuple[int, int]:
        """(succeeded, failed) lately. Asked now and then; each time is remembered."""
        self._seen.append((at, self.succeeded, self.failed))
        while len(self._seen) > 1 and self._seen[1][0] < at - RECENT_S:
            self._seen.popleft()
        _, succeeded, failed = self._seen[0]
        return self.succeeded - succeeded, self.failed - failed
