"""What a graph is: nodes inside nodes, edges between neighbours, and, if a run is drawn into it, what it did where.

The same type is made from Python source and, later, from anything else that describes a workflow. Whoever draws one
needs nothing but this. The order of the nodes is their order in the code: a node comes before what is inside it, and
inside one node the first comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise

import msgspec

VERSION = 1
"""The version of the JSON form. A reader that knows another one should refuse it."""


class Kind(StrEnum):
    """What a node stands for."""

    # what a run asks for
    STEP = "step"
    CHILD = "child"
    START = "start"
    SLEEP = "sleep"
    WAIT = "wait"
    ASK = "ask"
    SEND = "send"
    UNDO_WITH = "undo_with"
    KEEP = "keep"
    # where the way goes
    JOIN = "join"
    AWAIT = "await"
    RETURN = "return"
    RAISE = "raise"
    CONTINUE_AS_NEW = "continue_as_new"
    BREAK = "break"
    CONTINUE = "continue"
    UNKNOWN = "unknown"
    # what has something inside: one thing after the other
    ARM = "arm"
    LOOP = "loop"
    MANY = "many"
    TASK = "task"
    GROUP = "group"
    HELPER = "helper"
    SAGA = "saga"
    TIMEOUT = "timeout"
    SERVE = "serve"
    # what has arms inside: side by side, or one of them
    BRANCHES = "branches"
    CHOICE = "choice"
    TRY = "try"


RECORDED = frozenset(
    {
        Kind.STEP,
        Kind.CHILD,
        Kind.START,
        Kind.SLEEP,
        Kind.WAIT,
        Kind.ASK,
        Kind.UNDO_WITH,
        Kind.TIMEOUT,
        Kind.SERVE,
    }
)
"""The kinds that leave a row in the store when a run comes there."""
SPLITS = frozenset({Kind.BRANCHES, Kind.CHOICE, Kind.TRY})
"""The kinds that have arms inside."""
MAYBE = frozenset({Kind.LOOP, Kind.MANY, Kind.CHOICE, Kind.TRY, Kind.UNKNOWN})
"""What is inside these may happen any number of times, or not at all."""
ENDS = frozenset({Kind.RETURN, Kind.RAISE, Kind.CONTINUE_AS_NEW, Kind.BREAK, Kind.CONTINUE})
"""The kinds after which the code does not go on to the next node."""


class Passage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run did at a node."""

    state: str = ""
    """The state that says most about it: that of an open or failed step, if one of them is open or failed. Empty for a
    node that leaves no row itself and has something inside that was reached."""
    count: int = 0
    """How many rows belong to it. For the calls of a `map` that is divided into pages, these are the pages."""
    seconds: float | None = None
    """From the first beginning to the last end; None while it goes on."""
    undone: str = ""
    """The state of its undo, if the run undid it or tries to."""
    one_of: int = 0
    """If it is not 0, the rows belong to this node or to others with the same key, and nobody knows to which: so many
    nodes share them."""


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing in a workflow."""

    id: str
    kind: Kind
    label: str = ""
    """What people read: a step's short name, a condition's source text."""
    parent: str = ""
    """The id of the node this one is in. Empty if it is in none."""
    name: str = ""
    """The full name of the step, workflow, signal or update, as it is recorded."""
    undo: str = ""
    """The full name of the step's undo."""
    note: str = ""
    """What else is known: a limit, a time, or the reason why it is unknown."""
    key: str = ""
    """The keys of its rows. A `*` stands for any text. The number of an occurrence, as in `charge#2`, is left out."""
    row: str = ""
    """The exact key of its only row, with its number. Empty if it may have none, or several, or if the source does not
    say which of several rows it has."""
    joins: tuple[str, ...] = ()
    """The ids of the tasks that a join waits for."""
    open: bool = False
    """True for a task that nothing waits for."""
    line: int = 0
    """The line in the file of the function it is written in. 0 if that is not known."""
    passage: Passage | None = None
    """What the run did here. None if no run is drawn, or if it did not come here."""


class EdgeKind(StrEnum):
    NEXT = "next"
    REPEAT = "repeat"
    """From the last node of a loop to its first."""
    EXCEPT = "except"
    """From what may raise to what catches it."""
    JOIN = "join"
    """From a task to where it is waited for."""
    UNDO = "undo"
    """In a saga, from a step that has an undo to the one that is undone after it, and from the last one to the saga."""


class Edge(msgspec.Struct, frozen=True):
    source: str
    target: str
    kind: EdgeKind = EdgeKind.NEXT


class RunPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """The run that is drawn into a graph."""

    id: str
    state: str
    unknown: tuple[str, ...] = ()
    """The keys of rows that no node of the source explains."""
    generation: int = 1


class Graph(msgspec.Struct, frozen=True):
    """A workflow before it runs, and what one run did of it."""

    workflow: str
    code: str
    """The workflow's version."""
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    file: str = ""
    line: int = 0
    run: RunPart | None = None
    version: int = VERSION

    def inside(self) -> dict[str, list[Node]]:
        """Return the nodes by the id of the node they are in."""
        found: dict[str, list[Node]] = {"": []}
        for node in self.nodes:
            found.setdefault(node.id, [])
            found[node.parent].append(node)
        return found

    @property
    def unknown(self) -> tuple[Node, ...]:
        """What the source does not say."""
        return tuple(node for node in self.nodes if node.kind is Kind.UNKNOWN)

    @property
    def short_name(self) -> str:
        return self.workflow.rsplit(".", 1)[-1]


def are_calls(node: Node) -> bool:
    """True for the calls of an update: they are served beside the code that comes after them in the scope."""
    return node.kind is Kind.MANY and bool(node.name)


def goes_on(node: Node, inside: dict[str, list[Node]]) -> bool:
    """True if the code can reach what comes after this node."""
    within = inside[node.id]
    if node.kind in ENDS:
        return False
    if node.kind is Kind.CHOICE:
        has_otherwise = any(arm.label in ("", "otherwise") for arm in within)
        return not has_otherwise or any(_sequence_goes_on(inside[arm.id], inside) for arm in within)
    if node.kind is Kind.TRY:
        last = [arm for arm in within if arm.label == "finally"]
        ways = [arm for arm in within if arm.label != "finally"]
        through = any(_sequence_goes_on(inside[arm.id], inside) for arm in ways)
        return through and all(_sequence_goes_on(inside[arm.id], inside) for arm in last)
    if node.kind in {Kind.SAGA, Kind.TIMEOUT, Kind.SERVE, Kind.GROUP}:
        return _sequence_goes_on(within, inside)
    return True  # after a loop, a helper or side-by-side work the code goes on


def _sequence_goes_on(nodes: list[Node], inside: dict[str, list[Node]]) -> bool:
    return all(goes_on(node, inside) for node in nodes)


def connect(nodes: tuple[Node, ...]) -> tuple[Edge, ...]:
    """Return the edges of these nodes. They follow from how the nodes lie inside one another."""
    inside: dict[str, list[Node]] = {"": []}
    for node in nodes:
        inside.setdefault(node.id, [])
        inside[node.parent].append(node)
    edges: list[Edge] = list(_in_sequence(inside[""], inside))
    for node in nodes:
        within = inside[node.id]
        if node.kind is Kind.TRY:
            edges += _in_try(within)
        elif node.kind not in SPLITS:
            edges += _in_sequence(within, inside)
        if node.kind is Kind.LOOP and within:
            edges.append(Edge(within[-1].id, within[0].id, EdgeKind.REPEAT))
        if node.kind is Kind.JOIN:
            edges += [Edge(task, node.id, EdgeKind.JOIN) for task in node.joins]
        if node.kind is Kind.SAGA:
            edges += _undos(node, inside)
    return tuple(edges)


def _in_sequence(nodes: list[Node], inside: dict[str, list[Node]]) -> Iterator[Edge]:
    for one, other in pairwise(node for node in nodes if not are_calls(node)):
        if goes_on(one, inside):
            yield Edge(one.id, other.id)


def _in_try(arms: list[Node]) -> Iterator[Edge]:
    body, *others = arms
    for arm in others:
        caught = arm.label.startswith("except")
        yield Edge(body.id, arm.id, EdgeKind.EXCEPT if caught else EdgeKind.NEXT)


def _undos(saga: Node, inside: dict[str, list[Node]]) -> Iterator[Edge]:
    """Yield the way back through a saga: from its last undos to its first ones, and out."""
    edges: list[Edge] = []
    first = _way_back(inside[saga.id], inside, [], edges)
    yield from edges
    for step in first:
        yield Edge(step, saga.id, EdgeKind.UNDO)


def _way_back(
    nodes: list[Node], inside: dict[str, list[Node]], after: list[str], edges: list[Edge]
) -> list[str]:
    """Add the edges of a sequence from its end to its beginning. `after` are the steps that are undone before all of
    these. Return the steps that are undone last."""
    for node in reversed(nodes):
        if node.undo:
            edges += [Edge(later, node.id, EdgeKind.UNDO) for later in after]
            after = [node.id]
        elif node.kind in {Kind.BRANCHES, Kind.CHOICE}:
            ways = [_way_back(inside[arm.id], inside, after, edges) for arm in inside[node.id]]
            after = list(dict.fromkeys(step for way in ways for step in way))
        elif node.kind is Kind.TRY:
            for arm in reversed(inside[node.id]):
                after = _way_back(inside[arm.id], inside, after, edges)
        else:
            after = _way_back(inside[node.id], inside, after, edges)
    return after
