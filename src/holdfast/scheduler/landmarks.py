"""How long what is left of a run takes: learned from runs that were followed to their end.

A sample of runs is followed, so that busy schedulers do not count all day. Of those that succeed, the time from each
landmark to the end is counted.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.durations import DurationCounts, mark_of, rest_name, start_name
from holdfast.environment import StoreClock
from holdfast.model import StepRow

LANDMARKS_MAX = 300
"""Of one run."""


class Trace:
    """When one run came by which landmark."""

    __slots__ = ("_base_n", "_first", "_started_at", "_workflow")

    def __init__(self, workflow: str, base_n: int, started_at: float | None) -> None:
        self._workflow, self._base_n, self._started_at = workflow, base_n, started_at
        self._first: dict[tuple[str, int], float] = {}

    def issued(self, n: int, name: str, at: float) -> None:
        landmark = (name, mark_of(n - self._base_n))
        if landmark not in self._first and len(self._first) < LANDMARKS_MAX:
            self._first[landmark] = at

    def count(self, durations: DurationCounts, at: float) -> None:
        """The run succeeded."""
        if self._started_at is not None:
            durations.add(start_name(self._workflow), at - self._started_at)
        for (name, mark), since in self._first.items():
            durations.add(rest_name(self._workflow, name, mark), at - since)


class Followed:
    """Chooses which runs are followed: at most `per_s` a second begin to be."""

    def __init__(self, clock: StoreClock, per_s: float) -> None:
        self._clock, self._per_s = clock, per_s
        self._room, self._at = per_s, clock.now()

    def follow(
        self, workflow: str, *, base_n: int = 0, started_at: float | None, steps: Iterable[StepRow] = ()
    ) -> Trace | None:
        now = self._clock.now()
        self._room = min(self._per_s, self._room + (now - self._at) * self._per_s)
        self._at = now
        if self._room < 1:
            return None
        self._room -= 1
        trace = Trace(workflow, base_n, started_at)
        for step in steps:
            if step.n > base_n:
                trace.issued(step.n, step.name, step.issued_at)
        return trace
