"""Runs statements on one connection to SQLite.

Nothing here waits, because a statement uses only the page cache. So these coroutines never suspend, and no other task
of the process runs between two statements of a transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from holdfast.store.answers import PreconditionFailed
from holdfast.store.batch import WriteBatch
from holdfast.store.claims import RunClaim, StepClaim
from holdfast.store.database import Row
from holdfast.store.sqlite import claims
from holdfast.store.sqlite.clock import Clock
from holdfast.store.sqlite.verbs import STATEMENTS, SqliteVerb
from holdfast.store.sqlite.walks import RunWalker, StepWalker
from holdfast.store.verbs import Verb
from holdfast.store.walk import Turns, walk

_WHOLE = STATEMENTS.whole
_json = msgspec.json.Encoder().encode


class SqliteSession:
    __slots__ = ("_clock", "_connection", "_now")

    def __init__(self, connection: apsw.Connection, clock: Clock) -> None:
        self._connection, self._clock = connection, clock
        self._now = clock.begin_session()

    async def now(self) -> float:
        return self._now

    async def rows(self, verb: Verb, *values: Any) -> list[Row]:
        # This always reads all rows, because an unfinished statement keeps its snapshot open.
        return self._connection.execute(_WHOLE[verb], _bound(values)).fetchall()

    async def row(self, verb: Verb, *values: Any) -> Row | None:
        found = self._connection.execute(_WHOLE[verb], _bound(values)).fetchall()
        return found[0] if found else None

    async def value(self, verb: Verb, *values: Any) -> Any:
        row = await self.row(verb, *values)
        return None if row is None else row[0]

    async def run(self, verb: Verb, *values: Any) -> int:
        before = self._connection.total_changes()
        self._connection.execute(_WHOLE[verb], _bound(values)).fetchall()
        return self._connection.total_changes() - before

    async def each(self, verb: Verb, rows: Sequence[Row], *same: Any) -> int:
        before = self._connection.total_changes()
        self._many(verb, rows, same)
        return self._connection.total_changes() - before

    async def all(self, verb: Verb, rows: Sequence[Row], *same: Any) -> list[Row]:
        return self._many(verb, rows, same)

    async def demand(self, verb: Verb, rows: Sequence[Row]) -> None:
        self._demand(verb, rows)

    def _many(self, verb: Verb, rows: Sequence[Row], same: tuple[Any, ...]) -> list[Row]:
        if not rows:
            return []
        values = rows if not same else [(*row, *same) for row in rows]
        found: list[Row] = self._connection.executemany(_WHOLE[verb], values).fetchall()
        return found

    def _demand(self, verb: Verb, rows: Sequence[Row]) -> None:
        before = self._connection.total_changes()
        self._connection.executemany(_WHOLE[verb], rows)
        if self._connection.total_changes() - before != len(rows):
            raise PreconditionFailed

    async def hop(self, batch: WriteBatch) -> None:
        node, now = batch.node, self._now
        if batch.begun:
            # One look for all of them, because nobody else writes until this is committed.
            if not self._connection.execute(_WHOLE[SqliteVerb.is_member], (node,)).fetchall():
                raise PreconditionFailed
            self._demand(Verb.begin_runs, [(*row, node) for row in batch.begun])
        if batch.owned and len(self._many(Verb.own_runs, batch.owned, ())) != len(batch.owned):
            raise PreconditionFailed
        if batch.recorded:
            self._demand(Verb.record_outcomes, batch.recorded)
        if batch.delivered:
            self._demand(Verb.deliver_steps, batch.delivered)
        if batch.issued:
            self._demand(Verb.issue_steps, [(*row, node, now) for row in batch.issued])
        if batch.queued:
            self._demand(Verb.issue_queued, [(*row, node, now) for row in batch.queued])
        if batch.closed:
            self._demand(Verb.close_runs, batch.closed)
        if logged := batch.logged_with_hops:
            self._many(Verb.keep_logs, logged, ())

    async def keep_logs(self, rows: Sequence[Row]) -> None:
        self._many(Verb.keep_logs, rows, ())

    async def claim_steps(self, claim: StepClaim) -> list[Row]:
        if claim.turns is not None:
            walker = self._step_walker(claim)
            return [] if walker is None else await walk(walker, claim.turns, claim.limit)
        return claims.claim_steps(self._connection, claim, self._now)

    async def any_steps(self, claim: StepClaim) -> bool:
        if claim.turns is not None:
            return await self._look_for_steps(claim, claim.turns)
        return claims.any_steps(self._connection, claim, self._now)

    def _step_walker(self, claim: StepClaim) -> StepWalker | None:
        """Return what takes steps. None if there is nothing to take."""
        lanes = claims.open_lanes(self._connection, claim)
        return StepWalker(self._connection, self._now, claim, lanes) if lanes else None

    async def _look_for_steps(self, claim: StepClaim, turns: Turns) -> bool:
        walker = self._step_walker(claim)
        return walker is not None and await _look(walker, turns)

    async def claim_runs(self, claim: RunClaim) -> list[Row]:
        claimed = claims.claim_runs(self._connection, claim)
        if claim.turns is not None and len(claimed) < claim.limit:
            walker = RunWalker(self._connection, self._now, claim)
            claimed += await walk(walker, claim.turns, claim.limit - len(claimed))
        return claimed

    async def any_runs(self, claim: RunClaim) -> bool:
        if claims.any_runs(self._connection, claim):
            return True
        if claim.turns is None:
            return False
        walker = RunWalker(self._connection, self._now, claim)
        return await _look(walker, claim.turns)

    async def in_turn(self) -> None:
        """Do nothing: no two transactions write at the same time."""

    async def by_index(self) -> None:
        """Do nothing: the statements name their indexes."""

    async def follow_clock(self) -> None:
        if self._clock.follow_host(self._connection):
            self._now = self._clock.begin_session()


class CallersSession(SqliteSession):
    """Runs statements on a caller's connection, which has no function `store_now()`."""

    __slots__ = ()

    async def rows(self, verb: Verb, *values: Any) -> list[Row]:
        return self._connection.execute(self._timed(verb), _bound(values)).fetchall()

    def _many(self, verb: Verb, rows: Sequence[Row], same: tuple[Any, ...]) -> list[Row]:
        if not rows:
            return []
        found: list[Row] = self._connection.executemany(
            self._timed(verb), [(*row, *same) for row in rows]
        ).fetchall()
        return found

    def _timed(self, verb: Verb) -> str:
        return _WHOLE[verb].replace("store_now()", repr(self._now))


async def _look(walker: StepWalker | RunWalker, turns: Turns) -> bool:
    """Walk until there is something to take, or to write. Then the cursor stays, so that the claim goes the same way."""
    walker.is_look = True
    copied = turns.copied()
    found = await walk(walker, copied, 1)
    turns.learn(copied)
    if found or copied.saves:
        return True
    turns.go_on(copied)
    return False


def _bound(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Turn lists among the values into JSON arrays."""
    for value in values:
        if type(value) is list:
            return tuple([_json(one).decode() if type(one) is list else one for one in values])
    return values
