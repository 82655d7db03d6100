"""What workflow code asked for, as values. A `Turn` is everything it did in answer to one or more deliveries."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.codec import Payload, Shape
from holdfast.model import NewSignal, Revoked, StepKind

if TYPE_CHECKING:
    from holdfast.decider.loop import Timer
    from holdfast.workflow.step import Step
    from holdfast.workflow.workflow import Workflow


class ChildRun(msgspec.Struct, frozen=True):
    """The run a `child` step waits for, as the parent's code asks for it."""

    workflow: Workflow[Any, Any]
    id: str
    priority: int
    timeout_s: float | None
    tags: dict[str, str]
    joins: bool = False
    retry_of: str | None = None
    """The run it goes on from, when its parent is a retry."""


class Issue(msgspec.Struct, gc=False):
    """A step to be written. `arguments` is the decoded input, for an agent in the same process."""

    n: int
    key: str
    kind: StepKind
    name: str
    input: bytes | None = None
    digest: bytes | None = None
    step: Step[Any, Any] | None = None
    arguments: Any = None
    after_seq: int = 0
    """How much of the history had been delivered when the code asked for it."""
    ready_at: float | None = None
    child: ChildRun | None = None
    after_stop: bool = False
    """The undo of a step that was given up while it may still run: to begin a moment later than at once."""
    effect: str | None = None
    """Its `here.key`, if that is an earlier run's."""

    @property
    def shape(self) -> Shape | None:
        """How its input is written and read; None for what has no input."""
        if self.child is not None:
            return self.child.workflow.shape
        return None if self.step is None else self.step.shape


class Wait(msgspec.Struct, eq=False):
    """One thing the code waits for. `n` is 0 until `take()` numbers it."""

    key: str
    kind: StepKind
    name: str
    future: asyncio.Future[Any] = None  # type: ignore[assignment]  # a timer has none
    result: Payload | None = None
    """How what it waits for is read. None: nobody reads it."""
    issue: Issue | None = None
    n: int = 0
    ready_at: float | None = None
    timer: Timer | None = None
    joins: bool = False
    """The child of this step may turn out to be another's run, which ends without telling anybody."""
    known: bool = False
    """Its end is already recorded: whatever the code does with it now needs no writing."""


class Finish(msgspec.Struct, frozen=True):
    """The end of this generation of the run. `input` is the next generation's, when it continues as new.

    `undoing` is no end yet: the code has ended as `ending` says, and what it did is to be taken back by an `Undoing`,
    which says `undone`, `stuck`, or what `ending` said.
    """

    how: Literal["succeeded", "failed", "cancelled", "continued", "undoing", "undone", "stuck"]
    output: bytes | None = None
    error: str | None = None
    input: bytes | None = None
    unread: tuple[int, ...] = ()
    """Numbers of delivered signals that no wait consumed: a next generation must find them undelivered again."""
    ending: Literal["failed", "cancelled"] | None = None
    """With `undoing`: how the code ended."""
    steps: tuple[int, ...] = ()
    """n of the steps that ended the code."""
    revoked: tuple[Revoked, ...] = ()
    """Children that had succeeded, and of which something was taken back."""


class Turn(msgspec.Struct, gc=False):
    """Everything the code did since the last `take()`."""

    issued: list[Issue]
    dropped: list[int]
    """Recorded steps the code no longer waits for: to be cancelled, `delivered_seq = 0`."""
    cancelled: list[int]
    """n of steps whose child runs are to be asked to cancel themselves."""
    ended: list[tuple[int, int, bytes]]
    """Satisfied signal waits: their n, the number of the signal that satisfied them, what of it they read."""
    sends: list[NewSignal]
    progress: str | None
    published: dict[str, bytes] | None
    finish: Finish | None
    kept_n: int | None = None
    """Steps up to this one are kept from now on: the code passed a point of no return."""
    set_aside: list[tuple[int, str]] = []
    """Signals that fit none of the waits for them: their number, and why. No wait takes them any more."""
