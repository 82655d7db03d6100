"""One seed: a few processes, a few runs, some faults. Then all heals, and every run must end.

While faults last, safety is checked: the invariants after every commit, the ledger at every effect. Then liveness:
within `HEAL_MAX_S` of virtual time (more for children) every run that was accepted has ended. At the end every run's result, undos and
effects are compared with what its plan demands.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from functools import lru_cache, partial, wraps
from hashlib import blake2b
from random import Random
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from msgspec import structs

from holdfast import Stop
from holdfast.access import local
from holdfast.agent.assignment import Assignment
from holdfast.config import Config
from holdfast.desk.gates import Gates
from holdfast.durations import step_name
from holdfast.errors import HoldfastError, StoreError, UnknownRun, WrongState
from holdfast.heartbeat import WAS_RECLAIMED
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import NEVER, REQUEST_PREFIX, UNDO_PREFIX, NewSignal, Outcome, call_key, undone_key
from holdfast.namespaces import BETWEEN
from holdfast.node import Node
from holdfast.sketch import bucket_of
from holdfast.store.answers import Answer
from holdfast.store.operations import HandBack, Hop, RetryStep, Save, Start
from holdfast.store.sqlite.verbs import STATEMENTS
from holdfast.store.verbs import Verb
from holdfast.testing.loop import PROCESS
from holdfast.testing.world import EPOCH, Process, World
from holdfast.workflow import declaration, registry
from holdfast.workflow.here import here, here_var
from holdfast.workflow.step import Step as DeclaredStep
from tests.lifecycle import Watch
from tests.simulation import program
from tests.simulation.endings import check_endings
from tests.simulation.faults import DEATHS_MAX, Seams, Swarm
from tests.simulation.invariants import Checker, Commit, Run, Step
from tests.simulation.ledger import DONE, Book, ledger
from tests.simulation.network import ServerProcess
from tests.simulation.nodes import WatchedProcess, carried_out
from tests.simulation.parts import NAMESPACES, USUAL_S, Parts
from tests.simulation.parts.threads import CHILDREN
from tests.simulation.schedule import Schedule, drawn_parts, unusual
from tests.simulation.sometimes import observe

FAULTS_S = 5.0
"""How long things go wrong."""
HEAL_MAX_S = 45.0
"""How long a run may take to end after the last fault."""
PROBE_MAX_S = 15.0
"""How much longer after the last breaker may be tried again: its probes come one after another, and then the steps that waited."""
BREAKERS_MAX_S = 90.0
"""By how much breakers put that off at most. A breaker that opens again and again for the same steps must not hide that."""
CHILD_MAX_S = 4.0
"""How much longer for each child that there is: a scheduler with room for one run undoes them one after another."""
CALLBACKS_AT_ONCE_MAX = 20_000
"""Callbacks without any time passing. A loop that spins would otherwise hang the seed instead of failing it."""
CALLBACKS_A_SECOND_MAX = 2_000
"""Callbacks in a second of virtual time. A loop that asks the store again and again for what is not due yet ends nothing,
and costs a processor."""
CALLBACKS_A_COMMIT_MAX = 20
"""How many more for each commit in that second: after the store has been away, much is done at once."""
RETRIES_S = 8.0
"""Until when operators retry what has ended."""
LEASE_PRECISION_S = 0.02
"""How much longer a node may believe that it has its lease, because its clock is slow."""
NAP_PRECISION_S = 0.001
"""By how much rounding may make a nap shorter."""
COLLECT_AFTER = (20_000, 5, 100)
"""The limits of Python's garbage collector while a seed is played."""
ROLES = ("scheduler", "agent", "supervisor")
DATABASE_ERROR = "a database error"
"""Begins what is broken when SQLite refuses a statement."""
CHECK_RAISED = "check raised"
"""Begins what is broken when a check itself raised an exception, and so has not judged what it looked at."""


P = ParamSpec("P")
R = TypeVar("R")


def judging(method: Callable[Concatenate[Simulation, P], R]) -> Callable[Concatenate[Simulation, P], R]:
    """Make an exception in a check a failure of the seed. The product calls these methods, and would take the exception
    for an error of its own: of the store, or of a step. `Stop` is meant for the step."""

    @wraps(method)
    def judge(self: Simulation, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except Stop:
            raise
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.broke(f"{CHECK_RAISED} {error!r} in {method.__name__}, at {where.name}")
            raise

    return judge


class Result:
    """What one seed found, and how much it did."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.broken: list[str] = []
        self.hash = ""
        self.virtual_s = 0.0
        self.commits = 0
        self.callbacks = 0
        self.runs: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.sometimes: Counter[str] = Counter()
        self.schedule = Schedule(seed)


class Simulation(World):
    process_type = WatchedProcess

    def __init__(
        self,
        seed: int,
        trace: Callable[[str], None] | None = None,
        schedule: Schedule | None = None,
        parts: Parts | None = None,
    ) -> None:
        """With a schedule, play what it says in place of what the seed draws. `parts` are the seed's parts, if they are
        drawn already."""
        self.dice = Random(f"simulation/{seed}")
        self.result = Result(seed)
        self._saves = Random(f"saves/{seed}")
        self._given = schedule
        self.trace = trace
        config = Config(
            lease_s=2.0,
            renew_s=0.6,
            leader_lease_s=1.5,
            sweep_s=0.6,
            poll_s=self.dice.choice((0.6, 1.2, 4.0)),
            park_after_s=self.dice.choice((0.2, 0.6, 3.0)),
            runs_max=self.dice.choice((2, 4, 50)),
            steps_max=self.dice.choice((1, 2, 8)),
            threads_max=1,
            claim_max=self.dice.choice((2, 50)),
            batch_max=self.dice.choice((1, 3, 50)),
            losses_max=self.dice.choice((1, 3)),
            timeout_grace_s=0.4,
            watch_s=2.0,
            drain_s=0.4,
            learn_s=5.0,
            pool_look_s=5.0,
            beat_s=0.7,
            replay_slice_steps=self.dice.choice((3, 100)),
        )
        self.parts = parts or Parts(seed, faults_s=FAULTS_S)
        if self.parts.any:
            config = structs.replace(config, **self.parts.settings())
        for part in self.parts:
            config = structs.replace(config, **part.settings())
        self.swarm = Swarm(Random(f"swarm/{seed}"))
        if self.parts.plays("calm"):
            self.swarm.rates = {}
        if schedule is not None:
            config = schedule.config()
            schedule.set_parts(self.parts)
            self.swarm.rates = schedule.rates
        self.seams = Seams(self, self.swarm)
        super().__init__(seed, config=config, faults=self.seams)
        self.checker = Checker(self, config, tuple(check for part in self.parts for check in part.checks))
        self.book = Book()
        self.plans: dict[str, program.Plan] = {}
        self.accepted: dict[str, None] = {}
        self.leased_until: dict[str, float] = {}
        """When each node's lease ends, in true time."""
        self.resumed_at: dict[Process, float] = {}
        self.acting: Counter[str] = Counter()
        """For each node, how many `async def` steps' code it runs."""
        self.clocks_ok = True
        self._hash = blake2b(digest_size=8)
        self._names = 0
        self._driving: list[asyncio.Task[Any]] = []
        self.shared: dict[str, program.Plan] = {}
        """Runs that other runs start or join by their ids, and that no caller starts."""
        self.limits_s: dict[str, float | None] = {}
        """How long each run may take: see `parts/deadlines.py`."""
        self.warned: set[int] = set()
        """Alerts about late runs that were seen."""
        self.fates: dict[tuple[str, str], str] = {}
        """What became of each run in each act on many runs."""
        self.gathered: dict[str, int] = {}
        """With how many starts each run began that took several."""
        self.skipped: dict[tuple[str, str], int] = {}
        """For each effect (run, key) whose undo an operator skipped: when its run learned that. See
        `parts/steering.py`."""
        self.begun_attempts: set[tuple[str, int, int]] = set()
        """(run, n, attempt) of attempts whose code began."""
        self.pruned: set[str] = set()
        """Runs that were removed: see `parts/retention.py`."""
        self._retrying: asyncio.Task[None] | None = None
        self._instant, self._instant_began_with = 0.0, 0
        self._second, self._second_began_with, self._second_commits = 0.0, 0, 0
        self._ghosts: set[asyncio.Task[Any]] = set()
        """Tasks that write something again, as a network does that delivers a message twice. They look at no lease."""

    @property
    def healed(self) -> bool:
        return self.seams.healed

    # --- what is counted and logged -----------------------------------------------------------------------------------

    def count(self, kind: str) -> None:
        self.result.faults[kind] += 1

    def sometimes(self, what: str) -> None:
        self.result.sometimes[what] += 1

    def broke(self, what: str) -> None:
        self.result.broken.append(what)
        self.log(f"BROKEN {what}")
        self.loop.stop()

    def root_of(self, run_id: str) -> str:
        """Return the first run of a chain of retries."""
        while (run := self.checker.runs.get(run_id)) is not None and run.retry_of is not None:
            run_id = run.retry_of
        return run_id

    def chain_of(self, run_id: str | None) -> Iterator[str]:
        """Yield a run, and those that it is the retry of."""
        while run_id is not None:
            yield run_id
            run = self.checker.runs.get(run_id)
            run_id = run and run.retry_of

    def is_fork(self, run: Run) -> bool:
        """True if the run, or the first of its chain of retries, is a fork."""
        return self.checker.runs[self.root_of(run.id)].forked_from is not None

    @property
    def heal_until(self) -> float:
        """By when all runs that there are now must have ended."""
        children = sum(run.parent_id is not None for run in self.checker.runs.values())
        until = FAULTS_S + HEAL_MAX_S + CHILD_MAX_S * children
        if any(row.state == "probing" for row in self.checker.breakers.values()):
            until += (
                self.checker.config.breaker_open_max_s
            )  # it closes after that if no step is left to probe it with
        tried = [
            row.open_until - EPOCH for row in self.checker.breakers.values() if row.open_until is not None
        ]
        return max(until, min(max(tried, default=0.0) + PROBE_MAX_S, until + BREAKERS_MAX_S))

    def has_own_plan(self, run_id: str) -> bool:
        """True if a plan was drawn for this run, and not as a part of another one's."""
        return run_id in self.plans or run_id in self.shared

    def plan_of(self, run_id: str) -> program.Plan:
        return self.plans.get(run_id) or self.shared[run_id]

    def log(self, text: str) -> None:
        self._hash.update(f"{self.loop.now:.6f} {text}\n".encode())
        if self.trace is not None:
            self.trace(f"{self.loop.now:9.4f} {text}")

    @judging
    def committed(self, process: Process, verb: str, asked: dict[str, Any]) -> None:
        self.result.commits += 1
        if verb == "renew":
            self.checker.renewed(asked["node"], self.read_lease(asked["node"]))
            self.log(f"{process.name} renew")
            for part in self.parts:
                part.renewed(self, asked["node"])
            return
        commit = self.checker.look(process, verb, asked)
        if self.checker.broken:
            for broken in self.checker.broken:
                self.broke(broken)
            self.checker.broken = []
        node = asked.get("node")
        if verb == "register" and node is not None and node not in self.leased_until:
            self.read_lease(node)  # who registers again keeps the lease as it is
        self._log_commit(process, verb, commit)
        observe(self, commit)
        for part in self.parts:
            part.observe(self, commit)
        if not self.healed and self.swarm["doubled"]:
            if verb == "commit":
                self._double(process, asked)
            elif verb == "end_twin":
                self._double_twin(process, asked)

    def read_lease(self, node: str) -> float:
        """Read when the lease of a node ends, and return that. It is in the node's row, and nobody else knows it."""
        until: float = self.connection.execute("SELECT lease_until FROM nodes WHERE id = ?", (node,)).get
        lasts_s = until - self.store_now()
        self.leased_until[node] = self.loop.now + lasts_s
        if lasts_s > self.config.lease_s + 0.001:
            self.broke(f"I3 the lease of {node} lasts for {lasts_s:.3f} s, not for {self.config.lease_s} s")
        return until

    @judging
    def asking(self, process: Process, verb: str, asked: dict[str, Any]) -> None:
        """Check that a node begins to write only while it has its lease. It needs none for a start, nor a server for what
        agents report: those have leases of their own."""
        serves = isinstance(process, ServerProcess)
        if verb == "commit" and not all(
            type(op) is Start or (serves and not isinstance(op, Hop)) for op in asked["ops"]
        ):
            if asyncio.current_task() in self._ghosts:
                return
            until = self.leased_until.get(asked["node"], 0.0)
            late_s = self.loop.now - until
            if late_s > LEASE_PRECISION_S:
                self.broke(f"I27 {asked['node']} began to write {late_s:.3f} s after its lease had ended")
            if not serves:
                node = process.node
                believed = self.loop.now + node.heartbeat.until - node.environment.monotonic()
                if node.id == asked["node"] and believed > until + LEASE_PRECISION_S:
                    self.broke(f"I27 {node.id} believes in its lease for {believed - until:.3f} s too long")

    def rolled_back(self) -> None:
        self.checker.forget()

    def refused(self, process: Process, verb: str, error: Exception) -> None:
        self.broke(f"{DATABASE_ERROR} in {verb} of {process.name}: {error!r}")

    def _log_commit(self, process: Process, verb: str, commit: Commit) -> None:
        rows = [
            f"{change.table}{tuple(change.after[:5]) if change.after is not None else ('gone', *change.before[:2])}"
            for change in commit.changes
        ]
        self.log(f"{process.name} {verb} {' '.join(rows)}")

    # --- the ledger's side --------------------------------------------------------------------------------------------

    @judging
    def began(self, tag: int) -> str:
        """Note that a step's code begins, and return the node whose place it takes. Its attempt must be in the store,
        and its node must have its lease and a place for it, and must not know of a gate that keeps it from
        beginning."""
        run_id, key = executing(), here.key.split("::", 1)[1]
        self.book.begun[f"{run_id}::{key}"] += 1
        n = self.checker.keys.get((run_id, key))
        step = None if n is None else self.checker.steps.get((run_id, n))
        process = PROCESS.get()
        assert isinstance(process, Process)
        node = process.node.id
        if self.parts.hedge and n is not None and self._is_twin(process, run_id, n):
            twin = self.checker.twins.get((run_id, n))
            if twin is None or twin.agent != node:
                self.broke(f"G3 a twin of {here.key} began that {node} did not claim")
        elif step is not None and step.attempt < here.attempt:
            self.broke(f"G3 attempt {here.attempt} of {here.key} began before it was committed")
        elif n is not None and (why := self.checker.bars(node, run_id, n, here.attempt)):
            self.broke(f"I21 attempt {here.attempt} of {here.key} began, and {node} knew of {why}")
        elif step is not None and (step.state, step.agent, step.attempt) == ("running", node, here.attempt):
            self.begun_attempts.add((run_id, step.n, step.attempt))
            self._demand_recorded(step, tag)
        self._demand_lease("began")
        return node

    def _demand_recorded(self, step: Step, tag: int) -> None:
        """Check that the code of an attempt gets what is recorded for it."""
        if here.key != step.effect_key:
            self.broke(
                f"I75 {here.key} began, and step {step.n} of {step.run_id} has the key {step.effect_key}"
            )
        given = json.loads(step.input or b"{}").get("tag", tag)
        if given != tag:
            self.broke(f"I75 {here.key} got the tag {tag}, and {given} is recorded")
        saved = getattr(here_var.get(), "saved_raw", None)
        if saved != step.checkpoint:
            self.broke(
                f"I75 {here.key} began with the checkpoint {saved!r}, and {step.checkpoint!r} is recorded"
            )

    @judging
    def hands_over(self, assignment: Assignment) -> None:
        """Check that an agent has its lease when it is about to begin a step."""
        process = PROCESS.get()
        assert isinstance(process, Process)
        late_s = self.loop.now - self.leased_until.get(process.node.id, 0.0)
        if late_s > LEASE_PRECISION_S:
            self.broke(
                f"I27 {process.node.id} began step {assignment.n} of {assignment.run_id} {late_s:.3f} s after its lease had ended"
            )

    def gives_up(self, node: Node, why: str) -> None:
        """Check that a node that has its lease does not stop itself. The measures are those of the node: its own clock, and
        the renewal that was answered last."""
        row = self.checker.nodes.get(node.id)
        left_s = node.heartbeat.until - node.environment.monotonic()
        if left_s > LEASE_PRECISION_S and row is not None and row.retired_at is None and not node.fenced:
            if why != WAS_RECLAIMED:
                self.broke(f"I40 {node.id} has its lease for {left_s:.2f} s more, and stops itself: {why}")

    def _is_twin(self, process: Process, run_id: str, n: int) -> bool:
        agent = process.node.agent
        assignment = None if agent is None else agent.assignments.get((run_id, n, True))
        return assignment is not None and assignment.here is here_var.get()

    def use_place(self, node: str) -> None:
        self.acting[node] += 1
        if self.acting[node] > self.config.steps_max:
            self.broke(f"I6 {node} runs {self.acting[node]} steps and has {self.config.steps_max} places")

    def free_place(self, node: str) -> None:
        """Note that the code of a step has ended."""
        self.acting[node] -= 1

    def napped(self, seconds: float, took_s: float) -> None:
        """Check that a nap took its time, by the clock that the code of a workflow sees. A replay repeats it. A retry or fork
        may keep the nap and do again what came before."""
        runs = self.checker.runs.values()
        if took_s < seconds - NAP_PRECISION_S and not any(run.retry_of or run.forked_from for run in runs):
            self.broke(f"I19 a nap of {seconds} s took {took_s:.3f} s")

    async def call_shop(self) -> None:
        """Raise while the shop is down, at once or after a while."""
        begin, end = self.parts.shop_down
        if begin <= self.loop.now < end and not self.healed:
            self.sometimes("the shop was down")
            if self.dice.random() < 0.2:
                await asyncio.sleep(self.dice.random() * 3)
            raise ConnectionError("the shop is down")

    async def play_child(self, step: DeclaredStep[Any, Any], arguments: Any) -> Any:
        """Play the process of an isolated step, and return its result."""
        return await step.shape.call(CHILDREN[step.name], arguments)

    async def kill_process(self) -> None:
        """Kill the process that runs this step."""
        process = PROCESS.get()
        assert isinstance(process, Process)
        if self.seams.deaths < DEATHS_MAX:
            self.seams.deaths += 1
            self.sometimes("a step killed its agent")
            self.kill(process)
            await asyncio.sleep(0)

    @judging
    def did(self, key: str, tag: int) -> None:
        self._demand_lease("had an effect")
        if self.parts.retries and (other := self._done_before(key, tag)):
            self.broke(f"G2 {other} was done and not undone, and is done again as {key}")
        self.book.did(key, tag, executing(), self.root_of(executing()))
        if key.split("::", 1)[0] != executing():
            self.sometimes("an effect kept its key when its run was retried")

    @judging
    def saved(self, tag: int) -> None:
        """Note that a step heard that its checkpoint is saved. If it still has the step, the checkpoint is there."""
        place, step = self._step_here()
        process = PROCESS.get()
        assert isinstance(process, Process)
        is_mine = step.state == "running" and (step.agent, step.attempt) == (process.node.id, here.attempt)
        if not is_mine or (self.parts.hedge and self._is_twin(process, *place)):
            return
        found = self.connection.execute("SELECT checkpoint FROM steps WHERE run_id = ? AND n = ?", place).get
        if found != str(tag).encode():
            self.broke(f"G2 the checkpoint of {here.key} was acknowledged, and the store has {found!r}")
        self.book.saved.add(place)

    @judging
    def looks_for_checkpoint(self) -> None:
        """Check that an attempt finds what an earlier one saved. One that was stopped at its beginning goes on with what
        there was then: its step belongs to another one."""
        if here.saved is None and self._step_here()[0] in self.book.saved and self.is_attempted():
            self.broke(f"G2 attempt {here.attempt} of {here.key} does not find the checkpoint")

    def is_attempted(self) -> bool:
        """True while the store says that the step runs, in the attempt whose code calls this."""
        step = self._step_here()[1]
        return step.state == "running" and step.attempt == here.attempt

    def _step_here(self) -> tuple[tuple[str, int], Step]:
        """Return the row of the step whose code calls this, and where it is."""
        place = executing(), self.checker.keys[executing(), here.key.split("::", 1)[1]]
        return place, self.checker.steps[place]

    def _done_before(self, key: str, tag: int) -> str | None:
        """Return the key with which the same step had its effect in an earlier run of a chain of retries, if that was
        not undone."""
        keys = self.book.chains.get((self.root_of(executing()), tag), {})
        for other in keys:
            if other != key:
                if self.book.effects[other] == DONE:
                    if any(self._is_steered(run) for run in self.chain_of(executing())):
                        continue  # an operator said that it stays as it is, of this run or of a retry that took it over
                    if _are_two_requests(key, other):
                        continue  # nobody answered in time: see I61, which says when a call may ask again
                    return other
                self.sometimes("a retry did again what was undone")
        return None

    def _is_steered(self, run_id: str | None) -> bool:
        """True if an operator skipped or abandoned undos of a run, or of one above it."""
        while run_id is not None:
            if {(run_id, "skip"), (run_id, "abandon")} & self.checker.steered:
                return True
            run = self.checker.runs.get(run_id)
            run_id = run and run.parent_id
        return False

    @judging
    def undid(self, key: str, tag: int, done: int | None) -> None:
        """Note that an effect is undone. Its undo is given the result of the step, or None if nobody knows it."""
        self._demand_lease("undid something")
        place, undo = self._step_here()
        own = undone_key(here.key.split("::", 1)[1])[0]
        n = self.checker.keys.get((place[0], own))
        step = None if n is None else self.checker.steps.get((place[0], n))
        if step is not None and step.kind == "call":
            known = json.loads(step.output or b"null") if step.state == "succeeded" else None
            # A saga may have given the step up before it heard of the result, also if both came with one hop.
            is_unheard = done is None and (
                step.delivered_seq == 0 or 0 < undo.after_seq < (step.delivered_seq or 0)
            )
            if key != step.effect_key or (done != known and not is_unheard):
                self.broke(f"I75 the undo of {step.effect_key} got the key {key} and {done}, not {known}")
        self.book.undid(key)

    def _demand_lease(self, what: str) -> None:
        """Check that the node has its lease: without it, it may do nothing outside. A node that was stopped finds out
        when it goes on, and not before."""
        process = PROCESS.get()
        assert isinstance(process, Process)
        until = self.leased_until.get(process.node.id, 0.0)
        if self.loop.now > until + LEASE_PRECISION_S and self.resumed_at.get(process) != self.loop.now:
            self.broke(
                f"G2 {here.key} {what} {self.loop.now - until:.3f} s after the lease of its node had ended"
            )

    # --- processes ----------------------------------------------------------------------------------------------------

    def process(self, name: str, **settings: Any) -> Process:
        kinds = (part.process_type(settings["roles"]) for part in self.parts)
        made = next((kind for kind in kinds if kind is not None), self.process_type)(self, name, **settings)
        self.processes.append(made)
        return made

    def spawn(self, roles: tuple[str, ...]) -> Process:
        self._names += 1
        skew = self.swarm["skew"]
        process = self.process(
            f"p{self._names}",
            roles=roles,
            labels=[label for part in self.parts for label in part.labels()],
            skew_s=self.dice.uniform(-100, 100) if skew else 0.0,
            rate=1 + self.dice.uniform(-0.002, 0.002) if skew else 1.0,
        )
        for part in self.parts:
            part.spawned(self, process)
        process.run_task(self._opening(process))
        self.log(f"{process.name} starts: {','.join(roles)}")
        return process

    async def _opening(self, process: Process) -> None:
        """Try to open the process until it runs, as an init system does."""
        while True:
            try:
                await process.open()
            except StoreError:
                await process.environment.sleep(0.3)
            else:
                return

    @property
    def living(self) -> list[Process]:
        return [process for process in self.processes if not process.dead]

    @property
    def working(self) -> list[Process]:
        return [
            process
            for process in self.processes
            if not process.dead and process.missed is None and isinstance(process._caller, Node)
        ]

    def kill(self, process: Process, *, vanish: bool = False) -> None:
        super().kill(process, vanish=vanish)
        for part in self.parts:
            part.killed(self, process)
        self.log(f"{process.name} is killed")
        self.sometimes("a process was killed")
        node = process._caller
        if isinstance(node, Node) and node.agent is not None and node.agent.assignments:
            self.sometimes("a process was killed in the middle of a step")
        if not self.healed:
            after_s = self.dice.choice((0.1, 0.5, 2.0))
            self._later(after_s, lambda: self.spawn(process.roles))

    def resume(self, process: Process) -> None:
        if not process.dead and process.missed is not None:
            self.resumed_at[process] = self.loop.now
            self.log(f"{process.name} goes on")
        super().resume(process)

    def close(self) -> None:
        for part in self.parts:
            part.close()
        super().close()

    def _later(self, after_s: float, call: Callable[[], object]) -> None:
        self.loop.call_later(after_s, call, context=Context())

    # --- what happens by itself -----------------------------------------------------------------------------------------

    def _plan_faults(self) -> list[tuple[str, float]]:
        """Plan the faults that come by themselves, and return them with their times."""
        dice = self.swarm.dice
        actions: dict[str, Callable[[], None]] = {
            "kill": self._kill_one,
            "vanish": lambda: self._kill_one(vanish=True),
            "pause": self._pause_one,
            "pause the leader": self._pause_leader,
            "cut off": self._cut_one_off,
            "outage": self._outage,
            "full": self._fill_disk,
            "clock": self._step_clock,
            "drain": self._drain_one,
        }
        faults: list[tuple[str, float]] = []
        for kind in actions:
            at = 0.0
            while rate := self.swarm[kind]:
                at += dice.expovariate(rate / 1.5)
                if at > FAULTS_S - 0.5:
                    break
                faults.append((kind, at))
        if self._given is not None:
            faults = self._given.faults
        for kind, at in faults:
            self._later(at, self._fault(kind, actions[kind]))
        return faults

    def _fault(self, kind: str, act: Callable[[], None]) -> Callable[[], None]:
        def do() -> None:
            if not self.healed:
                self.count(kind)
                self.log(f"fault: {kind}")
                act()

        return do

    def _kill_one(self, *, vanish: bool = False) -> None:
        living = self.living
        if living and self.seams.deaths < DEATHS_MAX:
            self.seams.deaths += 1
            if vanish:
                self.sometimes("a host vanished")
            self.kill(self.swarm.dice.choice(living), vanish=vanish)

    def _pause_one(self) -> None:
        if self.working:
            self._pause(self.swarm.dice.choice(self.working))

    def _pause(self, process: Process) -> None:
        for_s = self.config.lease_s * self.swarm.dice.choice((0.2, 0.7, 1.2, 1.8))
        if for_s > self.config.lease_s:
            self.sometimes("a process was stopped for longer than its lease")
        self.log(f"{process.name} is stopped for {for_s}")
        self.pause(process, for_s)

    def _pause_leader(self) -> None:
        for process in self.working:
            if process.node.supervisor is not None and process.node.supervisor.epoch is not None:
                self.sometimes("the leader was stopped")
                self._pause(process)
                return

    def _cut_one_off(self) -> None:
        if self.working:
            process = self.swarm.dice.choice(self.working)
            for_s = self.swarm.dice.choice((0.3, 1.5, 2.8))
            self.seams.cut_off.add(process.name)
            self._later(for_s, lambda: self.seams.cut_off.discard(process.name))

    def _outage(self) -> None:
        self.seams.outage = True
        self._later(self.swarm.dice.choice((0.2, 1.0, 2.5)), lambda: setattr(self.seams, "outage", False))

    def _fill_disk(self) -> None:
        self.seams.full = True
        self._later(self.swarm.dice.choice((0.2, 1.0, 2.5)), lambda: setattr(self.seams, "full", False))

    def _step_clock(self) -> None:
        by_s = self.swarm.dice.choice((-3.0, -0.5, 0.5, 3.0, 60.0))
        if by_s < 0 and any(part.goes_by_time for part in self.parts):
            return
        self.clocks_ok = False
        self.sometimes(f"the clock was set {'back' if by_s < 0 else 'forward'}")
        self.step_clock(by_s)

    def _drain_one(self) -> None:
        """Drain a process, as SIGTERM does, and start another one in its place."""
        if self.working:
            process = self.swarm.dice.choice(self.working)

            async def leave() -> None:
                await process.close(self.config.drain_s)
                super(Simulation, self).kill(process)
                self.sometimes("a process left and was replaced")
                self.spawn(process.roles)

            process.run_task(leave())

    def _double(self, process: Process, asked: dict[str, Any]) -> None:
        """Write the same operation again later, when what it says is no longer true."""
        ops = [op for op in asked["ops"] if isinstance(op, Outcome | RetryStep | HandBack | Hop)]
        if ops and self.swarm.strikes("doubled"):
            op = self.swarm.dice.choice(ops)
            store, node = process.store, asked["node"]

            async def again() -> None:
                await asyncio.sleep(self.swarm.dice.random() * 2.5)
                if isinstance(op, Hop) and op.begin is not None and op.run_id in self.pruned:
                    return  # clocks were set ahead: nothing is written again after days
                try:
                    answer = (await store.batches.commit(node, [op]))[0]
                except StoreError:
                    return
                self.count("doubled")
                if answer is Answer.ACCEPTED and not (isinstance(op, Hop) and _is_harmless(op)):
                    self.broke(f"G2 the same {type(op).__name__} was accepted twice: {op}")
                self.sometimes(f"a doubled {type(op).__name__} was {answer}")

            self._ghosts.add(process.run_task(again()))
        for save in asked["ops"]:
            if isinstance(save, Save) and self._saves.random() < self.swarm["doubled"]:
                self._ghosts.add(process.run_task(self._save_again(process, asked["node"], save)))

    async def _save_again(self, process: Process, node: str, save: Save) -> None:
        """Write a checkpoint again when its attempt is over. While it is not, a node writes nothing old again."""
        await asyncio.sleep(self._saves.random() * 2.5)
        step = self.checker.steps.get((save.run_id, save.n))
        if step is None or step.fence != save.fence:
            with suppress(StoreError):
                await process.store.batches.commit(node, [save])

    def _double_twin(self, process: Process, asked: dict[str, Any]) -> None:
        if self.parts.hedge:
            store = process.store
            ended = asked["node"], asked["twin"], asked["state"], asked["output"], asked["outran"]

            async def again() -> None:
                await asyncio.sleep(self.swarm.dice.random() * 2.5)
                try:
                    answer = await store.twins.end_twin(*ended)
                except StoreError:
                    return
                self.count("doubled")
                if answer is Answer.ACCEPTED:
                    self.broke(f"G2 the same end of a twin was accepted twice: {ended}")
                self.sometimes(f"the doubled end of a twin was {answer}")

            process.run_task(again())

    # --- callers and operators --------------------------------------------------------------------------------------------

    def _draw_runs(self) -> None:
        dice = self.dice
        ids = [f"r{i}" for i in range(1, dice.choice((1, 2, 2, 3, 4)) + 1)]
        if self._given is not None:
            ids = [run_id for run_id in self._given.plans if BETWEEN not in run_id]  # see `parts/walls.py`
        for run_id in ids:
            others = [other for other in ids if other != run_id]
            if self.parts.families:
                self.plans[run_id] = self._draw_family(others)
            elif self.parts.any:
                draw = program.Draw(self.parts.dice, others, self.parts.steps(), self.parts.behaviours())
                self.plans[run_id] = draw.wide()
            else:
                self.plans[run_id] = self._draw_plan(others)
            if self._given is not None:
                self.plans[run_id] = self._given.plans[run_id]
            self.drive(self._start(run_id))
            for i in range(program.signals_awaited(self.plans[run_id])):
                self.drive(self._send(run_id, f"key {i}"))
            if self.parts.odd:
                self.drive(self._send_odd(run_id))
            for kind, act in (("cancel", self._cancel), ("hold", self._hold), ("retry now", self._retry_now)):
                if self.swarm[kind] and dice.random() < 0.7:
                    self.drive(act(run_id))
        if self._given is not None:
            self.shared = self._given.shared
        for scope, after_s, for_s in self.parts.holds:
            self.drive(self._hold_gate(scope, after_s, for_s))
        for how, after_s, for_s in self.parts.forces:
            self.drive(self._force_breaker(how, after_s, for_s))
        if self.parts.resolves:
            self.drive(self._resolve())
        for part in self.parts:
            part.begin(self)
        if self.parts.retries:
            self._retrying = self.loop.create_task(self._retry_ended())

    def _draw_plan(self, others: list[str]) -> program.Plan:
        """Draw a plan of what all seeds draw from, and of what the parts add."""
        parts = self.parts.more
        draw = program.Draw(
            parts[0].dice if parts else self.dice,
            others,
            program.USUAL + tuple(name for part in parts for name in part.steps()),
            program.BEHAVIOURS + tuple(how for part in parts for how in part.behaviours()),
            kinds=tuple(kind for part in parts for kind in part.kinds()),
        )
        plan = draw.program()
        for part in parts:
            plan = part.finished(plan)
        return plan

    def _draw_family(self, others: list[str]) -> program.Plan:
        parts, dice = self.parts, self.parts.later
        behaviours: tuple[str, ...] = program.BEHAVIOURS
        if parts.odd:
            behaviours += ("unstorable",)
        if parts.retries:
            behaviours += ("broken", "lingers", "no reply", "no reply")
        kinds = ("wait", "wait") * parts.odd + ("named", "named") * parts.names
        if parts.names and not self.shared:
            for run_id in ("s1", "s2"):
                self.shared[run_id] = program.Draw(dice, others, behaviours=behaviours).bounded()
        named = (*others, *self.shared, *self.shared) if parts.names else ()
        return program.Draw(dice, others, behaviours=behaviours, named=named, kinds=kinds).program()

    def drive(self, coro: Coroutine[Any, Any, None]) -> None:
        self._driving.append(self.loop.create_task(coro))

    async def asked(self, ask: Callable[[Process], Coroutine[Any, Any, Any]], *, tries: int = 1000) -> Any:
        """Ask some process, and another one when it does not answer. Return None when none did."""
        for _ in range(tries):
            working = self.working
            if working:
                process = self.dice.choice(working)
                task = process.run_task(_answered(ask(process)))
                await asyncio.wait([task], timeout=1.0)
                answer = task.result() if task.done() else None
                if answer is not None:
                    return answer[0]
                task.cancel()
            await asyncio.sleep(0.1 + self.dice.random() * 0.3)
        return None

    async def _start(self, run_id: str) -> None:
        await asyncio.sleep(self.dice.random() ** 2 * 1.5)
        workflow, plan = program.program.using(id=run_id), json.dumps(self.plans[run_id])
        for part in self.parts:
            workflow = part.using(self, workflow, run_id)
        self.log(f"start {run_id} {plan}")
        tries = 1 if self.parts.plays("retention") else 1000
        while (
            await self.asked(lambda process: process.start(workflow, plan), tries=tries) is None
            and run_id not in self.checker.runs  # else it would be started again after it was removed
        ):
            pass
        self.accepted[run_id] = None
        self.log(f"accepted {run_id}")

    async def _send(self, run_id: str, key: str) -> None:
        await asyncio.sleep(self.dice.random() * 3)
        while run_id not in self.accepted:  # noqa: ASYNC110  in virtual time, polling costs nothing
            await asyncio.sleep(0.3)
        payload = json.dumps(key).encode()
        await self.asked(
            lambda process: carried_out(
                process, process.store.operators.send_signal(NewSignal(run_id, "note", key, payload))
            )
        )

    async def _cancel(self, run_id: str) -> None:
        await asyncio.sleep(self.dice.random() * 3)
        answer = await self.asked(
            lambda process: carried_out(
                process, process.store.operators.cancel_run(run_id, "sim", "no more")
            ),
            tries=4,
        )
        if answer is not None:
            self.sometimes("a run was asked to cancel itself")

    async def _hold(self, run_id: str) -> None:
        await asyncio.sleep(self.dice.random() * 2.5)
        if (
            await self.asked(
                lambda process: carried_out(process, process.store.operators.hold(run_id, "sim", "wait")),
                tries=4,
            )
            is None
        ):
            return
        self.sometimes("a run was held")
        await asyncio.sleep(self.dice.random() * 2)
        await self.asked(
            lambda process: carried_out(process, process.store.operators.release(run_id, "sim", "go on"))
        )

    async def _retry_now(self, run_id: str) -> None:
        await asyncio.sleep(self.dice.random() * 2.5)
        await self.asked(
            lambda process: carried_out(process, process.store.operators.retry_now(run_id, "sim")), tries=3
        )

    async def _send_odd(self, run_id: str) -> None:
        """Send a signal that does not fit, as someone does who does not know what the workflow waits for."""
        dice = self.parts.later
        await asyncio.sleep(dice.random() * 2)
        signal = NewSignal(run_id, "note", "odd", b'{"not": "text"}')
        await self.asked(
            lambda process: carried_out(process, process.store.operators.send_signal(signal)), tries=8
        )

    async def _retry_ended(self) -> None:
        """Retry runs that have failed, were cancelled or undone, as an operator does; sometimes twice."""
        dice = self.parts.later
        left = dice.randint(2, 5)
        while left and self.loop.now < RETRIES_S:
            await asyncio.sleep(0.2 + dice.random())
            retried = {run.retry_of for run in self.checker.runs.values()}
            ended = [
                run.id
                for run in self.checker.runs.values()
                if run.state in RUN_ENDED and run.state != "succeeded" and run.id not in retried
            ]
            if ended:
                left -= 1
                run_id = dice.choice(ended)
                self.log(f"retry {run_id}")
                first = await self.asked(partial(_retry_run, run_id), tries=3)
                if first is not None and dice.random() < 0.4:
                    second = await self.asked(partial(_retry_run, run_id), tries=3)
                    if second not in (None, first):
                        self.broke(f"G1 run {run_id} was retried as {first} and as {second}")

    async def _hold_gate(self, scope: str, after_s: float, for_s: float) -> None:
        value = {
            "workflow": program.program.name,
            "step": self.parts.dice.choice((program.order, program.fetch, program.work)).name,
            "dependency": "shop",
            "namespace": self.parts.dice.choice(NAMESPACES),
            "all": True,
        }[scope]
        asked: dict[str, Any] = {"everything" if scope == "all" else scope: value}

        def gates(process: Process) -> Gates:
            """Return the gates of the whole store: somebody who has all namespaces holds one of them, or all."""
            return Gates(lambda: process.desk.gates, local("sim"))

        await asyncio.sleep(after_s)
        if await self.asked(lambda process: gates(process).hold(**asked), tries=4) is None:
            # There was no answer, but the hold may be there all the same.
            await asyncio.sleep(0.5)
        else:
            self.log(f"held {asked}")
        await asyncio.sleep(for_s)
        await self.asked(lambda process: gates(process).release(**asked))
        self.log(f"released {asked}")

    async def _force_breaker(self, act: str, after_s: float, for_s: float) -> None:
        await asyncio.sleep(after_s)
        await self.asked(lambda process: getattr(process.gates, act)("shop"), tries=4)
        await asyncio.sleep(for_s)
        await self.asked(lambda process: process.gates.reset("shop"))

    async def _resolve(self) -> None:
        """Look at quarantine now and then and decide, as an operator does."""
        dice = self.parts.dice
        while True:
            await asyncio.sleep(0.5 + dice.random())
            waiting = [step for step in self.checker.steps.values() if step.ready_at > NEVER / 2]
            for run_id in {step.run_id: None for step in waiting}:
                act = dice.choice(("release", "skip", "fail"))
                if any(step.key.startswith(UNDO_PREFIX) for step in waiting if step.run_id == run_id):
                    act = "release"
                await self.asked(partial(_resolve_quarantine, run_id, act), tries=2)

    async def _tend(self) -> None:
        """After the heal, do what an operator does who sees a run held or stuck."""
        given_up: set[tuple[str, int]] = set()
        while True:
            await asyncio.sleep(1.0)
            quarantined = {one.run_id for one in self.checker.steps.values() if one.ready_at > NEVER / 2}
            for run in list(self.checker.runs.values()):
                if run.state == "held":
                    await self.asked(partial(_release, run.id), tries=2)
                elif run.state == "running" and run.deadline is not None and run.id in quarantined:
                    # It is not stuck, because its deadline would end it.
                    await self.asked(partial(_resolve_quarantine, run.id, "release"), tries=2)
                elif run.state == "stuck":
                    await self.asked(partial(_resolve_quarantine, run.id, "release"), tries=2)
                    undos = self._failed_undos(run.id)
                    lost = [n for n, step in undos if step.kind == "child" and (run.id, n) not in given_up]
                    if lost:  # the undo of a child was abandoned: to ask for it again is of no use
                        given_up.add((run.id, lost[0]))
                        await self.asked(partial(_skip_undo, run.id, lost[0]), tries=2)
                    else:
                        await self.asked(partial(_retry_undo, run.id), tries=2)
                elif run.state == "running" and run.retry_of is not None:
                    await self._send_again(run.id)

    def _failed_undos(self, run_id: str) -> list[tuple[int, Step]]:
        """Return the undos of a run that failed."""
        return [
            (n, step)
            for (owner, n), step in self.checker.steps.items()
            if owner == run_id and step.key.startswith(UNDO_PREFIX) and step.state == "failed"
        ]

    async def _send_again(self, run_id: str) -> None:
        """Send to a retry the signals it waits for: those that were sent when the run before had ended were refused."""
        for step in list(self.checker.steps.values()):
            if step.run_id == run_id and step.kind == "signal" and step.state == "waiting":
                signal = NewSignal(run_id, "note", f"again {step.n}", b'"again"')
                await self.asked(partial(_send_signal, signal), tries=2)

    # --- one seed -----------------------------------------------------------------------------------------------------------

    def play(self) -> Result:
        ledger.simulation = self
        result = self.result
        states = Watch(self.connection)
        if self.parts.hedge:
            self._learn_before()
        roles = list(self._draw_roles())
        for part in self.parts:
            roles = part.roles(roles)
        if self._given is not None:
            roles = self._given.roles
        for one in roles:
            self.spawn(one)
        self._draw_runs()
        faults = self._plan_faults()
        result.schedule = Schedule(
            seed=result.seed,
            settings=unusual(self.config),
            parts=drawn_parts(self.parts),
            rates=self.swarm.rates,
            faults=faults,
            roles=roles,
            plans=self.plans,
            shared=self.shared,
        )
        try:
            if not self.loop.run(until=self._all_ended, end=FAULTS_S) and not result.broken:
                self._heal()
                end = 0.0
                while self.heal_until > end and not result.broken:
                    end = self.heal_until
                    self.loop.run(until=self._all_ended, end=end)
            if not result.broken:
                self._judge()
        except Exception as error:  # noqa: BLE001  a check at the end raised it
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.broke(f"{CHECK_RAISED} {error!r} at the end, in {where.name}")
        for change in sorted(states.forbidden, key=str):
            self.broke(
                "I15 {} changed a row of {} from {} to {}, which lifecycle.py does not allow".format(*change)
            )
        result.virtual_s, result.callbacks = self.loop.now, self.loop.callbacks
        for run in self.checker.runs.values():
            result.runs[run.state] += 1
        result.hash = self._hash.hexdigest()
        return result

    def _draw_roles(self) -> Iterator[tuple[str, ...]]:
        """Yield any mixture of processes that has every role."""
        dice = self.dice
        shape = dice.randint(0, 5)
        if self.parts.hedge and shape in (0, 2):
            yield ("agent",)  # a twin needs another agent
        if shape <= 1:
            yield from [ROLES] * (shape + 1)
        elif shape == 2:
            yield from (("scheduler", "supervisor"), ("agent",))
        elif shape == 3:
            yield from (ROLES, ("agent",), ("supervisor",))
        elif shape == 4:
            yield from (("scheduler", "agent"), ("scheduler", "agent"), ("supervisor",))
        else:
            yield from (ROLES, ("scheduler", "supervisor"), ("agent",))

    def _learn_before(self) -> None:
        """Let the store know how long hedged steps take, as if it had learned it before."""
        usual = [(step_name(step.name), bucket_of(USUAL_S), 200.0) for step in program.HEDGED]
        self.clock.begin_session()
        self.connection.executemany(STATEMENTS[Verb.add_durations], usual)
        self.checker.forget()

    def _heal(self) -> None:
        self.seams.healed = True
        self.seams.outage = self.seams.full = False
        self.seams.cut_off.clear()
        self.log("all heals")
        for process in self.living:
            self.resume(process)
        roles = {role for process in self.living for role in process.roles}
        if not roles.issuperset(ROLES):
            self.spawn(ROLES)
        for part in self.parts:
            part.heal(self)
        self.drive(self._tend())

    def _all_ended(self) -> bool:
        loop = self.loop
        if loop.now > self._instant:
            self._instant, self._instant_began_with = loop.now, loop.callbacks
            self._count_second()
        elif loop.callbacks - self._instant_began_with > CALLBACKS_AT_ONCE_MAX:
            self.broke(
                f"no time passes at {loop.now:.3f}: {CALLBACKS_AT_ONCE_MAX} callbacks ran, so some loop spins"
            )
        if self.checker.live or len(self.accepted) < len(self.plans):
            return False
        if self._retrying is not None and not self._retrying.done():
            return False
        if self.parts.more and any(True for part in self.parts for _ in part.waits_for(self)):
            return False
        return not (self._open_breakers() or self._live_twins())

    def _count_second(self) -> None:
        """Look once a second whether too many callbacks ran in it."""
        loop = self.loop
        if loop.now - self._second >= 1.0:
            ran = loop.callbacks - self._second_began_with
            commits = self.result.commits - self._second_commits
            if ran > CALLBACKS_A_SECOND_MAX * (loop.now - self._second) + CALLBACKS_A_COMMIT_MAX * commits:
                self.broke(
                    f"no rest at {loop.now:.3f}: {ran} callbacks ran within a second, so some loop polls without end"
                )
            self._second, self._second_began_with = loop.now, loop.callbacks
            self._second_commits = self.result.commits

    def _open_breakers(self) -> list[str]:
        return [row.name for row in self.checker.breakers.values() if row.state != "closed"]

    def _live_twins(self) -> list[tuple[str, int]]:
        return [place for place, twin in self.checker.twins.items() if twin.ended_at is None]

    def _judge(self) -> None:
        for error in self.loop.errors:
            self.broke(f"a callback raised {error!r}")
        for run_id in self.plans:
            run = self.checker.runs.get(run_id)
            if run_id not in self.accepted:
                self.broke(f"G4 the start of {run_id} was never answered")
            elif run is None:
                self.broke(f"I4 run {run_id} was accepted and is lost")
        for run in self.checker.runs.values():
            if run.state not in RUN_ENDED:
                steps = [
                    step[:14]
                    for step in self.checker.steps.values()
                    if step.run_id == run.id and step.delivered_seq is None
                ]
                self.broke(f"G4 run {run.id} did not end: {run}; open: {steps}")
        for name in self._open_breakers():
            self.broke(f"G4 the breaker of {name} did not close: {self.checker.breakers[name]}")
        for place in self._live_twins():
            self.broke(f"G4 the twin of {place} was never ended: {self.checker.twins[place]}")
        for part in self.parts:
            for what in part.waits_for(self):
                self.broke(f"G4 {what}")
        if not self.result.broken:
            for wrong in check_endings(self):
                self.broke(wrong)


async def _release(run_id: str, process: Process) -> Any:
    return await carried_out(process, process.store.operators.release(run_id, "sim", "go on"))


async def _send_signal(signal: NewSignal, process: Process) -> Any:
    return await carried_out(process, process.store.operators.send_signal(signal))


def _are_two_requests(key: str, other: str) -> bool:
    """True if both are keys of effects of one call, which asks for a callback again when nobody has answered in time."""
    one, two = key.split("::", 1)[1], other.split("::", 1)[1]
    return one != two and one.startswith(REQUEST_PREFIX) and call_key(one) == call_key(two)


async def _retry_run(run_id: str, process: Process) -> Any:
    return await carried_out(process, process.store.operators.retry_run(run_id, "sim"))


async def _resolve_quarantine(run_id: str, act: str, process: Process) -> Any:
    return await carried_out(
        process,
        process.store.quarantine.resolve_quarantine(
            act,
            fingerprint=None,
            run_id=run_id,
            before=process.world.store_now(),
            result=json.dumps(program.SKIPPED).encode(),
            actor="sim",
            note="",
            limit=10,
        ),
    )


async def _retry_undo(run_id: str, process: Process) -> Any:
    return await carried_out(
        process, process.store.operators.steer_undo(run_id, "retry", None, "sim", "again")
    )


async def _skip_undo(run_id: str, n: int, process: Process) -> Any:
    return await carried_out(
        process, process.store.operators.steer_undo(run_id, "skip", n, "sim", "its child was abandoned")
    )


def _is_harmless(op: Hop) -> bool:
    """True for a hop that changes nothing that is counted: writing it twice makes no difference."""
    return not (
        op.begin or op.outcomes or op.signals or op.ended or op.issued or op.close or op.undo or op.park
    )


def executing() -> str:
    """Return the id that the store has for the run of the step that executes now."""
    at = here_var.get()
    assert at is not None
    return at.run_id


async def _answered(asking: Coroutine[Any, Any, Any]) -> tuple[Any] | None:
    try:
        return (await asking,)
    except (UnknownRun, StoreError):
        return None
    except WrongState:
        return (None,)
    except HoldfastError:
        return None


_search = declaration._made_signals


@lru_cache(maxsize=16)
def _search_once(kind: type, modules: int) -> declaration.MadeSignals:
    return _search(kind, 0, modules)


def _made_signals(kind: type, edition: int, modules: int) -> declaration.MadeSignals:
    """Search all modules for signals, once. Seeds change what is declared, and no module."""
    return _search_once(kind, modules)


@contextmanager
def alone(parts: Parts) -> Iterator[None]:
    """Hide all steps and workflows but the simulation's own, and log nothing. Also hide the steps of parts that this
    seed does not play."""
    steps, workflows, composed = dict(registry.steps), dict(registry.workflows), dict(registry.composed)
    declaration._made_signals = cast("Any", _made_signals)
    logged = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    mine, left_out = program.__name__, () if parts.any else {step.name for step in program.NEWER}
    known = {one.name for part in parts for one in part.known}
    for name, one in steps.items():
        if (one.fn.__module__ != mine or name in left_out) and name not in known:
            del registry.steps[name]
    for key, one in workflows.items():
        if one.fn.__module__ != mine and one.name not in known:
            del registry.workflows[key]
    for name, line in composed.items():
        if line.workflow.name not in known:
            del registry.composed[name]
    if known:
        registry._changed()  # what most seeds declare is remembered
    try:
        yield
    finally:
        if known:
            registry._changed()
        registry.steps.update(steps)
        registry.workflows.update(workflows)
        registry.composed.update(composed)
        declaration._made_signals = _search
        logging.disable(logged)


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Let Python collect garbage rarely: a seed makes little of it and lasts for milliseconds, and looking for it took
    an eighth of the time. Whoever plays many seeds does this around all of them: Python looks at once when the old limits
    are back."""
    before = gc.get_threshold()
    gc.set_threshold(*COLLECT_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def simulate(
    seed: int,
    trace: Callable[[str], None] | None = None,
    schedule: Schedule | None = None,
    *,
    plain: bool = False,
) -> Result:
    """Play one seed, or a schedule in place of what it draws. With `plain`, play none of the parts."""
    parts = Parts(seed, faults_s=FAULTS_S, plain=plain)
    if schedule is not None:
        schedule.set_parts(parts)
    with rare_garbage_collection(), alone(parts):
        simulation = Simulation(seed, trace, schedule, parts)
        try:
            return simulation.play()
        finally:
            simulation.checker.close()
            simulation.close()


def replay(schedule: Schedule, trace: Callable[[str], None] | None = None) -> Result:
    return simulate(schedule.seed, trace, schedule)


__all__ = ["EPOCH", "Result", "Simulation", "replay", "simulate"]
