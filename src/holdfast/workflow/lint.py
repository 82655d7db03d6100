"""Finds what workflow code must not do, by looking at its byte code when it is declared.

It only reports names that really lead to these functions: it follows each chain of loads through the function's own
globals, closure and imports to the object it names. It does not look at other functions that the code calls.
"""

from __future__ import annotations

import builtins
import datetime as dt
import dis
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from holdfast.workflow.markers import asked_in
from holdfast.workflow.reach import codes

_MISSING = object()
_IO_MODULES = {
    "aiohttp",
    "concurrent.futures",
    "http.client",
    "httpx",
    "httpx2",
    "multiprocessing",
    "requests",
    "socket",
    "subprocess",
    "threading",
    "urllib.request",
}
_IO_CLASSES = {
    "AsyncClient",
    "Client",
    "ClientSession",
    "HTTPConnection",
    "HTTPSConnection",
    "Popen",
    "Process",
    "ProcessPoolExecutor",
    "Session",
    "Thread",
    "ThreadPoolExecutor",
    "Timer",
    "socket",
}

_IN_A_STEP = "put it in a step"
_LOG = "use logging, which logs once, or put it in a step"
_NOW = "use holdfast.now()"
_RANDOM = "use holdfast.random()"
_ADVICE = {
    _NOW: "time.time time.time_ns time.monotonic time.monotonic_ns time.perf_counter time.localtime time.gmtime",
    _RANDOM: "os.urandom random.SystemRandom",
    "use holdfast.uuid4()": "uuid.uuid1 uuid.uuid4",
    _LOG: "builtins.print",
    "use asyncio.sleep(), which is durable here": "time.sleep",
    "use await": "asyncio.run",
    _IN_A_STEP: (
        "builtins.open builtins.input os.system asyncio.to_thread asyncio.create_subprocess_exec "
        "asyncio.create_subprocess_shell asyncio.open_connection"
    ),
}
_FUNCTIONS = {
    id(getattr(import_module(path.partition(".")[0]), path.partition(".")[2])): advice
    for advice, paths in _ADVICE.items()
    for path in paths.split()
}


class HoldfastWarning(UserWarning):
    """A warning about workflow code: it does something that will not be the same when it is replayed, or that keeps
    other runs waiting."""


def lint(fn: Callable[..., Any]) -> None:
    """Warn about every place in this function that a replay would not repeat, and about markers whose names cannot be
    seen."""
    for line, what, advice in findings(fn):
        wrong = "which happens again whenever" if advice == _LOG else "which is not the same when"
        _warn(
            fn,
            line,
            f"workflow {fn.__name__}() uses {what}, {wrong} the run is replayed: {advice}",
        )
    for line, what in forgotten(fn):
        _warn(
            fn,
            line,
            f"workflow {fn.__name__}() calls {what} and does not await it, so nothing happens: write `await` before it, or make "
            "it a task",
        )
    for line, name in asked_in(fn) if isinstance(fn, types.FunctionType) else ():
        if name is None:
            _warn(
                fn,
                line,
                f"workflow {fn.__name__}() asks for a marker whose name is no constant: `holdfast check` cannot see which "
                'runs need it; write patched("…")',
            )


def _warn(fn: Callable[..., Any], line: int, message: str) -> None:
    warnings.warn_explicit(
        message, HoldfastWarning, filename=fn.__code__.co_filename, lineno=line, module=fn.__module__
    )


def findings(fn: Callable[..., Any]) -> list[tuple[int, str, str]]:
    """Return the line of each finding, what the code uses there, and what to write instead."""
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False))
    return sorted(set(_look(fn.__code__, fn.__globals__, cells)))


def forgotten(fn: Callable[..., Any]) -> list[tuple[int, str]]:
    """Return the line and the name of each step, workflow and signal that the function calls without using the call: it
    was made, and nobody awaits it."""
    from holdfast.workflow.signal import Signal  # noqa: PLC0415  these modules use this one
    from holdfast.workflow.step import Step  # noqa: PLC0415
    from holdfast.workflow.workflow import Workflow  # noqa: PLC0415

    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False))
    found: list[tuple[int, str]] = []
    for code in codes(fn.__code__):
        ours: dict[tuple[int | None, int | None], str] = {}
        last: dis.Instruction | None = None
        for op in dis.get_instructions(code):
            place = op.positions and (op.positions.lineno, op.positions.col_offset)
            if op.opname.startswith("LOAD_") and isinstance(op.argval, str) and place:
                value = _contents(cells[op.argval]) if op.argval in cells else fn.__globals__.get(op.argval)
                if issubclass(type(value), (Step, Workflow, Signal)):
                    ours[place] = op.argval
            elif op.opname == "POP_TOP" and last is not None and last.positions:
                name = ours.get((last.positions.lineno, last.positions.col_offset))
                if last.opname.startswith("CALL") and name is not None:
                    found.append((last.positions.lineno or code.co_firstlineno, name))
            if op.opname not in ("CACHE", "PRECALL"):
                last = op
    return sorted(found)


def _look(
    code: types.CodeType, names: dict[str, Any], cells: dict[str, types.CellType]
) -> Iterator[tuple[int, str, str]]:
    local: dict[str, Any] = {}
    loaded: Any = _MISSING
    dotted = ""
    line = code.co_firstlineno
    for op in dis.get_instructions(code):
        if op.positions is not None and op.positions.lineno is not None:
            line = op.positions.lineno
        before, loaded = loaded, _MISSING
        name = op.argval
        match op.opname:
            case "LOAD_GLOBAL" | "LOAD_NAME":
                loaded = names.get(name, getattr(builtins, name, _MISSING))
                dotted = name
            case "LOAD_FAST" | "LOAD_FAST_CHECK":
                loaded, dotted = local.get(name, _MISSING), name
            case "LOAD_DEREF" | "LOAD_CLASSDEREF" | "LOAD_FROM_DICT_OR_DEREF":
                loaded, dotted = local.get(name, _contents(cells.get(name))), name
            case "LOAD_ATTR" | "LOAD_METHOD" | "IMPORT_FROM":
                loaded, advice = _attribute(before, name)
                dotted = f"{dotted}.{name}"
                if advice:
                    yield line, f"{dotted}()", advice
                if op.opname != "IMPORT_FROM":
                    loaded = _MISSING if advice else loaded
            case "IMPORT_NAME":
                loaded, dotted = sys.modules.get(name, _MISSING), name
            case "STORE_FAST" | "STORE_DEREF":
                local[name] = before
            case "PUSH_NULL" | "CACHE" | "PRECALL" | "COPY_FREE_VARS" | "RESUME":
                loaded = before
        if loaded is not _MISSING and op.opname.startswith("LOAD_"):
            advice = _advice(loaded)
            if advice:
                yield line, f"{dotted}()", advice
                loaded = _MISSING
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _look(
                constant, names, cells | {k: types.CellType(v) for k, v in local.items() if v is not _MISSING}
            )


def _contents(cell: types.CellType | None) -> Any:
    try:
        return _MISSING if cell is None else cell.cell_contents
    except ValueError:  # the cell is still empty
        return _MISSING


def _attribute(owner: Any, name: str) -> tuple[Any, str | None]:
    """Return the attribute, if it can be found without running anything, and advice that depends on its owner."""
    if issubclass(type(owner), type) and issubclass(owner, dt.date) and name in {"now", "utcnow", "today"}:
        return _MISSING, _NOW
    if issubclass(type(owner), types.ModuleType):
        return vars(owner).get(name, _MISSING), None
    return _MISSING, None


def _advice(found: Any) -> str | None:
    advice = _FUNCTIONS.get(id(found))
    if advice is not None:
        return advice
    # Look at nothing but its type: a proxy, as web frameworks have them, may run code when it is asked anything.
    if not issubclass(type(found), (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)):
        return None
    owner = getattr(found, "__self__", None)
    if isinstance(owner, random.Random) and owner is getattr(random, "_inst", None):
        return _RANDOM
    module = getattr(found, "__module__", None)
    if not isinstance(module, str):
        return None
    if module == "secrets" and callable(found):
        return _RANDOM
    if (
        isinstance(found, types.FunctionType | types.BuiltinFunctionType)
        or getattr(found, "__name__", None) in _IO_CLASSES
    ):
        parts = module.split(".")
        if any(".".join(parts[:n]) in _IO_MODULES for n in range(1, len(parts) + 1)):
            return _IN_A_STEP
    return None
