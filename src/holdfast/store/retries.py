"""A retry: a run that goes on from where another ended.

It keeps all that was recorded, handled failures included, but
what ended the run and what was undone: that is done again. A step that may have had its effect, and was not undone, keeps
its `here.key`; what was undone gets a new one. A child that succeeded belongs to the new run from then on; one that did not
is retried itself, when the code asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from holdfast import codec
from holdfast.errors import WrongState
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import (
    DEADLINE,
    UNDO_PREFIX,
    Inherited,
    NewRun,
    RunRow,
    RunState,
    SignalRow,
    StepKind,
    StepRow,
    StepState,
    undone_key,
)
from holdfast.store.database import Session
from holdfast.store.rows import run_of, step_of
from holdfast.store.verbs import Verb

_SUCCEEDED, _FAILED = StepState.SUCCEEDED, StepState.FAILED


class Way(Enum):
    """How a child of a retried run begins, whose step had a child in the run before."""

    ANEW = "anew"
    """That run is gone, or was asked for something else: as any other child."""
    TAKE_OVER = "take over"
    """It succeeded, and nobody heard of it: it is the child."""
    RETRY = "retry"
    WAIT = "wait"
    """It has not ended: nothing can go on from it yet."""


def way_of(child: NewRun, known: RunRow | None) -> Way:
    if known is None or (known.workflow, known.digest) != (child.workflow, child.digest):
        return Way.ANEW
    if known.state is RunState.SUCCEEDED:
        return Way.TAKE_OVER
    return Way.RETRY if known.state in RUN_ENDED else Way.WAIT


class Plan(NamedTuple):
    steps: list[tuple[int, int | None]]
    """(n, place in the history) of the rows that are kept. None: an outcome that is still to be delivered."""
    signals: list[tuple[int, int | None]]
    """(number, place in the history) of all that was ever sent to the run."""
    taken_over: list[tuple[str, int]]
    """(id, n of the step that asked for it) of children that belong to the new run from now on."""
    inherited: list[Inherited]
    kept_n: int


async def retried_as(session: Session, run: RunRow) -> RunRow | None:
    """What the run was retried as."""
    row = await session.row(Verb.retried_as, run.id)
    return None if row is None else run_of(row)


async def newest(session: Session, run_id: str | None) -> RunRow | None:
    """The last of this run's chain of retries."""
    row = None if run_id is None else await session.row(Verb.run, run_id)
    run = None if row is None else run_of(row)
    while run is not None and (later := await retried_as(session, run)) is not None:
        run = later
    return run


async def inherited(session: Session, run_ids: Sequence[str]) -> dict[str, list[Inherited]]:
    """What each of these takes over from the run that it is the retry of."""
    found: dict[str, list[Inherited]] = {}
    for run_id, *rest in await session.rows(Verb.inherited, list(run_ids)):
        found.setdefault(run_id, []).append(Inherited(*rest))
    return found


async def retry(
    session: Session,
    run: RunRow,
    *,
    wanted_id: str | None = None,
    parent: tuple[str | None, int | None] = (None, None),
) -> str:
    """Start a run that goes on from where this one ended, and keeps what the plan says; its id."""
    children = [run_of(row) for row in await session.rows(Verb.children, run.id)]
    kept = plan(
        run,
        [step_of(row) for row in await session.rows(Verb.history_steps, [run.id])],
        [SignalRow(*row) for row in await session.rows(Verb.signals, run.id)],
        {child.parent_n or 0: child for child in children},
        (await inherited(session, [run.id])).get(run.id, []),
    )
    new_id = await _copied(session, run, kept, wanted_id, parent)
    await session.each(Verb.copy_steps, kept.steps, run.id, new_id)
    await session.each(Verb.copy_signals, kept.signals, new_id)
    await session.each(Verb.take_over, [(new_id, n, child_id) for child_id, n in kept.taken_over])
    await session.each(Verb.inherit, [(new_id, one.key, one.effect, one.child) for one in kept.inherited])
    return new_id


async def _copied(
    session: Session, run: RunRow, kept: Plan, wanted_id: str | None, parent: tuple[str | None, int | None]
) -> str:
    """Copy the run's row under the first id that is free."""
    for new_id in next_ids(run, wanted_id):
        if await session.row(Verb.copy_run, run.id, new_id, kept.kept_n, *parent) is not None:
            return new_id
    raise AssertionError("there is no end of ids")


def demand_retryable(run: RunRow, again: RunRow | None, newest: RunRow | None) -> None:
    """Raise unless the run can be retried, or was and `again` is what became of it; `newest` is the last of the chain."""
    if run.state not in RUN_ENDED:
        raise WrongState(f"run {run.id!r} is {run.state}: only a run that has ended can be retried")
    if run.state is RunState.SUCCEEDED:
        raise WrongState(f"run {run.id!r} succeeded: there is nothing to retry")
    if again is not None and newest is not None and again.id != newest.id:
        raise WrongState(
            f"run {run.id!r} was retried as {again.id!r}, and that one since: the newest is {newest.id!r}, which is "
            f"{newest.state}; only that one can be retried"
        )


def demand_alone(run: RunRow, parent: RunRow | None, live: str | None) -> None:
    """Raise if the run is to be retried by `parent`, the newest of its parent's chain, or if a run below it, `live`, has not
    ended."""
    if parent is not None and parent.state is not RunState.SUCCEEDED:
        move = (
            f"`holdfast retry {parent.id}` goes on with it"
            if parent.state in RUN_ENDED
            else "that one decides what becomes of it"
        )
        raise WrongState(f"run {run.id!r} is a child of {parent.id!r}, which is {parent.state}: {move}")
    if live is not None:
        raise WrongState(
            f"run {run.id!r} has a child that has not ended yet: retry it when `holdfast show {live}` says that it has"
        )


def next_ids(run: RunRow, wanted: str | None) -> Iterator[str]:
    """Ids for its retry, best first: the one that is wanted, then `id~2` and so on. A `~2` that ends an id which was not made
    here is part of the id."""
    if wanted is not None:
        yield wanted
    stem, number = run.id, 2
    if run.retry_of is not None:
        head, _, tail = run.id.rpartition("~")
        if head and tail.isascii() and tail.isdigit():
            stem, number = head, int(tail) + 1
    while True:
        yield f"{stem}~{number}"
        number += 1


def plan(
    run: RunRow,
    steps: Sequence[StepRow],
    signals: Sequence[SignalRow],
    children: Mapping[int, RunRow],
    inherited: Sequence[Inherited],
) -> Plan:
    """What the retry of an ended run keeps. `children` are the run's own, by the step that asked for each."""
    end = _end(run, steps)
    undone_by_run = set(end.undone)
    by_saga = {
        undone_key(row.key)[0]: row
        for row in steps
        if row.key.startswith(UNDO_PREFIX) and row.state is _SUCCEEDED and _heard(row.delivered_seq, end)
    }
    kept: dict[str, tuple[int, int | None]] = {}
    left = {one.key: one for one in inherited}
    first = left.pop("", Inherited("", run.id))
    taken_over: list[tuple[str, int]] = []
    for row in steps:
        if row.kind is StepKind.UNDO or row.key.startswith(UNDO_PREFIX):
            continue
        left.pop(row.key, None)
        undone = row.n in undone_by_run and row.key not in by_saga
        child = children.get(row.n)
        place = None if undone or row.n in end.steps else _place(row, child, end)
        if place is not None:
            kept[row.key] = (row.n, place or None)
            if child is not None and child.state is RunState.SUCCEEDED:
                taken_over.append((child.id, row.n))
        elif child is not None:
            left[row.key] = Inherited(row.key, child=child.id)
        elif row.kind is StepKind.CALL and not undone and (row.attempt or row.effect):
            left[row.key] = Inherited(row.key, row.effect_key)
    rows = list(kept.values()) + [(row.n, row.delivered_seq) for key, row in by_saga.items() if key in kept]
    return Plan(
        sorted(rows),
        [(one.id, _heard(one.delivered_seq, end) or None) for one in signals if not one.name.startswith("$")],
        taken_over,
        [first, *left.values()],
        max((n for n, _ in rows if n <= run.kept_n), default=0),
    )


class _Ended(NamedTuple):
    seq: float
    steps: Sequence[int]
    undone: Sequence[int]


def _end(run: RunRow, steps: Sequence[StepRow]) -> _Ended:
    end = codec.end_of(run.error)
    if end.by:
        return _Ended(math.inf, (), end.undone)  # it had succeeded: all that was delivered is its history
    if end.seq is not None:
        return _Ended(end.seq, end.steps, end.undone)
    # It ended before its end was recorded like this: what an undo exists for is undone, and what failed last ended it.
    own = [row for row in steps if not row.key.startswith(UNDO_PREFIX) and row.delivered_seq]
    failed = [row for row in own if row.state is _FAILED and run.state is not RunState.CANCELLED]
    last = max(failed, key=lambda row: row.delivered_seq or 0).n if failed else None
    undone = {undone_key(row.key)[0] for row in steps if row.key.startswith(UNDO_PREFIX)}
    seq = max((row.delivered_seq or 0 for row in own), default=0) if run.ending is not None else math.inf
    return _Ended(seq, () if last is None else (last,), [row.n for row in own if row.key in undone])


def _heard(seq: int | None, end: _Ended) -> int:
    """The place in the history of the code; 0 for what the code never heard of."""
    return seq if seq and seq <= end.seq else 0


def _place(row: StepRow, child: RunRow | None, end: _Ended) -> int | None:
    """Where a row stands in the history that is kept; 0: recorded, and not delivered yet; None: it is not kept. What was given
    up is asked for again, if it is still needed."""
    if row.kind is StepKind.TIMER and row.name == "deadline" and row.key.endswith(DEADLINE):
        return None
    if child is not None and row.state is _SUCCEEDED and child.state is not RunState.SUCCEEDED:
        return None  # it was taken back
    heard = _heard(row.delivered_seq, end)
    if heard and row.state in (_SUCCEEDED, _FAILED):
        return heard
    return 0 if row.kind is StepKind.CALL and row.state is _SUCCEEDED else None
