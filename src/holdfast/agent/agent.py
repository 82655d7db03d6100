"""The Agent: holds steps by lease, executes them, and reports each outcome once.

May change: only the steps it holds, named by their fence. Must never: write after it lost its lease. A report goes to
`report`, which the node answers for; a refused one is not repeated.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from holdfast import breaker, codec, policy
from holdfast.agent import isolation
from holdfast.agent.assignment import Assignment
from holdfast.agent.gatekeeper import Gatekeeper
from holdfast.agent.outcome import Raised, execute, raised, unstored
from holdfast.agent.tally import Tally
from holdfast.agent.threads import StepThreads
from holdfast.agent.twins import Twins
from holdfast.config import Config
from holdfast.decider.effect import undone_effect
from holdfast.decider.history import hold_note, unreadable
from holdfast.durations import Durations, step_name
from holdfast.environment import Environment, StoreClock
from holdfast.errors import InvalidInput, LeaseLost, StepLost, StepTimeout, StoreError, Unreadable
from holdfast.interrupt import by_signal
from holdfast.model import Ending, Lane, StepState, effect_key
from holdfast.policy import Retry
from holdfast.programs import name_of
from holdfast.store.answers import Answer, ClaimedStep
from holdfast.store.operations import HandBack, Quarantine, Report, RetryStep, Save
from holdfast.store.protocol import AgentStore
from holdfast.workflow.here import Attempting, here_var
from holdfast.workflow.step import Step

log = logging.getLogger("holdfast.agent")

ERROR_MAX_CHARS = 200
"""Of an error, in what is told of a dependency."""

Write = Callable[[Report | RetryStep | Quarantine | HandBack | Save, Callable[[Any], None] | None], None]

NO_THREAD_WAITS_S = 1.0
"""A step for which the operating system gave no thread is tried again after this long."""
SUSPECT_LOOK_S = 0.02
"""How often to look whether the outcome of a suspect is written: some commits."""


class Agent:
    def __init__(
        self,
        store: AgentStore,
        write: Write,
        node: str,
        *,
        steps: Mapping[str, Step[Any, Any]],
        labels: frozenset[str],
        environment: Environment,
        clock: StoreClock,
        config: Config,
    ) -> None:
        self._store, self._write, self._node = store, write, node
        self._steps, self._labels = steps, labels
        self._environment, self._clock, self._config = environment, clock, config
        self.held: dict[tuple[str, int], Assignment] = {}
        self._free_async, self._free_threads = config.steps_max, config.threads_max
        self._lanes: dict[bool, dict[int, str]] = {True: {}, False: {}}
        """The lanes this agent can serve, each with what its steps depend on."""
        self._hedged: dict[bool, set[int]] = {True: set(), False: set()}
        """Those among them whose steps may have twins."""
        self._threads = StepThreads(config.threads_max)
        self.wake: Callable[[float], None] = lambda delay_s: None
        """Set by the node: call `claim` again after so many seconds."""
        self.claimed: Callable[[str, int], None] = lambda run_id, n: None
        """Set by the node: told of every step claimed."""
        self.lost: Callable[[str, int], None] = lambda run_id, n: None
        """Set by the node: told of every step that turned out to be another's."""
        self.holds: Callable[[], bool] = lambda: True
        """Set by the node: whether it has its lease. Asked before a step begins."""
        self.unwritten: Callable[[], set[tuple[str, int, int]]] = set
        """Set by the node: (run, n, fence) of steps that are held here, or have ended and are not written yet."""
        self._suspects_ended: set[tuple[str, int, int]] = set()
        self._suspects_at = 0.0
        self.gates = Gatekeeper(config)
        self.tell: Callable[[float], None] = lambda delay_s: None
        """Set by the node: call `look` after so many seconds."""
        self.tally = Tally()
        self.durations = Durations()
        """Shared with others in this node: how long things took."""
        self._monotonic, self._uncounted = environment.monotonic, 0
        self.only: set[str] | None = None
        """Set by the node: the runs it works on, if not on whatever there is."""
        self.twins = Twins(self, store, node, environment, config)
        self.closing = False
        self._hungry = False
        """More was waiting than there were places."""
        self._claim_at = min(100, max(1, config.steps_max // 4))
        """Then claim again when so many are free: one claim for many steps."""

    # --- capacity -----------------------------------------------------------------------------------------------------

    def capable(self, name: str, needs: tuple[str, ...]) -> bool:
        return name in self._steps and self._labels.issuperset(needs)

    @property
    def full(self) -> float:
        """How much of its capacity is used, from 0 to 1: of its threads or of its places for `async def` steps, whichever
        is nearer to its end."""
        config = self._config
        return max(1 - self._free_async / config.steps_max, 1 - self._free_threads / config.threads_max)

    def reserve(
        self, step: Step[Any, Any], workflow: str | None = None, namespace: str | None = None
    ) -> bool:
        """Keep a place for a step that this node's scheduler is about to issue."""
        if self.closing or not self.capable(step.name, step.needs):
            return False
        if self.gates.shut and self.gates.bars(step, workflow, namespace):
            return False
        if (self._free_async if step.is_async else self._free_threads) <= 0:
            self._hungry = True
            return False
        self._take_place(step)
        return True

    def _take_place(self, step: Step[Any, Any]) -> None:
        if step.is_async:
            self._free_async -= 1
        else:
            self._free_threads -= 1

    def unreserve(self, step: Step[Any, Any]) -> None:
        if step.is_async:
            self._free_async += 1
        else:
            self._free_threads += 1
        if self._hungry and (self._free_async >= self._claim_at if step.is_async else self._free_threads > 0):
            self._hungry = False
            self.wake(0.0)

    # --- taking steps up ----------------------------------------------------------------------------------------------

    async def learn_lanes(self) -> None:
        """Which lanes this agent can serve, those of `async def` steps and those of threads apart."""
        served: dict[bool, dict[int, str]] = {True: {}, False: {}}
        hedged: dict[bool, set[int]] = {True: set(), False: set()}
        lane: Lane
        for lane in await self._store.lanes():
            if self.capable(lane.name, lane.needs):
                served[self._steps[lane.name].is_async][lane.id] = lane.depends
                if self._steps[lane.name].hedge:
                    hedged[self._steps[lane.name].is_async].add(lane.id)
        self._lanes, self._hedged = served, hedged

    async def claim(self) -> int:
        """Claim as many steps as there are free places; twins first, because they are late already."""
        claimed = 0
        for is_async in (True, False):
            if self.gates.probing:
                claimed += await self._claim_probes(is_async)
            if self._hedged[is_async] and self.only is None:
                claimed += await self._claim_twins(is_async)
            lanes = self._open_lanes(is_async)
            free = self._free(is_async)
            if free <= 0 or not lanes or self.closing:
                continue
            found = await self._store.claim_steps(
                self._node,
                lanes,
                free,
                suspect_losses=self._config.suspect_losses,
                suspects=0 if self._has_suspect() else 1,
                runs=self._runs(),
            )
            for item in found:
                self.claimed(item.run_id, item.n)
                self._begin_claimed(item)
            claimed += len(found)
            if len(found) == free:
                self._hungry = True
        return claimed

    def _runs(self) -> list[str] | None:
        return None if self.only is None else sorted(self.only)

    def _free(self, is_async: bool) -> int:
        return min(self._free_async if is_async else self._free_threads, self._config.claim_max)

    def _is_crowded(self, step: Step[Any, Any]) -> bool:
        """While a claim was on its way, this node's scheduler may have taken the places it was for."""
        crowded = self._free(step.is_async) <= 0
        self._hungry = self._hungry or crowded
        return crowded

    def _open_lanes(self, is_async: bool) -> list[int]:
        """The lanes to claim from: not those this agent has stopped by itself. What else is shut the store knows."""
        paused = self.gates.paused
        return [lane for lane, depends in self._lanes[is_async].items() if depends not in paused]

    async def _claim_probes(self, is_async: bool) -> int:
        """Take up what a wave of probes allows."""
        claimed = 0
        for name in list(self.gates.probing):
            lanes = [lane for lane, depends in self._lanes[is_async].items() if depends == name]
            free = self._free(is_async)
            if free <= 0 or not lanes or self.closing:
                continue
            found = await self._store.claim_probes(self._node, name, lanes, free, self._runs())
            for item in found.steps:
                self.claimed(item.run_id, item.n)
                self._begin_claimed(item, (name, found.round))
            claimed += len(found.steps)
            if len(found.steps) == free:
                self._hungry = True
        return claimed

    def _has_suspect(self) -> bool:
        """Is there a suspect that was begun so lately that nobody knows yet whether it kills this agent? One at a time: the step that
        kills agents must not take those with it that were beside it before. The others stay where they are until their turn."""
        since = self._environment.monotonic() - self._config.suspect_s
        if any(assignment.began_at > since for assignment in self.held.values()):
            return True
        if self._suspects_ended:
            # Until its outcome is written, its agent's death would still be its loss.
            self._suspects_ended &= self.unwritten()
            now = self._environment.monotonic()
            if self._suspects_ended and now >= self._suspects_at:
                # Once for all who ask until then: every bell would be two questions, and each of them a bell.
                self._suspects_at = now + SUSPECT_LOOK_S / 2
                self.wake(SUSPECT_LOOK_S)
        return bool(self._suspects_ended)

    async def _claim_twins(self, is_async: bool) -> int:
        free = self._free(is_async)
        lanes = [lane for lane in self._open_lanes(is_async) if lane in self._hedged[is_async]]
        if free <= 0 or not lanes or self.closing:
            return 0
        found = await self._store.claim_twins(self._node, lanes, free)
        for item in found:
            self._begin_claimed(item, twin=True)
        return len(found)

    async def next_ready(self) -> float | None:
        lanes = [*self._lanes[True], *self._lanes[False]]
        return await self._store.next_ready(lanes, self._runs()) if lanes else None

    async def look(self) -> bool:
        """Tell what became of attempts whose dependency is in trouble, and learn which gates are shut. True when other
        agents should look, too."""
        tallies = self.gates.untold()
        if tallies:
            try:
                await self._store.observe(tallies, self._config.breaker_window_s)
            except BaseException:
                self.gates.keep(tallies)
                raise
        gates = await self._store.gates(self._config.breaker_window_s)
        if self.gates.learn(gates, self._environment.monotonic()):
            self.wake(0.0)
        return any(told.round is None and told.failed for told in tallies)

    def _begin_claimed(
        self, item: ClaimedStep, probe: tuple[str, int] | None = None, *, twin: bool = False
    ) -> None:
        step = self._steps[item.name]
        crowded = self._is_crowded(step)
        self._take_place(step)
        assignment = Assignment(
            step,
            item.run_id,
            -item.n if twin else item.n,
            item.effect or effect_key(item.run_id, item.key),
            item.fence,
            None,
            retry=Retry.decode(item.retry) if item.retry else step.retry,
            timeout_s=item.timeout_s,
            issued_at=item.issued_at,
            attempt=item.attempt,
            unsure=codec.is_unsure(item.losses, item.error),
            undoes=undone_effect(item.key, item.input),
            probe=probe,
            twin=twin,
        )
        assignment.count(item)
        if item.losses >= self._config.suspect_losses:
            assignment.began_at = self._environment.monotonic()
        try:
            assignment.arguments = step.shape.whole(item.input)
        except InvalidInput as wrong:
            self.unreserve(step)
            what = f"the input of step {item.key!r}"
            self._hold_run(assignment, unreadable(item.key, "input", what, item.input, wrong))
            return
        barred = probe is None and step.depends in self.gates.paused
        self.begin(assignment, item.checkpoint, barred=barred or crowded)

    def begin(self, assignment: Assignment, checkpoint: bytes | None = None, *, barred: bool = False) -> None:
        """Execute a step whose lease is committed. Its place was reserved before; meanwhile it may have been barred."""
        if barred or self.closing or not self.holds():
            # It came while a gate was shut or all places were taken, while this agent was told to leave, or its process was
            # paused and the lease is gone: not begun.
            self.unreserve(assignment.step)
            self.hand_back(assignment)
            return
        place = assignment.run_id, assignment.n
        if (
            place in self.held
        ):  # an earlier attempt: the Supervisor reclaimed the step, and this agent claimed it again
            self.stop(*place)
        self.held[place] = assignment
        if assignment.step.hedge:
            assignment.started = self._monotonic()
        elif self._uncounted:
            self._uncounted -= 1
        else:
            assignment.started, assignment.weight = self._monotonic(), self.durations.stride
            self._uncounted = assignment.weight - 1
        loop = asyncio.get_running_loop()
        assignment.here = Attempting(
            run_id=assignment.run_id,
            key=assignment.key,
            attempt=assignment.attempt,
            step=assignment.step.name,
            on_beat=assignment.beat,
            on_save=partial(self._save, assignment),
            saved_raw=checkpoint,
            undoes=assignment.undoes,
            loop=loop,
            limit=self._config.payload_max_bytes,
        )
        assignment.task = loop.create_task(
            self._run_async(assignment) if assignment.step.is_async else self._run_thread(assignment)
        )

    # --- executing ----------------------------------------------------------------------------------------------------

    async def _run_async(self, assignment: Assignment) -> None:
        assignment.begun = True
        here_var.set(assignment.here)  # the task's own context: it goes with the task
        step, timer = assignment.step, None
        if assignment.timeout_s is not None:
            timer = asyncio.get_running_loop().call_later(assignment.timeout_s, self._time_out, assignment)
        returned = False
        try:
            value = await step.shape.call(step.fn, assignment.arguments)
            returned = True
            output = step.shape.encode_result(value, self._config.payload_max_bytes)
        except asyncio.CancelledError as error:
            self._cancelled(assignment, error)
        except BaseException as error:
            if by_signal(error) or _is_torn_down(error):
                self._leave(assignment)
                raise
            self._fail_with(assignment, unstored(step, error) if returned else raised(step, error))
        else:
            self._succeed(assignment, output)
        finally:
            if timer is not None:
                timer.cancel()

    async def _run_thread(self, assignment: Assignment) -> None:
        """A thread cannot be stopped: after its timeout it is left to itself, and keeps its place until it returns."""
        assignment.begun = True
        step = assignment.step
        if step.isolate:
            await self._run_isolated(assignment)
            return
        here_var.set(assignment.here)
        try:
            call = asyncio.get_running_loop().run_in_executor(
                self._threads,
                contextvars.copy_context().run,
                execute,
                step,
                assignment.arguments,
                self._config.payload_max_bytes,
            )
        except RuntimeError as error:  # no thread can be started: it has not begun
            log.warning("step %s of run %s: %s", assignment.step.name, assignment.run_id, error)
            if self._let_go(assignment):
                told = codec.encode_error(error, step=step.name, unsure=assignment.unsure)
                again = (
                    assignment.run_id,
                    assignment.n,
                    assignment.fence,
                    NO_THREAD_WAITS_S,
                    Ending.FAILED,
                    told,
                )
                self._write(RetryStep(*again, excused=True), lambda _: self.wake(NO_THREAD_WAITS_S))
            return
        try:
            async with asyncio.timeout(assignment.timeout_s):
                ended = await asyncio.shield(call)
        except TimeoutError:
            assignment.timed_out = True
            self._abandon_thread(assignment, call)
            self._fail(assignment, _overran(assignment), Ending.TIMED_OUT)
        except asyncio.CancelledError as error:
            self._abandon_thread(assignment, call)
            self._cancelled(assignment, error)
        else:
            self._end(assignment, ended)

    async def _run_isolated(self, assignment: Assignment) -> None:
        """A process of its own can be killed: at its timeout, or when the step is no longer wanted."""
        assert assignment.here is not None
        limit = asyncio.timeout(assignment.timeout_s)
        try:
            async with limit:
                ended = await isolation.execute(
                    assignment.step, assignment.arguments, assignment.here, self._config.payload_max_bytes
                )
        except asyncio.CancelledError as error:
            self._cancelled(assignment, error)
        except isolation.ChildDied as died:
            self._fail(assignment, died.error, Ending.LOST, place=died.place)
        except Exception as error:  # noqa: BLE001  it could not be started
            if limit.expired():
                self._fail(assignment, _overran(assignment), Ending.TIMED_OUT)
            else:
                self._fail(assignment, error, Ending.FAILED)
        else:
            self._end(assignment, ended)

    def _end(self, assignment: Assignment, ended: bytes | Raised) -> None:
        if isinstance(ended, Raised):
            self._fail_with(assignment, ended)
        else:
            self._succeed(assignment, ended)

    def _abandon_thread(self, assignment: Assignment, call: asyncio.Future[Any]) -> None:
        if assignment.here is not None:
            assignment.here.cancelled = True
        if not call.done():
            self._free_threads -= 1

            def returned(done: asyncio.Future[Any]) -> None:
                self._free_threads += 1
                if not done.cancelled():
                    done.exception()

            call.add_done_callback(returned)

    def _time_out(self, assignment: Assignment) -> None:
        assignment.timed_out = True
        if assignment.here is not None:
            assignment.here.cancelled = True
        if assignment.task is not None:
            assignment.task.cancel()

    def _cancelled(self, assignment: Assignment, error: BaseException) -> None:
        if assignment.lost:
            self._let_go(assignment)
        elif assignment.timed_out:
            self._fail(assignment, _overran(assignment), Ending.TIMED_OUT)
        elif self.closing:
            self._leave(assignment)
        else:
            self._fail_with(assignment, raised(assignment.step, error))

    def _leave(self, assignment: Assignment) -> None:
        """This agent leaves, and the step has not ended: another agent's turn. If its code has begun, it may have had its effect,
        and nobody would know any more once the next attempt fails."""
        if not self._let_go(assignment):
            return
        if not assignment.begun or assignment.twin:
            self.hand_back(assignment)
            return
        left = StepLost("its agent left before it had finished", step=assignment.step.name)
        told = codec.encode_error(left, step=assignment.step.name, ending=Ending.LOST, unsure=True)
        step = assignment.run_id, assignment.n, assignment.fence
        self._write(RetryStep(*step, 0.0, Ending.LOST, told, excused=True), None)

    def hand_back(self, assignment: Assignment) -> None:
        """Not begun: another agent's turn. A twin is just given up."""
        if assignment.twin:
            self.twins.fail(assignment)
        else:
            self._write(HandBack(assignment.run_id, assignment.n, assignment.fence), None)

    def _hold_run(self, assignment: Assignment, error: Unreadable) -> None:
        """The code here cannot read what was recorded for the step. Nobody knows whether another agent's can, so a person
        decides: the step is handed back and its run is held. A twin is just given up."""
        log.warning("run %s is held: %s", assignment.run_id, error)
        if assignment.twin:
            self.twins.fail(assignment)
        else:
            note = hold_note("drift", error)
            self._write(HandBack(assignment.run_id, assignment.n, assignment.fence, hold=note), None)

    # --- reporting ----------------------------------------------------------------------------------------------------

    def _succeed(self, assignment: Assignment, output: bytes) -> None:
        if self._let_go(assignment):
            self.tally.succeeded += 1
            if self.gates.windows or assignment.probe is not None:
                self._note(assignment, breaker.Sign.WELL)
            if assignment.started is not None:
                took_s = self._monotonic() - assignment.started
                self.durations.add(step_name(assignment.step.name), took_s, assignment.weight)
            if assignment.twin:
                self.twins.win(assignment, output)
                return
            self._write(
                Report(
                    assignment.run_id,
                    assignment.n,
                    assignment.fence,
                    StepState.SUCCEEDED,
                    output,
                    None,
                    self._clock.now(),
                ),
                None,
            )

    def _fail_with(self, assignment: Assignment, left: Raised) -> None:
        self._fail(assignment, left.error, Ending.FAILED, unsure=left.unsure, told=left.told)

    def _fail(
        self,
        assignment: Assignment,
        error: BaseException,
        ending: Ending,
        *,
        place: str = "",
        unsure: bool = False,
        told: str | None = None,
    ) -> None:
        """The attempt failed. `unsure`: it may have had its effect all the same. `told`: the error as it is recorded, if somebody
        who knew more of it has written it down."""
        if not self._let_go(assignment):
            return
        if isinstance(error, Unreadable) and error.kind in ("input", "checkpoint"):
            self._hold_run(assignment, error)
            return
        self.tally.failed += 1
        now = self._clock.now()
        sign = breaker.read_failure(assignment.retry, error, ending)
        known = sign is breaker.Sign.TROUBLE and self.gates.excuses(assignment)
        self._note(assignment, sign, error)
        if assignment.twin:
            self.twins.fail(assignment)
            return
        verdict = policy.decide(
            assignment.retry,
            policy.classify(ending, error),
            assignment,
            error=error,
            elapsed_s=now - assignment.issued_at,
            random=self._environment.random,
            config=self._config,
            outage=known,
        )
        unsure = unsure or assignment.unsure or ending is not Ending.FAILED
        step = assignment.run_id, assignment.n, assignment.fence

        def recorded(unsure: bool) -> str:
            if told is not None:
                return codec.mark_unsure(told, unsure=unsure)
            return codec.encode_error(error, step=assignment.step.name, ending=ending, unsure=unsure)

        def give_up(unsure: bool) -> None:
            if isinstance(verdict, policy.Quarantine):
                name, kind = assignment.step.name, name_of(type(error))
                where = place or codec.place_of(error) or str(ending)
                fingerprint = policy.fingerprint(name, kind, where)
                op = Quarantine(
                    *step, ending, recorded(unsure), verdict.failure, fingerprint, name, kind, where
                )
                self._write(op, None)
            else:
                self._write(Report(*step, StepState.FAILED, None, recorded(unsure), self._clock.now()), None)

        if isinstance(verdict, policy.RetryAfter):
            delay_s = verdict.after_s
            if verdict.excused and assignment.retry.total is None:
                delay_s = max(delay_s, self.gates.rest_s(assignment))

            def waiting(answer: Any) -> None:
                if answer is Answer.ACCEPTED:
                    self.wake(delay_s)

            again = RetryStep(*step, delay_s, ending, recorded(unsure), verdict.excused, verdict.failure)
            self._write(again, waiting)
        elif assignment.step.hedge:
            self.twins.outwait(assignment, ending, unsure, give_up)
        else:
            give_up(unsure)

    def _note(self, assignment: Assignment, sign: breaker.Sign, error: BaseException | None = None) -> None:
        """Count what the attempt said of its dependency, and have the store told when it matters."""
        words = (
            None if error is None else f"{type(error).__name__}: {codec.message_of(error)}"[:ERROR_MAX_CHARS]
        )
        if self.gates.note(assignment, sign, words, self._environment.monotonic()):
            self.tell(self._config.breaker_tell_s)

    def _let_go(self, assignment: Assignment) -> bool:
        """Give the place back, once; False when nothing may be reported."""
        if assignment.ended:
            return False
        assignment.ended = True
        if (
            self.held.get((assignment.run_id, assignment.n)) is assignment
        ):  # else a later attempt of the step is here
            del self.held[assignment.run_id, assignment.n]
        self.unreserve(assignment.step)
        if assignment.began_at > -math.inf:
            self._suspects_ended.add((assignment.run_id, assignment.n, assignment.fence))
            self.wake(SUSPECT_LOOK_S)  # the next one may begin
        assignment.task = assignment.here = None  # both refer back to it: without them, it is freed at once
        return not assignment.lost

    # --- beating ------------------------------------------------------------------------------------------------------

    async def _save(self, assignment: Assignment, raw: bytes) -> None:
        if assignment.twin:
            return  # what the next attempt finds is what the step itself saved
        saved: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._write(
            Save(assignment.run_id, assignment.n, assignment.fence, checkpoint=raw),
            lambda answer: None if saved.done() else saved.set_result(answer),
        )
        answer = await saved
        if isinstance(answer, StoreError) and not isinstance(answer, LeaseLost):
            raise answer  # a step that believes that it is saved would not do it again

    async def beat(self) -> None:
        """Write progress, and drop what this agent no longer holds: cancelled, timed out elsewhere, reclaimed."""
        for assignment in list(self.held.values()):
            if assignment.progress is not None and not assignment.twin:
                progress, assignment.progress = assignment.progress, None
                self._write(Save(assignment.run_id, assignment.n, assignment.fence, progress=progress), None)
        held = {place: assignment.fence for place, assignment in self.held.items()}
        if steps := [(run_id, n, fence) for (run_id, n), fence in held.items() if n > 0]:
            for run_id, n in await self._store.lost_steps(self._node, steps):
                if self._is_still(run_id, n, held):
                    self.stop(run_id, n)
                    self.lost(run_id, n)
        if twins := [(run_id, -n, fence) for (run_id, n), fence in held.items() if n < 0]:
            for run_id, n in await self._store.lost_twins(self._node, twins):
                if self._is_still(run_id, -n, held):
                    self.stop(run_id, -n)

    def _is_still(self, run_id: str, n: int, held: dict[tuple[str, int], int]) -> bool:
        """Another attempt of the same step may have come here since: that one is ours."""
        now = self.held.get((run_id, n))
        return now is not None and now.fence == held[run_id, n]

    def stop(self, run_id: str, n: int) -> None:
        """This step is no longer ours: stop it, report nothing."""
        assignment = self.held.get((run_id, n))
        if assignment is not None:
            assignment.lost = True
            if assignment.here is not None:
                assignment.here.cancelled = True
            self._cancel(assignment)

    def _cancel(self, assignment: Assignment) -> None:
        if assignment.task is not None:
            assignment.task.cancel()
            if not assignment.begun:
                self._cancelled(assignment, asyncio.CancelledError())

    # --- leaving ------------------------------------------------------------------------------------------------------

    async def drain(self, limit_s: float) -> None:
        """Finish what is running within the limit, hand the rest back."""
        self.closing = True
        tasks = [assignment.task for assignment in self.held.values() if assignment.task is not None]
        if tasks and limit_s > 0:
            await asyncio.wait(tasks, timeout=limit_s)
        left = [assignment for assignment in self.held.values() if assignment.task is not None]
        for assignment in left:
            self._cancel(assignment)
        if left:
            await asyncio.wait(
                [assignment.task for assignment in left if assignment.task is not None], timeout=5
            )
        await self.twins.drain()

    def abandon(self) -> None:
        """This node lost its lease: stop everything, report nothing."""
        self.closing = True
        for run_id, n in list(self.held):
            self.stop(run_id, n)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _is_torn_down(error: BaseException) -> bool:
    """Whether the event loop is gone, and Python takes apart what was left on it."""
    return issubclass(type(error), GeneratorExit) and asyncio._get_running_loop() is None


def _overran(assignment: Assignment) -> StepTimeout:
    return StepTimeout(
        f"attempt {assignment.attempt} did not complete within {assignment.timeout_s:g} s",
        error_type="holdfast.errors.StepTimeout",
        step=assignment.step.name,
    )
