"""Children of runs: how they are started, and how the step that asked for a child ends if a run with its id exists.

After a replay or a lost answer that run may be the step's own child. Otherwise the step joins that run if its author
allowed it, and fails if not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from holdfast import codec
from holdfast.config import DEFAULT
from holdfast.errors import Conflict, InvalidInput, RunCancelled, UnknownRun, WrongState
from holdfast.model import UNDO, ChildUndo, NewRun, RunState, StepState
from holdfast.programs import name_of
from holdfast.store import retries
from holdfast.store.answers import Answer
from holdfast.store.database import Session
from holdfast.store.gathers import taken
from holdfast.store.rows import start_row
from holdfast.store.verbs import Verb

CANCEL_KEY = "cancel"
"""The key of the signal that asks a run to cancel itself. All requests have the same key, so the run gets it once."""


RESUME = b'{"act": "resume"}'
"""The payload of a signal that only wakes a run which undoes itself."""


class ExistingRun(NamedTuple):
    """A run that already has the id of a child that is to be started."""

    id: str
    parent_id: str | None
    parent_n: int | None
    workflow: str
    digest: bytes
    started_by: str | None = None
    started_n: int | None = None


class ChildOutcome(NamedTuple):
    """How a step that waits for a run ends. These are the values of `end_child_steps`. The owner of the step's run
    delivers it."""

    run_id: str
    n: int
    state: StepState
    output: bytes | None
    error: str | None
    at: float | None = None
    """None means now."""


# --- starting -------------------------------------------------------------------------------------------------------


async def start_children(session: Session, children: Sequence[NewRun]) -> None:
    """Start these children. All batches of all nodes start them in the order of their ids, so that two batches cannot
    wait for each other."""
    gathered = [child for child in children if child.gather is not None]
    for child in sorted(gathered, key=lambda child: (child.gather and child.gather.key, child.id)):
        await _gather(session, child)
    left = [
        child
        for child in sorted(children, key=lambda child: (child.id, child.parent_id, child.parent_n))
        if child.gather is None and (child.retry_of is None or not await _go_on(session, child))
    ]
    while left:
        rows = [start_row(child) for child in left]
        started = {row[0] for row in await session.all(Verb.start_runs, rows)}
        if len(started) == len(left):
            await _end_starts(session, left)
            return
        existing = {
            row[0]: ExistingRun(*row)
            for row in await session.rows(Verb.existing_runs, [child.id for child in left])
        }
        for child in left:
            if child.id in existing and not is_own(child, existing[child.id]):
                await _join_or_refuse(session, child, existing[child.id])
        await _end_starts(
            session, [child for child in left if child.id in existing and is_own(child, existing[child.id])]
        )
        # What is left had an id that was taken a moment ago, and was pruned since.
        left = [child for child in left if child.id not in existing]


async def _gather(session: Session, child: NewRun) -> None:
    """Let a run take a start of a workflow that gathers its starts. The step ends with that run's id."""
    place = child.parent_id or "", child.parent_n or 0
    try:
        found = await taken(session, child, DEFAULT.payload_max_bytes)
    except InvalidInput as wrong:  # nothing was written
        outcome = _failed(*place, wrong, child.workflow)
    else:
        outcome = _started(replace(child, id=found.run_id))
        if found.answer is Answer.FENCED:
            why = f"run {child.id!r} was started with another workflow or input: give the new run another id"
            outcome = _failed(*place, Conflict(why), child.workflow)
    await session.each(Verb.end_child_steps, [outcome])


async def _end_starts(session: Session, started: Sequence[NewRun]) -> None:
    """End the steps that only start a run: the run is there now."""
    outcomes = [_started(run) for run in started if run.detached]
    if outcomes:
        await session.each(Verb.end_child_steps, outcomes)


async def _join_or_refuse(session: Session, child: NewRun, existing: ExistingRun) -> None:
    """Join the run that has the child's id, or fail the step that asked for the child."""
    awaits = (
        child.joins
        and not child.detached
        and await session.row(Verb.awaits, child.parent_id, child.id) is not None
    )
    failure = refused(child, existing, awaits=awaits)
    if failure is None and child.detached:
        await _end_starts(session, [child])
    elif failure is None:
        await session.run(Verb.join_run, child.id, child.parent_id, child.parent_n)
    else:
        await session.each(Verb.end_child_steps, [failure])


async def _go_on(session: Session, child: NewRun) -> bool:
    """Begin the child of a retried run from where the previous child of that step ended. Return False if it is to be
    started like any other child."""
    parent = child.parent_id, child.parent_n
    while True:
        known = await retries.newest(session, child.retry_of)
        way = retries.way_of(child, known)
        if known is None or way is retries.Way.ANEW:
            return False
        if way is not retries.Way.TAKE_OVER or await session.each(Verb.take_over, [(*parent, known.id)]):
            break  # otherwise it was undone, or removed, since it was read
    if way is retries.Way.RETRY:
        await retries.retry(session, known, wanted_id=child.id, parent=parent)
        return True
    outcome = unended(child)
    if way is retries.Way.TAKE_OVER:
        outcome = ended(known.id, (outcome.run_id, outcome.n), (known.state, known.output, known.error))
    await session.each(Verb.end_child_steps, [outcome])
    return True


# --- undoing --------------------------------------------------------------------------------------------------------


async def undo_children(session: Session, wanted: Sequence[tuple[str, ChildUndo]]) -> None:
    """Let these children of runs, which have succeeded, undo themselves, and wake them. A step whose child has nothing to
    undo ends at once."""
    rows = sorted((run_id, one.child_n, one.error) for run_id, one in wanted)
    undoing = {tuple(place): child for child, *place in await session.all(Verb.undo_children, rows)}
    wakes = [
        (undoing[run_id, one.child_n], UNDO, f"{run_id}#{one.n}", RESUME)
        for run_id, one in wanted
        if (run_id, one.child_n) in undoing
    ]
    await session.each(Verb.send_signals, wakes)
    left = [(run_id, one) for run_id, one in wanted if (run_id, one.child_n) not in undoing]
    places = [(run_id, one.child_n) for run_id, one in left]
    found = await session.all(Verb.child_states, places)
    known = {(parent, n): (child, state, error) for parent, n, child, state, error in found}
    outcomes = []
    for run_id, one in left:
        waiter = run_id, one.n
        if (run_id, one.child_n) in known:
            child, state, error = known[run_id, one.child_n]
            was_undone = codec.end_of(error).by_n is not None
            # Otherwise there was nothing to undo, or the child has undone itself, or is about to.
            outcomes.append(undo_ended(child, waiter, state if was_undone else RunState.SUCCEEDED))
        elif one.joins:
            outcomes.append(undo_ended("", waiter, RunState.SUCCEEDED))
        else:
            gone = UnknownRun("the child run is not in the store any more, so nobody knows what it did")
            outcomes.append(_failed(*waiter, gone))
    await session.each(Verb.end_child_steps, outcomes)


def undo_ended(run_id: str, waiter: tuple[str, int], state: str) -> ChildOutcome:
    """Return how a step that waited until this run was undone ends. `state` is how the run ended. The result of the
    step is whether there was anything to undo."""
    if state in (RunState.UNDONE, RunState.SUCCEEDED):
        output = b"true" if state == RunState.UNDONE else b"false"
        return ChildOutcome(*waiter, StepState.SUCCEEDED, output, None)
    why = (
        f"run {run_id!r} is {state}: somebody stopped its undoing, and the rest of what it did stays as it is"
    )
    return _failed(*waiter, WrongState(why))


# --- deciding -------------------------------------------------------------------------------------------------------


def is_own(child: NewRun, existing: ExistingRun) -> bool:
    """True if the existing run is the one that this step has already asked for, before a replay or before an answer
    got lost."""
    place = (
        (existing.started_by, existing.started_n)
        if child.detached
        else (existing.parent_id, existing.parent_n)
    )
    return place == (child.parent_id, child.parent_n)


def refused(child: NewRun, existing: ExistingRun, *, awaits: bool) -> ChildOutcome | None:
    """Return the failure of a step that may not wait for the existing run, or None if it may. `awaits` says that the
    existing run waits for the step's run."""
    if not child.joins and child.detached:
        why = (
            f"run {child.id!r} exists, and this step did not start it: give the new run another id, or accept that run with "
            'using(id=…, existing="join")'
        )
    elif not child.joins:
        why = (
            f"run {child.id!r} exists and is not a child of this run: give the child another id, or wait for that run with "
            'using(id=…, existing="join")'
        )
    elif (existing.workflow, bytes(existing.digest)) != (child.workflow, child.digest):
        why = f"run {child.id!r} cannot be joined: it was started with another workflow or input"
    elif awaits:
        why = f"run {child.id!r} cannot be joined: it waits for this run, so that neither would ever go on"
    else:
        return None
    return _failed(child.parent_id or "", child.parent_n or 0, Conflict(why), child.workflow)


def _started(run: NewRun) -> ChildOutcome:
    output = json.dumps(run.id).encode()
    return ChildOutcome(run.parent_id or "", run.parent_n or 0, StepState.SUCCEEDED, output, None)


def ended(
    run_id: str,
    waiter: tuple[str, int],
    outcome: tuple[str | None, bytes | None, str | None],
) -> ChildOutcome:
    """Return how a step that waited for this run ends. The run ended with (state, output, error). Its state is None if
    the run was removed."""
    state, output, error = outcome
    if state == RunState.SUCCEEDED:
        return ChildOutcome(*waiter, StepState.SUCCEEDED, output, None)
    if state is None:
        return _failed(*waiter, UnknownRun(f"run {run_id!r} was removed before its outcome was read"))
    return ChildOutcome(*waiter, StepState.FAILED, None, error or cancelled_error(run_id))


def unended(child: NewRun) -> ChildOutcome:
    """Return the failure of a step whose child should go on from a run that has not ended."""
    why = f"run {child.retry_of!r}, from which this child should go on, has not ended yet: retry this run when it has"
    return _failed(child.parent_id or "", child.parent_n or 0, Conflict(why), child.workflow)


def cancelled_error(run_id: str) -> str:
    """Return the error of a run that was cancelled before it did anything. Such a run has no recorded error."""
    return json.dumps({"type": name_of(RunCancelled), "message": f"run {run_id} was cancelled"})


def cancel_payload(parent_id: str) -> bytes:
    return json.dumps({"actor": f"run {parent_id}", "note": "its parent no longer waits"}).encode()


def _failed(run_id: str, n: int, error: Exception, step: str = "") -> ChildOutcome:
    return ChildOutcome(run_id, n, StepState.FAILED, None, codec.encode_error(error, step=step))
