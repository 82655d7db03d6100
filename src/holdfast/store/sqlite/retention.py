"""Retention: ended runs go in batches of some hundred rows, each a transaction of its own."""

from __future__ import annotations

import apsw

from holdfast.store.answers import Pruned
from holdfast.store.sqlite.dialect import Dialect
from holdfast.store.sqlite.rows import fetch
from holdfast.store.sqlite.verbs import VERBS

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


class Retention(Dialect):
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
        asked = (state, before, *after, runs_max)
        async with self._database.reading() as connection:
            old = fetch(connection, VERBS.old_runs, asked)
            wanted = [run_id for run_id, _ in old if connection.execute(VERBS.prunable, (run_id,)).get]
        last = (old[-1][1], old[-1][0]) if len(old) == runs_max else None
        if not wanted:
            return Pruned(0, 0, last)
        runs = rows = 0
        async with self._database.transaction() as connection:
            now = self._clock.now()
            if epoch is not None and not connection.execute(VERBS.leads, (epoch, now)).get:
                return Pruned(0, 0, None)
            for run_id in wanted:
                if rows >= rows_max:
                    break
                if not connection.execute(VERBS.prunable, (run_id,)).get:
                    continue
                gone, empty = _empty_run(connection, run_id, rows_max - rows)
                rows += gone
                if empty:
                    connection.execute(VERBS.prune_run, (run_id,))
                    runs, rows = runs + 1, rows + 1
            if runs:
                note = f"{runs} runs that {state} removed, {rows} rows"
                self._journal(connection, actor, "prune", note)
        # Stopped by the number of rows: the same place again.
        return Pruned(runs, rows, last if rows < rows_max else after)

    async def count_old_runs(self, state: str, before: float) -> int:
        rows = await self._database.read_long(
            lambda connection: fetch(connection, VERBS.count_old_runs, (state, before))
        )
        return int(rows[0][0])

    async def prune_alerts(self, epoch: int, before: float, limit: int) -> int:
        async with self._database.reading() as connection:
            if not fetch(connection, VERBS.old_alerts, (before, 1)):
                return 0
        async with self._database.transaction() as connection:
            if not connection.execute(VERBS.leads, (epoch, self._clock.now())).get:
                return 0
            old = fetch(connection, VERBS.old_alerts, (before, limit))
            connection.executemany(VERBS.prune_deliveries, old)
            connection.executemany(VERBS.prune_alerts, old)
            return len(old)

    async def forget_nodes(self, epoch: int, before: float, limit: int) -> int:
        return await self._forget(epoch, VERBS.left_nodes, VERBS.forget_nodes, before, limit)

    async def forget_journal(self, epoch: int, before: float, limit: int) -> int:
        return await self._forget(epoch, VERBS.old_journal, VERBS.forget_journal, before, limit)

    async def _forget(self, epoch: int, find: str, forget: str, before: float, limit: int) -> int:
        async with self._database.reading() as connection:
            if not fetch(connection, find, (before, 1)):
                return 0
        async with self._database.transaction() as connection:
            if not connection.execute(VERBS.leads, (epoch, self._clock.now())).get:
                return 0
            old = fetch(connection, find, (before, limit))
            connection.executemany(forget, old)
            return len(old)


def _empty_run(connection: apsw.Connection, run_id: str, rows_max: int) -> tuple[int, bool]:
    """Remove what belongs to a run, at most so many rows; how many went, and whether nothing is left."""
    begun = connection.total_changes()
    for part in PARTS:
        gone = connection.total_changes() - begun
        connection.execute(part, (run_id, rows_max - gone))
        if connection.total_changes() - begun >= rows_max:
            return rows_max, False
    return connection.total_changes() - begun, True
