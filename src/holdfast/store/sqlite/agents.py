"""What an agent asks: steps to hold, and whether it still holds them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import apsw

from holdfast.model import Lane
from holdfast.store.answers import ClaimedStep
from holdfast.store.protocol import LOSSES_NEVER
from holdfast.store.sqlite.dialect import Dialect
from holdfast.store.sqlite.rows import fetch
from holdfast.store.sqlite.verbs import VERBS

ABOVE_ALL = 2**31
"""Higher than any priority."""
Due = tuple[int, float, str, int, int, int]
"""(-priority, ready_at, run, n, fence, losses): sorts by priority, then age."""


class Working(Dialect):
    async def lanes(self) -> list[Lane]:
        async with self._database.reading() as connection:
            rows = fetch(connection, VERBS.lanes)
            return [
                Lane(lane, name, tuple(json.loads(needs)), undo, depends)
                for lane, name, needs, undo, depends in rows
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
        below = LOSSES_NEVER if suspects else suspect_losses
        async with self._database.reading() as connection:
            if not connection.execute(VERBS.any_ready).get:
                return []  # the usual case of a poll, whatever the number of lanes
            lanes = passable(connection, lanes)
            if not due_steps(connection, lanes, self._clock.now(), 1, below, runs):
                return []  # an idle agent does not take the write lock
        async with self._database.transaction() as connection:
            now = self._clock.now()
            if not connection.execute(VERBS.is_live, (node,)).get:
                return []  # a node that was buried claims nothing more
            due = due_steps(connection, passable(connection, lanes), now, limit, below, runs)
            if suspects:
                suspected = [one for one in due if one[-1] >= suspect_losses]
                due = [one for one in due if one[-1] < suspect_losses] + suspected[:suspects]
            return claim_due(connection, node, due, now)

    async def lost_steps(self, node: str, held: Sequence[tuple[str, int, int]]) -> list[tuple[str, int]]:
        async with self._database.reading() as connection:
            return [
                (run_id, n)
                for run_id, n, fence in held
                if not connection.execute(VERBS.holds_step, (run_id, n, fence, node)).get
            ]

    async def next_ready(self, lanes: Sequence[int], runs: Sequence[str] | None = None) -> float | None:
        now = self._clock.now()
        async with self._database.reading() as connection:
            if not connection.execute(VERBS.any_ready).get:
                return None
            if runs is not None:
                rows = (
                    row for run_id in runs for row in fetch(connection, VERBS.next_ready_of, (run_id, now))
                )
                return min((at for lane, at in rows if lane in lanes), default=None)
            times = [
                connection.execute(VERBS.next_ready, (lane, priority, now)).get
                for lane in lanes
                for priority in priorities(connection, lane)
            ]
        return min((at for at in times if at is not None), default=None)


def priorities(connection: apsw.Connection, lane: int) -> Iterator[int]:
    """The priorities that ready steps of a lane have, highest first."""
    priority = ABOVE_ALL
    while (found := connection.execute(VERBS.next_priority, (lane, priority)).get) is not None:
        priority = found
        yield priority


def passable(connection: apsw.Connection, lanes: Sequence[int]) -> list[int]:
    """The lanes that are not behind a gate."""
    shut = {row[0] for row in fetch(connection, VERBS.shut_lanes)}
    return [] if -1 in shut else [lane for lane in lanes if lane not in shut]


def claim_due(connection: apsw.Connection, node: str, due: Sequence[Due], now: float) -> list[ClaimedStep]:
    """Take these for the node."""
    rows = [(node, now, run_id, n, fence) for _, _, run_id, n, fence, _ in due]
    taken: list[Any] = connection.executemany(VERBS.claim_step, rows).fetchall()
    return [ClaimedStep(*row) for row in taken]


def due_steps(
    connection: apsw.Connection,
    lanes: Sequence[int],
    now: float,
    limit: int,
    losses_below: int = LOSSES_NEVER,
    runs: Sequence[str] | None = None,
) -> list[Due]:
    """Ready steps whose time has come, by priority, then age, that lost their agent less often; of these runs, if some are
    named."""
    found = []
    for run_id in runs or ():
        rows = fetch(connection, VERBS.due_steps_of, (run_id, now, losses_below))
        found += [(-row[0], *row[1:6]) for row in rows if row[6] in lanes]
    for lane in lanes if runs is None else ():
        wanted = limit
        for priority in priorities(connection, lane):
            rows = fetch(connection, VERBS.due_steps, (lane, priority, now, losses_below, wanted))
            found += [(-row[0], *row[1:]) for row in rows]
            wanted -= len(rows)
            if wanted <= 0:
                break
    found.sort()
    return found[:limit]
