"""Steps that wait for a person: the list by fingerprint, what an operator decides, and runs that cannot go on without it."""

from __future__ import annotations

from typing import Any

import asyncpg

from holdfast.model import Poison, Quarantined
from holdfast.store.postgres.pooled import Pooled
from holdfast.store.postgres.verbs import VERBS


class Quarantining(Pooled):
    async def quarantine(self, limit: int) -> list[Poison]:
        return [Poison(*row) for row in await self._fetch(VERBS.quarantine, limit)]

    async def quarantined(self, run_id: str) -> list[Quarantined]:
        return [Quarantined(*row) for row in await self._fetch(VERBS.quarantined, run_id)]

    async def resolve_quarantine(
        self,
        act: str,
        *,
        fingerprint: str | None,
        run_id: str | None,
        before: float,
        result: bytes,
        actor: str,
        note: str,
        limit: int,
    ) -> int:
        async def run(connection: asyncpg.Connection[Any]) -> int:
            async with connection.transaction():
                found = await connection.fetch(VERBS.to_resolve, fingerprint, run_id, before, limit)
                # A run that was named goes on even if it has none: an operator's word gets it going, whatever came between.
                runs = sorted({row[0] for row in found} | ({run_id} if run_id is not None else set()))
                await connection.execute(VERBS.lock_runs, runs)
                asked = [row[0] for row in found], [row[1] for row in found]
                done = await connection.fetch(VERBS.resolve_steps, *asked, act, result)
                steps = [row[0] for row in done], [row[1] for row in done]
                await connection.execute(VERBS.forget_quarantined, *steps)
                await connection.execute(VERBS.unstick_quarantined, runs)
                alike = {(row[0], row[1]): row[2] for row in found}
                notes = [f"{alike[one]} {note}".rstrip() for one in zip(*steps, strict=True)]
                await connection.execute(VERBS.journal_resolved, actor, act, *steps, notes)
                return len(found)

        return await self._on_pool(run)

    async def stick_quarantined(self, epoch: int, limit: int) -> int:
        async def run(connection: asyncpg.Connection[Any]) -> int:
            async with connection.transaction():
                if await connection.fetchval(VERBS.leads, epoch) is None:
                    return 0
                await connection.execute(VERBS.stale_quarantined)
                found = await connection.fetch(VERBS.unmoving_runs, None, limit)
                if not found:
                    return 0
                runs = [row[0] for row in found]
                # With their rows locked, looked at again: their owners may have gone on meanwhile.
                await connection.execute(VERBS.lock_runs, runs)
                still = await connection.fetch(VERBS.unmoving_runs, runs, limit)
                note = "nothing is left to wait for but steps in quarantine"
                return len(await connection.fetch(VERBS.stick_runs, [row[0] for row in still], note))

        return await self._on_pool(run)
