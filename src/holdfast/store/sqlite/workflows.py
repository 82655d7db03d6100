"""What code declares, and who publishes which names."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
from msgspec.structs import astuple

from holdfast.model import Declaration
from holdfast.store.answers import Rival
from holdfast.store.origins import Claims, demand_names
from holdfast.store.protocol import NOTED_EVERY_S
from holdfast.store.sqlite.dialect import Dialect
from holdfast.store.sqlite.rows import fetch
from holdfast.store.sqlite.verbs import VERBS

TOLD = Declaration.__struct_fields__.index("first_at")
"""What code says stands before what the store notes."""


class Workflows(Dialect):
    async def declared(self, run_id: str) -> Declaration | None:
        async with self._database.reading() as connection:
            row = connection.execute(VERBS.declared, (run_id,)).get
            return None if row is None else Declaration(*row)

    async def workflows(self, limit: int) -> list[Declaration]:
        async with self._database.reading() as connection:
            return [Declaration(*row) for row in fetch(connection, VERBS.workflows, (limit,))]

    async def rivals(self, code: str, node: str = "") -> list[Rival]:
        async with self._database.reading() as connection:
            return self._rivals(connection, code, node)

    def _rivals(self, connection: apsw.Connection, code: str, node: str) -> list[Rival]:
        rows = fetch(connection, VERBS.rivals, (self._clock.now(), code, node))
        return [Rival(*row[1:]) for row in rows if not self._liveness.is_gone(row[0])]

    def _declare(
        self, connection: apsw.Connection, node: str, claims: Claims, declared: Sequence[Declaration]
    ) -> None:
        """Enter what a node declares, unless its names are taken."""
        if claims.code:
            demand_names(claims, self._rivals(connection, claims.code, node))
        now = self._clock.now()
        more = (now, NOTED_EVERY_S)
        connection.executemany(VERBS.declare, [(*astuple(one)[:TOLD], *more) for one in declared])

    async def forget_workflows(self, epoch: int, before: float, limit: int) -> int:
        async with self._database.reading() as connection:
            if not fetch(connection, VERBS.old_workflows, (before, 1)):
                return 0
        async with self._database.transaction() as connection:
            if not connection.execute(VERBS.leads, (epoch, self._clock.now())).get:
                return 0
            old = fetch(connection, VERBS.old_workflows, (before, limit))
            connection.executemany(VERBS.forget_workflows, old)
            return len(old)
