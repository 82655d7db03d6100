"""What an expression is, and what it awaits on the way."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from holdfast.graph.calls import Calls
from holdfast.graph.graph import Kind
from holdfast.graph.names import MISSING, attribute, merged
from holdfast.graph.syntax import negated, text_of, walrus_names
from holdfast.graph.tasks import NOT_KNOWN
from holdfast.graph.values import (
    DECLARED,
    UNKNOWN,
    Coroutine,
    Either,
    ElementOf,
    Function,
    Item,
    Known,
    Method,
    Opaque,
    Pending,
    Series,
    Value,
    Waiting,
    is_a,
    matters,
)


class Expressions(Calls):
    """Reads expressions, and what assignments make known."""

    def value(self, node: ast.expr) -> Value:
        """Return what is known of an expression, and make items of what it awaits."""
        method = getattr(self, f"_{type(node).__name__}", None)
        if method is not None:
            found: Value = method(node)
            return found
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.escape(self.value(child))
        return UNKNOWN

    def assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.frame.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target.elts, value)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, UNKNOWN)
        elif isinstance(target, ast.Subscript):
            owner = self.value(target.value)
            self.value(target.slice)
            key = text_of(target.slice)
            if isinstance(owner, Series):
                if owner.ordered or key in owner.keys:
                    self.lose(owner, text_of(target.value), target.lineno)
                owner.keys.add(key)
                owner.values.append(value)
            else:
                self.escape(value)
        else:
            for child in ast.iter_child_nodes(target):
                if isinstance(child, ast.expr):
                    self.value(child)
            self.escape(value)

    def _unpack(self, targets: list[ast.expr], value: Value) -> None:
        known = value.values if isinstance(value, Series) else []
        fits = len(known) == len(targets) and not any(isinstance(one, ast.Starred) for one in targets)
        if not fits:
            self.escape(value)
        for n, target in enumerate(targets):
            self.assign(target, known[n] if fits else UNKNOWN)

    def _Name(self, node: ast.Name) -> Value:
        return self.frame.look_up(node.id)

    def _NamedExpr(self, node: ast.NamedExpr) -> Value:
        value = self.value(node.value)
        self.assign(node.target, value)
        return value

    def _Attribute(self, node: ast.Attribute) -> Value:
        owner = self.value(node.value)
        if isinstance(owner, Known):
            if is_a(owner.thing, *DECLARED):
                return Method(owner, node.attr, text_of(node))
            if node.attr in self.frame.attributes:
                return UNKNOWN
            found = attribute(owner.thing, node.attr)
            return UNKNOWN if found is MISSING else Known(found)
        if owner is UNKNOWN:
            return UNKNOWN
        return Method(owner, node.attr, text_of(node))

    def _Constant(self, node: ast.Constant) -> Value:
        return Known(node.value)

    def _Tuple(self, node: ast.Tuple | ast.List | ast.Set) -> Value:
        series = Series(ordered=not isinstance(node, ast.Set))
        for element in node.elts:
            if isinstance(element, ast.Starred):
                value = self.value(element.value)
                if isinstance(value, Series):
                    series.values += value.values
                    series.ordered = series.ordered and value.ordered
                    continue
                self.escape(value)
                series.ordered = False
                series.values.append(Opaque(f"*{text_of(element.value)}", NOT_KNOWN, element.lineno))
            else:
                series.values.append(self.value(element))
        return series

    _List = _Set = _Tuple

    def _Dict(self, node: ast.Dict) -> Value:
        for key in node.keys:
            if key is not None:
                self.value(key)
        keys = {text_of(key) for key in node.keys if key is not None}
        return Series([self.value(value) for value in node.values], keys=keys)

    def _ListComp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Value:
        return self._comprehension(node, [node.elt], node.elt)

    _GeneratorExp = _SetComp = _ListComp

    def _DictComp(self, node: ast.DictComp) -> Value:
        return self._comprehension(node, [node.key], node.value)

    def _comprehension(
        self,
        node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp,
        first: list[ast.expr],
        element: ast.expr,
    ) -> Value:
        made = Series()
        outer = dict(self.frame.names)

        def level(n: int) -> None:
            if n == len(node.generators):
                for one in first:
                    if one is not element:
                        self.value(one)
                made.values.append(self.value(element))
                return
            generator = node.generators[n]
            iterated = self.value(generator.iter)
            conditions = "".join(f" if {text_of(one)}" for one in generator.ifs)
            is_async = "async " if generator.is_async else ""
            text = f"{is_async}for {text_of(generator.target)} in {text_of(generator.iter)}{conditions}"
            inner: Value = UNKNOWN
            if isinstance(iterated, Series):
                inner = ElementOf(iterated, text_of(generator.target))
            elif isinstance(iterated, Coroutine) and iterated.label == "as_completed":
                self.emit_all(self.consume(iterated, self.path))
                inner = Waiting(text_of(generator.target))

            def body() -> None:
                if generator.is_async and inner is UNKNOWN:
                    self.unknown(text_of(generator.iter), NOT_KNOWN, generator.iter.lineno)
                self.assign(generator.target, inner)
                for condition in generator.ifs:
                    self.value(condition)
                level(n + 1)

            self.loop(text, node.lineno, leaked, body)

        leaked = walrus_names(node)
        level(0)
        self.frame.names = outer | dict.fromkeys(leaked, UNKNOWN)
        return made

    def loop(
        self, label: str, line: int, changed: Iterable[str], body: Callable[[], None], note: str = ""
    ) -> None:
        before = dict(self.frame.names)
        for name in changed:
            if not isinstance(before.get(name), Series):
                self.frame.names[name] = UNKNOWN  # it may have the value of an earlier round
        with self.inside(Kind.LOOP, label, line), self.into([]) as items:
            body()
        after = merged([before, self.frame.names])
        self.frame.names = after | {
            name: UNKNOWN for name in changed if not isinstance(after.get(name), Series)
        }  # the loop may have been left at any place
        self.items.append(Item(Kind.LOOP, label, note=note, line=line, body=items))

    def _IfExp(self, node: ast.IfExp) -> Value:
        self.value(node.test)
        test = text_of(node.test)
        arms: list[Item] = []
        ways: list[tuple[str, Value]] = []
        before, afters = self.frame.names, []
        for label, part in ((test, node.body), ("otherwise", node.orelse)):
            self.frame.names = dict(before)
            with self.inside(Kind.CHOICE, label, node.lineno), self.into([]) as items:
                ways.append((label, self.value(part)))
            arms.append(Item(Kind.ARM, label, line=node.lineno, body=items))
            afters.append(self.frame.names)
        self.frame.names = _joined(before, afters)
        self.items.append(Item(Kind.CHOICE, line=node.lineno, body=arms))
        return Either(ways, node.lineno) if any(matters(value) for _, value in ways) else UNKNOWN

    def _BoolOp(self, node: ast.BoolOp) -> Value:
        first, *others = node.values
        self.escape(self.value(first))
        for other in others:
            condition = text_of(negated(first) if isinstance(node.op, ast.Or) else first)
            self._only_if(condition, other, node.lineno)
            first = ast.BoolOp(node.op, [first, other])
        return UNKNOWN

    def _Compare(self, node: ast.Compare) -> Value:
        """`a < b < c` looks at c only if a < b."""
        first, *others = node.comparators
        self.escape(self.value(node.left))
        self.escape(self.value(first))
        for n, other in enumerate(others, 1):
            condition = text_of(ast.Compare(node.left, node.ops[:n], node.comparators[:n]))
            self._only_if(condition, other, node.lineno)
        return UNKNOWN

    def _only_if(self, condition: str, node: ast.expr, line: int) -> None:
        """Read an expression that is evaluated under a condition."""
        before = dict(self.frame.names)
        with self.inside(Kind.CHOICE, condition, line), self.into([]) as items:
            self.escape(self.value(node))
        self.frame.names = _joined(before, [before, self.frame.names])
        arms = [Item(Kind.ARM, condition, line=line, body=items), Item(Kind.ARM, "otherwise")]
        self.items.append(Item(Kind.CHOICE, line=line, body=arms))

    def _Subscript(self, node: ast.Subscript) -> Value:
        owner = self.value(node.value)
        index = self.value(node.slice)
        key = index.thing if isinstance(index, Known) and type(index.thing) in (int, str) else None
        if isinstance(owner, Known) and key is not None:
            thing = owner.thing
            if type(thing) is dict and key in thing:
                return Known(thing[key])
            if type(thing) in (list, tuple) and isinstance(key, int) and -len(thing) <= key < len(thing):
                return Known(thing[key])
        if isinstance(owner, Series):
            if isinstance(key, int) and owner.ordered and -len(owner.values) <= key < len(owner.values):
                value = owner.values[key]
                return value if getattr(value, "around", self.around) == self.around else UNKNOWN
            return ElementOf(owner, text_of(node))
        return UNKNOWN

    def _BinOp(self, node: ast.BinOp) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(left, Series) and isinstance(right, Series):
            return Series([*left.values, *right.values], left.ordered and right.ordered)
        self.escape(left)
        self.escape(right)
        return UNKNOWN

    def _Starred(self, node: ast.Starred) -> Value:
        return self.value(node.value)

    def _Lambda(self, node: ast.Lambda) -> Value:
        function = Function(node, self.frame, self.around)
        if any(isinstance(one, ast.Call | ast.Await) for one in ast.walk(node.body)):
            self.items.append(Pending(function))
        return function

    def _Await(self, node: ast.Await) -> Value:
        value = self.value(node.value)
        self.emit_all(self.wait_for(value, text_of(node.value), node.lineno))
        return UNKNOWN

    def _Call(self, node: ast.Call) -> Value:
        callee = self.value(node.func)
        args: list[Value] = []
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                value = self.value(arg.value)
                if isinstance(value, Series):
                    args += value.values
                else:
                    self.escape(value)
                    args.append(Opaque(text_of(arg), NOT_KNOWN, arg.lineno))
            else:
                args.append(self.value(arg))
        keywords = {word.arg or "**": self.value(word.value) for word in node.keywords}
        return self.call(callee, node, args, keywords)


def _joined(before: dict[str, Value], ways: list[dict[str, Value]]) -> dict[str, Value]:
    """Return what is known where the ways of an expression come together. A name that only one of them binds has that
    value, because without it the code would not go on."""
    found = merged(ways)
    for name in found.keys() - before.keys():
        bound = [way[name] for way in ways if name in way]
        if len(bound) == 1:
            found[name] = bound[0]
    return found
