"""What is learned from durations: names under which they are counted, what a node counted and has yet to tell the store,
and what follows for a run that is under way. Pure but for the counting.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from holdfast.model import Landmark, RunRow, RunState
from holdfast.sketch import Sketch, bucket_of

STEP = "step:"
"""Begins the names of successful attempts' durations; the step's name follows."""
REST = "rest:"
"""Begins the names of what was left of a run when it came by a landmark; workflow and landmark follow."""
EXACT_BITS = 5
"""Landmarks are told apart by so many leading bits of their place in the run: the first 31 steps one by one."""
FULL = 500
"""After so many attempts since the store was last told, only one in STRIDE is counted, with that weight."""
STRIDE = 16
KEPT_MAX = 5_000
"""Counts a node keeps until the store has taken them. Beyond, new ones are not kept: it is statistics."""
ETA_SAMPLES = 5
"""Fewer ended runs than this say nothing."""


def step_name(step: str) -> str:
    return STEP + step


def start_name(workflow: str) -> str:
    """Of whole runs."""
    return f"{REST}{workflow}:start"


def mark_of(place: int) -> int:
    """The landmark that a run's step number `place` belongs to."""
    coarse = max(0, place.bit_length() - EXACT_BITS)
    return (place >> coarse) << coarse


def rest_name(workflow: str, step: str, place: int) -> str:
    """Of what was left when the run asked for this step."""
    return f"{REST}{workflow}:{step}@{mark_of(place)}"


class DurationCounts:
    """Counts that the store does not know yet."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], float] = {}
        self.fresh = 0
        """Attempts counted since the store was last told."""

    @property
    def stride(self) -> int:
        """Count every so manyth attempt, with this weight."""
        return 1 if self.fresh < FULL else STRIDE

    def add(self, name: str, seconds: float, weight: float = 1.0) -> None:
        counts, place = self._counts, (name, bucket_of(seconds))
        known = counts.get(place)
        if known is not None:
            counts[place] = known + weight
        elif len(counts) < KEPT_MAX:
            counts[place] = weight
        self.fresh += 1

    def take(self, limit: int) -> list[tuple[str, int, float]]:
        """Up to so many counts, to be told to the store."""
        self.fresh = 0
        if len(self._counts) <= limit:
            counts, self._counts = self._counts, {}
        else:
            counts = {place: self._counts.pop(place) for place in list(self._counts)[:limit]}
        return sorted((name, bucket, count) for (name, bucket), count in counts.items())


def sketches(rows: Iterable[tuple[str, int, float]]) -> dict[str, Sketch]:
    """Rows (name, bucket, count) as sketches by name."""
    counts: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for name, bucket, count in rows:
        counts[name][bucket] = counts[name].get(bucket, 0.0) + count
    return {name: Sketch(found) for name, found in counts.items()}


# --- when a run will end ------------------------------------------------------------------------------------------


class Eta(msgspec.Struct, frozen=True):
    """When a run will end, if it goes on like those before it."""

    left_s: float
    """Half of the runs that came this far ended within this time."""
    most_s: float
    """Nine of ten did."""
    samples: int
    """How many runs this was learned from. Old ones count less."""


def eta_names(run: RunRow, mark: Landmark | None) -> list[str]:
    """The sketches that say something about when this run ends, the most telling first."""
    if run.state is not RunState.RUNNING:
        return []
    names = [] if mark is None else [rest_name(run.workflow, mark.name, mark.n - run.base_n)]
    return names if run.generation > 1 else [*names, start_name(run.workflow)]


def eta(run: RunRow, mark: Landmark | None, known: Mapping[str, Sketch], now: float) -> Eta | None:
    """What is left of a run at its newest landmark, less what has passed since; None when nothing tells."""
    for name in eta_names(run, mark):
        sketch = known.get(name)
        if sketch is None or sketch.total < ETA_SAMPLES:
            continue
        passed_s = max(0.0, now - (mark.issued_at if mark and "@" in name else run.started_at or now))
        left_s, most_s = sketch.left(passed_s), sketch.left(passed_s, 0.9)
        if left_s is not None and most_s is not None:
            return Eta(left_s, most_s, round(sketch.total))
    return None
