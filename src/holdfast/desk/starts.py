"""Starts: a run as somebody asks for it, and what becomes of that.

An id in the namespace `acme` is stored as `acme//id`, and bare in `default` (see namespaces.py).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import msgspec

from holdfast import codec
from holdfast.access import Act, Identity
from holdfast.codec.schema import Schema, check, filled, members
from holdfast.codec.secret import demand_sealed
from holdfast.desk.filters import name_like
from holdfast.desk.known_runs import candidates
from holdfast.desk.opened import Opened
from holdfast.desk.workflows import LocalWorkflowDesk
from holdfast.errors import Conflict, DefinitionError, HoldfastError, InvalidInput, UnknownWorkflow
from holdfast.gathers import Gather
from holdfast.model import BY_TAG, DEFAULT_NAMESPACE, Declaration, NewRun
from holdfast.namespaces import shown, stored
from holdfast.store.answers import Answer
from holdfast.store.store import Store
from holdfast.workflow import options, registry
from holdfast.workflow.declaration import TakenSignals
from holdfast.workflow.workflow import Workflow

KEYED = "key~"
"""The id of a run that was started with a key begins with this."""
KEY_CHARS = 26


class StartRequest(msgspec.Struct, frozen=True):
    """A run as somebody asks for it. `input` is JSON: the arguments by name."""

    workflow: str
    input: bytes = b"{}"
    version: str | None = None
    """Without it, the newest that code has declared."""
    id: str | None = None
    key: str | None = None
    """Without an id, this makes one: the same key is the same run."""
    tags: Mapping[str, str] = {}
    priority: int | None = None
    timeout_s: float | None = None
    begin_at: float | None = None
    """The run begins at this time, or this many seconds after its start. Without both, it begins at once."""
    begin_in_s: float | None = None
    fair: str | None = None
    """Whom the run is for."""
    due_at: float | None = None
    """The run is promised to end by this time, or within this many seconds. Without both, its workflow decides."""
    due_in_s: float | None = None
    by_event: bool = False
    """Its one argument is the data of an event. To a workflow that starts in batches, this is one item."""


class Started(NamedTuple):
    run: str
    """The id that the store has."""
    new: bool
    """False if the same run had been started before."""


class StartDesk(Protocol):
    """What callers may ask about runs that do not exist yet."""

    async def start(self, who: Identity, request: StartRequest) -> Started: ...
    async def start_many(
        self, who: Identity, requested: Sequence[StartRequest]
    ) -> list[Started | HoldfastError]: ...


class LocalStartDesk:
    """A start desk that works on the store."""

    def __init__(self, hf: Opened, workflows: LocalWorkflowDesk) -> None:
        self._hf, self._workflows = hf, workflows

    @property
    def _store(self) -> Store:
        return self._hf.store

    async def start(self, who: Identity, request: StartRequest) -> Started:
        """Start a run in the namespace of the identity. The same id and input again is the same run. The same id with
        something else raises Conflict."""
        who.demand(Act.START)
        new = _started_by(who, await self.new_run(who, request))
        answer, run_id = await self._hf.caller.start_or_find(new)
        if answer is Answer.ACCEPTED:
            return Started(run_id, run_id == new.id)
        if run_id != new.id:
            return Started(run_id, False)
        row = await self._store.reads.run(new.id)
        if answer is Answer.FENCED or row is None or row.namespace != new.namespace:
            raise Conflict(
                f"run {shown(who.namespace, new.id)!r} exists and was started with another workflow or input: "
                "choose another id"
            )
        return Started(new.id, False)

    async def start_many(
        self, who: Identity, requested: Sequence[StartRequest]
    ) -> list[Started | HoldfastError]:
        """Start runs. Each is checked and answered by itself, and those that can be are committed together."""
        who.demand(Act.START)

        async def one(request: StartRequest) -> Started | HoldfastError:
            try:
                return await self.start(who, request)
            except HoldfastError as wrong:
                return wrong

        return list(await asyncio.gather(*(one(request) for request in requested)))

    async def new_run(self, who: Identity, request: StartRequest) -> NewRun:
        """Return a run as it would be started: its workflow is known, and its input is checked."""
        if request.input.lstrip()[:1] != b"{":
            raise InvalidInput("input: give an object with the arguments by their names")
        workflow, declared = await self._workflow_of(who, request)
        if workflow is not None:
            gather = workflow.gather
            raw = workflow.shape.from_json(_given(request, gather), self._hf.config.payload_max_bytes)
            name, version, priority, timeout_s, due_s = (
                workflow.name,
                workflow.version,
                workflow.priority,
                workflow.timeout_s,
                workflow.due_s,
            )
        else:
            assert declared is not None
            taken = TakenSignals.read(declared)
            gather, due_s = taken.gather, taken.due_s
            raw = self._by_schema(_given(request, gather), declared)
            name, version, priority, timeout_s = declared.name, declared.version, 0, None
        if request.priority is not None:
            try:
                priority = options.priority(request.priority, "priority")
            except DefinitionError as wrong:
                raise InvalidInput(str(wrong)) from None
        if gather is not None and (request.begin_at is not None or request.begin_in_s is not None):
            raise InvalidInput(f"{name} gathers its starts, and decides itself when its runs begin")
        try:
            fair = options.fair(request.fair, "fair")
            for what, at in (("begin_at", request.begin_at), ("due_at", request.due_at)):
                if at is not None:
                    options.in_calendar(at, what)
        except DefinitionError as wrong:
            raise InvalidInput(str(wrong)) from None
        if request.timeout_s is not None:
            timeout_s = request.timeout_s
        due_s = _due_s(request, due_s, timeout_s)
        namespace = who.namespace or DEFAULT_NAMESPACE
        limits = None if workflow is None else workflow.limits
        run_id = await self._start_id(who, request)
        if request.due_at is not None:
            await demand_ahead(self._store, run_id, request.due_at)
        return NewRun(
            run_id,
            stored(namespace, name),
            version,
            raw,
            codec.digest(raw),
            namespace=namespace,
            priority=priority,
            timeout_s=timeout_s,
            tags=codec.stored_tags(request.tags, "tags"),
            begin_at=request.begin_at,
            begin_in_s=request.begin_in_s,
            gather=None if gather is None else gather.of(stored(namespace, name), version, raw),
            fair=fair,
            limits=() if limits is None else limits.filled(namespace, fair, raw),
            full="wait" if limits is None else limits.full,
            due_at=request.due_at,
            due_in_s=due_s,
        )

    async def _start_id(self, who: Identity, request: StartRequest) -> str:
        if request.id is None:
            made = self._hf.environment.new_id()
            if request.key is not None:
                made = keyed_id(who.namespace, codec.stored_text(request.key, "key", 200))
            return stored(who.namespace, made)
        given = given_id(request.id, "id")
        first, *others = candidates(who, given)
        for other in others:  # it may be older than the walls
            row = await self._store.reads.run(other)
            if row is not None and who.sees(row.namespace):
                return other
        return first

    async def _workflow_of(
        self, who: Identity, request: StartRequest
    ) -> tuple[Workflow[Any, Any] | None, Declaration | None]:
        """Return the workflow if its code is loaded here, or else what some code has declared about it."""
        wanted, which = request.workflow, request.version
        loaded = [
            one
            for (name, version), one in (registry.workflows.items() if self._is_own_code(who) else ())
            if name == wanted and which in {None, version} and who.may_start(name)
        ]
        if loaded:
            return loaded[-1], None
        declared = [
            one
            for one in await self._workflows.declared(who)
            if one.name == wanted and which in {None, one.version} and who.may_start(one.name)
        ]
        if declared:
            return None, max(declared, key=lambda one: (one.first_at, one.version))
        known = {one.name for one in await self._workflows.declared(who) if who.may_start(one.name)}
        like = name_like(request.workflow, sorted(known - {request.workflow}))
        raise UnknownWorkflow(
            f"no workflow is called {request.workflow!r} here"
            + (f" in version {request.version!r}" if request.version is not None else "")
            + (
                f": did you mean {like!r}?"
                if like
                else ": start a process that has it with `holdfast up FILE`"
            )
        )

    def _is_own_code(self, who: Identity) -> bool:
        """True if the code that is loaded here is the code of the identity's namespace."""
        return (who.namespace or DEFAULT_NAMESPACE) in self._hf.namespaces

    def _by_schema(self, raw: bytes, declared: Declaration) -> bytes:
        """Check an input by the published schema, and return it as the code itself would write it."""
        demand_sealed(raw, declared.name)
        value = codec.read_json(raw, declared.name)
        assert isinstance(value, dict)
        schema = _schema(declared.input)
        known = members(schema)
        for name in value:
            if known is not None and name not in known:
                takes = ", ".join(f"`{one}`" for one in known) or "no parameters"
                raise InvalidInput(f"{declared.name}: unknown parameter `{name}`: it takes {takes}")
        check(value, schema, declared.name)
        made = msgspec.json.encode(filled(value, schema))
        if len(made) > self._hf.config.payload_max_bytes:
            raise InvalidInput(
                f"{declared.name}: {len(made):,} bytes are more than the {self._hf.config.payload_max_bytes:,} that an "
                "input may have"
            )
        return made


def _given(request: StartRequest, gather: Gather | None) -> bytes:
    """Return the arguments. What an event gives a batch is one item of it."""
    if not request.by_event or gather is None or not gather.parameter:
        return request.input
    ((name, item),) = msgspec.json.decode(request.input, type=dict[str, msgspec.Raw]).items()
    return msgspec.json.encode({name: [item]})


def _due_s(request: StartRequest, due_s: float | None, timeout_s: float | None) -> float | None:
    """Return within what time the run is due, if it is not due at a time. Raise InvalidInput if that cannot be."""
    if request.due_at is not None:
        if request.due_in_s is not None:
            raise InvalidInput("due_in_s: give due_in_s or due_at, not both")
        return None
    if request.due_in_s is not None:
        due_s = request.due_in_s
    try:
        options.check_due(due_s, timeout_s, "due_in_s")
    except DefinitionError as wrong:
        raise InvalidInput(str(wrong)) from None
    return due_s


async def demand_ahead(store: Store, run_id: str, due_at: float) -> None:
    """Raise InvalidInput if a run that does not exist yet is due at a time that has passed. The same start again, after that
    time, is still the same run."""
    if due_at <= await store.now() and await store.reads.run(run_id) is None:
        raise InvalidInput("due_at: this time has passed already: give a later one")


def keyed_id(namespace: str | None, key: str) -> str:
    """Return the id of the run that is started with this key. It needs no table: the same key finds the same run on
    every server, for as long as the run is kept."""
    made = hashlib.sha256(f"{namespace or DEFAULT_NAMESPACE}\0{key}".encode()).digest()
    return KEYED + base64.b32encode(made).decode().lower()[:KEY_CHARS]


def _started_by(who: Identity, new: NewRun) -> NewRun:
    """Return the run with a tag that says which person starts it, if that is known."""
    return new if who.person is None else msgspec.structs.replace(new, tags={**new.tags, BY_TAG: who.person})


def given_id(given: str, what: str) -> str:
    """Check an id that somebody gives a run."""
    try:
        options.run_id(given, what)
    except DefinitionError as wrong:
        raise InvalidInput(str(wrong)) from None
    return given


@lru_cache(maxsize=1000)
def _schema(text: str) -> Schema:
    """Return a published schema, which is not changed. Many starts are checked by one."""
    found: Schema = msgspec.json.decode(text)
    return found
