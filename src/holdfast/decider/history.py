"""What a run recorded: its steps by key, its deliveries in their order. And how to see that the code has changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.codec.secret import is_readable, masked_json
from holdfast.errors import Bug, Drift, InvalidInput, UndoMissing, Unreadable
from holdfast.lifecycle import STEP_ENDED
from holdfast.model import Outcome, SignalRow, StepKind, StepRow

if TYPE_CHECKING:
    from holdfast.decider.commands import Issue

SHOWN_CHARS = 200
"""How much of an input a drift shows: enough to see what differs, short enough for one line of a table."""


class Recorded:
    """The recorded steps of a run that its code has not asked for yet."""

    __slots__ = ("by_key", "kept", "keys")

    def __init__(self, steps: Sequence[StepRow] = ()) -> None:
        self.by_key = {step.key: step for step in steps}
        self.keys = {step.n: step.key for step in steps}
        self.kept: dict[str, Outcome] = {}

    def ask(self, key: str) -> tuple[StepRow, Outcome | None] | None:
        """Return what is recorded under this key, and forget it: the code asks for each key only once."""
        step = self.by_key.pop(key, None)
        if step is None:
            return None
        del self.keys[step.n]
        return step, self.kept.pop(key, None)

    def is_unasked(self, n: int) -> bool:
        """True if the code has not asked for this step yet, and no outcome is kept for it."""
        key = self.keys.get(n)
        return key is not None and key not in self.kept

    def open_and_unasked(self) -> list[StepRow]:
        """Return the steps that are still open and that the code has not asked for."""
        return [
            step for key, step in self.by_key.items() if step.delivered_seq is None and key not in self.kept
        ]

    def keep(self, outcome: Outcome) -> None:
        """Keep an outcome that came before the code asked for its step. Ignore it if no such step is recorded."""
        key = self.keys.get(outcome.n)
        if key is not None:
            self.kept[key] = outcome


def timeline(
    steps: Sequence[StepRow], signals: Sequence[SignalRow]
) -> Iterator[tuple[int, StepRow | SignalRow]]:
    """Return everything that was delivered, in its recorded order. A signal wait is left out if the signal that ended it is
    there. Otherwise somebody has set what it got."""
    sent = {signal.delivered_seq for signal in signals}
    events: list[tuple[int, StepRow | SignalRow]] = [
        (step.delivered_seq, step)
        for step in steps
        if step.delivered_seq
        and step.state in STEP_ENDED
        and not (step.kind is StepKind.SIGNAL and step.delivered_seq in sent)
    ]
    events += [(signal.delivered_seq, signal) for signal in signals if signal.delivered_seq]
    events.sort(key=_number)
    return iter(events)


def _number(event: tuple[int, StepRow | SignalRow]) -> int:
    return event[0]


def drift(recorded: StepRow, issue: Issue) -> Drift | None:
    """Return the drift if the code no longer asks for what was recorded under this key. A timer may have another time:
    the recorded one counts."""
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
    """True if both inputs are the same, once this code's defaults have filled in what was not recorded."""
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
    """Return the error for something recorded that the code cannot read whole. It has both sides."""
    return Unreadable(key, kind, what, shown(raw), str(problem))


def why_held(error: Exception) -> str:
    """Return the word in a held run's note for the reason: the code changed, the code raised, or it cannot be loaded."""
    if isinstance(error, Bug):
        return "bug"
    return "drift" if isinstance(error, Drift | UndoMissing) else "replay"


def hold_note(why: str, error: Exception, **more: str | int) -> str:
    """Return the note in a held run's row: why it is held. For a drift it also has both sides, and for a bug the
    exception with its traceback."""
    if isinstance(error, Drift):
        more |= {"key": error.key, "recorded": error.recorded, "asked": error.asked}
    if isinstance(error, Bug):
        more |= {"place": error.place, "error": error.error}
    return json.dumps({"why": why, "message": str(error), **more})


def described(kind: StepKind, name: str, raw: bytes | None) -> str:
    """Return one side of a drift as a text for people."""
    return f"{kind} {name} {shown(raw)}".rstrip()


def shown(raw: bytes | None) -> str:
    """Return a payload as a text that is short enough for a line. It goes into notes, so nothing of a sealed one is in
    it."""
    if raw and not is_readable():
        return f"({len(raw):,} bytes, sealed)"
    raw = masked_json(raw) if raw else raw
    text = raw.decode("utf-8", "replace") if raw else ""
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"
