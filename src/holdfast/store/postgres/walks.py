"""The walk on PostgreSQL: what it asks, as statements on one connection in a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from holdfast.store.claims import LOSSES_NEVER, RunClaim, StepClaim
from holdfast.store.database import Row
from holdfast.store.postgres.verbs import STATEMENTS, PostgresVerb
from holdfast.store.saved_slots import SavedSlots
from holdfast.store.verbs import Verb
from holdfast.store.walk import Segment

_WHOLE = STATEMENTS.whole


class _Limits:
    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self._connection = connection

    async def _fetch(self, verb: str, *values: Any) -> list[Row]:
        return await self._connection.fetch(_WHOLE[verb], *values)

    async def lock(self, ids: Sequence[int]) -> set[int]:
        return {row[0] for row in await self._fetch(PostgresVerb.lock_limits, list(ids))}

    async def rooms(self, ids: Sequence[int]) -> Sequence[Row]:
        return await self._fetch(Verb.limit_rooms, list(ids))

    async def spend(self, tokens: Sequence[tuple[int, int]]) -> None:
        await self._connection.execute(
            _WHOLE[Verb.spend_tokens], [one for one, _ in tokens], [number for _, number in tokens]
        )

    async def save_slots(self, ids: Sequence[int], saved: SavedSlots) -> None:
        await self._connection.execute(_WHOLE[Verb.save_slots], list(ids), *saved)


class StepWalker(_Limits):
    def __init__(self, connection: asyncpg.Connection[Any], claim: StepClaim) -> None:
        super().__init__(connection)
        self._claim = claim
        self._suspects = LOSSES_NEVER if claim.probes_of is not None else claim.suspects

    async def levels(self) -> Sequence[tuple[int, int]]:
        claim = self._claim
        if claim.probes_of is None:
            found = await self._fetch(PostgresVerb.step_levels, claim.node, list(claim.lanes))
        else:
            found = await self._fetch(
                PostgresVerb.probe_levels, claim.node, list(claim.lanes), claim.probes_of
            )
        return [(row[0], row[1]) for row in found]

    async def queues(self, priority: int, ring: Sequence[Segment], keys: int) -> Sequence[Row]:
        wanted = (priority, *_columns(ring), keys)
        if self._claim.runs is None:
            return await self._fetch(Verb.step_queues, *wanted)
        return await self._fetch(Verb.step_queues_of, *wanted, list(self._claim.runs))

    async def take(
        self, priority: int, quotas: Sequence[tuple[int, int, int]], age_s: float | None
    ) -> Sequence[tuple[int, int, Row]]:
        claim = self._claim
        lanes, queues, most = _columns(quotas)
        wanted = (
            claim.node,
            lanes,
            queues,
            claim.suspect_losses,
            self._suspects,
            most,
            priority,
            age_s or 0.0,
        )
        if claim.runs is None:
            found = await self._fetch(PostgresVerb.take_steps, *wanted)
        else:
            found = await self._fetch(PostgresVerb.take_steps_of, *wanted, list(claim.runs))
        # A walk takes several times, and all of it is one claim.
        self._suspects -= sum(row["losses"] >= claim.suspect_losses for row in found)
        return [(row[0], row[1], tuple(row)[2:]) for row in found]

    async def wait_long(self, priority: int, lane: int, queue: int, seconds: float) -> bool:
        return bool(await self._fetch(Verb.steps_wait_long, lane, priority, queue, seconds))

    def adapted(self, row: Row, limits: tuple[int, ...]) -> Row:
        return row and (*row, limits)


class RunWalker(_Limits):
    """Its lanes are the workflows of the claim, by their numbers from 1 on."""

    def __init__(self, connection: asyncpg.Connection[Any], claim: RunClaim) -> None:
        super().__init__(connection)
        self._claim, self._codes = claim, sorted(claim.workflows)

    async def levels(self) -> Sequence[tuple[int, int]]:
        names, versions = _columns(self._codes)
        found = await self._fetch(PostgresVerb.run_levels, self._claim.node, names, versions)
        return [(row[0], row[1]) for row in found]

    async def queues(self, priority: int, ring: Sequence[Segment], keys: int) -> Sequence[Row]:
        codes = [self._codes[one.lane - 1] for one in ring]
        lanes, after, upto = _columns(ring)
        wanted = (priority, lanes, *_columns(codes), after, upto, keys)
        if self._claim.runs is None:
            return await self._fetch(Verb.run_queues, *wanted)
        return await self._fetch(Verb.run_queues_of, *wanted, list(self._claim.runs))

    async def take(
        self, priority: int, quotas: Sequence[tuple[int, int, int]], age_s: float | None
    ) -> Sequence[tuple[int, int, Row]]:
        claim = self._claim
        lanes, queues, most = _columns(quotas)
        codes = [self._codes[lane - 1] for lane in lanes]
        found = await self._fetch(
            Verb.take_runs,
            claim.node,
            *_columns(codes),
            queues,
            most,
            priority,
            age_s or 0.0,
            claim.steps_max,
            None if claim.runs is None else list(claim.runs),
        )
        lane_of = {code: number for number, code in enumerate(self._codes, 1)}
        return [(lane_of[_code(row)], row[0], tuple(row)[1:]) for row in found]

    async def wait_long(self, priority: int, lane: int, queue: int, seconds: float) -> bool:
        wanted = (*self._codes[lane - 1], priority, queue, seconds)
        return bool(await self._fetch(Verb.runs_wait_long, *wanted))

    def adapted(self, row: Row, limits: tuple[int, ...]) -> Row:
        return row


def _code(row: Row) -> tuple[str, str]:
    return row["workflow"], row["version"]


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]
