"""The terminal: rich, with the few habits all commands share."""

from __future__ import annotations

import json
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.cli.wording import COLOURS, GLYPHS


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


def table(*columns: str) -> Table:
    """A plain table: a heading, a rule, rows."""
    made = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column)
    return made


def payload(value: Any, *, lines_max: int = 12, chars_max: int = 2000) -> Text:
    """A value as indented JSON, trimmed."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    if len(text) <= 60:
        text = json.dumps(value, ensure_ascii=False)
    lines = text.splitlines()
    kept = "\n".join(lines[:lines_max])[:chars_max]
    left = len(text) - len(kept)
    found = Text(kept)
    if left > 0:
        found.append(f"\n… {left:,} more characters: --json shows all", style="bright_black")
    return found
