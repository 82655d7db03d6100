"""Draws the chart of a comparison as SVG: bars for A and B. It is readable on a light and on a dark page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT = 760, 190, 60
ROW, BAR, HEAD = 22, 13, 34
PANELS = {"A": "runs of one step, per second", "B": "steps of ten-step runs, per second"}
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .head { font-weight: 600 }
  .quiet { fill: #6e7781 }
  .ours { fill: #0a7d5a } .theirs { fill: #8c959f } .spread { stroke: #24292f; stroke-opacity: .55 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .quiet { fill: #8d96a0 }
    .ours { fill: #3fb68b } .theirs { fill: #6e7681 } .spread { stroke: #e6edf3 }
  }
"""


def chart(result: dict[str, Any]) -> str:
    parts: list[str] = []
    top = 0
    for letter, title in PANELS.items():
        rows = _rows(result, letter)
        if rows:
            parts += _panel(f"{letter}: {title}", rows, top)
            top += HEAD + len(rows) * ROW + 14
    machine = result["machine"]
    note = (
        f"{machine['cores']} cores, fsync on, median of {result['rounds']} rounds that alternate; "
        "the line is the smallest and the largest. * keeps its state in memory"
    )
    parts.append(f'<text class="quiet" x="0" y="{top + 12}">{escape(note)}</text>')
    height = top + 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="Holdfast and its peers: runs and steps per second">\n'
        f"<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _rows(result: dict[str, Any], letter: str) -> list[tuple[str, bool, dict[str, float]]]:
    """Return (name, whether it is ours, its figure) of each contender, the fastest first."""
    rows = [
        (one["title"] + ("" if one["durable"] else " *"), name.startswith("holdfast"), one["figures"][letter])
        for name, one in result["contenders"].items()
        if "median" in one["figures"].get(letter, {})
    ]
    return sorted(rows, key=lambda row: -row[2]["median"])


def _panel(title: str, rows: list[tuple[str, bool, dict[str, float]]], top: int) -> Iterator[str]:
    scale = (WIDTH - LEFT - RIGHT) / max(figure["high"] for _, _, figure in rows)
    yield f'<text class="head" x="0" y="{top + 16}">{escape(title)}</text>'
    for index, (name, ours, figure) in enumerate(rows):
        y = top + HEAD + index * ROW
        low, long, high = (LEFT + figure[key] * scale for key in ("low", "median", "high"))
        kind = "ours" if ours else "theirs"
        middle = y + BAR / 2
        yield f'<text x="{LEFT - 10}" y="{y + BAR - 2}" text-anchor="end">{escape(name)}</text>'
        yield f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{max(1.0, long - LEFT):.1f}" height="{BAR}" rx="2"/>'
        yield f'<path class="spread" d="M{low:.1f} {middle}H{high:.1f}"/>'
        yield f'<text x="{high + 6:.1f}" y="{y + BAR - 2}">{figure["median"]:,.0f}</text>'
