"""Changes of Python code. The syntax tree says where they are; the text is changed only there.

Left out is what no test should know: messages, what is logged, annotations, decorators and assertions.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.mutation.places import Change

COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
NEGATED = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
"""Changing one of these is the same as negating the comparison."""
EXTREMES = {"min": "max", "max": "min"}
SORTS = {"sorted", "sort", "min", "max", "nlargest", "nsmallest"}
SMALL = 3
"""Larger numbers are limits. A test need not know them to the last digit."""
LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)


def python_changes(text: str) -> Iterator[Change]:
    yield from _Finder(text).found(ast.parse(text), "")


class _Finder:
    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = text.splitlines(keepends=True)
        self._begins = [0]
        for line in self._lines:
            self._begins.append(self._begins[-1] + len(line))

    def found(self, node: ast.AST, where: str) -> Iterator[Change]:
        """Yield the changes of a node and of all that is in it. `where` is the function around it."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            where = f"{where}.{node.name}" if where else node.name
        for kind, start, end, new in self._changes(node, where):
            yield Change(start, end, new, self.text[start:end], kind, where)
        for child in _children(node):
            yield from self.found(child, where)

    def _changes(self, node: ast.AST, where: str) -> Iterator[tuple[str, int, int, str]]:
        match node:
            case ast.Compare():
                yield from self._comparisons(node)
            case ast.BoolOp():
                old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield "bool", *self._between(left, right, old), new
            case ast.UnaryOp(op=ast.Not()):
                yield "not", self._start(node), self._start(node.operand), ""
            case ast.BinOp(op=ast.Add() | ast.Sub()) if not (_is_text(node.left) or _is_text(node.right)):
                old, new = ("+", "-") if isinstance(node.op, ast.Add) else ("-", "+")
                yield "arithmetic", *self._between(node.left, node.right, old), new
            case ast.Constant(value=int() | float() as number) if where and not isinstance(number, bool):
                if abs(number) <= SMALL:
                    yield "plus-one", *self._span(node), str(number + 1)
                    yield "minus-one", *self._span(node), str(number - 1)
            case ast.Set() | ast.List() | ast.Tuple() if len(node.elts) > 1 and all(map(_is_name, node.elts)):
                yield from self._members(node)
            case ast.If():
                yield from self._guards(node)
            case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())):
                yield "call", *self._span(node), "pass"
            case ast.Call():
                yield from self._orders(node)

    def _comparisons(self, node: ast.Compare) -> Iterator[tuple[str, int, int, str]]:
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            old, new = COMPARISONS[type(op)]
            yield "compare", *self._between(left, right, old), new
            left = right

    def _guards(self, node: ast.If) -> Iterator[tuple[str, int, int, str]]:
        last = node.body[-1]
        if not isinstance(last, LEAVES):
            return
        if not isinstance(last, ast.Raise):
            yield "guard", *self._span(last), "pass"
        test = node.test
        is_simple = isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], NEGATED)
        if not is_simple and not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
            start, end = self._span(test)
            yield "negate", start, end, f"not ({self.text[start:end]})"

    def _orders(self, node: ast.Call) -> Iterator[tuple[str, int, int, str]]:
        function = node.func
        name = (
            function.id
            if isinstance(function, ast.Name)
            else getattr(function, "attr", "")
            if isinstance(function, ast.Attribute)
            else ""
        )
        if isinstance(function, ast.Name) and name in EXTREMES:
            yield "extreme", *self._span(function), EXTREMES[name]
        if name not in SORTS:
            return
        if name == "sorted" and not node.keywords:
            yield "sort", *self._span(function), "list"
        for keyword in node.keywords:
            if keyword.arg in {"key", "reverse"}:
                start, end = self._span(keyword)
                if node.args:
                    start = self.text.rindex(",", 0, start)
                yield "sort", start, end, ""

    def _members(self, node: ast.Set | ast.List | ast.Tuple) -> Iterator[tuple[str, int, int, str]]:
        """Write another name in the place of one of several that are listed, such as states. So that one is missing."""
        for member, other in zip(node.elts, [node.elts[1], *node.elts], strict=False):
            start, end = self._span(other)
            yield "member", *self._span(member), self.text[start:end]

    # --- places -------------------------------------------------------------------------------------------------------

    def _offset(self, line: int, column: int) -> int:
        """Return the place in the text. The syntax tree counts columns in bytes."""
        before = self._lines[line - 1].encode()[:column].decode()
        return self._begins[line - 1] + len(before)

    def _start(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        return self._offset(node.lineno, node.col_offset)

    def _span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._start(node), self._offset(node.end_lineno, node.end_col_offset)

    def _between(self, left: ast.expr, right: ast.expr, operator: str) -> tuple[int, int]:
        """Return where the operator between two expressions is. There may also be parentheses and comments."""
        start, end = self._span(left)[1], self._start(right)
        gap = re.sub(r"#.*", lambda comment: " " * len(comment[0]), self.text[start:end])
        words = r"\s+".join(map(re.escape, operator.split()))
        found = re.search(words, gap)
        assert found is not None, f"no {operator!r} in {gap!r}"
        return start + found.start(), start + found.end()


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_params"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_left_out(child):
                yield child


def _is_left_out(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr() | ast.Assert() | ast.Raise():
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="log" | "warnings")))):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def _is_name(node: ast.expr) -> bool:
    """True for a member of an enumeration, as it is written everywhere: `RunState.HELD`, `_R.HELD`."""
    return isinstance(node, ast.Attribute) and node.attr.isupper()


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
