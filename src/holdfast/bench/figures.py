"""Measured values: a median with its spread, so that a single lucky value does not count."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple


class Figure(NamedTuple):
    """One measured quantity. `low` and `high` are the smallest and largest of `rounds` measurements."""

    name: str
    unit: str
    median: float
    low: float
    high: float
    rounds: int
    what: str
    """What was measured, in words for the table."""

    def as_json(self) -> dict[str, Any]:
        return {
            "unit": self.unit,
            "median": _rounded(self.median),
            "low": _rounded(self.low),
            "high": _rounded(self.high),
            "rounds": self.rounds,
            "what": self.what,
        }


def figure(name: str, unit: str, values: Sequence[float], what: str) -> Figure:
    return Figure(name, unit, statistics.median(values), min(values), max(values), len(values), what)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 100) * len(ordered) // 100) - 1))]


def _rounded(value: float) -> float:
    """Round to four significant digits, because more would be noise."""
    return float(f"{value:.4g}")
