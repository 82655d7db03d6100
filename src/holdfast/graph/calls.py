"""What a call does: of a step, a child, a signal, a verb, or a helper, which is followed into its own code."""

from __future__ import annotations

import ast
import asyncio
import functools
import inspect
import types
from typing import Any

from holdfast.decider.keys import word
from holdfast.graph.graph import Kind
from holdfast.graph.names import Frame, bind, is_async, is_foreign
from holdfast.graph.syntax import (
    FunctionNode,
    Sourceless,
    argument,
    bound_names,
    changed_in,
    duration,
    is_none,
    name_of,
    pattern,
    rebound_names,
    returns_last,
    shared_names,
    short,
    source_of,
    text_of,
)
from holdfast.graph.tasks import NOT_KNOWN
from holdfast.graph.values import (
    UNKNOWN,
    Context,
    Coroutine,
    Either,
    ElementOf,
    Function,
    Item,
    Known,
    Method,
    Opaque,
    Path,
    Series,
    TaskBegun,
    TaskGroupValue,
    Value,
    Waiting,
    is_a,
    matters,
)
from holdfast.graph.verbs import DEPTH_MAX, SPECIAL, Verbs, does_something
from holdfast.model import EVENT_PREFIX
from holdfast.workflow.event import Event
from holdfast.workflow.signal import Signal
from holdfast.workflow.step import Step
from holdfast.workflow.update import Update
from holdfast.workflow.workflow import Workflow

ITEMS_MAX = 3_000
"""After this many items nothing more is followed: nobody could read the picture."""
SYNC_PRIMITIVES = (
    asyncio.Barrier,
    asyncio.Condition,
    asyncio.Event,
    asyncio.Lock,
    asyncio.Queue,
    asyncio.Semaphore,
)
LOOKS_AT_TASK = {"result", "exception", "cancel", "cancelled", "done", "add_done_callback", "get_name"}


class Calls(Verbs):
    """Reads calls, and the code of helpers."""

    def _frame(self, fn: types.FunctionType, node: FunctionNode, *, is_helper: bool) -> Frame:
        cells = {}
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False):
            try:
                cells[name] = cell.cell_contents
            except ValueError:
                pass  # it gets its value later
        changed = changed_in(fn)
        return Frame(
            {},
            None,
            fn.__globals__,
            cells,
            bound_names(node),
            is_helper,
            rebound_names(node),
            shared_names(node) | (changed.globals - bound_names(node)),
            changed.attributes,
        )

    def _body(self, node: FunctionNode | ast.Lambda) -> list[Item]:
        with self.into([]) as items:
            if isinstance(node, ast.Lambda):
                self.frame.returns.append(self.value(node.body))
            else:
                self.statements(node.body)
        return items

    def follow(
        self,
        target: types.FunctionType | Function,
        label: str,
        args: list[Value],
        keywords: dict[str, Value],
        line: int,
    ) -> tuple[list[Item], Value]:
        """Return what a helper does, as one item, and what it returns."""
        identity: object = target.node if isinstance(target, Function) else target.__code__
        if identity in self.stack:
            return [Item(Kind.UNKNOWN, f"{label}()", note="it calls itself", line=line)], UNKNOWN
        if len(self.stack) >= DEPTH_MAX or self.made > ITEMS_MAX:
            return [
                Item(Kind.UNKNOWN, f"{label}()", note="it is too deep or too large to draw", line=line)
            ], UNKNOWN
        if isinstance(target, Function):
            node: FunctionNode | ast.Lambda = target.node
            outer: Frame = target.frame
            frame = Frame(
                {},
                outer,
                outer.globals,
                outer.cells,
                bound_names(node),
                True,
                rebound_names(node),
                shared_names(node),
                outer.attributes,
            )
            target.called = True
            defaults: dict[str, Value] = {}
        else:
            try:
                node = source_of(target)
            except Sourceless as reason:
                return [Item(Kind.UNKNOWN, f"{label}()", note=str(reason), line=line)], UNKNOWN
            frame = self._frame(target, node, is_helper=True)
            defaults = {
                name: Known(parameter.default)
                for name, parameter in inspect.signature(target).parameters.items()
                if parameter.default is not parameter.empty
            }
        frame.names.update(bind(node.args, args, keywords, defaults))
        outer_frame, self.frame = getattr(self, "frame", frame), frame
        self.stack.append(identity)
        try:
            body = self._body(node)
        finally:
            self.stack.pop()
            self.frame = outer_frame
        returned = frame.returns[0] if len(frame.returns) == 1 and returns_last(node) else UNKNOWN
        return [Item(Kind.HELPER, label, line=line, body=body)], returned

    def call(self, callee: Value, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        if isinstance(callee, Known):
            return self._call_known(callee, node, args, keywords)
        if isinstance(callee, Function):
            return self._call_helper(callee, name_of(callee.node), node, args, keywords)
        if isinstance(callee, Method):
            return self._call_method(callee, node, args, keywords)
        if isinstance(callee, Either):
            return Either(
                [(label, self.call(way, node, args, keywords)) for label, way in callee.ways], node.lineno
            )
        self._escape_all(args, keywords)
        return Opaque(text_of(node), NOT_KNOWN, node.lineno)

    def _call_known(
        self, callee: Known, node: ast.Call, args: list[Value], keywords: dict[str, Value]
    ) -> Value:
        thing = callee.thing
        if is_a(thing, Step):
            self._escape_all(args, keywords)
            return self._call_step(callee, node.lineno)
        if is_a(thing, Workflow):
            self._escape_all(args, keywords)
            return self.leaf(Kind.CHILD, short(thing.name), thing.label, node.lineno, name=thing.name)
        special = SPECIAL.get(id(thing))
        if special is not None:
            return special(self, node, args, keywords)
        if is_a(thing, type):
            if issubclass(thing, SYNC_PRIMITIVES) and thing.__module__.startswith("asyncio."):
                return Waiting(text_of(node))
            self._escape_all(args, keywords)
            return Opaque(text_of(node), "it is an object of a class", node.lineno)
        if is_a(thing, functools.partial):
            return self.call(Known(thing.func), node, [*map(Known, thing.args), *args], keywords)
        if is_a(thing, types.MethodType):
            thing, args = thing.__func__, [Known(thing.__self__), *args]
        if is_a(thing, types.FunctionType):
            if not is_foreign(thing):
                return self._call_helper(thing, thing.__name__, node, args, keywords)
            self._escape_all(args, keywords)
            return Opaque(text_of(node), f"it is code of {thing.__module__}", node.lineno)
        self._escape_all(args, keywords)
        return Opaque(text_of(node), NOT_KNOWN, node.lineno)

    def _call_step(self, callee: Known, line: int) -> Coroutine:
        called = callee.thing
        undo = called.origin.undone_by
        key = callee.key if callee.key is not None else called.key
        label = called.label if key is None else f"{word(short(called.name))}:{key}"
        return self.leaf(
            Kind.STEP,
            short(called.name),
            label,
            line,
            name=called.name,
            undo="" if undo is None else undo.name,
        )

    def _call_helper(
        self,
        target: types.FunctionType | Function,
        label: str,
        node: ast.Call,
        args: list[Value],
        keywords: dict[str, Value],
    ) -> Value:
        line = node.lineno
        if is_async(target):

            def begin(path: Path) -> list[Item]:
                outer, self.path = self.path, path
                try:
                    return self.follow(target, label, args, keywords, line)[0]
                finally:
                    self.path = outer

            if isinstance(target, Function):
                target.called = True
            return self.coroutine(label, begin, line)
        if isinstance(target, types.FunctionType):
            given = any(matters(value) for value in (*args, *keywords.values()))
            if not given and not does_something(target):
                self._escape_all(args, keywords)
                return Opaque(text_of(node), "it is what a plain function returned", line)
        items, returned = self.follow(target, label, args, keywords, line)
        self.emit_all(items)
        if returned is UNKNOWN:
            return Opaque(text_of(node), NOT_KNOWN, line)
        return returned

    def _call_method(
        self, callee: Method, node: ast.Call, args: list[Value], keywords: dict[str, Value]
    ) -> Value:
        owner, name = callee.owner, callee.name
        if isinstance(owner, Known):
            return self._call_on_declared(owner, name, node, args, keywords)
        if isinstance(owner, TaskGroupValue) and name == "create_task":
            return self._create_task(node, args, owner)
        if isinstance(owner, Series):
            found = self._call_on_series(owner, callee, node.lineno, args)
            if found is not None:
                return found
        if isinstance(owner, Waiting):
            self._escape_all(args, keywords)
            return Method(owner, name, callee.text)
        if isinstance(owner, TaskBegun | ElementOf) and name in LOOKS_AT_TASK:
            return UNKNOWN
        self.escape(owner)
        self._escape_all(args, keywords)
        return Opaque(text_of(node), NOT_KNOWN, node.lineno)

    def _call_on_series(self, owner: Series, callee: Method, line: int, args: list[Value]) -> Value | None:
        """Return what a method of a list, set or dict gives. None if nobody knows what it does."""
        name = callee.name
        if name in {"append", "add", "put", "appendleft"} and args:
            owner.ordered = owner.ordered and name == "append"
            owner.values.append(args[-1])
        elif name in {"extend", "update"} and args and isinstance(args[0], Series):
            owner.ordered = owner.ordered and args[0].ordered
            owner.values += args[0].values
        elif name in {"sort", "reverse", "rotate", "insert"}:
            owner.ordered = False
            owner.values += args[1:] if name == "insert" else []
        elif name in {"pop", "get", "popleft"}:
            owner.ordered = owner.ordered and name == "get"
            return ElementOf(owner, callee.text)
        elif name == "values":
            return owner
        elif name == "copy":
            return Series([*owner.values], owner.ordered, {*owner.keys})
        elif name not in {"items", "keys", "index", "count"}:
            self.lose(owner, callee.text, line)
            return None
        return UNKNOWN

    def _call_on_declared(
        self, owner: Known, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value]
    ) -> Value:
        thing, line = owner.thing, node.lineno
        if name == "using" and is_a(thing, Step, Workflow):
            key = argument(node, "key") if is_a(thing, Step) else None
            return Known(thing, owner.key if key is None else pattern(key))
        if name == "map" and is_a(thing, Step, Workflow):
            return self._map(owner, node, keywords)
        if name == "serve" and is_a(thing, Update):
            return self._serve(thing, node, args, keywords)
        if name == "start" and is_a(thing, Workflow):
            return self.leaf(Kind.START, short(thing.name), thing.label, line, name=thing.name)
        if is_a(thing, Signal) and name == "wait":
            limit = argument(node, "timeout", 0)
            note = "" if limit is None or is_none(limit) else f"at most {duration(limit)}"
            return self.leaf(
                Kind.WAIT, thing.name, thing.label, line, name=thing.name, note=note, is_limited=bool(note)
            )
        if is_a(thing, Event) and name == "wait":
            limit = argument(node, "timeout", 1)
            note = "" if limit is None or is_none(limit) else f"at most {duration(limit)}"
            kind = f"{EVENT_PREFIX}{thing.type}"
            return self.leaf(
                Kind.WAIT, thing.type, thing.label, line, name=kind, note=note, is_limited=bool(note)
            )
        if is_a(thing, Signal) and name == "send":
            self._escape_all(args, keywords)
            to = argument(node, "run_id", 0)
            note = "" if to is None else f"to {text_of(to)}"
            return self.coroutine(
                "send",
                lambda path: [Item(Kind.SEND, thing.name, name=thing.name, note=note, line=line)],
                line,
            )
        self._escape_all(args, keywords)
        return Opaque(text_of(node), NOT_KNOWN, line)

    def _serve(
        self, update: Update[Any, Any], node: ast.Call, args: list[Value], keywords: dict[str, Value]
    ) -> Value:
        """The scope of an update: its function answers each call in a task of its own, beside the code of the block."""
        key = self.key(f"{update.label}.serve")
        served = args[0] if args else keywords.get("fn", UNKNOWN)
        text = text_of(node.args[0]) if node.args else "fn"
        path, self.path = self.path, self.key(update.label)
        try:
            with self.inside(Kind.LOOP, update.name, node.lineno), self.into([]) as items:
                if "check" in keywords:
                    self.call(keywords["check"], node, [UNKNOWN], {})
                answer = self.call(served, node, [UNKNOWN], {})
                if isinstance(answer, Coroutine):
                    self.emit_all(self.wait_for(answer, text, node.lineno))
                elif not isinstance(served, Known | Function):
                    self.unknown(f"{text}()", NOT_KNOWN, node.lineno)
        finally:
            self.path = path
        limit = argument(node, "limit")
        note = "one at a time" if limit is None else f"at most {text_of(limit)} at a time"
        label = f"calls of {update.name}"
        calls = Item(Kind.MANY, label, update.name, note=note, line=node.lineno, body=items)
        timer = self.timer_key("timeout", None)  # it may wait for calls when the code leaves the block
        return Context(Kind.SERVE, update.name, key=key, timer=timer, body=[calls])

    def _map(self, owner: Known, node: ast.Call, keywords: dict[str, Value]) -> Value:
        thing = owner.thing
        items = argument(node, "items", 0)
        limit = argument(node, "limit")
        tolerate = argument(node, "tolerate")
        into = keywords.get("into")
        notes = [] if limit is None else [f"at most {text_of(limit)} at a time"]
        notes += [] if tolerate is None else [f"tolerates {text_of(tolerate)}"]

        def begin(path: Path) -> list[Item]:
            if is_a(thing, Workflow):
                one = Item(
                    Kind.CHILD,
                    short(thing.name),
                    thing.name,
                    key=self.key(thing.label, path),
                    line=node.lineno,
                )
            else:
                (one,) = self._call_step_items(owner, path, node.lineno)
            label = "map" if items is None else f"map over {text_of(items)}"
            body = [one]
            if isinstance(into, Known) and is_a(into.thing, Step):
                body += self._call_step_items(into, path, node.lineno)
            elif into is not None:
                body.append(Item(Kind.UNKNOWN, "into", note=NOT_KNOWN, line=node.lineno))
            return [Item(Kind.MANY, label, note=", ".join(notes), line=node.lineno, body=body)]

        return self.coroutine("fan", begin, node.lineno)

    def _call_step_items(self, owner: Known, path: Path, line: int) -> list[Item]:
        with self.into([]):
            call = self._call_step(owner, line)
            call.consumed = True
        return call.begin(path)
