"""What a call in a saga may have done, and the input of its undo."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import codec
from holdfast.decider.undo_order import Extent, extent_of, instant
from holdfast.model import UNDO_PREFIX, StepState

if TYPE_CHECKING:
    from holdfast.decider.commands import Wait
    from holdfast.decider.decider import Decider
    from holdfast.workflow.step import Step

DONE = "$done"
"""The member of an undo's input that contains the result of the step it undoes. No parameter can have this name."""
KEY = "$key"
"""The member that contains the `here.key` of the step it undoes. Without a result, a remote service knows the effect
only by this key."""


def undo_input(input: bytes | None, output: bytes | None, effect: str) -> bytes:
    """Return the input of an undo. It is the input of the step it undoes with two more members: the step's result, or
    null, and the step's `here.key`."""
    added = b'{"' + DONE.encode() + b'":' + (output or b"null") + b',"' + KEY.encode() + b'":'
    members = (input or b"{}").strip()[1:-1].strip()
    return added + msgspec.json.encode(effect) + (b"," + members if members else b"") + b"}"


class _UndoInput(msgspec.Struct):
    effect: str | None = msgspec.field(name=KEY, default=None)


def undone_effect(key: str, input: bytes | None) -> str | None:
    """Return the `here.key` of the step that this undo undoes. None if the step is not an undo."""
    if input is None or not key.startswith(UNDO_PREFIX):
        return None
    return msgspec.json.decode(input, type=_UndoInput).effect


class SagaScope:
    """What the code has asked for in one saga so far."""

    __slots__ = ("closed", "effects", "parent")

    def __init__(self, parent: SagaScope | None) -> None:
        self.parent = parent
        self.effects: list[Effect] = []
        self.closed = False


scope_var: ContextVar[SagaScope | None] = ContextVar("holdfast.saga", default=None)
"""This is a context variable so that what a task asks for belongs to the saga in which the task was started."""


def open_scope() -> SagaScope | None:
    """Return the innermost open saga around the code that runs now. A task may outlive the saga it was started in; then
    the next saga outside counts."""
    scope = scope_var.get()
    while scope is not None and scope.closed:
        scope = scope.parent
    return scope


class Effect:
    """What one call in a saga may have done, or one child. Its place in the history decides when it is undone."""

    __slots__ = (
        "_host", "after_seq", "by_hand", "cause", "delivered_seq", "index", "input", "key", "output", "state", "undo",
        "undo_failed", "undone", "unsure", "wait",
    )  # fmt: skip

    def __init__(
        self,
        wait: Wait,
        undo: Step[Any, Any] | None,
        input: bytes,
        host: Decider,
        *,
        undo_failed: bool = False,
        by_hand: bool = False,
    ) -> None:
        """`undo` is None for a child: it undoes itself."""
        self.wait, self.undo, self.key, self.input, self._host = wait, undo, wait.key, input, host
        self.undo_failed, self.by_hand = undo_failed, by_hand
        self.after_seq, self.index = host.seq, 0
        self.delivered_seq: int | None = None
        self.output: bytes | None = None
        self.state: StepState | None = None
        """How the call ended. None if it has not ended or was never issued, `cancelled` if the code gave it up."""
        self.unsure = False
        self.undone: asyncio.Future[None] | None = None
        """For a child that the code gave up, and that a saga undoes: done when the child has ended and is undone."""
        self.cause: BaseException | None = None
        """Why the saga undoes it."""

    def succeeded(self, raw: bytes | None) -> None:
        """Note that the call succeeded. `raw` is the result as it was recorded, or None for the request of a callback. What
        the callback said before the request returned counts more."""
        if raw is None and self.state is not None:
            return
        self.state, self.delivered_seq = StepState.SUCCEEDED, self._host.seq
        if not self.is_child:
            self.output = raw

    def failed(self, state: StepState, error: str | None) -> None:
        self.state, self.delivered_seq = state, self._host.seq
        self.unsure = codec.is_unsure(0, error)

    @property
    def is_child(self) -> bool:
        return self.undo is None

    @property
    def may_have_happened(self) -> bool:
        """True if the call may have done something. It has not if all its attempts ended in an error of their own,
        unless the step declares `undo_failed`. A child that failed has undone itself."""
        if self.is_child:
            return self.state in (StepState.SUCCEEDED, StepState.CANCELLED)
        if self.by_hand or self.state in (StepState.SUCCEEDED, StepState.CANCELLED):
            return True
        return self.state is StepState.FAILED and (self.unsure or self.undo_failed)

    @property
    def after_stop(self) -> bool:
        return self.state is StepState.CANCELLED and not self.is_child

    @property
    def extent(self) -> Extent:
        if self.by_hand or self.delivered_seq == self.after_seq:
            # In a retry, a step may have ended before the code asks for it.
            return instant(self.after_seq, self.index)
        return extent_of(self.after_seq, self.index, self.delivered_seq)

    def undo_input(self) -> bytes:
        if self.by_hand:
            return self.input
        return undo_input(self.input, self.output, self._host.effect_key(self.key))
