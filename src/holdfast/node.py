"""A node: one process start hosting any of the roles. All loops live here; roles only know a bounded `tick` each.

The node joins its scheduler and agent around the one writer: an outcome of a local agent whose run lives in the same
node goes straight to the scheduler, which commits it together with what comes next. Neither role knows of the other.
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

from holdfast.agent import Agent
from holdfast.agent.assignment import Assignment
from holdfast.config import DEFAULT, Config
from holdfast.decider import Issue
from holdfast.decider.effect import undone_effect
from holdfast.durations import Durations
from holdfast.environment import Environment, StoreClock
from holdfast.errors import HoldfastError, LeaseLost, NameTaken, StoreError, StoreGone, StoreUnreachable
from holdfast.heartbeat import keeps_lease
from holdfast.model import NewRun, RunState, effect_key
from holdfast.scheduler import Lease, Scheduler
from holdfast.store.answers import Answer
from holdfast.store.operations import Close, HandBack, Hop, Quarantine, Report, RetryStep, Save, Start
from holdfast.store.protocol import Bell, Store
from holdfast.store.remedies import instead
from holdfast.store.writer import Writer
from holdfast.supervisor import Supervisor
from holdfast.supervisor.channels import Channel
from holdfast.supervisor.outbox import Outbox
from holdfast.workflow import registry
from holdfast.workflow.declaration import claims, declarations

log = logging.getLogger("holdfast.node")

ROLES = ("scheduler", "agent", "supervisor")
POOL = "pool"
"""What a process that keeps agents at strength is in the store. It hosts none of the roles."""
RING_EVERY_S = 0.005
"""Doorbells to other nodes are coalesced: at most one round this often."""


class Node:
    agent_type: type[Agent] = Agent
    """A simulation brings one that pretends to execute."""

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
    ) -> None:
        self.only = only
        """The runs it works on: these, those it starts, and their children. None: whatever there is."""
        self.store, self.config = store, config
        self.environment = environment or Environment()
        self.roles = tuple(role for role in (*ROLES, POOL) if role in set(roles))
        self._about, self._more_pulse = about or {}, pulse
        self._app, self._edition = app, -1
        self.labels = frozenset(labels)
        self.clock = StoreClock(self.environment)
        self.id = self.environment.new_id()
        self.writer = Writer(store, self.id, self.environment, config)
        self.scheduler: Scheduler | None = None
        self.agent: Agent | None = None
        self.supervisor: Supervisor | None = None
        self.outbox: Outbox | None = None
        self.durations = Durations()
        self._channels = channels
        self.fenced = False
        """This node lost its lease and stopped itself. It writes nothing any more."""
        self.gone: StoreGone | None = None
        """There is no store any more, and this node has stopped for good."""
        self.on_fenced: Callable[[], None] | None = None
        self._bells = {bell: asyncio.Event() for bell in Bell}
        self._outside: set[Bell] = set()
        self._ring_outside = asyncio.Event()
        self._watchers: dict[str, list[asyncio.Future[Close | None]]] = {}
        self._starting: dict[asyncio.Future[Any], tuple[str, float]] = {}
        """Whoever waits for a start: of which run, and since when on the monotonic clock."""
        self._is_impatient = False
        """Somebody looks whether the store answers them."""
        self._look = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._writing: asyncio.Task[None] | None = None
        self._unlisten: Callable[[], Awaitable[None]] | None = None
        self.heartbeat = keeps_lease(store, self.environment, config)(
            store,
            self.id,
            environment=self.environment,
            clock=self.clock,
            config=config,
            pulse=self._pulse,
            lost=self._fence_self,
        )
        self.writer.holds = self.holds
        self.writer.on_gone = self._lose_store
        self.draining = False
        self._gates_due = False
        self.started = False
        self._claiming_runs, self._claiming_steps = asyncio.Lock(), asyncio.Lock()
        """Held while a claim is on its way: until it is answered, this node does not know what it holds."""
        self._make_roles()

    def _make_roles(self) -> None:
        if "agent" in self.roles:
            self.agent = self.agent_type(
                self.store,
                self._agent_writes,
                self.id,
                steps=registry.steps,
                labels=self.labels,
                environment=self.environment,
                clock=self.clock,
                config=self.config,
            )
            self.agent.holds, self.agent.only = self.holds, self.only
            self.agent.unwritten = self._known_steps
            self.agent.wake = lambda delay_s: self._ring_later(delay_s, Bell.STEPS)
            self.agent.tell = self._look_at_gates_soon
        if "scheduler" in self.roles:
            self.scheduler = Scheduler(
                self.store,
                self.writer.submit,
                self.id,
                workflows=registry.workflows,
                seat=_LocalSeat(self.agent, self.clock) if self.agent is not None else None,
                ring=self.ring,
                ended=self._run_ended,
                clock=self.clock,
                config=self.config,
            )
            self.scheduler.only = self.only
        if self.agent is not None and self.scheduler is not None:
            self.agent.claimed = self.scheduler.note_lease
            self.agent.lost = self.scheduler.forget_lease
        if self.agent is not None:
            self.agent.durations = self.durations
            self.agent.twins.ring = self.ring
        if self.scheduler is not None:
            self.scheduler.durations = self.durations
            self.scheduler.report = self._write_apart
        if "supervisor" in self.roles:
            self.supervisor = Supervisor(
                self.store, self.id, self.environment, self.config, logs=self.only is None
            )
            if self._channels:
                self.outbox = Outbox(self.store, self.id, self._channels, self.environment, self.config)

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self, first: str | None = None) -> None:
        """Register, look once for what is lost, and begin: with the run `first`, before any step is taken up."""
        self._writing = asyncio.create_task(self.writer.run(), name="holdfast-writer")
        self.writer.after_trouble = self._reconcile
        if not self.roles:
            self._unlisten = await self.store.listen(self._heard)
            self._spawn(self._ring_loop(), self._watch_loop())
            self.started = True
            return
        await self._register()
        self._unlisten = await self.store.listen(self._heard)
        await self.heartbeat.renew()
        self.heartbeat.start()
        self._spawn(self.heartbeat.run(), self._lease_loop())
        if self.scheduler is not None:
            await self.scheduler.learn_lanes()
        if self.agent is not None:
            await self.agent.learn_lanes()
            await self.agent.look()
        if self.supervisor is not None:
            await self.supervisor.tick()
        if self.scheduler is not None and first is not None:
            await self.claim_one(first)
        self._spawn(self._ring_loop(), self._watch_loop())
        for bell in (Bell.RUNS, Bell.STEPS, Bell.OUTCOMES):
            self._bells[bell].set()  # what waits already is taken up at once, not at the first poll
        if self.scheduler is not None:
            self._spawn(self._claim_runs_loop(), self._collect_loop(), self._timer_loop(), self._park_loop())
        if self.agent is not None:
            self._spawn(self._claim_steps_loop(), self._beat_loop(), self._gates_loop())
        if self.agent is not None or self.scheduler is not None:
            self._spawn(self._learn_loop(), self._reconcile_loop())
        if self.supervisor is not None:
            self._spawn(self._supervise_loop())
        if self.outbox is not None:
            self._spawn(self._tell_loop())
        self.started = True

    async def stop(self, drain_s: float | None = None) -> None:
        """Drain: finish or hand back steps, park runs, retire. Costs no attempt."""
        if self.agent is not None and not self.fenced:
            await self._drain(self.agent, self.config.drain_s if drain_s is None else drain_s)
        if self.scheduler is not None and not self.fenced:
            self.scheduler.park_all()
        self.writer.close()
        if self._writing is not None:
            if not self.fenced:  # otherwise there is nothing left that it may write
                # Without roles, all that it can have left are starts, and nobody waits for them any more.
                limit_s = 10 if self.roles or self.writer.trouble is None else 0
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(self._writing), limit_s)
            await _ended([self._writing])
        self.writer.leave()
        if self.scheduler is not None:
            self.scheduler.abandon()
        await _ended(self._tasks)
        await self.heartbeat.stop()
        if self.agent is not None:
            self.agent.close()
        with contextlib.suppress(StoreError):
            if self._unlisten is not None:
                await self._unlisten()
            if self.outbox is not None:
                await self.outbox.close()
            if self.supervisor is not None:
                await self.supervisor.resign()
            if self.roles and not self.fenced:
                await self._tell_durations()
                await self.store.retire(self.id)
                await self.store.ring({Bell.RUNS, Bell.STEPS, Bell.OUTCOMES})
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.cancel()

    async def _drain(self, agent: Agent, limit_s: float) -> None:
        self.draining = agent.closing = True
        if limit_s > 0 and agent.held:
            with contextlib.suppress(StoreError):
                await self.heartbeat.renew()  # for those who look at it meanwhile
        await agent.drain(limit_s)

    def _spawn(self, *loops: Any) -> None:
        for loop in loops:
            self._tasks.append(asyncio.create_task(loop, name=f"holdfast-{loop.__name__}"))

    async def _register(self) -> None:
        """Enter the node's row, with what its code publishes and declares."""
        edition, session = registry.edition(), session_of(self.environment)
        offers = {
            **msgspec.to_builtins(claims(self.roles, self._app, session)),
            "labels": sorted(self.labels),
            "hedged": sorted(name for name, step in registry.steps.items() if step.hedge),
            **self._about,
        }
        sent = self.environment.monotonic()
        try:
            await self._enter(offers, session)
        except NameTaken:
            self._edition = edition
            raise
        if self._edition < 0:
            self.heartbeat.renewed(sent)
        self._edition = edition

    async def _enter(self, offers: Mapping[str, Any], session: str) -> None:
        await self.store.register(
            self.id,
            host=self.environment.host,
            pid=self.environment.pid,
            roles=",".join(self.roles),
            offers=json.dumps(offers),
            capacity=self.config.steps_max,
            lease_s=self.config.lease_s,
            declared=declarations(self._app, session) if self.scheduler is not None else (),
        )

    async def declare(self) -> None:
        """Tell the store what was declared here since this node registered: in a notebook, or by a late import."""
        if not self.started or not self.roles or self.fenced or self._edition == registry.edition():
            return
        try:
            await self._register()
            await self.heartbeat.renew()  # the row's new offers have no pulse yet
        except NameTaken as taken:
            log.error("%s", taken)

    # --- what callers use ---------------------------------------------------------------------------------------------

    async def start_run(self, run: NewRun) -> Answer:
        """Start a run: here, with its first steps in the same commit, when this node can; else by whoever claims it."""
        scheduler = self.scheduler
        if self.only is not None:
            self.only.add(run.id)
        if scheduler is not None and self.started and not self.fenced:
            answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

            def then(answer: Any) -> None:
                if not answered.done():
                    answered.set_result(answer)

            if scheduler.begin(run, then):
                answer = await self._started(run.id, answered)
                if answer is Answer.ACCEPTED:
                    return Answer.ACCEPTED
                if isinstance(answer, BaseException) and not isinstance(answer, LeaseLost):
                    raise answer
        # Also tells a duplicate from a conflict.
        answer = await self._started(run.id, self.writer.write(Start(run)))
        if answer is Answer.ACCEPTED:
            self.ring(Bell.RUNS)
        return Answer(answer)

    async def _started(self, run_id: str, answered: asyncio.Future[Any]) -> Any:
        """The answer to a start; or that there is none, which somebody who waits should know."""
        self._starting[answered] = run_id, self.environment.monotonic()
        if not self._is_impatient:
            self._is_impatient = True
            asyncio.get_running_loop().call_later(self.config.start_s, self._give_up_starts)
        try:
            return await answered
        finally:
            del self._starting[answered]

    def _give_up_starts(self) -> None:
        """Answer those whose start the store does not take. Everything else waits until it does: nobody waits for that."""
        self._is_impatient = bool(self._starting)
        if not self._starting:
            return
        limit_s = self.config.start_s
        asyncio.get_running_loop().call_later(limit_s / 10, self._give_up_starts)
        before = self.environment.monotonic() - limit_s
        late = {answered: run_id for answered, (run_id, at) in self._starting.items() if at <= before}
        trouble = self.writer.withdraw_starts(limit_s, set(late.values()))
        if trouble is None:
            return
        for answered, run_id in late.items():
            if not answered.done():
                answered.set_exception(
                    StoreUnreachable(
                        f"it is not known whether run {run_id!r} was started: {trouble}; start it again with this id, and it "
                        "is there once"
                    )
                )

    def watch_end(self, run_id: str) -> asyncio.Future[Close | None]:
        """Resolves when the run ends, here or elsewhere; with None when there is no such run, or no longer."""
        watcher: asyncio.Future[Close | None] = asyncio.get_running_loop().create_future()
        if self.scheduler is None or run_id not in self.scheduler.runs:
            self._look.set()
        self._watchers.setdefault(run_id, []).append(watcher)
        watcher.add_done_callback(partial(self._unwatch, run_id))
        return watcher

    def _unwatch(self, run_id: str, watcher: asyncio.Future[Close | None]) -> None:
        """Nobody waits here any more. Those who were answered are gone from the list already."""
        watchers = self._watchers.get(run_id)
        if watchers is not None and watcher in watchers:
            watchers.remove(watcher)
            if not watchers:
                del self._watchers[run_id]

    def take_over(self, other: Node) -> None:
        """Answer those who wait at a node that lost its lease, for a start or for the end of a run."""
        self._watchers, other._watchers = other._watchers, {}
        self._starting = other._starting
        if self._starting:
            self._is_impatient = True
            self._give_up_starts()
        other.writer.hand_over(self.writer)
        self._look.set()

    def bell(self, bell: Bell) -> asyncio.Event:
        return self._bells[bell]

    # --- bells --------------------------------------------------------------------------------------------------------

    def ring(self, bell: Bell) -> None:
        """Wake this node's loops at once, and other nodes soon."""
        self._bells[bell].set()
        if bell not in self._outside:
            self._outside.add(bell)
            self._ring_outside.set()

    def _heard(self, bell: Bell) -> None:
        self._bells[bell].set()
        if bell is Bell.ENDED:
            self._look.set()
            if self.scheduler is not None and self.scheduler.joining:
                self.scheduler.look_at_joins()

    def _ring_later(self, delay_s: float, bell: Bell) -> None:
        asyncio.get_running_loop().call_later(delay_s + 0.001, self._bells[bell].set)

    async def _ring_loop(self) -> None:
        while True:
            await self._ring_outside.wait()
            self._ring_outside.clear()
            bells, self._outside = self._outside, set()
            with contextlib.suppress(StoreError):
                await self.store.ring(bells)
            await self.environment.sleep(RING_EVERY_S)

    def _run_ended(self, run_id: str, close: Close) -> None:
        self._answer(run_id, close)
        self.ring(Bell.ENDED)
        if self.scheduler is not None:
            if self.scheduler.room == 1:
                self._bells[Bell.RUNS].set()
            if self.scheduler.joining:
                self.scheduler.look_at_joins()

    def _answer(self, run_id: str, close: Close | None) -> None:
        for watcher in self._watchers.pop(run_id, ()):
            if not watcher.done():
                watcher.set_result(close)

    # --- the join of the roles ----------------------------------------------------------------------------------------

    def _agent_writes(
        self, op: Report | RetryStep | Quarantine | HandBack | Save, then: Callable[[Any], None] | None
    ) -> None:
        scheduler = self.scheduler
        if type(op) is Report:
            if scheduler is not None and scheduler.deliver(op):
                return
        elif scheduler is not None and type(op) is not Save:
            scheduler.forget_lease(op.run_id, op.n)
        self._write_apart(op, then)

    def _write_apart(
        self,
        op: Report | RetryStep | Quarantine | HandBack | Save,
        then: Callable[[Any], None] | None = None,
        *,
        is_second: bool = False,
    ) -> None:
        """Write what goes with no hop. When it cannot be written, that is: and if even that cannot, the step is found by the next
        look at what this node holds, and goes back to the queue."""

        def answered(answer: Any) -> None:
            if answer is Answer.FENCED or isinstance(answer, LeaseLost):
                log.info("%s of step %s of run %s came too late", type(op).__name__, op.n, op.run_id)
            elif isinstance(answer, BaseException):
                log.error("%s of step %s of run %s: %s", type(op).__name__, op.n, op.run_id, answer)
                other = None if is_second else instead(op, answer)
                if other is not None:
                    self._write_apart(other, then, is_second=True)
                    return
            elif type(op) is Report:
                self.ring(Bell.OUTCOMES)
            elif type(op) is HandBack or (type(op) is RetryStep and op.delay_s <= 0):
                self.ring(Bell.STEPS)
            if then is not None:
                then(answer)

        self.writer.submit(op, answered)

    async def _claimed(self, claiming: asyncio.Lock, claim: Callable[[], Awaitable[int]]) -> int:
        """Claim. What a claim that was not answered took is given back, before this node writes anything else."""
        async with claiming:
            try:
                return await claim()
            except StoreError:
                self.writer.doubt()
                raise

    async def claim_one(self, run_id: str) -> bool:
        """Go on with this run at once, if nobody owns it and this node has a scheduler."""
        if self.scheduler is None:
            return False
        return bool(await self._claimed(self._claiming_runs, partial(self.scheduler.claim_one, run_id)))

    async def _reconcile_loop(self) -> None:
        """Compare what the store says this node holds with what it does hold, twice in a lease: what is `running` here and nobody
        here knows of would otherwise stay so for ever. It is done between two commits, when both are known."""
        while not self.fenced:
            await self.environment.sleep(
                self.config.lease_s / 2 * (0.75 + self.environment.random.random() / 2)
            )
            self.writer.doubt()

    async def _reconcile(self) -> None:
        """The store was away: give up what it says this node holds and this node knows nothing of."""
        async with self._claiming_runs, self._claiming_steps:
            await self._give_up_unknown()

    async def _give_up_unknown(self) -> None:
        # By their fences: the same run or step may have been taken from this node and claimed again, with the answer lost.
        if not self.roles or self.fenced:
            return
        runs = self.scheduler.known_runs() if self.scheduler is not None else []
        gone = await self.store.reconcile(self.id, runs, sorted(self._known_steps()))
        if any(gone):
            log.warning("node %s gave back %d runs and %d steps that it knew nothing of", self.id, *gone)
            self.ring(Bell.STEPS)
        self._bells[Bell.RUNS].set()
        self._bells[Bell.OUTCOMES].set()

    def _known_steps(self) -> set[tuple[str, int, int]]:
        """(run, n, fence) of what is executed here, or was and is about to be written: it must not be taken from under it."""
        held = self.agent.held.values() if self.agent is not None else ()
        steps = {
            (assignment.run_id, assignment.n, assignment.fence) for assignment in held if not assignment.twin
        }
        for op in self.writer.unanswered():
            if isinstance(op, Hop):
                steps |= {(op.run_id, end.n, end.fence) for end in op.outcomes}
            elif not isinstance(op, Start):
                steps.add((op.run_id, op.n, op.fence))
        if self.scheduler is not None:
            steps.update(self.scheduler.known_steps())
        return steps

    # --- the lease ----------------------------------------------------------------------------------------------------

    def holds(self) -> bool:
        """Whether this node has its lease. Asked before it acts, because its process may have been paused."""
        return self.environment.monotonic() < self.heartbeat.until or self._late()

    def _late(self) -> bool:
        self.heartbeat.look()
        if self.environment.monotonic() < self.heartbeat.until:
            return True
        self._fence_self("it could not renew in time")
        return False

    async def _lease_loop(self) -> None:
        """Stop at the moment the lease ends, whatever else is waited for."""
        while self.holds():
            await self.environment.sleep(max(0.001, self.heartbeat.until - self.environment.monotonic()))

    def _pulse(self) -> str:
        """What this node says of itself while it lives, for `holdfast agents`."""
        told: dict[str, Any] = {"lease_s": self.config.lease_s}
        if self.draining:
            told["draining"] = True
        if self.agent is not None:
            told["succeeded"], told["failed"] = self.agent.tally.recent(self.environment.monotonic())
            told["held"], told["full"] = len(self.agent.held), round(self.agent.full, 3)
            told["known"] = len(self._known_steps())
        if self._more_pulse is not None:
            told |= self._more_pulse()
        return json.dumps(told)

    def _fence_self(self, why: str) -> None:
        if self.fenced:
            return
        log.error("node %s lost its lease: %s; it stops its steps and writes nothing more", self.id, why)
        self._abandon()
        if self.on_fenced is not None:
            self.on_fenced()

    def _lose_store(self, gone: StoreGone) -> None:
        """There is nothing to join again. Whoever waits here is told."""
        if self.gone is not None:
            return
        log.error("node %s stops: %s", self.id, gone)
        self.gone = gone
        self._abandon()
        watchers = [watcher for waiting in self._watchers.values() for watcher in waiting]
        for answer in (*watchers, *self._starting):
            if not answer.done():
                answer.set_exception(gone)

    def _abandon(self) -> None:
        self.fenced = True
        self.heartbeat.end()
        if self.agent is not None:
            self.agent.abandon()
        if self.scheduler is not None:
            self.scheduler.abandon()
        self.writer.abandon()

    # --- loops --------------------------------------------------------------------------------------------------------

    async def _guarded(self, what: str, tick: Callable[[], Awaitable[Any]]) -> Any:
        """A pass that fails must not end its loop: the store may be away, and comes back."""
        if not self.holds():
            return 0
        try:
            return await tick()
        except StoreGone as gone:
            self._lose_store(gone)
            await self.environment.sleep(self.config.poll_s)
        except StoreUnreachable as error:
            log.warning("%s: %s", what, error)
            await self.environment.sleep(0.2 + self.environment.random.random() * 0.3)
        except HoldfastError as error:
            log.error("%s: %s", what, error)
            await self.environment.sleep(self.config.poll_s)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("%s", what)
            await self.environment.sleep(self.config.poll_s)
        return 0

    async def _wait(self, bell: Bell, limit_s: float) -> None:
        """Until the bell rings, or as the safety net, for about `limit_s`."""
        await _wait_for(self._bells[bell], limit_s * (0.75 + self.environment.random.random() / 2))

    async def _watch_loop(self) -> None:
        """Answer those who wait for runs that end in other nodes, or are removed before anybody has told them."""
        unknown_at = 0.0
        while True:
            await _wait_for(self._look, self.config.poll_s)
            here = self.scheduler.runs if self.scheduler is not None else {}
            away = [run_id for run_id in self._watchers if run_id not in here]
            ask_unknown = self.environment.monotonic() >= unknown_at
            if ask_unknown:
                unknown_at = self.environment.monotonic() + self.config.poll_s
            for start in range(0, len(away), self.config.claim_max):
                part = away[start : start + self.config.claim_max]
                for run in await self._guarded("watching", partial(self.store.ended_runs, part)) or ():
                    error = run.note if run.state is RunState.STUCK else run.error
                    self._answer(run.id, Close(run.state, run.output, error, run.finished_at or 0.0))
                left = [run_id for run_id in part if run_id in self._watchers]
                if ask_unknown and left:
                    unknown = await self._guarded("watching", partial(self.store.unknown_runs, left))
                    for run_id in unknown or ():
                        self._answer(run_id, None)

    async def _claim_runs_loop(self) -> None:
        scheduler = self.scheduler
        assert scheduler is not None
        claim = partial(self._claimed, self._claiming_runs, scheduler.claim)
        while not self.fenced:
            await self._wait(Bell.RUNS, self.config.poll_s)
            while await self._guarded("claiming runs", claim):
                pass

    async def _collect_loop(self) -> None:
        scheduler = self.scheduler
        assert scheduler is not None
        while not self.fenced:
            await self._wait(Bell.OUTCOMES, self.config.poll_s)
            await self._guarded("delivering", scheduler.collect)
            # What is not in memory here may be claimable by now.
            self._bells[Bell.RUNS].set()

    async def _timer_loop(self) -> None:
        scheduler = self.scheduler
        assert scheduler is not None
        look_at = 0.0
        while not self.fenced:
            scheduler.fire()
            if scheduler.joins_due or self.clock.now() >= look_at:
                scheduler.joins_due = False
                await self._guarded("answering those who joined", scheduler.answer_joins)
            if self.clock.now() >= look_at:
                if await self._guarded("firing timers", scheduler.fire_sleeping):
                    self._bells[Bell.RUNS].set()
                    continue
                look_at = self.clock.now() + self.config.poll_s
                due = await self._guarded("looking at timers", self.store.next_timer)
                if due:
                    look_at = min(look_at, due)
            mine = scheduler.next_due()
            until = look_at if mine is None else min(look_at, mine)
            await _wait_for(scheduler.timer_set, max(0.0005, until - self.clock.now()))

    async def _park_loop(self) -> None:
        scheduler = self.scheduler
        assert scheduler is not None
        while not self.fenced:
            await self.environment.sleep(1.0)
            scheduler.park_quiet()
            await self._guarded("declaring", self.declare)
            await self._guarded("checking runs", scheduler.check_lost)
            await self._guarded("lanes", scheduler.learn_lanes)

    async def _claim_steps_loop(self) -> None:
        agent = self.agent
        assert agent is not None
        lanes_at = 0.0
        claim = partial(self._claimed, self._claiming_steps, agent.claim)
        while not self.fenced:
            await self._wait(Bell.STEPS, self.config.poll_s)
            if self.environment.monotonic() - lanes_at > self.config.poll_s:
                lanes_at = self.environment.monotonic()
                await self._guarded("declaring", self.declare)
                await self._guarded("lanes", agent.learn_lanes)
            while await self._guarded("claiming steps", claim):
                pass
            due = await self._guarded("back-off", agent.next_ready)
            if due and due - self.clock.now() < self.config.poll_s:
                self._ring_later(max(0.0, due - self.clock.now()), Bell.STEPS)

    def _look_at_gates_soon(self, delay_s: float) -> None:
        """Once for all that is to be told within this time."""
        if not self._gates_due:
            self._gates_due = True
            self._ring_later(delay_s, Bell.GATES)

    async def _gates_loop(self) -> None:
        agent = self.agent
        assert agent is not None
        while not self.fenced:
            await self._wait(Bell.GATES, self.config.poll_s)
            self._gates_due = False
            if await self._guarded("looking at gates", agent.look):
                self.ring(Bell.GATES)
            await self.environment.sleep(self.config.breaker_tell_s / 2)  # bells may ring at every commit

    async def _beat_loop(self) -> None:
        agent = self.agent
        assert agent is not None
        while not self.fenced:
            await self._wait(Bell.CANCELS, self.config.beat_s)
            await self._guarded("beating", agent.beat)

    async def _learn_loop(self) -> None:
        while not self.fenced:
            await self.environment.sleep(self.config.learn_s * (0.75 + self.environment.random.random() / 2))
            await self._guarded("learning", self._tell_durations)

    async def _tell_durations(self) -> None:
        """Tell the store what was counted here. What is lost on the way is lost: it is statistics."""
        if counts := self.durations.take(self.config.learn_rows_max):
            await self.store.add_durations(counts)

    async def _supervise_loop(self) -> None:
        supervisor = self.supervisor
        assert supervisor is not None
        while not self.fenced:
            remedied = await self._guarded("supervising", supervisor.tick)
            if remedied:
                for bell in (Bell.RUNS, Bell.STEPS, Bell.OUTCOMES, Bell.CANCELS):
                    self.ring(bell)
            if supervisor.turned_gates:
                supervisor.turned_gates = False
                self.ring(Bell.GATES)
            await self.environment.sleep(self.config.sweep_s * (0.75 + self.environment.random.random() / 2))

    async def _tell_loop(self) -> None:
        outbox = self.outbox
        assert outbox is not None
        while not self.fenced:
            await self._guarded("telling alerts", outbox.tick)
            await self.environment.sleep(self.config.watch_s * (0.75 + self.environment.random.random() / 2))


def session_of(environment: Environment) -> str:
    """Where code comes from that stands in no file."""
    return f"a session on {environment.host} pid {environment.pid}"


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel them until they have ended: a driver that gives a connection up in that moment may swallow the first word."""
    left = list(tasks)
    while left:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=0.1)
        left = [task for task in left if not task.done()]
    for task in tasks:
        if not task.cancelled():
            task.exception()  # each loop has told what happened to it


async def _wait_for(event: asyncio.Event, limit_s: float) -> None:
    """Until the event is set, at most so long; leaves it cleared."""
    if not event.is_set():
        timer = asyncio.get_running_loop().call_later(limit_s, event.set)
        try:
            await event.wait()
        finally:
            timer.cancel()
    event.clear()


class _LocalSeat:
    """The agent of this node, as its scheduler sees it: places, and leases to begin."""

    def __init__(self, agent: Agent, clock: StoreClock) -> None:
        self._agent, self._clock = agent, clock

    def reserve(self, issue: Issue, workflow: str, namespace: str) -> bool:
        if issue.step is None or issue.arguments is None:
            return False
        return self._agent.reserve(issue.step, workflow, namespace)

    def begin(self, leases: list[Lease]) -> None:
        now, gates = self._clock.now(), self._agent.gates
        for lease in leases:
            step = lease.issue.step
            assert step is not None
            self._agent.begin(
                Assignment(
                    step,
                    lease.run_id,
                    lease.n,
                    lease.issue.effect or effect_key(lease.run_id, lease.issue.key),
                    1,
                    lease.issue.arguments,
                    retry=step.retry,
                    timeout_s=step.timeout_s,
                    issued_at=now,
                    undoes=undone_effect(lease.issue.key, lease.issue.input),
                ),
                barred=gates.shut and gates.bars(step, lease.workflow, lease.namespace),
            )

    def release(self, leases: list[Lease]) -> None:
        for lease in leases:
            if lease.issue.step is not None:
                self._agent.unreserve(lease.issue.step)

    def stop(self, run_id: str, steps: list[int]) -> None:
        for n in steps:
            self._agent.stop(run_id, n)
