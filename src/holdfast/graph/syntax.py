"""The syntax of a function, and what its expressions say as text, without executing anything."""

from __future__ import annotations

import ast
import copy
import inspect
import linecache
import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.decider.keys import word
from holdfast.durations import span
from holdfast.graph.values import Value

TEXT_MAX = 200
"""How much of an expression's source a label keeps."""
RETURN_MAX = 32
"""A call that is longer than this is shown without its arguments where it is returned."""

FunctionNode = ast.AsyncFunctionDef | ast.FunctionDef


class Sourceless(Exception):
    """The source of a function is not there, or is not what was loaded."""


class _WithoutAwait(ast.NodeTransformer):
    def visit_Await(self, node: ast.Await) -> ast.AST:
        self.generic_visit(node)
        return node.value


def text_of(node: ast.AST) -> str:
    """Return the source of an expression on one line, without `await`: what is awaited is drawn, too."""
    if has_await(node):
        node = _WithoutAwait().visit(copy.deepcopy(node))
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


@dataclass
class _Parsed:
    """One file."""

    lines: list[str]
    functions: dict[int, list[FunctionNode]]
    """By their first line."""
    changed: Changed


class Changed(NamedTuple):
    """What the functions of a file bind anew, so that the object which is there now need not be the one that a call
    finds."""

    globals: frozenset[str]
    """Names of the module that a function declares as `global`."""
    attributes: frozenset[str]
    """Attributes that are set outside `__init__`."""


_parsed: dict[str, _Parsed] = {}


def source_of(fn: types.FunctionType) -> FunctionNode:
    """Return the syntax of a function. Raises Sourceless, with the reason."""
    code = fn.__code__
    if hasattr(fn, "__wrapped__"):
        raise Sourceless("another decorator is around it, and what that does is not known")
    if code.co_name == "<lambda>":
        raise Sourceless("it is a lambda")
    for candidate in _functions(code.co_filename, fn.__globals__).get(code.co_firstlineno, []):
        takes = len(candidate.args.posonlyargs) + len(candidate.args.args)
        if (
            candidate.name == code.co_name
            and takes == code.co_argcount
            and isinstance(candidate, ast.AsyncFunctionDef)
            == bool(code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR))
        ):
            return candidate
    raise Sourceless("its file has changed since it was loaded")


def changed_in(fn: types.FunctionType) -> Changed:
    """Return what is bound anew by the functions of the file that a function is in."""
    _functions(fn.__code__.co_filename, fn.__globals__)
    return _parsed[fn.__code__.co_filename].changed


def _functions(file: str, names: dict[str, Any]) -> dict[int, list[FunctionNode]]:
    """Return the functions of a file by their first line. A file is parsed once, until it changes."""
    linecache.checkcache(file)
    lines = linecache.getlines(file, names)
    if not lines:
        raise Sourceless("its source is not in a file")
    known = _parsed.get(file)
    if known is not None and known.lines == lines:
        return known.functions
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Sourceless(f"its source cannot be parsed: {type(error).__name__}") from None
    found: dict[int, list[FunctionNode]] = {}
    for node in ast.walk(tree):
        if isinstance(node, FunctionNode):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            found.setdefault(first, []).append(node)
    _parsed[file] = _Parsed(lines, found, _changed(found))
    return found


def _changed(functions: dict[int, list[FunctionNode]]) -> Changed:
    nodes = [node for each in functions.values() for node in each]
    names = {
        name for node in nodes for one in ast.walk(node) if isinstance(one, ast.Global) for name in one.names
    }
    attributes = {
        one.attr
        for node in nodes
        if node.name not in {"__init__", "__post_init__"}
        for one in _own(node)
        if isinstance(one, ast.Attribute) and not isinstance(one.ctx, ast.Load)
    }
    return Changed(frozenset(names), frozenset(attributes))


def bound_names(node: ast.AST) -> frozenset[str]:
    """Return the names that a function's code binds, other than its global ones."""
    elsewhere = {
        name for one in _own(node) if isinstance(one, ast.Global | ast.Nonlocal) for name in one.names
    }
    return frozenset(_bindings(node)) - elsewhere


def rebound_names(node: ast.AST) -> frozenset[str]:
    """Return the names of a function that are bound more than once: a function inside it may find either value."""
    times = Counter(_bindings(node))
    for one in _own(node):
        if isinstance(one, ast.For | ast.AsyncFor | ast.While):
            times.update(_bindings(one))
    return frozenset(name for name, count in times.items() if count > 1)


def shared_names(node: ast.AST) -> frozenset[str]:
    """Return the names that a function, or one inside it, binds for others, too. Nobody can say when that happens."""
    return frozenset(
        name for one in ast.walk(node) if isinstance(one, ast.Global | ast.Nonlocal) for name in one.names
    )


def walrus_names(*nodes: ast.AST) -> frozenset[str]:
    """Return the names that `:=` binds in an expression."""
    return frozenset(
        one.target.id for node in nodes for one in ast.walk(node) if isinstance(one, ast.NamedExpr)
    )


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a function's code consists of, without the code of functions and classes inside it."""
    todo = list(ast.iter_child_nodes(node))
    while todo:
        one = todo.pop()
        yield one
        if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            todo.extend(ast.iter_child_nodes(one))


def _bindings(node: ast.AST) -> Iterator[str]:
    """Yield each name as often as it is bound."""
    for one in _own(node):
        if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load):
            yield one.id
        elif isinstance(one, ast.arg):
            yield one.arg
        elif isinstance(one, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and one.name:
            yield one.name
        elif isinstance(one, ast.MatchMapping) and one.rest:
            yield one.rest
        elif isinstance(one, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in one.names)
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield one.name


def returns_last(node: FunctionNode | ast.Lambda) -> bool:
    return isinstance(node, ast.Lambda) or isinstance(node.body[-1], ast.Return)


def return_text(node: ast.expr | None) -> str:
    """Return what a return says: enough to recognise it among others."""
    if node is None or isinstance(node, ast.Await):
        return "return"
    text = text_of(node)
    if isinstance(node, ast.Call) and (len(text) > RETURN_MAX or has_await(node)):
        return f"return {text_of(node.func)}(…)"
    return "return" if has_await(node) else f"return {text}"


def name_of(node: FunctionNode | ast.Lambda) -> str:
    return "lambda" if isinstance(node, ast.Lambda) else node.name


def short(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def has_await(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Await) for one in ast.walk(node))


def does_more_than_look(node: ast.AST) -> bool:
    """True if an expression awaits something or binds a name."""
    return has_await(node) or bool(walrus_names(node))


def negated(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    return ast.UnaryOp(ast.Not(), node)


def is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def argument(node: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    for given in node.keywords:
        if given.arg == name:
            return given.value
    if position is not None and position < len(node.args):
        return node.args[position]
    return None


def argument_texts(node: ast.Call, args: list[Value]) -> list[str]:
    """Return the source of each value that a call is given."""
    if len(node.args) == len(args):
        return [text_of(arg) for arg in node.args]
    return [text_of(node.args[0])] * len(args) if node.args else []


def pattern(node: ast.expr, *, as_word: bool = False) -> str:
    """Return the text that an expression gives, with a `*` for each part that is not known."""
    if isinstance(node, ast.Constant):
        text = str(node.value)
        return word(text) if as_word else text
    if isinstance(node, ast.JoinedStr):
        return "".join(
            pattern(part, as_word=as_word) if isinstance(part, ast.Constant) else "*" for part in node.values
        )
    return "*"


def duration(node: ast.expr) -> str:
    """Return a duration for people, or its source if it is not a plain number."""
    seconds = number_of(node)
    if seconds is None:
        return text_of(node)
    return f"{seconds:.0f} s" if seconds in range(10) else span(seconds)


_TIMES = {
    "weeks": 604_800,
    "days": 86_400,
    "hours": 3_600,
    "minutes": 60,
    "seconds": 1,
    "milliseconds": 0.001,
}


def number_of(node: ast.expr) -> float | None:
    """Return the number that an expression of plain numbers gives, or the seconds of a timedelta."""
    if isinstance(node, ast.Constant):
        return float(node.value) if isinstance(node.value, int | float) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Add):
        left, right = number_of(node.left), number_of(node.right)
        if left is None or right is None:
            return None
        return left * right if isinstance(node.op, ast.Mult) else left + right
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "total_seconds"
    ):
        return number_of(node.func.value)
    if isinstance(node, ast.Call) and short(text_of(node.func)) == "timedelta" and not node.args:
        parts = [(_TIMES.get(one.arg or ""), number_of(one.value)) for one in node.keywords]
        known = [size * value for size, value in parts if size is not None and value is not None]
        return sum(known) if known and len(known) == len(parts) else None
    return None
