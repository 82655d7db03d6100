"""What the code of a retried or forked run takes over from the run before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.decider.commands import Wait
from holdfast.model import Inherited, StepKind, StepRow, effect_key, marker_key

_EXECUTED = frozenset({StepKind.CALL, StepKind.CHILD})


class Heritage:
    """What one run takes over. A run that is neither a retry nor a fork has nothing here but its own id."""

    __slots__ = (
        "_effects",
        "_run_id",
        "by_key",
        "identity",
        "is_fork",
        "kept_n",
        "made_at",
        "resumed_at",
        "sender",
        "set_keys",
    )

    def __init__(
        self,
        run_id: str,
        inherited: Sequence[Inherited] = (),
        resumed_at: float = 0.0,
        made_at: float = 0.0,
    ) -> None:
        self._run_id = run_id
        self.by_key: dict[str, Inherited] = {}
        self.identity = self.sender = run_id
        """`identity` is the id of the first run in a chain of retries or forks. Random numbers are derived from it, so that
        they stay the same. `sender` is the run in whose name signals are sent. Their keys are derived from it, so that a
        retry sends the same signals as the run before it, and a fork others."""
        self.is_fork = False
        self.kept_n = 0
        """The steps up to this one are those of the run that this one was forked from."""
        self.resumed_at = resumed_at
        """When the run goes on. New timers of a retry count from this time."""
        self.made_at = made_at
        """When somebody asked for this retry or fork. What it takes over and gets later, it gets after this time."""
        self.set_keys: list[str] = []
        """The keys of the steps whose results somebody has set, from the point of a fork on."""
        self._effects: dict[str, str] = {}
        if inherited:
            self._inherit(inherited)

    def _inherit(self, inherited: Sequence[Inherited]) -> None:
        self.by_key = {entry.key: entry for entry in inherited}
        self.set_keys = [entry.key for entry in inherited if entry.is_set]
        first = self.by_key.get("")
        if first is not None:
            self.identity = self._run_id if first.effect is None else first.effect
            self.is_fork = first.sender is not None
            self.sender = self.identity if first.sender is None else first.sender
            self.kept_n = first.kept_n

    @property
    def begins_anew(self) -> bool:
        """True for a fork that begins at the beginning, with some results that are set already."""
        return self.is_fork and self.identity == self._run_id

    def is_new_fork(self, last_n: int) -> bool:
        """True for a fork that has done nothing yet, if this is its last step."""
        return self.sender == self._run_id and last_n <= self.kept_n

    def own_seq(self, steps: Iterable[StepRow]) -> int | None:
        """Return the place in the history at which a new fork begins, if its code gets a result there that is set."""
        places = (step.delivered_seq for step in steps if step.key in self.set_keys and step.delivered_seq)
        return next(places, None)

    def leads(self, unasked: Mapping[str, StepRow]) -> bool:
        """True if the code has yet to ask for a step that a retry keeps, or for a result that was set. The keys of these are
        those of the ways that the other run went. `unasked` are the recorded steps that the code has not asked for."""
        return any(key in unasked for key in self.set_keys) or any(
            row.n > self.kept_n and row.delivered_seq != 0 and row.kind in _EXECUTED
            for row in unasked.values()
        )

    def way(self, name: str) -> bool:
        """Return the way of the other run at a marker. Without a record, its code did not ask."""
        entry = self.by_key.get(marker_key(name))
        return entry is not None and entry.effect == "true"

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
