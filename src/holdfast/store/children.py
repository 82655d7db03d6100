"""A child under an id that exists: what the step is told that asked for it. Pure; both dialects ask here."""

from __future__ import annotations

import json
from typing import NamedTuple

from holdfast import codec
from holdfast.errors import Conflict, RunCancelled, UnknownRun
from holdfast.model import NewRun, RunState, StepState
from holdfast.programs import name_of

CANCEL_KEY = "cancel"
"""A run is asked once to cancel itself, whoever asks how often."""


class Met(NamedTuple):
    """The run that has the id a child should have had."""

    id: str
    parent_id: str | None
    parent_n: int | None
    workflow: str
    digest: bytes


class JoinOutcome(NamedTuple):
    """How a step ends that waits for a run which is not its own child. Not delivered yet: the waiting run's owner does that."""

    run_id: str
    n: int
    state: StepState
    output: bytes | None
    error: str | None


def is_own(child: NewRun, met: Met) -> bool:
    """The very child this step asked for: after a replay, or when an answer was lost."""
    return (met.parent_id, met.parent_n) == (child.parent_id, child.parent_n)


def refused(child: NewRun, met: Met, *, awaits: bool) -> JoinOutcome | None:
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
) -> JoinOutcome:
    """What a step is told that waited for this run, which ended with (state, output, error), or is gone without a state."""
    state, output, error = outcome
    if state == RunState.SUCCEEDED:
        return JoinOutcome(*waiter, StepState.SUCCEEDED, output, None)
    if state is None:
        return _failed(*waiter, UnknownRun(f"run {run_id!r} was removed before its outcome was read"))
    return JoinOutcome(*waiter, StepState.FAILED, None, error or cancelled_error(run_id))


def unended(child: NewRun) -> JoinOutcome:
    """The run that a child of a retried run would go on from has not ended."""
    why = f"run {child.retry_of!r}, from which this child should go on, has not ended yet: retry this run when it has"
    return _failed(child.parent_id or "", child.parent_n or 0, Conflict(why), child.workflow)


def cancelled_error(run_id: str) -> str:
    """Of a run that was cancelled before it did anything: nobody recorded an error for it."""
    return json.dumps({"type": name_of(RunCancelled), "message": f"run {run_id} was cancelled"})


def cancel_payload(parent_id: str) -> bytes:
    return json.dumps({"actor": f"run {parent_id}", "note": "its parent no longer waits"}).encode()


def _failed(run_id: str, n: int, error: Exception, step: str = "") -> JoinOutcome:
    return JoinOutcome(run_id, n, StepState.FAILED, None, codec.encode_error(error, step=step))
