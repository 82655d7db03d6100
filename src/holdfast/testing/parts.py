"""Finds what a workflow's code names: its steps, the workflows it calls, the signals it waits for, the updates it serves. It
reads the byte code and runs nothing."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from holdfast.workflow.reach import codes, enclosed, is_authored
from holdfast.workflow.signal import Signal
from holdfast.workflow.step import Step
from holdfast.workflow.update import Update
from holdfast.workflow.workflow import Workflow

FOLLOWED_MAX = 3
"""How many calls deep the functions that a function calls are followed."""

Part = Step[Any, Any] | Workflow[Any, Any] | Signal[Any] | Update[Any, Any]


def named(fn: Callable[..., Any]) -> list[Part]:
    """Return the parts that this function and the functions it calls name, in the order of the code."""
    found: dict[int, Part] = {}
    for part in _parts(fn, 0, set()):
        found.setdefault(id(part), part)
    return list(found.values())


def _parts(fn: Callable[..., Any], followed: int, seen: set[CodeType]) -> Iterator[Part]:
    if not isinstance(fn, FunctionType):
        return
    names = {**fn.__globals__, **enclosed(fn)}
    for code in codes(fn.__code__):
        if code in seen:
            continue
        seen.add(code)
        for thing, attribute in _loads(code, names):
            if isinstance(thing, Step):
                yield thing.origin
            elif (
                isinstance(thing, Workflow)
                or (isinstance(thing, Signal) and attribute == "wait")
                or (isinstance(thing, Update) and attribute == "serve")
            ):
                yield thing
            elif isinstance(thing, FunctionType) and followed < FOLLOWED_MAX and is_authored(thing):
                yield from _parts(thing, followed + 1, seen)


def _loads(code: CodeType, names: dict[str, Any]) -> Iterator[tuple[Any, str]]:
    """Yield every object that the code loads, with the attribute that it reads of it, if any."""
    local: dict[str, Any] = {}
    here: Any = None
    module: ModuleType | None = None
    for op in dis.get_instructions(code):
        name = op.argval if isinstance(op.argval, str) else ""
        was, here = here, None
        match op.opname:
            case "CACHE" | "PUSH_NULL" | "PRECALL":
                here = was
                continue
            case "LOAD_GLOBAL" | "LOAD_NAME" | "LOAD_FAST" | "LOAD_FAST_CHECK" | "LOAD_DEREF":
                here = local.get(name, names.get(name))
            case "IMPORT_NAME":
                here = module = sys.modules.get(name)
            case "IMPORT_FROM":
                here = None if module is None else vars(module).get(name)
            case "STORE_FAST" | "STORE_DEREF":
                local[name] = was
                continue
            case "LOAD_ATTR" | "LOAD_METHOD" if isinstance(was, ModuleType):
                here = vars(was).get(name)
                continue
            case "LOAD_ATTR" | "LOAD_METHOD":
                yield was, name
                continue
        yield was, ""
    yield here, ""
