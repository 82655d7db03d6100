"""Draws a graph as the text of a Mermaid flowchart, for places that render it, such as Markdown."""

from __future__ import annotations

from holdfast.graph.graph import Graph, Kind, Node, are_calls, goes_on
from holdfast.graph.layout import is_dim
from holdfast.graph.text import words
from holdfast.safe_text import visible

LABEL_MAX = 60


def to_mermaid(graph: Graph) -> str:
    """Return the flowchart. Labels are escaped, so that nothing in them counts as Mermaid or HTML."""
    return "\n".join(Flowchart(graph).lines()) + "\n"


class Flowchart:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._nodes = {node.id: node for node in graph.nodes}
        self._inside = graph.inside()
        self._made: list[str] = []
        self._edges: list[str] = []
        self._classes: dict[str, list[str]] = {}
        self._begun: dict[str, list[str]] = {}
        """Where each task that was begun so far ends."""
        self._joined = {task for node in graph.nodes for task in node.joins}

    def lines(self) -> list[str]:
        ends = self._sequence(self._inside[""], ["begin"], 1)
        if ends:
            self._made.append("    finish((( )))")
            self._join(ends, "finish")
        styles = [f"    class {','.join(ids)} {name}" for name, ids in sorted(self._classes.items())]
        looks = {
            "undoable": "stroke:#bd7e0e",
            "unknown": "stroke:#84319f,stroke-dasharray:4 3",
            "dim": "opacity:0.4",
            "failed": "stroke:#b3261e",
        }
        styles += [f"    classDef {name} {looks[name]}" for name in sorted(self._classes)]
        return ["flowchart TD", "    begin(( ))", *self._made, *self._edges, *styles]

    def _join(self, sources: list[str], target: str) -> None:
        for source in sources:
            arrow = "" if source.endswith(">") else " -->"  # a labelled source brings its arrow
            self._edges.append(f"    {source}{arrow} {target}")

    def _sequence(self, nodes: list[Node], sources: list[str], depth: int) -> list[str]:
        for node in nodes:
            ends = self._node(node, sources, depth)
            if are_calls(node):
                continue
            sources = ends if goes_on(node, self._inside) else []
        return sources

    def _node(self, node: Node, sources: list[str], depth: int) -> list[str]:
        within = self._inside[node.id]
        pad = "    " * depth
        if node.kind in {Kind.CHOICE, Kind.BRANCHES}:
            return self._split(node, within, sources, depth)
        if node.kind is Kind.TRY:
            return self._try(within, sources, depth)
        if within:
            return self._container(node, within, sources, depth)
        left, right = ("([", "])") if not goes_on(node, self._inside) else ("[", "]")
        if node.kind in {Kind.WAIT, Kind.ASK, Kind.SLEEP}:
            left, right = "[/", "/]"
        self._made.append(f'{pad}{node.id}{left}"{_label(node)}"{right}')
        self._join(sources, node.id)
        for task in node.joins:
            for end in self._begun.get(task, []):
                arrow = "" if end.endswith(">") else " -.->"
                self._edges.append(f"    {end}{arrow} {node.id}")
        if is_dim(self._graph, self._nodes, node):
            self._classes.setdefault("dim", []).append(node.id)
        if node.undo:
            self._classes.setdefault("undoable", []).append(node.id)
        if node.kind is Kind.UNKNOWN:
            self._classes.setdefault("unknown", []).append(node.id)
        if node.passage is not None and node.passage.state == "failed":
            self._classes.setdefault("failed", []).append(node.id)
        return [node.id]

    def _container(self, node: Node, within: list[Node], sources: list[str], depth: int) -> list[str]:
        pad = "    " * depth
        earlier = set(self._begun)
        self._made.append(f'{pad}subgraph {node.id}["{_label(node)}"]')
        ends = self._sequence(within, sources, depth + 1)
        self._made.append(f"{pad}end")
        if node.kind is Kind.TASK:
            self._begun[node.id] = ends
            return sources  # the code goes on beside it
        if node.kind is Kind.GROUP:  # it waits for the tasks that nothing else waits for
            for task in (one for one in self._begun if one not in earlier | self._joined):
                ends = [*ends, *self._begun[task]]
        return list(dict.fromkeys(ends))

    def _split(self, node: Node, arms: list[Node], sources: list[str], depth: int) -> list[str]:
        shape = ("{", "}") if node.kind is Kind.CHOICE else ("[[", "]]")
        label = _safe(node.label) or ("if" if node.kind is Kind.CHOICE else "side by side")
        self._made.append(f'{"    " * depth}{node.id}{shape[0]}"{label}"{shape[1]}')
        self._join(sources, node.id)
        ends: list[str] = []
        for arm in arms:
            source = f'{node.id} -- "{_safe(arm.label)}" -->' if arm.label else node.id
            ends += self._sequence(self._inside[arm.id], [source], depth)
        return ends

    def _try(self, arms: list[Node], sources: list[str], depth: int) -> list[str]:
        pad = "    " * depth
        body, *others = arms
        self._made.append(f'{pad}subgraph {body.id}["try"]')
        if not self._inside[body.id]:
            self._made.append(f'{pad}    {body.id}x[" "]')
            self._join(sources, f"{body.id}x")
        ends = self._sequence(self._inside[body.id], sources, depth + 1) or [body.id]
        self._made.append(f"{pad}end")
        for arm in others:
            if arm.label == "finally":
                ends = self._sequence(self._inside[arm.id], ends, depth)
            else:
                ends += self._sequence(
                    self._inside[arm.id], [f'{body.id} -. "{_safe(arm.label)}" .->'], depth
                )
        return ends


def _label(node: Node) -> str:
    return _safe("".join(part.text for part in words(node)))


def _safe(text: str) -> str:
    """Return a text that Mermaid shows as it is: every character that could mean something is written as its number."""
    line = " ".join(visible(text).split())
    if len(line) > LABEL_MAX:
        line = line[: LABEL_MAX - 1] + "…"
    return "".join(one if one.isalnum() or one in " .,_-+=…·:()↶×" else f"#{ord(one)};" for one in line)
