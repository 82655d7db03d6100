"""What the code of a retried run takes over from the run before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.decider.commands import Wait
from holdfast.model import Inherited, StepKind, StepRow, effect_key


class Heritage:
    """Of a run that is no retry: nothing but its own id."""

    __slots__ = ("_effects", "_run_id", "by_key", "identity", "resumed_at")

    def __init__(self, run_id: str, inherited: Sequence[Inherited], resumed_at: float) -> None:
        self._run_id = run_id
        self.by_key = {one.key: one for one in inherited}
        first = self.by_key.get("")
        self.identity = run_id if first is None or first.effect is None else first.effect
        """Whose dice the code throws, and in whose name it sends: those of the first run of a chain of retries."""
        self.resumed_at = resumed_at
        """When the run goes on."""
        self._effects: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.by_key)

    def learn(self, steps: Iterable[StepRow]) -> None:
        """Steps whose `here.key` is an earlier run's."""
        self._effects = {step.key: step.effect for step in steps if step.effect is not None}

    def effect_key(self, key: str) -> str:
        """The `here.key` of the step with this key."""
        return self._effects.get(key) or effect_key(self._run_id, key)

    def claim(self, op: Wait) -> None:
        """The code asks for something new: the run before may have begun it."""
        known, issue = self.by_key.get(op.key), op.issue
        if known is None or issue is None:
            return
        if op.kind is StepKind.CALL and known.effect is not None:
            self._effects[op.key] = issue.effect = known.effect
        elif issue.child is not None and known.child is not None:
            issue.child = msgspec.structs.replace(issue.child, retry_of=known.child)
