"""What programs use: `Holdfast` opens a store, hosts the roles that were asked for, and starts runs.

async with Holdfast("sqlite:///holdfast.db") as hf:
    run = await hf.start(order.using(id="order-42"), "tok_1", [1, 2])
    receipt = await run.result(timeout=60)

with Holdfast("sqlite:///holdfast.db") as hf:  # plain code waits for the same calls
    run = hf.wait(hf.start(order.using(id="order-42"), "tok_1", [1, 2]))
    receipt = hf.wait(run.result(timeout=60))
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar, cast, overload

import msgspec

from holdfast import codec
from holdfast.access import Identity, local
from holdfast.actor import Via, user
from holdfast.addresses import is_remote, shown_address
from holdfast.caller import Caller
from holdfast.config import DEFAULT, Config
from holdfast.decider.loop import running
from holdfast.desk.desk import LocalDesk
from holdfast.desk.filters import Moment, run_filter, within_namespace
from holdfast.desk.starts import StartRequest, demand_ahead
from holdfast.environment import Environment
from holdfast.errors import (
    AccessError,
    Conflict,
    HoldfastError,
    InvalidInput,
    NameTaken,
    NotInStep,
    StoreError,
    StoreUnreachable,
)
from holdfast.home import Home, LoopThread, close_unstarted
from holdfast.info import RunInfo, cursor
from holdfast.log_buffer import level_number
from holdfast.model import (
    BY_TAG,
    DEFAULT_NAMESPACE,
    POOL,
    ROLES,
    SERVER,
    ActOptions,
    ActVerb,
    NewRun,
    Poison,
    RunState,
    SignalRow,
)
from holdfast.namespaces import (
    Namespaces,
    given_namespaces,
    namespace_of,
    shown,
    shown_row,
    shown_text,
    stored,
)
from holdfast.programs import name_of
from holdfast.run import Run
from holdfast.store import open_store
from holdfast.store.answers import Answer
from holdfast.store.origins import demand_names
from holdfast.store.reads import RunFilter
from holdfast.store.settings import PUBLIC_URL
from holdfast.store.store import Store
from holdfast.store.transaction import Transaction, transaction_of
from holdfast.traces import spans_for, with_traces
from holdfast.workflow import options, outside
from holdfast.workflow.declaration import offered, session_of
from holdfast.workflow.options import Seconds
from holdfast.workflow.workflow import Workflow, demand_workflow

if TYPE_CHECKING:
    from holdfast.desk.acts import Act, ActInfo, Verb
    from holdfast.desk.asks import Asks
    from holdfast.desk.callbacks import Callbacks
    from holdfast.desk.gates import GateDesk, Gates
    from holdfast.desk.limits import Limits
    from holdfast.desk.schedules import Schedules
    from holdfast.desk.triggers import Triggers
    from holdfast.node import Node
    from holdfast.remote.desk import RemoteDesk
    from holdfast.remote.transport import Transport
    from holdfast.supervisor.channels import Channel
    from holdfast.wire.cloudevents import CloudEvent
    from holdfast.wire.events import EmittedEvent

log = logging.getLogger("holdfast.client")

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Row = TypeVar("Row", bound=msgspec.Struct)

DEFAULT_STORE = "sqlite:///holdfast.db"
REFUSED_MAX_S = 60.0
"""How rarely a process that may not join the store again asks for it at last."""
EXIT_S = 5.0
"""How long a program that ends without closing its Holdfast waits until it has handed back what it has."""
NOT_OPEN = (
    "this Holdfast is not open: use `async with Holdfast(…) as hf:`, or in plain code `with Holdfast(…) as hf:`; to keep it "
    "open for as long as the program lives, use `hf.wait(hf.open())`"
)
FORKED = (
    "this Holdfast was opened before this process was forked, and belongs to the process that opened it: open it in each "
    "process after the fork, with `hf.wait(hf.open())` (with gunicorn --preload: in the hook `post_worker_init`)"
)


def _channels(
    alerts: str | Path | Mapping[str, Any], environment: Environment
) -> tuple[list[Channel], str | None]:
    from holdfast.supervisor.channels import settings  # noqa: PLC0415  loads mail and TLS

    return settings.load_channels(alerts, environment), settings.public_url_of(alerts)


class Holdfast:
    """A store, and the roles that this process hosts on it. The address may also be that of a server, `https://…`, with
    a `token` or HOLDFAST_TOKEN. With `roles=()` it only starts and watches runs. `alerts` is a settings file (or the same as a dict) with the channels through which a Supervisor here sends alerts. `app`
    names the application that the code here belongs to. Without it, Holdfast derives the application from where the
    code was loaded. `namespace` is the namespace that it works in: all that it starts, claims, sees and changes is there.
    Nodes may work for several, or for all with `"*"`; then ids are those of the store, such as `acme//order-42`."""

    _node_type: type[Node] | None = None
    """The class of the nodes here, if it is not `Node`. A simulation has another one."""
    _via = Via.PYTHON
    """By which way its user comes, for the journal. Commands have another one."""
    _http_client: Callable[[], Any] | None = None
    """Makes the HTTP client, if it is not the usual one. Tests have others, which lose replies."""

    def __init__(
        self,
        store: str | None = None,
        *,
        token: str | None = None,
        roles: Iterable[str] = ROLES,
        labels: Iterable[str] = (),
        config: Config = DEFAULT,
        environment: Environment | None = None,
        alerts: str | Path | Mapping[str, Any] | None = None,
        app: str | None = None,
        namespace: str | Iterable[str] | Namespaces | None = None,
    ) -> None:
        self.url = store or os.environ.get("HOLDFAST_STORE") or DEFAULT_STORE
        self.config = config = with_traces(config)
        self.environment = environment or Environment()
        if not isinstance(self.url, str):
            raise HoldfastError(
                f"Holdfast({store!r}): give the address of a store, such as {DEFAULT_STORE!r}"
            )
        try:
            level_number(config.logs_level)
        except ValueError as wrong:
            raise InvalidInput(f"Config(logs_level=…): {wrong}") from None
        self.is_remote = is_remote(self.url)
        """True if this is the address of a server."""
        if token is not None and not self.is_remote:
            raise HoldfastError(
                f"Holdfast({shown_address(self.url)!r}, token=…): a token is for a server: give the address of one, "
                "https://…"
            )
        if self.is_remote and roles is ROLES:  # through a server, nothing is hosted unless somebody says so
            roles = ()
        self._roles, self._labels = _roles(roles), options.labels(labels, "Holdfast")
        if self.is_remote and not set(self._roles) <= {"agent"}:
            raise HoldfastError(
                f"Holdfast({shown_address(self.url)!r}, roles=…): through a server, a program can start runs and host "
                f"agents (roles=['agent']): a {', '.join(self._roles)} needs the address of the database itself"
            )
        self._transport = self._new_transport(token) if self.is_remote else None
        app = app or os.environ.get("HOLDFAST_APP") or None
        self._app = None if app is None else options.text(app, "app")
        asked = namespace or os.environ.get("HOLDFAST_NAMESPACE") or None
        self.namespaces = given_namespaces(asked or DEFAULT_NAMESPACE, "Holdfast(namespace=…)")
        """The namespaces that this process works for."""
        self._asked_namespace = None if asked is None else self._only_namespace()
        """The namespace that a server is asked for. Without one, it is the namespace of the token."""
        if self._transport is not None:
            self._transport.namespace = self._asked_namespace
        self._checked_names: set[str] = set()
        """Workflows that may be started here: no other application publishes other code under their names."""
        self._channels, self._public_url = (
            ([], None) if alerts is None else _channels(alerts, self.environment)
        )
        self._desk = LocalDesk(self)
        self._store: Store | None = None
        self._caller: Caller | None = None
        self._remote_desk: RemoteDesk | None = None
        self._remote_node: Node | None = None
        """The node of this process, if it reaches the store through a server."""
        self._rejoining: asyncio.Future[None] | None = None
        self._is_leaving = False
        self._home: Home | None = None
        self._thread: LoopThread | None = None
        self._pid_and_lock = os.getpid(), threading.Lock()
        self._inherited: list[object] = []
        """Objects of the process from which this one was forked. They are kept here and never used."""
        self.about: dict[str, Any] = {}
        """What nodes of this process write about themselves beside what they can serve. Set it before opening."""
        self.only: set[str] | None = None
        """If set, nodes of this process work on just these runs, those it starts, and their children. Set it before
        opening."""
        self.pulse: Callable[[], Mapping[str, Any]] | None = None
        """Returns what nodes of this process write about themselves with each renewal of the lease. Set it before
        opening."""

    def _only_namespace(self) -> str | None:
        """Return the one namespace here, or None. Raise if a process would work for several through a server, which takes one
        from each request."""
        if self.is_remote and self.namespaces.only is None and (self._roles or not self.namespaces.is_all):
            raise HoldfastError(
                f"Holdfast({shown_address(self.url)!r}, namespace=…): through a server, a process works for one namespace, "
                f"and not for {', '.join(self.namespaces.names)}: start one for each"
            )
        return self.namespaces.only

    # --- opening ------------------------------------------------------------------------------------------------------

    async def open(self, first: str | None = None) -> Self:
        """Connect and begin. The run `first` is claimed before any step is, because its code decides what may still
        run."""
        if running() is not None:
            raise NotInStep(
                "a workflow cannot open a Holdfast: call the other workflow directly, which makes it a child run, or do this "
                "in a step"
            )
        if outside.refuse_opening is not None:
            outside.refuse_opening()
        if self._own_home() is not None:
            raise HoldfastError("this Holdfast is open already: one is enough for a whole program")
        self.environment.after_fork()
        if self._transport is not None:
            await self._join_remote(self._transport)
            outside.enter(self)
            return self
        store = open_store(self.url, self.environment, self.config)
        await store.open()
        await self._join(store, first)
        outside.enter(self)
        return self

    async def _join(self, store: Store, first: str | None) -> None:
        """Begin as a node or a caller of this store. If that fails, leave the store again."""
        self._store, self._caller = store, self._new_caller(store)
        self._desk = LocalDesk(self)  # of this opening and its event loop
        self._home = Home(asyncio.get_running_loop())
        try:
            if self._public_url is not None:
                await store.settings.set_setting(PUBLIC_URL, self._public_url)
            await self._caller.start(first)
        except BaseException:
            await self._leave(0)
            raise

    def _new_transport(self, token: str | None) -> Transport:
        from holdfast.remote.transport import Transport  # noqa: PLC0415  only who speaks to a server needs it

        spans = spans_for(self.config)
        return Transport(self.url, token, self.environment, client=self._http_client, spans=spans)

    async def _join_remote(self, transport: Transport) -> None:
        """Begin as a caller of a server, and as an agent if there is one here. Ask the server once, so that a wrong
        address or token shows now."""
        from holdfast.remote.caller import RemoteCaller  # noqa: PLC0415  only who speaks to a server needs it
        from holdfast.remote.desk import RemoteDesk  # noqa: PLC0415  the same

        self._remote_desk = RemoteDesk(transport)
        self._home = Home(asyncio.get_running_loop())
        caller = RemoteCaller(self._remote_desk, self.who, self.environment, self.config)
        self._caller = cast("Caller", caller)  # all that handles ask of it
        try:
            await self._remote_desk.now(self.who)
            await self._caller.start()
            if self._roles:
                self._remote_node = self._new_remote_node(transport)
                await self._remote_node.start()
        except BaseException:
            await self._leave(0)
            raise

    def _new_remote_node(self, transport: Transport) -> Node:
        from holdfast.remote.node import RemoteNode  # noqa: PLC0415  it brings the agent, which a caller does not need

        return RemoteNode(
            transport,
            labels=self._labels,
            environment=self.environment,
            config=self.config,
            about=self.about,
            pulse=self.pulse,
            app=self._app,
            on_fenced=self._on_fenced,
        )

    def _new_caller(self, store: Store) -> Caller:
        if not self._roles:
            return Caller(store, environment=self.environment, config=self.config)
        return self._new_node(store)

    def _new_node(self, store: Store) -> Node:
        from holdfast.node import Node  # noqa: PLC0415  it brings the roles, which a caller does not need

        return (self._node_type or Node)(
            store,
            roles=self._roles,
            labels=self._labels,
            environment=self.environment,
            config=self.config,
            channels=self._channels,
            about=self.about,
            pulse=self.pulse,
            only=self.only,
            app=self._app,
            namespaces=self.namespaces,
            on_fenced=self._on_fenced,
        )

    def _on_fenced(self) -> None:
        if self._is_leaving:
            return  # a node that loses its lease while it leaves is not replaced
        if self._rejoining is None or self._rejoining.done():
            self._rejoining = asyncio.ensure_future(self._rejoin())

    async def _rejoin(self) -> None:
        """Replace a node that lost its lease and stopped itself. Try until a node has begun and has its lease. If it is refused,
        for example because its token was revoked, that is said once, and it asks more and more rarely."""
        node, refused_s, said = self.node, self.config.poll_s, ""
        while node.fenced or not node.started:
            if self._transport is not None:
                old, node = node, self._new_remote_node(self._transport)
                self._remote_node = node
            else:
                old, node = node, self._new_node(self.store)
                self._caller = node
            node.take_over(old)
            await old.stop(0)
            try:
                await node.start()
            except (AccessError, NameTaken) as error:
                if str(error) != said:
                    said = str(error)
                    log.error("this process may not join the store again: %s", error)
                await self.environment.sleep(refused_s * (0.5 + self.environment.random.random() / 2))
                refused_s = min(refused_s * 2, REFUSED_MAX_S)
            except StoreError as error:
                log.warning("this process could not join the store again yet: %s", error)
                await self.environment.sleep(self.config.poll_s)
            except Exception:
                # Whatever the error is, try again: without a node this program would stand still, and nobody would
                # notice.
                log.exception("this process could not join the store again yet")
                await self.environment.sleep(self.config.poll_s)
        log.warning("joined again as node %s", node.id)

    async def close(self, drain_s: float | None = 0.0) -> None:
        """Leave the store. Running steps get `drain_s` seconds to finish, and are then handed back."""
        home = self._own_home()
        if home is not None:
            home.demand_own_loop()
            home.cancel_waits()
        outside.leave(self)
        await self._leave(drain_s)

    async def _leave(self, drain_s: float | None) -> None:
        if self._rejoining is not None:
            self._rejoining.cancel()
        self._is_leaving = True
        try:
            if self._remote_node is not None:
                await self._remote_node.stop(drain_s)
            if self._caller is not None:
                await self._caller.stop(drain_s)
            if self._store is not None:
                await self._store.close()
            if self._transport is not None:
                await self._transport.close()
        finally:
            self._is_leaving = False
        self._caller = self._store = self._home = self._remote_node = None

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        """For Starlette and FastAPI: `FastAPI(lifespan=hf.lifespan)`."""
        async with self:
            yield

    @property
    def caller(self) -> Caller:
        """What this process uses to start runs and to wait for their end."""
        self._demand_open()
        assert self._caller is not None
        return self._caller

    @property
    def node(self) -> Node:
        """The node that hosts the roles of this process."""
        caller = self.caller
        if not self._roles:
            raise HoldfastError("this Holdfast hosts no role: it was opened with roles=()")
        if self._remote_node is not None:
            return self._remote_node
        return cast("Node", caller)

    @property
    def node_id(self) -> str | None:
        """The id of the node of this process. None while it is not open."""
        caller = self._remote_node or self._caller
        return None if caller is None else caller.id

    @property
    def store(self) -> Store:
        self._demand_open()
        if self._store is None:
            raise HoldfastError(
                f"this needs the database itself, and {shown_address(self.url)} is a server: use the address of the store, "
                "sqlite:///… or postgresql://…"
            )
        return self._store

    def _demand_open(self) -> None:
        home = self._own_home()
        if home is None:
            raise HoldfastError(self._not_open())
        home.demand_own_loop()

    def _own_home(self) -> Home | None:
        """Return where this Holdfast is open, or None if this process has not opened it."""
        if self._home is not None and self._home.is_forked:
            # The process that opened it still uses these. To close or even finalise them here would disturb it.
            self._inherited += [self._home, self._caller, self._store, self._thread]
            self._home = self._caller = self._store = self._thread = self._rejoining = None
            if self._transport is not None:
                self._transport.forget()
            outside.leave(self)
        return self._home

    def _not_open(self) -> str:
        return FORKED if self._inherited else NOT_OPEN

    @property
    def desk(self) -> LocalDesk:
        """What callers and operators may ask, with the identity of who asks."""
        if self._remote_desk is not None:
            return cast("LocalDesk", self._remote_desk)  # it has the same methods
        return self._desk

    @property
    def who(self) -> Identity:
        """Who asks: this process's user, who reaches the store itself. A server asks for the token instead."""
        return local(user(), self._asked_namespace if self.is_remote else self.namespace, self._via)

    @property
    def namespace(self) -> str | None:
        """The one namespace in which all ids and names are here. None if there are several: then they are stored ones,
        such as `acme//order-42`. A server knows which namespace is meant, so this is None, too."""
        return None if self.is_remote else self.namespaces.only

    @property
    def gates(self) -> Gates:
        """Breakers and holds, which keep steps from beginning."""
        from holdfast.desk.gates import Gates  # noqa: PLC0415  few programs need it

        return Gates(self._opened_gates, self.who)

    def _opened_gates(self) -> GateDesk:
        self._demand_open()
        return self.desk.gates

    def _opened_desk(self) -> RemoteDesk:
        self._demand_open()
        assert self._remote_desk is not None
        return self._remote_desk

    async def now(self) -> float:
        """Return the store's time, in seconds since the epoch."""
        self._demand_open()
        return await self.desk.now(self.who)

    @property
    def schedules(self) -> Schedules:
        """Schedules: list, make, pause, resume, run, remove and backfill them."""
        from holdfast.desk.schedules import Schedules  # noqa: PLC0415  few programs need it

        return Schedules(lambda: self.desk.schedules, self.who)

    @property
    def triggers(self) -> Triggers:
        """Composed triggers, and the occasions that wait for something."""
        from holdfast.desk.triggers import Triggers  # noqa: PLC0415  few programs need it

        return Triggers(lambda: self.desk.triggers, self.who)

    @property
    def asks(self) -> Asks:
        """Questions to people: list, answer and hand over."""
        from holdfast.desk.asks import Asks  # noqa: PLC0415  few programs need it

        return Asks(lambda: self.desk.asks, self.who)

    @property
    def callbacks(self) -> Callbacks:
        """Callbacks: list those that wait, and end them in place of the other system."""
        from holdfast.desk.callbacks import Callbacks  # noqa: PLC0415  few programs need it

        return Callbacks(lambda: self.desk.callbacks, self.who)

    @property
    def limits(self) -> Limits:
        """Fair keys and limits: list them, and set their weights and numbers."""
        from holdfast.desk.limits import Limits  # noqa: PLC0415  few programs need it

        return Limits(lambda: self.desk.limits, self.who)

    # --- for code outside of the event loop ---------------------------------------------------------------------------

    @overload
    def wait(self, what: AsyncIterator[T], timeout: Seconds | None = None) -> Iterator[T]: ...
    @overload
    def wait(self, what: Awaitable[T], timeout: Seconds | None = None) -> T: ...
    def wait(self, what: Any, timeout: Seconds | None = None) -> Any:
        """Await something in plain code, and return its result: `hf.wait(run.state())`. With an async iterator, return
        an iterator: `for view in hf.wait(run.watch()):`. Call it from any thread but the event loop's own. With a
        `timeout`, it raises TimeoutError if the result, or one value of the iterator, takes longer.

        It works however the Holdfast was opened: by `with` or `hf.wait(hf.open())`, whose event loop runs in a thread
        of its own, or by `async with` or `lifespan` in another thread.
        """
        token = outside.chosen.set(self)
        try:
            if not isinstance(what, Awaitable | AsyncIterator):
                raise HoldfastError(
                    f"hf.wait({what!r}): give it what you would await: `hf.wait(run.state())`"
                )
            return self._wait(what, options.patience(timeout, "hf.wait(timeout=…)"))
        except BaseException:
            close_unstarted(what)
            raise
        finally:
            outside.chosen.reset(token)

    def _wait(self, what: Any, patience_s: float | None) -> Any:
        home = self._own_home()
        if home is None:
            return self._wait_unopened(what, patience_s)
        if isinstance(what, AsyncIterator):
            return home.each(what, patience_s)
        try:
            return home.wait(what, patience_s)
        finally:
            if self._home is None:  # that closed it
                self._end_thread()

    def _wait_unopened(self, what: Any, patience_s: float | None) -> Any:
        """Wait for something while this Holdfast is not open. It may be `open()`, so it runs in an event loop in a new
        thread. If it opened nothing, the thread ends."""
        if isinstance(what, AsyncIterator):
            raise HoldfastError(self._not_open())
        with self._opening_lock():
            if self._own_home() is None:
                self._end_thread()
                thread = LoopThread()
                try:
                    return thread.home.wait(what, patience_s)
                finally:
                    if self._own_home() is None:
                        thread.stop()
                    else:
                        self._thread = thread
                        atexit.register(self._leave_at_exit)
        return self._wait(what, patience_s)  # another thread was faster

    def _opening_lock(self) -> threading.Lock:
        """Return the lock that a thread has while it opens this Holdfast. A forked process makes a new one, because a
        thread of the other process may have had the old one."""
        pid, lock = self._pid_and_lock
        if pid != os.getpid():
            self._pid_and_lock = os.getpid(), (lock := threading.Lock())
        return lock

    def _end_thread(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            atexit.unregister(self._leave_at_exit)
            thread.stop()

    def _leave_at_exit(self) -> None:
        """Close a Holdfast that the program left open, so that others need not find out that this process is gone."""
        if self._own_home() is not None:
            with suppress(Exception):
                self.wait(self.close(), EXIT_S)

    def __enter__(self) -> Self:
        return self.wait(self.open())

    def __exit__(self, *exception: object) -> None:
        if self._own_home() is not None:
            try:
                self.wait(self.close())
            finally:
                self._end_thread()

    # --- starting -----------------------------------------------------------------------------------------------------

    async def start(self, workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Start a run. The same id and input again gives the same run. The same id with another input raises
        Conflict."""
        demand_workflow(workflow)
        raw, _ = workflow.shape.checked(args, kwargs, self.config.payload_max_bytes)
        return await self.start_raw(workflow, raw)

    async def start_raw(self, workflow: Workflow[Any, R], raw: bytes) -> Run[R]:
        """Like `start`, with an input that is already encoded (see `workflow.shape.from_json`)."""
        new = self._new_run(workflow, raw)
        if self.is_remote:
            return await self._start_remote(workflow, new)
        if "scheduler" not in self._roles:  # one checks this when it registers
            await self._demand_own_name(workflow)
        if new.due_at is not None:
            await demand_ahead(self.store, new.id, new.due_at)
        answer, stored_id = await self.caller.start_or_find(new)
        if answer is Answer.FENCED:
            raise Conflict.of_start(shown(self.namespace, new.id))
        return Run(self, shown(self.namespace, stored_id), workflow, known=True, stored_id=stored_id)

    async def _start_remote(self, workflow: Workflow[Any, R], new: NewRun) -> Run[R]:
        if BY_TAG in new.tags:
            raise InvalidInput(
                f"{workflow.name}: by: a server knows who starts a run from the token, which `--who person:NAME` was given"
            )
        who = self.who if workflow.namespace is None else self.who.within(workflow.namespace)
        # A server puts namespace and names together. It gets bare ones.
        run_id = shown(new.namespace, new.id)
        request = StartRequest(
            shown(new.namespace, new.workflow),
            new.input,
            new.version,
            run_id,
            tags=new.tags or {},
            priority=new.priority,
            timeout_s=new.timeout_s,
            begin_at=new.begin_at,
            begin_in_s=new.begin_in_s,
            due_at=new.due_at,
            due_in_s=new.due_in_s,
            fair=new.fair,
        )
        try:
            found = await self._opened_desk().starts.start(who, request)
        except Conflict:
            raise Conflict.of_start(run_id) from None
        except StoreUnreachable as away:
            if not away.maybe_done:
                raise type(away)(f"run {run_id!r} was not started: {away}") from away
            raise StoreUnreachable(
                f"it is not known whether run {run_id!r} was started: {away}; start it again with the same id: this never "
                "makes a second run"
            ) from away
        return Run(self, found.run, workflow, known=True)

    async def _demand_own_name(self, workflow: Workflow[Any, Any]) -> None:
        """Raise NameTaken if another application publishes other code under this workflow's name. A scheduler checks
        this when it registers. A process without one has not registered its workflows, so it checks here."""
        code = f"{workflow.name}@{workflow.version}"
        if "scheduler" in self._roles or code in self._checked_names:
            return
        own = offered(("scheduler",), self._app, session_of(self.environment), self.namespaces)
        name = f"workflow {next(self.namespaces.each(f'{workflow.name}@{workflow.version}'))}"
        demand_names(own, await self.store.workflows.rivals(own.code), only=name)
        self._checked_names.add(code)

    def within(self, connection: Any) -> Within:
        """Start runs inside your own transaction on the same database: `await hf.within(connection).start(…)`.

        `connection` is what the transaction was begun on: a connection of asyncpg or psycopg 3, a session or connection
        of SQLAlchemy, Django's `connection`, or on SQLite one of apsw.
        """
        if self.is_remote:
            raise HoldfastError(
                f"hf.within(…) needs the database itself, and {shown_address(self.url)} is a server: start the run after "
                "your transaction, with an id, or open the store"
            )
        return Within(self, transaction_of(connection))

    def _new_run(self, workflow: Workflow[Any, Any], raw: bytes) -> NewRun:
        namespace = self._namespace_for(workflow)
        run_id, name = workflow.id or self.environment.new_id(), workflow.name
        limits = workflow.limits
        if namespace != DEFAULT_NAMESPACE:
            run_id, name = stored(namespace, run_id), stored(namespace, name)
        return NewRun(
            run_id,
            name,
            workflow.version,
            raw,
            codec.digest(raw),
            namespace=namespace,
            priority=workflow.priority,
            timeout_s=workflow.timeout_s,
            tags=workflow.tags,
            begin_at=workflow.begin_at,
            begin_in_s=workflow.begin_in_s,
            due_at=workflow.due_at,
            due_in_s=workflow.due_s,
            gather=workflow.gathering(name, raw),
            fair=workflow.fair,
            limits=() if limits is None else limits.filled(namespace, workflow.fair, raw),
            full="wait" if limits is None else limits.full,
        )

    def _namespace_for(self, workflow: Workflow[Any, Any]) -> str:
        """Return the namespace of a run to be started. Raise if this Holdfast does not work for it."""
        chosen = workflow.namespace
        if chosen is None:
            return self.namespace or (
                DEFAULT_NAMESPACE if DEFAULT_NAMESPACE in self.namespaces else self.namespaces.names[0]
            )
        if chosen not in self.namespaces:
            raise InvalidInput(
                f"{workflow.name}: this Holdfast works for {', '.join(self.namespaces.names)}, not for {chosen}: open it "
                f"with Holdfast(namespace={chosen!r})"
            )
        return chosen

    def stored(self, name: str) -> str:
        """Return the name that the store has for a run or anything else that is seen here under this name."""
        return stored(self.namespace, name)

    def sees(self, name: str) -> bool:
        """True if what has this stored name is in a namespace that is seen here."""
        return self.namespace is None or namespace_of(name) == self.namespace

    def shown(self, row: Row) -> Row:
        """Return a row of the store as it is seen here, with bare names."""
        return shown_row(self.namespace, row)

    def shown_text(self, text: str) -> str:
        """Return a text with the names that are seen here."""
        return shown_text(self.namespace, text)

    @overload
    def run(self, run_id: str) -> Run[Any]: ...
    @overload
    def run(self, run_id: str, workflow: Workflow[..., R]) -> Run[R]: ...
    def run(self, run_id: str, workflow: Workflow[..., Any] | None = None) -> Run[Any]:
        """Return a handle to a run that exists. With its workflow, results have the declared type. Otherwise they are
        JSON values."""
        return Run(self, run_id, workflow)

    async def runs(
        self,
        *,
        state: str | Iterable[str] = (),
        workflow: str | Workflow[..., Any] | None = None,
        tags: Mapping[str, str] | None = None,
        namespace: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        error: str | type[BaseException] | None = None,
        prefix: str | None = None,
        is_: str | Iterable[str] = (),
        limit: int = 50,
        before: RunInfo | None = None,
        order: Literal["newest", "oldest"] = "newest",
    ) -> list[RunInfo]:
        """Return runs, newest first, or with `order="oldest"` the oldest first: those in one of these states, of this workflow (its name, or the last part of it),
        with all of these tags, in this namespace, started at `since` or later and before `until` (a time, or how long
        ago: a timedelta, or `2h`), with an error of this class, with an id that begins with `prefix`, and open ones that are all of `is_`: "retrying", "late", "waiting-for-ask" and the
        like (`Trait`). For the next page, pass the last run of this one as `before`."""
        if options.whole_number(limit, "runs(limit=…)") < 1:
            raise HoldfastError(f"runs(limit={limit!r}): the limit must be 1 or more")
        where = run_filter(
            now=await self.now(),
            states=(state,) if isinstance(state, str) else state,
            workflow=workflow.name if isinstance(workflow, Workflow) else workflow,
            tags=tags,
            namespace=namespace,
            since=since,
            until=until,
            error=name_of(error) if isinstance(error, type) else error,
            prefix=prefix,
            traits=(is_,) if isinstance(is_, str) else is_,
        )
        if order not in {"newest", "oldest"}:
            raise InvalidInput(f"runs(order={order!r}): expected 'newest' or 'oldest'")
        where.limit, where.before = limit, None if before is None else cursor(before)
        where.is_oldest_first = order == "oldest"
        found = await self.desk.runs.list(self.who, where)
        if not found and isinstance(workflow, str):
            await self.desk.workflows.demand(self.who, workflow)
        return [RunInfo(row) for row in found]

    async def plan(
        self,
        verb: Verb,
        *,
        runs: Iterable[str] = (),
        state: str | Iterable[str] = (),
        workflow: str | Workflow[..., Any] | None = None,
        tags: Mapping[str, str] | None = None,
        namespace: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        error: str | type[BaseException] | None = None,
        prefix: str | None = None,
        is_: str | Iterable[str] = (),
        note: str = "",
        force: bool = False,
        from_: str | None = None,
    ) -> Act:
        """Make a plan to cancel, hold, release, retry, skip or fork many runs, and return it. Nothing happens to them
        until `await plan.carry_out()`.

        Which runs are meant is said as in `runs`, or by their ids, up to 1,000; without a state or ids, it is those that the verb is for. The plan lists
        exactly these, as they are now: what has changed when the plan is carried out is left alone. `plan.preview` says
        what would happen, in words and numbers. `force` is for `cancel`, and `from_`, the key of a step, for `fork`.
        """
        where = run_filter(
            now=await self.now(),
            states=(state,) if isinstance(state, str) else state,
            workflow=workflow.name if isinstance(workflow, Workflow) else workflow,
            tags=tags,
            namespace=namespace,
            since=since,
            until=until,
            error=name_of(error) if isinstance(error, type) else error,
            prefix=prefix,
            traits=(is_,) if isinstance(is_, str) else is_,
            ids=runs,
            what="plan({}=…)",
        )
        return await self.plan_act(verb, where, ActOptions(force=force, start=from_), note)

    async def plan_act(
        self,
        verb: str,
        where: RunFilter,
        how: ActOptions,
        note: str = "",
        progress: Callable[[int], None] | None = None,
    ) -> Act:
        """Like `plan`, with a filter that is already made. After each page, `progress` is called with the number of
        runs that were listed."""
        from holdfast.desk.acts import demand_plan, make_plan  # noqa: PLC0415  few programs need it

        demand_plan(verb, where, how, note)
        if where.workflow is not None:
            await self.desk.workflows.demand(self.who, where.workflow)
        if self.is_remote:
            from holdfast.remote.acts import RemoteAct  # noqa: PLC0415  only who speaks to a server needs it

            return await RemoteAct.plan(self, self._opened_desk().acts, verb, where, how, note)
        where = within_namespace(where, self.namespace)
        return await make_plan(self, ActVerb(verb), where, how, note, progress, actor=self.who.actor)

    def act(self, act_id: str) -> Act:
        """Return a handle to an act that exists: to carry it out, follow it or stop it."""
        if self.is_remote:
            from holdfast.remote.acts import RemoteAct  # noqa: PLC0415  only who speaks to a server needs it

            return RemoteAct(self, act_id, actor=self.who.actor)
        from holdfast.desk.acts import Act  # noqa: PLC0415  few programs need it

        return Act(self, act_id, namespace=self.namespace, actor=self.who.actor)

    async def acts(self, limit: int = 50) -> list[ActInfo]:
        """Return the newest acts on many runs, newest first."""
        if options.whole_number(limit, "acts(limit=…)") < 1:
            raise HoldfastError(f"acts(limit={limit!r}): the limit must be 1 or more")
        from holdfast.desk.acts import ActInfo  # noqa: PLC0415  few programs need it

        return [ActInfo(row) for row in await self.desk.acts.list(self.who, limit)]

    async def send_signal(self, run_id: str, name: str, payload: bytes, key: str | None) -> None:
        """Send a signal whose value is already encoded. Raise UnknownSignal if the run's workflow takes no such signal,
        by what its code declares, or InvalidInput if the value does not fit."""
        options.key(key, "the key of a signal")
        await self.desk.signals.send(self.who, run_id, name, payload, key)

    async def emit(
        self,
        type: str,
        data: Any = None,
        *,
        subject: str | None = None,
        source: str | None = None,
        id: str | None = None,
        **attributes: str,
    ) -> EmittedEvent:
        """Send an event: it starts the workflows that are declared with `on=` this type, and wakes the runs that wait for
        it. The same source and id again is the same event, and changes nothing."""
        event = self._event(type, data, subject, source, id, attributes)
        (found,) = await self.desk.events.emit(self.who, [event])
        from holdfast.desk.events import shown_emitted  # noqa: PLC0415  few programs need it

        return shown_emitted(self.who, found)

    def _event(
        self,
        type: str,
        data: Any,
        subject: str | None,
        source: str | None,
        id: str | None,
        attributes: Mapping[str, str],
    ) -> CloudEvent:
        from holdfast.desk.events import SOURCE  # noqa: PLC0415  few programs need it
        from holdfast.wire.cloudevents import made_event  # noqa: PLC0415  the same

        given = {"type": type, "source": source or SOURCE, "id": id or self.environment.new_id()}
        given |= {} if subject is None else {"subject": subject}
        return made_event(
            {**attributes, **given}, codec.encode_open(data, "data", self.config.payload_max_bytes)
        )

    async def output_of(self, run_id: str) -> bytes | None:
        """Return what a run returned, as JSON. None if it has not succeeded, or is not known."""
        row = await self.store.reads.run(run_id)
        return None if row is None or row.state is not RunState.SUCCEEDED else row.output

    async def call_update(
        self, run_id: str, name: str, payload: bytes, key: str | None, patience_s: float | None
    ) -> bytes:
        """Call an update whose value is already encoded, and return its answer. Raise UnknownUpdate if the run's
        workflow has no such update, by what its code declares, or InvalidInput if the value does not fit."""
        options.key(key, "the key of an update")
        return await self.desk.signals.update(self.who, run_id, name, payload, key, patience_s)

    async def send_update(self, run_id: str, name: str, payload: bytes, key: str | None) -> SignalRow:
        """Record a call of an update, and return its row."""
        options.key(key, "the key of an update")
        return await self.desk.signals.send_update(self.who, run_id, name, payload, key)

    async def quarantine(self) -> list[Poison]:
        """Return what waits in quarantine, by fingerprint, the oldest first."""
        return await self.desk.quarantine.list(self.who)

    async def resolve(
        self,
        act: Literal["release", "skip", "fail"],
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
        return await self.desk.quarantine.resolve(
            self.who, act, fingerprint, run_id=run_id, note=note, result=result, progress=progress
        )


class Within:
    """Starts runs and sends events inside your own transaction. They exist once it commits, and never if it does not."""

    def __init__(self, hf: Holdfast, transaction: Transaction) -> None:
        self._hf, self._transaction = hf, transaction

    async def start(self, workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Like `hf.start`. The run can be seen, and begins, once the transaction is committed."""
        demand_workflow(workflow)
        raw, _ = workflow.shape.checked(args, kwargs, self._hf.config.payload_max_bytes)
        new = self._hf._new_run(workflow, raw)
        await self._hf._demand_own_name(workflow)
        if new.fair is not None and not new.limits:
            # A new queue would be another write, and on SQLite that would wait for the caller's transaction. What has no
            # queue here gets one from the scheduler that claims it.
            (queue,) = await self._hf.store.queues.known_queues([new.queue_key])
            new = msgspec.structs.replace(new, queue=queue)
        spans = self._hf.caller.spans
        with nullcontext(new) if spans is None else spans.starting(new) as new:
            run_id = await self._hf.store.batches.start_within(self._transaction, new)
        return Run(self._hf, shown(self._hf.namespace, run_id), workflow, within=True)

    async def emit(
        self,
        type: str,
        data: Any = None,
        *,
        subject: str | None = None,
        source: str | None = None,
        id: str | None = None,
        **attributes: str,
    ) -> None:
        """Like `hf.emit`. What the event starts and wakes goes on once the transaction is committed. Until then, nobody else
        can send or begin to wait for an event with the same type and value: keep the transaction short."""
        event = self._hf._event(type, data, subject, source, id, attributes)
        await self._hf.desk.events.emit_within(self._hf.who, [event], self._transaction)


def _roles(roles: Iterable[str]) -> tuple[str, ...]:
    known = ", ".join(repr(role) for role in ROLES)
    if isinstance(roles, str):
        raise HoldfastError(f"Holdfast(roles={roles!r}): give a list of roles: write roles=[{roles!r}]")
    if not isinstance(roles, Iterable):
        raise HoldfastError(
            f"Holdfast(roles={roles!r}): give a list of roles: {known}; with an empty list it only starts runs"
        )
    found = tuple(roles)
    for role in found:
        if role not in {*ROLES, POOL, SERVER}:
            raise HoldfastError(
                f"Holdfast(roles=…): {role!r} is no role: {known}; with an empty list it only starts runs"
            )
    return found


__all__ = ["Holdfast", "Within"]
