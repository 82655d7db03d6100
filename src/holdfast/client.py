"""The way in for programs: `Holdfast` opens a store, hosts the roles it is asked to, and starts runs.

async with Holdfast("sqlite:///holdfast.db") as hf:
    run = await hf.start(order.using(id="order-42"), "tok_1", [1, 2])
    receipt = await run.result(timeout=60)
"""

from __future__ import annotations

import asyncio
import getpass
import json
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, Self, TypeVar

from holdfast import codec
from holdfast.config import DEFAULT, Config
from holdfast.durations import Eta
from holdfast.environment import Environment
from holdfast.errors import (
    Conflict,
    HoldfastError,
    RunCancelled,
    RunFailed,
    RunStuck,
    RunUndone,
    StoreError,
    UnknownRun,
    WrongState,
)
from holdfast.gates import Gates
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import DEFAULT_TENANT, Attempt, NewRun, Poison, RunState, Step
from holdfast.model import Run as RunRow
from holdfast.node import ROLES, Node
from holdfast.store import open_store
from holdfast.store.answers import Answer
from holdfast.store.operations import Close, NewSignal
from holdfast.store.protocol import Bell, RunFilter, Store
from holdfast.supervisor.channels import Channel
from holdfast.supervisor.facts import gather
from holdfast.supervisor.outlook import Outlook, etas
from holdfast.supervisor.why import explain
from holdfast.workflow import door
from holdfast.workflow.definition import Workflow

log = logging.getLogger("holdfast.client")

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

DEFAULT_STORE = "sqlite:///holdfast.db"
ID_MAX_CHARS = 200


class RunView(NamedTuple):
    """A run and its steps as they are at one moment."""

    run: RunRow
    steps: list[Step]
    attempts: list[Attempt]
    outlook: Outlook = Outlook()
    """What was learned from others, where somebody asked for it."""


def _channels(alerts: str | Path | Mapping[str, Any], environment: Environment) -> list[Channel]:
    from holdfast.supervisor.channels.settings import load_channels  # noqa: PLC0415  loads mail and TLS

    return load_channels(alerts, environment)


class Holdfast:
    """A store, and the roles this process hosts on it. `roles=()` only starts and watches runs. `alerts` is a settings file
    (or the same as a dict) with the channels that a Supervisor here tells alerts through."""

    def __init__(
        self,
        store: str | None = None,
        *,
        roles: Iterable[str] = ROLES,
        labels: Iterable[str] = (),
        config: Config = DEFAULT,
        environment: Environment | None = None,
        alerts: str | Path | Mapping[str, Any] | None = None,
    ) -> None:
        self.url = store or os.environ.get("HOLDFAST_STORE") or DEFAULT_STORE
        self.config = config
        self.environment = environment or Environment()
        self._roles, self._labels = tuple(roles), tuple(labels)
        self._channels = [] if alerts is None else _channels(alerts, self.environment)
        self._store: Store | None = None
        self._node: Node | None = None
        self._rejoining: asyncio.Future[None] | None = None
        self._thread: _LoopThread | None = None
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
        store = open_store(self.url, self.environment, self.config)
        await store.open()
        await self._join(store, first)
        door.current = self
        return self

    async def _join(self, store: Store, first: str | None) -> None:
        """Begin as a node of this store, or leave it again."""
        self._store, self._node = store, self._new_node(store)
        try:
            await self._node.start(first)
        except BaseException:
            await self._leave(0)
            raise

    def _new_node(self, store: Store) -> Node:
        node = Node(
            store,
            roles=self._roles,
            labels=self._labels,
            environment=self.environment,
            config=self.config,
            channels=self._channels,
            about=self.about,
            pulse=self.pulse,
            only=self.only,
        )
        node.on_fenced = self._on_fenced
        return node

    def _on_fenced(self) -> None:
        if self._rejoining is None or self._rejoining.done():
            self._rejoining = asyncio.ensure_future(self._rejoin())

    async def _rejoin(self) -> None:
        """The node lost its lease and stopped itself: begin again as another one, until one has begun and has its lease."""
        node = self.node
        while node.fenced or not node.started:
            old, node = node, self._new_node(self.store)
            self._node = node
            node.succeed(old)
            await old.stop(0)
            try:
                await node.start()
            except StoreError as error:
                log.warning("joining again: %s", error)
                await self.environment.sleep(self.config.poll_s)
            except Exception:
                # Whatever it is, it is tried again: without a node this program would stand still, and say nothing.
                log.exception("joining again")
                await self.environment.sleep(self.config.poll_s)

    async def close(self, drain_s: float | None = 0.0) -> None:
        """Leave: steps still running get `drain_s` seconds to finish, and are then handed back."""
        if door.current is self:
            door.current = None
        await self._leave(drain_s)

    async def _leave(self, drain_s: float | None) -> None:
        if self._rejoining is not None:
            self._rejoining.cancel()
        if self._node is not None:
            self._node.on_fenced = None  # one that loses its lease while it leaves is not replaced
            await self._node.stop(drain_s)
        if self._store is not None:
            await self._store.close()
        self._node = self._store = None

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
    def node(self) -> Node:
        if self._node is None:
            raise HoldfastError("this Holdfast is not open: use `async with Holdfast(…) as hf:`")
        return self._node

    @property
    def store(self) -> Store:
        if self._store is None:
            raise HoldfastError("this Holdfast is not open: use `async with Holdfast(…) as hf:`")
        return self._store

    @property
    def gates(self) -> Gates:
        """Breakers and holds: what keeps steps from beginning."""
        return Gates(self.store, self.node, actor())

    # --- starting -----------------------------------------------------------------------------------------------------

    async def start(self, workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Start a run. The same id and input again gives the same run; the same id with another input is a Conflict."""
        raw, _ = workflow.shape.checked(args, kwargs)
        return await self.start_raw(workflow, raw)

    async def start_raw(self, workflow: Workflow[Any, R], raw: bytes) -> Run[R]:
        """As `start`, with an input that is already encoded (see `workflow.shape.from_json`)."""
        new = self._new_run(workflow, raw)
        answer = await self.node.start_run(new)
        if answer is Answer.FENCED:
            raise Conflict(
                f"run {new.id!r} exists and was started with another workflow or input: "
                f"`holdfast show {new.id}` shows it; choose another id"
            )
        return Run(self, new.id, workflow)

    def within(self, transaction: Any) -> Within:
        """Start runs inside the caller's own transaction on the same database: `await hf.within(tx).start(…)`."""
        return Within(self, transaction)

    def _new_run(self, workflow: Workflow[Any, Any], raw: bytes) -> NewRun:
        run_id = workflow.id or self.environment.new_id()
        if (
            not run_id.isprintable()
            or not 0 < len(run_id) <= ID_MAX_CHARS
            or run_id != run_id.strip()
            or "::" in run_id
        ):
            raise HoldfastError(
                f"{run_id[:50]!r} cannot be a run's id: 1 to {ID_MAX_CHARS} printable characters, no spaces around it, no `::`"
            )
        return NewRun(
            run_id,
            workflow.name,
            workflow.version,
            raw,
            codec.digest(raw),
            namespace=workflow.tenant or DEFAULT_TENANT,
            priority=workflow.priority,
            timeout_s=workflow.timeout_s,
            tags=workflow.tags,
        )

    def run(self, run_id: str, workflow: Workflow[Any, R] | None = None) -> Run[R]:
        """A handle to a run that exists."""
        return Run(self, run_id, workflow)

    async def runs(self, where: RunFilter | None = None) -> list[RunRow]:
        return await self.store.runs(where or RunFilter())

    async def send_signal(self, run_id: str, name: str, payload: bytes, key: str | None) -> None:
        answer = await self.store.send_signal(
            NewSignal(run_id, name, key or self.environment.new_id(), payload)
        )
        if answer is Answer.FENCED:
            raise WrongState(f"run {run_id!r} has ended and takes no signals")
        self.node.ring(Bell.OUTCOMES)

    async def quarantine(self) -> list[Poison]:
        """What waits in quarantine, by fingerprint, the oldest first."""
        return await self.store.quarantine(self.config.claim_max)

    async def settle(
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
        before, done = await self.store.now(), 0
        raw = codec.encode_any(result, "result")
        while True:
            count = await self.store.settle_quarantine(
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
                self.node.ring(bell)
            if count < self.config.claim_max:
                return done

    # --- for programs without an event loop ---------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread = _LoopThread()
        try:
            self._thread.call(self.open)
        except BaseException:
            self._thread.stop()
            self._thread = None
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        if self._thread is not None:
            try:
                self._thread.call(self.close)
            finally:
                self._thread.stop()
                self._thread = None

    def start_sync(self, workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """As `start`, from plain code: `with Holdfast(…) as hf: hf.start_sync(…).wait()`."""
        run: Run[R] = self._call_sync(lambda: self.start(workflow, *args, **kwargs))
        return run

    def _call_sync(self, call: Callable[[], Any]) -> Any:
        if self._thread is None:
            raise HoldfastError("this Holdfast is not open for plain code: use `with Holdfast(…) as hf:`")
        return self._thread.call(call)


class Within:
    """Starts runs inside a transaction of the caller: they exist when it commits, and never when it does not."""

    def __init__(self, hf: Holdfast, transaction: Any) -> None:
        self._hf, self._transaction = hf, transaction

    async def start(self, workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        raw, _ = workflow.shape.checked(args, kwargs)
        new = self._hf._new_run(workflow, raw)
        await self._hf.store.start_within(self._transaction, new)
        return Run(self._hf, new.id, workflow)


class Run(Generic[R]):
    """A handle to one run."""

    def __init__(self, hf: Holdfast, run_id: str, workflow: Workflow[Any, R] | None) -> None:
        self._hf, self.id, self._workflow = hf, run_id, workflow

    def __repr__(self) -> str:
        return f"<Run {self.id}>"

    async def result(self, timeout: float | None = None) -> R:
        """The workflow's result, when the run has ended; raises RunFailed or a subclass when it ended otherwise."""
        async with asyncio.timeout(timeout):
            close = await self._hf.node.watch_end(self.id)
        return self._result(close)

    def _result(self, close: Close) -> R:
        if close.state is RunState.SUCCEEDED:
            if self._workflow is not None:
                value: R = self._workflow.shape.decode_result(close.output or b"null")
                return value
            plain: R = json.loads(close.output or b"null")
            return plain
        told = codec.describe_error(close.error) if close.error else "no reason was recorded"
        error_type = json.loads(close.error).get("type", "") if close.error else ""
        kind = {RunState.CANCELLED: RunCancelled, RunState.UNDONE: RunUndone, RunState.STUCK: RunStuck}
        raise kind.get(RunState(close.state), RunFailed)(
            f"run {self.id} {close.state}: {told}", run_id=self.id, error_type=error_type
        )

    async def info(self) -> RunRow:
        """The run's row as it is now."""
        row = await self._hf.store.run(self.id)
        if row is None:
            raise UnknownRun(f"no run has the id {self.id!r}: `holdfast ps` lists the newest")
        return row

    async def state(self) -> RunState:
        return RunState((await self.info()).state)

    async def published(self) -> dict[str, Any]:
        """What the workflow made visible with `publish`."""
        raw = (await self.info()).published
        return json.loads(raw) if raw else {}

    async def steps(self) -> list[Step]:
        found: list[Step] = []
        while True:
            page = await self._hf.store.steps(self.id, after=found[-1].n if found else 0, limit=1000)
            found += page
            if len(page) < 1000:
                return found

    async def view(self) -> RunView:
        return RunView(await self.info(), await self.steps(), await self._hf.store.attempts(self.id))

    async def why(self) -> str:
        """One sentence: what the run waits for, and what would move it."""
        view, hf = await self.view(), self._hf
        return explain(await gather(hf.store, view.run, view.steps, view.attempts, hf.config))

    async def eta(self) -> Eta | None:
        """When the run will end if it goes on like those before it: `left_s` seconds for half of them, `most_s` for nine
        of ten. None when it is not running, or too few runs came this far to tell."""
        return (await etas(self._hf.store, [await self.info()])).get(self.id)

    async def watch(self, every_s: float = 0.1) -> AsyncIterator[RunView]:
        """The run's view, now and whenever it changed, until the run has ended."""
        last: object = None
        while True:
            view = await self.view()
            mark = (
                view.run.state,
                view.run.fence,
                view.run.progress,
                view.run.published,
                len(view.attempts),
                [(step.fence, step.delivered_seq, step.progress) for step in view.steps],
            )
            if mark != last:
                last = mark
                yield view
            if view.run.state in RUN_ENDED:
                return
            await self._hf.environment.sleep(every_s)

    async def cancel(self, note: str = "", *, force: bool = False) -> RunState:
        """Ask the run to cancel itself; its running steps are cancelled, what it did is undone. Returns the state right
        after. A run that is already undoing goes on with that, unless `force` makes it stop where it is. One whose code
        heard this before and goes on is asked again by `force` alone."""
        row = await self.info()
        state = row.state
        # One that is stuck at a step in quarantine, and not at an undo, can be cancelled like any other.
        if RunState.UNDOING in {state, row.resume} or (state is RunState.STUCK and row.resume is None):
            if force:
                state = await self._hf.store.steer_undo(self.id, "abandon", None, actor(), note)
        else:
            state = await self._hf.store.cancel_run(self.id, actor(), note, again=force)
        for bell in (Bell.OUTCOMES, Bell.RUNS, Bell.ENDED):
            self._hf.node.ring(bell)
        self._hf.node._look.set()
        return state

    async def hold(self, note: str = "") -> RunState:
        """Stop deciding: no further step is issued until `release`. Steps already running end and are recorded."""
        state = await self._hf.store.hold(self.id, actor(), note)
        self._hf.node.ring(Bell.OUTCOMES)
        return state

    async def release(self, note: str = "") -> RunState:
        state = await self._hf.store.release(self.id, actor(), note)
        self._hf.node.ring(Bell.RUNS)
        return state

    async def retry(self) -> Run[R]:
        """Try again: a live run's backing-off steps at once, and those in quarantine; a stuck run's undos that gave up; an
        ended run as a new one that keeps what succeeded before the step that failed it."""
        row = await self.info()
        if row.state not in RUN_ENDED:
            await self._hf.settle("release", run_id=self.id)
        if row.state is RunState.STUCK and row.resume is not RunState.RUNNING:
            await self._hf.store.steer_undo(self.id, "retry", None, actor(), "")
            self._hf.node.ring(Bell.OUTCOMES)
            return self
        if row.state not in RUN_ENDED:
            await self._hf.store.retry_now(self.id, actor())
            self._hf.node.ring(Bell.STEPS)
            return self
        if row.state is RunState.SUCCEEDED:
            raise WrongState(f"run {self.id!r} succeeded: there is nothing to retry")
        # What was undone must be done again.
        before = None if row.ending is not None else await self._keep_before(row)
        number = 2
        stem = self.id.rsplit("~", 1)[0] if row.retry_of else self.id
        while True:
            new_id = f"{stem}~{number}"
            with suppress(Conflict):
                await self._hf.store.retry_run(self.id, new_id, before, actor())
                break
            number += 1
        self._hf.node.ring(Bell.RUNS)
        return Run(self._hf, new_id, self._workflow)

    async def skip(self, step: str | None = None, note: str = "") -> RunState:
        """Count an undo that gave up as done, by hand: this one (the key of the step or of its undo), or all of them."""
        n = None
        if step is not None:
            found = [row.n for row in await self.steps() if row.key in {step, f"undo:{step}"}]
            if not found:
                raise UnknownRun(
                    f"run {self.id!r} has no step {step!r}: `holdfast show {self.id}` lists them"
                )
            n = found[-1]
        state = await self._hf.store.steer_undo(self.id, "skip", n, actor(), note)
        self._hf.node.ring(Bell.OUTCOMES)
        return state

    async def _keep_before(self, row: RunRow) -> int:
        """Everything delivered before the last failed step is kept; all of it when no step failed."""
        steps = await self.steps()
        failed = [step.delivered_seq for step in steps if step.state == "failed" and step.delivered_seq]
        if row.state is RunState.FAILED and failed:
            return max(failed)
        return max((step.delivered_seq or 0 for step in steps), default=0) + 1

    def wait(self, timeout: float | None = None) -> R:
        """As `result`, from plain code."""
        value: R = self._hf._call_sync(lambda: self.result(timeout))
        return value


def actor() -> str:
    """Who acts, for the journal."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


class _LoopThread:
    """An event loop in a thread of its own, for callers that have none."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast", daemon=True)
        self._thread.start()

    def call(self, call: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return await call()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()


__all__ = ["Holdfast", "Run", "RunView"]
