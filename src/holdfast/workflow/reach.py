"""What the code of a function names, such as other functions, signals and steps, as far as can be seen without running
it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code, and that of all functions written inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def enclosed(fn: FunctionType) -> dict[str, Any]:
    """Return the variables of the surrounding functions that this function uses, with their values."""
    found = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            pass  # the variable has no value yet: it is defined further down
    return found


def is_authored(fn: Any) -> bool:
    """True if the function belongs neither to Holdfast nor to the library of Python."""
    top = (fn.__module__ or "").partition(".")[0]
    return top != "holdfast" and top not in sys.stdlib_module_names


def is_of(value: object, *kinds: type) -> bool:
    """Like `isinstance`, but look at nothing but the type: a proxy, as web frameworks have them, may run code when it
    is asked anything."""
    return issubclass(type(value), kinds)


def named_by(fn: FunctionType) -> list[Any]:
    """Return the objects that the names in a function's code mean: globals, closure variables, and attributes of the
    modules and classes among these."""
    names = {name for code in codes(fn.__code__) for name in (*code.co_names, *code.co_freevars)}
    found = [fn.__globals__[name] for name in names if name in fn.__globals__]
    found += enclosed(fn).values()
    for owner in [one for one in found if is_of(one, ModuleType, type)]:
        inside = vars(owner)
        found += [inside[name] for name in names if name in inside]
    return [one.__func__ if is_of(one, staticmethod, classmethod, MethodType) else one for one in found]
