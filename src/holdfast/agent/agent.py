"""The Agent claims steps, executes them, and reports each outcome once.

It may change only the steps it has, and names the fence of each. It must never write after it has lost its lease. It
gives each report to its host, the node, which writes it. It does not repeat a report that the store has refused.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from holdfast import breaker, codec, policy
from holdfast.agent.assignment import Assignment
from holdfast.agent.claims import Claimer
from holdfast.agent.executor import Executor, overran
from holdfast.agent.fairness import Fairness
from holdfast.agent.gatekeeper import Gatekeeper
from holdfast.agent.host import AgentHost
from holdfast.agent.loads import Loads, is_overload
from holdfast.agent.logs import AgentLogs
from holdfast.agent.outcome import Raised, raised
from holdfast.agent.places import Places
from holdfast.agent.tally import AttemptTally
from holdfast.agent.twins import TwinKeeper
from holdfast.config import Config
from holdfast.decider.commands import Issue
from holdfast.decider.history import hold_note, unreadable
from holdfast.durations import DurationCounts, step_name
from holdfast.environment import Environment, StoreClock
from holdfast.errors import InvalidInput, LeaseLost, StepLost, StoreError, Unreadable
from holdfast.loops import EARLIEST
from holdfast.model import DEFAULT_NAMESPACE, Ending, LogPart, Outcome, StepState
from holdfast.programs import name_of
from holdfast.store.answers import Answer, ClaimedStep
from holdfast.store.operations import HandBack, QuarantineStep, RetryStep, Save
from holdfast.store.queues import QueueNumbers
from holdfast.store.roles import AgentStore
from holdfast.traces import spans_for
from holdfast.workflow.here import CurrentAttempt
from holdfast.workflow.step import Step

log = logging.getLogger("holdfast.agent")

ERROR_MAX_CHARS = 200
"""How much of an error's text an agent reports with the failures of a dependency."""
NO_THREAD_WAITS_S = 1.0
"""How long a step waits for its next attempt when the operating system could not start a thread for it."""

AssignmentKey = tuple[str, int, bool]
"""(run, n, True for the twin of the step)."""


class Agent:
    claims_type: type[Claimer] = Claimer
    executor_type: type[Executor] = Executor
    """A simulation replaces these two classes by others, which only pretend."""

    def __init__(
        self,
        store: AgentStore,
        host: AgentHost,
        node: str,
        *,
        steps: Mapping[str, Step[Any, Any]],
        labels: frozenset[str],
        environment: Environment,
        clock: StoreClock,
        config: Config,
        durations: DurationCounts,
        queues: QueueNumbers,
        only: set[str] | None = None,
    ) -> None:
        """`durations` is where the node counts how long things take. If `only` is given, the agent executes only steps
        of these runs."""
        self._store, self._host, self._node = store, host, node
        self._steps, self._durations = steps, durations
        self._environment, self._clock, self._config = environment, clock, config
        self._monotonic, self._uncounted = environment.monotonic, 0
        self.assignments: dict[AssignmentKey, Assignment] = {}
        self.limited: set[tuple[str, int]] = set()
        """(run, n) of the steps under a limit that this agent has. When one ends, others may begin anywhere."""
        self.closing = False
        self.tally = AttemptTally()
        self._is_logged = log.isEnabledFor(logging.DEBUG)
        """True if attempts are logged. Looked up at every beat, because most agents never log an attempt."""
        self._keeper = AgentLogs.of(config, clock)
        self.gates = Gatekeeper(config)
        self.loads = Loads()
        self._loads_at = 0.0
        self.fairness = Fairness(environment.monotonic, queues)
        self.places = Places(config, partial(host.claim_after, 0.0))
        self.twins = TwinKeeper(self, store.twins, host, node, environment, config)
        self._executor = self._new_executor()
        self._claims = self.claims_type(
            store,
            host,
            node,
            self._begin_claimed,
            steps=steps,
            labels=labels,
            places=self.places,
            gates=self.gates,
            environment=environment,
            config=config,
            only=only,
            fairness=self.fairness,
        )

    def _new_executor(self) -> Executor:
        spans = spans_for(self._config)
        if spans is None:
            return self.executor_type(self, self.places, self._config)
        from holdfast.agent.traced import AttemptSpans, TracedAgent  # noqa: PLC0415  an optional dependency

        executor = self.executor_type(TracedAgent(self), self.places, self._config)
        executor.spans = AttemptSpans(spans, self._store, self._node)
        return executor

    # --- claiming and beginning steps ---------------------------------------------------------------------------------

    async def learn_lanes(self) -> None:
        await self._claims.learn_lanes()

    async def claim(self) -> int:
        """Claim as many steps as there are places for, and return how many."""
        return await self._claims.claim(self.assignments.values())

    async def next_ready(self) -> float | None:
        """Return when the next step that backs off, and that this agent can execute, becomes ready."""
        return await self._claims.next_ready()

    def reserve(
        self, step: Step[Any, Any], workflow: str | None, namespace: str | None, queue: int = 0
    ) -> bool:
        """Keep a place for a step that this node's scheduler is about to issue. False if there is none, or if the step
        must not begin here now, because it is the turn of others that wait."""
        if self.closing or not self._claims.can_serve(step.name, step.needs):
            return False
        if self.gates.shut and self.gates.bars(step, workflow, namespace):
            return False
        if self.fairness.waiting and not self.fairness.may_begin(queue):
            self.places.is_short = True
            return False
        return self.places.take(step)

    def begin_issued(self, run_id: str, n: int, issue: Issue, workflow: str, namespace: str) -> None:
        """Execute a step that this node's scheduler issued, and for which it had reserved a place. If a gate was shut
        since then, the step is handed back."""
        assignment = Assignment.of_issue(run_id, n, issue, self._clock.now())
        if namespace != DEFAULT_NAMESPACE:
            assignment.step = assignment.step.within(namespace)
        gates = self.gates
        self._begin(assignment, is_barred=gates.shut and gates.bars(assignment.step, workflow, namespace))

    def _begin_claimed(self, item: ClaimedStep, probe: tuple[str, int] | None, is_twin: bool) -> None:
        step = self._steps[item.name]
        is_crowded = self._is_crowded(step)
        assignment = Assignment.of_claim(item, step, probe=probe, twin=is_twin)
        if step.limits is not None:
            self.limited.add((item.run_id, item.n))
            if item.adapts:
                assignment.adapts, assignment.adapts_from = item.adapts, self._monotonic()
        if item.losses >= self._config.suspect_losses:
            assignment.began_at = self._monotonic()
        try:
            assignment.arguments = step.shape.decode_whole(item.input)
        except InvalidInput as wrong:
            self.places.give_back(step)
            what = f"the input of step {item.key!r}"
            self._hold_run(assignment, unreadable(item.key, "input", what, item.input, wrong))
            return
        is_barred = probe is None and step.depends in self.gates.paused
        self._begin(assignment, item.checkpoint, is_barred=is_barred or is_crowded)

    def _is_crowded(self, step: Step[Any, Any]) -> bool:
        """Take a place for the step. True if none was free: this node's scheduler may have taken the places while the
        claim was on its way. Then this takes one place too many, until the step is handed back."""
        if self.places.take(step):
            return False
        self.places.overtake(step)
        return True

    def _begin(
        self, assignment: Assignment, checkpoint: bytes | None = None, *, is_barred: bool = False
    ) -> None:
        """Execute a step whose lease is committed and that has a place. Hand it back if it must not begin now."""
        if is_barred or self.closing or not self._host.has_lease():
            # The step must not begin: a gate is shut, all places are taken, this agent is leaving, or the lease has run
            # out because the process was paused.
            self.places.give_back(assignment.step)
            self.hand_back(assignment)
            return
        key = (assignment.run_id, assignment.n, assignment.twin)
        if key in self.assignments:
            # This is an earlier attempt. The Supervisor has reclaimed the step, and this agent has claimed it again.
            self._stop(self.assignments[key])
        self.assignments[key] = assignment
        if assignment.step.hedge:
            assignment.started = self._monotonic()
        elif self._uncounted:
            self._uncounted -= 1
        else:
            assignment.started, assignment.weight = self._monotonic(), self._durations.stride
            self._uncounted = assignment.weight - 1
        assignment.here = CurrentAttempt(
            run_id=assignment.run_id,
            key=assignment.key,
            attempt=assignment.attempt,
            step=assignment.step.bare_name,
            on_beat=assignment.beat,
            on_save=partial(self._save, assignment),
            saved_raw=checkpoint,
            undoes=assignment.undoes,
            loop=asyncio.get_running_loop(),
            limit=self._config.payload_max_bytes,
            keeper=self._keeper,
            twin=assignment.twin,
            callback=assignment.callback,
        )
        if self._is_logged:
            self._log(assignment, "begins")
        self._executor.begin(assignment)

    def _log(self, assignment: Assignment, what: str, *more: Any) -> None:
        if self._is_logged:
            log.debug(
                "attempt %d of %s %s of run %s (%s) %s",
                assignment.attempt,
                "the twin of step" if assignment.twin else "step",
                assignment.n,
                assignment.run_id,
                assignment.step.bare_name,
                what % more,
            )

    # --- gates --------------------------------------------------------------------------------------------------------

    async def exchange_gates(self) -> bool:
        """Report the ends of attempts whose dependency is in trouble, and learn which gates are shut. True if other
        agents should look, too."""
        observations = self.gates.take_unreported()
        if observations:
            try:
                await self._store.gates.observe(observations, self._config.breaker_window_s)
            except BaseException:
                self.gates.restore(observations)
                raise
        if self.loads:
            await self._report_loads()
        gates = await self._store.gates.gates(self._config.breaker_window_s)
        if self.gates.learn(gates, self._environment.monotonic()):
            self._host.claim_after(0.0)
        return any(one.round is None and one.failed for one in observations)

    async def _report_loads(self) -> None:
        """Report how attempts under adaptive limits went, as often as the leader looks."""
        now = self._monotonic()
        if now - self._loads_at < self._config.watch_s * EARLIEST:
            return
        self._loads_at = now
        loads = self.loads.take()
        try:
            await self._store.limits.observe_limits(loads)
        except BaseException:
            self.loads.restore(loads)
            raise

    def _note(self, assignment: Assignment, sign: breaker.Sign, error: BaseException | None = None) -> None:
        """Count what the attempt says about its dependency. Report it soon if it matters to other agents."""
        message = (
            None if error is None else f"{type(error).__name__}: {codec.message_of(error)}"[:ERROR_MAX_CHARS]
        )
        if self.gates.note(assignment, sign, message, self._environment.monotonic()):
            self._host.exchange_gates_after(self._config.breaker_report_s)

    # --- how executions end: the executor calls these -----------------------------------------------------------------

    def cancelled(self, assignment: Assignment, error: BaseException) -> None:
        if assignment.lost:
            self._let_go(assignment)
        elif assignment.timed_out:
            self.fail(assignment, overran(assignment))
        elif self.closing:
            self.leave(assignment)
        else:
            self.fail(assignment, raised(assignment.step, error))

    def put_off(self, assignment: Assignment, error: Exception) -> None:
        log.warning("step %s of run %s: %s", assignment.step.bare_name, assignment.run_id, error)
        if self._let_go(assignment):
            error_json = codec.encode_error(error, step=assignment.step.bare_name, unsure=assignment.unsure)
            retry = RetryStep(*assignment.ref, NO_THREAD_WAITS_S, Ending.FAILED, error_json, excused=True)
            self._host.write_step(retry, lambda _: self._host.claim_after(NO_THREAD_WAITS_S))

    def leave(self, assignment: Assignment) -> None:
        """Give up a step that has not ended, because this agent leaves. Another agent can claim it."""
        if self._let_go(assignment):
            self.hand_back(assignment)

    def _let_go(self, assignment: Assignment) -> bool:
        """Forget the assignment and free its place, once. False if nothing may be reported about it."""
        if assignment.ended:
            return False
        assignment.ended = True
        key = (assignment.run_id, assignment.n, assignment.twin)
        if self.assignments.get(key) is assignment:  # otherwise this agent has a later attempt of the step
            del self.assignments[key]
        self.places.give_back(assignment.step)
        if assignment.began_at > -math.inf:
            self._claims.suspect_ended(assignment.ref)
        here = assignment.here
        if here is not None:
            here.keeper = None
            if here.logs is not None:
                assignment.logs = here.logs.close()
        # Both refer to the assignment. Without them, its memory is freed at once.
        assignment.task = assignment.here = None
        return not assignment.lost

    # --- reporting ----------------------------------------------------------------------------------------------------

    def succeed(self, assignment: Assignment, output: bytes) -> None:
        if not self._let_go(assignment):
            return
        self.tally.succeeded += 1
        if self.gates.windows or assignment.probe is not None:
            self._note(assignment, breaker.Sign.WELL)
        if assignment.adapts:
            self.loads.succeeded(assignment.adapts, self._monotonic() - assignment.adapts_from)
        if assignment.started is not None:
            took_s = self._monotonic() - assignment.started
            self._durations.add(step_name(assignment.step.name), took_s, assignment.weight)
        if self._is_logged:
            self._log(assignment, "succeeded")
        if assignment.twin:
            self.twins.win(assignment, output)
            return
        self._host.write_step(
            Outcome(
                assignment.run_id,
                assignment.n,
                StepState.SUCCEEDED,
                output,
                None,
                self._clock.now(),
                assignment.fence,
                None,
                assignment.logs,
            )
        )

    def fail(self, assignment: Assignment, failure: Raised) -> None:
        """Report a failed attempt. The step's policy decides whether it is retried."""
        if not self._let_go(assignment):
            return
        error, ending = failure.error, failure.ending
        if isinstance(error, Unreadable) and error.kind in ("input", "checkpoint"):
            self._hold_run(assignment, error)
            return
        self.tally.failed += 1
        sign = breaker.read_failure(assignment.retry, error, ending)
        is_known = sign is breaker.Sign.TROUBLE and self.gates.excuses(assignment)
        self._note(assignment, sign, error)
        if assignment.adapts and is_overload(assignment.retry, error, ending):
            self.loads.failed(assignment.adapts)
        if assignment.twin:
            self._log(assignment, "failed: %s", codec.message_of(error))
            self.twins.fail(assignment)
            return
        verdict = policy.decide(
            assignment.retry,
            policy.classify(ending, error),
            assignment,
            error=error,
            elapsed_s=self._clock.now() - assignment.issued_at,
            random=self._environment.random,
            config=self._config,
            outage=is_known,
        )
        self._log(assignment, "%s: %s: %s", ending, codec.message_of(error), verdict)
        unsure = failure.unsure or assignment.unsure or ending is not Ending.FAILED
        if isinstance(verdict, policy.RetryAfter):
            self._retry(assignment, failure, verdict, unsure)
            return
        give_up = partial(self._give_up, assignment, failure, verdict)
        if assignment.step.hedge:
            self.twins.wait_for_twin(assignment, ending, unsure, give_up)
        else:
            give_up(unsure)

    def _retry(
        self, assignment: Assignment, failure: Raised, verdict: policy.RetryAfter, unsure: bool
    ) -> None:
        delay_s = verdict.after_s
        if verdict.excused and assignment.retry.total is None:
            delay_s = max(delay_s, self.gates.probe_delay_s(assignment))

        def written(answer: Any) -> None:
            if answer is Answer.ACCEPTED:
                self._host.claim_after(delay_s)

        error_json = _error_json(assignment, failure, unsure)
        retry = RetryStep(
            *assignment.ref,
            delay_s,
            failure.ending,
            error_json,
            verdict.excused,
            verdict.failure,
            assignment.logs,
        )
        self._host.write_step(retry, written)

    def _give_up(
        self,
        assignment: Assignment,
        failure: Raised,
        verdict: policy.GiveUp | policy.WaitForPerson,
        unsure: bool,
    ) -> None:
        """Report that the step failed for good, or put it into quarantine, where it waits for a person."""
        error_json = _error_json(assignment, failure, unsure)
        if isinstance(verdict, policy.GiveUp):
            run_id, n, fence = assignment.ref
            now = self._clock.now()
            self._host.write_step(
                Outcome(run_id, n, StepState.FAILED, None, error_json, now, fence, logs=assignment.logs)
            )
            return
        name, kind = assignment.step.name, name_of(type(failure.error))
        where = failure.place or codec.place_of(failure.error) or str(failure.ending)
        fingerprint = policy.fingerprint(name, kind, where)
        self._host.write_step(
            QuarantineStep(
                *assignment.ref,
                failure.ending,
                error_json,
                verdict.failure,
                fingerprint,
                name,
                kind,
                where,
                assignment.logs,
            )
        )

    def hand_back(self, assignment: Assignment) -> None:
        """Hand back a step, so that another agent can claim it. If its code has begun, the step may have had its effect.
        That is recorded as a loss, because otherwise nobody would know it after the next attempt has failed. A twin just
        ends."""
        if assignment.twin:
            self.twins.fail(assignment)
        elif not assignment.begun:
            self._host.write_step(HandBack(*assignment.ref, logs=assignment.logs))
        else:
            lost = StepLost("its agent left before it had finished", step=assignment.step.bare_name)
            error = codec.encode_error(lost, step=assignment.step.bare_name, ending=Ending.LOST, unsure=True)
            self._host.write_step(
                RetryStep(*assignment.ref, 0.0, Ending.LOST, error, excused=True, logs=assignment.logs)
            )

    def _hold_run(self, assignment: Assignment, error: Unreadable) -> None:
        """Hand the step back and hold its run, because the code here cannot read what was recorded for the step. Nobody
        knows whether the code of another agent can, so a person decides. A twin just ends."""
        log.warning("run %s is held: %s", assignment.run_id, error)
        if assignment.twin:
            self.twins.fail(assignment)
        else:
            hold = hold_note("drift", error)
            self._host.write_step(HandBack(*assignment.ref, hold=hold, logs=assignment.logs))

    # --- while steps run ----------------------------------------------------------------------------------------------

    async def _save(self, assignment: Assignment, raw: bytes) -> None:
        """Write a checkpoint, and wait until it is written."""
        if assignment.twin:
            return  # the next attempt of the step must find what the step itself saved
        saved: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._host.write_step(
            Save(*assignment.ref, checkpoint=raw, logs=_logged_so_far(assignment)),
            lambda answer: None if saved.done() else saved.set_result(answer),
        )
        answer = await saved
        if isinstance(answer, StoreError) and not isinstance(answer, LeaseLost):
            raise answer  # otherwise the step would believe that its work is saved

    async def save_progress(self) -> None:
        """Write progress and what was logged since the last time."""
        self._is_logged = log.isEnabledFor(logging.DEBUG)
        for assignment in list(self.assignments.values()):
            if assignment.twin:
                continue
            logs = _logged_so_far(assignment)
            if assignment.progress is not None or logs:
                progress, assignment.progress = assignment.progress, None
                self._host.write_step(Save(*assignment.ref, progress=progress, logs=logs))

    async def stop_lost_steps(self) -> None:
        """Stop the steps that this agent no longer has: they were cancelled, timed out elsewhere, or reclaimed."""
        known = {key: one.ref for key, one in self.assignments.items()}
        if steps := [ref for (_, _, twin), ref in known.items() if not twin]:
            for run_id, n in await self._store.agents.lost_steps(steps):
                if self._stop_known((run_id, n, False), known):
                    self._host.note_loss(run_id, n)
        if twins := [ref for (_, _, twin), ref in known.items() if twin]:
            for run_id, n in await self._store.twins.lost_twins(self._node, twins):
                self._stop_known((run_id, n, True), known)

    def _stop_known(self, key: AssignmentKey, known: dict[AssignmentKey, tuple[str, int, int]]) -> bool:
        """Stop this assignment and return True. Another attempt that has the same key by now is not stopped."""
        assignment = self.assignments.get(key)
        if assignment is None or assignment.ref != known[key]:
            return False
        self._stop(assignment)
        return True

    def stop(self, run_id: str, n: int) -> None:
        """Stop a step that this agent no longer has, and report nothing about it."""
        assignment = self.assignments.get((run_id, n, False))
        if assignment is not None:
            self._stop(assignment)

    def _stop(self, assignment: Assignment) -> None:
        self._log(assignment, "is stopped")
        assignment.lost = True
        if assignment.here is not None:
            assignment.here.cancelled = True
        self._cancel(assignment)

    def _cancel(self, assignment: Assignment) -> None:
        if assignment.task is not None:
            assignment.task.cancel()
            if not assignment.begun:
                self.cancelled(assignment, asyncio.CancelledError())

    # --- leaving ------------------------------------------------------------------------------------------------------

    def close_doors(self) -> None:
        """Begin no more steps."""
        self.closing = self._claims.closing = True

    async def drain(self, limit_s: float) -> None:
        """Wait up to `limit_s` for the steps that are running, and give up the others."""
        self.close_doors()
        tasks = [one.task for one in self.assignments.values() if one.task is not None]
        if tasks and limit_s > 0:
            await asyncio.wait(tasks, timeout=limit_s)
        left = [(one, one.task) for one in self.assignments.values() if one.task is not None]
        for assignment, _ in left:
            self._cancel(assignment)  # one that has not begun loses its task here
        if left:
            await asyncio.wait([task for _, task in left], timeout=5)
        await self.twins.drain()

    def abandon(self) -> None:
        """Stop all steps, and report nothing. Called when this node has lost its lease."""
        self.close_doors()
        for assignment in list(self.assignments.values()):
            self._stop(assignment)

    def close(self) -> None:
        self._executor.close()


def _logged_so_far(assignment: Assignment) -> Sequence[LogPart]:
    """Return what the running attempt has logged and nobody has written yet."""
    here = assignment.here
    return () if here is None or here.logs is None or not here.logs.has_unwritten else here.logs.take()


def _error_json(assignment: Assignment, failure: Raised, unsure: bool) -> str:
    """Return the error as it is recorded. If another process raised the error, it has encoded it already, because only
    there everything about it is known."""
    if failure.error_json is not None:
        return codec.mark_unsure(failure.error_json, unsure=unsure)
    return codec.encode_error(
        failure.error, step=assignment.step.bare_name, ending=failure.ending, unsure=unsure
    )
