"""What the code of a retried run takes over from the run before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.decider.commands import Wait
from holdfast.model import Inherited, StepKind, StepRow, effect_key


class Heritage:
    """What one run takes over. A run that is not a retry has nothing here but its own id."""

    __slots__ = ("_effects", "_run_id", "by_key", "identity", "resumed_at")

    def __init__(self, run_id: str, inherited: Sequence[Inherited], resumed_at: float) -> None:
        self._run_id = run_id
        self.by_key = {entry.key: entry for entry in inherited}
        first = self.by_key.get("")
        self.identity = run_id if first is None or first.effect is None else first.effect
        """The id of the first run in a chain of retries. Random numbers and the keys of sent signals are derived from
        it, so that they stay the same."""
        self.resumed_at = resumed_at
        """When the run goes on. New timers of a retry count from this time."""
        self._effects: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.by_key)

    def recall(self, steps: Iterable[StepRow]) -> None:
        """Remember which recorded steps have a `here.key` from an earlier run."""
        self._effects = {step.key: step.effect for step in steps if step.effect is not None}

    def effect_key(self, key: str) -> str:
        """Return the `here.key` of the step with this key."""
        return self._effects.get(key) or effect_key(self._run_id, key)

    def take_over(self, wait: Wait) -> None:
        """Give a new step what the run before left for it: the `here.key` of a call, or the run that a child goes on
        from."""
        entry, issue = self.by_key.get(wait.key), wait.issue
        if entry is None or issue is None:
            return
        if wait.kind is StepKind.CALL and entry.effect is not None:
            self._effects[wait.key] = issue.effect = entry.effect
        elif issue.child is not None and entry.child is not None:
            issue.child = msgspec.structs.replace(issue.child, retry_of=entry.child)
