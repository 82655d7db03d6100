"""How states look to people: a glyph and a colour of the terminal for each."""

from __future__ import annotations

GLYPHS = {
    "succeeded": "✓",
    "failed": "✗",
    "undone": "↶",
    "cancelled": "⊘",
    "running": "●",
    "undoing": "↶",
    "waiting": "◌",
    "ready": "○",
    "backing off": "↻",
    "quarantined": "!",
    "pending": "○",
    "held": "‖",
    "stuck": "!",
}
COLOURS = {
    "succeeded": "green",
    "failed": "red",
    "undone": "yellow",
    "cancelled": "bright_black",
    "running": "cyan",
    "undoing": "yellow",
    "waiting": "blue",
    "ready": "bright_black",
    "backing off": "yellow",
    "quarantined": "red",
    "pending": "bright_black",
    "held": "magenta",
    "stuck": "red",
}
