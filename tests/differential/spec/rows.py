"""The rows, and the only functions that change their states."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from holdfast.lifecycle import RUN_TRANSITIONS, STEP_TRANSITIONS, By, Transition
from holdfast.model import DEFAULT_NAMESPACE, RunState, StepKind, StepState, TwinState

CANCELLED = "holdfast.errors.RunCancelled"
"""The error that the store itself records in the parent's step when a pending child is cancelled."""
CONFLICT = "holdfast.errors.Conflict"
WRONG_STATE = "holdfast.errors.WrongState"
"""The error of a step whose child has the id of another run, or should go on from a run that has not ended."""
SECOND = 1 / 3600
NEVER = 1e9
"""A time in the model's hours that no test reaches."""
LONG_AGO = -NEVER
DICE = random.Random(0)
"""The source of jitter, which is shorter than any time that is compared here."""


class Refused(Exception):
    """A precondition is not true. Nothing is written."""


class WrongState(Exception):
    """An operator asked for something that the run's state does not allow."""


class Run(NamedTuple):
    id: str
    workflow: str
    version: str
    state: RunState
    input: bytes
    digest: bytes
    priority: int = 0
    namespace: str = DEFAULT_NAMESPACE
    owner: str | None = None
    fence: int = 0
    output: bytes | None = None
    error: str | None = None
    parent_id: str | None = None
    parent_n: int | None = None
    retry_of: str | None = None
    generation: int = 1
    base_n: int = 0
    kept_n: int = 0
    progress: str | None = None
    resume: RunState | None = None
    note: str | None = None
    ending: str | None = None
    deadline: float | None = None
    created_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    started_by: str | None = None
    started_n: int | None = None


class Step(NamedTuple):
    run_id: str
    n: int
    key: str
    kind: StepKind
    lane: int
    state: StepState
    priority: int = 0
    ready_at: float = 0.0
    attempt: int = 0
    losses: int = 0
    excused: int = 0
    timeouts: int = 0
    throttled: int = 0
    attempts_max: int = 1
    timeout_s: float | None = None
    fence: int = 0
    agent: str | None = None
    complete_by: float | None = None
    output: bytes | None = None
    error: str | None = None
    checkpoint: bytes | None = None
    progress: str | None = None
    delivered_seq: int | None = None
    issued_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    name: str = ""
    retry: str | None = None
    after_seq: int = 0
    effect: str | None = None


class Signal(NamedTuple):
    run_id: str
    name: str
    key: str
    payload: bytes
    delivered_seq: int | None = None
    set_aside: str | None = None
    answer: str | None = None
    reply: bytes | None = None


class Lease(NamedTuple):
    holder: str | None
    epoch: int
    expires_at: float


class Node(NamedTuple):
    lease_until: float
    retired: bool = False
    retired_at: float | None = None


class Listed(NamedTuple):
    """A step in quarantine."""

    fingerprint: str
    step: str
    error: str
    place: str
    at: float


class Logged(NamedTuple):
    """A part of what an attempt, or the code of a run, has logged."""

    first_line: int
    first_byte: int
    lines: int
    at: float
    body: bytes


class Twin(NamedTuple):
    state: TwinState
    step_fence: int
    lane: int
    not_agent: str | None
    made_at: float
    fence: int = 0
    agent: str | None = None
    started_at: float | None = None
    ended_at: float | None = None


class Alert(NamedTuple):
    kind: str
    level: str
    key: str
    run_id: str | None
    times: int
    at: float
    last_at: float
    sent_at: float | None = None
    cleared_at: float | None = None
    logged: int = 0
    routed: int = 0


class Delivery(NamedTuple):
    alert: int
    channel: str
    event: str
    next_try_at: float
    attempts: int = 0
    sent_at: float | None = None
    given_up_at: float | None = None
    last_error: str | None = None


def moved_step(step: Step, name: str, by: By, **changes: Any) -> Step:
    """Return the step after a transition. The lifecycle must allow it from this state and by this role."""
    target = _target(STEP_TRANSITIONS, name, by, step.state)
    return step._replace(state=StepState(target), fence=step.fence + 1, **changes)


def moved_run(run: Run, name: str, by: By, to: RunState | None = None, **changes: Any) -> Run:
    """Return the run after a transition. `to` is its state if the transition has more than one target."""
    target = _target(RUN_TRANSITIONS, name, by, run.state, to)
    return run._replace(state=RunState(target), fence=run.fence + 1, **changes)


def _target(table: tuple[Transition, ...], name: str, by: By, source: str, to: str | None = None) -> str:
    for row in table:
        if row.name == name and by in row.by and source in row.sources and to in {None, row.target}:
            return row.target
    raise AssertionError(f"the {by} may not {name} what is {source}{f' to {to}' if to else ''}")


CLOSES = {
    RunState.SUCCEEDED: "succeed",
    RunState.FAILED: "fail",
    RunState.CANCELLED: "cancel",
    RunState.UNDONE: "finish_undo",
    RunState.STUCK: "stick",
}
