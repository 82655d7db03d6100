"""What is written on the hot path: operations, which a node passes to its `Writer`. The writer commits many of them as
one transaction.

Every operation names its precondition: the fence that its node got when it claimed the run or the step.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.model import (
    ChildUndo,
    Failure,
    LogPart,
    NewAsk,
    NewRun,
    NewSignal,
    Outcome,
    RunState,
    StepKind,
    StepState,
)
from holdfast.queues import Queue

# `gc=False` is for classes of which there are thousands of objects at once. They never form cycles, so the garbage
# collector need not look at them.


class NewStep(msgspec.Struct, gc=False):
    """A step as its scheduler issues it. If its state is `running`, the agent of the same node has it from the
    start."""

    n: int
    key: str
    kind: StepKind
    name: str
    lane: int
    state: StepState
    priority: int = 0
    ready_at: float | None = None
    attempts_max: int = 1
    timeout_s: float | None = None
    input: bytes | None = None
    digest: bytes | None = None
    retry: str | None = None
    after_seq: int = 0
    queue: Queue | None = None
    """Its queue, if it has one."""


class Close(msgspec.Struct):
    """The end of a run. When a child ends, the step of its parent ends in the same commit."""

    state: RunState
    output: bytes | None
    error: str | None
    at: float
    parent_id: str | None = None
    parent_n: int | None = None
    """The step of the parent that waits for this end: for the run itself, or for the undoing of the run."""
    ends_undo: bool = False
    """The run had succeeded, and its parent wanted it undone. `succeeded` means that there was nothing to undo."""


class BeginUndo(msgspec.Struct):
    """The run failed or was cancelled, and begins to undo itself. It is `undoing` and has no owner. A signal in the
    same commit wakes it."""

    ending: str
    error: str | None


class Hop(msgspec.Struct, gc=False):
    """One advance of a run by its owner: what was delivered to the run's code, and what the code did then."""

    run_id: str
    fence: int
    is_plain: bool = False
    """There is nothing but a begin, outcomes, issued steps and a close, as in most hops. Then nobody needs to look at the
    rest."""
    begin: NewRun | None = None
    """Set if the run starts with this hop. The node that writes the hop owns the run, with `fence`."""
    begun_at: float = 0.0
    deadline: float | None = None
    outcomes: Sequence[Outcome] = ()
    """The outcomes that are delivered, with their places in the history. Those that have a fence are recorded by this
    hop, too."""
    signals: Sequence[tuple[int, int]] = ()
    """(id, place in the history) of the signals that are delivered."""
    set_aside: Sequence[tuple[int, str]] = ()
    """(place in the history, reason) of delivered signals that do not fit what the code waits for."""
    replies: Sequence[tuple[int, str, bytes, float]] = ()
    """(place in the history, how, answer, time) of updates that are answered."""
    ended: Sequence[tuple[int, int, bytes, float]] = ()
    """(n, place in the history, payload, time) of steps that waited for a signal and got one."""
    issued: Sequence[NewStep] = ()
    effects: Sequence[tuple[int, str]] = ()
    """(n, `here.key`) of those issued steps that may have had their effect in an earlier run, which this run is the
    retry of."""
    placed: Sequence[tuple[int, int]] = ()
    """(n, place in the history) of steps whose results were set in a fork before its code asked for them: where it asked."""
    promised: Sequence[tuple[int, float]] = ()
    """(n, seconds) of those issued steps that were promised to end within this time."""
    dropped: Sequence[int] = ()
    """n of steps that the code no longer waits for. They are cancelled if they have not ended, and are never
    delivered."""
    begun_waits: Sequence[int] = ()
    """n of callbacks whose time begins with this hop."""
    sends: Sequence[NewSignal] = ()
    children: Sequence[NewRun] = ()
    """Runs to start for steps of this hop. If another run has the id, the step joins that run or fails."""
    cancelled: Sequence[int] = ()
    """n of steps whose children are asked to cancel themselves. A run that a step has joined is not its child."""
    progress: str | None = None
    published: str | None = None
    """All published values as one JSON object."""
    close: Close | None = None
    next_input: bytes | None = None
    """Set if the run continues as new. Its history is removed, and the next generation begins with this input."""
    unread: Sequence[int] = ()
    """With `next_input`: places in the history of delivered signals that no step took. They become undelivered
    again."""
    had_updates: bool = False
    """With `next_input`: this generation got updates. Their answers are kept."""
    undo: BeginUndo | None = None
    kept_n: int | None = None
    """Steps up to this n are never undone from now on."""
    child_undos: Sequence[ChildUndo] = ()
    """Children to undo, each for a step of this hop."""
    asks: Sequence[NewAsk] = ()
    """Questions to people, each of a step of this hop."""
    withdrawn: Sequence[int] = ()
    """Those of the dropped steps that are questions to people. If they are open, nobody can answer them any more."""
    park: bool = False
    """The run leaves the owner's memory: it has no owner then, and a higher fence."""
    logs: Sequence[LogPart] = ()
    """What the run's code has logged."""


class RetryStep(msgspec.Struct):
    """An attempt failed, and the step is ready again after `delay_s`. The attempt counts against the budget for its
    kind of failure, unless it is `excused`."""

    run_id: str
    n: int
    fence: int
    delay_s: float
    ending: str
    error: str | None
    excused: bool = False
    failure: Failure = Failure.APPLICATION
    logs: Sequence[LogPart] = ()


class QuarantineStep(msgspec.Struct):
    """An attempt failed, and the step waits for a person."""

    run_id: str
    n: int
    fence: int
    ending: str
    error: str
    """The error as it is recorded."""
    failure: Failure
    fingerprint: str
    step: str
    kind: str
    """The error's class."""
    place: str
    logs: Sequence[LogPart] = ()


class HandBack(msgspec.Struct):
    """An agent hands back a step that it has not begun or not finished. The step is ready at once, and the attempt does
    not count."""

    run_id: str
    n: int
    fence: int
    hold: str | None = None
    """If set, the step's run is held with this note, because the agent's code cannot read what was recorded for the
    step."""
    logs: Sequence[LogPart] = ()


class Save(msgspec.Struct):
    """A checkpoint or the progress of a running attempt, and what it has logged so far. None leaves the column as it
    is."""

    run_id: str
    n: int
    fence: int
    checkpoint: bytes | None = None
    progress: str | None = None
    logs: Sequence[LogPart] = ()


class Start(msgspec.Struct):
    """A new run, which any scheduler may claim."""

    run: NewRun


StepOp = Outcome | RetryStep | QuarantineStep | HandBack | Save
"""What an agent writes about a step that it has. An outcome outside a hop is only recorded; the run's owner delivers it
later."""
Op = Hop | StepOp | Start
