"""What a pool of agents asks: how much work waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.answers import Backlog
from holdfast.store.postgres.pooled import Pooled
from holdfast.store.postgres.verbs import VERBS


class Pools(Pooled):
    async def backlog(self, lanes: Sequence[int], limit: int) -> Backlog:
        return Backlog(*(await self._fetch(VERBS.backlog, lanes, limit))[0])
