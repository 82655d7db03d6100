"""Draws a graph as a tree of lines for a terminal. The lines are words with their looks; whoever prints them decides
about colours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.durations import span
from holdfast.glyphs import COLOURS, GLYPHS
from holdfast.graph.graph import RECORDED, Graph, Kind, Node
from holdfast.model import EVENT_PREFIX, in_words
from holdfast.safe_text import visible

WIDTH = 80
UNDO = "↶"


class StyledText(NamedTuple):
    """A part of a line."""

    text: str
    colour: str | None = None
    dim: bool = False
    bold: bool = False


Line = list[StyledText]


def to_text(graph: Graph, width: int = WIDTH) -> str:
    """Return the graph as a tree, without colours."""
    return "\n".join("".join(words.text for words in line).rstrip() for line in lines(graph, width)) + "\n"


def lines(graph: Graph, width: int = WIDTH) -> list[Line]:
    """Return the graph as a tree of lines that are at most `width` characters long."""
    version = "" if graph.code == "1" else f" version {graph.code}"
    head: Line = [StyledText(visible(graph.short_name), bold=True), StyledText(visible(version), dim=True)]
    if graph.run is not None:
        generation = f", generation {graph.run.generation}" if graph.run.generation > 1 else ""
        head += [
            StyledText("  "),
            StyledText(f"{GLYPHS.get(graph.run.state, '·')} ", COLOURS.get(graph.run.state)),
            StyledText(visible(f"{graph.run.id} {in_words(graph.run.state)}{generation}"), dim=True),
        ]
    tree = Tree(graph, width)
    drawn = [head, *tree.lines()]
    if tree.has_shared:
        drawn += [
            [],
            [
                StyledText(
                    "~ these places share the keys of their steps: nobody knows which one it was", dim=True
                )
            ],
        ]
    if graph.run is not None and graph.run.unknown:
        drawn += [[], [StyledText("? recorded, and not in this source", "yellow")]]
        drawn += [[StyledText(f"  {visible(key)}")] for key in graph.run.unknown]
    return [cut(line, width) for line in drawn]


class Tree:
    """The lines of the nodes, each behind the lines of the tree."""

    def __init__(self, graph: Graph, width: int) -> None:
        self._inside = graph.inside()
        self._has_run = graph.run is not None
        self._width = width
        self.has_shared = False

    def lines(self) -> list[Line]:
        return list(self._sequence(self._inside[""], ""))

    def _sequence(self, nodes: list[Node], before: str) -> Iterator[Line]:
        rows = [row for node in nodes for row in self._rows(node)]
        for n, (node, words, within) in enumerate(rows):
            is_last = n == len(rows) - 1
            yield [StyledText(before + ("└─ " if is_last else "├─ "), dim=True), *self._state(node), *words]
            yield from self._sequence(within, before + ("   " if is_last else "│  "))

    def _rows(self, node: Node) -> Iterator[tuple[Node, Line, list[Node]]]:
        """Yield the lines of one node at its own level, each with what is under it."""
        within = self._inside[node.id]
        if node.kind is Kind.CHOICE and not node.label:
            yield from self._conditions(within)
        elif node.kind is Kind.CHOICE:
            yield node, [StyledText(visible(node.label))], within
        elif node.kind is Kind.TRY:
            for arm in within:
                if self._inside[arm.id] or arm.label != "otherwise":
                    yield arm, [StyledText(visible(arm.label))], self._inside[arm.id]
        elif node.kind is Kind.ARM:
            yield from self._arm(node, within)
        else:
            yield node, [*words(node), *self._passed(node)], within

    def _conditions(self, arms: list[Node]) -> Iterator[tuple[Node, Line, list[Node]]]:
        said = "if"
        for arm in arms:
            body = self._inside[arm.id]
            if arm.label != "otherwise":
                yield arm, [StyledText(f"{said} {visible(arm.label)}")], body
                said = "elif"
            elif body:
                yield arm, [StyledText("else")], body

    def _arm(self, arm: Node, within: list[Node]) -> Iterator[tuple[Node, Line, list[Node]]]:
        """The arms of side-by-side work have no label: one node stands for its arm. A case of a match has one."""
        if arm.label == "otherwise":
            if within:
                yield arm, [StyledText("otherwise")], within
        elif arm.label:
            yield arm, [StyledText(f"case {visible(arm.label)}")], within
        elif len(within) == 1:
            yield from self._rows(within[0])
        else:
            yield arm, [StyledText("branch")], within

    def _state(self, node: Node) -> Line:
        if not self._has_run:
            return []
        passage = node.passage
        if passage is None:
            return [StyledText("· " if node.kind in RECORDED else "  ", dim=True)]
        if passage.one_of:
            self.has_shared = True
            return [StyledText("~ ", "yellow")]
        if not passage.state:
            return [StyledText("  ")]
        return [StyledText(f"{GLYPHS.get(passage.state, '·')} ", COLOURS.get(passage.state))]

    def _passed(self, node: Node) -> Line:
        passage = node.passage
        if not self._has_run or node.kind not in RECORDED:
            return []
        if passage is None:
            return [StyledText("  not reached", dim=True)]
        said = []
        if passage.one_of:
            said.append(f"{passage.count} in {passage.one_of} places")
        elif passage.count > 1:
            said.append(f"× {passage.count:,}")
        if passage.state and passage.state != "succeeded" and node.kind is not Kind.TIMEOUT:
            said.append(passage.state)
        if passage.seconds is not None and not passage.one_of:
            said.append(span(passage.seconds))
        line = [StyledText(f"  {' · '.join(said)}", dim=True)] if said else []
        if passage.undone:
            line += [StyledText(f"  {GLYPHS['undone']} {passage.undone}", COLOURS.get("undone"))]
        return line


def words(node: Node) -> Line:  # noqa: PLR0911, PLR0912  one sentence for each kind
    """Return what a node says in one line, without what a run did there."""
    label, note = visible(node.label), visible(node.note)
    said = f", {note}" if note else ""
    match node.kind:
        case Kind.STEP:
            undo = [StyledText(f"  {UNDO} {visible(_short(node.undo))}", "yellow")] if node.undo else []
            return [StyledText(label, bold=True), StyledText(said, dim=True), *undo]
        case Kind.CHILD:
            return [StyledText("child ", dim=True), StyledText(label, bold=True), StyledText(said, dim=True)]
        case Kind.START:
            return [
                StyledText("start ", dim=True),
                StyledText(label, bold=True),
                StyledText(", which outlives this run", dim=True),
            ]
        case Kind.SLEEP:
            return [StyledText("sleep ", dim=True), StyledText(label)]
        case Kind.WAIT:
            what = "event" if node.name.startswith(EVENT_PREFIX) else "signal"
            return [
                StyledText(f"wait for {what} ", dim=True),
                StyledText(label, bold=True),
                StyledText(said, dim=True),
            ]
        case Kind.ASK:
            return [
                StyledText("ask people ", dim=True),
                StyledText(label, bold=True),
                StyledText(said, dim=True),
            ]
        case Kind.SEND:
            return [
                StyledText("send signal ", dim=True),
                StyledText(label, bold=True),
                StyledText(f" {note}", dim=True),
            ]
        case Kind.KEEP:
            return [StyledText("keep", bold=True), StyledText(": nothing before this is undone", dim=True)]
        case Kind.UNDO_WITH:
            return [StyledText("undo with ", dim=True), StyledText(f"{UNDO} {label}", "yellow")]
        case Kind.JOIN | Kind.AWAIT:
            return [StyledText("await ", dim=True), StyledText(label), StyledText(said, dim=True)]
        case Kind.UNKNOWN:
            return [
                StyledText("? ", "magenta"),
                StyledText(label),
                StyledText(f": {note}" if note else "", dim=True),
            ]
        case Kind.LOOP:
            return [StyledText(label), StyledText(said, dim=True)]
        case Kind.MANY:
            return [StyledText(label), StyledText(said or ", side by side", dim=True)]
        case Kind.TASK:
            left_open = ", and nothing waits for it" if node.open else ""
            return [StyledText("begin ", dim=True), StyledText(label), StyledText(left_open, dim=True)]
        case Kind.HELPER:
            return [StyledText(f"{label}()"), StyledText(said, dim=True)]
        case Kind.SAGA:
            return [
                StyledText("saga", bold=True),
                StyledText(f" {UNDO} undone as a whole if it fails", "yellow"),
            ]
        case Kind.SERVE:
            return [StyledText("serve update ", dim=True), StyledText(label, bold=True)]
        case Kind.TIMEOUT:
            return [StyledText(f"within {label}" if label else "with a timeout")]
        case _:
            return [StyledText(label), StyledText(said, dim=True)]


def _short(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def cut(line: Line, width: int) -> Line:
    """Return the line without what goes beyond `width`."""
    room = width
    found: Line = []
    for part in line:
        if len(part.text) > room:
            found.append(part._replace(text=part.text[: max(0, room - 1)] + "…"))
            break
        found.append(part)
        room -= len(part.text)
    return found
