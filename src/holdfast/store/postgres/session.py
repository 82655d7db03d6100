"""Runs statements on one connection to PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import asyncpg

from holdfast.store.answers import PreconditionFailed
from holdfast.store.batch import WriteBatch
from holdfast.store.claims import RunClaim, StepClaim
from holdfast.store.database import Row
from holdfast.store.postgres.verbs import STATEMENTS, PostgresVerb
from holdfast.store.postgres.walks import RunWalker, StepWalker
from holdfast.store.verbs import Verb
from holdfast.store.walk import walk

_WHOLE = STATEMENTS.whole
FAILED_PRECONDITION = "HF001"
"""The SQLSTATE that the function `holdfast.demand` raises."""

HOP_PARTS = (
    (Verb.begin_runs, "begun_run"),
    (Verb.own_runs, "owned_run"),
    (Verb.record_outcomes, "ended_step"),
    (Verb.deliver_steps, "delivered_step"),
    (Verb.issue_steps, "issued_step"),
    (Verb.close_runs, "closed_run"),
    (Verb.keep_logs, "logged_part"),
    (Verb.issue_queued, "placed_step"),
)
"""The parts of a hop: the verb, and the type of its rows. Their arrays are $2 to $9, in this order. Most batches have no
logs and no steps with a queue, and then their statement has no $8 or $9."""
LOGS_AT = 6


@cache
def hop_of(*has_rows: bool) -> str:
    """Return the statement that writes the hops of a batch which has rows for these parts of a hop. The statement
    raises if a part changes another number of rows than were sent.

    Parts without rows are left out. The server opens all tables and indexes that a statement names, and that takes
    longer than the work for a single run.
    """
    parts, demands = [], ["$1::text IS NOT NULL"]  # an argument that the statement does not use has no type
    for number, ((verb, row), has) in enumerate(zip(HOP_PARTS, has_rows, strict=False), start=2):
        if has:
            parts.append(f"{verb} AS (\n{_WHOLE[verb]})")
        count = f"(SELECT count(*) FROM {verb})" if has else "0"  # noqa: S608  the verb is one of HOP_PARTS
        demands.append(f"{count} = cardinality(${number}::holdfast.{row}[])")
    return f"WITH {', '.join(parts)}\nSELECT holdfast.demand({' AND '.join(demands)})"


@cache
def demanded(verb: Verb) -> str:
    """Return the statement of this verb, extended so that it raises unless each of its rows has changed one."""
    return (
        f"WITH changed AS (\n{_WHOLE[verb]}\nRETURNING 1)\n"  # noqa: S608  our own statement
        "SELECT holdfast.demand((SELECT count(*) FROM changed) = cardinality($1))"
    )


class PostgresSession:
    __slots__ = ("_connection",)

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self._connection = connection

    def _statement(self, verb: str) -> str:
        return _WHOLE[verb]

    async def now(self) -> float:
        at: float = await self._connection.fetchval(self._statement(PostgresVerb.store_now))
        return at

    async def rows(self, verb: Verb, *values: Any) -> list[Row]:
        return await self._connection.fetch(self._statement(verb), *values)

    async def row(self, verb: Verb, *values: Any) -> Row | None:
        found = await self._connection.fetch(self._statement(verb), *values)
        return found[0] if found else None

    async def value(self, verb: Verb, *values: Any) -> Any:
        found = await self._connection.fetch(self._statement(verb), *values)
        return found[0][0] if found else None

    async def run(self, verb: Verb, *values: Any) -> int:
        return _count(await self._connection.execute(self._statement(verb), *values))

    async def each(self, verb: Verb, rows: Sequence[Row], *same: Any) -> int:
        if not rows:
            return 0
        return _count(await self._connection.execute(self._statement(verb), *_columns(rows), *same))

    async def all(self, verb: Verb, rows: Sequence[Row], *same: Any) -> list[Row]:
        if not rows:
            return []
        return await self._connection.fetch(self._statement(verb), *_columns(rows), *same)

    async def demand(self, verb: Verb, rows: Sequence[Row]) -> None:
        await self._demand(demanded(verb), *_columns(rows))

    async def lock(self, batch: WriteBatch) -> None:
        """Lock the rows that the batch shares with others, if it writes them with several statements."""
        runs, steps = batch.shared
        if runs:
            await self._connection.fetch(self._statement(PostgresVerb.lock_batch_runs), runs)
        if steps:
            await self._connection.fetch(self._statement(PostgresVerb.lock_batch_steps), *_columns(steps))

    async def hop(self, batch: WriteBatch) -> None:
        rows = [batch.begun, batch.owned, batch.recorded, batch.delivered, batch.issued, batch.closed]
        if logged := batch.logged_with_hops:
            rows.append(logged)
        if batch.queued:
            rows += [batch.queued] if logged else [[], batch.queued]
        await self._demand(hop_of(*map(bool, rows)), batch.node, *rows)

    async def keep_logs(self, rows: Sequence[Row]) -> None:
        parts: list[Sequence[Row]] = [[] for _ in HOP_PARTS[:LOGS_AT]]
        await self._demand(hop_of(*map(bool, parts), True), "", *parts, rows)

    async def _demand(self, statement: str, *values: Any) -> None:
        try:
            await self._connection.fetch(statement, *values)
        except asyncpg.PostgresError as error:
            if error.sqlstate == FAILED_PRECONDITION:
                raise PreconditionFailed from error
            raise

    async def claim_steps(self, claim: StepClaim) -> list[Row]:
        if claim.turns is not None:
            return await walk(StepWalker(self._connection, claim), claim.turns, claim.limit)
        lanes = list(claim.lanes)
        if claim.probes_of is not None:
            values = (claim.node, lanes, claim.limit, claim.probes_of, claim.runs)
            return await self._connection.fetch(self._statement(PostgresVerb.claim_probes), *values)
        wanted = (claim.node, lanes, claim.limit, claim.suspect_losses, claim.suspects)
        if claim.runs is None:
            return await self._connection.fetch(self._statement(Verb.claim_steps), *wanted)
        return await self._connection.fetch(self._statement(PostgresVerb.claim_steps_of), *wanted, claim.runs)

    async def any_steps(self, claim: StepClaim) -> bool:
        """Return True. This is never called, because claims make nobody wait here."""
        return True

    async def claim_runs(self, claim: RunClaim) -> list[Row]:
        names = [name for name, _ in claim.workflows]
        wanted = (claim.node, names, [version for _, version in claim.workflows])
        fetch = self._connection.fetch
        claimed: list[Row]
        if claim.runs is not None:
            claimed = await fetch(
                self._statement(PostgresVerb.claim_runs_of), *wanted, claim.limit, claim.runs
            )
        else:
            claimed = await fetch(
                self._statement(PostgresVerb.claim_awake), *wanted, claim.limit, claim.steps_max
            )
        limit = claim.limit - len(claimed)
        if limit <= 0:
            return claimed
        if claim.turns is not None:
            claimed += await walk(RunWalker(self._connection, claim), claim.turns, limit)
        elif claim.runs is None:
            claimed += await fetch(
                self._statement(PostgresVerb.claim_pending), *wanted, limit, claim.steps_max
            )
        return claimed

    async def any_runs(self, claim: RunClaim) -> bool:
        """Return True. This is never called, because claims make nobody wait here."""
        return True

    async def in_turn(self) -> None:
        await self._connection.execute(self._statement(PostgresVerb.register_in_turn))

    async def by_index(self) -> None:
        await self._connection.execute(self._statement(PostgresVerb.by_index))

    async def follow_clock(self) -> None:
        """Do nothing: the server has its own clock."""


def _columns(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Turn rows into columns: the arrays that a statement unnests."""
    return list(zip(*rows, strict=True))


def _count(tag: str) -> int:
    """Return how many rows a statement changed, from the server's command tag, such as `UPDATE 3` or `INSERT 0 3`."""
    return int(tag.rsplit(" ", 1)[-1])
