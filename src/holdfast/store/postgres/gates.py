"""Breakers and holds: what agents tell and take, what the leader decides, what operators force."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from holdfast.breaker import Change, Look
from holdfast.model import Breaker, BreakerState, Hold, HoldScope
from holdfast.store.answers import ClaimedStep, Gates, Observation, Probes
from holdfast.store.postgres.pooled import Pooled
from holdfast.store.postgres.verbs import VERBS

_STATES = {state.value: state for state in BreakerState}
_SCOPES = {scope.value: scope for scope in HoldScope}


class Gating(Pooled):
    # --- agents ---------------------------------------------------------------------------------------------------

    async def gates(self, window_s: float) -> Gates:
        found = await self._fetch(VERBS.gate_breakers, window_s)
        return Gates([_breaker(row) for row in found], await self.holds())

    async def observe(self, tallies: Sequence[Observation], window_s: float) -> None:
        async def run(connection: asyncpg.Connection[Any]) -> None:
            async with connection.transaction():
                for told in sorted(tallies, key=lambda one: one.name):
                    if told.round is None:
                        await connection.execute(
                            VERBS.observe, told.name, told.ok, told.failed, told.error, window_s
                        )
                    else:
                        await connection.execute(
                            VERBS.observe_probes, told.name, told.round, told.ok, told.failed, told.error
                        )

        await self._on_pool(run)

    async def claim_probes(
        self, node: str, name: str, lanes: Sequence[int], limit: int, runs: Sequence[str] | None = None
    ) -> Probes:
        async def run(connection: asyncpg.Connection[Any]) -> Probes:
            async with connection.transaction():
                # The row's lock is held until the commit: nobody else takes from the allowance meanwhile.
                row = await connection.fetchrow(VERBS.probing, name)
                if row is None:
                    return Probes(0, [])
                taken = await connection.fetch(
                    VERBS.claim_probes, node, lanes, min(row["allowance"], limit), name, runs
                )
                if taken:
                    await connection.execute(VERBS.take_allowance, name, len(taken))
                return Probes(row["round"], [ClaimedStep(*one) for one in taken])

        return await self._on_pool(run)

    # --- the leader -----------------------------------------------------------------------------------------------

    async def breaker_looks(self, window_s: float) -> list[Look]:
        return [
            Look(_breaker(row), row["in_flight"], row["waiting"])
            for row in await self._fetch(VERBS.breaker_looks, window_s)
        ]

    async def change_breaker(self, epoch: int, name: str, round: int, change: Change) -> bool:
        asked = (epoch, name, round, change.state, change.wave, change.open_s, change.note)

        async def run(connection: asyncpg.Connection[Any]) -> bool:
            async with connection.transaction():
                if not await connection.fetch(VERBS.change_breaker, *asked):
                    return False
                if change.journalled:
                    note = f"{name}: {change.note}".strip(": ")
                    said = ("supervisor", f"breaker {change.state}", None, None, note)
                    await connection.execute(VERBS.journal_add, *said)
                return True

        return await self._on_pool(run)

    async def give_back_probes(self, epoch: int, name: str, round: int, probes: int) -> bool:
        return bool(await self._fetch(VERBS.give_back_probes, epoch, name, round, probes))

    # --- people ---------------------------------------------------------------------------------------------------

    async def breakers(self) -> list[Breaker]:
        return [_breaker(row) for row in await self._fetch(VERBS.breakers)]

    async def holds(self) -> list[Hold]:
        return [Hold(_SCOPES[row[0]], *tuple(row)[1:]) for row in await self._fetch(VERBS.holds)]

    async def add_hold(self, scope: HoldScope, value: str, actor: str, note: str) -> bool:
        said = (actor, "hold", None, None, f"{scope} {value}: {note}".strip(": "))
        return await self._act(VERBS.add_hold, (scope, value, actor, note), said) is not None

    async def remove_hold(self, scope: HoldScope, value: str, actor: str, note: str) -> bool:
        said = (actor, "release", None, None, f"{scope} {value}: {note}".strip(": "))
        return await self._act(VERBS.remove_hold, (scope, value), said) is not None

    async def force_breaker(self, name: str, state: BreakerState, actor: str, note: str) -> Breaker:
        said = (actor, f"breaker {state}", None, None, f"{name}: by hand: {note}".strip(": "))
        row = await self._act(VERBS.force_breaker, (name, state, actor, note), said)
        assert row is not None
        return _breaker(row)

    async def reset_breaker(self, name: str, actor: str, note: str) -> Breaker | None:
        said = (actor, "breaker reset", None, None, f"{name}: {note}".strip(": "))
        row = await self._act(VERBS.reset_breaker, (name, actor, note), said)
        return None if row is None else _breaker(row)

    async def _act(
        self, verb: str, arguments: tuple[Any, ...], said: tuple[Any, ...]
    ) -> asyncpg.Record | None:
        """What an operator does, and its line in the journal if it changed anything."""

        async def run(connection: asyncpg.Connection[Any]) -> asyncpg.Record | None:
            async with connection.transaction():
                row = await connection.fetchrow(verb, *arguments)
                if row is not None:
                    await connection.execute(VERBS.journal_add, *said)
                return row

        return await self._on_pool(run)


def _breaker(row: asyncpg.Record) -> Breaker:
    values = [row[field] for field in Breaker.__struct_fields__]
    values[1] = _STATES[values[1]]
    return Breaker(*values)
