"""What the leader takes back. Every write checks its epoch in the same transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg
import msgspec

from holdfast.config import Config
from holdfast.model import StepState
from holdfast.store.answers import Reclaimed
from holdfast.store.offline import offline
from holdfast.store.postgres.alerts import alert_columns
from holdfast.store.postgres.pooled import Pooled
from holdfast.store.postgres.verbs import VERBS
from holdfast.store.protocol import GONE, LAPSED, LEFT
from holdfast.store.remedies import Held, Loss, Remedy, lost, overdue, remedy


class Supervising(Pooled):
    async def lead(self, node: str, lease_s: float, lease: str = "leader") -> int | None:
        rows = await self._fetch(VERBS.lead, node, lease_s, lease)
        return rows[0][0] if rows else None

    async def resign(self, node: str) -> None:
        await self._fetch(VERBS.resign, node)

    async def dead_nodes(self) -> list[tuple[str, str]]:
        dead = [(row["id"], GONE if row["gone"] else LAPSED) for row in await self._fetch(VERBS.dead_nodes)]
        return dead + [(row["id"], LEFT) for row in await self._fetch(VERBS.strangers)]

    async def reclaim(
        self, node: str, epoch: int, reason: str, losses_max: int, limit: int
    ) -> Reclaimed | None:
        config = msgspec.structs.replace(self._config, losses_max=losses_max)

        async def run(connection: asyncpg.Connection[Any]) -> Reclaimed | None:
            async with connection.transaction():
                row = await connection.fetchrow(VERBS.reclaim, node, epoch, limit, reason == LAPSED)
                if row is not None and row["alive"]:
                    return Reclaimed(0, 0, 0)
                if row is None or not row["leads"]:
                    return None
                held = await connection.fetch(VERBS.held_by, node, limit)
                remedies = await self._reclaim_steps(connection, held, lost(node, reason), config)
                failed = sum(one.state is StepState.FAILED for one in remedies)
                poison = sum(one.fingerprint is not None for one in remedies)
                place = await connection.fetchrow(VERBS.retire_reclaimed, node)
                note = (
                    f"{reason}: {row['runs']} runs freed, {len(held)} steps taken back, {failed} of them failed, "
                    f"{poison} in quarantine"
                )
                if place is not None:
                    told = alert_columns([offline(node, note, place)])
                    await connection.fetch(VERBS.raise_alerts, epoch, [], *told)
                if row["runs"] or held or place is not None:
                    said = ("supervisor", "reclaim", None, None, f"node {node}: {note}")
                    await connection.execute(VERBS.journal_add, *said)
                return Reclaimed(row["runs"], len(held), failed, poison)

        return await self._on_pool(run)

    async def _reclaim_steps(
        self, connection: asyncpg.Connection[Any], held: Sequence[asyncpg.Record], loss: Loss, config: Config
    ) -> list[Remedy]:
        """Take steps, whose rows are locked, from their agents, with what follows by their policies."""
        if not held:
            return []
        now: float = await connection.fetchval(VERBS.store_now)
        random = self._environment.random
        remedies = [remedy(Held(*row), loss, now=now, random=random, config=config) for row in held]
        columns = zip(
            *(
                (*one.step[:3], one.state, one.after_s, one.losses, one.timeouts, one.fingerprint)
                for one in remedies
            ),
            strict=True,
        )
        await connection.fetch(VERBS.reclaim_steps, *columns, loss.ending, loss.told, loss.kind, loss.place)
        return remedies

    async def close_signals(self, epoch: int, limit: int) -> int:
        tag = await self._on_pool(lambda connection: connection.execute(VERBS.close_signals, epoch, limit))
        return int(tag.rsplit(" ", 1)[-1])

    async def end_overdue(self, epoch: int, grace_s: float, limit: int) -> int:
        async def run(connection: asyncpg.Connection[Any]) -> int:
            async with connection.transaction():
                late = await connection.fetch(VERBS.overdue_steps, epoch, grace_s, limit)
                await self._reclaim_steps(connection, late, overdue(), self._config)
                for row in late:
                    await connection.execute(
                        VERBS.journal_add, "supervisor", "end_overdue", row[0], row[1], "attempt overdue"
                    )
                return len(late)

        return await self._on_pool(run)
