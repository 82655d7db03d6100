"""What agents claim and ask."""

from __future__ import annotations

import json
from collections.abc import Sequence

from holdfast.model import Lane
from holdfast.store.answers import ClaimedStep
from holdfast.store.postgres.pooled import Pooled
from holdfast.store.postgres.rows import columns
from holdfast.store.postgres.verbs import VERBS
from holdfast.store.protocol import LOSSES_NEVER


class Working(Pooled):
    async def lanes(self) -> list[Lane]:
        return [
            Lane(row[0], row[1], tuple(json.loads(row[2])), row[3], row[4])
            for row in await self._fetch(VERBS.lanes)
        ]

    async def claim_steps(
        self,
        node: str,
        lanes: Sequence[int],
        limit: int,
        *,
        suspect_losses: int = LOSSES_NEVER,
        suspects: int = 0,
        runs: Sequence[str] | None = None,
    ) -> list[ClaimedStep]:
        if runs is None:
            rows = await self._fetch(VERBS.claim_steps, node, lanes, limit, suspect_losses, suspects)
        else:
            rows = await self._fetch(VERBS.claim_steps_of, node, lanes, limit, suspect_losses, suspects, runs)
        return [ClaimedStep(*row) for row in rows]

    async def lost_steps(self, node: str, held: Sequence[tuple[str, int, int]]) -> list[tuple[str, int]]:
        rows = await self._fetch(VERBS.lost_steps, *columns(held, 3))
        return [(row[0], row[1]) for row in rows]

    async def next_ready(self, lanes: Sequence[int], runs: Sequence[str] | None = None) -> float | None:
        if runs is None:
            rows = await self._fetch(VERBS.next_ready, lanes)
        else:
            rows = await self._fetch(VERBS.next_ready_of, lanes, runs)
        return rows[0][0] if rows else None
