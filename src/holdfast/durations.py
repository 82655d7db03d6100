"""What nodes learn from durations: the names under which durations are counted, the counts that a node has not written
yet, and when a run will probably end. Everything but the counting is pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from holdfast.model import DueRun, Landmark, RunRow, RunState
from holdfast.sketch import Sketch, bucket_of

STEP = "step:"
"""The name for the durations of a step's successful attempts begins with this. The step's name follows."""
REST = "rest:"
"""The name for how long runs took from a landmark to their end begins with this. Workflow and landmark follow."""
EXACT_BITS = 5
"""How many leading bits of a step's place in the run distinguish landmarks. So each of the first 31 steps is a
landmark, and later ones share landmarks."""
FULL = 500
"""After this many attempts since the last write to the store, only one in STRIDE is counted, with STRIDE as its
weight."""
STRIDE = 16
KEPT_MAX = 5_000
"""How many counts a node keeps until it writes them into the store. Above this it drops new ones, because they are only
statistics."""
ETA_SAMPLES = 5
"""How many ended runs must be known before they can say when a run ends."""


def span(seconds: float) -> str:
    """Return a duration for people: 340 ms, 1.3 s, 65 s, 12 min, 3 h, 5 d."""
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size * 2:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def step_name(step: str) -> str:
    return STEP + step


def start_name(workflow: str) -> str:
    """Return the name for the durations of whole runs."""
    return f"{REST}{workflow}:start"


def landmark_of(place: int) -> int:
    """Return the landmark to which step number `place` of a run belongs."""
    coarse = max(0, place.bit_length() - EXACT_BITS)
    return (place >> coarse) << coarse


def rest_name(workflow: str, step: str, place: int) -> str:
    """Return the name for how long runs took to their end after they asked for this step."""
    return f"{REST}{workflow}:{step}@{landmark_of(place)}"


class DurationCounts:
    """The counts that this node has not written into the store yet."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], float] = {}
        self.fresh = 0
        """How many durations were counted since counts were last taken for the store."""

    @property
    def stride(self) -> int:
        """An agent counts one attempt in this many, with this weight."""
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
        """Remove and return up to `limit` counts (name, bucket, count), to be written into the store."""
        self.fresh = 0
        if len(self._counts) <= limit:
            counts, self._counts = self._counts, {}
        else:
            counts = {place: self._counts.pop(place) for place in list(self._counts)[:limit]}
        return sorted((name, bucket, count) for (name, bucket), count in counts.items())


def sketches(rows: Iterable[tuple[str, int, float]]) -> dict[str, Sketch]:
    """Return sketches by name, made from rows (name, bucket, count)."""
    counts: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for name, bucket, count in rows:
        counts[name][bucket] = counts[name].get(bucket, 0.0) + count
    return {name: Sketch(found) for name, found in counts.items()}


# --- when a run will end ------------------------------------------------------------------------------------------


class Eta(msgspec.Struct, frozen=True):
    """When a run will end, if it goes on like the runs before it."""

    left_s: float
    """Half of the runs that came this far ended within this time."""
    most_s: float
    """Nine of ten of them ended within this time."""
    samples: int
    """How many runs this was learned from. Old runs count less."""


def eta_names(run: RunRow | DueRun, mark: Landmark | None) -> list[str]:
    """Return the names of the sketches that say when this run ends, the most precise one first."""
    if run.state is not RunState.RUNNING:
        return []
    names = [] if mark is None else [rest_name(run.workflow, mark.name, mark.n - run.base_n)]
    return names if run.generation > 1 else [*names, start_name(run.workflow)]


def eta(
    run: RunRow | DueRun,
    mark: Landmark | None,
    known: Mapping[str, Sketch],
    now: float,
    *,
    least: int = ETA_SAMPLES,
) -> Eta | None:
    """Return when a run will end: the time that runs took from its newest landmark, less the time since then. None if
    fewer than `least` runs are known."""
    for name in eta_names(run, mark):
        sketch = known.get(name)
        if sketch is None or sketch.total < least:
            continue
        passed_s = max(0.0, now - (mark.issued_at if mark and "@" in name else run.started_at or now))
        left_s, most_s = sketch.left(passed_s), sketch.left(passed_s, 0.9)
        if left_s is not None and most_s is not None:
            return Eta(left_s, most_s, round(sketch.total))
    return None
