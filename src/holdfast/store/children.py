"""Children of runs: how they are started, and how a step ends whose child is another's run, or cannot be had.

A child under an id that exists is the step's own child after a replay or a lost answer; otherwise the step joins that run, if its
author said so, or fails.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from holdfast import codec
from holdfast.errors import Conflict, RunCancelled, UnknownRun
from holdfast.model import NewRun, RunState, StepState
from holdfast.programs import name_of
from holdfast.store import retries
from holdfast.store.database import Session
from holdfast.store.rows import start_row
from holdfast.store.verbs import Verb

CANCEL_KEY = "cancel"
"""A run is asked once to cancel itself, whoever asks how often."""


class ExistingRun(NamedTuple):
    """The run that has the id a child should have had."""

    id: str
    parent_id: str | None
    parent_n: int | None
    workflow: str
    digest: bytes


class ChildOutcome(NamedTuple):
    """How a step ends that waits for a run: the values of `end_child_steps`. It is delivered by the owner of the step's run."""

    run_id: str
    n: int
    state: StepState
    output: bytes | None
    error: str | None
    at: float | None = None
    """None: now."""


# --- starting -------------------------------------------------------------------------------------------------------


async def start_children(session: Session, children: Sequence[NewRun]) -> None:
    """Start these. By their ids, in one order for every batch of every node, so that two batches cannot wait for one another."""
    left = [
        child
        for child in sorted(children, key=lambda child: (child.id, child.parent_id, child.parent_n))
        if child.retry_of is None or not await _go_on(session, child)
    ]
    while left:
        if len(await session.all(Verb.start_runs, [start_row(child) for child in left])) == len(left):
            return
        met = {
            row[0]: ExistingRun(*row)
            for row in await session.rows(Verb.existing_runs, [child.id for child in left])
        }
        for child in left:
            if child.id in met and not is_own(child, met[child.id]):
                await _join_or_refuse(session, child, met[child.id])
        left = [child for child in left if child.id not in met]  # pruned in this very moment


async def _join_or_refuse(session: Session, child: NewRun, met: ExistingRun) -> None:
    """The id is taken: join that run, or fail the step that asked for it."""
    awaits = child.joins and await session.row(Verb.awaits, child.parent_id, child.id) is not None
    told = refused(child, met, awaits=awaits)
    if told is None:
        await session.run(Verb.join_run, child.id, child.parent_id, child.parent_n)
    else:
        await session.each(Verb.end_child_steps, [told])


async def _go_on(session: Session, child: NewRun) -> bool:
    """Begin the child of a retried run from where the child before it ended; False when it is to be started like any other."""
    known = await retries.newest(session, child.retry_of)
    parent = child.parent_id, child.parent_n
    way = retries.way_of(child, known)
    if known is None or way is retries.Way.ANEW:
        return False
    if way is retries.Way.RETRY:
        await retries.retry(session, known, wanted_id=child.id, parent=parent)
        return True
    told = unended(child)
    if way is retries.Way.TAKE_OVER:
        await session.each(Verb.take_over, [(*parent, known.id)])
        told = ended(known.id, (told.run_id, told.n), (known.state, known.output, known.error))
    await session.each(Verb.end_child_steps, [told])
    return True


# --- deciding -------------------------------------------------------------------------------------------------------


def is_own(child: NewRun, met: ExistingRun) -> bool:
    """The very child this step asked for: after a replay, or when an answer was lost."""
    return (met.parent_id, met.parent_n) == (child.parent_id, child.parent_n)


def refused(child: NewRun, met: ExistingRun, *, awaits: bool) -> ChildOutcome | None:
    """Why the step cannot have this run; None when it may wait for it. `awaits`: that run waits for this one."""
    if not child.joins:
        why = (
            f"run {child.id!r} exists and is not a child of this run: give the child another id, or wait for that run with "
            'using(id=…, existing="join")'
        )
    elif (met.workflow, bytes(met.digest)) != (child.workflow, child.digest):
        why = f"run {child.id!r} cannot be joined: it was started with another workflow or input"
    elif awaits:
        why = f"run {child.id!r} cannot be joined: it waits for this run, so that neither would ever go on"
    else:
        return None
    return _failed(child.parent_id or "", child.parent_n or 0, Conflict(why), child.workflow)


def ended(
    run_id: str,
    waiter: tuple[str, int],
    outcome: tuple[str | None, bytes | None, str | None],
) -> ChildOutcome:
    """What a step is told that waited for this run, which ended with (state, output, error), or is gone without a state."""
    state, output, error = outcome
    if state == RunState.SUCCEEDED:
        return ChildOutcome(*waiter, StepState.SUCCEEDED, output, None)
    if state is None:
        return _failed(*waiter, UnknownRun(f"run {run_id!r} was removed before its outcome was read"))
    return ChildOutcome(*waiter, StepState.FAILED, None, error or cancelled_error(run_id))


def unended(child: NewRun) -> ChildOutcome:
    """The run that a child of a retried run would go on from has not ended."""
    why = f"run {child.retry_of!r}, from which this child should go on, has not ended yet: retry this run when it has"
    return _failed(child.parent_id or "", child.parent_n or 0, Conflict(why), child.workflow)


def cancelled_error(run_id: str) -> str:
    """Of a run that was cancelled before it did anything: nobody recorded an error for it."""
    return json.dumps({"type": name_of(RunCancelled), "message": f"run {run_id} was cancelled"})


def cancel_payload(parent_id: str) -> bytes:
    return json.dumps({"actor": f"run {parent_id}", "note": "its parent no longer waits"}).encode()


def _failed(run_id: str, n: int, error: Exception, step: str = "") -> ChildOutcome:
    return ChildOutcome(run_id, n, StepState.FAILED, None, codec.encode_error(error, step=step))
