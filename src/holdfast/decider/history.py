"""What a run recorded: its steps by key, what was delivered in which order, and how to tell that the code has changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.errors import Drift, InvalidInput, Unreadable
from holdfast.lifecycle import STEP_ENDED
from holdfast.model import Outcome, SignalRow, StepKind, StepRow

if TYPE_CHECKING:
    from holdfast.decider.commands import Issue

SHOWN_CHARS = 200
"""Of an input, in a drift: enough to see what differs, short enough for one line of a table."""


class Recorded:
    """The steps of a run that its code has not asked for yet."""

    __slots__ = ("by_key", "kept", "keys")

    def __init__(self, steps: Sequence[StepRow] = ()) -> None:
        self.by_key = {step.key: step for step in steps}
        self.keys = {step.n: step.key for step in steps}
        self.kept: dict[str, Outcome] = {}

    def ask(self, key: str) -> tuple[StepRow, Outcome | None] | None:
        """What is recorded under this key. Asked once: the code has it from here on."""
        step = self.by_key.pop(key, None)
        if step is None:
            return None
        del self.keys[step.n]
        return step, self.kept.pop(key, None)

    def unasked(self, n: int) -> bool:
        """Has the code neither asked for this step yet, nor was its outcome kept for it?"""
        key = self.keys.get(n)
        return key is not None and key not in self.kept

    def left(self) -> list[StepRow]:
        """Steps that are still open and that the code never asked for."""
        return [
            step for key, step in self.by_key.items() if step.delivered_seq is None and key not in self.kept
        ]

    def keep(self, outcome: Outcome) -> None:
        """An outcome came before the code asked for its step. One that no code knows is ignored."""
        key = self.keys.get(outcome.n)
        if key is not None:
            self.kept[key] = outcome


def timeline(
    steps: Sequence[StepRow], signals: Sequence[SignalRow]
) -> Iterator[tuple[int, StepRow | SignalRow]]:
    """Everything that was delivered, in its recorded order. A signal wait was ended by its signal, not by itself."""
    seen: list[tuple[int, StepRow | SignalRow]] = [
        (step.delivered_seq, step)
        for step in steps
        if step.delivered_seq and step.kind is not StepKind.SIGNAL and step.state in STEP_ENDED
    ]
    seen += [(signal.delivered_seq, signal) for signal in signals if signal.delivered_seq]
    seen.sort(key=_number)
    return iter(seen)


def _number(event: tuple[int, StepRow | SignalRow]) -> int:
    return event[0]


def drift(recorded: StepRow, issue: Issue) -> Drift | None:
    """Does the code still ask for what was recorded under this key? A timer's time is the recorded one, whatever the code says."""
    if recorded.kind is issue.kind:
        if issue.kind is StepKind.TIMER:
            return None
        if recorded.name == issue.name and _is_same_input(recorded, issue):
            return None
    return Drift(
        recorded.key,
        described(recorded.kind, recorded.name, recorded.input),
        described(issue.kind, issue.name, issue.input),
    )


def _is_same_input(recorded: StepRow, issue: Issue) -> bool:
    """The same, or the same once this code's defaults have filled in what was not recorded."""
    if recorded.digest is None or recorded.digest == issue.digest:
        return True
    shape = issue.shape
    if shape is None or recorded.input is None or issue.input is None:
        return False
    try:
        return shape.rewritten(recorded.input) == shape.rewritten(issue.input)
    except InvalidInput:
        return False


def unreadable(key: str, kind: str, what: str, raw: bytes, problem: Exception) -> Unreadable:
    """Something recorded that the code cannot read whole, with both sides."""
    return Unreadable(key, kind, what, shown(raw), str(problem))


def hold_note(why: str, error: Exception, **more: str | int) -> str:
    """What a held run's row says: why it is held, with both sides if there are two."""
    if isinstance(error, Drift):
        more |= {"key": error.key, "recorded": error.recorded, "asked": error.asked}
    return json.dumps({"why": why, "message": str(error), **more})


def described(kind: StepKind, name: str, raw: bytes | None) -> str:
    """One side of a drift, for people."""
    return f"{kind} {name} {shown(raw)}".rstrip()


def shown(raw: bytes | None) -> str:
    """A payload, short enough for a line."""
    text = raw.decode("utf-8", "replace") if raw else ""
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"
