"""Columns of a chart, in a box of 100 by 40. Pure: numbers in, rectangles out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.desk.stats import Stats
from holdfast.http.pages.words import STATES
from holdfast.lifecycle import WENT_WRONG

WIDTH, HEIGHT, TALLEST = 100.0, 40.0, 38.0
GAP = 0.32
"""The share of a column's place that stays empty."""
ENDS = ("succeeded", "cancelled", "undone", "failed")


class Rect(NamedTuple):
    colour: str
    x: str
    y: str
    width: str
    height: str


def columns(parts: Sequence[Sequence[tuple[str, float]]]) -> list[Rect]:
    """Return a column for each part: its colours and numbers, from below. A part of which nothing is known is empty."""
    top = max((sum(number for _, number in part) for part in parts), default=0.0)
    if top <= 0:
        return []
    place = WIDTH / len(parts)
    found = []
    for index, part in enumerate(parts):
        y = HEIGHT
        for colour, number in part:
            height = number / top * TALLEST
            if height > 0:
                y -= height
                sizes = (index * place, y, place * (1 - GAP), height)
                found.append(Rect(colour, *(f"{size:.2f}" for size in sizes)))
    return found


def wrong_share(ended: dict[str, float] | dict[str, int]) -> float | None:
    """Return the share that went wrong of what succeeded or went wrong. None if nothing did."""
    bad = sum(ended.get(str(state), 0) for state in WENT_WRONG)
    all_of_them = bad + ended.get("succeeded", 0)
    return bad / all_of_them if all_of_them else None


class Pulse(NamedTuple):
    """How it goes: numbers, what is usual, and a picture of each."""

    ended: int
    is_exact: bool
    ended_usual: float | None
    ended_columns: list[Rect]
    wrong: float | None
    wrong_usual: float | None
    wrong_columns: list[Rect]
    took_s: float | None
    took_usual_s: float | None
    took_most_s: float | None
    """How long nine of ten take at most."""
    took_columns: list[Rect]


def pulse(now: Stats, day: Stats | None = None) -> Pulse:
    """Return how runs ended in a window. What a day's runs took is what is usual."""
    usual = None if now.usual is None else now.usual.ended
    return Pulse(
        ended=sum(now.ended.values()),
        is_exact=now.is_exact,
        ended_usual=None if usual is None else sum(usual.values()),
        ended_columns=columns(
            [[(STATES[end].colour, one.ended.get(end, 0)) for end in ENDS] for one in now.slices]
        ),
        wrong=wrong_share(now.ended),
        wrong_usual=None if usual is None else wrong_share(usual),
        wrong_columns=columns([[("fail", wrong_share(one.ended) or 0.0)] for one in now.slices]),
        took_s=None if now.took is None else now.took.half_s,
        took_usual_s=None if day is None or day.took is None else day.took.half_s,
        took_most_s=None if now.took is None else now.took.most_s,
        took_columns=columns([[("run", 0.0 if one.took is None else one.took.half_s)] for one in now.slices]),
    )
