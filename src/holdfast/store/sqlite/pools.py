"""What a pool of agents asks: how much work waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.answers import Backlog
from holdfast.store.sqlite.agents import passable, priorities
from holdfast.store.sqlite.dialect import Dialect
from holdfast.store.sqlite.rows import fetch
from holdfast.store.sqlite.verbs import VERBS


class Pools(Dialect):
    async def backlog(self, lanes: Sequence[int], limit: int) -> Backlog:
        now = self._clock.now()
        async with self._database.reading() as connection:
            found: list[tuple[int, float | None]] = [
                fetch(connection, VERBS.backlog, (lane, priority, now, limit))[0]
                for lane in passable(connection, lanes)
                for priority in priorities(connection, lane)
            ]
        return Backlog(
            sum(ready for ready, _ in found),
            min((since for _, since in found if since is not None), default=None),
        )
