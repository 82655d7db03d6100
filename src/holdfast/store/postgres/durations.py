"""What nodes learn from durations, and the twins that follow from it. Each method is one statement or one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from holdfast.model import Landmark, Twin, TwinState
from holdfast.store.answers import Answer, ClaimedStep, Overlong
from holdfast.store.postgres.pooled import Pooled
from holdfast.store.postgres.rows import columns
from holdfast.store.postgres.verbs import VERBS


class Learning(Pooled):
    async def add_durations(self, counts: Sequence[tuple[str, int, float]]) -> None:
        await self._fetch(VERBS.add_durations, *columns(counts, 3))

    async def durations(self, names: Sequence[str] | None = None) -> list[tuple[str, int, float]]:
        if names is None:
            rows = await self._fetch(VERBS.step_durations)
        else:
            rows = await self._fetch(VERBS.durations, list(names))
        return [(row[0], row[1], row[2]) for row in rows]

    async def fade_durations(self, epoch: int, *, attempts_max: float, keep_s: float, rows_max: int) -> int:
        halved = await self._fetch(VERBS.fade_durations, epoch, attempts_max)
        gone = await self._fetch(VERBS.forget_durations, epoch, keep_s, rows_max)
        return int(halved[0][0]) + len(gone)

    async def landmarks(self, run_ids: Sequence[str]) -> list[Landmark]:
        return [Landmark(*row) for row in await self._fetch(VERBS.landmarks, list(run_ids))]

    async def overlong_steps(self, bounds: Sequence[tuple[str, float]], limit: int) -> list[Overlong]:
        rows = await self._fetch(VERBS.overlong_steps, *columns(bounds, 2), limit)
        return [Overlong(*row) for row in rows]

    # --- twins --------------------------------------------------------------------------------------------------

    async def make_twins(self, epoch: int, steps: Sequence[tuple[str, int, int]]) -> list[tuple[str, int]]:
        rows = await self._fetch(VERBS.make_twins, epoch, *columns(steps, 3))
        return [(row[0], row[1]) for row in rows]

    async def sweep_twins(self, epoch: int, limit: int) -> int:
        return len(await self._fetch(VERBS.sweep_twins, epoch, limit))

    async def claim_twins(self, node: str, lanes: Sequence[int], limit: int) -> list[ClaimedStep]:
        return [
            ClaimedStep(**dict(row.items()))
            for row in await self._fetch(VERBS.claim_twins, node, list(lanes), limit)
        ]

    async def lost_twins(self, node: str, held: Sequence[tuple[str, int, int]]) -> list[tuple[str, int]]:
        rows = await self._fetch(VERBS.lost_twins, node, *columns(held, 3))
        return [(row[0], row[1]) for row in rows]

    async def end_twin(
        self, node: str, twin: tuple[str, int, int], state: TwinState, output: bytes | None, outran: str
    ) -> Answer:
        run_id, n, _ = twin

        async def run(connection: asyncpg.Connection[Any]) -> Answer:
            async with connection.transaction():
                row = await connection.fetchrow(VERBS.end_twin, *twin, node, str(state))
                if row is None:
                    won = await connection.fetchval(VERBS.twin_won_before, *twin, node)
                    return Answer.DUPLICATE if won and state is TwinState.WON else Answer.FENCED
                if state is not TwinState.WON:
                    return Answer.ACCEPTED
                await connection.execute(VERBS.keep_outrun, run_id, n, outran)
                if await connection.fetchval(VERBS.take_twins_outcome, run_id, n, output, node, row[0]):
                    return Answer.ACCEPTED
                await connection.execute(VERBS.outrun_twin, run_id, n)
                return Answer.FENCED

        return await self._on_pool(run)

    async def bar_twin(self, run_id: str, n: int) -> Twin:
        async def run(connection: asyncpg.Connection[Any]) -> Twin:
            async with connection.transaction():
                await connection.execute(VERBS.bar_twin, run_id, n)
                row = await connection.fetchrow(VERBS.twin, run_id, n)
                assert row is not None
                return _twin(row)

        return await self._on_pool(run)

    async def stop_twin(self, run_id: str, n: int) -> None:
        await self._fetch(VERBS.stop_twin, run_id, n)

    async def twins(self, run_id: str) -> list[Twin]:
        return [_twin(row) for row in await self._fetch(VERBS.twins, run_id)]


def _twin(row: asyncpg.Record) -> Twin:
    run_id, n, state, *rest = row
    return Twin(run_id, n, TwinState(state), *rest)
