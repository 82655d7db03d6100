"""What the functions of asyncio and of Holdfast do that workflow code calls by name."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import functools
import types
from collections.abc import Callable

from holdfast.graph.graph import Kind
from holdfast.graph.names import is_foreign
from holdfast.graph.syntax import argument, argument_texts, duration, is_none, pattern, short, text_of
from holdfast.graph.tasks import NOT_KNOWN, Tasks
from holdfast.graph.values import (
    DECLARED,
    UNKNOWN,
    Context,
    Coroutine,
    Item,
    Known,
    Opaque,
    Path,
    Series,
    TaskBegun,
    TaskGroupValue,
    Value,
    Waiting,
    is_a,
    matters,
    own,
)
from holdfast.workflow.ask import ask
from holdfast.workflow.reach import codes, enclosed
from holdfast.workflow.step import Step
from holdfast.workflow.surroundings import continue_as_new
from holdfast.workflow.undo import keep, saga, undo_with
from holdfast.workflow.workflow import Workflow

DEPTH_MAX = 12
"""How deep helpers are followed into one another."""
COPIES = (list, tuple, set, frozenset, sorted, reversed, iter)


class Verbs(Tasks):
    """Reads calls of asyncio's and Holdfast's own functions."""

    def _gather(self, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        return self._branches("gather", node, list(zip(args, argument_texts(node, args), strict=True)))

    def _branches(self, label: str, node: ast.Call, values: list[tuple[Value, str]]) -> Coroutine:
        for value, _ in values:
            own(value)
        path = self.path
        since = self.awaited
        is_limited = argument(node, "timeout") is not None

        def begin(_: Path) -> list[Item]:
            outer, self.path = self.path, path
            awaited = self.awaited
            arms: list[Item] = []
            try:
                for value, text in values:
                    self.awaited = awaited
                    body = self.parallel(value, text, node.lineno)
                    if len(body) == 1 and body[0].kind is Kind.BRANCHES:
                        arms += body[0].body  # a gather in a gather runs beside its neighbours
                    else:
                        arms.append(Item(Kind.ARM, line=node.lineno, body=body))
            finally:
                self.path = outer
            timer = self.timer_key("timeout", None, path) if is_limited else ()
            return [Item(Kind.BRANCHES, label, line=node.lineno, timer=timer, body=arms)]

        return self.coroutine(label, self.at_once(begin), node.lineno, since=since)

    def _as_completed(self, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        return self._branches(short(text_of(node.func)), node, self._given(node, args))

    def _given(self, node: ast.Call, args: list[Value]) -> list[tuple[Value, str]]:
        given = args[0] if args else UNKNOWN
        text = text_of(node.args[0]) if node.args else ""
        if isinstance(given, Series):
            return [(value, text) for value in given.values]
        return [(given, text)]

    def _ask(self, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        """A question to people. Its node has the name that the code gives it, and the question as a note."""
        self._escape_all(args, keywords)
        named, asked, limit = argument(node, "name"), argument(node, "question", 1), argument(node, "timeout")
        name = "ask" if named is None else pattern(named, as_word=True)
        note = "" if asked is None else text_of(asked)
        is_limited = limit is not None and not is_none(limit)
        return self.leaf(Kind.ASK, name, name, node.lineno, name=name, note=note, is_limited=is_limited)

    def _wait_tasks(self, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        return self._branches("wait", node, self._given(node, args))

    def _wait_for(self, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        limit = argument(node, "timeout", 1)
        label = "" if limit is None else duration(limit)
        inner = args[0] if args else UNKNOWN
        text = text_of(node.args[0]) if node.args else ""
        own(inner)

        def begin(path: Path) -> list[Item]:
            key = self.timer_key("timeout", limit, path)
            body = (
                self.consume(inner, path, text, node.lineno)
                if matters(inner)
                else (self.wait_for(inner, text, node.lineno))
            )
            if limit is not None and is_none(limit):
                return body
            return [Item(Kind.TIMEOUT, label, key=key, line=node.lineno, body=body)]

        return self.coroutine("wait_for", begin, node.lineno)

    def _shield(self, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        inner = args[0] if args else UNKNOWN
        text = text_of(node.args[0]) if node.args else ""
        if isinstance(inner, TaskBegun):
            return inner
        own(inner)
        begin = self.at_once(lambda path: self.parallel(inner, text, node.lineno))
        return self.coroutine("shield", begin, node.lineno)

    def _create_task(self, node: ast.Call, args: list[Value], group: TaskGroupValue | None) -> Value:
        given = argument(node, "name")
        name = "" if given is None or is_none(given) else pattern(given, as_word=True)
        what = argument(node, "coro", 0)
        shown = name
        if not name and what is not None:
            shown = text_of(what.func if isinstance(what, ast.Call) else what)
        value = args[0] if args else UNKNOWN
        return self.begin_task(value, shown or "task", node.lineno, name, group)

    def _make_task(self, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        return self._create_task(node, args, None)

    def _timeout(self, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        limit = argument(node, "delay", 0)
        if limit is not None and is_none(limit):
            return Waiting(text_of(node))  # no limit
        label = "" if limit is None else duration(limit)
        return Context(Kind.TIMEOUT, label, key=self.timer_key("timeout", limit))

    def _timeout_at(self, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        """A limit that is a time and no duration is drawn without it."""
        limit = argument(node, "when", 0)
        if limit is not None and is_none(limit):
            return Waiting(text_of(node))  # no limit
        return Context(Kind.TIMEOUT, key=self.timer_key("timeout", None))

    def _saga(self, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        return Context(Kind.SAGA)

    def _task_group(self, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        return Context(Kind.GROUP, "TaskGroup")

    def _suppress(self, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        return Context(Kind.TRY, note=f"except {', '.join(map(text_of, node.args))}".strip())

    def _sleep(self, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        delay = argument(node, "delay", 0)
        if isinstance(delay, ast.Constant) and delay.value == 0:
            return Waiting(text_of(node))  # it only lets others go first
        label = "" if delay is None else duration(delay)

        def begin(path: Path) -> list[Item]:
            return [Item(Kind.SLEEP, label, key=self.timer_key("sleep", delay, path), line=node.lineno)]

        return self.coroutine("sleep", begin, node.lineno, is_leaf=True)

    def _keep(self, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        self.emit(Item(Kind.KEEP, line=node.lineno))
        return UNKNOWN

    def _undo_with(self, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        first = args[0] if args else UNKNOWN
        thing = first.thing if isinstance(first, Known) else None
        self._escape_all(args[1:], keywords)
        if is_a(thing, Step):
            self.emit(
                Item(
                    Kind.UNDO_WITH,
                    short(thing.name),
                    thing.name,
                    undo=thing.name,
                    key=self.key(thing.label),
                    line=node.lineno,
                )
            )
        else:
            self.unknown(text_of(node), NOT_KNOWN, node.lineno)
        return UNKNOWN

    def _continue_as_new(self, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        self._escape_all(args, keywords)
        self.emit(Item(Kind.CONTINUE_AS_NEW, text_of(node), line=node.lineno))
        return UNKNOWN

    def _copy(self, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        if not args:
            return Series()
        given = args[0]
        if not isinstance(given, Series):
            return self._left(node, args, keywords)
        return Series([*given.values], given.ordered and text_of(node.func) in {"list", "tuple", "iter"})

    def _left(self, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        self._escape_all(args, keywords)
        return Opaque(text_of(node), NOT_KNOWN, node.lineno)

    def _mapped(self, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        """`map(charge, cards)`: a series of calls."""
        if not args or not matters(args[0]):
            return self._left(node, args, keywords)
        with self.inside(Kind.LOOP, f"for each of {text_of(node.args[-1])}", node.lineno):
            return Series([self.call(args[0], node, [UNKNOWN] * (len(args) - 1), {})])

    def _partial(self, node: ast.Call, args: list[Value], keywords: dict[str, Value]) -> Value:
        if args and isinstance(args[0], Known) and is_a(args[0].thing, Step, Workflow):
            return args[0]
        return self._left(node, args, keywords)


Call = Callable[[Verbs, ast.Call, list[Value], dict[str, Value]], Value]
SPECIAL: dict[int, Call] = {
    id(thing): method
    for things, method in (
        ((asyncio.gather,), Verbs._gather),
        ((asyncio.as_completed,), Verbs._as_completed),
        ((asyncio.wait,), Verbs._wait_tasks),
        ((asyncio.wait_for,), Verbs._wait_for),
        ((asyncio.shield,), Verbs._shield),
        ((asyncio.create_task, asyncio.ensure_future), Verbs._make_task),
        ((asyncio.timeout,), Verbs._timeout),
        ((asyncio.timeout_at,), Verbs._timeout_at),
        ((asyncio.TaskGroup,), Verbs._task_group),
        ((asyncio.sleep,), Verbs._sleep),  # noqa: TID251  it is only compared with
        ((saga,), Verbs._saga),
        ((keep,), Verbs._keep),
        ((undo_with,), Verbs._undo_with),
        ((continue_as_new,), Verbs._continue_as_new),
        ((ask,), Verbs._ask),
        ((contextlib.suppress,), Verbs._suppress),
        ((functools.partial,), Verbs._partial),
        ((map,), Verbs._mapped),
        (COPIES, Verbs._copy),
    )
    for thing in things
}
VERBS = frozenset({id(ask), id(keep), id(undo_with), id(saga), id(continue_as_new), id(asyncio)})


def does_something(fn: types.FunctionType, seen: frozenset[object] = frozenset()) -> bool:
    """True if a plain function names a step, a workflow, a signal or a verb of workflow code, itself or through others
    of its kind."""
    if fn.__code__ in seen or len(seen) > DEPTH_MAX:
        return False
    seen |= {fn.__code__}
    names = {name for code in codes(fn.__code__) for name in (*code.co_names, *code.co_freevars)}
    values = [fn.__globals__[name] for name in names if name in fn.__globals__]
    values += enclosed(fn).values()
    for value in values:
        if is_a(value, *DECLARED) or id(value) in VERBS or id(value) in SPECIAL:
            if id(value) not in {id(one) for one in (*COPIES, map)}:
                return True
        elif type(value) is types.FunctionType and not is_foreign(value) and does_something(value, seen):
            return True
    return False
