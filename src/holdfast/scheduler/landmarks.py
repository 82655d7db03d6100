"""Learns how long runs take from each of their landmarks to their end.

A scheduler follows only a sample of its runs, because following every run would cost a busy one too much. When a run it
follows succeeds, it counts the time from each landmark to the end.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.durations import DurationCounts, landmark_of, rest_name, start_name
from holdfast.environment import StoreClock
from holdfast.model import StepKind, StepRow

LANDMARKS_MAX = 300
"""How many landmarks a scheduler notes for one run."""


class Landmarks:
    """The times at which one run reached its landmarks."""

    __slots__ = ("_base_n", "_first", "_started_at", "_workflow")

    def __init__(self, workflow: str, base_n: int, started_at: float | None) -> None:
        self._workflow, self._base_n, self._started_at = workflow, base_n, started_at
        self._first: dict[tuple[str, int], float] = {}

    def issued(self, n: int, name: str, at: float) -> None:
        """Note that the run asked for a step. The first step at a landmark counts."""
        landmark = (name, landmark_of(n - self._base_n))
        if landmark not in self._first and len(self._first) < LANDMARKS_MAX:
            self._first[landmark] = at

    def count(self, durations: DurationCounts, at: float) -> None:
        """Count how long the run took from each landmark. Called when the run has succeeded."""
        if self._started_at is not None:
            durations.add(start_name(self._workflow), at - self._started_at)
        for (name, mark), since in self._first.items():
            durations.add(rest_name(self._workflow, name, mark), at - since)


class LandmarkSampler:
    """Chooses the runs that a scheduler follows: at most `per_s` new ones per second."""

    def __init__(self, clock: StoreClock, per_s: float) -> None:
        self._clock, self._per_s = clock, per_s
        self._room, self._at = per_s, clock.now()

    def follow(
        self,
        workflow: str,
        now: float,
        *,
        base_n: int = 0,
        started_at: float | None,
        steps: Iterable[StepRow] = (),
    ) -> Landmarks | None:
        """Return new landmarks for this run, or None if the scheduler does not follow it."""
        self._room = min(self._per_s, self._room + (now - self._at) * self._per_s)
        self._at = now
        if self._room < 1:
            return None
        self._room -= 1
        landmarks = Landmarks(workflow, base_n, started_at)
        for step in steps:
            if step.n > base_n and step.kind is not StepKind.MARKER:
                landmarks.issued(step.n, step.name, step.issued_at)
        return landmarks
