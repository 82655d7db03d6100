"""The Agent: takes steps by lease, executes them, and reports each outcome once.

May change: only the steps it has, named by their fence. Must never: write after it lost its lease. A report goes to its host,
the node, which answers for it; a refused one is not repeated.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from holdfast import breaker, codec, policy
from holdfast.agent.assignment import Assignment
from holdfast.agent.claims import Claimer
from holdfast.agent.executor import Executor, overran
from holdfast.agent.gatekeeper import Gatekeeper
from holdfast.agent.host import AgentHost
from holdfast.agent.outcome import Raised, raised
from holdfast.agent.places import Places
from holdfast.agent.tally import Tally
from holdfast.agent.twins import TwinKeeper
from holdfast.config import Config
from holdfast.decider import Issue
from holdfast.decider.history import hold_note, unreadable
from holdfast.durations import DurationCounts, step_name
from holdfast.environment import Environment, StoreClock
from holdfast.errors import InvalidInput, LeaseLost, StepLost, StoreError, Unreadable
from holdfast.model import Ending, Outcome, StepState
from holdfast.programs import name_of
from holdfast.store.answers import Answer, ClaimedStep
from holdfast.store.operations import HandBack, QuarantineStep, RetryStep, Save
from holdfast.store.roles import AgentStore
from holdfast.workflow.here import Attempting
from holdfast.workflow.step import Step

log = logging.getLogger("holdfast.agent")

ERROR_MAX_CHARS = 200
"""Of an error, in what is told of a dependency."""
NO_THREAD_WAITS_S = 1.0
"""A step for which the operating system gave no thread is tried again after this long."""

Held = tuple[str, int, bool]
"""(run, n, whether it is the step's twin)."""


class Agent:
    claims_type: type[Claimer] = Claimer
    executor_type: type[Executor] = Executor
    """A simulation brings others, which pretend."""

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
        only: set[str] | None = None,
    ) -> None:
        """`durations` is where the node counts how long things take. `only` are the runs it works on, if not on whatever there
        is."""
        self._store, self._host, self._node = store, host, node
        self._steps, self._durations = steps, durations
        self._environment, self._clock, self._config = environment, clock, config
        self._monotonic, self._uncounted = environment.monotonic, 0
        self.assignments: dict[Held, Assignment] = {}
        self.closing = False
        self.tally = Tally()
        self.gates = Gatekeeper(config)
        self.places = Places(config, partial(host.claim_after, 0.0))
        self.twins = TwinKeeper(self, store.twins, host, node, environment, config)
        self._executor = self.executor_type(self, self.places, config)
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
        )

    # --- taking steps up ----------------------------------------------------------------------------------------------

    async def learn_lanes(self) -> None:
        await self._claims.learn_lanes()

    async def claim(self) -> int:
        """Claim what there are places for; how many."""
        return await self._claims.claim(self.assignments.values())

    async def next_ready(self) -> float | None:
        """When the earliest step that backs off and that this agent can do becomes ready."""
        return await self._claims.next_ready()

    def reserve(self, step: Step[Any, Any], workflow: str | None, namespace: str | None) -> bool:
        """Keep a place for a step that this node's scheduler is about to issue."""
        if self.closing or not self._claims.can_serve(step.name, step.needs):
            return False
        if self.gates.shut and self.gates.bars(step, workflow, namespace):
            return False
        return self.places.take(step)

    def begin_issued(self, run_id: str, n: int, issue: Issue, workflow: str, namespace: str) -> None:
        """Execute a step that this node's scheduler issued, for which a place was reserved. Meanwhile it may have been barred."""
        assignment = Assignment.of_issue(run_id, n, issue, self._clock.now())
        gates = self.gates
        self._begin(assignment, is_barred=gates.shut and gates.bars(assignment.step, workflow, namespace))

    def _begin_claimed(self, item: ClaimedStep, probe: tuple[str, int] | None, is_twin: bool) -> None:
        step = self._steps[item.name]
        is_crowded = self._is_crowded(step)
        assignment = Assignment.of_claim(item, step, probe=probe, twin=is_twin)
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
        """Whether there is no place: while the claim was on its way, this node's scheduler may have taken those it was for. One is
        taken all the same, until the step is handed back."""
        if self.places.take(step):
            return False
        self.places.overtake(step)
        return True

    def _begin(
        self, assignment: Assignment, checkpoint: bytes | None = None, *, is_barred: bool = False
    ) -> None:
        """Execute a step whose lease is committed and that has its place."""
        if is_barred or self.closing or not self._host.has_lease():
            # It came while a gate was shut or all places were taken, while this agent was told to leave, or its process was
            # paused and the lease is gone: not begun.
            self.places.give_back(assignment.step)
            self.hand_back(assignment)
            return
        key = (assignment.run_id, assignment.n, assignment.twin)
        if key in self.assignments:
            # An earlier attempt: the Supervisor reclaimed the step, and this agent claimed it again.
            self._stop(self.assignments[key])
        self.assignments[key] = assignment
        if assignment.step.hedge:
            assignment.started = self._monotonic()
        elif self._uncounted:
            self._uncounted -= 1
        else:
            assignment.started, assignment.weight = self._monotonic(), self._durations.stride
            self._uncounted = assignment.weight - 1
        assignment.here = Attempting(
            run_id=assignment.run_id,
            key=assignment.key,
            attempt=assignment.attempt,
            step=assignment.step.name,
            on_beat=assignment.beat,
            on_save=partial(self._save, assignment),
            saved_raw=checkpoint,
            undoes=assignment.undoes,
            loop=asyncio.get_running_loop(),
            limit=self._config.payload_max_bytes,
        )
        if log.isEnabledFor(logging.DEBUG):
            self._log(assignment, "begins")
        self._executor.begin(assignment)

    def _log(self, assignment: Assignment, what: str, *more: Any) -> None:
        if log.isEnabledFor(logging.DEBUG):
            log.debug(
                "attempt %d of %s %s of run %s (%s) %s",
                assignment.attempt,
                "the twin of step" if assignment.twin else "step",
                assignment.n,
                assignment.run_id,
                assignment.step.name,
                what % more,
            )

    # --- gates --------------------------------------------------------------------------------------------------------

    async def exchange_gates(self) -> bool:
        """Tell the store what became of attempts whose dependency is in trouble, and learn which gates are shut. True when other
        agents should look, too."""
        tallies = self.gates.untold()
        if tallies:
            try:
                await self._store.gates.observe(tallies, self._config.breaker_window_s)
            except BaseException:
                self.gates.keep(tallies)
                raise
        gates = await self._store.gates.gates(self._config.breaker_window_s)
        if self.gates.learn(gates, self._environment.monotonic()):
            self._host.claim_after(0.0)
        return any(told.round is None and told.failed for told in tallies)

    def _note(self, assignment: Assignment, sign: breaker.Sign, error: BaseException | None = None) -> None:
        """Count what the attempt said of its dependency, and have the store told when it matters."""
        words = (
            None if error is None else f"{type(error).__name__}: {codec.message_of(error)}"[:ERROR_MAX_CHARS]
        )
        if self.gates.note(assignment, sign, words, self._environment.monotonic()):
            self._host.exchange_gates_after(self._config.breaker_tell_s)

    # --- how executions end: the executor calls these ------------------------------------------------------------------

    def end(self, assignment: Assignment, ended: bytes | Raised) -> None:
        if isinstance(ended, Raised):
            self._fail(assignment, ended)
        else:
            self._succeed(assignment, ended)

    def cancelled(self, assignment: Assignment, error: BaseException) -> None:
        if assignment.lost:
            self._let_go(assignment)
        elif assignment.timed_out:
            self._fail(assignment, overran(assignment))
        elif self.closing:
            self.leave(assignment)
        else:
            self._fail(assignment, raised(assignment.step, error))

    def put_off(self, assignment: Assignment, error: Exception) -> None:
        log.warning("step %s of run %s: %s", assignment.step.name, assignment.run_id, error)
        if self._let_go(assignment):
            told = codec.encode_error(error, step=assignment.step.name, unsure=assignment.unsure)
            again = RetryStep(*assignment.place, NO_THREAD_WAITS_S, Ending.FAILED, told, excused=True)
            self._host.write_step(again, lambda _: self._host.claim_after(NO_THREAD_WAITS_S))

    def leave(self, assignment: Assignment) -> None:
        """This agent leaves, and the step has not ended: another agent's turn. If its code has begun, it may have had its effect,
        and nobody would know any more once the next attempt fails."""
        if not self._let_go(assignment):
            return
        if not assignment.begun or assignment.twin:
            self.hand_back(assignment)
            return
        left = StepLost("its agent left before it had finished", step=assignment.step.name)
        told = codec.encode_error(left, step=assignment.step.name, ending=Ending.LOST, unsure=True)
        self._host.write_step(RetryStep(*assignment.place, 0.0, Ending.LOST, told, excused=True))

    def _let_go(self, assignment: Assignment) -> bool:
        """Give the place back, once; False when nothing may be reported."""
        if assignment.ended:
            return False
        assignment.ended = True
        key = (assignment.run_id, assignment.n, assignment.twin)
        if self.assignments.get(key) is assignment:  # else a later attempt of the step is here
            del self.assignments[key]
        self.places.give_back(assignment.step)
        if assignment.began_at > -math.inf:
            self._claims.suspect_ended(assignment.place)
        assignment.task = assignment.here = None  # both refer back to it: without them, it is freed at once
        return not assignment.lost

    # --- reporting ----------------------------------------------------------------------------------------------------

    def _succeed(self, assignment: Assignment, output: bytes) -> None:
        if not self._let_go(assignment):
            return
        self.tally.succeeded += 1
        if self.gates.windows or assignment.probe is not None:
            self._note(assignment, breaker.Sign.WELL)
        if assignment.started is not None:
            took_s = self._monotonic() - assignment.started
            self._durations.add(step_name(assignment.step.name), took_s, assignment.weight)
        if log.isEnabledFor(logging.DEBUG):
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
            )
        )

    def _fail(self, assignment: Assignment, left: Raised) -> None:
        """The attempt failed: what follows is its policy's to say."""
        if not self._let_go(assignment):
            return
        error, ending = left.error, left.ending
        if isinstance(error, Unreadable) and error.kind in ("input", "checkpoint"):
            self._hold_run(assignment, error)
            return
        self.tally.failed += 1
        sign = breaker.read_failure(assignment.retry, error, ending)
        is_known = sign is breaker.Sign.TROUBLE and self.gates.excuses(assignment)
        self._note(assignment, sign, error)
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
        unsure = left.unsure or assignment.unsure or ending is not Ending.FAILED
        if isinstance(verdict, policy.RetryAfter):
            self._retry(assignment, left, verdict, unsure)
            return
        give_up = partial(self._give_up, assignment, left, verdict)
        if assignment.step.hedge:
            self.twins.outwait(assignment, ending, unsure, give_up)
        else:
            give_up(unsure)

    def _retry(self, assignment: Assignment, left: Raised, verdict: policy.RetryAfter, unsure: bool) -> None:
        delay_s = verdict.after_s
        if verdict.excused and assignment.retry.total is None:
            delay_s = max(delay_s, self.gates.rest_s(assignment))

        def written(answer: Any) -> None:
            if answer is Answer.ACCEPTED:
                self._host.claim_after(delay_s)

        told = _recorded(assignment, left, unsure)
        again = RetryStep(*assignment.place, delay_s, left.ending, told, verdict.excused, verdict.failure)
        self._host.write_step(again, written)

    def _give_up(
        self,
        assignment: Assignment,
        left: Raised,
        verdict: policy.GiveUp | policy.WaitForPerson,
        unsure: bool,
    ) -> None:
        """The step fails for good, or waits for a person."""
        told = _recorded(assignment, left, unsure)
        if isinstance(verdict, policy.GiveUp):
            run_id, n, fence = assignment.place
            self._host.write_step(Outcome(run_id, n, StepState.FAILED, None, told, self._clock.now(), fence))
            return
        name, kind = assignment.step.name, name_of(type(left.error))
        where = left.place or codec.place_of(left.error) or str(left.ending)
        fingerprint = policy.fingerprint(name, kind, where)
        self._host.write_step(
            QuarantineStep(
                *assignment.place, left.ending, told, verdict.failure, fingerprint, name, kind, where
            )
        )

    def hand_back(self, assignment: Assignment) -> None:
        """Not begun: another agent's turn. A twin is just given up."""
        if assignment.twin:
            self.twins.fail(assignment)
        else:
            self._host.write_step(HandBack(*assignment.place))

    def _hold_run(self, assignment: Assignment, error: Unreadable) -> None:
        """The code here cannot read what was recorded for the step. Nobody knows whether another agent's can, so a person
        decides: the step is handed back and its run is held. A twin is just given up."""
        log.warning("run %s is held: %s", assignment.run_id, error)
        if assignment.twin:
            self.twins.fail(assignment)
        else:
            self._host.write_step(HandBack(*assignment.place, hold=hold_note("drift", error)))

    # --- while steps run ----------------------------------------------------------------------------------------------

    async def _save(self, assignment: Assignment, raw: bytes) -> None:
        """Write a checkpoint, and wait until it is written."""
        if assignment.twin:
            return  # what the next attempt finds is what the step itself saved
        saved: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._host.write_step(
            Save(*assignment.place, checkpoint=raw),
            lambda answer: None if saved.done() else saved.set_result(answer),
        )
        answer = await saved
        if isinstance(answer, StoreError) and not isinstance(answer, LeaseLost):
            raise answer  # a step that believes that it is saved would not do it again

    async def beat(self) -> None:
        """Write progress, and stop what this agent no longer has: cancelled, timed out elsewhere, reclaimed."""
        for assignment in list(self.assignments.values()):
            if assignment.progress is not None and not assignment.twin:
                progress, assignment.progress = assignment.progress, None
                self._host.write_step(Save(*assignment.place, progress=progress))
        known = {key: one.place for key, one in self.assignments.items()}
        if steps := [place for (_, _, twin), place in known.items() if not twin]:
            for run_id, n in await self._store.agents.lost_steps(steps):
                if self._stop_known((run_id, n, False), known):
                    self._host.note_loss(run_id, n)
        if twins := [place for (_, _, twin), place in known.items() if twin]:
            for run_id, n in await self._store.twins.lost_twins(self._node, twins):
                self._stop_known((run_id, n, True), known)

    def _stop_known(self, key: Held, known: dict[Held, tuple[str, int, int]]) -> bool:
        """Stop it, unless it is another attempt by now: that one is ours."""
        assignment = self.assignments.get(key)
        if assignment is None or assignment.place != known[key]:
            return False
        self._stop(assignment)
        return True

    def stop(self, run_id: str, n: int) -> None:
        """This step is no longer ours: stop it, report nothing."""
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
        """Take up nothing more."""
        self.closing = self._claims.closing = True

    async def drain(self, limit_s: float) -> None:
        """Finish what is running within the limit, hand the rest back."""
        self.close_doors()
        tasks = [one.task for one in self.assignments.values() if one.task is not None]
        if tasks and limit_s > 0:
            await asyncio.wait(tasks, timeout=limit_s)
        left = [one for one in self.assignments.values() if one.task is not None]
        for assignment in left:
            self._cancel(assignment)
        if left:
            await asyncio.wait([one.task for one in left if one.task is not None], timeout=5)
        await self.twins.drain()

    def abandon(self) -> None:
        """This node lost its lease: stop everything, report nothing."""
        self.close_doors()
        for assignment in list(self.assignments.values()):
            self._stop(assignment)

    def close(self) -> None:
        self._executor.close()


def _recorded(assignment: Assignment, left: Raised, unsure: bool) -> str:
    """The error as it is recorded: by who knew more of it, if somebody did."""
    if left.told is not None:
        return codec.mark_unsure(left.told, unsure=unsure)
    return codec.encode_error(left.error, step=assignment.step.name, ending=left.ending, unsure=unsure)
