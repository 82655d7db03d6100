"""What the reader of source knows about the value of an expression, without executing anything; and the items it makes
of calls before they become nodes.

A coroutine does nothing until somebody awaits it. So a call is a value first, and becomes an item where it is awaited,
gathered or made a task.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

from holdfast.graph.graph import Kind
from holdfast.workflow.event import Event
from holdfast.workflow.signal import Signal
from holdfast.workflow.step import Step
from holdfast.workflow.update import Update
from holdfast.workflow.workflow import Workflow

DECLARED = (Step, Workflow, Signal, Update, Event)
"""What authors declare and workflow code calls."""


class KeyPart(NamedTuple):
    """One part of a key: a task, or the call itself."""

    label: str
    turn: int
    """When it gets its number among those of the same label: earlier ones have lower turns. -1 if that is not known."""


Path = tuple[KeyPart, ...]
"""The place in the tree of tasks, as keys have it."""


@dataclass(eq=False)
class Item:
    """A node in the making. What is in `body` becomes its nodes, one after the other."""

    kind: Kind
    label: str = ""
    name: str = ""
    undo: str = ""
    note: str = ""
    key: Path = ()
    line: int = 0
    timer: Path = ()
    """The key of the timer that limits it, if that is no item of its own."""
    body: list[Item] = field(default_factory=list)
    task: TaskBegun | None = None
    """The task that this item is the beginning of."""
    joins: list[TaskBegun] = field(default_factory=list)
    own: bool = False
    """For a return: it only leaves the helper it is in."""


@dataclass(eq=False)
class Around:
    """A loop or a condition around a place in the code."""

    kind: Kind
    label: str
    line: int


class Value:
    """Something of which nothing is known."""


UNKNOWN = Value()


@dataclass(eq=False)
class Known(Value):
    """An object that a name leads to. `key` is set by `using(key=…)`."""

    thing: Any
    key: str | None = None


@dataclass(eq=False)
class Opaque(Value):
    """What a call that cannot be followed returns. Awaiting it is unknown."""

    text: str
    reason: str
    line: int


@dataclass(eq=False)
class Waiting(Value):
    """One of asyncio's own objects that workflow code waits on: a queue, an event, a lock."""

    text: str


@dataclass(eq=False)
class Pending(Item):
    """Marks where a value was made. It becomes a node only if nothing consumed the value by the end."""

    value: Coroutine | Function | None = None

    def __init__(self, value: Coroutine | Function) -> None:
        super().__init__(Kind.UNKNOWN)
        self.value = value


@dataclass(eq=False)
class Coroutine(Value):
    """A call that was made and not awaited yet."""

    label: str
    """Its name in a key, if it becomes a task."""
    begin: Callable[[Path], list[Item]]
    """Makes its items, at a place in the tree of tasks."""
    around: tuple[Around, ...]
    line: int
    is_leaf: bool = False
    """It waits for one thing. A task around it adds no level to the key, and `begin` gets the key's path as it is."""
    key: str = ""
    """The label of a leaf's key, with an explicit key if there is one."""
    consumed: bool = False
    owned: bool = False
    """It was given to another call (gather, wait_for) and is drawn there."""
    since: int = -1
    """For what begins at once when it is called (gather): how much was awaited before that. -1 for anything else."""
    item: Item | None = None


@dataclass(eq=False)
class TaskBegun(Value):
    """A task: it runs from here on, beside the code."""

    item: Item
    coroutine: Value
    around: tuple[Around, ...]
    awaited: int
    """How much was awaited when it began."""
    joined: bool = False
    escaped: bool = False
    absorbed: bool = False
    """It is drawn as a branch of the gather that waits for it, because nothing happened in between."""
    group: TaskGroupValue | None = None


@dataclass(eq=False)
class Series(Value):
    """A list, tuple, set or generator of values that are known, or the values of a dict."""

    values: list[Value] = field(default_factory=list)
    ordered: bool = False
    """True of a list or tuple whose n-th value is the n-th of these."""
    keys: set[str] = field(default_factory=set)
    """The keys of a dict, as the source writes them."""


@dataclass(eq=False)
class ElementOf(Value):
    """One of a series, in a loop over it."""

    series: Series
    text: str


@dataclass(eq=False)
class Either(Value):
    """One of several values, by a condition."""

    ways: list[tuple[str, Value]]
    line: int


@dataclass(eq=False)
class TaskGroupValue(Value):
    """A TaskGroup."""

    item: Item


@dataclass(eq=False)
class Context(Value):
    """What `async with` takes: a saga, a timeout, a TaskGroup, suppress(), the scope of an update."""

    kind: Kind
    label: str = ""
    note: str = ""
    key: Path = ()
    timer: Path = ()
    body: list[Item] = field(default_factory=list)
    """What it has inside beside the code of the block."""


@dataclass(eq=False)
class Function(Value):
    """A function that is written inside the workflow or one of its helpers, or a lambda."""

    node: ast.AsyncFunctionDef | ast.FunctionDef | ast.Lambda
    frame: Any
    around: tuple[Around, ...]
    called: bool = False


@dataclass(eq=False)
class Method(Value):
    """An attribute of a value that is about to be called."""

    owner: Value
    name: str
    text: str


def is_a(thing: object, *kinds: type) -> TypeGuard[Any]:
    """Like `isinstance`, but look at nothing but the type: a proxy, as web frameworks have them, may run code when it
    is asked anything."""
    return issubclass(type(thing), kinds)


def matters(value: Value) -> bool:
    """True if a value is one that the reader follows."""
    if isinstance(value, Known):
        return is_a(value.thing, *DECLARED, types.FunctionType)
    if isinstance(value, Series):
        return any(matters(one) for one in value.values)
    if isinstance(value, Either):
        return any(matters(one) for _, one in value.ways)
    return isinstance(value, Coroutine | TaskBegun | Function | ElementOf | TaskGroupValue)


def own(value: Value) -> None:
    """Note that a coroutine belongs to another one that it was given to, and is drawn there."""
    if isinstance(value, Coroutine):
        value.owned = True
    elif isinstance(value, Either):
        for _, way in value.ways:
            own(way)
