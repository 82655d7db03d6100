"""Reads the code of a workflow as a tree of items, and executes nothing of it.

It walks through the statements in the order in which Python would, and keeps what it knows of each local name. Names
lead to objects through the function's own locals, closure, globals and builtins. Where that ends, it says that
something is unknown; it never guesses.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from typing import Any

from holdfast.graph.expressions import Expressions
from holdfast.graph.graph import Kind
from holdfast.graph.names import MISSING, attribute, merged
from holdfast.graph.syntax import (
    FunctionNode,
    bound_names,
    does_more_than_look,
    return_text,
    source_of,
    text_of,
)
from holdfast.graph.values import (
    UNKNOWN,
    Context,
    Coroutine,
    ElementOf,
    Function,
    Item,
    Known,
    Pending,
    Series,
    TaskGroupValue,
    Value,
    Waiting,
)
from holdfast.workflow.step import step
from holdfast.workflow.workflow import workflow


class Reader(Expressions):
    """Reads one workflow."""

    def read(self, fn: Any) -> list[Item]:
        """Return the items of a workflow function."""
        node = source_of(fn)
        self.stack.append(fn.__code__)
        self.frame = self._frame(fn, node, is_helper=False)
        for name in bound_names(node.args):
            self.frame.names[name] = UNKNOWN
        return self._body(node)

    def statements(self, nodes: Sequence[ast.stmt]) -> None:
        for node in nodes:
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        method = getattr(self, f"_{type(node).__name__}", None)
        if method is not None:
            method(node)
            return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.escape(self.value(child))

    def _Expr(self, node: ast.Expr) -> None:
        self.value(node.value)

    def _Assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.assign(target, value)

    def _AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assign(node.target, self.value(node.value))

    def _AugAssign(self, node: ast.AugAssign) -> None:
        value = self.value(node.value)
        known = self.frame.look_up(node.target.id) if isinstance(node.target, ast.Name) else UNKNOWN
        if (
            isinstance(known, Series)
            and isinstance(value, Series)
            and isinstance(node.op, ast.Add | ast.BitOr)
        ):
            known.values += value.values
            known.ordered = known.ordered and value.ordered
            return
        self.escape(value)
        if isinstance(known, Series):
            self.lose(known, text_of(node.target), node.lineno)
        else:
            self.assign(node.target, UNKNOWN)

    def _Return(self, node: ast.Return) -> None:
        value = UNKNOWN if node.value is None else self.value(node.value)
        self.frame.returns.append(value)
        if not self.frame.is_helper:
            self.escape(value)
        self.items.append(
            Item(Kind.RETURN, return_text(node.value), line=node.lineno, own=self.frame.is_helper)
        )

    def _Raise(self, node: ast.Raise) -> None:
        for part in (node.exc, node.cause):
            if part is not None:
                self.escape(self.value(part))
        self.items.append(Item(Kind.RAISE, text_of(node), line=node.lineno))

    def _Break(self, node: ast.Break) -> None:
        self.items.append(Item(Kind.BREAK, "break", line=node.lineno))

    def _Continue(self, node: ast.Continue) -> None:
        self.items.append(Item(Kind.CONTINUE, "continue", line=node.lineno))

    def _FunctionDef(self, node: FunctionNode) -> None:
        for decorator in node.decorator_list:
            value = self.value(decorator)
            called = self.value(decorator.func) if isinstance(decorator, ast.Call) else value
            if isinstance(called, Known) and (called.thing is step or called.thing is workflow):
                self.frame.names[node.name] = UNKNOWN
                return  # its code is a step's or another run's, and not this workflow's
        function = Function(node, self.frame, self.around)
        self.items.append(Pending(function))
        self.frame.names[node.name] = UNKNOWN if node.decorator_list else function

    _AsyncFunctionDef = _FunctionDef

    def _ClassDef(self, node: ast.ClassDef) -> None:
        self.frame.names[node.name] = UNKNOWN

    def _Import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            module = sys.modules.get(name)
            self.frame.names[alias.asname or name] = UNKNOWN if module is None else Known(module)

    def _ImportFrom(self, node: ast.ImportFrom) -> None:
        name = node.module or ""
        if node.level:
            package = str(self.frame.globals.get("__package__") or "").split(".")
            name = ".".join([*package[: len(package) - node.level + 1], *([name] if name else [])])
        module = sys.modules.get(name)
        for alias in node.names:
            found = attribute(module, alias.name) if module is not None else MISSING
            if found is MISSING:
                found = sys.modules.get(f"{name}.{alias.name}", MISSING)
            self.frame.names[alias.asname or alias.name] = UNKNOWN if found is MISSING else Known(found)

    def _If(self, node: ast.If) -> None:
        self.value(node.test)
        arms: list[tuple[str, Sequence[ast.stmt]]] = [(text_of(node.test), node.body)]
        rest = node.orelse
        while len(rest) == 1 and isinstance(rest[0], ast.If) and not does_more_than_look(rest[0].test):
            arms.append((text_of(rest[0].test), rest[0].body))
            rest = rest[0].orelse
        self.choice(node.lineno, [*arms, ("otherwise", rest)])

    def _Match(self, node: ast.Match) -> None:
        self.value(node.subject)
        arms: list[tuple[str, Sequence[ast.stmt]]] = []
        for case in node.cases:
            if case.guard is None and isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None:
                arms.append(("otherwise", case.body))
                continue
            guard = "" if case.guard is None else f" if {text_of(case.guard)}"
            arms.append((f"{text_of(case.pattern)}{guard}", case.body))
        if arms[-1][0] != "otherwise":
            arms.append(("otherwise", []))
        for name in bound_names(node):
            self.frame.names[name] = UNKNOWN
        for case in node.cases:
            if case.guard is not None:
                self._only_if(
                    f"{text_of(node.subject)} is like {text_of(case.pattern)}", case.guard, case.guard.lineno
                )
        self.choice(node.lineno, arms, f"match {text_of(node.subject)}")

    def choice(self, line: int, arms: list[tuple[str, Sequence[ast.stmt]]], label: str = "") -> None:
        """Read the arms of a choice, each with the names as they were before it."""
        before = dict(self.frame.names)
        afters: list[dict[str, Value]] = []
        made: list[Item] = []
        for condition, body in arms:
            self.frame.names = dict(before)
            with self.inside(Kind.CHOICE, condition, line), self.into([]) as items:
                self.statements(body)
            made.append(Item(Kind.ARM, condition, line=line, body=items))
            if not (items and items[-1].kind in {Kind.RETURN, Kind.RAISE, Kind.BREAK, Kind.CONTINUE}):
                afters.append(self.frame.names)
        self.frame.names = merged(afters or [before])
        self.items.append(Item(Kind.CHOICE, label, line=line, body=made))

    def _For(self, node: ast.For | ast.AsyncFor) -> None:
        iterated = self.value(node.iter)
        is_async = isinstance(node, ast.AsyncFor)
        text = f"{'async ' if is_async else ''}for {text_of(node.target)} in {text_of(node.iter)}"
        element, before = self._iterate(iterated, node, is_async=is_async)

        def body() -> None:
            self.emit_all(before)
            self.assign(node.target, element)
            self.statements(node.body)

        self.loop(text, node.lineno, bound_names(node), body)
        self._orelse(node.orelse, node.lineno)

    _AsyncFor = _For

    def _iterate(
        self, iterated: Value, node: ast.For | ast.AsyncFor, *, is_async: bool
    ) -> tuple[Value, list[Item]]:
        """Return what the loop's variable is, and what happens in each round before its body."""
        text = text_of(node.target)
        if isinstance(iterated, Coroutine) and iterated.label == "as_completed":
            self.emit_all(self.consume(iterated, self.path))
            return Waiting(text), []
        if isinstance(iterated, Series):
            return ElementOf(iterated, text), []
        if not is_async:
            self.escape(iterated)
            return UNKNOWN, []
        if isinstance(iterated, Coroutine):
            return UNKNOWN, self.consume(iterated, self.path)
        reason = "what it iterates over cannot be followed"
        return UNKNOWN, [Item(Kind.UNKNOWN, text_of(node.iter), note=reason, line=node.lineno)]

    def _While(self, node: ast.While) -> None:
        def body() -> None:
            self.value(node.test)
            self.statements(node.body)

        self.loop(f"while {text_of(node.test)}", node.lineno, bound_names(node), body)
        self._orelse(node.orelse, node.lineno)

    def _orelse(self, body: Sequence[ast.stmt], line: int) -> None:
        if body:
            self.choice(line, [("the loop ended without break", body), ("otherwise", [])])

    def _With(self, node: ast.With | ast.AsyncWith) -> None:
        self._enter(list(node.items), node)

    _AsyncWith = _With

    def _enter(self, items: list[ast.withitem], node: ast.With | ast.AsyncWith) -> None:
        if not items:
            self.statements(node.body)
            return
        first, *rest = items
        value = self.value(first.context_expr)
        target: Value = UNKNOWN
        if isinstance(value, Context):
            item = Item(
                value.kind,
                value.label,
                note=value.note,
                key=value.key,
                line=node.lineno,
                timer=value.timer,
                body=value.body,
            )
            target = TaskGroupValue(item) if value.kind is Kind.GROUP else UNKNOWN
        elif isinstance(value, Waiting) or isinstance(node, ast.With):
            self.escape(value)
            item = None
        else:
            self.escape(value)
            text = f"async with {text_of(first.context_expr)}"
            reason = "what it does when it is entered and left cannot be followed"
            item = Item(Kind.UNKNOWN, text, note=reason, line=node.lineno)
        if first.optional_vars is not None:
            self.assign(first.optional_vars, target)
        if item is None:
            self._enter(rest, node)
        elif item.kind is Kind.TRY:
            before = dict(self.frame.names)
            with self.into([]) as body:
                self._enter(rest, node)
            self.frame.names = merged([before, self.frame.names])
            item.body = [Item(Kind.ARM, "try", body=body), Item(Kind.ARM, item.note, line=node.lineno)]
            item.note = ""
            self.items.append(item)
        else:
            with self.into(item.body):
                self._enter(rest, node)
            self.items.append(item)

    def _Try(self, node: ast.Try | ast.TryStar) -> None:
        before = dict(self.frame.names)
        with self.into([]) as body:
            self.statements(node.body)
        after = [self.frame.names]
        arms = [Item(Kind.ARM, "try", line=node.lineno, body=body)]
        middle = merged([before, self.frame.names])
        for name in bound_names(ast.Module(node.body, [])):
            if not isinstance(middle.get(name), Series):
                middle[name] = UNKNOWN  # the exception may come before it is bound, or after
        star = "*" if isinstance(node, ast.TryStar) else ""
        for handler in node.handlers:
            self.frame.names = dict(middle)
            caught = "" if handler.type is None else f" {text_of(handler.type)}"
            label = f"except{star}{caught}"
            if handler.name:
                self.frame.names[handler.name] = UNKNOWN
            with self.inside(Kind.CHOICE, label, handler.lineno), self.into([]) as items:
                self.statements(handler.body)
            arms.append(Item(Kind.ARM, label, line=handler.lineno, body=items))
            after.append(self.frame.names)
        if node.orelse:
            self.frame.names = after[0]
            with self.into([]) as items:
                self.statements(node.orelse)
            arms.append(Item(Kind.ARM, "else", line=node.lineno, body=items))
        self.frame.names = merged(after)
        if node.finalbody:
            ended = self.frame.names
            self.frame.names = merged([*after, middle])
            with self.into([]) as items:
                self.statements(node.finalbody)
            self.frame.names |= {
                name: value
                for name, value in ended.items()
                if name not in bound_names(ast.Module(node.finalbody, []))
            }
            arms.append(Item(Kind.ARM, "finally", line=node.finalbody[0].lineno, body=items))
        self.items.append(Item(Kind.TRY, line=node.lineno, body=arms))

    _TryStar = _Try

    def _Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.frame.names[target.id] = UNKNOWN
            elif isinstance(target, ast.Subscript):
                owner = self.value(target.value)
                if isinstance(owner, Series):
                    self.lose(owner, text_of(target.value), node.lineno)
