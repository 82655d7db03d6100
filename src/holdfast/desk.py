"""What callers and operators may ask: one protocol, one method an act, each with the identity of who asks.

Python (`run.cancel()`), the command line and the server all ask a desk, so an act means the same everywhere.
`LocalDesk` does it on the store. Every method first asks whether the role of the identity may do this, and then whether
the run is in the identity's namespace. A run in another namespace is unknown, like one that does not exist.

An id in the namespace `acme` is stored as `acme//id`, and bare in `default` (see namespaces.py). What the desk returns has
the names that the identity sees.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec

from holdfast import codec, edits
from holdfast.access import Act, Identity, Kind, Role
from holdfast.caller import Caller
from holdfast.codec.schema import Schema, check, data_option, filled, members
from holdfast.config import Config
from holdfast.durations import Eta
from holdfast.environment import Environment
from holdfast.errors import (
    Conflict,
    DefinitionError,
    Forbidden,
    HoldfastError,
    InvalidInput,
    Refused,
    UnknownAct,
    UnknownRun,
    UnknownWorkflow,
    UpdateFailed,
    UpdateTimeout,
    WrongState,
)
from holdfast.filters import demand_workflow, within_namespace
from holdfast.gates import Gates, Placed
from holdfast.lifecycle import RUN_ENDED
from holdfast.logs import LogFilter, LogInfo, LogTake, in_time
from holdfast.model import (
    DEFAULT_NAMESPACE,
    UPDATE_PREFIX,
    ActRow,
    ActRun,
    Alert,
    Answered,
    Attempt,
    Breaker,
    BreakerState,
    Declaration,
    Delivery,
    Hold,
    HoldScope,
    JournalEntry,
    Lane,
    LeaderLease,
    NewRun,
    NewSignal,
    NewToken,
    Poison,
    RunRow,
    RunState,
    SignalRow,
    StepKind,
    StepRow,
    TokenRow,
)
from holdfast.namespaces import ALL, Namespaces, bare, namespace_of, shown, shown_row, shown_text, stored
from holdfast.store.answers import Answer, Backlog, UpdateEnd
from holdfast.store.bell import Bell
from holdfast.store.forks import Forked, ForkRequest
from holdfast.store.reads import RunFilter
from holdfast.store.store import Store
from holdfast.supervisor.alerts import in_words
from holdfast.supervisor.facts import SignalsDeclared, gather
from holdfast.supervisor.health import NodeHealth, examine
from holdfast.supervisor.outlook import Outlook, etas, outlook
from holdfast.supervisor.why import explain
from holdfast.workflow import options, registry
from holdfast.workflow.declaration import TakenSignals, check_signal, check_update
from holdfast.workflow.workflow import Workflow

if TYPE_CHECKING:
    from holdfast.access.tokens import Token
    from holdfast.graph.graph import Graph
    from holdfast.timetable import LocalScheduleDesk, ScheduleDesk, ScheduleRequest

WHOLE_STORE = ""
"""The namespace of alerts and entries of the journal that are about the store as a whole."""
KEYED = "key~"
"""The id of a run that was started with a key begins with this."""
KEY_CHARS = 26
PAGE = 1000
WORKFLOWS_MAX = 1000
"""How many declarations are read to find one by its name."""
NAMESPACES_MAX = 1000
"""Of how many namespaces declarations are remembered."""
DECLARED_S = 1.0
"""For how long the declarations in the store are remembered: a start need not read them again."""
LOOK_S, LOOK_MAX_S = 0.25, 2.0
"""How soon a wait looks again at a run that has not ended, at first and at last."""

Resolve = Literal["release", "skip", "fail"]


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


class Started(NamedTuple):
    run: str
    """The id that the store has."""
    new: bool
    """False if the same run had been started before."""


class AlertSeen(NamedTuple):
    alert: Alert
    words: str
    """The alert as one line."""
    deliveries: list[Delivery]


class LaneSeen(NamedTuple):
    lane: Lane
    backlog: Backlog


Health = NodeHealth
"""How a node is doing."""
Ahead = Outlook
"""What earlier durations say about a run."""


class AgentsSeen(NamedTuple):
    nodes: list[Health]
    lease: LeaderLease | None
    """The lease of the node that leads. None if nobody does."""
    now: float
    """The store's time."""

    @property
    def leader(self) -> str | None:
        return None if self.lease is None else self.lease.node


class TokenMade(NamedTuple):
    token: TokenRow
    secret: str
    """The token's text, which nobody can read again."""


class Opened(Protocol):
    """The Holdfast that a desk works for."""

    config: Config
    environment: Environment
    namespaces: Namespaces

    @property
    def caller(self) -> Caller: ...

    @property
    def store(self) -> Store: ...

    @property
    def namespace(self) -> str | None: ...


class Desk(Protocol):
    """What callers and operators may ask. `run` is an id as the identity sees it."""

    # callers
    async def start(self, who: Identity, request: StartRequest) -> Started: ...
    async def start_many(
        self, who: Identity, requests: Sequence[StartRequest]
    ) -> list[Started | HoldfastError]: ...
    async def signal(self, who: Identity, run: str, name: str, payload: bytes, key: str | None) -> bool: ...
    async def update(
        self, who: Identity, run: str, name: str, payload: bytes, key: str | None, wait_s: float | None
    ) -> bytes: ...

    # readers
    async def now(self, who: Identity) -> float: ...
    async def signals(self, who: Identity, run: str) -> list[SignalRow]: ...
    async def started_runs(self, who: Identity, run: str) -> list[RunRow]: ...
    async def log_counts(self, who: Identity, run: str) -> dict[int, int]: ...
    async def outlook(self, who: Identity, run: RunRow, steps: Sequence[StepRow]) -> Outlook: ...
    async def etas(self, who: Identity, runs: Sequence[RunRow]) -> dict[str, Eta]: ...
    async def demand_workflow(self, who: Identity, name: str) -> None: ...
    async def runs(self, who: Identity, where: RunFilter) -> list[RunRow]: ...
    async def counts(self, who: Identity) -> dict[str, int]: ...
    async def run(self, who: Identity, run: str) -> RunRow: ...
    async def run_after(self, who: Identity, run: str, mark: str, wait_s: float) -> RunRow: ...
    async def ended(self, who: Identity, runs: Sequence[str], wait_s: float) -> list[RunRow]: ...
    async def steps(self, who: Identity, run: str, after: int, limit: int) -> list[StepRow]: ...
    async def step(self, who: Identity, run: str, n: int) -> StepRow: ...
    async def attempts(self, who: Identity, run: str) -> list[Attempt]: ...
    async def journal_of(self, who: Identity, run: str, limit: int) -> list[JournalEntry]: ...
    async def children(self, who: Identity, run: str) -> list[RunRow]: ...
    async def why(self, who: Identity, run: str) -> str: ...
    async def logs(self, who: Identity, run: str, where: LogFilter, limit: int) -> list[LogInfo]: ...
    async def graph(self, who: Identity, run: str) -> Graph: ...
    async def workflows(self, who: Identity) -> list[Declaration]: ...
    async def workflow(self, who: Identity, name: str) -> list[Declaration]: ...

    # operators, about one run
    async def cancel(self, who: Identity, run: str, note: str = "", *, force: bool = False) -> RunState: ...
    async def hold(self, who: Identity, run: str, note: str = "") -> RunState: ...
    async def release(self, who: Identity, run: str, note: str = "") -> RunState: ...
    async def retry(self, who: Identity, run: str) -> str: ...
    async def skip(self, who: Identity, run: str, step: str | None = None, note: str = "") -> RunState: ...
    async def fork(
        self,
        who: Identity,
        run: str,
        start: str | None = None,
        input: Any = None,
        results: Mapping[str, Any] | None = None,
        new_id: str | None = None,
    ) -> Forked: ...

    @property
    def schedules(self) -> ScheduleDesk: ...

    # operators, about the store
    async def agents(self, who: Identity, *, everything: bool = False) -> AgentsSeen: ...
    async def lanes(self, who: Identity) -> list[LaneSeen]: ...
    async def holds(self, who: Identity) -> list[Hold]: ...
    async def add_hold(self, who: Identity, scope: HoldScope, value: str, note: str = "") -> Placed: ...
    async def remove_hold(self, who: Identity, scope: HoldScope, value: str, note: str = "") -> Hold: ...
    async def breakers(self, who: Identity) -> list[Breaker]: ...
    async def force_breaker(
        self, who: Identity, name: str, state: BreakerState, note: str = ""
    ) -> Breaker: ...
    async def reset_breaker(self, who: Identity, name: str, note: str = "") -> Breaker: ...
    async def quarantine(self, who: Identity) -> list[Poison]: ...
    async def resolve(
        self, who: Identity, act: Resolve, fingerprint: str, *, note: str = "", result: Any = None
    ) -> int: ...
    async def alerts(self, who: Identity, *, everything: bool, limit: int) -> list[AlertSeen]: ...
    async def clear_alert(self, who: Identity, alert: int) -> bool: ...
    async def journal(self, who: Identity, limit: int) -> list[JournalEntry]: ...
    async def quarantined(self, who: Identity, run: str) -> set[str]: ...
    async def resolve_steps(
        self,
        who: Identity,
        act: Resolve,
        fingerprint: str | None = None,
        *,
        run_id: str | None = None,
        note: str = "",
        result: Any = None,
        progress: Callable[[int], None] | None = None,
    ) -> int: ...

    # acts on many runs
    async def act(self, who: Identity, act: str) -> ActRow: ...
    async def acts(self, who: Identity, limit: int) -> list[ActRow]: ...
    async def stop_act(self, who: Identity, act: str) -> bool: ...
    async def act_runs(
        self, who: Identity, act: str, fates: Sequence[str], after: str, limit: int
    ) -> list[ActRun]: ...

    # tokens
    async def tokens(self, who: Identity, limit: int) -> list[TokenRow]: ...
    async def create_token(self, who: Identity, new: NewToken) -> TokenMade: ...
    async def rotate_token(
        self, who: Identity, token: str, grace_s: float, expires_s: float | None
    ) -> TokenMade: ...
    async def revoke_token(self, who: Identity, token: str) -> bool: ...


# --- ids ----------------------------------------------------------------------------------------------------------


shown_id = shown
"""Returns an id as those in the namespace see it."""


def keyed_id(namespace: str | None, key: str) -> str:
    """Return the id of the run that is started with this key. It needs no table: the same key finds the same run on
    every server, for as long as the run is kept."""
    made = hashlib.sha256(f"{namespace or DEFAULT_NAMESPACE}\0{key}".encode()).digest()
    return KEYED + base64.b32encode(made).decode().lower()[:KEY_CHARS]


def mark_of(run: RunRow) -> str:
    """Return a digest that changes when what is shown of the run changes."""
    shown = msgspec.structs.replace(run, owner=None, fence=0, digest=b"")
    return hashlib.blake2b(msgspec.json.encode(shown), digest_size=12).hexdigest()


def may_exist(run_id: object) -> bool:
    """True if a store can be asked for this id: it must be a text that both dialects can store."""
    try:
        return isinstance(run_id, str) and b"\0" not in run_id.encode()
    except UnicodeEncodeError:
        return False


def _new_id(given: str, what: str) -> str:
    """Check an id that somebody gives a run."""
    try:
        options.run_id(given, what)
    except DefinitionError as wrong:
        raise InvalidInput(str(wrong)) from None
    return given


class LocalDesk:
    """A desk that works on the store."""

    def __init__(self, hf: Opened) -> None:
        self._hf = hf
        self.leaving = asyncio.Event()
        """Set when the process is about to leave. Everybody who waits here gets an answer then."""
        self._declared: dict[str | None, tuple[float, list[Declaration]]] = {}
        """What code has declared in each namespace, and when that was read."""

    @property
    def _store(self) -> Store:
        return self._hf.store

    @cached_property
    def schedules(self) -> LocalScheduleDesk:
        """What may be asked about schedules."""
        from holdfast.timetable import LocalScheduleDesk  # noqa: PLC0415  few programs need it

        return LocalScheduleDesk(
            lambda: self._hf.store,
            lambda who, name: stored(who.namespace, name),
            self._scheduled_run,
            self._ring,
            self._hf.environment.new_id,
        )

    def _ring(self, *bells: Bell) -> None:
        for bell in bells:
            self._hf.caller.ring(bell)

    # --- whose run is it ----------------------------------------------------------------------------------------------

    async def _row(self, who: Identity, run: str) -> RunRow:
        """Return the run. A run in another namespace is unknown."""
        if may_exist(run):
            for stored in _candidates(who, run):
                row = await self._store.reads.run(stored)
                if row is not None and who.sees(row.namespace):
                    return row
        raise UnknownRun.of(run)

    async def _known(self, who: Identity, run: str) -> str:
        """Return the id that the store has for the run."""
        return (await self._row(who, run)).id

    async def _named(self, who: Identity, run: str) -> str:
        """Return the id that the store has for the run. For a program on the store, the act itself finds out whether
        there is such a run."""
        if not may_exist(run):
            raise UnknownRun.of(run)
        if who.kind is not Kind.LOCAL:
            return (await self._row(who, run)).id
        found = stored(who.namespace, run)
        if who.namespace is not None and namespace_of(found) != who.namespace:
            raise UnknownRun.of(run)
        return found

    # --- starting -----------------------------------------------------------------------------------------------------

    async def start(self, who: Identity, request: StartRequest) -> Started:
        """Start a run in the namespace of the identity. The same id and input again is the same run. The same id with
        something else raises Conflict."""
        who.demand(Act.START)
        new = await self._new_run(who, request)
        answer = await self._hf.caller.start_run(new)
        if answer is Answer.ACCEPTED:
            return Started(new.id, True)
        row = await self._store.reads.run(new.id)
        if answer is Answer.FENCED or row is None or row.namespace != new.namespace:
            raise Conflict(
                f"run {shown(who.namespace, new.id)!r} exists and was started with another workflow or input: "
                "choose another id"
            )
        return Started(new.id, False)

    async def start_many(
        self, who: Identity, requests: Sequence[StartRequest]
    ) -> list[Started | HoldfastError]:
        """Start runs. Each is checked and answered by itself, and those that can be are committed together."""
        who.demand(Act.START)

        async def one(request: StartRequest) -> Started | HoldfastError:
            try:
                return await self.start(who, request)
            except HoldfastError as wrong:
                return wrong

        return list(await asyncio.gather(*(one(request) for request in requests)))

    async def _new_run(self, who: Identity, request: StartRequest) -> NewRun:
        if request.input.lstrip()[:1] != b"{":
            raise InvalidInput("input: give an object with the arguments by their names")
        workflow, declared = await self._workflow_of(who, request)
        if workflow is not None:
            raw = workflow.shape.from_json(request.input, self._hf.config.payload_max_bytes)
            name, version, priority, timeout_s = (
                workflow.name,
                workflow.version,
                workflow.priority,
                workflow.timeout_s,
            )
        else:
            assert declared is not None
            raw = self._by_schema(request.input, declared)
            name, version, priority, timeout_s = declared.name, declared.version, 0, None
        if request.priority is not None:
            try:
                priority = options.whole_number(request.priority, "priority")
            except DefinitionError as wrong:
                raise InvalidInput(str(wrong)) from None
        namespace = who.namespace or DEFAULT_NAMESPACE
        return NewRun(
            await self._start_id(who, request),
            stored(namespace, name),
            version,
            raw,
            codec.digest(raw),
            namespace=namespace,
            priority=priority,
            timeout_s=request.timeout_s if request.timeout_s is not None else timeout_s,
            tags=codec.stored_tags(request.tags, "tags"),
        )

    async def _scheduled_run(self, who: Identity, request: ScheduleRequest) -> NewRun:
        """Return a run as a schedule would start it, but for its id."""
        start = StartRequest(
            request.workflow,
            request.input,
            request.version,
            tags=request.tags,
            priority=request.priority,
            timeout_s=request.timeout_s,
        )
        return await self._new_run(who, start)

    async def _start_id(self, who: Identity, request: StartRequest) -> str:
        if request.id is None:
            made = self._hf.environment.new_id()
            if request.key is not None:
                made = keyed_id(who.namespace, codec.stored_text(request.key, "key", 200))
            return stored(who.namespace, made)
        given = _new_id(request.id, "id")
        first, *others = _candidates(who, given)
        for other in others:  # it may be older than the walls
            row = await self._store.reads.run(other)
            if row is not None and who.sees(row.namespace):
                return other
        return first

    async def _workflow_of(
        self, who: Identity, request: StartRequest
    ) -> tuple[Workflow[Any, Any] | None, Declaration | None]:
        """Return the workflow if its code is loaded here, or else what some code has declared about it."""
        loaded = [
            one
            for (name, version), one in registry.workflows.items()
            if self._is_own_code(who) and _fits(name, version, request) and who.may_start(name)
        ]
        if loaded:
            return loaded[-1], None
        declared = [
            one
            for one in await self._declarations(who)
            if _fits(one.name, one.version, request) and who.may_start(one.name)
        ]
        if declared:
            return None, max(declared, key=lambda one: (one.first_at, one.version))
        raise UnknownWorkflow(
            f"no workflow is called {request.workflow!r} here"
            + (f" in version {request.version!r}" if request.version is not None else "")
            + ": start a process that has it with `holdfast up FILE`"
        )

    def _is_own_code(self, who: Identity) -> bool:
        """True if the code that is loaded here is the code of the identity's namespace."""
        return (who.namespace or DEFAULT_NAMESPACE) in self._hf.namespaces

    async def _declarations(self, who: Identity) -> list[Declaration]:
        """Return what code has declared in the namespace of the identity."""
        now = self._hf.environment.monotonic()
        read_at, found = self._declared.get(who.namespace, (float("-inf"), []))
        if now > read_at + DECLARED_S:
            if len(self._declared) > NAMESPACES_MAX:
                self._declared.clear()
            found = await self._store.workflows.workflows(WORKFLOWS_MAX, who.namespace)
            self._declared[who.namespace] = self._hf.environment.monotonic(), found
        return found

    def _by_schema(self, raw: bytes, declared: Declaration) -> bytes:
        """Check an input by the published schema, and return it as the code itself would write it."""
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

    # --- signals and updates ------------------------------------------------------------------------------------------

    async def signal(self, who: Identity, run: str, name: str, payload: bytes, key: str | None) -> bool:
        """Send a signal whose value is already encoded. Return False if it was sent before under this key. Raise
        UnknownSignal if the run's workflow takes no such signal, by what its code declares, or InvalidInput if the
        value does not fit."""
        who.demand(Act.START)
        stored = await self._named(who, run)
        _demand_name(name, "the name of a signal")
        await self._hf.caller.declare()
        declared = await self._store.workflows.declared(stored)
        if declared is not None:
            check_signal(declared, stored, name, payload)
        answer = await self._store.operators.send_signal(
            NewSignal(
                stored,
                name,
                codec.stored_text(key, "the key of a signal") if key else self._hf.environment.new_id(),
                payload,
            )
        )
        if answer is Answer.FENCED:
            raise WrongState(f"run {stored!r} has ended and takes no signals")
        self._ring(Bell.OUTCOMES)
        return answer is Answer.ACCEPTED

    async def update(
        self, who: Identity, run: str, name: str, payload: bytes, key: str | None, wait_s: float | None
    ) -> bytes:
        """Call an update whose value is already encoded, and return its answer. Raise UnknownUpdate if the run's
        workflow has no such update, by what its code declares, or InvalidInput if the value does not fit."""
        row = await self.send_update(who, run, name, payload, key)
        end = None if row.answer is None else UpdateEnd(row.id, row.answer, row.reply, None)
        if end is None:
            try:
                async with asyncio.timeout(wait_s):
                    end = await self._answered(row.id)
            except TimeoutError:
                raise UpdateTimeout(await self._no_answer(row, name)) from None
        return answer_of(end, row.run_id, name)

    async def send_update(
        self, who: Identity, run: str, name: str, payload: bytes, key: str | None
    ) -> SignalRow:
        """Record a call of an update, and return its row."""
        who.demand(Act.START)
        stored = await self._named(who, run)
        _demand_name(name, "the name of an update")
        await self._hf.caller.declare()
        declared = await self._store.workflows.declared(stored)
        if declared is not None:
            check_update(declared, stored, name, payload)
        key = codec.stored_text(key, "the key of an update") if key else self._hf.environment.new_id()
        named = UPDATE_PREFIX + name
        answer = await self._store.operators.send_signal(NewSignal(stored, named, key, payload))
        row = await self._store.reads.sent_update(stored, named, key)
        if row is None:
            ended = f"run {stored!r} has ended and serves no updates"
            raise WrongState(ended) if answer is Answer.FENCED else UnknownRun.of(stored)
        if answer is not Answer.ACCEPTED and not codec.is_same_json(row.payload, payload):
            raise Conflict(
                f"the update {name!r} of run {stored!r} was called with another value under the key {key!r}: "
                "a new call needs a new key"
            )
        self._ring(Bell.OUTCOMES)
        return row

    async def _answered(self, id: int) -> UpdateEnd:
        """Wait for the answer to an update. Raise TimeoutError if this process leaves meanwhile."""
        watcher = self._hf.caller.watch_update(id)
        leave: asyncio.Future[Any] = asyncio.ensure_future(self.leaving.wait())
        try:
            await asyncio.wait([watcher, leave], return_when=asyncio.FIRST_COMPLETED)
            if not watcher.done():
                raise TimeoutError
            if watcher.cancelled():
                raise HoldfastError(
                    "this Holdfast was closed while this call waited for the answer to an update"
                )
            return watcher.result()
        finally:
            leave.cancel()
            watcher.cancel()

    async def _no_answer(self, row: SignalRow, name: str) -> str:
        """Say why an update has no answer yet, and what to do."""
        run = await self._store.reads.run(row.run_id)
        state = "gone" if run is None else run.state
        what = f"the update {name!r} of run {row.run_id!r} is recorded under the key {row.key!r} and has no answer yet"
        if state == RunState.HELD:
            return f"{what}: the run is held; the update is answered once `holdfast release {row.run_id}` lets it go on"
        return f"{what}: the run is {state}, and `holdfast why {row.run_id}` says what it waits for; call again with this key"

    # --- reading ------------------------------------------------------------------------------------------------------

    async def now(self, who: Identity) -> float:
        """Return the store's time."""
        return await self._store.now()

    async def signals(self, who: Identity, run: str) -> list[SignalRow]:
        """Return what was sent to the run: signals, updates, requests to cancel."""
        who.demand(Act.READ)
        return await self._store.reads.signals(await self._known(who, run))

    async def started_runs(self, who: Identity, run: str) -> list[RunRow]:
        """Return the runs that this one started, and that are not its children."""
        who.demand(Act.READ)
        found = await self._store.reads.started_runs(await self._known(who, run))
        return [shown_row(who.namespace, row) for row in found if who.sees(row.namespace)]

    async def log_counts(self, who: Identity, run: str) -> dict[int, int]:
        """Return how many lines each step has logged that are kept. 0 is the workflow's own code."""
        who.demand(Act.READ)
        return await self._store.reads.log_counts(await self._known(who, run))

    async def outlook(self, who: Identity, run: RunRow, steps: Sequence[StepRow]) -> Outlook:
        """Return what earlier durations say about a run whose steps the caller has read."""
        who.demand(Act.READ)
        run, steps = stored_run(who.namespace, run), stored_steps(who.namespace, steps)
        return (await outlook(self._store, run, steps, self._hf.config)).shown(who.namespace)

    async def etas(self, who: Identity, runs: Sequence[RunRow]) -> dict[str, Eta]:
        """Return when each of these runs will probably end, by its id."""
        who.demand(Act.READ)
        found = await etas(self._store, [stored_run(who.namespace, run) for run in runs])
        return {shown(who.namespace, run_id): eta for run_id, eta in found.items()}

    async def demand_workflow(self, who: Identity, name: str) -> None:
        """Raise UnknownWorkflow if no run has this workflow, and no code has declared it."""
        who.demand(Act.READ)
        await demand_workflow(self._store, name, who.namespace)

    async def runs(self, who: Identity, where: RunFilter) -> list[RunRow]:
        """Return runs, newest first: those of the identity's namespace that fit the filter."""
        who.demand(Act.READ)
        found = await self._store.reads.runs(within_namespace(where, who.namespace))
        return [shown_row(who.namespace, row) for row in found]

    async def counts(self, who: Identity) -> dict[str, int]:
        who.demand(Act.READ)
        return await self._store.reads.runs_by_state(who.namespace)

    async def run(self, who: Identity, run: str) -> RunRow:
        who.demand(Act.FOLLOW)
        return shown_row(who.namespace, await self._row(who, run))

    async def run_after(self, who: Identity, run: str, mark: str, wait_s: float) -> RunRow:
        """Return the run as soon as its mark is another one, or after `wait_s` as it is then."""
        row, pause_s = await self.run(who, run), LOOK_S
        until = self._hf.environment.monotonic() + wait_s
        while mark_of(row) == mark and row.state not in RUN_ENDED:
            left_s = until - self._hf.environment.monotonic()
            if left_s <= 0 or self.leaving.is_set():
                break
            await self._pause([stored(who.namespace, row.id)], min(pause_s, left_s))
            row, pause_s = await self.run(who, run), min(pause_s * 1.5, LOOK_MAX_S)
        return row

    async def ended(self, who: Identity, runs: Sequence[str], wait_s: float) -> list[RunRow]:
        """Return those of these runs that have ended or are stuck, once there is one, or after `wait_s`. A run that
        does not exist is like one that does not end."""
        who.demand(Act.FOLLOW)
        wanted = [stored for run in runs if may_exist(run) for stored in _candidates(who, run)]
        until = self._hf.environment.monotonic() + wait_s
        watched = list(wanted)
        while True:
            found = [row for row in await self._store.reads.ended_runs(wanted) if who.sees(row.namespace)]
            left_s = until - self._hf.environment.monotonic()
            if found or left_s <= 0 or self.leaving.is_set():
                return [shown_row(who.namespace, row) for row in found]
            done = await self._pause(watched, left_s)
            watched = [stored for stored in watched if stored not in done]

    async def _pause(self, runs: Sequence[str], seconds: float) -> set[str]:
        """Wait until one of these runs has ended, for at most so long. Return those that have ended or do not exist."""
        watchers: dict[str, asyncio.Future[Any]] = {run: self._hf.caller.watch_end(run) for run in runs}
        leave: asyncio.Future[Any] = asyncio.ensure_future(self.leaving.wait())
        try:
            await asyncio.wait(
                [*watchers.values(), leave], timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            return {run for run, watcher in watchers.items() if watcher.done()}
        finally:
            leave.cancel()
            for watcher in watchers.values():
                watcher.cancel()

    async def steps(self, who: Identity, run: str, after: int, limit: int) -> list[StepRow]:
        who.demand(Act.READ)
        found = await self._store.reads.steps(await self._known(who, run), after=after, limit=limit)
        return [shown_row(who.namespace, row) for row in found]

    async def step(self, who: Identity, run: str, n: int) -> StepRow:
        found = await self.steps(who, run, n - 1, 1)
        if not found or found[0].n != n:
            raise UnknownRun(f"run {run!r} has no step {n}")
        return found[0]

    async def _all_steps(self, stored: str) -> list[StepRow]:
        found: list[StepRow] = []
        while True:
            page = await self._store.reads.steps(stored, after=found[-1].n if found else 0, limit=PAGE)
            found += page
            if len(page) < PAGE:
                return found

    async def attempts(self, who: Identity, run: str) -> list[Attempt]:
        who.demand(Act.READ)
        found = await self._store.reads.attempts(await self._known(who, run))
        return [shown_row(who.namespace, row) for row in found]

    async def journal_of(self, who: Identity, run: str, limit: int) -> list[JournalEntry]:
        who.demand(Act.READ)
        return _entries(who, await self._store.reads.journal(await self._known(who, run), limit))

    async def children(self, who: Identity, run: str) -> list[RunRow]:
        who.demand(Act.READ)
        found = await self._store.reads.children(await self._known(who, run))
        return [shown_row(who.namespace, row) for row in found if who.sees(row.namespace)]

    async def why(self, who: Identity, run: str) -> str:
        """Say in a sentence or two what the run waits for, and what would move it."""
        who.demand(Act.READ)
        row = await self._row(who, run)
        steps, attempts = await self._all_steps(row.id), await self._store.reads.attempts(row.id)
        declared = await self._signals_declared(row.id)
        facts = await gather(self._store, row, steps, attempts, self._hf.config, declared)
        return shown_text(who.namespace, explain(facts))

    async def _signals_declared(self, stored: str) -> SignalsDeclared | None:
        declared = await self._store.workflows.declared(stored)
        if declared is None:
            return None
        taken = TakenSignals.read(declared)
        data = {name: data_option(schema) for name, schema in taken.signals.items()}
        updates = {name: data_option(schema) for name, schema in taken.updates.signals.items()}
        return SignalsDeclared(data, frozenset(taken.named), taken.open, updates)

    async def logs(self, who: Identity, run: str, where: LogFilter, limit: int) -> list[LogInfo]:
        """Return what the run and its steps have logged, in the order of time, at most `limit` lines."""
        who.demand(Act.READ)
        if not who.payloads:
            raise Forbidden("this token sees no payloads, and log lines may have parts of them")
        stored, take, found = await self._known(who, run), LogTake(), []
        keys = {step.n: step.key for step in await self._all_steps(stored)}
        async for logged in in_time(self._store.reads, stored, take):
            if where.fits(logged):
                found.append(logged.info(keys))
                if len(found) >= limit:
                    break
        return found

    async def graph(self, who: Identity, run: str) -> Graph:
        """Return the graph of the run's workflow, with the way of the run in it. The code must be loaded here."""
        who.demand(Act.READ)
        row = await self._row(who, run)
        name = bare(row.workflow)
        workflow = (
            registry.workflows.get((name, row.version)) if row.namespace in self._hf.namespaces else None
        )
        if workflow is None:
            raise WrongState(
                f"the code of {name} version {row.version} is not loaded here: start the server with its file, "
                "`holdfast server FILE`"
            )
        from holdfast.graph import graph_of, with_run  # noqa: PLC0415  reads source, which few need

        steps = [shown_row(row.namespace, step) for step in await self._all_steps(row.id)]
        return with_run(graph_of(workflow), row, steps)

    async def workflows(self, who: Identity) -> list[Declaration]:
        who.demand(Act.READ_WORKFLOWS)
        return [one for one in await self._declarations(who) if who.may_start(one.name)]

    async def workflow(self, who: Identity, name: str) -> list[Declaration]:
        """Return the declarations of all versions of a workflow, the newest first."""
        found = [one for one in await self.workflows(who) if one.name == name]
        if not found:
            raise UnknownWorkflow(f"no workflow is called {name!r} here")
        return sorted(found, key=lambda one: (one.first_at, one.version), reverse=True)

    # --- steering a run -----------------------------------------------------------------------------------------------

    async def cancel(self, who: Identity, run: str, note: str = "", *, force: bool = False) -> RunState:
        """Ask the run to cancel itself: its running steps are cancelled, and what it did is undone. Return its state
        right after that. A run that is already undoing goes on with that, unless `force` makes it stop where it is. If
        the code of the run got such a request before and went on, only `force` asks it again."""
        who.demand(Act.STEER)
        codec.stored_text(note, "note")
        row = await self._row(who, run)
        state, operators = row.state, self._store.operators
        # A run that is stuck at a step in quarantine, and not at an undo, can be cancelled like any other.
        if RunState.UNDOING in {state, row.resume} or (state is RunState.STUCK and row.resume is None):
            if force:
                state = await operators.steer_undo(row.id, "abandon", None, who.actor, note)
        else:
            state = await operators.cancel_run(row.id, who.actor, note, again=force)
        self._ring(Bell.OUTCOMES, Bell.RUNS, Bell.ENDED)
        self._hf.caller.look_for_ends()
        return state

    async def hold(self, who: Identity, run: str, note: str = "") -> RunState:
        """Stop the run: it issues no further step until `release`. Steps that are already running end and are
        recorded."""
        who.demand(Act.STEER)
        codec.stored_text(note, "note")
        state = await self._store.operators.hold((await self._row(who, run)).id, who.actor, note)
        self._ring(Bell.OUTCOMES)
        return state

    async def release(self, who: Identity, run: str, note: str = "") -> RunState:
        who.demand(Act.STEER)
        codec.stored_text(note, "note")
        state = await self._store.operators.release((await self._row(who, run)).id, who.actor, note)
        self._ring(Bell.RUNS)
        return state

    async def retry(self, who: Identity, run: str) -> str:
        """Try again, and return the id of the run to watch, as the store has it.

        In a live run, the steps that wait for a retry and those in quarantine are tried at once. In a stuck run, the
        undos that gave up are tried again. For an ended run, this starts a new run, which keeps all that was recorded
        and executes again what ended the run and what was undone. Retrying the same run again gives the same new run.
        If the new run was retried, too, only the newest can be retried.
        """
        who.demand(Act.STEER)
        row, operators = await self._row(who, run), self._store.operators
        if row.state not in RUN_ENDED:
            await self.resolve_steps(who, "release", run_id=run)
        if row.state is RunState.STUCK and row.resume is not RunState.RUNNING:
            await operators.steer_undo(row.id, "retry", None, who.actor, "")
            self._ring(Bell.OUTCOMES)
            return row.id
        if row.state not in RUN_ENDED:
            await operators.retry_now(row.id, who.actor)
            self._ring(Bell.STEPS)
            return row.id
        new_id = await operators.retry_run(row.id, who.actor)
        self._ring(Bell.RUNS)
        return new_id

    async def skip(self, who: Identity, run: str, step: str | None = None, note: str = "") -> RunState:
        """Count an undo that gave up as done by hand: the one with this key (of the step or of its undo), or all of
        them."""
        who.demand(Act.STEER)
        row, n = await self._row(who, run), None
        codec.stored_text(note, "note")
        if step is not None:
            found = [one.n for one in await self._all_steps(row.id) if one.key in {step, f"undo:{step}"}]
            if not found:
                raise UnknownRun(f"run {run!r} has no step {step!r}: `holdfast show {run}` lists them")
            n = found[-1]
        state = await self._store.operators.steer_undo(row.id, "skip", n, who.actor, note)
        self._ring(Bell.OUTCOMES)
        return state

    async def fork(
        self,
        who: Identity,
        run: str,
        start: str | None = None,
        input: Any = None,
        results: Mapping[str, Any] | None = None,
        new_id: str | None = None,
    ) -> Forked:
        """Start a new run with everything that this one recorded before a point: see `Run.fork`."""
        who.demand(Act.STEER)
        row, steps, limit = await self._row(who, run), {}, self._hf.config.payload_max_bytes
        if results is not None and not isinstance(results, Mapping):
            raise InvalidInput(f"run.fork(set=…): give results by the keys of their steps, not {results!r}")
        if start is not None or results:
            steps = {step.key: step for step in await self._all_steps(row.id)}
        if new_id is not None:
            new_id = stored(who.namespace, _new_id(new_id, "run.fork(id=…)"))
        declared = await edits.demand_code(self._store, row, steps.get(start or ""))
        request = ForkRequest(
            start=start,
            input=None if input is None else edits.checked_input(row, input, declared, limit),
            results={
                key: edits.checked_result(steps[key], value, edits.child_workflow(steps[key]), limit)
                if key in steps
                else b"null"  # the store says that there is no such step
                for key, value in (results or {}).items()
            },
            id=new_id,
        )
        made = await self._store.operators.fork_run(row.id, request, who.actor)
        self._ring(Bell.RUNS)
        return made

    # --- the store ----------------------------------------------------------------------------------------------------

    async def agents(self, who: Identity, *, everything: bool = False) -> AgentsSeen:
        """Return the nodes that work for the namespace, and how each is doing."""
        who.demand(Act.READ)
        nodes = [node for node in await self._store.nodes.nodes() if everything or node.retired_at is None]
        loads, leader = await self._store.nodes.loads(), await self._store.leader.leader()
        now = await self._store.now()
        found = [examine(node, loads.get(node.id, (0, 0)), now) for node in nodes]
        if who.namespace is None:
            return AgentsSeen(found, _leads(leader, now), now)
        seen = [_offers_in(who.namespace, one) for one in found]
        return AgentsSeen([one for one in seen if one is not None], _leads(leader, now), now)

    async def lanes(self, who: Identity) -> list[LaneSeen]:
        """Return the lanes of steps, and how many steps wait in each."""
        who.demand(Act.READ)
        agents, limit = self._store.agents, self._hf.config.pool_backlog_max
        return [
            LaneSeen(shown_row(who.namespace, lane), await agents.backlog([lane.id], limit))
            for lane in await self._store.agents.lanes()
            if who.sees(namespace_of(lane.name))
        ]

    def _gates(self, who: Identity) -> Gates:
        return Gates(lambda: self._hf.caller, who.actor, who.namespace)

    async def holds(self, who: Identity) -> list[Hold]:
        """Return the holds that cover the namespace, or all."""
        who.demand(Act.READ)
        return await self._gates(who).holds()

    async def add_hold(self, who: Identity, scope: HoldScope, value: str, note: str = "") -> Placed:
        """Let none of these steps begin until the hold is removed. Whoever has all namespaces may hold everything, and
        others what is in their own namespace."""
        self._demand_scope(who, scope, value)
        return await self._gates(who).hold(**_scope(scope, value), note=note)

    async def remove_hold(self, who: Identity, scope: HoldScope, value: str, note: str = "") -> Hold:
        self._demand_scope(who, scope, value)
        return await self._gates(who).release(**_scope(scope, value), note=note)

    def _demand_scope(self, who: Identity, scope: HoldScope, value: str) -> None:
        """Raise unless the identity may hold this. In a namespace, everything is what is in it."""
        is_other = scope is HoldScope.NAMESPACE and who.namespace not in {None, value}
        who.demand(Act.STEER_STORE if is_other or who.namespace is None else Act.STEER)

    async def breakers(self, who: Identity) -> list[Breaker]:
        who.demand(Act.READ)
        return await self._gates(who).breakers()

    async def force_breaker(self, who: Identity, name: str, state: BreakerState, note: str = "") -> Breaker:
        who.demand(Act.STEER)
        gates = self._gates(who)
        return await (gates.open if state is BreakerState.OPEN else gates.close)(name, note)

    async def reset_breaker(self, who: Identity, name: str, note: str = "") -> Breaker:
        who.demand(Act.STEER)
        return await self._gates(who).reset(name, note)

    async def quarantine(self, who: Identity) -> list[Poison]:
        """Return what waits in quarantine, by fingerprint, the oldest first."""
        who.demand(Act.READ)
        found = await self._store.quarantine.quarantine(self._hf.config.claim_max, who.namespace)
        return [shown_row(who.namespace, one) for one in found]

    async def quarantined(self, who: Identity, run: str) -> set[str]:
        """Return the fingerprints of the run's steps that are in quarantine."""
        who.demand(Act.READ)
        return {
            one.fingerprint for one in await self._store.quarantine.quarantined(await self._named(who, run))
        }

    async def resolve(
        self, who: Identity, act: Resolve, fingerprint: str, *, note: str = "", result: Any = None
    ) -> int:
        """Decide about all steps in quarantine with this fingerprint. Return how many there were."""
        return await self.resolve_steps(who, act, fingerprint, note=note, result=result)

    async def resolve_steps(
        self,
        who: Identity,
        act: Resolve,
        fingerprint: str | None = None,
        *,
        run_id: str | None = None,
        note: str = "",
        result: Any = None,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Decide about all steps in quarantine with this fingerprint, or of this run: `release` them with fresh
        budgets, `skip` them, as if each had returned `result`, or `fail` them. Return how many there were.

        This is done in batches, each in a transaction of its own. After each batch, `progress` is called with the
        number of steps that are done. Steps that come into quarantine meanwhile are left alone.
        """
        if fingerprint is None and run_id is None:
            raise HoldfastError(
                "say which steps: a fingerprint, as `holdfast quarantine` lists them, or a run"
            )
        who.demand(Act.STEER)
        codec.stored_text(note, "note")
        if run_id is not None:
            run_id = await self._known(who, run_id)
        before, done = await self._store.now(), 0
        raw = codec.encode_open(result, "result", self._hf.config.payload_max_bytes)
        while True:
            count = await self._store.quarantine.resolve_quarantine(
                act,
                fingerprint=fingerprint,
                run_id=run_id,
                before=before,
                result=raw,
                actor=who.actor,
                note=note,
                limit=self._hf.config.claim_max,
                namespace=who.namespace,
            )
            done += count
            if progress is not None and count:
                progress(done)
            self._ring(Bell.STEPS, Bell.OUTCOMES, Bell.RUNS)
            if count < self._hf.config.claim_max:
                return done

    async def alerts(self, who: Identity, *, everything: bool, limit: int) -> list[AlertSeen]:
        """Return open alerts, newest first, or also those that are cleared."""
        who.demand(Act.READ)
        nouns, namespace = self._store.alerts, who.namespace
        read = nouns.alerts if everything else nouns.open_alerts
        found = [alert for one in _listed_in(who) for alert in await read(limit, one)]
        found = sorted(found, key=lambda alert: alert.id, reverse=True)[:limit]
        sent = await nouns.deliveries([alert.id for alert in found])
        return [
            AlertSeen(
                msgspec.structs.replace(
                    shown_row(namespace, one),
                    key=shown_text(namespace, one.key),
                    message=shown_text(namespace, one.message),
                ),
                shown_text(namespace, in_words(one)),
                [each for each in sent if each.alert_id == one.id],
            )
            for one in found
        ]

    async def clear_alert(self, who: Identity, alert: int) -> bool:
        """Clear an alert. Return False if it is not open."""
        who.demand(Act.STEER)
        for namespace in _listed_in(who):
            if await self._store.alerts.clear_alert(alert, who.actor, namespace):
                return True
        return False

    async def journal(self, who: Identity, limit: int) -> list[JournalEntry]:
        who.demand(Act.AUDIT)
        read = self._store.reads.journal
        found = [entry for one in _listed_in(who) for entry in await read(None, limit, one)]
        return _entries(who, sorted(found, key=lambda entry: entry.id, reverse=True)[:limit])

    # --- acts on many runs --------------------------------------------------------------------------------------------

    async def act(self, who: Identity, act: str) -> ActRow:
        who.demand(Act.READ)
        row = await self._store.acts.act(act) if may_exist(act) else None
        if row is None or who.namespace not in {None, row.namespace}:
            raise UnknownAct(f"no act has the id {act!r}: `holdfast acts` lists them")
        return row

    async def acts(self, who: Identity, limit: int) -> list[ActRow]:
        """Return the newest acts, newest first."""
        who.demand(Act.READ)
        return await self._store.acts.acts(limit, who.namespace)

    async def stop_act(self, who: Identity, act: str) -> bool:
        """Stop an act. Return False if there was nothing to stop."""
        who.demand(Act.STEER)
        await self.act(who, act)
        return await self._store.acts.stop_act(act, who.actor)

    async def act_runs(
        self, who: Identity, act: str, fates: Sequence[str], after: str, limit: int
    ) -> list[ActRun]:
        await self.act(who, act)
        found = await self._store.acts.act_runs(
            act, fates, stored(who.namespace, after) if after else "", limit
        )
        return [shown_row(who.namespace, one) for one in found]

    # --- tokens -------------------------------------------------------------------------------------------------------

    async def tokens(self, who: Identity, limit: int) -> list[TokenRow]:
        """Return the tokens, newest first."""
        who.demand(Act.ADMINISTER)
        return await self._store.tokens.tokens(limit)

    async def create_token(self, who: Identity, new: NewToken) -> TokenMade:
        """Make a token. Its id and its secret are made here."""
        who.demand(Act.ADMINISTER)
        token = self._new_token(Role(new.role))
        await self._store.tokens.add_token(
            msgspec.structs.replace(new, id=token.id, digest=token.digest), who.actor
        )
        return await self._made(token)

    async def rotate_token(
        self, who: Identity, token: str, grace_s: float, expires_s: float | None
    ) -> TokenMade:
        """Give a token another secret. The old one works on for `grace_s`."""
        who.demand(Act.ADMINISTER)
        found = await self._store.tokens.token(token)
        fresh = self._new_token(Role.VIEWER if found is None else Role(found.role))._replace(id=token)
        await self._store.tokens.rotate_token(
            token, fresh.digest, grace_s=grace_s, expires_s=expires_s, actor=who.actor
        )
        return await self._made(fresh)

    def _new_token(self, role: Role) -> Token:
        from holdfast.access.tokens import ID_BYTES, SECRET_BYTES, make  # noqa: PLC0415  few need it

        return make(role, self._hf.environment.secret(ID_BYTES), self._hf.environment.secret(SECRET_BYTES))

    async def _made(self, token: Token) -> TokenMade:
        row = await self._store.tokens.token(token.id)
        assert row is not None
        return TokenMade(row, token.text)

    async def revoke_token(self, who: Identity, token: str) -> bool:
        """Revoke a token for good. Return False if it was revoked before."""
        who.demand(Act.ADMINISTER)
        return await self._store.tokens.revoke_token(token, who.actor)


def stored_run(namespace: str | None, run: RunRow) -> RunRow:
    """Return a run as the store has it."""
    if namespace in {None, DEFAULT_NAMESPACE}:
        return run
    return msgspec.structs.replace(
        run, id=stored(namespace, run.id), workflow=stored(namespace, run.workflow)
    )


def stored_steps(namespace: str | None, steps: Sequence[StepRow]) -> Sequence[StepRow]:
    """Return steps as the store has them. Only calls have stored names."""
    if namespace in {None, DEFAULT_NAMESPACE}:
        return steps
    return [
        msgspec.structs.replace(step, name=stored(namespace, step.name))
        if step.kind is StepKind.CALL
        else step
        for step in steps
    ]


def _candidates(who: Identity, run: str) -> list[str]:
    """Return the ids under which the store may have the run. Before namespaces were walls, runs in them had bare ids."""
    found = stored(who.namespace, run)
    return [found] if found == run else [found, run]


@lru_cache(maxsize=1000)
def _schema(text: str) -> Schema:
    """Return a published schema, which is not changed. Many starts are checked by one."""
    found: Schema = msgspec.json.decode(text)
    return found


def _listed_in(who: Identity) -> list[str | None]:
    """Return where to read what is listed for an identity. Who has all namespaces also sees what is said about the store
    as a whole, which is in none. None stands for all of it."""
    if who.namespace is None or not who.has_all:
        return [who.namespace]
    return [who.namespace, WHOLE_STORE]


def _entries(who: Identity, rows: list[JournalEntry]) -> list[JournalEntry]:
    """Return entries of the journal with the names that the identity sees."""
    return [
        msgspec.structs.replace(shown_row(who.namespace, row), note=shown_text(who.namespace, row.note))
        for row in rows
    ]


def _offers_in(namespace: str, health: Health) -> Health | None:
    """Return a node as those in the namespace see it: with what it offers there. None if it does not work there."""
    offers = health.offers
    named = offers.get("namespaces", [DEFAULT_NAMESPACE])
    if ALL in named:
        return health
    if namespace not in named:
        return None
    mine = {
        kind: [shown(namespace, one) for one in offers.get(kind, ()) if namespace_of(one) == namespace]
        for kind in ("workflows", "steps", "hedged")
    }
    return health._replace(offers={**offers, **mine, "namespaces": [namespace]})


def _fits(name: str, version: str, request: StartRequest) -> bool:
    return name == request.workflow and request.version in {None, version}


def _demand_name(name: str, what: str) -> None:
    try:
        options.text(name, what)
    except DefinitionError as wrong:
        raise InvalidInput(str(wrong)) from None


def _leads(leader: LeaderLease | None, now: float) -> LeaderLease | None:
    return None if leader is None or leader.expires_at < now else leader


def _scope(scope: HoldScope, value: str) -> dict[str, Any]:
    return {"everything": True} if scope is HoldScope.ALL else {str(scope): value}


def answer_of(end: UpdateEnd, run_id: str, name: str) -> bytes:
    """Return what an update returned, or raise what it raised."""
    if end.answer is None:
        state = "is gone" if end.state is None else f"has ended ({end.state})"
        raise UpdateFailed(f"run {run_id!r} {state} and did not answer the update {name!r}", run_id=run_id)
    raw = end.reply or b"null"
    if end.answer == Answered.RETURNED:
        return raw
    error = raw.decode()
    original, known = codec.original_error(error), json.loads(error)
    if end.answer == Answered.REFUSED:
        raise Refused(known.get("message", "")) from None if original is None else original.__cause__
    if isinstance(original, UpdateFailed):  # it was not served to its end
        raise UpdateFailed(str(original), run_id=run_id)
    message = f"the update {name!r} of run {run_id!r} failed: {codec.describe_error(error)}"
    raise UpdateFailed(message, run_id=run_id, error_type=known.get("type", "")) from original
