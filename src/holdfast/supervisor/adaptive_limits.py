"""Adaptive limits: the leader moves their numbers.

`holdfast.adaptation` decides, as a pure function. A move names the number that it was decided from. If an operator or new
code has changed it since, theirs stands.
"""

from __future__ import annotations

from holdfast.adaptation import LimitChange, LimitLook, LimitWatch, look_at
from holdfast.store.roles import SupervisorStore

REPORTED_S = 5.0
"""The leader looks at limits that agents have reported about within this time. That is several looks, so it misses
none."""
LOOKS_MAX = 2_000
"""How many limits one look is about."""
WATCHED_MAX = 20_000
"""For how many limits the leader remembers windows. Forgetting one costs a window."""


class AdaptiveLimits:
    def __init__(self, store: SupervisorStore) -> None:
        self._store = store
        self._watches: dict[int, LimitWatch] = {}
        self._epoch: int | None = None

    async def move(self, epoch: int) -> int:
        """Look once at each limit that agents have reported about. Return how many numbers have risen, so that agents
        should claim."""
        if epoch != self._epoch:  # another leader may have moved them meanwhile
            self._epoch, self._watches = epoch, {}
        rows = await self._store.limits.adaptive_limits(REPORTED_S, LOOKS_MAX)
        if not rows:
            return 0
        now = await self._store.now()
        if len(self._watches) > WATCHED_MAX:
            self._watches.clear()
        moves: list[tuple[LimitLook, LimitChange]] = []
        for row in rows:
            self._watches[row.id], move = look_at(row, self._watches.get(row.id), now)
            if move is not None:
                moves.append((row, move))
        if not moves or not await self._store.limits.move_limits(epoch, moves):
            return 0
        return sum(move.most > row.most for row, move in moves)
