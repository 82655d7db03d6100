"""Breakers and holds: what agents tell and take, what the leader decides, what operators force."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from holdfast.breaker import Change, Look
from holdfast.model import Breaker, BreakerState, Hold, HoldScope
from holdfast.store.answers import ClaimedStep, Gates, Observation, Probes
from holdfast.store.sqlite.agents import claim_due, due_steps
from holdfast.store.sqlite.dialect import Dialect
from holdfast.store.sqlite.rows import Row, fetch
from holdfast.store.sqlite.verbs import VERBS

_STATES = {state.value: state for state in BreakerState}
_SCOPES = {scope.value: scope for scope in HoldScope}
_WIDTH = len(Breaker.__struct_fields__)


class Gating(Dialect):
    # --- agents ---------------------------------------------------------------------------------------------------

    async def gates(self, window_s: float) -> Gates:
        async with self._database.reading() as connection:
            found = fetch(connection, VERBS.gate_breakers, (self._clock.now() - window_s,))
            held = fetch(connection, VERBS.holds)
        return Gates([_breaker(row) for row in found], [_hold(row) for row in held])

    async def observe(self, tallies: Sequence[Observation], window_s: float) -> None:
        async with self._database.transaction() as connection:
            now = self._clock.now()
            for told in tallies:
                if told.round is None:
                    row: Row = (told.name, told.ok, told.failed, told.error, now, now - window_s)
                    connection.execute(VERBS.observe, row)
                else:
                    row = (told.name, told.round, told.ok, told.failed, told.error, now)
                    connection.execute(VERBS.observe_probes, row)

    async def claim_probes(
        self, node: str, name: str, lanes: Sequence[int], limit: int, runs: Sequence[str] | None = None
    ) -> Probes:
        async with self._database.reading() as connection:
            if not fetch(connection, VERBS.probing, (name,)) or not due_steps(
                connection, lanes, self._clock.now(), 1, runs=runs
            ):
                return Probes(0, [])
        async with self._database.transaction() as connection:
            found = fetch(connection, VERBS.probing, (name,))
            if not found or not connection.execute(VERBS.is_live, (node,)).get:
                return Probes(0, [])
            ((round_, allowance),) = found
            now = self._clock.now()
            mine = [row[0] for row in fetch(connection, VERBS.probe_lanes, (name, json.dumps(list(lanes))))]
            due = due_steps(connection, mine, now, min(allowance, limit), runs=runs)
            taken: list[ClaimedStep] = claim_due(connection, node, due, now)
            if taken:
                connection.execute(VERBS.take_allowance, (name, len(taken), now))
            return Probes(round_, taken)

    # --- the leader -----------------------------------------------------------------------------------------------

    async def breaker_looks(self, window_s: float) -> list[Look]:
        now = self._clock.now()
        async with self._database.reading() as connection:
            rows = fetch(connection, VERBS.breaker_looks, (now - window_s, now))
        return [Look(_breaker(row[:_WIDTH]), row[_WIDTH], bool(row[_WIDTH + 1])) for row in rows]

    async def change_breaker(self, epoch: int, name: str, round: int, change: Change) -> bool:
        async with self._database.transaction() as connection:
            now = self._clock.now()
            if not connection.execute(VERBS.leads, (epoch, now)).get:
                return False
            asked = (name, round, change.state, change.wave, change.open_s, change.note, now)
            changed = fetch(connection, VERBS.change_breaker, asked)
            if changed and change.journalled:
                note = f"{name}: {change.note}".strip(": ")
                self._journal(connection, "supervisor", f"breaker {change.state}", note)
            return bool(changed)

    async def give_back_probes(self, epoch: int, name: str, round: int, probes: int) -> bool:
        async with self._database.transaction() as connection:
            now = self._clock.now()
            if not connection.execute(VERBS.leads, (epoch, now)).get:
                return False
            return bool(fetch(connection, VERBS.give_back_probes, (name, round, probes, now)))

    # --- people ---------------------------------------------------------------------------------------------------

    async def breakers(self) -> list[Breaker]:
        async with self._database.reading() as connection:
            return [_breaker(row) for row in fetch(connection, VERBS.breakers)]

    async def holds(self) -> list[Hold]:
        async with self._database.reading() as connection:
            return [_hold(row) for row in fetch(connection, VERBS.holds)]

    async def add_hold(self, scope: HoldScope, value: str, actor: str, note: str) -> bool:
        row = (scope, value, actor, note, self._clock.now())
        said = f"{scope} {value}: {note}".strip(": ")
        return bool(await self._act(VERBS.add_hold, row, actor, "hold", said))

    async def remove_hold(self, scope: HoldScope, value: str, actor: str, note: str) -> bool:
        said = f"{scope} {value}: {note}".strip(": ")
        return bool(await self._act(VERBS.remove_hold, (scope, value), actor, "release", said))

    async def force_breaker(self, name: str, state: BreakerState, actor: str, note: str) -> Breaker:
        said = f"{name}: by hand: {note}".strip(": ")
        row = (name, state, actor, note, self._clock.now())
        (found,) = await self._act(VERBS.force_breaker, row, actor, f"breaker {state}", said)
        return _breaker(found)

    async def reset_breaker(self, name: str, actor: str, note: str) -> Breaker | None:
        said = f"{name}: {note}".strip(": ")
        row = (name, actor, note, self._clock.now())
        found = await self._act(VERBS.reset_breaker, row, actor, "breaker reset", said)
        return _breaker(found[0]) if found else None

    async def _act(self, statement: str, row: Row, actor: str, verb: str, said: str) -> list[Any]:
        """What an operator does, and its line in the journal if it changed anything."""
        async with self._database.transaction() as connection:
            found = fetch(connection, statement, row)
            if found:
                self._journal(connection, actor, verb, said)
            return found


def _breaker(row: Row) -> Breaker:
    values = dict(zip(Breaker.__struct_fields__, row, strict=True))
    values["state"], values["forced"] = _STATES[values["state"]], bool(values["forced"])
    return Breaker(**values)


def _hold(row: Row) -> Hold:
    scope, *rest = row
    return Hold(_SCOPES[scope], *rest)
