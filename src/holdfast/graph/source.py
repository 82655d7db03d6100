"""Makes the graph of a workflow from its source. Nothing of it is executed.

`graph_of` never raises: what cannot be read is one unknown node, with the reason.
"""

from __future__ import annotations

from typing import Any

from holdfast.graph.graph import Edge, Graph, Kind, Node, connect
from holdfast.graph.occurrences import exact_keys
from holdfast.graph.reader import Reader
from holdfast.graph.syntax import Sourceless
from holdfast.graph.values import Coroutine, Function, Item, Pending, TaskBegun
from holdfast.workflow.workflow import Workflow

INSIGNIFICANT = frozenset({Kind.BREAK, Kind.CONTINUE})
"""Nothing is drawn of a part of the code that has only these in it."""


def graph_of(workflow: Workflow[Any, Any]) -> Graph:
    """Return the graph of a workflow, before it runs."""
    edges: tuple[Edge, ...] = ()
    try:
        nodes = nodes_of(workflow.fn)
        edges = connect(nodes)
    except Sourceless as reason:
        nodes = _nothing(workflow, str(reason))
    except RecursionError:
        nodes = _nothing(workflow, "its code is nested too deeply")
    except Exception as error:  # noqa: BLE001  a picture is never worth an error where a workflow is declared
        nodes = _nothing(workflow, f"its code could not be read: {type(error).__name__}: {error}")
    place = workflow.place
    return Graph(workflow.name, workflow.version, nodes, edges, place.file or "", place.code.co_firstlineno)


def nodes_of(fn: Any) -> tuple[Node, ...]:
    """Return the nodes of a function. Raises Sourceless if there is nothing to read."""
    reader = Reader()
    items = reader.read(fn)
    return NodeNumbers(_root(Drawn(reader).sequence(items))).nodes


def _nothing(workflow: Workflow[Any, Any], reason: str) -> tuple[Node, ...]:
    label = workflow.name.rsplit(".", 1)[-1]
    return (Node("n1", Kind.UNKNOWN, label, note=reason),)


def _root(items: list[Item]) -> list[Item]:
    """Leave out `break` and `continue` that are in no loop that is drawn."""
    return [item for item in items if _is_significant(item) or item.kind not in INSIGNIFICANT]


class Drawn:
    """Turns what was read into what is drawn: leaves out what has nothing in it, and puts what nobody was seen to await
    where it was made."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._followed: list[object] = []
        """The functions nobody was seen to call whose code is being drawn."""
        reader.is_late = True  # what is left over begins now, and got its numbers long before

    def sequence(self, items: list[Item]) -> list[Item]:
        found: list[Item] = []
        for item in items:
            found += self._one(item)
        return found

    def _one(self, item: Item) -> list[Item]:
        if isinstance(item, Pending) and item.kind is Kind.UNKNOWN:
            return self._left_over(item)
        if item.task is not None and item.task.absorbed:
            return []
        if item.kind is Kind.GROUP:
            item = self._group(item)
        body = self.sequence(item.body)
        item.body = body
        if item.kind is Kind.HELPER:
            if body and body[-1].kind is Kind.RETURN and body[-1].own:
                body.pop()
        elif item.kind is Kind.CHOICE:
            _drop_impossible(item)
        if not item.body and _is_container(item):
            return []
        keeps_empty_arms = {Kind.CHOICE, Kind.TRY, Kind.BRANCHES}
        if item.kind in keeps_empty_arms and not any(arm.body for arm in item.body):
            return []
        if item.kind is Kind.BRANCHES:
            item.body = [arm for arm in item.body if arm.body]
            only = item.body[0].body if len(item.body) == 1 else []
            if len(only) == 1 and only[0].kind is Kind.MANY:
                return only  # a gather of many is many
        if item.kind in {Kind.LOOP, Kind.MANY, Kind.HELPER, Kind.TASK} and not _is_significant(item):
            return []
        return [item]

    def _group(self, item: Item) -> Item:
        """A TaskGroup whose body only begins tasks is a set of branches."""
        body = [one for one in item.body if not _is_spent(one)]
        if body and all(_only_begins(one) for one in body):
            arms = [Item(Kind.ARM, line=one.line, body=[_begun(one)]) for one in body]
            for arm in arms:
                if len(arm.body) == 1 and arm.body[0].kind is Kind.TASK:
                    arm.label, arm.body = "", arm.body[0].body
            return Item(Kind.BRANCHES, item.label, line=item.line, body=arms)
        _close(item.body)
        return item

    def _left_over(self, pending: Pending) -> list[Item]:
        """Return what a value does that nobody was seen to consume."""
        value = pending.value
        if isinstance(value, Coroutine):
            if value.consumed or value.owned:
                return []
            value.consumed = True
            if value.since != -1:
                task = TaskBegun(pending, value, value.around, value.since)
                return self._one(
                    Item(Kind.TASK, value.label, line=value.line, body=value.begin(()), task=task)
                )
            body = value.begin(())
            return self._one(
                Item(
                    Kind.UNKNOWN,
                    f"{value.label}(…)",
                    note="the source does not say where this is awaited",
                    line=value.line,
                    body=body,
                )
            )
        if not isinstance(value, Function) or value.called:
            return []
        name = getattr(value.node, "name", "lambda")
        if value.node in self._followed:
            return [Item(Kind.UNKNOWN, f"{name}()", note="it makes itself", line=value.node.lineno)]
        items, returned = self._reader.follow(value, name, [], {}, value.node.lineno)
        if isinstance(returned, Coroutine) and not returned.consumed:
            returned.consumed = True
            items[0].body += returned.begin(())
        self._followed.append(value.node)
        body = self.sequence(items)
        self._followed.pop()
        if not body:
            return []
        note = "the source does not say when this is called"
        inner = body[0].body if body[0].kind is Kind.HELPER else body
        return [Item(Kind.UNKNOWN, f"{name}()", note=note, line=value.node.lineno, body=inner)]


def _is_container(item: Item) -> bool:
    return item.kind in {
        Kind.LOOP,
        Kind.MANY,
        Kind.TASK,
        Kind.GROUP,
        Kind.HELPER,
        Kind.SAGA,
        Kind.TIMEOUT,
        Kind.SERVE,
        Kind.BRANCHES,
        Kind.CHOICE,
        Kind.TRY,
    }


def _is_significant(item: Item) -> bool:
    if item.body:
        return any(_is_significant(one) for one in item.body)
    if item.kind is Kind.RETURN:
        return not item.own
    return item.kind not in INSIGNIFICANT and item.kind is not Kind.ARM


def _drop_impossible(choice: Item) -> None:
    """Leave out cases that do nothing, but for the last one, which says that there is another way."""
    otherwise = [arm for arm in choice.body if arm.label == "otherwise"]
    arms = [arm for arm in choice.body if arm.label != "otherwise" and arm.body]
    if any(arm.body for arm in otherwise):
        arms = [arm for arm in choice.body if arm.label != "otherwise"]
    if arms or any(arm.body for arm in otherwise):
        choice.body = [*arms, *otherwise]
    else:
        choice.body = []


def _is_spent(item: Item) -> bool:
    if isinstance(item, Pending):
        value = item.value
        return isinstance(value, Coroutine) and (value.consumed or value.owned)
    return item.kind in {Kind.LOOP, Kind.CHOICE} and all(
        all(_is_spent(one) for one in arm.body) if arm.kind is Kind.ARM else _is_spent(arm)
        for arm in item.body
    )


def _only_begins(item: Item) -> bool:
    """True if an item is the beginning of a task, in loops and conditions or not."""
    if item.kind is Kind.TASK:
        return item.task is not None and not item.task.joined
    if item.kind is Kind.LOOP:
        left = [one for one in item.body if not _is_spent(one)]
        return bool(left) and all(_only_begins(one) for one in left)
    if item.kind is Kind.CHOICE:
        left = [one for arm in item.body for one in arm.body if not _is_spent(one)]
        return bool(left) and all(_only_begins(one) for one in left)
    return False


def _begun(item: Item) -> Item:
    """Return what is begun, in its loops and conditions, without the tasks around it."""
    if item.kind is Kind.LOOP:
        item.kind = Kind.MANY
    if item.kind in {Kind.MANY, Kind.CHOICE, Kind.ARM}:
        body: list[Item] = []
        for one in item.body:
            if _is_spent(one):
                continue
            inner = _begun(one)
            body += inner.body if inner.kind is Kind.TASK else [inner]
        item.body = body
    return item


def _close(items: list[Item]) -> None:
    """Note that the tasks in a TaskGroup end with it."""
    for item in items:
        if item.task is not None:
            item.task.joined = True
        _close(item.body)


class NodeNumbers:
    """Numbers the items as nodes."""

    def __init__(self, items: list[Item]) -> None:
        self._made: list[tuple[Item, str, str]] = []
        self._ids: dict[int, str] = {}
        self._number(items, "")
        rows = exact_keys(items)
        self.nodes = tuple(
            self._node(item, own, parent, rows.get(id(item), "")) for item, own, parent in self._made
        )

    def _number(self, items: list[Item], parent: str) -> None:
        for item in items:
            own = f"n{len(self._made) + 1}"
            self._made.append((item, own, parent))
            self._ids[id(item)] = own
            self._number(item.body, own)

    def _node(self, item: Item, own: str, parent: str, row: str) -> Node:
        joins = [self._ids[id(task.item)] for task in item.joins if id(task.item) in self._ids]
        task = item.task
        return Node(
            own,
            item.kind,
            item.label,
            parent,
            item.name,
            item.undo,
            item.note,
            "/".join(part.label for part in item.key),
            row,
            tuple(dict.fromkeys(joins)),
            task is not None and not task.joined and not task.escaped and task.group is None,
            item.line,
        )
