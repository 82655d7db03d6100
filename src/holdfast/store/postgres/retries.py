"""Retrying an ended run, inside whatever transaction asks for it.

Times are read by the codec of the pool's connections; the one that commits hops reads them as they are: nothing here looks
at them.
"""

from __future__ import annotations

from typing import Any

import asyncpg

from holdfast.model import Inherited, NewRun, Run
from holdfast.store import retries
from holdfast.store.children import ended, unended
from holdfast.store.postgres.rows import columns, run_of, signal_of, step_of
from holdfast.store.postgres.verbs import VERBS
from holdfast.store.retries import Way


async def again(connection: asyncpg.Connection[Any], run: Run) -> Run | None:
    """What the run was retried as."""
    row = await connection.fetchrow(VERBS.retried_as, run.id)
    return None if row is None else run_of(row)


async def newest(connection: asyncpg.Connection[Any], run_id: str | None) -> Run | None:
    """The last of this run's chain."""
    row = None if run_id is None else await connection.fetchrow(VERBS.run, run_id)
    run = None if row is None else run_of(row)
    while run is not None and (later := await again(connection, run)) is not None:
        run = later
    return run


async def retry(
    connection: asyncpg.Connection[Any],
    run: Run,
    *,
    wanted_id: str | None = None,
    parent: tuple[str | None, int | None] = (None, None),
) -> str:
    """Start a run that goes on from where this one ended, and keeps what the plan says; its id."""
    children = [run_of(row) for row in await connection.fetch(VERBS.children, run.id)]
    plan = retries.plan(
        run,
        [step_of(row) for row in await connection.fetch(VERBS.history_steps, [run.id])],
        [signal_of(row) for row in await connection.fetch(VERBS.signals, run.id)],
        {child.parent_n or 0: child for child in children},
        [Inherited(*row[1:]) for row in map(tuple, await connection.fetch(VERBS.inherited, [run.id]))],
    )
    for new_id in retries.next_ids(run, wanted_id):
        if await connection.fetchval(VERBS.copy_run, run.id, new_id, plan.kept_n, *parent):
            break
    await connection.execute(VERBS.copy_steps, run.id, new_id, *columns(plan.steps, 2))
    await connection.execute(VERBS.copy_signals, new_id, *columns(plan.signals, 2))
    taken = [(new_id, n, child_id) for child_id, n in plan.taken_over]
    await connection.execute(VERBS.take_over, *columns(taken, 3))
    heritage = [(one.key, one.effect, one.child) for one in plan.inherited]
    await connection.execute(VERBS.inherit, new_id, *columns(heritage, 3))
    return new_id


async def go_on(connection: asyncpg.Connection[Any], child: NewRun) -> bool:
    """Begin the child of a retried run from where the child before it ended; False when it is to be started like any other."""
    known = await newest(connection, child.retry_of)
    parent = child.parent_id, child.parent_n
    way = retries.way_of(child, known)
    if known is None or way is Way.ANEW:
        return False
    if way is Way.RETRY:
        await retry(connection, known, wanted_id=child.id, parent=parent)
        return True
    told = unended(child)
    if way is Way.TAKE_OVER:
        await connection.execute(VERBS.take_over, *columns([(*parent, known.id)], 3))
        told = ended(known.id, (told.run_id, told.n), (known.state, known.output, known.error))
    await connection.execute(VERBS.tell_parents, *columns([(*told, None)], 6))
    return True
