"""Draws the way a run took into the graph of its workflow: recorded rows are matched to nodes by their keys.

A row belongs to the node that has exactly its key. Otherwise the node's key is compared without numbers: calls of one
step in one task have keys that differ only in a number, which says nothing if a condition or a loop is around one of
them. If several nodes have such a key, the rows are shown at all of them, and marked: nobody knows which one it was.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from fnmatch import fnmatchcase

import msgspec

from holdfast.graph.graph import RECORDED, Graph, Kind, Node, Passage, RunPart
from holdfast.model import (
    DEADLINE,
    REQUEST_PREFIX,
    UNDO_PREFIX,
    RunRow,
    StepKind,
    StepRow,
    StepState,
    call_key,
    undone_key,
)

_NUMBER = re.compile(r"#(\d+)$")
_KINDS = {
    StepKind.CALL: {Kind.STEP},
    StepKind.CALLBACK: {Kind.STEP},
    StepKind.CHILD: {Kind.CHILD},
    StepKind.START: {Kind.START},
    StepKind.SERVE: {Kind.SERVE},
    StepKind.SIGNAL: {Kind.WAIT},
    StepKind.ASK: {Kind.ASK},
    StepKind.UNDO: {Kind.UNDO_WITH},
    StepKind.TIMER: {Kind.SLEEP, Kind.TIMEOUT},
}
_WEIGHT = (
    StepState.FAILED,
    StepState.RUNNING,
    StepState.READY,
    StepState.WAITING,
    StepState.CANCELLED,
    StepState.SUCCEEDED,
)
"""Which state says most about several rows: the first of these that one of them has."""


def without_numbers(key: str) -> str:
    """Return a recorded key without the numbers of its parts: `branch#2/charge#3` is a `branch/charge`."""
    head, colon, free = key.partition(":")
    return "/".join(_NUMBER.sub("", part) for part in head.split("/")) + colon + free


def with_run(graph: Graph, run: RunRow, rows: Iterable[StepRow]) -> Graph:
    """Return the graph with what a run did at each node."""
    calls: list[StepRow] = []
    tries: dict[str, tuple[int, StepRow]] = {}
    for row in rows:
        if row.key.startswith(UNDO_PREFIX):
            key, number = undone_key(row.key)
            if row.kind is StepKind.CHILD and row.output == b"false":
                continue  # the child had nothing to undo
            if number >= tries.get(key, (0, row))[0]:
                tries[call_key(key)] = (number, row)  # the last try counts
        elif row.key.startswith(REQUEST_PREFIX):
            pass  # its callback stands for both
        elif row.kind is StepKind.CALLBACK:
            calls.append(msgspec.structs.replace(row, key=call_key(row.key)))
        elif row.key != DEADLINE and row.kind is not StepKind.MARKER:
            calls.append(row)
    undos = {key: row for key, (_, row) in tries.items()}
    found = Found(graph, calls)
    passages = {node: _passage(rows, undos, found.sharing.get(node, 0)) for node, rows in found.rows.items()}
    nodes = tuple(msgspec.structs.replace(node, passage=passages.get(node.id)) for node in graph.nodes)
    part = RunPart(run.id, str(run.state), tuple(found.unknown), run.generation)
    return msgspec.structs.replace(graph, nodes=_with_containers(nodes, found.places), run=part)


class Found:
    """The nodes that the rows of a run belong to."""

    def __init__(self, graph: Graph, rows: Iterable[StepRow]) -> None:
        self.rows: dict[str, list[StepRow]] = defaultdict(list)
        """The rows of each node that has some."""
        self.sharing: dict[str, int] = {}
        """How many nodes share the rows of a node, if it does not have them alone."""
        self.places: set[tuple[str, ...]] = set()
        """Of each of these sets of nodes, at least one was reached."""
        self.unknown: list[str] = []
        """The keys of the rows that belong to no node."""
        self._workflow = graph.workflow
        kinds = {node.id: node.kind for node in graph.nodes}
        self._mapped = {node.id for node in graph.nodes if kinds.get(node.parent) is Kind.MANY}
        self._exact = {node.row: node for node in graph.nodes if node.row}
        self._others = [node for node in graph.nodes if node.kind in RECORDED and node.key and not node.row]
        self._known: dict[tuple[StepKind, str, str], tuple[str, ...]] = {}
        for row in rows:
            self._add(row)

    def _add(self, row: StepRow) -> None:
        nodes = self._nodes_of(row)
        if not nodes:
            if not _is_limit_of_wait(row):
                self.unknown.append(row.key)
            return
        self.places.add(nodes)
        for node in nodes:
            self.rows[node].append(row)
            if len(nodes) > 1:
                self.sharing[node] = max(self.sharing.get(node, 0), len(nodes))

    def _nodes_of(self, row: StepRow) -> tuple[str, ...]:
        exact = self._exact.get(row.key)
        if exact is not None and _is_of(exact, row):
            return (exact.id,)
        asked = (row.kind, row.name, without_numbers(row.key))
        if asked not in self._known:
            fits = self._pages(row) or [node for node in self._others if _fits(node, row, asked[2])]
            self._known[asked] = tuple(node.id for node in fits)
        return self._known[asked]

    def _pages(self, row: StepRow) -> list[Node]:
        """Return the calls of a `map` whose page this row is."""
        key = without_numbers(row.key)
        if row.kind is not StepKind.CHILD or row.name != self._workflow or not key.endswith(".page"):
            return []
        return [node for node in self._others if node.id in self._mapped and _matches(node, key[:-5])]


def _is_of(node: Node, row: StepRow) -> bool:
    return node.kind in _KINDS.get(row.kind, ()) and node.name in {"", row.name}


def _fits(node: Node, row: StepRow, key: str) -> bool:
    return _is_of(node, row) and _matches(node, key)


def _matches(node: Node, key: str) -> bool:
    if "*" not in node.key:
        return node.key == key
    return fnmatchcase(key, node.key.replace("[", "[[]").replace("?", "[?]"))


def _is_limit_of_wait(row: StepRow) -> bool:
    """The timer of a wait's own timeout belongs to the wait."""
    return row.kind is StepKind.TIMER and row.name != "sleep"


def _passage(rows: list[StepRow], undos: dict[str, StepRow], one_of: int) -> Passage:
    states = {row.state for row in rows}
    state = next(state for state in _WEIGHT if state in states)
    begun = [row.started_at or row.issued_at for row in rows]
    ended = [row.finished_at for row in rows]
    seconds = None if None in ended else max(0.0, max(at for at in ended if at) - min(begun))
    undone = {undos[row.key].state for row in rows if row.key in undos}
    shown = next((str(one) for one in _WEIGHT if one in undone), "")
    return Passage(
        str(state),
        len(rows),
        None if seconds is None else round(seconds, 6),
        "undone" if shown == "succeeded" else shown,
        one_of,
    )


def _with_containers(nodes: tuple[Node, ...], places: Iterable[tuple[str, ...]]) -> tuple[Node, ...]:
    """Mark what has something inside that was surely reached as reached, too. If one of several nodes was reached, that
    is what all of them are inside."""
    parents = {node.id: node.parent for node in nodes}
    reached: set[str] = set()
    for place in places:
        reached |= set.intersection(*(_above(node, parents) for node in place))
    return tuple(
        msgspec.structs.replace(node, passage=Passage())
        if node.passage is None and node.id in reached
        else node
        for node in nodes
    )


def _above(node: str, parents: dict[str, str]) -> set[str]:
    found: set[str] = set()
    while node := parents[node]:
        found.add(node)
    return found
