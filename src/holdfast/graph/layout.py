"""Places a graph on paper, from top to bottom: what follows is below, what is side by side or an alternative is beside.

The structure is nested, so every node is a box whose size follows from what is in it. There is nothing to search for,
and the same graph always gives the same picture. Code is read downwards and conditions are long, so the picture grows
downwards; arms that would make it too wide are put into rows.
"""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

from holdfast.durations import span
from holdfast.graph.graph import RECORDED, EdgeKind, Graph, Kind, Node, are_calls, goes_on
from holdfast.model import EVENT_PREFIX
from holdfast.safe_text import visible

CHAR, SMALL, MONO = 7.7, 6.6, 6.8
"""How wide a character is about, in pixels: of a name, of what is under it, of source text."""
BOX_MIN, BOX_MAX = 128, 280
GAP, BESIDE, PAD, HEAD, CHIP = 22, 24, 16, 30, 22
"""Between two boxes, between two arms, inside a frame; the height of a frame's head and of a condition."""
FAN = 26
"""The room in which lines part and come together."""
WIDE = 1500
"""Arms that together are wider than this are put into rows."""
PILLS = frozenset(
    {
        Kind.RETURN,
        Kind.RAISE,
        Kind.BREAK,
        Kind.CONTINUE,
        Kind.CONTINUE_AS_NEW,
        Kind.JOIN,
        Kind.AWAIT,
        Kind.KEEP,
    }
)


class Box(NamedTuple):
    """A node, where it is. `shape` is box, pill, frame, chip (a condition) or rows (arms that did not fit beside one
    another)."""

    node: Node
    shape: str
    x: float
    y: float
    w: float
    h: float
    many: Node | None = None
    """The node of which this box stands for many."""


class Line(NamedTuple):
    kind: EdgeKind
    x1: float
    y1: float
    x2: float
    y2: float
    dim: bool = False
    sideways: int = 0
    """-1 or 1 if the line leaves and arrives at the left or right edges."""


class Picture(NamedTuple):
    w: float
    h: float
    boxes: list[Box]
    lines: list[Line]


class Block(NamedTuple):
    """A part of the picture before it has a place. `cx` is where lines come in and go out."""

    w: float
    h: float
    cx: float
    boxes: list[Box]
    lines: list[Line]
    ends: list[tuple[float, float]]
    """Where lines go on from, as (x, y); none if the code does not go on."""

    def moved(self, dx: float, dy: float) -> Block:
        return Block(
            self.w,
            self.h,
            self.cx + dx,
            [box._replace(x=box.x + dx, y=box.y + dy) for box in self.boxes],
            [
                line._replace(x1=line.x1 + dx, y1=line.y1 + dy, x2=line.x2 + dx, y2=line.y2 + dy)
                for line in self.lines
            ],
            [(x + dx, y + dy) for x, y in self.ends],
        )


def place(graph: Graph) -> Picture:
    """Return where everything is."""
    return Layout(graph).picture()


def is_dim(graph: Graph, nodes: dict[str, Node], node: Node) -> bool:
    """True if a run is drawn, and nothing shows that it came here. Nothing is recorded of a return, so that is as dim as
    what it is in."""
    if graph.run is None:
        return False
    seen = nodes.get(node.parent) if node.kind in PILLS else node
    return seen is not None and seen.passage is None


def width_of(text: str, size: float) -> float:
    return sum(size * (1.75 if unicodedata.east_asian_width(one) in "WF" else 1.0) for one in text)


def said(node: Node) -> tuple[str, str]:
    """Return the two lines of a box."""
    label, note = visible(node.label), visible(node.note)
    match node.kind:
        case Kind.STEP:
            return label, note or (f"undo: {_short(node.undo)}" if node.undo else "")
        case Kind.CHILD:
            return label, note or "child run"
        case Kind.START:
            return label, "start, outlives this run"
        case Kind.SLEEP:
            return f"sleep {label}", ""
        case Kind.WAIT:
            what = "event" if node.name.startswith(EVENT_PREFIX) else "signal"
            return label, f"{what}, {note}" if note else f"wait for {what}"
        case Kind.ASK:
            return label, f"people, {note}" if note else "ask people"
        case Kind.SEND:
            return label, f"send signal {note}"
        case Kind.UNDO_WITH:
            return label, "undo by hand"
        case Kind.UNKNOWN:
            return label, note
        case _:
            return head(node), note


def head(node: Node) -> str:
    """Return what stands over a frame, or in a pill."""
    label = visible(node.label)
    named = {
        Kind.SAGA: "saga: undone as a whole if it fails",
        Kind.TRY: "try",
        Kind.KEEP: "keep: nothing before this is undone",
        Kind.TIMEOUT: f"within {label}" if label else "with a timeout",
        Kind.SERVE: f"serve update {label}",
        Kind.HELPER: f"{label}()",
        Kind.TASK: f"begin {label}",
        Kind.JOIN: f"await {label}",
        Kind.AWAIT: f"await {label}",
    }
    return named.get(node.kind, label)


def passed(node: Node) -> str:
    """Return what a run did at a node that leaves rows."""
    passage = node.passage
    if passage is None:
        return "not reached"
    if passage.one_of:
        return f"{passage.count} in {passage.one_of} places"
    parts = [f"× {passage.count:,}"] if passage.count > 1 else []
    parts += [passage.state] if passage.state not in {"", "succeeded"} else []
    parts += [span(passage.seconds)] if passage.seconds is not None else []
    parts += [passage.undone] if passage.undone else []
    return " · ".join(parts)


def _short(name: str) -> str:
    return visible(name.rsplit(".", 1)[-1])


class Layout:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._inside = graph.inside()
        self._nodes = {node.id: node for node in graph.nodes}
        self._has_run = graph.run is not None

    def picture(self) -> Picture:
        block = self._sequence(self._inside[""])
        edge = 24
        block = block.moved(edge, edge)
        where = {box.node.id: box for box in reversed(block.boxes) if box.shape != "chip"}
        lines = [*block.lines, *self._other_lines(where)]
        return Picture(max(block.w, 160) + 2 * edge, block.h + 2 * edge, block.boxes, lines)

    def _dim(self, node: Node) -> bool:
        return is_dim(self._graph, self._nodes, node)

    def _other_lines(self, where: dict[str, Box]) -> list[Line]:
        """The lines that do not follow from the order: back through a saga, and from a task to where it is awaited."""
        found = []
        for edge in self._graph.edges:
            source, target = where.get(edge.source), where.get(edge.target)
            if source is None or target is None or edge.kind not in {EdgeKind.UNDO, EdgeKind.JOIN}:
                continue
            dim = self._dim(source.node)
            top = target.y + (HEAD / 2 if target.shape == "frame" else target.h / 2)
            if edge.kind is EdgeKind.UNDO:
                inner = 8 if target.shape == "frame" else 0
                found.append(
                    Line(
                        edge.kind, source.x, source.y + source.h / 2, target.x + inner, top, dim, sideways=-1
                    )
                )
            else:
                right, y = source.x + source.w, source.y + source.h / 2
                found.append(Line(edge.kind, right, y, target.x + target.w, top, dim, sideways=1))
        return found

    # --- blocks -------------------------------------------------------------------------------------------------------

    def _sequence(self, nodes: list[Node]) -> Block:
        blocks = [self._node(node) for node in nodes]
        if not blocks:
            return Block(0, 0, 0, [], [], [(0, 0)])
        cx = max(block.cx for block in blocks)
        boxes: list[Box] = []
        lines: list[Line] = []
        ends: list[tuple[float, float]] = []
        y = w = 0.0
        for node, block in zip(nodes, blocks, strict=True):
            at = block.moved(cx - block.cx, y)
            lines += [Line(EdgeKind.NEXT, x1, y1, cx, y, self._dim_way(node)) for x1, y1 in ends]
            boxes += at.boxes
            lines += at.lines
            ends = [] if are_calls(node) else at.ends
            y += block.h + GAP
            w = max(w, cx - block.cx + block.w)
        return Block(w, y - GAP, cx, boxes, lines, ends)

    def _dim_way(self, node: Node) -> bool:
        """A line is dim if what it leads to is."""
        return self._dim(node)

    def _node(self, node: Node) -> Block:
        within = self._inside[node.id]
        if node.kind in {Kind.BRANCHES, Kind.CHOICE}:
            return self._split(node, within)
        if node.kind is Kind.TRY:
            return self._try(node, within)
        if node.kind is Kind.MANY and len(within) == 1 and not self._inside[within[0].id]:
            return self._leaf(within[0], many=node)
        if within:
            return self._frame(node, self._sequence(within))
        return self._leaf(node)

    def _leaf(self, node: Node, many: Node | None = None) -> Block:
        first, second = said(node)
        if many is not None:
            second = visible(many.label)
        if node.kind in PILLS:
            w = min(420, width_of(first, SMALL) + 44)
            h, shape = 28.0, "pill"
        else:
            second = passed(node) if self._has_run and node.kind in RECORDED else second
            extra = 72 if node.undo else 54
            wanted = max(width_of(first, CHAR) + extra, width_of(second, SMALL) + extra)
            w = min(max(BOX_MIN, wanted), BOX_MAX)
            h = 46.0 if second else 36.0
            shape = "box"
        w = round(w)
        deep = 4 if many is not None else 0
        inside = {node.id: []} if not self._inside[node.id] else self._inside
        ends = [(w / 2, h + deep)] if goes_on(node, inside) else []
        return Block(w, h + deep, w / 2, [Box(node, shape, 0, 0, w, h, many)], [], ends)

    def _frame(self, node: Node, inner: Block, shape: str = "frame") -> Block:
        left = PAD + (16 if node.kind is Kind.SAGA else 0)
        text = width_of(head(node), MONO) + 60 + (width_of(visible(node.note), SMALL) if node.note else 0)
        w = round(max(inner.w + PAD + left, min(text, 640)))
        shift = left + (w - PAD - left - inner.w) / 2
        at = inner.moved(shift, HEAD + 8)
        h = inner.h + HEAD + 8 + PAD
        cx = at.cx
        ends = [(cx, h)] if goes_on(node, self._inside) else []
        return Block(w, h, cx, [Box(node, shape, 0, 0, w, h), *at.boxes], at.lines, ends)

    def _arm(self, arm: Node) -> Block:
        """An arm: its condition, if it has one, and what is under it."""
        inner = self._sequence(self._inside[arm.id])
        if not arm.label:
            return inner
        text = visible(arm.label)
        w = round(min(max(64, width_of(text, MONO) + 24), BOX_MAX + 40))
        cx = max(w / 2, inner.cx)
        chip = Box(arm, "chip", cx - w / 2, 0, w, CHIP)
        if not self._inside[arm.id]:
            return Block(w, CHIP, w / 2, [chip], [], [(w / 2, CHIP)])
        down = CHIP + 14
        at = inner.moved(cx - inner.cx, down)
        first = self._inside[arm.id][0]
        line = Line(EdgeKind.NEXT, cx, CHIP, cx, down, self._dim_way(first))
        width = max(cx + w / 2, cx - inner.cx + inner.w)
        return Block(width, down + inner.h, cx, [chip, *at.boxes], [line, *at.lines], at.ends)

    def _split(self, node: Node, arms: list[Node]) -> Block:
        blocks = [self._arm(arm) for arm in arms]
        total = sum(block.w for block in blocks) + BESIDE * (len(blocks) - 1)
        if total > WIDE:
            return self._rows(node, blocks)
        boxes: list[Box] = []
        lines: list[Line] = []
        cx = total / 2
        top = 0.0
        title = visible(node.label)
        if title and node.kind is Kind.CHOICE:
            w = round(min(width_of(title, MONO) + 24, BOX_MAX + 40))
            boxes.append(Box(node, "chip", cx - w / 2, 0, w, CHIP))
            top = CHIP
        tallest = max(block.h for block in blocks)
        x, ends = 0.0, []
        bottom = top + FAN + tallest + FAN
        for arm, block in zip(arms, blocks, strict=True):
            at = block.moved(x, top + FAN)
            first = (self._inside[arm.id] or [arm])[0]
            dim = self._dim(arm) and self._dim(first)
            lines.append(Line(EdgeKind.NEXT, cx, top, at.cx, top + FAN, dim))
            lines += at.lines
            boxes += at.boxes
            for x1, y1 in at.ends:
                lines.append(Line(EdgeKind.NEXT, x1, y1, x1, bottom - FAN, dim))
                lines.append(Line(EdgeKind.NEXT, x1, bottom - FAN, cx, bottom, dim))
                ends = [(cx, bottom)]
            x += block.w + BESIDE
        if node.kind is Kind.BRANCHES and not ends:
            ends = [(cx, bottom)]
        height = bottom if ends else bottom - FAN
        return Block(total, height, cx, boxes, lines, ends)

    def _rows(self, node: Node, blocks: list[Block]) -> Block:
        """Arms that do not fit beside one another, in rows inside a frame."""
        boxes: list[Box] = []
        lines: list[Line] = []
        x = y = w = tallest = 0.0
        for block in blocks:
            if x and x + block.w > WIDE:
                x, y, tallest = 0.0, y + tallest + GAP, 0.0
            at = block.moved(x, y)
            boxes += at.boxes
            lines += at.lines
            tallest = max(tallest, block.h)
            x += block.w + BESIDE
            w = max(w, x - BESIDE)
        return self._frame(node, Block(w, y + tallest, w / 2, boxes, lines, []), "rows")

    def _try(self, node: Node, arms: list[Node]) -> Block:
        body, *others = arms
        last = [arm for arm in others if arm.label == "finally"]
        beside = [arm for arm in others if arm.label != "finally"]
        first = self._sequence(self._inside[body.id])
        if not first.w:
            first = Block(64, 0, 32, [], [], [(32, 0)])
        boxes, lines = list(first.boxes), list(first.lines)
        ends = [(x, y, self._dim(body)) for x, y in first.ends]
        x, tallest = first.w + BESIDE + 12, max(first.h, CHIP)
        start = first.w + 6
        for arm in beside:
            block = self._arm(arm)
            at = block.moved(x, 0)
            chip = at.boxes[0]
            caught = arm.label.startswith("except")
            kind = EdgeKind.EXCEPT if caught else EdgeKind.NEXT
            lines.append(Line(kind, start, CHIP / 2, chip.x, CHIP / 2, self._has_run and arm.passage is None))
            boxes += at.boxes
            lines += at.lines
            ends += [(x1, y1, self._dim(arm)) for x1, y1 in at.ends]
            tallest = max(tallest, block.h)
            start = chip.x + chip.w
            x += block.w + BESIDE
        w, cx, h = (x - BESIDE if beside else first.w), first.cx, tallest
        if last:
            block = self._arm(last[0])
            down = tallest + FAN
            shift = max(0.0, cx - block.cx)
            at = block.moved(shift, down)
            boxes += at.boxes
            lines += _come_together(ends, tallest, at.cx, down)
            lines += at.lines
            h, w = down + block.h, max(w, shift + block.w)
        elif beside:
            h = tallest + FAN
            lines += _come_together(ends, tallest, cx, h)
        return self._frame(node, Block(w, h, cx, boxes, lines, []))


def _come_together(ends: list[tuple[float, float, bool]], level: float, x: float, y: float) -> list[Line]:
    """Lines from several ends, dim or not, go straight down to one level, and from there to one point."""
    straight = [Line(EdgeKind.NEXT, x1, y1, x1, level, dim) for x1, y1, dim in ends if y1 < level]
    return [*straight, *(Line(EdgeKind.NEXT, x1, level, x, y, dim) for x1, _, dim in ends)]
