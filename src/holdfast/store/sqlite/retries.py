"""Retrying an ended run, inside whatever transaction asks for it."""

from __future__ import annotations

import apsw

from holdfast.model import Inherited, NewRun, Run
from holdfast.store import retries
from holdfast.store.children import ended, unended
from holdfast.store.retries import Way
from holdfast.store.sqlite.rows import fetch, run_of, signal_of, step_of, told_row
from holdfast.store.sqlite.verbs import VERBS


def run_with(connection: apsw.Connection, run_id: str | None) -> Run | None:
    row = None if run_id is None else connection.execute(VERBS.run, (run_id,)).get
    return None if row is None else run_of(row)


def again(connection: apsw.Connection, run: Run) -> Run | None:
    """What the run was retried as."""
    return run_with(connection, connection.execute(VERBS.retried_as, (run.id,)).get)


def newest(connection: apsw.Connection, run: Run | None) -> Run | None:
    """The last of its chain."""
    while run is not None and (later := again(connection, run)) is not None:
        run = later
    return run


def inherited(connection: apsw.Connection, run_id: str) -> list[Inherited]:
    return [Inherited(*row) for row in fetch(connection, VERBS.inherited, (run_id,))]


def retry(
    connection: apsw.Connection,
    run: Run,
    now: float,
    *,
    wanted_id: str | None = None,
    parent: tuple[str | None, int | None] = (None, None),
) -> str:
    """Start a run that goes on from where this one ended, and keeps what the plan says; its id."""
    children = [run_of(row) for row in fetch(connection, VERBS.children, (run.id,))]
    plan = retries.plan(
        run,
        [step_of(row) for row in fetch(connection, VERBS.steps, (run.id, 0, -1))],
        [signal_of(row) for row in fetch(connection, VERBS.signals, (run.id,))],
        {child.parent_n or 0: child for child in children},
        inherited(connection, run.id),
    )
    new_id = next(
        one
        for one in retries.next_ids(run, wanted_id)
        if fetch(connection, VERBS.copy_run, (run.id, one, now, plan.kept_n, *parent))
    )
    connection.executemany(VERBS.copy_step, [(run.id, new_id, *kept) for kept in plan.steps])
    connection.executemany(VERBS.copy_signal, [(new_id, *kept) for kept in plan.signals])
    connection.executemany(VERBS.take_over, [(new_id, n, child_id) for child_id, n in plan.taken_over])
    heritage = [(new_id, one.key, one.effect, one.child) for one in plan.inherited]
    connection.executemany(VERBS.inherit, heritage)
    return new_id


def go_on(connection: apsw.Connection, child: NewRun, now: float) -> bool:
    """Begin the child of a retried run from where the child before it ended; False when it is to be started like any other."""
    known = newest(connection, run_with(connection, child.retry_of))
    parent = child.parent_id, child.parent_n
    way = retries.way_of(child, known)
    if known is None or way is Way.ANEW:
        return False
    if way is Way.RETRY:
        retry(connection, known, now, wanted_id=child.id, parent=parent)
        return True
    told = unended(child)
    if way is Way.TAKE_OVER:
        connection.execute(VERBS.take_over, (*parent, known.id))
        told = ended(known.id, (told.run_id, told.n), (known.state, known.output, known.error))
    connection.execute(VERBS.tell_parents, told_row(told, now))
    return True
