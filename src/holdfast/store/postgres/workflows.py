"""What code declares, and who publishes which names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg
from msgspec.structs import astuple

from holdfast.model import Declaration
from holdfast.store.answers import Rival
from holdfast.store.origins import Claims, demand_names
from holdfast.store.postgres.pooled import Pooled
from holdfast.store.postgres.rows import columns
from holdfast.store.postgres.verbs import VERBS
from holdfast.store.protocol import NOTED_EVERY_S

TOLD = Declaration.__struct_fields__.index("first_at")
"""What code says stands before what the store notes."""


class Workflows(Pooled):
    async def declared(self, run_id: str) -> Declaration | None:
        rows = await self._fetch(VERBS.declared, run_id)
        return Declaration(*rows[0]) if rows else None

    async def workflows(self, limit: int) -> list[Declaration]:
        return [Declaration(*row) for row in await self._fetch(VERBS.workflows, limit)]

    async def rivals(self, code: str, node: str = "") -> list[Rival]:
        return await self._on_pool(lambda connection: _rivals(connection, code, node))

    async def forget_workflows(self, epoch: int, before: float, limit: int) -> int:
        return len(await self._fetch(VERBS.forget_workflows, epoch, before, limit))


async def declare(
    connection: asyncpg.Connection[Any], node: str, claims: Claims, declared: Sequence[Declaration]
) -> None:
    """Enter what a node declares, unless its names are taken. In the transaction of its registration."""
    if claims.code:
        await connection.execute(VERBS.register_in_turn)
        demand_names(claims, await _rivals(connection, claims.code, node))
    if declared:
        rows = [astuple(one)[:TOLD] for one in declared]
        await connection.execute(VERBS.declare, *columns(rows, TOLD), NOTED_EVERY_S)


async def _rivals(connection: asyncpg.Connection[Any], code: str, node: str) -> list[Rival]:
    return [Rival(*row) for row in await connection.fetch(VERBS.rivals, code, node)]
