"""Where a name leads: to a local value that is known, or to an object of the program. Nothing is executed on the way."""

from __future__ import annotations

import ast
import builtins
import inspect
import types
from dataclasses import dataclass, field
from typing import Any

from holdfast.graph.values import UNKNOWN, Function, Known, Opaque, Series, Value, is_a
from holdfast.workflow.reach import is_authored
from holdfast.workflow.step import Step
from holdfast.workflow.workflow import Workflow

MISSING: Any = object()
"""No such attribute, or one that only running code would give."""


@dataclass(eq=False)
class Frame:
    """One function that is being read."""

    names: dict[str, Value]
    """Its local names."""
    outer: Frame | None
    """The function around it, if that is being read, too."""
    globals: dict[str, Any]
    cells: dict[str, Any]
    local: frozenset[str]
    is_helper: bool
    rebound: frozenset[str] = frozenset()
    """Names that are bound more than once. For a function inside this one they are unknown."""
    shared: frozenset[str] = frozenset()
    """Names that functions inside this one bind, or that this one binds for others. They are unknown everywhere."""
    attributes: frozenset[str] = frozenset()
    """Attributes that some function of the file sets. They are unknown."""
    returns: list[Value] = field(default_factory=list)

    def look_up(self, name: str) -> Value:
        if name in self.shared:
            return UNKNOWN
        if name in self.names:
            return self.names[name]
        if name in self.local:
            return UNKNOWN
        if self.outer is not None:
            return UNKNOWN if name in self.outer.rebound else self.outer.look_up(name)
        if name in self.cells:
            return Known(self.cells[name])
        if name in self.globals:
            return Known(self.globals[name])
        return Known(getattr(builtins, name)) if hasattr(builtins, name) else UNKNOWN


def bind(
    parameters: ast.arguments, args: list[Value], keywords: dict[str, Value], defaults: dict[str, Value]
) -> dict[str, Value]:
    """Return the parameters of a helper with the values it is called with."""
    names = [one.arg for one in (*parameters.posonlyargs, *parameters.args)]
    found: dict[str, Value] = dict.fromkeys(
        [one.arg for one in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)], UNKNOWN
    )
    found.update(defaults)
    if "**" in keywords or any(isinstance(value, Opaque) and value.text.startswith("*") for value in args):
        found = dict.fromkeys(found, UNKNOWN)  # nobody knows which parameter gets what
    else:
        found.update(zip(names, args, strict=False))
        found.update((name, value) for name, value in keywords.items() if name in found)
    if parameters.vararg is not None:
        found[parameters.vararg.arg] = Series(list(args[len(names) :]))
    if parameters.kwarg is not None:
        found[parameters.kwarg.arg] = UNKNOWN
    return found


def merged(ways: list[dict[str, Value]]) -> dict[str, Value]:
    """Return what is known of each name where several ways come together."""
    first, *others = ways
    found: dict[str, Value] = {}
    for name in dict.fromkeys(name for way in ways for name in way):
        value = first.get(name, UNKNOWN)
        same = all(_same(value, other.get(name, UNKNOWN)) for other in others)
        found[name] = value if same else UNKNOWN
    return found


def _same(one: Value, other: Value) -> bool:
    if isinstance(one, Known) and isinstance(other, Known):
        return one.thing is other.thing and one.key == other.key
    return one is other


def attribute(owner: Any, name: str) -> Any:
    """Return an attribute, if it can be found without running anything."""
    if is_a(owner, types.ModuleType):
        return vars(owner).get(name, MISSING)
    try:
        found = inspect.getattr_static(owner, name, MISSING)
    except Exception:  # noqa: BLE001  an object may do anything when it is looked at
        return MISSING
    if is_a(found, staticmethod):
        return found.__func__
    if is_a(found, classmethod):
        return types.MethodType(found.__func__, owner if is_a(owner, type) else type(owner))
    if is_a(found, types.FunctionType) and not is_a(owner, type):
        return found if name in getattr(owner, "__dict__", {}) else types.MethodType(found, owner)
    is_computed = hasattr(type(found), "__get__") and not is_a(found, types.FunctionType, Step, Workflow)
    return MISSING if is_computed else found


def is_foreign(fn: types.FunctionType) -> bool:
    """True for code that is not the author's."""
    return not is_authored(fn) or "site-packages" in fn.__code__.co_filename


def is_async(target: types.FunctionType | Function) -> bool:
    if isinstance(target, Function):
        return isinstance(target.node, ast.AsyncFunctionDef)
    return bool(target.__code__.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR))
