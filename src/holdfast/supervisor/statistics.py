"""How runs ended over time: counts by slice and state, how long they took, and what is usual. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import TypeVar

import msgspec

from holdfast.lifecycle import WENT_WRONG
from holdfast.model import RunState
from holdfast.store.overview import RunEnd

K = TypeVar("K")


class Took(msgspec.Struct):
    """How long runs took: half of them at most so long, nine of ten, ninety-nine of a hundred."""

    half_s: float
    most_s: float
    slowest_s: float


class Slice(msgspec.Struct):
    begun: float
    """Seconds after the beginning of the window."""
    ended: dict[str, int]
    """How many runs ended, by state."""
    took: Took | None


class OfWorkflow(msgspec.Struct):
    workflow: str
    ended: dict[str, int]
    success: float
    """The share of the runs that succeeded among those that succeeded or went wrong."""
    took: Took | None


class OfVersion(msgspec.Struct):
    workflow: str
    version: str
    ended: dict[str, int]
    success: float
    took: Took | None


def took(runs: Iterable[RunEnd]) -> Took | None:
    """Return how long runs that succeeded took. None if none did."""
    known = sorted(
        max(0.0, run.finished_at - run.created_at) for run in runs if run.state == RunState.SUCCEEDED
    )
    if not known:
        return None
    half, most, slowest = (
        round(known[min(len(known) - 1, int(len(known) * share))], 3) for share in (0.5, 0.9, 0.99)
    )
    return Took(half, most, slowest)


def counts(runs: Iterable[RunEnd]) -> dict[str, int]:
    found: dict[str, int] = {}
    for run in runs:
        found[run.state] = found.get(run.state, 0) + 1
    return found


def slices(runs: Sequence[RunEnd], begun: float, window_s: float, slice_s: float) -> list[Slice]:
    """Return the runs by the slice of the window in which each ended. Slices without a run are there, too."""
    parts: list[list[RunEnd]] = [[] for _ in range(max(1, round(window_s / slice_s)))]
    for run in runs:
        number = int((run.finished_at - begun) / slice_s)
        if 0 <= number < len(parts):
            parts[number].append(run)
    return [Slice(number * slice_s, counts(part), took(part)) for number, part in enumerate(parts)]


def by_workflow(runs: Iterable[RunEnd]) -> list[OfWorkflow]:
    """Return the workflows, those that fail most first, then by name."""
    found = [
        OfWorkflow(name, counts(part), success(part), took(part))
        for name, part in _by(runs, lambda run: run.workflow).items()
    ]
    return sorted(found, key=lambda one: (one.success, one.workflow))


def by_version(runs: Iterable[RunEnd]) -> list[OfVersion]:
    """Return the versions of each workflow, those that fail most first, then by name."""
    found = [
        OfVersion(name, version, counts(part), success(part), took(part))
        for (name, version), part in _by(runs, lambda run: (run.workflow, run.version)).items()
    ]
    return sorted(found, key=lambda one: (one.success, one.workflow, one.version))


def _by(runs: Iterable[RunEnd], key: Callable[[RunEnd], K]) -> dict[K, list[RunEnd]]:
    parts: dict[K, list[RunEnd]] = {}
    for run in runs:
        parts.setdefault(key(run), []).append(run)
    return parts


def success(runs: Iterable[RunEnd]) -> float:
    """Return the share that succeeded of what succeeded or went wrong."""
    ended = counts(runs)
    good, bad = ended.get("succeeded", 0), sum(ended.get(str(state), 0) for state in WENT_WRONG)
    return round(good / (good + bad), 4) if good + bad else 1.0


def usual(days: Mapping[int, Mapping[str, int]]) -> dict[str, float] | None:
    """Return the median number of runs that ended in the same window of earlier days, by state. Days on which none ended
    do not count, because the store may not have been there. None if nothing is known."""
    known = [day for day in days.values() if any(day.values())]
    if not known:
        return None
    states = {state for day in known for state in day}
    return {state: float(median(day.get(state, 0) for day in known)) for state in sorted(states)}
