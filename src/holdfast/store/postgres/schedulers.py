"""What schedulers claim, read and fire."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import asyncpg

from holdfast.model import Inherited
from holdfast.store.answers import Answer, ClaimedRun, Recorded, Undelivered
from holdfast.store.children import ended
from holdfast.store.postgres.pooled import Pooled
from holdfast.store.postgres.rows import STEP_STATES, columns, run_of, signal_of, step_of
from holdfast.store.postgres.verbs import VERBS
from holdfast.store.protocol import LaneKey


class Scheduling(Pooled):
    async def claim_runs(
        self,
        node: str,
        workflows: Sequence[tuple[str, str]],
        limit: int,
        runs: Sequence[str] | None = None,
    ) -> list[ClaimedRun]:
        names = [name for name, _ in workflows]
        versions = [version for _, version in workflows]
        if runs is not None:
            rows = await self._fetch(VERBS.claim_runs_of, node, names, versions, limit, runs)
            return await self._with_history(rows)
        steps_max = self._config.replay_slice_steps
        awake = await self._fetch(VERBS.claim_awake, node, names, versions, limit, steps_max)
        claimed = await self._with_history(awake)
        limit -= len(claimed)
        steps_max -= sum(len(run.steps) for run in claimed)
        if limit > 0 and steps_max > 0:
            pending = await self._fetch(VERBS.claim_pending, node, names, versions, limit, steps_max)
            claimed += await self._with_history(pending)
        return claimed

    async def claim_run(self, node: str, run_id: str) -> ClaimedRun | None:
        claimed = await self._with_history(await self._fetch(VERBS.claim_run, node, run_id))
        return claimed[0] if claimed else None

    async def _with_history(self, rows: list[asyncpg.Record], *, new: bool = True) -> list[ClaimedRun]:
        claimed = {row["id"]: ClaimedRun(run_of(row), [], [], []) for row in rows}
        # A run that never had an owner before has no history to read, though signals may already wait for it.
        older = [row["id"] for row in rows if not new or row["fence"] > 1 or row["retry_of"] is not None]
        for start in range(0, len(older), 100):
            part = older[start : start + 100]
            for row in await self._fetch(VERBS.history_steps, part):
                claimed[row["run_id"]].steps.append(step_of(row))
        retried = [row["id"] for row in rows if row["retry_of"] is not None and new]
        if retried:
            for row in await self._fetch(VERBS.inherited, retried):
                claimed[row["run_id"]].inherited.append(Inherited(row["key"], row["effect"], row["child"]))
        if claimed and new:
            for row in await self._fetch(VERBS.history_signals, list(claimed)):
                claimed[row["run_id"]].signals.append(signal_of(row))
        return list(claimed.values())

    async def undelivered(self, node: str, limit: int) -> Undelivered:
        return Undelivered(
            [
                Recorded(run_id, n, STEP_STATES[state], output, error, at)
                for run_id, n, state, output, error, at in await self._fetch(
                    VERBS.undelivered_steps, node, limit
                )
            ],
            [signal_of(row) for row in await self._fetch(VERBS.undelivered_signals, node, limit)],
        )

    async def fire_timers(self, limit: int) -> int:
        return len(await self._fetch(VERBS.fire_timers, limit))

    async def answer_joins(self, limit: int) -> int:
        if not await self._fetch(VERBS.due_joins, 1):
            return 0

        async def run(connection: asyncpg.Connection[Any]) -> int:
            async with connection.transaction():
                due = await connection.fetch(VERBS.due_joins, limit)
                told = [ended(row[0], (row[1], row[2]), (row[3], row[4], row[5])) for row in due]
                if told:
                    await connection.execute(VERBS.tell_parents, *columns([(*one, None) for one in told], 6))
                    await connection.execute(
                        VERBS.forget_joins, *columns([(one.run_id, one.n) for one in told], 2)
                    )
                return len(told)

        return await self._on_pool(run)

    async def next_timer(self) -> float | None:
        rows = await self._fetch(VERBS.next_timer)
        return rows[0][0] if rows else None

    async def hold_run(self, run_id: str, fence: int, note: str) -> Answer:
        rows = await self._fetch(VERBS.hold_run, run_id, fence, note)
        return Answer.ACCEPTED if rows else Answer.FENCED

    async def child_histories(self, run_id: str) -> list[ClaimedRun]:
        return await self._with_history(await self._fetch(VERBS.children, run_id), new=False)

    async def number_lanes(self, lanes: Sequence[LaneKey]) -> list[int]:
        asked = [(name, json.dumps(needs), undo or "", depends) for name, needs, undo, depends in lanes]
        known: dict[tuple[str, ...], int] = {}
        # Two nodes may make one lane at once: the loser's statement sees neither row, and asks again.
        while missing := sorted(set(asked) - known.keys()):
            rows = await self._fetch(VERBS.number_lanes, *map(list, zip(*missing, strict=True)))
            known.update((tuple(row)[1:], row[0]) for row in rows)
        return [known[lane] for lane in asked]

    async def lost_runs(self, node: str, held: Sequence[tuple[str, int]]) -> list[str]:
        rows = await self._fetch(
            VERBS.lost_runs, node, [run_id for run_id, _ in held], [fence for _, fence in held]
        )
        return [row[0] for row in rows]
