"""Markers: `patched(name)` asks which way a run goes where its code has changed. And which markers code asks for."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from holdfast.decider.loop import running
from holdfast.errors import WorkflowError
from holdfast.workflow import options
from holdfast.workflow.here import is_in_step
from holdfast.workflow.reach import codes, is_authored, named_by

REACH_MAX = 500
"""How many functions are searched for the markers that a workflow asks for."""
_BETWEEN = ("PUSH_NULL", "CACHE", "PRECALL", "KW_NAMES", "NOT_TAKEN")


def patched(name: str) -> bool:
    """Return True if this run goes the new way at the marker `name`, and False if it goes the old way. For changes of
    workflow code under open runs: `if patched("new-discount"):`.

    It is decided once for each run, and recorded. A run that went past this point before the marker was there goes the
    old way, in every pass of a loop and in every task. A run that gets there with the marker goes the new way. Outside
    of a run it is always the new way.
    """
    options.text(name, "patched(): the name of a marker")
    loop = running()
    if loop is not None:
        return loop.host.patched(name)
    if is_in_step():
        raise WorkflowError(
            f"patched({name!r}) works in a workflow only, because the way belongs to the run: ask in the workflow, and pass "
            "the answer to the step as an argument"
        )
    return True


def markers_of(fn: Callable[..., Any]) -> set[str]:
    """Return the names of the markers that this function asks for, and the functions it names. A name that is no
    constant is left out."""
    found: set[str] = set()
    seen: set[int] = set()
    todo: list[Any] = [fn]
    while todo and len(seen) < REACH_MAX:
        one = todo.pop()
        if type(one) is FunctionType and id(one.__code__) not in seen and is_authored(one):
            seen.add(id(one.__code__))
            found |= {name for _, name in asked_in(one) if name is not None}
            todo += named_by(one)
    return found


def asked_in(fn: FunctionType) -> Iterator[tuple[int, str | None]]:
    """Yield (line, name) of each marker that this function itself asks for. The name is None if it is no constant."""
    for code in codes(fn.__code__):
        line = code.co_firstlineno
        ops = [op for op in dis.get_instructions(code) if not _is_between(op)]
        for op, name, call in zip(ops, ops[1:], ops[2:], strict=False):
            if op.positions is not None and op.positions.lineno is not None:
                line = op.positions.lineno
            if _loads_patched(op, fn):
                is_constant = name.opname.startswith("LOAD_CONST") and call.opname.startswith("CALL")
                yield line, name.argval if is_constant and isinstance(name.argval, str) else None


def _is_between(op: dis.Instruction) -> bool:
    """True if the instruction may stand between loading `patched`, its name, and the call. From 3.13 on, the names of
    keyword arguments are a constant."""
    return op.opname in _BETWEEN or (op.opname == "LOAD_CONST" and isinstance(op.argval, tuple))


def _loads_patched(op: dis.Instruction, fn: FunctionType) -> bool:
    if op.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
        return fn.__globals__.get(op.argval) is patched
    # An attribute of the module `holdfast`, or a name that the function itself imports. A constant is text that says so.
    return (
        op.opname.startswith("LOAD_")
        and not op.opname.startswith("LOAD_CONST")
        and op.argval == patched.__name__
    )
