"""Stretches in which nothing works. They are drawn narrow, so that the rest has room."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.durations import span
from holdfast.timeline.picture import Fold

LEAST_SHARE = 0.08
"""A quiet stretch that is shorter than this share of the whole is not folded."""
FOLDED_SHARE = 0.09
"""How wide a folded stretch is drawn."""
FOLDS_MAX = 5
"""More folds than these would leave little room for the rest."""
MARGIN_SHARE = 0.02
"""The share of the time that is not quiet, which stays visible at both ends of a quiet stretch."""


def united(stretches: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return stretches that overlap or touch as one, in order."""
    found: list[tuple[float, float]] = []
    for begun, ended in sorted(stretches):
        if found and begun <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], ended)
        else:
            found.append((begun, ended))
    return found


def gaps(stretches: Iterable[tuple[float, float]], begun: float, ended: float) -> list[tuple[float, float]]:
    """Return the stretches between `begun` and `ended` that none of these covers."""
    found, at = [], begun
    for start, end in united(stretches):
        if start > at:
            found.append((at, min(start, ended)))
        at = max(at, end)
        if at >= ended:
            break
    if at < ended:
        found.append((at, ended))
    return [(start, end) for start, end in found if end > start]


def folds(working: Iterable[tuple[float, float]], whole: float) -> tuple[list[Fold], bool]:
    """Return what can be folded of `whole` seconds, and whether most of them are quiet."""
    quiet = gaps(working, 0.0, whole)
    quiet_s = sum(end - begun for begun, end in quiet)
    margin = (whole - quiet_s) * MARGIN_SHARE
    long = sorted((one for one in quiet if one[1] - one[0] > LEAST_SHARE * whole), key=_length)[-FOLDS_MAX:]
    found = []
    for begun, ended in sorted(long):
        edge = min(margin, (ended - begun) / 10)
        found.append(Fold(round(begun + edge, 3), round(ended - edge, 3), span(ended - begun)))
    return found, quiet_s > whole / 2 and bool(found)


def _length(stretch: tuple[float, float]) -> float:
    return stretch[1] - stretch[0]
