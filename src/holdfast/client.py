"""The way in for programs: `Holdfast` opens a store, hosts the roles it is asked to, and starts runs.

async with Holdfast("sqlite:///holdfast.db") as hf:
    run = await hf.start(order.using(id="order-42"), "tok_1", [1, 2])
    receipt = await run.result(timeout=60)

with Holdfast("sqlite:///holdfast.db") as hf:  # plain code waits for the same words
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
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal, ParamSpec, Self, TypeVar, overload

from holdfast import codec
from holdfast.actor import actor
from holdfast.caller import Caller
from holdfast.config import DEFAULT, Config
from holdfast.environment import Environment
from holdfast.errors import (
    Conflict,
    DefinitionError,
    HoldfastError,
    InvalidInput,
    NameTaken,
    StoreError,
    WrongState,
)
from holdfast.gates import Gates
from holdfast.home import Home, LoopThread, drop
from holdfast.info import RunInfo, cursor
from holdfast.model import DEFAULT_NAMESPACE, NewRun, NewSignal, Poison, RunState
from holdfast.node import POOL, ROLES, Node, session_of
from holdfast.run import Run, may_exist, unknown_run
from holdfast.store import open_store
from holdfast.store.answers import Answer
from holdfast.store.bell import Bell
from holdfast.store.origins import demand_names
from holdfast.store.reads import RunFilter
from holdfast.store.store import Store
from holdfast.store.transaction import Transaction, transaction_of
from holdfast.supervisor.channels import Channel
from holdfast.workflow import options, outside
from holdfast.workflow.declaration import check_signal, offered
from holdfast.workflow.options import Seconds
from holdfast.workflow.workflow import Workflow

log = logging.getLogger("holdfast.client")

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

DEFAULT_STORE = "sqlite:///holdfast.db"
EXIT_S = 5.0
"""How long a program that ends without closing waits for what it held to be handed back."""
NOT_OPEN = (
    "this Holdfast is not open: use `async with Holdfast(…) as hf:`, or in plain code `with Holdfast(…) as hf:`; a program "
    "without such a block opens it for as long as it lives by `hf.wait(hf.open())`"
)
FORKED = (
    "this Holdfast was opened before this process was forked, and belongs to the other one: open it in each process after the "
    "fork, by `hf.wait(hf.open())` (with gunicorn --preload: in the hook `post_worker_init`)"
)


def _channels(alerts: str | Path | Mapping[str, Any], environment: Environment) -> list[Channel]:
    from holdfast.supervisor.channels.settings import load_channels  # noqa: PLC0415  loads mail and TLS

    return load_channels(alerts, environment)


class Holdfast:
    """A store, and the roles this process hosts on it. `roles=()` only starts and watches runs. `alerts` is a settings file
    (or the same as a dict) with the channels that a Supervisor here tells alerts through. `app` names the application that
    the code here belongs to, where Holdfast would take it for another one."""

    def __init__(
        self,
        store: str | None = None,
        *,
        roles: Iterable[str] = ROLES,
        labels: Iterable[str] = (),
        config: Config = DEFAULT,
        environment: Environment | None = None,
        alerts: str | Path | Mapping[str, Any] | None = None,
        app: str | None = None,
    ) -> None:
        self.url = store or os.environ.get("HOLDFAST_STORE") or DEFAULT_STORE
        self.config = config
        self.environment = environment or Environment()
        if not isinstance(self.url, str):
            raise HoldfastError(f"Holdfast({store!r}): the address of a store, such as {DEFAULT_STORE!r}")
        self._roles, self._labels = _roles(roles), options.labels(labels, "Holdfast")
        app = app or os.environ.get("HOLDFAST_APP") or None
        self._app = None if app is None else options.text(app, "app")
        self._asked: set[str] = set()
        """Workflows that may be started here: whoever runs them has the same code, or is the same application."""
        self._channels = [] if alerts is None else _channels(alerts, self.environment)
        self._store: Store | None = None
        self._caller: Caller | None = None
        self._rejoining: asyncio.Future[None] | None = None
        self._is_leaving = False
        self._home: Home | None = None
        self._thread: LoopThread | None = None
        self._opens = os.getpid(), threading.Lock()
        self._inherited: list[object] = []
        """What belongs to the process from which this one was forked."""
        self.about: dict[str, Any] = {}
        """What nodes of this process say of themselves beside what they can serve; set before it is opened."""
        self.only: set[str] | None = None
        """The runs that nodes of this process work on: these, those it starts, and their children; set before it is opened.
        None: whatever there is."""
        self.pulse: Callable[[], Mapping[str, Any]] | None = None
        """The same of what changes, said with each renewal of the lease."""

    # --- opening ------------------------------------------------------------------------------------------------------

    async def open(self, first: str | None = None) -> Self:
        """Connect and begin. The run `first` is taken up before any step is: its code decides what still may run."""
        if outside.refuse_opening is not None:
            outside.refuse_opening()
        if self._own_home() is not None:
            raise HoldfastError("this Holdfast is open already: one is enough for a whole program")
        self.environment.after_fork()
        store = open_store(self.url, self.environment, self.config)
        await store.open()
        await self._join(store, first)
        outside.enter(self)
        return self

    async def _join(self, store: Store, first: str | None) -> None:
        """Begin as a node of this store, or leave it again."""
        self._store, self._caller = store, self._new_caller(store)
        self._home = Home(asyncio.get_running_loop())
        try:
            await self._caller.start(first)
        except BaseException:
            await self._leave(0)
            raise

    def _new_caller(self, store: Store) -> Caller:
        if not self._roles:
            return Caller(store, environment=self.environment, config=self.config)
        return self._new_node(store)

    def _new_node(self, store: Store) -> Node:
        return Node(
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
            on_fenced=self._on_fenced,
        )

    def _on_fenced(self) -> None:
        if self._is_leaving:
            return  # a node that loses its lease while it leaves is not replaced
        if self._rejoining is None or self._rejoining.done():
            self._rejoining = asyncio.ensure_future(self._rejoin())

    async def _rejoin(self) -> None:
        """The node lost its lease and stopped itself: begin again as another one, until one has begun and has its lease."""
        node = self.node
        while node.fenced or not node.started:
            old, node = node, self._new_node(self.store)
            self._caller = node
            node.take_over(old)
            await old.stop(0)
            try:
                await node.start()
            except (StoreError, NameTaken) as error:
                log.warning("joining again: %s", error)
                await self.environment.sleep(self.config.poll_s)
            except Exception:
                # Whatever it is, it is tried again: without a node this program would stand still, and say nothing.
                log.exception("joining again")
                await self.environment.sleep(self.config.poll_s)
        log.warning("joined again as node %s", node.id)

    async def close(self, drain_s: float | None = 0.0) -> None:
        """Leave: steps still running get `drain_s` seconds to finish, and are then handed back."""
        home = self._own_home()
        if home is not None:
            home.demand_here()
            home.dismiss()
        outside.leave(self)
        await self._leave(drain_s)

    async def _leave(self, drain_s: float | None) -> None:
        if self._rejoining is not None:
            self._rejoining.cancel()
        self._is_leaving = True
        try:
            if self._caller is not None:
                await self._caller.stop(drain_s)
            if self._store is not None:
                await self._store.close()
        finally:
            self._is_leaving = False
        self._caller = self._store = self._home = None

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
        """This process's way to start runs and to wait for their end."""
        self._demand_open()
        assert self._caller is not None
        return self._caller

    @property
    def node(self) -> Node:
        """What hosts the roles of this process."""
        caller = self.caller
        if not isinstance(caller, Node):
            raise HoldfastError("this Holdfast hosts no role: it was opened with roles=()")
        return caller

    @property
    def store(self) -> Store:
        self._demand_open()
        assert self._store is not None
        return self._store

    def _demand_open(self) -> None:
        home = self._own_home()
        if home is None:
            raise HoldfastError(self._not_open())
        home.demand_here()

    def _own_home(self) -> Home | None:
        """Where it is open, if it is in this process."""
        if self._home is not None and self._home.is_forked:
            # The other process goes on with these. Ending or even finalising them here would disturb it.
            self._inherited += [self._home, self._caller, self._store, self._thread]
            self._home = self._caller = self._store = self._thread = self._rejoining = None
            outside.leave(self)
        return self._home

    def _not_open(self) -> str:
        return FORKED if self._inherited else NOT_OPEN

    @property
    def gates(self) -> Gates:
        """Breakers and holds: what keeps steps from beginning."""
        return Gates(lambda: self.caller, actor())

    # --- for code outside of the event loop ---------------------------------------------------------------------------

    @overload
    def wait(self, what: AsyncIterator[T], timeout: Seconds | None = None) -> Iterator[T]: ...
    @overload
    def wait(self, what: Awaitable[T], timeout: Seconds | None = None) -> T: ...
    def wait(self, what: Any, timeout: Seconds | None = None) -> Any:
        """Plain code's `await`: `hf.wait(run.state())`, from any thread but the event loop's own. And its `async for`:
        `for view in hf.wait(run.watch()):`. With a `timeout`, TimeoutError when it takes longer; of an iterator, for each value.

        It works wherever the Holdfast was opened: by `with` or `hf.wait(hf.open())`, whose event loop runs in a thread of its
        own, and by `async with` or `lifespan` in another thread.
        """
        token = outside.chosen.set(self)
        try:
            if not isinstance(what, Awaitable | AsyncIterator):
                raise HoldfastError(
                    f"hf.wait({what!r}): give it what you would await: `hf.wait(run.state())`"
                )
            return self._wait(what, options.patience(timeout, "hf.wait(timeout=…)"))
        except BaseException:
            drop(what)
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
            if self._home is None:  # that was the closing
                self._end_thread()

    def _wait_unopened(self, what: Any, patience_s: float | None) -> Any:
        """It may be the opening: it gets an event loop in a thread of our own, which ends if it was something else."""
        if isinstance(what, AsyncIterator):
            raise HoldfastError(self._not_open())
        with self._opening():
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

    def _opening(self) -> threading.Lock:
        """One thread opens, others wait for it; but not for one of the process from which this one was forked."""
        pid, lock = self._opens
        if pid != os.getpid():
            self._opens = os.getpid(), (lock := threading.Lock())
        return lock

    def _end_thread(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            atexit.unregister(self._leave_at_exit)
            thread.stop()

    def _leave_at_exit(self) -> None:
        """The program ends without having closed: hand back what is held, so that nobody has to find out."""
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
        """Start a run. The same id and input again gives the same run; the same id with another input is a Conflict."""
        raw, _ = workflow.shape.checked(args, kwargs, self.config.payload_max_bytes)
        return await self.start_raw(workflow, raw)

    async def start_raw(self, workflow: Workflow[Any, R], raw: bytes) -> Run[R]:
        """As `start`, with an input that is already encoded (see `workflow.shape.from_json`)."""
        new = self._new_run(workflow, raw)
        await self._demand_own(workflow)
        answer = await self.caller.start_run(new)
        if answer is Answer.FENCED:
            raise Conflict(
                f"run {new.id!r} exists and was started with another workflow or input: "
                f"`holdfast show {new.id}` shows it; choose another id"
            )
        return Run(self, new.id, workflow, known=True)

    async def _demand_own(self, workflow: Workflow[Any, Any]) -> None:
        """A process that only starts runs has not registered its names: those who run this workflow must mean the same."""
        name = f"workflow {workflow.name}@{workflow.version}"
        if "scheduler" in self._roles or name in self._asked:
            return
        own = offered(("scheduler",), self._app, session_of(self.environment))
        demand_names(own, await self.store.workflows.rivals(own.code), only=name)
        self._asked.add(name)

    def within(self, connection: Any) -> Within:
        """Start runs inside a transaction of the caller on the same database: `await hf.within(connection).start(…)`.

        `connection` is what the transaction was begun on: a connection of asyncpg or psycopg 3, a session or connection of
        SQLAlchemy, Django's `connection`, or on SQLite one of apsw.
        """
        return Within(self, transaction_of(connection))

    def _new_run(self, workflow: Workflow[Any, Any], raw: bytes) -> NewRun:
        run_id = workflow.id or self.environment.new_id()
        return NewRun(
            run_id,
            workflow.name,
            workflow.version,
            raw,
            codec.digest(raw),
            namespace=workflow.namespace or DEFAULT_NAMESPACE,
            priority=workflow.priority,
            timeout_s=workflow.timeout_s,
            tags=workflow.tags,
        )

    @overload
    def run(self, run_id: str) -> Run[Any]: ...
    @overload
    def run(self, run_id: str, workflow: Workflow[..., R]) -> Run[R]: ...
    def run(self, run_id: str, workflow: Workflow[..., Any] | None = None) -> Run[Any]:
        """A handle to a run that exists. With its workflow, results have the declared type, otherwise they are JSON values."""
        return Run(self, run_id, workflow)

    async def runs(
        self,
        *,
        state: str | Iterable[str] = (),
        workflow: str | Workflow[..., Any] | None = None,
        tags: Mapping[str, str] | None = None,
        limit: int = 50,
        before: RunInfo | None = None,
    ) -> list[RunInfo]:
        """Runs, newest first: those in one of these states, of this workflow (its name, or the last part of it), with all of
        these tags. The next page is what comes `before` the last run of this one."""
        states = (state,) if isinstance(state, str) else tuple(state)
        for one in states:
            if one not in set(RunState):
                raise HoldfastError(f"runs(state={one!r}): a run is {', '.join(RunState)}")
        if options.whole_number(limit, "runs(limit=…)") < 1:
            raise HoldfastError(f"runs(limit={limit!r}): how many runs at most, from 1")
        where = RunFilter(
            states=states,
            workflow=workflow.name if isinstance(workflow, Workflow) else workflow,
            tags={str(key): str(value) for key, value in (tags or {}).items()},
            before=None if before is None else cursor(before),
            limit=limit,
        )
        return [RunInfo(row) for row in await self.store.reads.runs(where)]

    async def send_signal(self, run_id: str, name: str, payload: bytes, key: str | None) -> None:
        """Send a signal whose value is already encoded. One that the run's workflow does not take, by what its code declares,
        is refused: UnknownSignal, or InvalidInput for what it carries."""
        if not may_exist(run_id):
            raise unknown_run(run_id)
        try:
            options.text(name, "the name of a signal")
        except DefinitionError as wrong:
            raise InvalidInput(str(wrong)) from None
        await self.caller.declare()
        declared = await self.store.workflows.declared(run_id)
        if declared is not None:
            check_signal(declared, run_id, name, payload)
        answer = await self.store.operators.send_signal(
            NewSignal(
                run_id,
                name,
                codec.stored_text(key, "the key of a signal") if key else self.environment.new_id(),
                payload,
            )
        )
        if answer is Answer.FENCED:
            raise WrongState(f"run {run_id!r} has ended and takes no signals")
        self.caller.ring(Bell.OUTCOMES)

    async def quarantine(self) -> list[Poison]:
        """What waits in quarantine, by fingerprint, the oldest first."""
        return await self.store.quarantine.quarantine(self.config.claim_max)

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
        """Decide about all steps in quarantine with this fingerprint, or of this run: `release` them with fresh budgets,
        `skip` them, as if each had returned `result`, or `fail` them. How many there were. In batches, each a transaction;
        `progress` hears how many are done. What comes into quarantine meanwhile is left alone."""
        if fingerprint is None and run_id is None:
            raise HoldfastError(
                "say which steps: a fingerprint, as `holdfast quarantine` lists them, or a run"
            )
        codec.stored_text(note, "note")
        before, done = await self.store.now(), 0
        raw = codec.encode_open(result, "result", self.config.payload_max_bytes)
        while True:
            count = await self.store.quarantine.resolve_quarantine(
                act,
                fingerprint=fingerprint,
                run_id=run_id,
                before=before,
                result=raw,
                actor=actor(),
                note=note,
                limit=self.config.claim_max,
            )
            done += count
            if progress is not None and count:
                progress(done)
            for bell in (Bell.STEPS, Bell.OUTCOMES, Bell.RUNS):
                self.caller.ring(bell)
            if count < self.config.claim_max:
                return done


class Within:
    """Starts runs inside a transaction of the caller: they exist when it commits, and never when it does not."""

    def __init__(self, hf: Holdfast, transaction: Transaction) -> None:
        self._hf, self._transaction = hf, transaction

    async def start(self, workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """As `hf.start`. The run can be seen, and begins, when the transaction is committed."""
        raw, _ = workflow.shape.checked(args, kwargs, self._hf.config.payload_max_bytes)
        new = self._hf._new_run(workflow, raw)
        await self._hf._demand_own(workflow)
        await self._hf.store.batches.start_within(self._transaction, new)
        return Run(self._hf, new.id, workflow, within=True)


def _roles(roles: Iterable[str]) -> tuple[str, ...]:
    known = ", ".join(repr(role) for role in ROLES)
    if isinstance(roles, str):
        raise HoldfastError(f"Holdfast(roles={roles!r}): a list of roles: write roles=[{roles!r}]")
    if not isinstance(roles, Iterable):
        raise HoldfastError(
            f"Holdfast(roles={roles!r}): a list of roles: {known}; none of them only starts runs"
        )
    found = tuple(roles)
    for role in found:
        if role not in {*ROLES, POOL}:
            raise HoldfastError(
                f"Holdfast(roles=…): {role!r} is no role: {known}; none of them only starts runs"
            )
    return found


__all__ = ["Holdfast", "Within"]
