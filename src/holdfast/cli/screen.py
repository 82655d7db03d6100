"""The terminal: rich, with the few habits all commands share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.cli import wording
from holdfast.cli.wording import COLOURS, GLYPHS
from holdfast.model import Run

FILE_WIDTH = 200
"""Columns when nobody looks at a terminal."""
ID_WIDTH = 40
OTHER_WIDTH = 46
"""Of the state, the two times and the gaps between columns."""


class Screen(Console):
    """A console that leaves the cursor alone, so that a killed command leaves a usable terminal, and lets a closed pipe
    be an error like any other."""

    def show_cursor(self, show: bool = True) -> bool:
        return False

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def styled_state(state: str, *, word: bool = True) -> Text:
    text = f"{GLYPHS.get(state, '·')} {state}" if word else GLYPHS.get(state, "·")
    return Text(text, style=COLOURS.get(state, ""), no_wrap=True)


def print_runs(rows: Sequence[tuple[Run, str]], now: float) -> None:
    """Runs and what is to say about each, as a table."""
    screen = Screen(highlight=False)
    if not screen.is_terminal:
        screen.width = FILE_WIDTH
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    # The id is what the next command needs: whatever else is shortened, it is not.
    shown.add_column("run", overflow="fold", min_width=min(ID_WIDTH, max(len(run.id) for run, _ in rows)))
    shown.add_column("workflow", style="bright_black", no_wrap=True)
    shown.add_column("state", no_wrap=True)
    shown.add_column("started", justify="right", no_wrap=True)
    shown.add_column("took", justify="right", no_wrap=True)
    shown.add_column("", style="bright_black", no_wrap=True, overflow="ellipsis")
    taken = min(ID_WIDTH, max(len(run.id) for run, _ in rows)) + max(len(run.workflow) for run, _ in rows)
    room = max(8, screen.width - taken - OTHER_WIDTH)
    for run, said in rows:
        words = " ".join(said.split())
        shown.add_row(
            run.id,
            run.workflow,
            styled_state(run.state),
            f"{wording.span(now - run.created_at)} ago",
            wording.run_took(run, now),
            Text(words if len(words) <= room else words[: room - 1] + "…"),
        )
    screen.print(shown)


def payload(value: Any, *, lines_max: int = 12, chars_max: int = 2000) -> Text:
    """A value as indented JSON, trimmed."""
    text = wording.json_text(value)
    lines = text.splitlines()
    kept = "\n".join(lines[:lines_max])[:chars_max]
    left = len(text) - len(kept)
    found = Text(kept)
    if left > 0:
        found.append(f"\n… {left:,} more characters: --json shows all", style="bright_black")
    return found
