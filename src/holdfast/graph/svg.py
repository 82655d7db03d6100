"""Draws a graph as an SVG file that needs nothing else: light or dark as the reader's system is, with its text as text.

Everything that comes from code or from the store is escaped. There is no script in it, and no link.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from holdfast.graph.graph import RECORDED, EdgeKind, Graph, Kind, Node
from holdfast.graph.layout import (
    CHAR,
    HEAD,
    MONO,
    SMALL,
    Box,
    Line,
    head,
    is_dim,
    passed,
    place,
    said,
    width_of,
)
from holdfast.graph.text import words
from holdfast.safe_text import visible

GLYPHS = {
    "ok": '<path d="M3 8.6 6.4 12 13 4.4"/>',
    "fail": '<path d="M4 4l8 8M12 4l-8 8"/>',
    "undo": '<path d="M13.4 11.6A5.6 5.6 0 0 0 3.1 8.2"/><path d="M2 4.9l.9 3.6 3.6-.9"/>',
    "run": '<circle cx="8" cy="8" r="4.2" fill="currentColor" stroke="none"/>',
    "wait": '<circle cx="8" cy="8" r="5" stroke-dasharray=".1 3.83"/>',
    "ready": '<circle cx="8" cy="8" r="4.6"/>',
    "again": '<path d="M12.9 9.6A5.2 5.2 0 1 1 12.2 5"/><path d="M12.9 2.2v3.2H9.7"/>',
    "cancelled": '<circle cx="8" cy="8" r="5.2"/><path d="M4.4 11.6l7.2-7.2"/>',
    "clock": '<circle cx="8" cy="8" r="5.5"/><path d="M8 4.8V8l2.2 1.4"/>',
    "child": '<circle cx="4" cy="4" r="1.7"/><circle cx="12" cy="8" r="1.7"/><circle cx="4" cy="12" r="1.7"/>'
    '<path d="M5.7 4h1.6c1.6 0 1.6 4 3 4M5.7 12h1.6c1.6 0 1.6-4 3-4"/>',
    "signal": '<path d="M13.5 9.8a1.7 1.7 0 0 1-1.7 1.7H6.2l-3.2 2.3V4.2a1.7 1.7 0 0 1 1.7-1.7h7.1a1.7 1.7 0 0 1 1.7 '
    '1.7z"/>',
    "keep": '<path d="M8 2v12M5 5h6M3 10c.6 2.6 2.4 4 5 4s4.4-1.4 5-4"/>',
    "many": '<path d="M2.5 4.5 8 2l5.500 2.500L8 7zM2.500 8 8 10.500 13.500 8M2.500 11.500 8 14l5.500-2.500"/>',
    "step": '<rect x="4" y="4" width="8" height="8" rx="2"/>',
    "unknown": '<path d="M5.600 6a2.400 2.400 0 1 1 3.500 2.100c-.800.400-1.100.900-1.100 1.700"/><path d="M8 12.600v.1"/>',
    "people": '<circle cx="8" cy="5.500" r="2.500"/><path d="M3 13.500c.6-2.800 2.500-4 5-4s4.400 1.200 5 4"/>',
    "shared": '<path d="M2.500 9c1.800-3 3.600-3 5.500-1s3.700 2 5.500-1"/>',
}
"""The glyphs of the dashboard, in a square of 16."""
OF_KIND = {
    Kind.STEP: "step",
    Kind.CHILD: "child",
    Kind.SLEEP: "clock",
    Kind.TIMEOUT: "clock",
    Kind.START: "child",
    Kind.SERVE: "signal",
    Kind.WAIT: "signal",
    Kind.ASK: "people",
    Kind.SEND: "signal",
    Kind.UNDO_WITH: "undo",
    Kind.KEEP: "keep",
    Kind.LOOP: "again",
    Kind.CONTINUE_AS_NEW: "again",
    Kind.MANY: "many",
    Kind.SAGA: "undo",
    Kind.UNKNOWN: "unknown",
}
OF_STATE = {
    "succeeded": ("ok", "ok"),
    "failed": ("bad", "fail"),
    "running": ("run", "run"),
    "ready": ("idle", "ready"),
    "waiting": ("wait", "wait"),
    "cancelled": ("idle", "cancelled"),
    "undone": ("back", "undo"),
}
LIGHT = (
    "--bg:#f6f7f7;--surface:#fff;--sunk:#f0f2f2;--line:#e3e7e6;--line2:#cdd4d2;--edge:#a9b4b1;--ink:#141d1c;--ink2:#4a5654;"
    "--ink3:#5c6967;--ok:#136b3c;--run:#0a6580;--run-t:#e0f3f8;--bad:#b3261e;--bad-t:#fdebea;--back:#855300;"
    "--back-t:#fcf2dc;--back-f:#bd7e0e;--wait:#2c58b0;--wait-t:#e8eefb;--held:#84319f;--held-t:#f6eafa;--idle:#566361"
)
DARK = (
    "--bg:#0d1111;--surface:#141919;--sunk:#0f1414;--line:#242c2b;--line2:#3a4543;--edge:#56625f;--ink:#e9efee;--ink2:#aab6b4;"
    "--ink3:#8a9895;--ok:#62cf94;--run:#5fcbe6;--run-t:#0d2831;--bad:#ff918b;--bad-t:#341a19;--back:#eabb52;"
    "--back-t:#2d2310;--back-f:#bf8a23;--wait:#96b6f6;--wait-t:#16233c;--held:#d7a0eb;--held-t:#2b1a34;--idle:#97a4a1"
)
STYLE = f"""
.hf{{color-scheme:light dark;{LIGHT}}}
@media(prefers-color-scheme:dark){{.hf{{{DARK}}}}}
.hf text{{font:500 13px Inter,ui-sans-serif,system-ui,sans-serif;fill:var(--ink)}}
.hf .sub{{font-weight:400;font-size:11.5px;fill:var(--ink3)}}
.hf .code{{font:400 11px "JetBrains Mono",ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:var(--ink2)}}
.hf .top{{font-weight:600;font-size:16px}}
.hf .paper{{fill:var(--bg)}}
.hf .box{{fill:var(--surface);stroke:var(--line2)}}
.hf .pill{{fill:var(--sunk);stroke:var(--line)}}
.hf .chip{{fill:var(--wait-t);stroke:none}}
.hf .chip+text{{fill:var(--wait)}}
.hf .frame{{fill:var(--ink);fill-opacity:.022;stroke:var(--line2)}}
.hf .helper .frame,.hf .task .frame{{stroke-dasharray:3 3}}
.hf .saga .frame{{fill:var(--back-t);fill-opacity:.45;stroke:var(--back-f)}}
.hf .unknown rect{{fill:var(--held-t);fill-opacity:.5;stroke:var(--held);stroke-dasharray:4 3}}
.hf .raise .pill{{fill:var(--bad-t);stroke:none}}
.hf .raise text{{fill:var(--bad)}}
.hf .is-bad .box{{fill:var(--bad-t);stroke:var(--bad)}}
.hf .is-run .box{{fill:var(--run-t);stroke:var(--run)}}
.hf .is-wait .box{{fill:var(--wait-t);stroke:var(--wait)}}
.hf .edge{{fill:none;stroke:var(--edge);stroke-width:1.5}}
.hf .edge.undo{{stroke:var(--back-f);stroke-dasharray:4 3}}
.hf .edge.except{{stroke:var(--bad);stroke-dasharray:4 3}}
.hf .edge.join{{stroke:var(--wait);stroke-dasharray:1.5 3}}
.hf .g{{fill:none;stroke:currentColor;stroke-width:1.7;stroke-linecap:round;stroke-linejoin:round;color:var(--ink3)}}
.hf .g.ok{{color:var(--ok)}}.hf .g.bad{{color:var(--bad)}}.hf .g.run{{color:var(--run)}}.hf .g.wait{{color:var(--wait)}}
.hf .g.idle{{color:var(--idle)}}.hf .g.back{{color:var(--back)}}.hf .g.held{{color:var(--held)}}
.hf .dim{{opacity:.42}}
""".strip().replace("\n", "")


def to_svg(graph: Graph) -> str:
    """Return the graph as an SVG document."""
    return Drawing(graph).document()


class Drawing:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._nodes = {node.id: node for node in graph.nodes}
        self._has_run = graph.run is not None

    def document(self) -> str:
        picture = place(self._graph)
        aside = self._aside()
        top = 56
        title, under = self._title()
        lower = [f"recorded, and not in this source: {', '.join(aside)}"] if aside else []
        if any(node.passage and node.passage.one_of for node in self._graph.nodes):
            lower.append("~ these places share the keys of their steps: nobody knows which one it was")
        w = round(max(picture.w, width_of(title, 8.6) + 48, width_of(under, SMALL) + 48, 320))
        h = round(picture.h + top + 22 * len(lower))
        shift = (w - picture.w) / 2
        body = "".join(
            [
                f'<rect class="paper" width="{w}" height="{h}"/>',
                f'<text class="top" x="24" y="32">{_safe(title)}</text>',
                f'<text class="sub" x="24" y="50">{_safe(under)}</text>',
                f'<g transform="translate({shift:g} {top})">',
                *(self._box(box) for box in picture.boxes if box.shape in {"frame", "rows"}),
                *(self._line(line) for line in picture.lines),
                *(self._box(box) for box in picture.boxes if box.shape not in {"frame", "rows"}),
                "</g>",
                *(
                    f'<text class="sub" x="24" y="{h - 14 - 20 * n}">{_safe(_cut(line, w - 48, SMALL))}</text>'
                    for n, line in enumerate(reversed(lower))
                ),
            ]
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="hf" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="img" '
            f'aria-labelledby="hf-title hf-desc"><title id="hf-title">{_safe(title)}</title>'
            f'<desc id="hf-desc">{_safe(self._description())}</desc><style>{STYLE}</style>{body}</svg>\n'
        )

    def _title(self) -> tuple[str, str]:
        graph = self._graph
        if graph.run is None:
            return visible(graph.short_name), visible(f"{graph.workflow} · version {graph.code}")
        return visible(graph.run.id), visible(f"{graph.short_name} · {graph.run.state}")

    def _aside(self) -> tuple[str, ...]:
        return () if self._graph.run is None else tuple(visible(key) for key in self._graph.run.unknown)

    def _description(self) -> str:
        steps = sum(node.kind is Kind.STEP for node in self._graph.nodes)
        unknown = len(self._graph.unknown)
        more = f", {unknown} unknown" if unknown else ""
        return visible(f"The graph of {self._graph.workflow}: {steps} calls of steps{more}.")

    def _line(self, line: Line) -> str:
        x1, y1, x2, y2 = line.x1, line.y1, line.x2, line.y2
        dim = " dim" if line.dim else ""
        if line.sideways:
            bulge = line.sideways * min(46.0, 14 + abs(y2 - y1) / 12)
            way = f"M{x1:g} {y1:g}C{x1 + bulge:g} {y1:g} {x2 + bulge:g} {y2:g} {x2:g} {y2:g}"
        elif x1 == x2 or y1 == y2:
            way = f"M{x1:g} {y1:g}L{x2:g} {y2:g}"
        else:
            middle = (y1 + y2) / 2
            way = f"M{x1:g} {y1:g}C{x1:g} {middle:g} {x2:g} {middle:g} {x2:g} {y2:g}"
        kind = "" if line.kind is EdgeKind.NEXT else f" {line.kind}"
        return f'<path class="edge{kind}{dim}" d="{way}"/>'

    def _box(self, box: Box) -> str:
        node = box.node
        classes = ["node", str(node.kind)]
        passage = node.passage
        if passage is not None and passage.state and not passage.one_of and box.shape == "box":
            classes.append(f"is-{OF_STATE.get(passage.state, ('idle', ''))[0]}")
        if is_dim(self._graph, self._nodes, node):
            classes.append("dim")
        draw = {"box": self._full, "pill": self._pill, "chip": self._chip}.get(box.shape, self._frame)
        return (
            f'<g class="{" ".join(classes)}"><title>{_safe(self._tip(node))}</title>{"".join(draw(box))}</g>'
        )

    def _tip(self, node: Node) -> str:
        said_all = "".join(part.text for part in words(node)) or visible(node.label)
        line = f" (line {node.line})" if node.line else ""
        return f"{said_all}{line}"

    def _full(self, box: Box) -> Iterator[str]:
        node, x, y, w, h = box.node, box.x, box.y, box.w, box.h
        if box.many is not None:
            yield f'<rect class="box" x="{x + 6:g}" y="{y + 5:g}" width="{w - 2:g}" height="{h:g}" rx="8"/>'
        yield f'<rect class="box" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="8"/>'
        first, second = said(node)
        if box.many is not None:
            second = visible(box.many.label)
        if self._has_run and node.kind in RECORDED:
            second = passed(node)
        text_y = y + (20 if second else h / 2 + 4.5)
        colour, glyph = self._glyph(node)
        yield _glyph(glyph, x + 12, text_y - 12, colour)
        room = w - 34 - (30 if node.undo else 12)
        yield f'<text x="{x + 34:g}" y="{text_y:g}">{_safe(_cut(first, room, CHAR))}</text>'
        if second:
            room = w - 34 - (30 if node.undo else 10)
            yield f'<text class="sub" x="{x + 34:g}" y="{y + 36:g}">{_safe(_cut(second, room, SMALL))}</text>'
        if node.undo and node.kind is not Kind.UNDO_WITH:
            state = node.passage.undone if node.passage else ""
            faded = "back" if state or not self._has_run else ""
            yield _glyph("undo", x + w - 26, y + h / 2 - 7, faded)

    def _glyph(self, node: Node) -> tuple[str, str]:
        passage = node.passage
        if passage is not None and passage.one_of:
            return "back", "shared"
        if passage is not None and passage.state:
            return OF_STATE.get(passage.state, ("idle", "ready"))
        colour = {Kind.UNKNOWN: "held", Kind.WAIT: "wait", Kind.ASK: "wait", Kind.UNDO_WITH: "back"}.get(
            node.kind, ""
        )
        return colour, OF_KIND.get(node.kind, "step")

    def _pill(self, box: Box) -> Iterator[str]:
        x, y, w, h = box.x, box.y, box.w, box.h
        yield f'<rect class="pill" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{h / 2:g}"/>'
        text = _cut(head(box.node), w - 24, SMALL)
        glyph = OF_KIND.get(box.node.kind)
        middle = x + w / 2 + (8 if glyph else 0)
        if glyph:
            yield _glyph(glyph, x + 9, y + 7, "")
        yield f'<text class="sub" x="{middle:g}" y="{y + 18:g}" text-anchor="middle">{_safe(text)}</text>'

    def _chip(self, box: Box) -> Iterator[str]:
        x, y, w, h = box.x, box.y, box.w, box.h
        yield f'<rect class="chip" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6"/>'
        text = _cut(visible(box.node.label), w - 14, MONO)
        yield f'<text class="code" x="{x + w / 2:g}" y="{y + 15:g}" text-anchor="middle">{_safe(text)}</text>'

    def _frame(self, box: Box) -> Iterator[str]:
        node, x, y, w, h = box.node, box.x, box.y, box.w, box.h
        if node.kind is Kind.MANY:
            yield f'<rect class="frame" x="{x + 5:g}" y="{y + 5:g}" width="{w:g}" height="{h:g}" rx="10"/>'
        yield f'<rect class="frame" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="10"/>'
        colour = {Kind.SAGA: "back", Kind.UNKNOWN: "held"}.get(node.kind, "")
        glyph = OF_KIND.get(node.kind)
        if glyph:
            yield _glyph(glyph, x + 11, y + HEAD / 2 - 6, colour)
        at = x + (32 if glyph else 14)
        title = head(node) or ("one of these" if node.kind is Kind.CHOICE else "side by side")
        notes = [visible(node.note)] if node.note else []
        if self._has_run and node.kind is Kind.TIMEOUT and node.passage and node.passage.state == "succeeded":
            notes.append("the time was up")
        if node.kind is Kind.MANY and not notes:
            notes.append("side by side")
        if node.kind is Kind.TASK and node.open:
            notes.append("nothing waits for it")
        line = f"{title} · {', '.join(notes)}" if notes else title
        shown = _cut(line, w - (at - x) - 10, MONO)
        yield f'<text class="code" x="{at:g}" y="{y + HEAD / 2 + 5:g}">{_safe(shown)}</text>'


def _glyph(name: str, x: float, y: float, colour: str) -> str:
    scale = 14 / 16
    return f'<g class="g {colour}" transform="translate({x:g} {y:g}) scale({scale:g})">{GLYPHS[name]}</g>'


def _cut(text: str, room: float, size: float) -> str:
    """Return as much of the text as fits."""
    if width_of(text, size) <= room:
        return text
    while text and width_of(text, size) > room - size:
        text = text[:-1]
    return f"{text}…"


def _safe(text: str) -> str:
    return escape(visible(text).replace("\n", " "), quote=True)
