"""What is written on the hot path: values that are handed to the node's `Writer`, which commits many as one transaction.

Every operation names its precondition: the fence that its node got with the run or the step.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.model import Failure, NewRun, NewSignal, Outcome, Revoked, RunState, StepKind, StepState

# `gc=False` where there are thousands of them at once: they refer to payloads and to each other, never back, so that the
# cycle collector has nothing to find there.


class NewStep(msgspec.Struct, gc=False):
    """A step as its scheduler issues it. `state` running means: leased to the issuing node's own agent."""

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


class Close(msgspec.Struct):
    """The end of a run. A child's end is written into its parent's step in the same commit."""

    state: RunState
    output: bytes | None
    error: str | None
    at: float
    parent_id: str | None = None
    parent_n: int | None = None


class BeginUndo(msgspec.Struct):
    """The run failed or was cancelled, and takes itself back: `undoing`, ownerless, woken by a signal in the same commit."""

    ending: str
    error: str | None


class Hop(msgspec.Struct, gc=False):
    """One advance of one run by its owner: what was delivered, and what the code did with it."""

    run_id: str
    fence: int
    begin: NewRun | None = None
    """The run starts with this hop, owned by the writing node with `fence`."""
    begun_at: float = 0.0
    deadline: float | None = None
    outcomes: Sequence[Outcome] = ()
    """What is delivered, numbered, and recorded too unless somebody else has done that."""
    signals: Sequence[tuple[int, int]] = ()
    """(signal id, seq)."""
    set_aside: Sequence[tuple[int, str]] = ()
    """(seq, why) of delivered signals that fit none of the waits for them."""
    ended: Sequence[tuple[int, int, bytes, float]] = ()
    """(n, seq, payload, at) of signal waits that a delivered signal satisfied."""
    issued: Sequence[NewStep] = ()
    effects: Sequence[tuple[int, str]] = ()
    """(n, `here.key`) of those among them that may have had their effect in an earlier run."""
    dropped: Sequence[int] = ()
    """n of steps the code no longer waits for: cancelled if live, and never to be delivered."""
    sends: Sequence[NewSignal] = ()
    children: Sequence[NewRun] = ()
    """Runs to be started for steps of this hop. Where the id is another run's, the step is told, or joins that run."""
    cancelled: Sequence[int] = ()
    """n of steps whose child runs are asked to cancel themselves. What a step joined is not its child."""
    progress: str | None = None
    published: str | None = None
    """All published values as one JSON object."""
    close: Close | None = None
    next_input: bytes | None = None
    """Continue as new: the history goes, the next generation begins with this input."""
    unread: Sequence[int] = ()
    """With `next_input`: numbers of delivered signals that no wait consumed; they become undelivered again."""
    undo: BeginUndo | None = None
    kept_n: int | None = None
    """Steps up to this one are kept from now on."""
    revoked: Sequence[Revoked] = ()
    """With `close`: runs below this one that had succeeded, and were taken back with it."""
    park: bool = False
    """Leave memory: the owner is cleared and the fence raised."""


class RetryStep(msgspec.Struct):
    """An attempt failed and the step is ready again after `delay_s`. It spends the budget of its class; an `excused` one
    none."""

    run_id: str
    n: int
    fence: int
    delay_s: float
    ending: str
    error: str | None
    excused: bool = False
    failure: Failure = Failure.APPLICATION


class QuarantineStep(msgspec.Struct):
    """An attempt failed, and the step waits for a person."""

    run_id: str
    n: int
    fence: int
    ending: str
    error: str
    """As it is recorded."""
    failure: Failure
    fingerprint: str
    step: str
    kind: str
    """The error's class."""
    place: str


class HandBack(msgspec.Struct):
    """An agent returns a step it has not finished, or not begun: ready at once, no attempt spent."""

    run_id: str
    n: int
    fence: int
    hold: str | None = None
    """Its run is held with this note: the agent's code cannot read what was recorded for the step."""


class Save(msgspec.Struct):
    """A checkpoint or progress note of a running attempt. None leaves the column as it is."""

    run_id: str
    n: int
    fence: int
    checkpoint: bytes | None = None
    progress: str | None = None


class Start(msgspec.Struct):
    """A run to be started by whichever scheduler claims it."""

    run: NewRun


StepOp = Outcome | RetryStep | QuarantineStep | HandBack | Save
"""What an agent writes of a step that it has. An outcome by itself is recorded, and delivered later by the run's owner."""
Op = Hop | StepOp | Start
