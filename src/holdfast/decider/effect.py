"""What a call in a saga may have done, and how an undo is written down: its key and its input."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import codec
from holdfast.decider.undo_order import Span, instant, span_of
from holdfast.model import UNDO_PREFIX, StepState

if TYPE_CHECKING:
    from holdfast.decider.commands import Wait
    from holdfast.decider.decider import Decider
    from holdfast.workflow.step import Step

DONE = "$done"
"""The member of an undo's input that holds the result of what it undoes; no parameter can have this name."""
KEY = "$key"
"""And the one that holds the `here.key` of what it undoes: by that a remote service knows it, when the result does not."""


def undo_input(input: bytes | None, output: bytes | None, effect: str) -> bytes:
    """The input of an undo: that of the step it undoes, and as two more members its result, or null, and its `here.key`."""
    own = b'{"' + DONE.encode() + b'":' + (output or b"null") + b',"' + KEY.encode() + b'":'
    members = (input or b"{}").strip()[1:-1].strip()
    return own + msgspec.json.encode(effect) + (b"," + members if members else b"") + b"}"


class _Undone(msgspec.Struct):
    effect: str | None = msgspec.field(name=KEY, default=None)


def undone_effect(key: str, input: bytes | None) -> str | None:
    """Of an undo: the `here.key` of the step it undoes. None for any other step."""
    if input is None or not key.startswith(UNDO_PREFIX):
        return None
    return msgspec.json.decode(input, type=_Undone).effect


class Scope:
    """What was asked for in one saga so far."""

    __slots__ = ("closed", "effects", "parent")

    def __init__(self, parent: Scope | None) -> None:
        self.parent = parent
        self.effects: list[Effect] = []
        self.closed = False


scope_var: ContextVar[Scope | None] = ContextVar("holdfast.saga", default=None)
"""A context variable: what a task that was started in a saga asks for belongs to that saga."""


def open_scope() -> Scope | None:
    """The innermost saga around the code that runs now. A task may outlive the one it was started in."""
    scope = scope_var.get()
    while scope is not None and scope.closed:
        scope = scope.parent
    return scope


class Effect:
    """What one call, asked for in a saga, may have done. Its place in the history decides when it is taken back."""

    __slots__ = (
        "_host", "after_seq", "by_hand", "delivered_seq", "index", "input", "key", "op", "output", "state", "undo",
        "undo_failed", "unsure",
    )  # fmt: skip

    def __init__(
        self,
        op: Wait,
        undo: Step[Any, Any],
        input: bytes,
        host: Decider,
        *,
        undo_failed: bool = False,
        by_hand: bool = False,
    ) -> None:
        self.op, self.undo, self.key, self.input, self._host = op, undo, op.key, input, host
        self.undo_failed, self.by_hand = undo_failed, by_hand
        self.after_seq, self.index = host.seq, 0
        self.delivered_seq: int | None = None
        self.output: bytes | None = None
        self.state: StepState | None = None
        """How the call ended; None while it has not, or was never issued; `cancelled` when the code gave it up."""
        self.unsure = False

    def succeeded(self, raw: bytes) -> None:
        """`raw` is the result as it was recorded."""
        self.state, self.output, self.delivered_seq = StepState.SUCCEEDED, raw, self._host.seq

    def failed(self, state: StepState, error: str | None) -> None:
        self.state, self.delivered_seq = state, self._host.seq
        self.unsure = codec.is_unsure(0, error)

    @property
    def may_be(self) -> bool:
        """May the call have done something? One whose attempts all ended in an error of their own has not."""
        if self.by_hand or self.state in (StepState.SUCCEEDED, StepState.CANCELLED):
            return True
        return self.state is StepState.FAILED and (self.unsure or self.undo_failed)

    @property
    def after_stop(self) -> bool:
        return self.state is StepState.CANCELLED

    @property
    def span(self) -> Span:
        if self.by_hand or self.delivered_seq == self.after_seq:
            return instant(
                self.after_seq, self.index
            )  # in a retry, what is asked for may have ended long ago
        return span_of(self.after_seq, self.index, self.delivered_seq)

    def undo_input(self) -> bytes:
        if self.by_hand:
            return self.input
        return undo_input(self.input, self.output, self._host.effect_key(self.key))
