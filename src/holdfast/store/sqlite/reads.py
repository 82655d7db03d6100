"""What anybody may read."""

from __future__ import annotations

import json
from collections.abc import Sequence

from holdfast.model import Attempt, Inherited, JournalEntry, Leader, Node, Run, Signal, Step
from holdfast.store.protocol import RunFilter
from holdfast.store.sqlite.dialect import Dialect
from holdfast.store.sqlite.retries import inherited
from holdfast.store.sqlite.rows import attempt_of, fetch, run_of, signal_of, step_of
from holdfast.store.sqlite.verbs import VERBS

END_OF_TIME = 1e18


class Reading(Dialect):
    async def now(self) -> float:
        return self._clock.now()

    async def run(self, run_id: str) -> Run | None:
        async with self._database.reading() as connection:
            row = connection.execute(VERBS.run, (run_id,)).get
            return None if row is None else run_of(row)

    async def runs(self, where: RunFilter) -> list[Run]:
        at, after = where.before or (END_OF_TIME, "")
        wanted = {
            "at": at,
            "id": after,
            "states": json.dumps(where.states),
            "workflow": where.workflow,
            "tags": json.dumps(where.tags),
            "limit": where.limit,
        }
        async with self._database.reading() as connection:
            return [run_of(row) for row in connection.execute(VERBS.runs, wanted)]

    async def ended_runs(self, run_ids: Sequence[str]) -> list[Run]:
        async with self._database.reading() as connection:
            asked = ((run_id,) for run_id in run_ids)
            return [run_of(row) for row in connection.executemany(VERBS.ended_run, asked)]

    async def unknown_runs(self, run_ids: Sequence[str]) -> list[str]:
        async with self._database.reading() as connection:
            asked = ((run_id,) for run_id in run_ids)
            return [row[0] for row in connection.executemany(VERBS.unknown_run, asked)]

    async def runs_by_state(self) -> dict[str, int]:
        return dict(await self._database.read_long(lambda connection: fetch(connection, VERBS.runs_by_state)))

    async def steps(self, run_id: str, *, after: int = 0, limit: int = 1000) -> list[Step]:
        async with self._database.reading() as connection:
            return [step_of(row) for row in connection.execute(VERBS.steps, (run_id, after, limit))]

    async def attempts(self, run_id: str) -> list[Attempt]:
        async with self._database.reading() as connection:
            return [attempt_of(row) for row in connection.execute(VERBS.attempts, (run_id,))]

    async def signals(self, run_id: str) -> list[Signal]:
        async with self._database.reading() as connection:
            return [signal_of(row) for row in connection.execute(VERBS.signals, (run_id,))]

    async def children(self, run_id: str) -> list[Run]:
        async with self._database.reading() as connection:
            return [run_of(row) for row in connection.execute(VERBS.children, (run_id,))]

    async def joins(self, run_id: str) -> dict[int, str]:
        async with self._database.reading() as connection:
            return dict(fetch(connection, VERBS.joins, (run_id,)))

    async def inherited(self, run_id: str) -> list[Inherited]:
        async with self._database.reading() as connection:
            return inherited(connection, run_id)

    async def nodes(self) -> list[Node]:
        async with self._database.reading() as connection:
            return [Node(*row) for row in connection.execute(VERBS.nodes)]

    async def loads(self) -> dict[str, tuple[int, int]]:
        async with self._database.reading() as connection:
            held, owned = (
                dict(fetch(connection, VERBS.held_counts)),
                dict(fetch(connection, VERBS.owned_counts)),
            )
        return {node: (held.get(node, 0), owned.get(node, 0)) for node in held.keys() | owned.keys()}

    async def journal(self, run_id: str | None, limit: int = 100) -> list[JournalEntry]:
        async with self._database.reading() as connection:
            if run_id is None:
                rows = connection.execute(VERBS.journal, (limit,))
            else:
                rows = connection.execute(VERBS.journal_of_run, (run_id, limit))
            return [JournalEntry(*row) for row in rows]

    async def living(self, limit: int) -> list[Node]:
        async with self._database.reading() as connection:
            return [Node(*row) for row in connection.execute(VERBS.living, (limit,))]

    async def leader(self) -> Leader | None:
        async with self._database.reading() as connection:
            row = connection.execute(VERBS.leader, ("leader",)).get
            return None if row is None or row[0] is None else Leader(*row)

    async def doctor(self) -> list[tuple[str, str, int]]:
        return await self._database.read_long(lambda connection: fetch(connection, VERBS.doctor))
