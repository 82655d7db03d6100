"""A world for one test: one process at a time, which another one replaces when it dies, and a clock that the test
moves.

The process hosts all roles. Its agent does not execute steps itself: it calls `perform`, which may pretend to. Time
passes by itself while there is something to do. When a workflow waits, the test moves the clock with `advance`. For a
long wait the stage closes the process and opens another one afterwards, as it would be over a weekend. So every long
sleep tests replay, too. While no run is open there is nothing to replay: then the process stays, and dozes.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from types import FunctionType
from typing import Any, NamedTuple, TypeVar, cast

from msgspec.structs import asdict

from holdfast.agent.agent import Agent
from holdfast.agent.assignment import Assignment
from holdfast.agent.claims import Claimer
from holdfast.agent.executor import Executor
from holdfast.config import DEFAULT, Config
from holdfast.errors import HoldfastError
from holdfast.lifecycle import RUN_ENDED, STEP_ENDED
from holdfast.logs import LogInfo
from holdfast.model import (
    DEADLINE,
    REQUEST_PREFIX,
    UPDATE_PREFIX,
    NewSignal,
    RunRow,
    RunState,
    SignalRow,
    StepKind,
    StepRow,
    StepState,
)
from holdfast.node import Node
from holdfast.store.answers import ClaimedRequest, ClaimedStep, UpdateEnd
from holdfast.store.bell import Bell
from holdfast.store.reads import RunFilter
from holdfast.store.store import Store
from holdfast.supervisor.facts import gather
from holdfast.supervisor.lateness import next_promise
from holdfast.supervisor.leadership import lease_s as leader_lease_s
from holdfast.supervisor.why import explain
from holdfast.testing.world import EPOCH, Faults, Past, Process, SharedDatabase, World
from holdfast.workflow import outside
from holdfast.workflow.here import CurrentAttempt
from holdfast.workflow.step import Step as AuthoredStep
from holdfast.workflow.workflow import Workflow

T = TypeVar("T")

CALM = Config(
    heart=False, lease_s=60, renew_s=20, leader_lease_s=15, sweep_s=3, poll_s=5, watch_s=60, beat_s=10
)
"""Each time a process polls the store it costs real time. So the intervals here are longer than in production."""
SKIP_S = 3.0
"""For a wait that is longer than this, the stage closes the process and sets the clock forward."""
DOZE_S = 120.0
"""If no run is open, the process stays for a wait that is longer than this. All that it waits for by itself, at the
intervals of `CALM`, is due after it."""
STILL_S = 7200.0
"""When nothing was written for this long, whatever is still going on will not end by itself."""
EDGE_S = 0.001
"""`advance` also does what comes due this soon after its end: a time of day as a float has only seven decimal
places."""
BEHIND_S = 60.0
"""A run may say that it was made this much earlier than it was, because the node that made it goes by its own clock."""
PAGE = 1000
ACTIVE = (str(RunState.PENDING), str(RunState.RUNNING), str(RunState.UNDOING))
OPEN = tuple(str(state) for state in RunState if state not in RUN_ENDED)
ABOUT_NODES = frozenset({"register", "renew", "lead", "resign", "retire", "reconcile", "lane"})
"""Writes that do not change any run."""


class WatchedAttempt(CurrentAttempt):
    """One attempt, which notices when the step's code reads its key."""

    __slots__ = ("_key", "_undoes", "reads_key")

    reads_key: bool

    @classmethod
    def of(cls, at: CurrentAttempt) -> WatchedAttempt:
        made = cls(
            run_id=at.run_id,
            key=at.key,
            attempt=at.attempt,
            step=at.step,
            on_beat=at.on_beat,
            on_save=at.on_save,
            saved_raw=at.saved_raw,
            loop=at.loop,
            undoes=at.undoes,
            keeper=at.keeper,
            twin=at.twin,
            callback=at.callback,
        )
        made.reads_key = False
        return made

    @property
    def key(self) -> str:
        self.reads_key = True
        return self._key

    @key.setter
    def key(self, key: str) -> None:
        self._key = key

    @property
    def undoes(self) -> str | None:
        self.reads_key = True
        return self._undoes

    @undoes.setter
    def undoes(self, undoes: str | None) -> None:
        self._undoes = undoes

    @property
    def effect(self) -> str:
        """The key. Reading it here does not count as the step's code reading it."""
        return self._key

    @property
    def undone(self) -> str | None:
        """The key of the step that this one undoes. Reading it here does not count either."""
        return self._undoes


class StageAttempt(NamedTuple):
    """One attempt that `perform` executes, or pretends to."""

    process: Process
    step: AuthoredStep[Any, Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    here: WatchedAttempt


Perform = Callable[[StageAttempt], Awaitable[Any]]


class _AllClaims(Claimer):
    def can_serve(self, name: str, needs: tuple[str, ...]) -> bool:
        return name in self._steps

    async def _address(self, found: list[ClaimedStep]) -> None:
        """Steps get an address at which nobody listens: the test answers by the run."""
        for place, item in enumerate(found):
            if item.key.startswith(REQUEST_PREFIX):
                url = f"https://callback.invalid/v1/callbacks/{item.run_id}:{item.n}"
                found[place] = ClaimedRequest(**asdict(item), callback=url)


class _LoopExecutor(Executor):
    """Executes every step in the event loop: a simulation has no threads and no other processes."""

    def begin(self, assignment: Assignment) -> None:
        assignment.task = asyncio.get_running_loop().create_task(self._in_loop(assignment))


class PretendingAgent(Agent):
    """An agent that claims and reports steps like any other, and calls `perform` in place of each step's code."""

    claims_type = _AllClaims
    executor_type = _LoopExecutor
    process: Process
    perform: Perform

    def _begin(
        self, assignment: Assignment, checkpoint: bytes | None = None, *, is_barred: bool = False
    ) -> None:
        step = assignment.step

        async def pretend(*args: Any, **kwargs: Any) -> Any:
            assert isinstance(assignment.here, WatchedAttempt)
            return await self.perform(StageAttempt(self.process, step, args, kwargs, assignment.here))

        assignment.step = step.using()
        assignment.step.fn = cast("FunctionType", pretend)
        super()._begin(assignment, checkpoint, is_barred=is_barred)
        if assignment.here is not None:
            assignment.here = WatchedAttempt.of(assignment.here)


class _StageNode(Node):
    agent_type = PretendingAgent

    async def doze(self, seconds: float) -> bool:
        """Renew the leases as they will be after so much time in which the loops do not run. Return False if this node does
        not lead, or has work left: then it cannot doze."""
        supervisor, agent, scheduler = self.supervisor, self.agent, self.scheduler
        if supervisor is None or supervisor.epoch is None or self.fenced:
            return False
        if (agent is not None and agent.assignments) or (scheduler is not None and scheduler.runs):
            return False
        config, store = self.config, self.store
        if await store.nodes.renew(self.id, seconds + config.lease_s) is None:
            return False
        if await store.leader.lead(self.id, seconds + leader_lease_s(config)) != supervisor.epoch:
            return False
        self.heartbeat.renewed(self.environment.monotonic() + seconds)
        return True

    async def wake(self) -> None:
        """Do at once what has come due meanwhile, as a node does that begins. The loops go on from where they were."""
        assert self.supervisor is not None
        if await self.loops.guarded("supervising", self.supervisor.tick):
            for bell in (Bell.RUNS, Bell.STEPS, Bell.OUTCOMES, Bell.CANCELS):
                self.bells.ring(bell)


class _StageProcess(Process):
    perform: Perform
    plays_schedules: bool

    def _new_node(self, store: Store) -> Node:
        node = _StageNode(
            store,
            roles=self._roles,
            environment=self.environment,
            config=self.config,
            on_fenced=self._on_fenced,
        )
        assert isinstance(node.agent, PretendingAgent)
        node.agent.process, node.agent.perform = self, self.perform
        node.declares_schedules = self.plays_schedules
        return node


class _StageWorld(World):
    changes = 0

    def committed(self, process: Process, verb: str, asked: dict[str, Any]) -> None:
        if verb not in ABOUT_NODES:
            self.changes += 1


class Activity(NamedTuple):
    """What is going on, over all runs. Times are by the store's clock."""

    busy: bool = False
    """Whether there is something to do now."""
    back_off: float | None = None
    """When a step is next ready to be tried again."""
    timer: float | None = None
    """When a workflow's next wait ends."""
    deadline: float | None = None
    """When the next run reaches its deadline."""
    schedule: float | None = None
    """When the next schedule is due."""
    ask: float | None = None
    """When there is something to do about a question to people, or a callback expires."""
    occasion: float | None = None
    """When there is something to do about a composed trigger."""
    promise: float | None = None
    """When a run that was promised to end can next become late."""


class Stage:
    def __init__(
        self,
        seed: int | str,
        perform: Perform,
        *,
        faults: Faults | None = None,
        past: Past | None = None,
        opened: int = 0,
        schedules: bool = False,
    ) -> None:
        """With `schedules`, the schedules of the code are played, too."""
        self.plays_schedules = schedules
        self.world = _StageWorld(seed, config=CALM, faults=faults, past=past)
        self.loop = self.world.loop
        self.perform = perform
        self.process: Process | None = None
        self.opened = opened
        """How many processes there have been, including those of the past. A process's random numbers depend on its
        number."""
        observer = self.world.process("observer", roles=())
        self.store = Store(SharedDatabase(self.world, observer))
        self._see(self.store.open())
        self._looked: tuple[int, float, Activity] | None = None
        self._open_runs = _OpenRuns(self.store)
        self._changes, self._changed_at = 0, self.loop.now
        self.check: Callable[[], None] = lambda: None
        """Called now and then while time passes. The stage's user can raise here an error that occurred inside a
        step."""

    @property
    def now(self) -> float:
        return self.world.store_now()

    def close(self) -> None:
        if self.process is not None:
            outside.leave(self.process)
            self.world.kill(self.process)
            _abandon_runs(self.process)
        for task in asyncio.all_tasks(self.loop):
            _forget(task)
        self.world.close()

    # --- the process ------------------------------------------------------------------------------------------------

    def _living_process(self) -> Process:
        """Return the process, after opening another one if it died."""
        while self.process is None or self.process.dead:
            if self.process is not None:
                outside.leave(self.process)
                _abandon_runs(self.process)
            self.opened += 1
            made = _StageProcess(self.world, f"node-{self.opened}")
            made.perform, made.plays_schedules = self.perform, self.plays_schedules
            self.world.processes.append(made)
            self.process = made
            opening = self._until_done(made, made.open())
            if opening.done() and not made.dead:
                opening.result()  # raises what kept it from opening: the next one would meet that, too
            outside.enter(made)
        return self.process

    def _until_done(self, process: Process, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run this as the process's own work until it is done or the process dies."""
        task = process.run_task(work)
        self.loop.run(until=lambda: task.done() or process.dead)
        if not task.done():
            _forget(task)
        return task

    def ask(self, make: Callable[[Process], Coroutine[Any, Any, T]]) -> T:
        """Let the process do something, and return the result. If the process dies meanwhile, the next one does it
        again."""
        self.demand_no_loop()
        while True:
            process = self._living_process()
            task = self._until_done(process, make(process))
            if task.done():
                return task.result()

    def _see(self, work: Coroutine[Any, Any, T]) -> T:
        """Read from the store, outside of every simulated process."""
        return self.loop.run_until_complete(work)

    def kill(self) -> None:
        if self.process is not None:
            self.world.kill(self.process)

    def _leave(self) -> None:
        """Close the process in good order."""
        process = self.process
        if process is not None and not process.dead:
            closing = self._until_done(process, process.close())
            self.world.kill(process)
            if closing.done():
                # Nothing of it is left to end. A year has thousands of them, which would fill the memory.
                self.world.processes.remove(process)
                self.loop.forget_done()

    def _doze(self, until: float) -> bool:
        """Let the process stay while time passes in which it has nothing to do. Return False if it cannot."""
        process = self.process
        if process is None or process.dead or not self.plays_schedules or not self._open_runs.is_empty:
            return False
        node = process._caller
        assert isinstance(node, _StageNode)
        dozing = self._until_done(process, node.doze(until - self.loop.now))
        if not dozing.done() or not dozing.result():
            return False
        self.loop.skip(until)
        self._changed_at = (
            self.loop.now
        )  # nobody could write meanwhile, which does not mean that anything is stuck
        self._until_done(process, node.wake())
        self.loop.forget_done()
        return True

    def demand_no_loop(self) -> None:
        if asyncio._get_running_loop() is not None:
            raise HoldfastError(
                "a simulation runs its own event loop, and one is running already: "
                "write the test as `def`, and do not call the simulation from a step"
            )

    # --- time -------------------------------------------------------------------------------------------------------

    def run_until_idle(self, end: float = math.inf) -> Activity:
        """Run until nothing is left but workflows that wait, and return what is going on then.

        Steps that back off are tried again, unless that is after `end`. Work that writes nothing for `STILL_S` is not
        waited for: then the activity that this returns is still busy.
        """
        self.demand_no_loop()
        while True:
            self.check()
            process = self._living_process()
            self.loop.run(until=lambda process=process: not self.loop.ready or process.dead)  # type: ignore[misc]
            if process.dead:
                continue
            look = self._look()
            if look.busy:
                if self.loop.now - self._changed_at > STILL_S:
                    return look
                before = self.loop.callbacks
                self.loop.run(until=lambda before=before: self.loop.callbacks > before)  # type: ignore[misc]
            elif look.back_off is None or look.back_off > end:
                return look
            else:
                self._pass(
                    _earliest(look) or look.back_off
                )  # a workflow's wait may end before the back-off does

    def advance(self, seconds: float) -> None:
        """Let this much time pass, and do what comes due in it."""
        end = self.now + seconds
        while (due := _earliest(self.run_until_idle(end))) is not None and due <= end + EDGE_S:
            self._pass(due)
        self._pass(end)
        self.run_until_idle(end)

    def down(self, seconds: float) -> None:
        """Let this much time pass without any process, and then let another one do what came due meanwhile."""
        end = self.now + seconds
        self.run_until_idle(self.now)
        self._leave()
        self.loop.now = self._changed_at = self._at(end)
        self.run_until_idle(end)

    def _at(self, until: float) -> float:
        """Return the time of the loop at this time of the store's clock."""
        target = until - EPOCH
        while EPOCH + target < until:
            target += 1e-7  # rounding must not end before `until`: what is due then would not happen
        return target

    def _pass(self, until: float) -> None:
        """Let time pass until this time of the store's clock."""
        target = self._at(until)
        wait_s = target - self.loop.now
        if wait_s > SKIP_S:
            if not (wait_s > DOZE_S and self._doze(target)):
                self._leave()
                self.loop.now = max(self.loop.now, target)
        elif target > self.loop.now:
            process = self._living_process()
            self.loop.run(until=lambda: process.dead, end=target)
            if not process.dead:
                self.loop.now = max(self.loop.now, target)

    def _look(self) -> Activity:
        """Return what is going on. Read the store again only when something was written or came due."""
        if self._changes != self.world.changes:
            self._changes, self._changed_at = self.world.changes, self.loop.now
        if self._looked is not None:
            changes, until, look = self._looked
            # What is to be done now stays so until something is written, whatever else comes due.
            if changes == self.world.changes and (look.busy or self.now < until):
                return look
        look = self._see(_look_at(self.store, self._open_runs, self.now))
        due = _earliest(look)
        self._looked = (self.world.changes, math.inf if due is None else due, look)
        return look

    # --- runs -------------------------------------------------------------------------------------------------------

    def start(self, workflow: Workflow[Any, Any], raw: bytes) -> str:
        """Start a run and return its id. Only one run starts, however often the process dies meanwhile."""
        named = workflow if workflow.id is not None else workflow.using(id=self.new_id())
        return self.ask(lambda process: process.start_raw(named, raw)).id

    def send(self, signal: NewSignal) -> None:
        """Send a signal, or call an update. If the process dies, it is sent again under the same key, so it arrives
        once."""
        name = signal.name
        if name.startswith(UPDATE_PREFIX):
            self.call(signal.run_id, name.removeprefix(UPDATE_PREFIX), signal.payload, signal.key)
        else:
            self.ask(lambda process: process.send_signal(signal.run_id, name, signal.payload, signal.key))

    def call(self, run_id: str, name: str, payload: bytes, key: str) -> SignalRow:
        """Record a call of an update, and return its row."""
        return self.ask(lambda process: process.send_update(run_id, name, payload, key))

    def answer(self, row: SignalRow) -> UpdateEnd | None:
        """Return what became of an update. None if that is not known yet."""
        return next(iter(self._see(self.store.reads.answers([row.id]))), None)

    def new_id(self) -> str:
        return self.world.processes[0].environment.new_id()

    def run(self, run_id: str) -> RunRow:
        row = self._see(self.store.reads.run(run_id))
        assert row is not None
        return row

    def history(self, run_id: str) -> tuple[list[StepRow], list[SignalRow]]:
        return self._see(_steps(self.store, run_id)), self._see(self.store.reads.signals(run_id))

    def logs(self, run_id: str, step: str | None) -> list[LogInfo]:
        """Return what a run, or one of its steps, has logged."""
        return self.ask(lambda process: process.run(run_id).logs(step))

    def runs(self) -> list[RunRow]:
        found = self._see(self.store.reads.runs(RunFilter(limit=PAGE)))
        if len(found) == PAGE:
            raise HoldfastError(f"there are {PAGE:,} runs or more, too many for a simulation: start fewer")
        return found

    def has_active_run(self) -> bool:
        """True if there is a run that is pending, running or undoing."""
        return bool(self._see(self.store.reads.runs(RunFilter(states=ACTIVE, limit=1))))

    def why(self, run_id: str) -> str:
        steps, _ = self.history(run_id)
        attempts = self._see(self.store.reads.attempts(run_id))
        return explain(self._see(gather(self.store, self.run(run_id), steps, attempts, DEFAULT)))


def _abandon_runs(process: Process) -> None:
    """Remove the code of the process's runs from memory."""
    caller = process._caller
    if isinstance(caller, Node) and caller.scheduler is not None:
        caller.scheduler.abandon()


def _forget(task: asyncio.Task[Any]) -> None:
    """Close a task that a killed process left behind, without the warning that asyncio would log."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio has no other switch for it
    with suppress(BaseException):
        task.get_coro().close()


async def _steps(store: Store, run_id: str) -> list[StepRow]:
    found: list[StepRow] = []
    while page := await store.reads.steps(run_id, after=found[-1].n if found else 0, limit=PAGE):
        found += page
    return found


class _OpenRuns:
    """Knows the runs that have not ended. Only those that were open are read again, and those that are newer: after a year there
    are thousands of others. What has ended stays so, except for the child of a run that is undone."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ids: list[str] = []
        self._since: float | None = None

    @property
    def is_empty(self) -> bool:
        """True if the last look found none."""
        return not self._ids

    async def read(self, now: float) -> list[RunRow]:
        """Return these runs, the newest first."""
        new = await self._store.reads.runs(RunFilter(states=OPEN, since=self._since, limit=PAGE))
        ids = {run.id for run in new}
        known = [await self._store.reads.run(run_id) for run_id in self._ids if run_id not in ids]
        found = new + [run for run in known if run is not None and run.state not in RUN_ENDED]
        found_ids = {run.id for run in found}
        for run in found:  # this grows while it is read: a child that is undone undoes its own
            if run.state is RunState.UNDOING:
                children = await self._store.reads.children(run.id)
                again = [one for one in children if one.state in OPEN and one.id not in found_ids]
                found_ids |= {one.id for one in again}
                found += again
        self._ids, self._since = [run.id for run in found], now - BEHIND_S
        return found


async def _look_at(store: Store, open_runs: _OpenRuns, now: float) -> Activity:
    busy = False
    ready: list[float] = []
    timers: list[float] = []
    deadlines: list[float] = []
    for run in await open_runs.read(now):
        if run.state not in ACTIVE:
            continue
        if run.state is RunState.PENDING and run.begin_at is not None and run.begin_at > now:
            timers.append(run.begin_at)
            continue
        steps = await _steps(store, run.id)
        waits = False
        for step in steps:
            if step.state in STEP_ENDED:
                busy |= step.delivered_seq is None
            elif step.quarantined:
                waits = True
            elif step.state is StepState.READY:
                waits = True
                ready.append(step.ready_at)
            elif step.state is StepState.RUNNING:
                busy = True
            elif step.kind is StepKind.TIMER:
                waits = waits or step.key != DEADLINE
                (deadlines if step.key == DEADLINE else timers).append(step.ready_at)
            elif step.kind is not StepKind.UNDO:
                waits = True
        busy |= not waits  # a run that waits for nothing is about to go on, or to end
        busy |= any(signal.delivered_seq is None for signal in await store.reads.signals(run.id))
    duties = await store.leader.duties(CALM.timeout_grace_s, CALM.breaker_window_s)
    if duties.fires:
        looks = await store.schedules.schedule_looks("", 1)
        busy |= bool(looks.names or looks.backfills)
    promise = await next_promise(store, now) if duties.promises else None
    found = Activity(
        busy,
        back_off=min(ready, default=None),
        timer=min(timers, default=None),
        deadline=min(deadlines, default=None),
        schedule=duties.schedule_at,
        ask=_first(duties.ask_at, duties.callback_at),
        occasion=_first(duties.part_at, duties.occasion_at),
        promise=promise,
    )
    due = _earliest(found)
    return found._replace(busy=busy or (due is not None and due <= now))


def _earliest(look: Activity) -> float | None:
    return _first(*look[1:])


def _first(*times: float | None) -> float | None:
    return min((at for at in times if at is not None), default=None)
