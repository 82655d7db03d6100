"""What becomes of coroutines: each becomes items where it is awaited, gathered or made a task."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from holdfast.graph.graph import Kind
from holdfast.graph.names import Frame
from holdfast.graph.syntax import number_of
from holdfast.graph.values import (
    Around,
    Coroutine,
    Either,
    ElementOf,
    Item,
    KeyPart,
    Method,
    Opaque,
    Path,
    Pending,
    Series,
    TaskBegun,
    TaskGroupValue,
    Value,
    Waiting,
)

NOT_KNOWN = "the source does not say what this is"

Begin = Callable[[Path], list[Item]]


class Tasks(ABC):
    """Makes items, and keeps the place in the tree of tasks."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        """Where the next item goes."""
        self.around: tuple[Around, ...] = ()
        self.path: Path = ()
        self.awaited = 0
        """How many things were awaited so far, in the order of the code."""
        self.stack: list[object] = []
        self.made = 0
        self.turn = 0
        """How many parts of keys got their numbers so far."""
        self.is_late = False
        """What becomes items now got its numbers earlier."""
        self.frame: Frame

    @abstractmethod
    def value(self, node: ast.expr) -> Value:
        """Return what is known of an expression, and make items of what it awaits."""

    @abstractmethod
    def statements(self, nodes: Sequence[ast.stmt]) -> None:
        """Make items of statements."""

    @abstractmethod
    def call(self, callee: Value, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        """Return what a call gives."""

    # --- making items -------------------------------------------------------------------------------------------------

    def emit(self, item: Item) -> Item:
        self.made += 1
        self.items.append(item)
        if not isinstance(item, Pending) and item.task is None:
            self.awaited += 1
        return item

    def emit_all(self, items: list[Item]) -> None:
        for item in items:
            self.emit(item)

    @contextmanager
    def into(self, items: list[Item]) -> Iterator[list[Item]]:
        """Put what is made meanwhile into `items`."""
        outer, self.items = self.items, items
        try:
            yield items
        finally:
            self.items = outer

    @contextmanager
    def inside(self, kind: Kind, label: str, line: int) -> Iterator[None]:
        outer = self.around
        self.around = (*outer, Around(kind, label, line))
        try:
            yield
        finally:
            self.around = outer

    def unknown(self, text: str, reason: str, line: int) -> Item:
        return self.emit(Item(Kind.UNKNOWN, text, note=reason, line=line))

    def key(self, label: str, path: Path | None = None) -> Path:
        """Return the key of what gets its number now."""
        return (*(self.path if path is None else path), self._part(label))

    def timer_key(self, label: str, limit: ast.expr | None, path: Path | None = None) -> Path:
        """Return the key of a timer. Python makes none for no limit, or for one that is over; so unless the source says
        that there is one, its number is not known."""
        outer, self.is_late = self.is_late, self.is_late or limit is None or not (number_of(limit) or 0) > 0
        try:
            return self.key(label, path)
        finally:
            self.is_late = outer

    def _part(self, label: str) -> KeyPart:
        self.turn += 1
        return KeyPart(label, -1 if self.is_late else self.turn)

    def at_once(self, begin: Begin) -> Begin:
        """Return the same for what gets its numbers where it is called, and becomes items where it is awaited. If others
        got theirs in between, the order is not known."""
        called = self.turn

        def later(path: Path) -> list[Item]:
            outer, self.is_late = self.is_late, self.is_late or self.turn != called
            try:
                return begin(path)
            finally:
                self.is_late = outer

        return later

    def coroutine(
        self,
        label: str,
        begin: Begin,
        line: int,
        *,
        key: str = "",
        is_leaf: bool = False,
        since: int = -1,
    ) -> Coroutine:
        made = Coroutine(label, begin, self.around, line, is_leaf, key or label, since=since)
        pending = Pending(made)
        made.item = pending
        self.items.append(pending)
        return made

    def leaf(
        self,
        kind: Kind,
        label: str,
        key: str,
        line: int,
        *,
        name: str = "",
        undo: str = "",
        note: str = "",
        is_limited: bool = False,
    ) -> Coroutine:
        def begin(path: Path) -> list[Item]:
            timer = self.timer_key("timeout", None, path) if is_limited else ()
            return [Item(kind, label, name, undo, note, self.key(key, path), line, timer)]

        return self.coroutine(key.partition(":")[0], begin, line, key=key, is_leaf=True)

    # --- what becomes of coroutines and tasks -------------------------------------------------------------------------

    def wait_for(self, value: Value, text: str, line: int) -> list[Item]:
        """Return what awaiting a value does."""
        if isinstance(value, Coroutine | TaskBegun | Either | ElementOf):
            return self.consume(value, self.path, text, line)
        if isinstance(value, Waiting):
            return []
        if isinstance(value, Opaque):
            return [Item(Kind.UNKNOWN, value.text, note=value.reason, line=line)]
        if isinstance(value, Method) and isinstance(value.owner, Waiting):
            return [Item(Kind.AWAIT, text, line=line)]
        return [Item(Kind.UNKNOWN, text, note=NOT_KNOWN, line=line)]

    def consume(self, value: Value, path: Path, text: str = "", line: int = 0) -> list[Item]:
        """Return the items of a value that is awaited here, at a place in the tree of tasks."""
        if isinstance(value, Coroutine):
            if value.consumed:
                return [Item(Kind.AWAIT, text or value.label, note="what was asked for above", line=line)]
            value.consumed = True
            if value.since not in {-1, self.awaited}:
                task = TaskBegun(value.item or Item(Kind.TASK), value, value.around, value.since)
                self._fill(task, value, path, value.label)
                task.joined = True
                return [Item(Kind.JOIN, text or value.label, line=line, joins=[task])]
            return self._wrapped(value.begin(path), value.around)
        if isinstance(value, TaskBegun):
            value.joined = True
            return [Item(Kind.JOIN, text or value.item.label, line=line, joins=[value])]
        if isinstance(value, Either):
            return self._either(value, lambda way: self.wait_for(way, text, line))
        if isinstance(value, ElementOf):
            return self._one_of(value, path, text or value.text, line)
        return [Item(Kind.UNKNOWN, text, note=NOT_KNOWN, line=line)]

    def _either(self, value: Either, draw: Callable[[Value], list[Item]]) -> list[Item]:
        """Return a choice of what each of the values does. The condition is drawn here, so it is not drawn again around
        a call that was made under it."""
        arms: list[Item] = []
        outer = self.around
        for label, way in value.ways:
            if isinstance(way, Coroutine):
                self.around = way.around
            arms.append(Item(Kind.ARM, label, line=value.line, body=draw(way)))
            self.around = outer
        return [Item(Kind.CHOICE, line=value.line, body=arms)]

    def _one_of(self, value: ElementOf, path: Path, text: str, line: int) -> list[Item]:
        """Return what awaiting one of a series does."""
        values = value.series.values
        tasks = [one for one in values if isinstance(one, TaskBegun)]
        if tasks and len(tasks) == len(values):
            for task in tasks:
                task.joined = True
            return [Item(Kind.JOIN, text, line=line, joins=tasks)]
        if len(values) == 1 and isinstance(values[0], Coroutine) and not values[0].consumed:
            values[0].consumed = True
            return values[0].begin(path)
        return [Item(Kind.UNKNOWN, text, note="it is one of several", line=line)]

    def _wrapped(self, items: list[Item], around: tuple[Around, ...]) -> list[Item]:
        """Put items into the loops and conditions that were around the call and are not around this place."""
        common = 0
        for mine, theirs in zip(self.around, around, strict=False):
            if mine is not theirs:
                break
            common += 1
        for one in reversed(around[common:]):
            if one.kind is Kind.LOOP:
                items = [Item(Kind.MANY, one.label, line=one.line, body=items)]
            else:
                arm = Item(Kind.ARM, one.label, line=one.line, body=items)
                items = [Item(Kind.CHOICE, line=one.line, body=[arm, Item(Kind.ARM, "otherwise")])]
        return items

    def parallel(self, value: Value, text: str, line: int, name: str = "") -> list[Item]:
        """Return what a value does as a task of its own."""
        if isinstance(value, Coroutine) and value.since == -1 and not value.consumed:
            value.consumed = True
            return self._wrapped(self._as_task(value, name), value.around)
        if isinstance(value, TaskBegun) and not value.joined and value.awaited == self.awaited:
            here = self.around
            if value.around[: len(here)] == here and value.group is None:
                value.joined = value.absorbed = True
                return self._wrapped(value.item.body, value.around)
        if isinstance(value, Either):
            return self._either(value, lambda way: self.parallel(way, text, line))
        return self.wait_for(value, text, line)

    def _as_task(self, value: Coroutine, name: str) -> list[Item]:
        if value.is_leaf:
            if name and ":" not in value.key:
                items = value.begin(self.path)
                items[0].key = self.key(name)
                return items
            return value.begin(self.path)
        path, self.path = self.path, self.key(name or value.label)
        try:
            return value.begin(self.path)
        finally:
            self.path = path

    def begin_task(
        self, value: Value, text: str, line: int, name: str = "", group: TaskGroupValue | None = None
    ) -> Value:
        item = Item(Kind.TASK, text, line=line)
        task = TaskBegun(item, value, self.around, self.awaited, group=group)
        item.task = task
        awaited = self.awaited
        if isinstance(value, Coroutine) and value.since == -1 and not value.consumed:
            value.consumed = True
            item.body = self._as_task(value, name)
        else:
            item.body = self.wait_for(value, text, line)
        self.awaited = awaited
        self.emit(item)
        return task

    def _fill(self, task: TaskBegun, value: Coroutine, path: Path, label: str) -> None:
        task.item.kind, task.item.label, task.item.task = Kind.TASK, label, task
        task.item.body = value.begin(path)

    def escape(self, value: Value) -> None:
        """Note that a value goes where it cannot be followed. Its coroutines are drawn where they were made, as
        something of which nobody knows where it is awaited."""
        if isinstance(value, TaskBegun):
            value.escaped = True
        elif isinstance(value, Series):
            value.ordered = False  # whoever has it may change it
            for one in value.values:
                self.escape(one)
        elif isinstance(value, Either):
            for _, one in value.ways:
                self.escape(one)
        elif isinstance(value, ElementOf):
            self.escape(value.series)

    def lose(self, series: Series, text: str, line: int) -> None:
        """Note that nobody can say any more what is in a series."""
        self.escape(series)
        series.values = [Opaque(text, "the source does not say what is left in it", line)]

    def _escape_all(self, args: list[Value], keywords: dict[str, Value]) -> None:
        for value in (*args, *keywords.values()):
            self.escape(value)
