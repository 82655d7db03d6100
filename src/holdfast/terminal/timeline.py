"""A picture of a run's steps over time: one row for each step, arranged as the tree of tasks, with the attempts that
failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.table import Table

from holdfast.model import Attempt, Ending, StepKind, StepRow
from holdfast.supervisor.outlook import Outlook
from holdfast.terminal import wording
from holdfast.terminal.screen import Text, styled_state
from holdfast.timeline.places import components

KEY_CELLS_MAX = 44
KEY_SHARE = 0.4
"""The share of the width that keys may take. The rest is for the bars."""
AROUND_CELLS = 2 + 2 + 10
"""Cells beside the key and the bar: the glyph, gaps and the duration."""


class TimelineRow(NamedTuple):
    """A row of the picture: a step, or a branch to which the steps below it belong."""

    depth: int
    label: str
    step: StepRow | None
    begun: float
    ended: float | None


class BarScale(NamedTuple):
    """Maps the run's time to the cells of a bar."""

    begun: float
    ended: float
    cells: int

    def cell(self, at: float) -> int:
        share = (at - self.begun) / max(self.ended - self.begun, 1e-6)
        return min(self.cells - 1, max(0, int(share * self.cells)))


def timeline(
    steps: Sequence[StepRow],
    attempts: dict[int, list[Attempt]],
    begun: float,
    ended: float,
    now: float,
    width: int,
    *,
    outlook: Outlook = Outlook(),  # noqa: B008  immutable
    log_lines: Mapping[int, int] = {},
) -> Table:
    rows = tree_rows(steps)
    longest = max((2 * row.depth + len(row.label) for row in rows), default=0)
    key_cells = min(longest, KEY_CELLS_MAX, int(width * KEY_SHARE))
    scale = BarScale(begun, max(ended, begun + 1e-3), max(10, width - key_cells - AROUND_CELLS))
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=1)
    grid.add_column(width=key_cells, no_wrap=True, overflow="ellipsis")
    grid.add_column(width=scale.cells, no_wrap=True, overflow="ellipsis")
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row("", "", _axis(scale), "")
    for row in rows:
        if row.step is None:
            label = Text("  " * row.depth + row.label, style="bright_black")
            grid.add_row("", label, _branch(row, scale, now), "")
            continue
        step, tried = row.step, attempts.get(row.step.n, [])
        grid.add_row(
            styled_state(wording.step_state(step, now), word=False),
            "  " * row.depth + row.label,
            bar(step, tried, scale, now),
            Text("" if step.kind is StepKind.MARKER else _duration(step, now), style="bright_black"),
        )
        for words, style, lasted in _remarks(step, tried, now, outlook):
            grid.add_row("", "", Text(words, style=style), Text(lasted, style="bright_black"))
        if lines := log_lines.get(step.n):
            grid.add_row("", "", Text(f"logged {wording.lines(lines)}", style="bright_black"), "")
    return grid


def tree_rows(steps: Sequence[StepRow]) -> list[TimelineRow]:
    """Return the steps as the rows of a tree. Branches come in the order in which their first step was issued."""
    found: list[TimelineRow] = []
    _grow(found, 0, [(components(step.key), step) for step in steps])
    return found


def _grow(found: list[TimelineRow], depth: int, steps: Sequence[tuple[list[str], StepRow]]) -> None:
    """Append the rows of these steps, and of the branches below them, to `found`."""
    branches: dict[str, list[tuple[list[str], StepRow]]] = {}
    for parts, step in steps:
        # A step without a branch gets a row of its own, even if a branch has the same name.
        branches.setdefault(parts[0] if len(parts) > 1 else f"{parts[0]}\0{step.n}", []).append((parts, step))
    for name, members in branches.items():
        if "\0" in name:
            step = members[0][1]
            found.append(TimelineRow(depth, members[0][0][0], step, step.issued_at, step.finished_at))
            continue
        ends = [step.finished_at for _, step in members]
        ended = None if None in ends else max(end for end in ends if end is not None)
        found.append(TimelineRow(depth, name, None, min(step.issued_at for _, step in members), ended))
        _grow(found, depth + 1, [(parts[1:], step) for parts, step in members])


def _axis(scale: BarScale) -> Text:
    last = wording.span(scale.ended - scale.begun)
    return Text("0 s" + last.rjust(scale.cells - 3), style="bright_black")


def _branch(row: TimelineRow, scale: BarScale, now: float) -> Text:
    cells = [(" ", "")] * scale.cells
    _fill(cells, scale, row.begun, row.ended or now, "┈", "bright_black")
    return _text(cells)


def bar(step: StepRow, attempts: Sequence[Attempt], scale: BarScale, now: float) -> Text:
    """Return a bar that shows when the step waited (·), ran (━), backed off (┄) or slept (─), and where an attempt
    failed (✗)."""
    cells = [(" ", "")] * scale.cells
    end = step.finished_at or now
    state = wording.step_state(step, now)
    colour = wording.COLOURS.get(state, "")
    if step.kind is StepKind.MARKER:
        return Text(wording.detail(step, (), now), style="bright_black")
    if step.kind is not StepKind.CALL:
        line = {StepKind.CHILD: "═"}.get(step.kind, "─")
        _fill(cells, scale, step.issued_at, end, line, colour)
        return _text(cells)
    _fill(cells, scale, step.issued_at, end, "┄" if attempts else "·", "bright_black")
    if step.started_at is not None and step.state != "ready":
        _fill(cells, scale, step.started_at, end, "━", colour)
    for attempt in attempts:
        begun = attempt.started_at or attempt.finished_at
        _fill(cells, scale, begun, attempt.finished_at, "━", "red")
        cells[scale.cell(attempt.finished_at)] = ("☠" if attempt.ending == Ending.LOST else "✗", "bold red")
    if step.state == "failed":
        cells[scale.cell(end)] = ("✗", "bold red")
    return _text(cells)


def _fill(
    cells: list[tuple[str, str]], scale: BarScale, begun: float, ended: float, character: str, style: str
) -> None:
    for at in range(scale.cell(begun), scale.cell(ended) + 1):
        cells[at] = (character, style)


def _text(cells: list[tuple[str, str]]) -> Text:
    found, part, last = Text(no_wrap=True), "", ""
    for character, style in cells:
        if style != last:
            found.append(part, style=last)
            part, last = "", style
        part += character
    found.append(part, style=last)
    found.rstrip()
    return found


def _duration(step: StepRow, now: float) -> str:
    return wording.took(step.started_at or step.issued_at, step.finished_at, now)


def _remarks(
    step: StepRow, attempts: Sequence[Attempt], now: float, outlook: Outlook
) -> list[tuple[str, str, str]]:
    """Return the lines below a step: what went wrong on the way, and what an open step waits for. Each is (words,
    style, how long)."""
    found = [
        (
            f"attempt {attempt.attempt}: {wording.ending(attempt)}",
            "red",
            wording.took(attempt.started_at, attempt.finished_at, now),
        )
        for attempt in attempts
    ]
    if step.state in {"failed", "waiting", "ready", "running"}:
        detail = wording.detail(step, (), now)
        if detail:
            found.append((detail, "red" if step.state == "failed" else "bright_black", ""))
    if taking_long := wording.taking_long(step, outlook, now):
        found.append((taking_long, "yellow", ""))
    return found
