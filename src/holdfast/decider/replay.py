"""What a run recorded: its steps by key, what was delivered in which order, and how to tell that the code has changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.errors import Drift
from holdfast.lifecycle import STEP_ENDED
from holdfast.model import Signal, Step, StepKind, StepState

SHOWN_CHARS = 200
"""Of an input, in a drift: enough to see what differs, short enough for one line of a table."""


class Outcome(msgspec.Struct, frozen=True):
    state: StepState
    output: bytes | None
    error: str | None


class Recorded:
    """The steps of a run that its code has not asked for yet."""

    __slots__ = ("by_key", "kept", "keys")

    def __init__(self, steps: Sequence[Step] = ()) -> None:
        self.by_key = {step.key: step for step in steps}
        self.keys = {step.n: step.key for step in steps}
        self.kept: dict[str, Outcome] = {}

    def ask(self, key: str) -> tuple[Step, Outcome | None] | None:
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

    def left(self) -> list[Step]:
        """Steps that are still open and that the code never asked for."""
        return [
            step for key, step in self.by_key.items() if step.delivered_seq is None and key not in self.kept
        ]

    def keep(self, n: int, outcome: Outcome) -> None:
        """An outcome came before the code asked for its step. One that no code knows is ignored."""
        key = self.keys.get(n)
        if key is not None:
            self.kept[key] = outcome


def timeline(steps: Sequence[Step], signals: Sequence[Signal]) -> Iterator[tuple[int, Step | Signal]]:
    """Everything that was delivered, in its recorded order. A signal wait was ended by its signal, not by itself."""
    seen: list[tuple[int, Step | Signal]] = [
        (step.delivered_seq, step)
        for step in steps
        if step.delivered_seq and step.kind is not StepKind.SIGNAL and step.state in STEP_ENDED
    ]
    seen += [(signal.delivered_seq, signal) for signal in signals if signal.delivered_seq]
    seen.sort(key=_number)
    return iter(seen)


def _number(event: tuple[int, Step | Signal]) -> int:
    return event[0]


def drift(recorded: Step, kind: StepKind, name: str, raw: bytes | None, digest: bytes | None) -> Drift | None:
    """Does the code still ask for what was recorded under this key? A timer's time is the recorded one, whatever the code says."""
    if recorded.kind is kind:
        if kind is StepKind.TIMER:
            return None
        if recorded.name == name and (recorded.digest == digest or recorded.digest is None):
            return None
    return Drift(
        recorded.key, described(recorded.kind, recorded.name, recorded.input), described(kind, name, raw)
    )


def described(kind: StepKind, name: str, raw: bytes | None) -> str:
    """One side of a drift, for people."""
    text = raw.decode("utf-8", "replace") if raw else ""
    if len(text) > SHOWN_CHARS:
        text = text[: SHOWN_CHARS - 1] + "…"
    return f"{kind} {name} {text}".rstrip()
