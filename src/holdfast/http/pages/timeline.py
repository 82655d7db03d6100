"""Places a run's timeline on a page: seconds become per cent of the track, so that it scales without a script. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.durations import span
from holdfast.timeline import Bar, Density, Row, Say, Timeline

NARROWEST = 0.35
"""In per cent. What lasted a moment can be seen, too."""
STEPS_S = (
    *(unit * n for unit in (0.001, 0.01, 0.1, 1.0) for n in (1, 2, 5)), 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0,
    1800.0, 3600.0, 7200.0, 14400.0, 21600.0, 43200.0, 86400.0, 172800.0, 604800.0, 2592000.0,
)  # fmt: skip
TICKS = 7
AXIS_CHARACTER, PHONE_CHARACTER = 1.05, 2.1
"""About how wide a character on the axis is, in per cent of a track of 600 and of 300 pixels."""
COLUMNS_GAP = 0.11
CHARACTER = 0.75
"""About how wide a character is, in per cent of a wide track."""
AHEAD = 0.2
"""How much of the time that is drawn may be after now, of what is not folded."""


class Scale:
    """Seconds to per cent of the track. A folded stretch has a fixed width, whatever it lasted."""

    def __init__(self, until: float, folds: Sequence[tuple[float, float]], share: float) -> None:
        self.until, self.folds = max(until, 1e-3), list(folds)
        self._width = share * 100
        active = self.until - sum(ended - begun for begun, ended in self.folds)
        self._per = (100 - self._width * len(self.folds)) / max(active, 1e-6)

    def __call__(self, at: float) -> float:
        at, x, last = min(max(at, 0.0), self.until), 0.0, 0.0
        for begun, ended in self.folds:
            if at <= begun:
                break
            x += (begun - last) * self._per
            if at < ended:
                return x + (at - begun) / (ended - begun) * self._width
            x, last = x + self._width, ended
        return x + (at - last) * self._per

    def stretches(self) -> list[tuple[float, float]]:
        """Return what is between the folds."""
        edges = [0.0, *(edge for fold in self.folds for edge in fold), self.until]
        return list(zip(edges[::2], edges[1::2], strict=True))


class Shape(NamedTuple):
    """Something in a track. Where it is, in per cent, and in pixels from the top."""

    kind: str
    x: float
    width: float
    colour: str
    words: str
    is_live: bool = False
    is_hatched: bool = False
    y: float = 7.0
    height: float = 12.0


class Sign(NamedTuple):
    glyph: str
    x: float
    colour: str


class Words(NamedTuple):
    x: float
    text: str
    colour: str
    is_before: bool


class Column(NamedTuple):
    x: float
    width: float
    height: float
    wrong: float


class Seen(NamedTuple):
    """A row with its picture."""

    row: Row
    shapes: list[Shape]
    signs: list[Sign]
    words: list[Words]
    columns: list[Column]


class Tick(NamedTuple):
    x: float
    words: str
    fits_phone: bool
    """False if there is no room for the words on a narrow track."""


class Picture(NamedTuple):
    rows: list[Seen]
    undos: list[Seen]
    ticks: list[Tick]
    lines: list[float]
    folds: list[tuple[float, float, str]]
    now: float | None
    turn: tuple[float, str] | None
    eta: float | None
    kept: float | None
    is_folded: bool


def picture(found: Timeline, below: dict[str, list[Row]], *, folded: bool | None = None) -> Picture:
    """Return a timeline as it is drawn. `below` has rows of groups that were opened. `folded` overrides what the run
    suggests."""
    is_folded = found.is_folded if folded is None else folded
    folds = [(one.begun, one.ended) for one in found.folds] if is_folded else []
    now = None if found.ended is not None else found.now
    until = found.until
    if now is not None and folds:  # what is to come must not press what was into a corner
        active = now - sum(min(ended, now) - begun for begun, ended in folds if begun < now)
        until = min(until, now + max(active * AHEAD, 0.05))
        folds = [(begun, min(ended, until)) for begun, ended in folds if begun < until]
    scale = Scale(until, folds, found.fold_share)
    rows: list[Seen] = []
    for row in found.rows:
        rows.append(seen(row, scale, now))
        rows += [seen(one, scale, now) for one in below.get(row.id, ())]
    turn = None if found.turn is None else (scale(found.turn.at), found.turn.words)
    folded_parts = (
        [(scale(one.begun), scale(one.ended), one.words) for one in found.folds] if is_folded else []
    )
    centred = [] if now is None else [(scale(now), "now")]
    centred += [] if turn is None else [turn]
    centred_wide = centred + [((begun + ended) / 2, words) for begun, ended, words in folded_parts]
    every = ticks(scale)
    return Picture(
        rows,
        [] if found.undo is None else [seen(row, scale, now) for row in found.undo.rows],
        placed(every, centred_wide, centred),
        [x for x, _ in every],
        folded_parts,
        None if now is None else scale(now),
        turn,
        None if found.eta_at is None or found.eta_at > found.until else scale(found.eta_at),
        None if found.kept_at is None else scale(found.kept_at),
        is_folded,
    )


def placed(
    every: Sequence[tuple[float, str]], wide: Sequence[tuple[float, str]], narrow: Sequence[tuple[float, str]]
) -> list[Tick]:
    """Return the ticks whose words touch no others. `wide` and `narrow` are words that stand centred on the axis already:
    on a phone, folds say nothing."""
    on_phone = _room(every, narrow, PHONE_CHARACTER)
    return [Tick(*one, one in on_phone) for one in _room(every, wide, AXIS_CHARACTER)]


WHOLE = 100.0
"""Where the axis ends: no half of a word stands there."""


def _room(
    every: Sequence[tuple[float, str]], centred: Sequence[tuple[float, str]], character: float
) -> list[tuple[float, str]]:
    taken = [(x - len(words) * character / 2, x + len(words) * character / 2) for x, words in centred]
    found = []
    for x, words in every:
        begun, ended = x, x + (len(words) + 1) * character
        is_whole = ended - character <= WHOLE
        if is_whole and all(ended <= other[0] or begun >= other[1] for other in taken):
            taken.append((begun, ended))
            found.append((x, words))
    return found


def ticks(scale: Scale) -> list[tuple[float, str]]:
    """Return where ticks are, and what they say: round times from the beginning, or from where the run went on."""
    found: list[tuple[float, str]] = []
    for begun, ended in scale.stretches():
        room = scale(ended) - scale(begun)
        if room < 3:
            continue
        wanted = max(1.0, TICKS * room / 100)
        step = next((one for one in STEPS_S if (ended - begun) / one <= wanted), STEPS_S[-1])
        found.append((scale(begun), span(begun) if begun else "0 s"))
        count = int((ended - begun) / step)
        plus = "+" if begun else ""
        found += [
            (scale(begun + n * step), plus + span(n * step))
            for n in range(1, count + 1)
            if scale(begun + n * step) < min(97.0, scale(ended) - 2)
        ]
    return found


def seen(row: Row, scale: Scale, now: float | None) -> Seen:
    is_loop = any(bar.kind == "nap" for bar in row.bars)
    shapes = [shape for bar in row.bars for shape in _shapes(bar, scale, now, is_loop=is_loop)]
    return Seen(
        row,
        shapes,
        [Sign(mark.glyph, scale(mark.at), _colour(mark.fill)) for mark in row.marks],
        [words for say in row.says if (words := _placed(say, scale, shapes)) is not None],
        [] if row.density is None else _columns(row.density, scale),
    )


def _placed(say: Say, scale: Scale, shapes: Sequence[Shape]) -> Words | None:
    """Return where words stand. If there is no room behind a moment, they stand before the whole row's picture, or nowhere:
    readers have them, too."""
    found = Words(scale(say.at), say.words, _colour(say.fill), say.before)
    if say.before or found.x + len(say.words) * CHARACTER < 100:
        return found
    first = min((shape.x for shape in shapes), default=found.x)
    return found._replace(x=first, is_before=True) if first > len(say.words) * CHARACTER else None


def _colour(fill: str) -> str:
    return "fail" if fill == "lost" else fill


def _shapes(bar: Bar, scale: Scale, now: float | None, *, is_loop: bool) -> list[Shape]:
    x = scale(bar.begun)
    width = max(scale(bar.ended) - x, NARROWEST)
    made = Shape(bar.kind, x, width, bar.fill, bar.words, bar.live, bar.hatch or bar.fill == "lost")
    if bar.kind == "off" and now is not None and bar.begun < now < bar.ended:
        middle = scale(now)
        return [
            made._replace(width=max(middle - x, NARROWEST)),
            made._replace(x=middle, width=x + width - middle, colour="next"),
        ]
    if bar.half:
        return [made._replace(y=7.0 if bar.half == "above" else 14.0, height=5.0)]
    return [made._replace(y=9.0, height=8.0) if is_loop and bar.kind == "work" else made]


def _columns(density: Density, scale: Scale) -> list[Column]:
    slice_s = (density.ended - density.begun) / max(1, len(density.work))
    found = []
    for n, (work, wrong) in enumerate(zip(density.work, density.wrong, strict=True)):
        if work > 0:
            x = scale(density.begun + n * slice_s)
            width = max(scale(density.begun + (n + 1) * slice_s) - x - COLUMNS_GAP, 0.1)
            height = 4 + 34 * work
            found.append(Column(x, width, height, height * wrong))
    return found
