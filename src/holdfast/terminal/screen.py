"""The terminal: rich, set up the same way for all commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text as RichText

from holdfast.model import RunRow
from holdfast.safe_text import visible
from holdfast.terminal import wording
from holdfast.terminal.wording import COLOURS, GLYPHS

FILE_WIDTH = 200
"""How many columns a table has if the output is no terminal."""
WORDS_WIDTH = 30
"""The last column of the table of runs, which says what a run waits for, needs at least this many cells. If the
terminal is too narrow for that, each run gets lines of its own."""
HEADINGS = ("run", "workflow", "state", "started", "took")


class Text(RichText):
    """Text that a terminal shows and does not obey. Everything on a screen is made of it."""

    def __init__(self, text: str = "", style: str | Style = "", **more: Any) -> None:
        super().__init__(visible(text), style, **more)

    def append(self, text: RichText | str, style: str | Style | None = None) -> Self:
        super().append(visible(text) if isinstance(text, str) else text, style)
        return self


class Screen(Console):
    """A console that differs from rich's own in three ways. It does not hide the cursor, so that a killed command
    leaves a usable terminal. A closed pipe raises an error like any other. Text has no markup, because `[/x]` may be a
    run's id."""

    def __init__(self, **more: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **more)

    def render_str(self, text: str, **more: Any) -> RichText:
        return super().render_str(visible(text), **more)

    def show_cursor(self, show: bool = True) -> bool:
        return False

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def styled_state(state: str, *, word: bool = True) -> Text:
    text = f"{GLYPHS.get(state, '·')} {state}" if word else GLYPHS.get(state, "·")
    return Text(text, style=COLOURS.get(state, ""), no_wrap=True)


def print_runs(rows: Sequence[tuple[RunRow, str]], now: float) -> None:
    """Print runs and a few words about each: as a table if it fits, else as a few lines for each run. A run's id is
    never shortened, because the next command needs it."""
    screen = Screen()
    remarks = [" ".join(words.split()) for _, words in rows]
    wanted = min(WORDS_WIDTH, max(len(words) for words in remarks))
    for name in (_full_name, _short_name):
        table = [
            (
                run.id,
                name(run),
                styled_state(run.state),
                f"{wording.span(now - run.created_at)} ago",
                wording.run_took(run, now),
            )
            for run, _ in rows
        ]
        widths = [max(cell_len(str(cell)) for cell in column) for column in zip(*table, strict=True)]
        # A column is at least as wide as its heading, and there are three spaces between two columns.
        taken = sum(max(width, len(title)) + 3 for width, title in zip(widths, HEADINGS, strict=True))
        if not screen.is_terminal:
            screen.width = max(FILE_WIDTH, taken + WORDS_WIDTH)
        if taken + wanted <= screen.width:
            _print_table(screen, table, remarks, screen.width - taken)
            return
    for run, words in zip([run for run, _ in rows], remarks, strict=True):
        _print_lines(screen, run, words, now)


def _full_name(run: RunRow) -> str:
    return run.workflow


def _short_name(run: RunRow) -> str:
    return run.workflow.rsplit(".", 1)[-1]


def _print_table(
    screen: Screen, rows: Sequence[tuple[str | Text, ...]], remarks: Sequence[str], room: int
) -> None:
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for title, style in zip(HEADINGS, ("", "bright_black", "", "", ""), strict=True):
        justify: Any = "right" if title in {"started", "took"} else "left"
        shown.add_column(title, style=style, no_wrap=True, justify=justify)
    shown.add_column("", style="bright_black", no_wrap=True, overflow="ellipsis")
    for row, words in zip(rows, remarks, strict=True):
        cells = [cell if isinstance(cell, Text) else Text(cell) for cell in row]
        shown.add_row(*cells, Text(words if len(words) <= room else words[: max(0, room - 1)] + "…"))
    screen.print(shown)


def _print_lines(screen: Screen, run: RunRow, words: str, now: float) -> None:
    """Print one run as lines: its id, its state, and the words about it."""
    screen.print(Text(run.id, overflow="fold", no_wrap=False, style="bold"), soft_wrap=True)
    age, took = f"{wording.span(now - run.created_at)} ago", wording.run_took(run, now)
    state = Text.assemble(
        "  ", styled_state(run.state), f", {age}, took {took}" if run.finished_at else f", {age}"
    )
    screen.print(Text.assemble(state, (f"  {_short_name(run)}", "bright_black")), overflow="fold")
    if words:
        screen.print(Padding(Text(words, style="bright_black"), (0, 0, 0, 2), expand=False), overflow="fold")


def payload(value: Any, *, lines_max: int = 12, chars_max: int = 2000) -> Text:
    """Return a value as JSON, trimmed to at most `lines_max` lines and `chars_max` characters."""
    text = wording.json_text(value)
    lines = text.splitlines()
    kept = "\n".join(lines[:lines_max])[:chars_max]
    left = len(text) - len(kept)
    found = Text(kept)
    if left > 0:
        found.append(f"\n… {left:,} more characters: --json shows all", style="bright_black")
    return found
