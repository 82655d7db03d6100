"""What code declares, for those who have the store and not the code: where names come from, schemas, and signals.

A `Signal` can be waited for wherever somebody has the object, so a workflow may take every signal of its application; those its
own code names are known to be meant. What cannot be seen is never counted as missing: where code makes signals up as it goes, any
name is taken.
"""

from __future__ import annotations

import difflib
import dis
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from holdfast.codec.schema import ANYTHING, Schema, check, data_words, schema_of
from holdfast.errors import DefinitionError, InvalidInput, UnknownSignal
from holdfast.model import DEFAULT_NAMESPACE, Declaration
from holdfast.store.origins import Offers, Source
from holdfast.workflow import registry
from holdfast.workflow.signal import Signal
from holdfast.workflow.step import Step, step
from holdfast.workflow.workflow import Workflow, workflow

SIGNALS_MAX_BYTES = 64 * 1024
"""Of an application with very many signals, a workflow's row keeps the schemas of those its code names, and the names of the rest."""
REACH_MAX = 500
"""Functions that are looked through for the signals a workflow names."""
SHOWN_MAX = 6
"""Names that an error lists."""


class Takes(msgspec.Struct, omit_defaults=True):
    """The signals of a workflow, as `workflows.signals` has them."""

    signals: dict[str, Schema] = {}
    """Of every signal of the application, what it carries; where that is not sure, anything."""
    named: list[str] = []
    """Those that the workflow's own code names, as far as can be seen."""
    open: bool = False
    """There may be others: code makes them up."""

    @staticmethod
    def read(declared: Declaration) -> Takes:
        return _read.decode(declared.signals)


_read = msgspec.json.Decoder(Takes)


# --- what is written ---------------------------------------------------------------------------------------------------


def offered(roles: Collection[str], app: str | None, session: str) -> Offers:
    """What a node with these roles publishes: a scheduler its workflows, and it asks for steps, which an agent executes."""
    sources: dict[Source, int] = {}

    def number(one: Step[Any, Any] | Workflow[Any, Any]) -> int:
        place = one.place
        source = Source(place.origin(app, session), place.digest(), place.file or "")
        return sources.setdefault(source, len(sources))

    steps = sorted(registry.steps)
    workflow_sources = [number(one) for one in registry.workflows.values()] if "scheduler" in roles else []
    works = "scheduler" in roles or "agent" in roles
    step_sources = [number(registry.steps[name]) for name in steps] if works else []
    names = [_code(one) for one in registry.workflows.values()]
    return Offers(names, steps, list(sources), workflow_sources, step_sources)


def declarations(app: str | None, session: str) -> list[Declaration]:
    """Every workflow that is loaded here."""
    signals = _signals(registry.edition(), registry.signals_made(), len(sys.modules))
    return [
        Declaration(
            DEFAULT_NAMESPACE,
            one.name,
            one.version,
            _code(one),
            one.place.origin(app, session),
            one.place.digest(),
            *_schemas(one),
            signals[_code(one)],
        )
        for one in registry.workflows.values()
    ]


@lru_cache(maxsize=1)
def _signals(edition: int, signals: int, modules: int) -> dict[str, str]:
    """What each workflow takes. Kept for as long as nothing more is declared: a node says it again whenever it registers."""
    return {_code(one): msgspec.json.encode(takes(one)).decode() for one in registry.workflows.values()}


def _code(workflow: Workflow[Any, Any]) -> str:
    return f"{workflow.name}@{workflow.version}"


_known: WeakKeyDictionary[Workflow[Any, Any], tuple[str, str]] = WeakKeyDictionary()


def _schemas(workflow: Workflow[Any, Any]) -> tuple[str, str]:
    """Of the arguments and of the result."""
    known = _known.get(workflow)
    if known is None:
        try:
            kinds = workflow.shape.struct, workflow.shape.result.form.type
        except DefinitionError:  # its first run will say so
            kinds = Any, Any  # type: ignore[assignment]  # a type made at run time, or none
        known = _text(schema_of(kinds[0])), _text(schema_of(kinds[1]))
        _known[workflow] = known
    return known


def _text(schema: Schema) -> str:
    return msgspec.json.encode(schema).decode()


# --- which signals a workflow takes --------------------------------------------------------------------------------------


def takes(workflow: Workflow[Any, Any]) -> Takes:
    makers, everybodys = _everybodys(registry.edition(), registry.signals_made(), len(sys.modules))
    named: dict[str, dict[str, Schema]] = {}
    for signal in _reached(workflow.fn):
        named.setdefault(signal.name, {})[_text(signal.schema)] = signal.schema
    found = {**everybodys, **{name: _sure(kinds) for name, kinds in named.items()}}
    told = Takes(found, sorted(named), makers.open or _imports_more(workflow.fn))
    if len(msgspec.json.encode(told)) > SIGNALS_MAX_BYTES:
        told.signals = {name: schema if name in told.named else ANYTHING for name, schema in found.items()}
    return told


@lru_cache(maxsize=1)
def _everybodys(edition: int, signals: int, modules: int) -> tuple[Makers, dict[str, Schema]]:
    """Of every signal of the application, what it carries as far as one can tell who does not know which one is meant. Changes
    with the registry, each signal and each import."""
    makers = _makers(edition, modules)
    by_name: dict[str, dict[str, Schema]] = {}
    for signal in sorted(registry.signals, key=lambda one: one.name):
        by_name.setdefault(signal.name, {})[_text(signal.schema)] = signal.schema
    found: dict[str, Schema] = dict.fromkeys(sorted(makers.names), ANYTHING)
    found.update(
        (name, ANYTHING if name in makers.names else _sure(kinds)) for name, kinds in by_name.items()
    )
    return makers, found


def _sure(kinds: Mapping[str, Schema]) -> Schema:
    return next(iter(kinds.values())) if len(kinds) == 1 else ANYTHING


def _is(value: object, *kinds: type) -> bool:
    """By its type alone: objects that stand for others, as web frameworks have them, must not be asked anything."""
    return issubclass(type(value), kinds)


def _reached(fn: Any) -> Iterator[Signal[Any]]:
    """Signals that a function names, or that a function it names does."""
    todo: list[Any] = [fn]
    seen: set[int] = set()
    while todo and len(seen) < REACH_MAX:
        one = todo.pop()
        if _is(one, Signal):
            yield one
        elif _is(one, FunctionType) and id(one.__code__) not in seen and not _is_foreign(one):
            seen.add(id(one.__code__))
            todo += _values(one)
        elif type(one) in (dict, list, tuple, set, frozenset):
            inside = one.values() if type(one) is dict else one
            todo += [value for value in inside if _is(value, Signal, FunctionType)]


def _values(fn: FunctionType) -> list[Any]:
    """What the names in a function's code mean: globals, closures, and attributes of modules and classes among them."""
    names = {name for code in _codes(fn.__code__) for name in (*code.co_names, *code.co_freevars)}
    found = [fn.__globals__[name] for name in names if name in fn.__globals__]
    for cell in fn.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            pass  # defined further down
    for owner in [one for one in found if _is(one, ModuleType, type)]:
        inside = vars(owner)
        found += [inside[name] for name in names if name in inside]
    return [one.__func__ if _is(one, staticmethod, classmethod, MethodType) else one for one in found]


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _codes(const)


def _is_foreign(fn: FunctionType) -> bool:
    top = (fn.__module__ or "").partition(".")[0]
    return top == "holdfast" or top in sys.stdlib_module_names


def _imports_more(fn: FunctionType | Any) -> bool:
    """A module that the workflow imports when it runs, and that is not there yet, may bring signals."""
    return any(
        op.opname == "IMPORT_NAME" and op.argval and op.argval not in sys.modules
        for code in _codes(fn.__code__)
        for op in dis.get_instructions(code)
    )


class Makers(NamedTuple):
    """Signals that are made inside functions, and so may not be there yet."""

    names: frozenset[str]
    """Those whose names stand in the code."""
    open: bool
    """Others have names that are made up."""


@lru_cache(maxsize=1)
def _makers(edition: int, modules: int) -> Makers:
    """Looked for in all modules that know of Holdfast. What they know changes with the registry and with each import."""
    ours = {id(Signal), id(Step), id(Workflow), id(step), id(workflow), id(sys.modules["holdfast"])}
    names: set[str] = set()
    is_open = False
    for module in list(sys.modules.values()):
        inside = getattr(module, "__dict__", None)
        if not isinstance(inside, dict) or str(inside.get("__name__")).partition(".")[0] == "holdfast":
            continue
        values = list(inside.values())
        if not any(id(value) in ours for value in values):
            continue
        aliases = {name for name, value in inside.items() if _is(value, type) and Signal in value.__mro__}
        for fn in _functions(values, inside):
            for code in _codes(fn.__code__):
                if "Signal" in code.co_names or aliases & set(code.co_names):
                    made = _made_names(code, aliases | {"Signal"})
                    is_open |= None in made
                    names |= {name for name in made if name is not None}
    return Makers(frozenset(names), is_open)


def _functions(values: list[Any], inside: dict[str, Any]) -> Iterator[FunctionType]:
    """The functions that are written in a module, its methods, steps and workflows too."""
    for value in values:
        found = [value]
        if _is(value, type) and value.__module__ == inside.get("__name__"):
            found = list(vars(value).values())
        for one in found:
            fn = one
            if _is(one, Step, Workflow):
                fn = one.fn
            elif _is(one, staticmethod, classmethod):
                fn = one.__func__
            elif _is(one, property):
                fn = one.fget
            if _is(fn, FunctionType) and fn.__globals__ is inside:
                yield fn


PLAIN = ("LOAD_", "PUSH_NULL", "CACHE", "PRECALL", "KW_NAMES", "BINARY_SUBSCR", "COPY_FREE_VARS")
"""What stands between a name and the call, if the name is a text of its own and what follows is a type."""


def _made_names(code: CodeType, aliases: set[str]) -> set[str | None]:
    """The names that are given to signals made here; None for one that is not written there as a text."""
    found: set[str | None] = set()
    ops = list(dis.get_instructions(code))
    for i, op in enumerate(ops):
        if op.opname.startswith("IMPORT_FROM") and op.argval in aliases:
            found.add(None)
        elif op.opname.startswith("LOAD_") and op.argval in aliases:
            found.add(_made_name(ops[i + 1 :]))
    return found


def _made_name(ops: list[dis.Instruction]) -> str | None:
    name: Any = None
    for op in ops:
        if op.opname.startswith("CALL"):
            return name if isinstance(name, str) else None
        if op.opname == "BINARY_OP":
            if op.argrepr not in ("|", "[]"):
                return None
        elif not op.opname.startswith(PLAIN):
            return None
        if name is None and op.opname.startswith("LOAD_"):
            name = op.argval if op.opname == "LOAD_CONST" else ops
    return None


# --- what senders are told -----------------------------------------------------------------------------------------------


def demand_signal(declared: Declaration, run_id: str, name: str, payload: bytes) -> None:
    """Raise unless a run of this workflow takes a signal of this name with this payload, or might."""
    told = Takes.read(declared)
    schema = told.signals.get(name)
    if schema is None:
        if not told.open:
            _refuse(told, declared, run_id, name)
        return
    what = f"signal {name!r} to run {run_id!r} of {declared.name}"
    try:
        value = msgspec.json.decode(payload)
    except msgspec.DecodeError as wrong:
        raise InvalidInput(f"{what}: it is not JSON: {wrong}") from None
    try:
        check(value, schema, what)
    except InvalidInput as wrong:
        raise InvalidInput(f"{wrong}: `{command(run_id, name, schema)}` would be right") from None


def _refuse(told: Takes, declared: Declaration, run_id: str, name: str) -> None:
    names = told.named or list(told.signals)
    if not names:
        raise UnknownSignal(
            f"run {run_id!r} takes no signal {name!r}: its workflow {declared.name} takes none"
        )
    closest = (difflib.get_close_matches(name, names, 1) or names)[0]
    more = ", …" if len(names) > SHOWN_MAX else ""
    raise UnknownSignal(
        f"run {run_id!r} takes no signal {name!r}: its workflow {declared.name} takes {', '.join(names[:SHOWN_MAX])}{more}: "
        f"`{command(run_id, closest, told.signals.get(closest, ANYTHING))}` would be right"
    )


def command(run_id: str, name: str, schema: Schema) -> str:
    """The line that sends it, as it can be pasted."""
    return f"holdfast signal {shlex.quote(run_id)} {shlex.quote(name)}{data_words(schema)}"
