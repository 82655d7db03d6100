"""What a node asks for itself: its row, its lease, its doorbell."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import quote

import apsw

from holdfast.errors import StoreError
from holdfast.model import Declaration
from holdfast.store.origins import Claims
from holdfast.store.protocol import Bell
from holdfast.store.sqlite.verbs import VERBS
from holdfast.store.sqlite.workflows import Workflows

LISTEN_MIN_S = 0.002
"""How soon to look again after another process wrote."""
LISTEN_MAX_S = 0.05
"""How rarely to look when others are quiet. A look costs some microseconds."""
ALL = -1
"""LIMIT -1 is no limit."""


class Nodes(Workflows):
    async def register(
        self,
        node: str,
        *,
        host: str,
        pid: int,
        roles: str,
        offers: str,
        capacity: int,
        lease_s: float,
        declared: Sequence[Declaration] = (),
    ) -> None:
        self._liveness.take(node)
        claims = Claims.read(offers)
        async with self._database.transaction() as connection:
            self._declare(connection, node, claims, declared)
            now = self._clock.now()
            row = (node, host, pid, roles, offers, capacity, now, now + lease_s, claims.code)
            connection.execute(VERBS.register, row)

    @property
    def shared_url(self) -> str | None:
        return None if self._database.in_memory else f"sqlite:///{quote(self._database.path)}"

    async def renew(self, node: str, lease_s: float, pulse: str | None = None) -> float | None:
        async with self._database.transaction() as connection:
            now = self._clock.now()
            before = connection.total_changes()
            connection.execute(VERBS.renew, (now + lease_s, pulse, now, node))
            return None if connection.total_changes() == before else now

    async def retire(self, node: str) -> None:
        async with self._database.transaction() as connection:
            now = self._clock.now()
            _give_up(connection, node, set(), set())
            connection.execute(VERBS.retire, (now, node))
            connection.execute(VERBS.resign, (now, node))
        self._liveness.let_go(node)

    async def reconcile(
        self, node: str, runs: Sequence[tuple[str, int]], steps: Sequence[tuple[str, int, int]]
    ) -> tuple[int, int]:
        async with self._database.transaction() as connection:
            return _give_up(connection, node, set(runs), set(steps))

    async def ring(self, bells: set[Bell]) -> None:
        """Nothing to do: who listens sees that the file changed."""

    async def listen(self, heard: Callable[[Bell], None]) -> Callable[[], Awaitable[None]]:
        async def look() -> None:
            pause_s = LISTEN_MAX_S
            while True:
                await self._environment.sleep(pause_s)
                try:
                    changed = self._database.look_around()
                except StoreError:
                    changed = True  # whoever wakes up finds the same trouble, and can say so
                if changed:
                    for bell in Bell:
                        heard(bell)
                    pause_s = LISTEN_MIN_S
                else:
                    pause_s = min(pause_s * 1.5, LISTEN_MAX_S)

        looking = None if self._database.in_memory else asyncio.create_task(look(), name="holdfast-listen")

        async def close() -> None:
            if looking is not None:
                looking.cancel()
                await asyncio.wait([looking])

        return close


def _give_up(
    connection: apsw.Connection, node: str, runs: set[tuple[str, int]], steps: set[tuple[str, int, int]]
) -> tuple[int, int]:
    """Park the node's runs and hand its steps back, but for these."""
    gone_runs = [row for row in connection.execute(VERBS.owned_by, (node, ALL)) if row not in runs]
    connection.executemany(VERBS.free_runs, [(run_id, node) for run_id, _ in gone_runs])
    gone_steps = [row for row in connection.execute(VERBS.held_by, (node, ALL)) if row not in steps]
    connection.executemany(VERBS.hand_back, gone_steps)
    return len(gone_runs), len(gone_steps)
