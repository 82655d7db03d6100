"""What workflow code asked for, as values. A `Turn` is everything the code did after one or more deliveries."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from holdfast.codec import Payload, Shape
from holdfast.model import ChildUndo, LogPart, NewSignal, StepKind
from holdfast.namespaces import bare

if TYPE_CHECKING:
    from holdfast.decider.loop import Timer
    from holdfast.decider.updates import UpdateReply
    from holdfast.workflow.step import Step
    from holdfast.workflow.workflow import Workflow


class Named(Protocol):
    """What the code waits for: a signal, or an event."""

    @property
    def name(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def payload(self) -> Payload: ...


class ChildRun(msgspec.Struct, frozen=True):
    """The run that a `child` step waits for, as the parent's code asks for it."""

    workflow: Workflow[Any, Any]
    id: str
    priority: int
    timeout_s: float | None
    tags: dict[str, str]
    joins: bool = False
    retry_of: str | None = None
    """The earlier run that this child goes on from, if its parent is a retry."""
    detached: bool = False
    """The parent only starts this run, and does not wait for it."""
    begin_at: float | None = None
    begin_in_s: float | None = None


class _RunId(Payload):
    """The id of a run as the code in its namespace sees it."""

    def decode(self, raw: bytes) -> Any:
        return bare(super().decode(raw))

    def decode_whole(self, raw: bytes, *, typed: bool = True) -> Any:
        return self.decode(raw)


RUN_ID = _RunId(str, "the id of a run")
"""How the result of a step that starts a run is read."""


class Issue(msgspec.Struct, gc=False):
    """A new step to be written. `arguments` is the decoded input, for an agent in the same process."""

    n: int
    key: str
    kind: StepKind
    name: str
    input: bytes | None = None
    digest: bytes | None = None
    step: Step[Any, Any] | None = None
    arguments: Any = None
    after_seq: int = 0
    """The number of the last delivery before the code asked for this step."""
    ready_at: float | None = None
    child: ChildRun | None = None
    after_stop: bool = False
    """This is the undo of a step that was given up and may still run. It begins a moment later, so that an agent can
    stop the step first."""
    effect: str | None = None
    """The step's `here.key`, if it comes from an earlier run."""
    child_undo: ChildUndo | None = None
    """This step undoes a child. Its own number is set when the step gets one."""

    @property
    def shape(self) -> Shape | None:
        """How the input is written and read. None if the step has no input."""
        if self.child is not None:
            return self.child.workflow.shape
        return None if self.step is None else self.step.shape


class Wait(msgspec.Struct, eq=False):
    """One thing that the code waits for. `n` is 0 until `take()` numbers it."""

    key: str
    kind: StepKind
    name: str
    future: asyncio.Future[Any] = None  # type: ignore[assignment]  # a timer has none
    result: Payload | None = None
    """How the result or the signal's value is read. None if nobody reads it."""
    issue: Issue | None = None
    n: int = 0
    ready_at: float | None = None
    timer: Timer | None = None
    joins: bool = False
    """This step may have joined a run that is not its child. The end of such a run is not reported to this step."""
    known: bool = False
    """The end of this wait is already recorded, so nothing is written when the code gives it up."""


class CallbackWait(Wait, eq=False, kw_only=True):
    """A call that another system ends. A call that was not answered in time may be made again, under another key."""

    call: str
    """The key of the call."""
    number: int = 1
    """How often the call is made, with this time."""
    number_max: int = 1
    """How often the call may be made. What was recorded counts, whatever the code says now."""
    expired: bool = False
    """Nobody has answered in time."""


class Finish(msgspec.Struct, frozen=True):
    """How this generation of the run ends. If it continues as new, `input` is the input of the next generation.

    `undoing` is not an end yet: the code has ended as `ending` says, and now an `Undoing` undoes what it did. The
    `Undoing` finishes with `undone`, with `stuck`, or with what `ending` says.
    """

    how: Literal["succeeded", "failed", "cancelled", "continued", "undoing", "undone", "stuck"]
    output: bytes | None = None
    error: str | None = None
    input: bytes | None = None
    unread: tuple[int, ...] = ()
    """The numbers of delivered signals that no wait took. They become undelivered again for the next generation."""
    had_updates: bool = False
    """This generation got updates. Only set if it continues as new, which keeps their answers."""
    ending: Literal["failed", "cancelled"] | None = None
    """How the code ended. Only set with `undoing`."""
    steps: tuple[int, ...] = ()
    """n of the steps whose failures ended the code."""
    since: int | None = None
    """If no step did: how much had been delivered when the first saga was left by what ended the code."""
    is_bug: bool = False
    """The code raised this by itself: it is no step's failure and no `Stop`."""


class Turn(msgspec.Struct, gc=False):
    """Everything the code did since the last `take()`."""

    issued: list[Issue]
    finish: Finish | None = None
    is_plain: bool = False
    """There is nothing else, as in most turns. Then nobody needs to look at the rest."""
    dropped: Sequence[int] = ()
    """n of recorded steps that the code no longer waits for. They are cancelled, with `delivered_seq = 0`."""
    cancelled: Sequence[int] = ()
    """n of steps whose child runs are asked to cancel themselves."""
    ended: Sequence[tuple[int, int, bytes]] = ()
    """Signal waits that got their signal: n of the wait, the signal's number, and what the wait read of it. Also
    markers: n, 0, and the way."""
    sends: Sequence[NewSignal] = ()
    progress: str | None = None
    published: dict[str, bytes] | None = None
    kept_n: int | None = None
    """The code passed a point of no return: the steps up to this n are never undone."""
    set_aside: Sequence[tuple[int, str]] = ()
    """Signals that none of the waits for them could read: their number and the reason. No wait takes them later."""
    logs: Sequence[LogPart] = ()
    """What the code has logged."""
    replies: Sequence[UpdateReply] = ()
    """The answers to updates."""
    begun_waits: Sequence[int] = ()
    """n of callbacks whose time begins: their requests have been made."""
    placed: Sequence[tuple[int, int]] = ()
    """(n, place in the history) of steps whose results were set before the code asked for them."""
