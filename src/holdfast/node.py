"""A node: one start of one process that hosts any of the roles. It has one lease for everything it has claimed.

Its scheduler and its agent share one writer. If the run of a step is in the memory of the same node, the outcome goes
from the agent straight to the scheduler, which commits it together with what comes next. Neither role knows of the
other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from holdfast import log_fields
from holdfast.agent.agent import Agent
from holdfast.agent.host import StepRef
from holdfast.agent.loops import AgentLoops
from holdfast.caller import WRITE_OUT_S, Caller
from holdfast.config import DEFAULT, Config
from holdfast.durations import DurationCounts
from holdfast.environment import Environment, StoreClock
from holdfast.errors import LeaseLost, NameTaken, StoreError
from holdfast.heartbeat import heartbeat_type
from holdfast.loops import cancel_all
from holdfast.model import POOL, ROLES, SERVER, Ending, NewRun, Outcome, StepState
from holdfast.namespaces import ALL, DEFAULT_ONLY, Namespaces
from holdfast.programs import name_of
from holdfast.scheduler import Scheduler
from holdfast.scheduler.block_watch import BlockWatch
from holdfast.scheduler.loops import SchedulerLoops
from holdfast.seat import LocalSeat
from holdfast.store.answers import Answer
from holdfast.store.bell import Bell
from holdfast.store.operations import Close, HandBack, Hop, QuarantineStep, RetryStep, Save, Start, StepOp
from holdfast.store.store import Store
from holdfast.supervisor.asks import Letters
from holdfast.supervisor.channels import Channel
from holdfast.supervisor.lateness import explained
from holdfast.supervisor.loops import send_alerts, supervise
from holdfast.supervisor.outbox import Outbox
from holdfast.supervisor.supervisor import Supervisor
from holdfast.workflow import registry
from holdfast.workflow.declaration import (
    composed_sets,
    declarations,
    offered,
    schedule_sets,
    session_of,
    trigger_sets,
)
from holdfast.workflow.loaded import stored_steps, stored_workflows
from holdfast.workflow.workflow import Workflow

log = logging.getLogger("holdfast.node")

Then = Callable[[Any], None]

GRAPHS_MAX = 200
"""How many graphs a node publishes at once at most."""


class Node(Caller):
    agent_type: type[Agent] = Agent
    """The class of this node's agent. The simulation has one that only pretends to execute steps."""
    declares_schedules = True
    """Whether it publishes the schedules of its code. A simulation of one run does not."""
    _heartbeat_type = staticmethod(heartbeat_type)
    """Returns the class of its heartbeat. The simulation has one whose heart is no process."""

    def __init__(
        self,
        store: Store,
        *,
        roles: Iterable[str] = ROLES,
        labels: Iterable[str] = (),
        environment: Environment | None = None,
        config: Config = DEFAULT,
        channels: Sequence[Channel] = (),
        about: Mapping[str, Any] | None = None,
        pulse: Callable[[], Mapping[str, Any]] | None = None,
        only: set[str] | None = None,
        app: str | None = None,
        namespaces: Namespaces = DEFAULT_ONLY,
        on_fenced: Callable[[], None] = lambda: None,
    ) -> None:
        """The node starts, claims and declares only in `namespaces`. With `only`, the node works on just these runs, those it starts, and their children; with None, on all runs.
        `about` and `pulse` are what it writes about itself beside what it can serve: `about` when it registers, `pulse`
        with each renewal of its lease. `on_fenced` is called when it has lost its lease and stopped itself."""
        super().__init__(store, environment=environment or Environment(), config=config)
        self.submit = self.writer.submit
        self.only, self.on_fenced = only, on_fenced
        self.roles = tuple(role for role in (*ROLES, POOL, SERVER) if role in set(roles))
        self.labels = frozenset(labels)
        self._about, self._extra_pulse = about or {}, pulse
        self._app, self._edition, self._drawn = app, -1, -1
        self.namespaces = namespaces
        self.clock = StoreClock(self.environment)
        self.durations = DurationCounts()
        self.fenced = False
        """This node has lost its lease and stopped itself. It writes nothing any more."""
        self.draining = False
        self._claiming_runs, self._claiming_steps = asyncio.Lock(), asyncio.Lock()
        """Locked while a claim is under way. Until the claim is answered, this node does not know what it has."""
        self.heartbeat = self._heartbeat_type(store.nodes, self.environment, config)(
            store.nodes,
            self.id,
            environment=self.environment,
            clock=self.clock,
            config=config,
            pulse=self._pulse,
            lost=self._fence_self,
        )
        self.agent = self._new_agent() if "agent" in self.roles else None
        self.scheduler = self._new_scheduler() if "scheduler" in self.roles else None
        self.supervisor: Supervisor | None = None
        self.outbox: Outbox | None = None
        if "supervisor" in self.roles:
            self.supervisor = Supervisor(
                store,
                self.id,
                self.environment,
                config,
                is_logging=only is None,
                ring=self.ring,
                explain=partial(explained, store, config),
            )
            if channels:
                letters = Letters(store, self.environment)
                self.outbox = Outbox(store.alerts, self.id, channels, self.environment, config, letters)
        self._block_watch: BlockWatch | None = None
        self._agent_loops = None if self.agent is None else self._loops_of_agent(self.agent)

    def _new_agent(self) -> Agent:
        return self.agent_type(
            self.store,
            self,
            self.id,
            steps=stored_steps(registry.steps, self.namespaces),
            labels=self.labels,
            environment=self.environment,
            clock=self.clock,
            config=self.config,
            durations=self.durations,
            queues=self.queues,
            only=self.only,
        )

    def _new_scheduler(self) -> Scheduler:
        return Scheduler(
            self.store.schedulers,
            self,
            self.id,
            workflows=stored_workflows(registry.workflows, self.namespaces),
            namespaces=self.namespaces,
            seat=LocalSeat(self.agent) if self.agent is not None else None,
            clock=self.clock,
            config=self.config,
            durations=self.durations,
            new_id=self.environment.new_id,
            only=self.only,
            queues=self.queues,
        )

    def _loops_of_agent(self, agent: Agent) -> AgentLoops:
        claim = partial(self._claim, self._claiming_steps, agent.claim)
        return AgentLoops(agent, self.loops, claim, self.declare, self.environment)

    def _loops_of_scheduler(self, scheduler: Scheduler) -> SchedulerLoops:
        claim = partial(self._claim, self._claiming_runs, scheduler.claim)
        return SchedulerLoops(scheduler, self.loops, claim, self.declare, self.environment, self.clock)

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self, first: str | None = None) -> None:
        """Register, let the supervisor look once for what is lost, claim the run `first`, and start the loops. No step
        is claimed before that run."""
        log_fields.install()
        self._begin_writing()
        await self._register()
        await self.bells.listen(self._heard)
        await self.heartbeat.renew()
        self.heartbeat.start()
        self.loops.spawn(self.heartbeat.run(), self._watch_lease())
        if self.scheduler is not None:
            await self.scheduler.learn_lanes()
        if self.agent is not None:
            await self.agent.learn_lanes()
            await self.agent.exchange_gates()
        if self.supervisor is not None:
            await self.supervisor.tick()
        if self.scheduler is not None and first is not None:
            await self.claim_one(first)
        self._begin_watching()
        for bell in (Bell.RUNS, Bell.STEPS, Bell.OUTCOMES):
            self.bells.ring_here(bell)  # so that what waits already is claimed now, not at the first poll
        if self.scheduler is not None:
            self.loops.spawn(*self._loops_of_scheduler(self.scheduler).all())
            if self.environment.is_real:
                self._block_watch = BlockWatch()
        if self._agent_loops is not None:
            self.loops.spawn(*self._agent_loops.all())
        if self.agent is not None or self.scheduler is not None:
            self.loops.spawn(self._learn(), self._reconcile_now_and_then())
        if self.supervisor is not None:
            self.loops.spawn(supervise(self.supervisor, self.loops, self.clock))
        if self.outbox is not None:
            self.loops.spawn(send_alerts(self.outbox, self.loops))
        self.started = True

    async def stop(self, drain_s: float | None = None) -> None:
        """Let steps finish or hand them back, park the runs, and retire. This costs no step an attempt."""
        if self.agent is not None and not self.fenced:
            await self._drain(self.agent, self.config.drain_s if drain_s is None else drain_s)
        if self.scheduler is not None and not self.fenced:
            self.scheduler.park_all()
        if self.fenced:  # it may not write any more
            self.writer.close()
            if self._writing is not None:
                await cancel_all([self._writing])
            self.writer.leave()
        else:
            await self._write_out(WRITE_OUT_S)
        if self.scheduler is not None:
            self.scheduler.abandon()
        if self._block_watch is not None:
            self._block_watch.stop()
        await self.loops.stop()
        await self.heartbeat.stop()
        if self.agent is not None:
            self.agent.close()
        with contextlib.suppress(StoreError):
            await self.bells.unlisten()
            if self.outbox is not None:
                await self.outbox.close()
            if self.supervisor is not None:
                await self.supervisor.resign()
            if not self.fenced:
                await self._record_durations()
                await self.store.nodes.retire(self.id)
                await self.store.nodes.ring({Bell.RUNS, Bell.STEPS, Bell.OUTCOMES})
        self._cancel_watchers()

    async def _drain(self, agent: Agent, limit_s: float) -> None:
        self.draining = True
        agent.close_doors()
        if limit_s > 0 and agent.assignments:
            with contextlib.suppress(StoreError):
                await self.heartbeat.renew()  # so that the store shows that this node is draining
        await agent.drain(limit_s)

    # --- what its code publishes and declares -------------------------------------------------------------------------

    async def _register(self) -> None:
        """Write the node's row, with what its code publishes and declares."""
        edition, session = registry.edition(), session_of(self.environment)
        offers = {
            **msgspec.to_builtins(offered(self.roles, self._app, session, self.namespaces)),
            "labels": sorted(self.labels),
            "hedged": sorted(
                stored_name
                for name, step in registry.steps.items()
                if step.hedge
                for stored_name in self.namespaces.each(name)
            ),
            **self._about,
        }
        publishes = self.scheduler is not None and self.only is None and self.declares_schedules
        sets = schedule_sets(self._app, session, self.namespaces) if publishes else []
        if sets:
            offers["schedules"] = [one.digest for one in sets]
        triggers = trigger_sets(self._app, session, self.namespaces) if publishes else []
        if triggers:
            offers["triggers"] = [one.digest for one in triggers]
        composed = composed_sets(self._app, session, self.namespaces) if publishes else []
        if composed:
            offers["composed"] = [one.digest for one in composed]
        sent = self.environment.monotonic()
        try:
            await self.store.nodes.register(
                self.id,
                host=self.environment.host,
                pid=self.environment.pid,
                roles=",".join(self.roles),
                offers=json.dumps(offers),
                capacity=self.config.steps_max,
                lease_s=self.config.lease_s,
                declared=declarations(self._app, session, self.namespaces)
                if self.scheduler is not None
                else (),
                sets=sets,
                triggers=triggers,
                composed=composed,
            )
        except NameTaken:
            self._edition = edition
            raise
        if self._edition < 0:
            self.heartbeat.renewed(sent)
        self._edition = edition

    async def _publish_graphs(self) -> None:
        """Draw the graphs of the workflows that are loaded here and publish them, for servers without code. Other nodes
        of the same code have usually done so."""
        if self._drawn == self._edition or self.scheduler is None or self.only is not None:
            return
        edition, graphs = self._edition, []
        for namespace, name, version, digest in await self.store.workflows.graphless(GRAPHS_MAX):
            workflow = registry.workflows.get((name, version))
            is_here = self.namespaces.is_all if namespace == ALL else namespace in self.namespaces
            if workflow is not None and is_here and workflow.place.digest() == digest:
                text = await self.environment.blocking(partial(_graph_text, workflow))
                graphs.append((namespace, name, version, digest, text))
        if graphs:
            await self.store.workflows.set_graphs(graphs)
        self._drawn = edition

    async def declare(self) -> None:
        """Register again if code was declared here since this node registered: in a notebook, or by a late import."""
        if not self.started or self.fenced or self._edition == registry.edition():
            return
        try:
            await self._register()
            await self.heartbeat.renew()  # the row's new offers have no pulse yet
        except NameTaken as taken:
            log.error("%s", taken)

    # --- what callers use ---------------------------------------------------------------------------------------------

    def _begin_here(self, run: NewRun, then: Then) -> bool:
        if self.scheduler is None or not self.started or self.fenced:
            return False
        return self.scheduler.begin(run, then)

    def _is_here(self, run_id: str) -> bool:
        return self.scheduler is not None and run_id in self.scheduler.runs

    def _heard(self, bell: Bell) -> None:
        super()._heard(bell)
        if bell is Bell.ENDED and self.scheduler is not None and self.scheduler.joining:
            self.scheduler.look_at_joins()

    async def claim_one(self, run_id: str) -> bool:
        """Claim this run and go on with it at once, if nobody owns it and this node has a scheduler."""
        if self.scheduler is None:
            return False
        return bool(await self._claim(self._claiming_runs, partial(self.scheduler.claim_one, run_id)))

    # --- what the scheduler asks of its node --------------------------------------------------------------------------

    def record(self, outcome: Outcome) -> None:
        self._write_apart(outcome, None)

    def run_ended(self, run_id: str, close: Close) -> None:
        self._watchers.answer(run_id, close)
        self.updates_answered()
        if self.scheduler is not None and self.scheduler.joining:
            self.scheduler.look_at_joins()

    def claim_runs_after(self, delay_s: float) -> None:
        self.bells.ring_here_within(delay_s, Bell.RUNS)

    def updates_answered(self) -> None:
        if self.update_watchers:
            self.look_for_ends()
        self.ring(Bell.ENDED)

    # --- what the agent asks of its node ------------------------------------------------------------------------------

    def write_step(self, op: StepOp, then: Then | None = None) -> None:
        scheduler = self.scheduler
        if self.agent is not None and self.agent.limited and type(op) is not Save:
            then = self._freeing(op, then)
        if type(op) is Outcome:
            if scheduler is not None and scheduler.deliver(op):
                return
        elif scheduler is not None and type(op) is not Save:
            scheduler.forget_lease(op.run_id, op.n)
        self._write_apart(op, then)

    def _write_apart(self, op: StepOp, then: Then | None, *, is_second: bool = False) -> None:
        """Write an operation that goes with no hop. If it cannot be written, write in its place that it could not be
        recorded. If that fails, too, `reconcile` finds that this node does not know the step any more, and hands it
        back."""

        def answered(answer: Any) -> None:
            if answer is Answer.FENCED or isinstance(answer, LeaseLost):
                log.info("%s of step %s of run %s came too late", type(op).__name__, op.n, op.run_id)
            elif isinstance(answer, BaseException):
                log.error(
                    "%s of step %s of run %s cannot be written: %s",
                    type(op).__name__,
                    op.n,
                    op.run_id,
                    answer,
                )
                replacement = None if is_second else _replacement(op, answer)
                if replacement is not None:
                    self._write_apart(replacement, then, is_second=True)
                    return
            elif type(op) is Outcome:
                self.ring(Bell.OUTCOMES)
            elif type(op) is HandBack or (type(op) is RetryStep and op.delay_s <= 0):
                self.ring(Bell.STEPS)
            if then is not None:
                then(answer)

        self.writer.submit(op, answered)

    def _freeing(self, op: StepOp, then: Then | None) -> Then | None:
        """If the step is under a limit, let everybody claim again when this is written: there is room for another one."""
        assert self.agent is not None
        ref = (op.run_id, op.n)
        if ref not in self.agent.limited:
            return then
        self.agent.limited.discard(ref)
        if self.scheduler is not None:
            self.scheduler.note_freeing(op.run_id, op.n)

        def written(answer: Any) -> None:
            self.ring(Bell.STEPS)
            if then is not None:
                then(answer)

        return written

    def note_claim(self, run_id: str, n: int) -> None:
        if self.scheduler is not None:
            self.scheduler.note_lease(run_id, n)

    def note_loss(self, run_id: str, n: int) -> None:
        if self.scheduler is not None:
            self.scheduler.forget_lease(run_id, n)

    def claim_after(self, delay_s: float) -> None:
        self.bells.ring_here_after(delay_s, Bell.STEPS)

    def claim_at(self, at: float) -> None:
        self.bells.ring_here_within(max(0.001, at - self.clock.now()), Bell.STEPS)

    def exchange_gates_after(self, delay_s: float) -> None:
        if self._agent_loops is not None:
            self._agent_loops.exchange_gates_after(delay_s)

    # --- what this node has -------------------------------------------------------------------------------------------

    async def _claim(self, claiming: asyncio.Lock, claim: Callable[[], Awaitable[int]]) -> int:
        """Claim. The answer can get lost. Then this node may have runs or steps that it does not know of, so it gives
        them up before it writes anything else."""
        async with claiming:
            try:
                return await claim()
            except StoreError:
                self.writer.doubt()
                raise

    async def _reconcile_now_and_then(self) -> None:
        """Reconcile twice in a lease. Otherwise a step that is `running` on this node, and that the node does not know
        of, would stay so for ever. The writer reconciles between two commits, because only then the node knows all
        that it has written."""
        while not self.loops.is_over:
            await self.loops.pause(self.config.lease_s / 2)
            self.writer.doubt()

    async def reconcile(self) -> None:
        """Give up what this node has according to the store and does not know of."""
        async with self._claiming_runs, self._claiming_steps:
            if self.fenced:
                return
            # Fences are compared, too: this node may have lost a run or step and claimed it again without getting the
            # answer.
            given_up = await self.store.nodes.reconcile(
                self.id, sorted(self.known_runs()), sorted(self.known_steps())
            )
            if any(given_up):
                log.warning(
                    "node %s gave up %d runs and %d steps that it did not know of", self.id, *given_up
                )
                self.ring(Bell.STEPS)
            self.bells.ring_here(Bell.RUNS)
            self.bells.ring_here(Bell.OUTCOMES)

    def known_runs(self) -> set[tuple[str, int]]:
        """Return (run, fence) of each run that this node owns, as far as it knows. A run may have left memory with a hop
        that is not written yet."""
        runs = {(op.run_id, op.fence) for op in self.writer.unanswered() if isinstance(op, Hop)}
        if self.scheduler is not None:
            runs.update(self.scheduler.known_runs())
        return runs

    def known_steps(self) -> set[StepRef]:
        """Return (run, n, fence) of each step that is executed here, or has ended here and is not written yet. This
        node must not give these up."""
        assignments = self.agent.assignments.values() if self.agent is not None else ()
        steps = {assignment.ref for assignment in assignments if not assignment.twin}
        for op in self.writer.unanswered():
            for one in op.outcomes if isinstance(op, Hop) else () if isinstance(op, Start) else (op,):
                if one.fence is not None:
                    steps.add((one.run_id, one.n, one.fence))
        if self.scheduler is not None:
            steps.update(self.scheduler.known_steps())
        return steps

    # --- the lease ----------------------------------------------------------------------------------------------------

    def has_lease(self) -> bool:
        return self.environment.monotonic() < self.heartbeat.until or self._has_lease_after_all()

    def _has_lease_after_all(self) -> bool:
        """Read what the heart has written: it may have renewed the lease. If it has not, stop this node."""
        self.heartbeat.look()
        if self.environment.monotonic() < self.heartbeat.until:
            return True
        self._fence_self("it could not renew in time")
        return False

    async def _watch_lease(self) -> None:
        """Stop this node at the moment its lease ends, whatever else it waits for."""
        while self.has_lease():
            await self.environment.sleep(max(0.001, self.heartbeat.until - self.environment.monotonic()))

    def _pulse(self) -> str:
        """Return the state of this node as a JSON object, for pools, `holdfast agents` and `holdfast doctor`."""
        pulse: dict[str, Any] = {"lease_s": self.config.lease_s}
        if self.draining:
            pulse["draining"] = True
        if self.agent is not None:
            pulse["succeeded"], pulse["failed"] = self.agent.tally.recent(self.environment.monotonic())
            pulse["has"], pulse["full"] = len(self.agent.assignments), round(self.agent.places.full, 3)
            pulse["known"] = len(self.known_steps())
        if self._extra_pulse is not None:
            pulse |= self._extra_pulse()
        return json.dumps(pulse)

    def _fence_self(self, why: str) -> None:
        if self.fenced:
            return
        log.error("node %s lost its lease: %s; it stops its steps and writes nothing more", self.id, why)
        self._abandon()
        self.on_fenced()

    def _abandon(self) -> None:
        self.fenced = True
        self.heartbeat.end()
        if self.agent is not None:
            self.agent.abandon()
        if self.scheduler is not None:
            self.scheduler.abandon()
        super()._abandon()

    # --- learning -----------------------------------------------------------------------------------------------------

    async def _learn(self) -> None:
        while not self.loops.is_over:
            await self.loops.pause(self.config.learn_s)
            await self.loops.guarded("learning", self._record_durations)
            if self.environment.is_real:
                await self.loops.guarded("publishing graphs", self._publish_graphs)

    async def _record_durations(self) -> None:
        """Add the durations that were counted here to those in the store. If the store cannot be reached, these counts
        are lost: they are only statistics."""
        if counts := self.durations.take(self.config.learn_rows_max):
            await self.store.durations.add_durations(counts)


def _graph_text(workflow: Workflow[Any, Any]) -> str:
    from holdfast.graph import graph_of  # noqa: PLC0415  reads source, which few processes need

    return msgspec.json.encode(graph_of(workflow)).decode()


def _replacement(op: StepOp, error: BaseException) -> StepOp | None:
    """Return what to write when an agent's report cannot be written: the same report, with this error as its error. An
    outcome becomes a failure. Without this, the step would be executed again and again until its report can be written.
    None: write nothing, so that the step is handed back."""
    if not isinstance(op, Outcome | RetryStep | QuarantineStep):
        return None
    kind, message = name_of(type(error)), f"what the step returned or raised cannot be recorded: {error}"
    error_json = json.dumps({"type": kind, "message": message, "ending": Ending.FAILED, "unsure": True})
    if isinstance(op, Outcome):
        return msgspec.structs.replace(op, state=StepState.FAILED, output=None, error=error_json, logs=())
    return msgspec.structs.replace(op, error=error_json, logs=())
