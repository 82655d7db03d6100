"""What anybody may look at."""

from __future__ import annotations

import json
from collections.abc import Sequence

from holdfast.model import Attempt, Inherited, JournalEntry, Leader, Node, Run, Signal, Step
from holdfast.store.postgres.pooled import Pooled
from holdfast.store.postgres.rows import run_of, signal_of, step_of
from holdfast.store.postgres.verbs import VERBS
from holdfast.store.protocol import RunFilter


class Reading(Pooled):
    async def now(self) -> float:
        at: float = (await self._fetch(VERBS.store_now))[0][0]
        return at

    async def run(self, run_id: str) -> Run | None:
        rows = await self._fetch(VERBS.run, run_id)
        return run_of(rows[0]) if rows else None

    async def runs(self, where: RunFilter) -> list[Run]:
        at, after = where.before or (None, None)
        tags = json.dumps(where.tags) if where.tags else None
        asked = (list(where.states), where.workflow, at, after, tags, where.limit)
        rows = await self._fetch(VERBS.runs, *asked, patiently=True)
        return [run_of(row) for row in rows]

    async def ended_runs(self, run_ids: Sequence[str]) -> list[Run]:
        return [run_of(row) for row in await self._fetch(VERBS.ended_runs, run_ids)]

    async def unknown_runs(self, run_ids: Sequence[str]) -> list[str]:
        return [row[0] for row in await self._fetch(VERBS.unknown_runs, run_ids)]

    async def runs_by_state(self) -> dict[str, int]:
        rows = await self._fetch(VERBS.runs_by_state, patiently=True)
        return {row[0]: row[1] for row in rows}

    async def steps(self, run_id: str, *, after: int = 0, limit: int = 1000) -> list[Step]:
        return [step_of(row) for row in await self._fetch(VERBS.steps, run_id, after, limit)]

    async def attempts(self, run_id: str) -> list[Attempt]:
        return [Attempt(*row) for row in await self._fetch(VERBS.attempts, run_id)]

    async def signals(self, run_id: str) -> list[Signal]:
        return [signal_of(row) for row in await self._fetch(VERBS.signals, run_id)]

    async def children(self, run_id: str) -> list[Run]:
        return [run_of(row) for row in await self._fetch(VERBS.children, run_id)]

    async def joins(self, run_id: str) -> dict[int, str]:
        return {row[0]: row[1] for row in await self._fetch(VERBS.joins, run_id)}

    async def inherited(self, run_id: str) -> list[Inherited]:
        return [Inherited(*row[1:]) for row in map(tuple, await self._fetch(VERBS.inherited, [run_id]))]

    async def nodes(self) -> list[Node]:
        return [Node(*row) for row in await self._fetch(VERBS.nodes)]

    async def loads(self) -> dict[str, tuple[int, int]]:
        return {row[0]: (row[1], row[2]) for row in await self._fetch(VERBS.loads)}

    async def journal(self, run_id: str | None, limit: int = 100) -> list[JournalEntry]:
        return [JournalEntry(*row) for row in await self._fetch(VERBS.journal, run_id, limit)]

    async def living(self, limit: int) -> list[Node]:
        return [Node(*row) for row in await self._fetch(VERBS.living, limit)]

    async def leader(self) -> Leader | None:
        rows = await self._fetch(VERBS.leader)
        return Leader(*rows[0]) if rows else None

    async def doctor(self) -> list[tuple[str, str, int]]:
        return [(row[0], row[1], row[2]) for row in await self._fetch(VERBS.doctor, patiently=True)]
