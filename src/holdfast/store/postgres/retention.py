"""Retention: ended runs go in batches of some hundred rows, each a transaction of its own."""

from __future__ import annotations

from typing import Any

import asyncpg

from holdfast.store.answers import Pruned
from holdfast.store.postgres.pooled import Pooled
from holdfast.store.postgres.verbs import VERBS

PARTS = (
    VERBS.prune_steps,
    VERBS.prune_attempts,
    VERBS.prune_signals,
    VERBS.prune_quarantine,
    VERBS.prune_twins,
    VERBS.prune_joins,
    VERBS.prune_inherited,
    VERBS.prune_journal,
)
"""What goes before the run itself, so that whatever is left after an interruption still has its run."""


class Retention(Pooled):
    async def prune(
        self,
        epoch: int | None,
        *,
        actor: str,
        state: str,
        before: float,
        after: tuple[float, str],
        runs_max: int,
        rows_max: int,
    ) -> Pruned:
        async def run(connection: asyncpg.Connection[Any]) -> Pruned:
            async with connection.transaction():
                await connection.execute(VERBS.by_index)
                old = await connection.fetch(VERBS.old_runs, epoch, state, before, *after, runs_max)
                last = (old[-1][1], old[-1][0]) if len(old) == runs_max else None
                wanted = await connection.fetch(VERBS.prunable, [row[0] for row in old])
                ids, rows = [row[0] for row in wanted], 0
                joined = {row[0] for row in await connection.fetch(VERBS.joined, ids)}
                ids = [run_id for run_id in ids if run_id not in joined]
                if not ids:
                    return Pruned(0, 0, last)
                for part in PARTS:
                    rows += _count(await connection.execute(part, ids, rows_max - rows))
                    if rows >= rows_max:  # something may be left: the same place again
                        return Pruned(0, rows, after)
                runs = _count(await connection.execute(VERBS.prune_runs, ids))
                note = f"{runs} runs that {state} removed, {rows + runs} rows"
                await connection.execute(VERBS.journal_add, actor, "prune", None, None, note)
                return Pruned(runs, rows + runs, last)

        return await self._on_pool(run)

    async def count_old_runs(self, state: str, before: float) -> int:
        return int((await self._fetch(VERBS.count_old_runs, state, before, patiently=True))[0][0])

    async def prune_alerts(self, epoch: int, before: float, limit: int) -> int:
        return len(await self._fetch(VERBS.prune_alerts, epoch, before, limit))

    async def forget_nodes(self, epoch: int, before: float, limit: int) -> int:
        return len(await self._fetch(VERBS.forget_nodes, epoch, before, limit))

    async def forget_journal(self, epoch: int, before: float, limit: int) -> int:
        return len(await self._fetch(VERBS.forget_journal, epoch, before, limit))


def _count(tag: str) -> int:
    return int(tag.rsplit(" ", 1)[-1])
