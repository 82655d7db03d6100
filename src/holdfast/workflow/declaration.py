"""What code declares, written for processes that have the store and not the code: where names come from, schemas,
signals and updates.

Any code that has a `Signal` can wait for it, so a workflow may take every signal of its application. Those that its own
code names are certainly meant. A signal that cannot be seen here may still exist: where code makes up signals while it
runs, any name is accepted. All of this is true of updates, too.
"""

from __future__ import annotations

import difflib
import dis
import shlex
import sys
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from types import CodeType, FunctionType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from holdfast.codec.schema import ANYTHING, Schema, check, data_option, schema_of
from holdfast.environment import Environment
from holdfast.errors import DefinitionError, InvalidInput, RunError, UnknownSignal, UnknownUpdate
from holdfast.gathers import Gather
from holdfast.model import DEFAULT_NAMESPACE, ComposedRow, Declaration, NewSchedule, Trigger
from holdfast.namespaces import DEFAULT_ONLY, Namespaces, stored
from holdfast.store.events import write_triggers
from holdfast.store.occasions import write_composed
from holdfast.store.origins import Offers, Source
from holdfast.store.schedules import DeclaredSet
from holdfast.workflow import registry
from holdfast.workflow.reach import codes, is_authored, is_of, named_by
from holdfast.workflow.signal import Signal
from holdfast.workflow.step import Step, step
from holdfast.workflow.update import Update
from holdfast.workflow.workflow import Workflow, workflow

SIGNALS_MAX_BYTES = 64 * 1024
"""An application may have so many signals that their schemas take more than this. Then a workflow's row has the schemas
of those that its code names, and only the names of the rest."""
REACH_MAX = 500
"""How many functions are searched for the signals that a workflow names."""
SHOWN_MAX = 6
"""How many names an error lists."""


class TakenUpdates(msgspec.Struct, omit_defaults=True):
    """The updates that the runs of a workflow may serve."""

    signals: dict[str, Schema] = {}
    """The schema of what each takes. It accepts anything where the schema is not certain."""
    replies: dict[str, Schema] = {}
    """The schema of what each answers."""
    named: list[str] = []
    open: bool = False


class TakenSignals(msgspec.Struct, omit_defaults=True):
    """The signals and updates that the runs of a workflow take, as the column `workflows.signals` has them."""

    signals: dict[str, Schema] = {}
    """The schema of every signal of the application. It accepts anything where the schema is not certain."""
    named: list[str] = []
    """The signals that the workflow's own code names, as far as this can be seen."""
    open: bool = False
    """True if there may be others, because code makes them up."""
    updates: TakenUpdates = msgspec.field(default_factory=TakenUpdates)
    gather: Gather | None = None
    """How its starts are gathered, if they are."""
    due_s: float | None = None
    """Within what time its runs are promised to end, if they are."""

    @staticmethod
    def read(declared: Declaration) -> TakenSignals:
        return _decoder.decode(declared.signals)


_decoder = msgspec.json.Decoder(TakenSignals)


# --- what a node writes into the store --------------------------------------------------------------------------------


def session_of(environment: Environment) -> str:
    """Return the origin of code that is in no file, such as code in a notebook."""
    return f"a session on {environment.host} pid {environment.pid}"


def offered(
    roles: Collection[str], app: str | None, session: str, namespaces: Namespaces = DEFAULT_ONLY
) -> Offers:
    """Return what a node with these roles publishes. A scheduler says where its workflows come from. A scheduler and an
    agent say where their steps come from: the scheduler asks for them, and the agent executes them. Names are stored
    ones, in each of the node's namespaces."""
    sources: dict[Source, int] = {}

    def number(one: Step[Any, Any] | Workflow[Any, Any]) -> int:
        place = one.place
        source = Source(place.origin(app, session), place.digest(), place.file or "")
        return sources.setdefault(source, len(sources))

    known = [
        (one, registry.steps[one]) for one in sorted(registry.steps) if not registry.steps[one].elsewhere
    ]
    steps = [(stored_name, one) for name, one in known for stored_name in namespaces.each(name)]
    workflows = [(code, one) for one in registry.workflows.values() for code in namespaces.each(_code(one))]
    workflow_sources = [number(one) for _, one in workflows] if "scheduler" in roles else []
    uses_steps = "scheduler" in roles or "agent" in roles
    step_sources = [number(one) for _, one in steps] if uses_steps else []
    names = [code for code, _ in workflows]
    return Offers(
        names,
        [name for name, _ in steps],
        list(sources),
        workflow_sources,
        step_sources,
        list(namespaces.names),
    )


def declarations(app: str | None, session: str, namespaces: Namespaces = DEFAULT_ONLY) -> list[Declaration]:
    """Return the declaration of every workflow that is loaded here, in each of the node's namespaces."""
    signals = _signals(registry.edition(), registry.signals_made(), len(sys.modules), len(registry.workflows))
    return [
        Declaration(
            namespace,
            one.name,
            one.version,
            stored(None if namespaces.is_all else namespace, _code(one)),
            one.place.origin(app, session),
            one.place.digest(),
            *_schemas(one),
            signals[_code(one)],
        )
        for one in registry.workflows.values()
        for namespace in namespaces.names
    ]


def schedule_sets(app: str | None, session: str, namespaces: Namespaces = DEFAULT_ONLY) -> list[DeclaredSet]:
    """Return the sets of schedules that the modules here declare in each of the node's namespaces, also those that
    declare none: they may have had some. A module that is not loaded here says nothing. A node for all namespaces
    declares them in `default`."""
    lines: dict[str, list[NewSchedule]] = {}
    for namespace in (DEFAULT_NAMESPACE,) if namespaces.is_all else namespaces.names:
        for one in registry.workflows.values():
            lines.setdefault(_set_of(one, one.place.module, app, session, namespace), [])
        for line in registry.schedules.values():
            origin = _set_of(line.workflow, line.module, app, session, namespace)
            lines.setdefault(origin, []).append(_within(namespace, line.new(origin)))
    return [_declared_set(origin, DeclaredSet.write(found)) for origin, found in lines.items()]


def trigger_sets(app: str | None, session: str, namespaces: Namespaces = DEFAULT_ONLY) -> list[DeclaredSet]:
    """Return which events start the workflows here, as sets like those of schedules. Of several versions of a workflow,
    the newest is started."""
    lines: dict[str, dict[tuple[str, str], Trigger]] = {}
    for namespace in (DEFAULT_NAMESPACE,) if namespaces.is_all else namespaces.names:
        for one in sorted(registry.workflows.values(), key=lambda one: registry.version_key(one.version)):
            found = lines.setdefault(_set_of(one, one.place.module, app, session, namespace), {})
            found = {key: line for key, line in found.items() if key[1] != one.name}
            for kind in one.on:
                line = Trigger(namespace, kind, stored(namespace, one.name), one.version, one.event_parameter)
                found[kind, one.name] = line
            lines[_set_of(one, one.place.module, app, session, namespace)] = found
    return [_trigger_set(origin, write_triggers(found.values())) for origin, found in lines.items()]


def composed_sets(app: str | None, session: str, namespaces: Namespaces = DEFAULT_ONLY) -> list[DeclaredSet]:
    """Return the composed triggers that the modules here declare, as sets like those of schedules."""
    lines: dict[str, list[ComposedRow]] = {}
    for namespace in (DEFAULT_NAMESPACE,) if namespaces.is_all else namespaces.names:
        for one in registry.workflows.values():
            lines.setdefault(_set_of(one, one.place.module, app, session, namespace), [])
        for line in registry.composed.values():
            origin = _set_of(line.workflow, line.module, app, session, namespace)
            lines.setdefault(origin, []).append(line.new(namespace, origin))
    return [_composed_set(origin, write_composed(found)) for origin, found in lines.items()]


def _composed_set(origin: str, body: str) -> DeclaredSet:
    digest = blake2b(f"composed\0{origin}\0{body}".encode(), digest_size=8).hexdigest()
    return DeclaredSet(origin, digest, body)


def _trigger_set(origin: str, body: str) -> DeclaredSet:
    digest = blake2b(f"triggers\0{origin}\0{body}".encode(), digest_size=8).hexdigest()
    return DeclaredSet(origin, digest, body)


def _set_of(workflow: Workflow[Any, Any], module: str, app: str | None, session: str, namespace: str) -> str:
    """Return who declares the schedules of a module: the application, and the module in it."""
    return stored(namespace, f"{workflow.place.origin(app, session)} ({module})")


def _within(namespace: str, new: NewSchedule) -> NewSchedule:
    """Return a schedule of this namespace."""
    names = {"name": stored(namespace, new.name), "workflow": stored(namespace, new.workflow)}
    return msgspec.structs.replace(new, namespace=namespace, **names)


def _declared_set(origin: str, body: str) -> DeclaredSet:
    return DeclaredSet(origin, blake2b(f"{origin}\0{body}".encode(), digest_size=8).hexdigest(), body)


@lru_cache(maxsize=1)
def _signals(edition: int, signals: int, modules: int, workflows: int) -> dict[str, str]:
    """Return the signals that each workflow takes, as JSON. A node writes them whenever it registers, so they are
    cached until something more is declared."""
    return {_code(one): msgspec.json.encode(signals_of(one)).decode() for one in registry.workflows.values()}


def _code(workflow: Workflow[Any, Any]) -> str:
    return f"{workflow.name}@{workflow.version}"


_known: WeakKeyDictionary[Workflow[Any, Any], tuple[str, str]] = WeakKeyDictionary()


def _schemas(workflow: Workflow[Any, Any]) -> tuple[str, str]:
    """Return the schemas of a workflow's arguments and of its result."""
    known = _known.get(workflow)
    if known is None:
        try:
            kinds = workflow.shape.struct, workflow.shape.result.form.type
        except DefinitionError:  # the first run of this workflow reports it
            kinds = Any, Any  # type: ignore[assignment]  # a type made at run time, or none
        known = _text(schema_of(kinds[0])), _text(schema_of(kinds[1]))
        _known[workflow] = known
    return known


def _text(schema: Schema) -> str:
    return msgspec.json.encode(schema).decode()


# --- which signals a workflow takes -----------------------------------------------------------------------------------


def signals_of(workflow: Workflow[Any, Any]) -> TakenSignals:
    """Return the signals and updates that the runs of a workflow take."""
    made, application = _application_signals(registry.edition(), registry.signals_made(), len(sys.modules))
    updates_made, updates = _application_updates(
        registry.edition(), registry.signals_made(), len(sys.modules)
    )
    reached = list(_named(workflow.fn))
    named = _schemas_by_name(one for one in reached if is_of(one, Signal))
    served = _schemas_by_name(one for one in reached if is_of(one, Update))
    imports_more = _imports_more(workflow.fn)
    taken = TakenSignals({**application, **named}, sorted(named), made.open or imports_more)
    taken.gather = workflow.gather
    taken.due_s = workflow.due_s
    taken.updates = TakenUpdates({**updates, **served}, {}, sorted(served), updates_made.open or imports_more)
    taken.updates.replies = {
        **_reply_schemas(registry.updates),
        **_reply_schemas(one for one in reached if is_of(one, Update)),
    }
    if len(msgspec.json.encode(taken)) > SIGNALS_MAX_BYTES:
        taken.updates.replies = {}
        for part in (taken, taken.updates):
            assert isinstance(part, TakenSignals | TakenUpdates)
            part.signals = {
                name: schema if name in part.named else ANYTHING for name, schema in part.signals.items()
            }
    return taken


@lru_cache(maxsize=1)
def _application_signals(edition: int, signals: int, modules: int) -> tuple[MadeSignals, dict[str, Schema]]:
    """Return the signals that functions make, and the schema of every signal of the application. Where several signals
    have one name, nobody knows here which one is meant. The result changes with the registry, signals and imports."""
    made = _made_signals(Signal, edition, modules)
    return made, _of_application(made, registry.signals)


@lru_cache(maxsize=1)
def _application_updates(edition: int, signals: int, modules: int) -> tuple[MadeSignals, dict[str, Schema]]:
    """The same for updates."""
    made = _made_signals(Update, edition, modules)
    return made, _of_application(made, registry.updates)


def _of_application(
    made: MadeSignals, declared: Iterable[Signal[Any] | Update[Any, Any]]
) -> dict[str, Schema]:
    found: dict[str, Schema] = dict.fromkeys(sorted(made.names), ANYTHING)
    found.update(
        (name, ANYTHING if name in made.names else schema)
        for name, schema in _schemas_by_name(declared).items()
    )
    return found


def _schemas_by_name(declared: Iterable[Signal[Any] | Update[Any, Any]]) -> dict[str, Schema]:
    return _only_schemas((one.name, one.schema) for one in declared)


def _reply_schemas(declared: Iterable[Update[Any, Any]]) -> dict[str, Schema]:
    return _only_schemas((one.name, one.reply_schema) for one in declared)


def _only_schemas(named: Iterable[tuple[str, Schema]]) -> dict[str, Schema]:
    """Return the schema of each name. It accepts anything if there are several."""
    found: dict[str, dict[str, Schema]] = {}
    for name, schema in sorted(named, key=lambda one: one[0]):
        found.setdefault(name, {})[_text(schema)] = schema
    return {
        name: next(iter(schemas.values())) if len(schemas) == 1 else ANYTHING
        for name, schemas in found.items()
    }


def _named(fn: Any) -> Iterator[Any]:
    """Yield the signals and updates that a function names, and those that the functions it names do."""
    todo: list[Any] = [fn]
    seen: set[int] = set()
    while todo and len(seen) < REACH_MAX:
        one = todo.pop()
        if is_of(one, Signal, Update):
            yield one
        elif is_of(one, FunctionType) and id(one.__code__) not in seen and is_authored(one):
            seen.add(id(one.__code__))
            todo += named_by(one)
        elif type(one) in (dict, list, tuple, set, frozenset):
            inside = one.values() if type(one) is dict else one
            todo += [value for value in inside if is_of(value, Signal, Update, FunctionType)]


def _imports_more(fn: FunctionType | Any) -> bool:
    """True if the workflow imports a module when it runs that is not loaded yet: it may bring signals."""
    return any(
        op.opname == "IMPORT_NAME" and op.argval and op.argval not in sys.modules
        for code in codes(fn.__code__)
        for op in dis.get_instructions(code)
    )


class MadeSignals(NamedTuple):
    """Signals that functions make when they run, and that may not exist yet."""

    names: frozenset[str]
    """The names that are literals in the code."""
    open: bool
    """True if there are others, whose names the code makes up."""


@lru_cache(maxsize=2)
def _made_signals(kind: type, edition: int, modules: int) -> MadeSignals:
    """Search all modules that use Holdfast for signals, or for updates. The result changes with the registry and with
    each import."""
    ours = {
        id(Signal),
        id(Update),
        id(Step),
        id(Workflow),
        id(step),
        id(workflow),
        id(sys.modules["holdfast"]),
    }
    names: set[str] = set()
    is_open = False
    for module in list(sys.modules.values()):
        inside = getattr(module, "__dict__", None)
        if not isinstance(inside, dict) or str(inside.get("__name__")).partition(".")[0] == "holdfast":
            continue
        values = list(inside.values())
        if not any(id(value) in ours for value in values):
            continue
        aliases = {name for name, value in inside.items() if is_of(value, type) and kind in value.__mro__}
        for fn in _functions(values, inside):
            for code in codes(fn.__code__):
                if kind.__name__ in code.co_names or aliases & set(code.co_names):
                    made = _made_names(code, aliases | {kind.__name__})
                    is_open |= None in made
                    names |= {name for name in made if name is not None}
    return MadeSignals(frozenset(names), is_open)


def _functions(values: list[Any], inside: dict[str, Any]) -> Iterator[FunctionType]:
    """Yield the functions that are written in a module, including its methods, steps and workflows."""
    for value in values:
        found = [value]
        if is_of(value, type) and value.__module__ == inside.get("__name__"):
            found = list(vars(value).values())
        for one in found:
            fn = one
            if is_of(one, Step, Workflow):
                fn = one.fn
            elif is_of(one, staticmethod, classmethod):
                fn = one.__func__
            elif is_of(one, property):
                fn = one.fget
            if is_of(fn, FunctionType) and fn.__globals__ is inside:
                yield fn


BEFORE_CALL = ("LOAD_", "PUSH_NULL", "CACHE", "PRECALL", "KW_NAMES", "BINARY_SUBSCR", "COPY_FREE_VARS")
"""The instructions between loading `Signal` and calling it, if its name is a literal and its type consists of names."""


def _made_names(code: CodeType, aliases: set[str]) -> set[str | None]:
    """Return the names of the signals that this code makes. None stands for a name that is not a literal there."""
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
        elif not op.opname.startswith(BEFORE_CALL):
            return None
        if name is None and op.opname.startswith("LOAD_"):
            name = op.argval if op.opname == "LOAD_CONST" else ops
    return None


# --- checks for those who send signals and call updates --------------------------------------------------------------------------------


def check_signal(declared: Declaration, run_id: str, name: str, payload: bytes) -> None:
    """Raise unless a run of this workflow takes, or may take, a signal of this name with this payload."""
    _check(TakenSignals.read(declared), declared, run_id, name, payload)


def check_update(declared: Declaration, run_id: str, name: str, payload: bytes) -> None:
    """Raise unless a run of this workflow serves, or may serve, an update of this name with this payload."""
    _check(TakenSignals.read(declared).updates, declared, run_id, name, payload)


def _check(
    taken: TakenSignals | TakenUpdates, declared: Declaration, run_id: str, name: str, payload: bytes
) -> None:
    word = _word(taken)
    schema = taken.signals.get(name)
    if schema is None:
        if not taken.open:
            _refuse(taken, declared, run_id, name)
        return
    what = f"{word} {name!r} to run {run_id!r} of {declared.name}"
    try:
        value = msgspec.json.decode(payload)
    except msgspec.DecodeError as wrong:
        raise InvalidInput(f"{what}: the value is not JSON: {wrong}") from None
    try:
        check(value, schema, what)
    except InvalidInput as wrong:
        raise InvalidInput(f"{wrong}: try `{command(run_id, name, schema, word)}`") from None


def _word(taken: TakenSignals | TakenUpdates) -> str:
    return "update" if isinstance(taken, TakenUpdates) else "signal"


def _refuse(taken: TakenSignals | TakenUpdates, declared: Declaration, run_id: str, name: str) -> None:
    names, word = taken.named or list(taken.signals), _word(taken)
    unknown: type[RunError] = UnknownUpdate if word == "update" else UnknownSignal
    if not names:
        raise unknown(f"run {run_id!r} takes no {word} {name!r}: its workflow {declared.name} takes none")
    closest = (difflib.get_close_matches(name, names, 1) or names)[0]
    more = ", …" if len(names) > SHOWN_MAX else ""
    raise unknown(
        f"run {run_id!r} takes no {word} {name!r}: its workflow {declared.name} takes {', '.join(names[:SHOWN_MAX])}{more}: "
        f"try `{command(run_id, closest, taken.signals.get(closest, ANYTHING), word)}`"
    )


def command(run_id: str, name: str, schema: Schema, word: str = "signal") -> str:
    """Return the command that sends the signal, or calls the update, ready to be pasted."""
    return f"holdfast {word} {shlex.quote(run_id)} {shlex.quote(name)}{data_option(schema)}"
