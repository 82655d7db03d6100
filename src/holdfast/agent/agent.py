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
from holdfast.agent.gatekeeper import Gatekeeper
from holdfast.agent.holding import Holding
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
from holdfast.store.operations import HandBack, Quarantine, Report, Save, TryAgain
from holdfast.store.protocol import AgentStore
from holdfast.workflow.here import Attempting, here_var
from holdfast.workflow.step import Step

log = logging.getLogger("holdfast.agent")

ERROR_MAX_CHARS = 200
"""Of an error, in what is told of a dependency."""

Write = Callable[[Report | TryAgain | Quarantine | HandBack | Save, Callable[[Any], None] | None], None]

NO_THREAD_WAITS_S = 1.0
"""A step for which the operating system gave no thread is tried again after this long."""
SETTLE_S = 0.02
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
        self.held: dict[tuple[str, int], Holding] = {}
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
        self._settles_at = 0.0
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

    def reserve(self, step: Step[Any, Any], workflow: str | None = None, tenant: str | None = None) -> bool:
        """Keep a place for a step that this node's scheduler is about to issue."""
        if self.closing or not self.capable(step.name, step.needs):
            return False
        if self.gates.shut and self.gates.bars(step, workflow, tenant):
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
        if any(holding.began_at > since for holding in self.held.values()):
            return True
        if self._suspects_ended:
            # Until its outcome is written, its agent's death would still be its loss.
            self._suspects_ended &= self.unwritten()
            now = self._environment.monotonic()
            if self._suspects_ended and now >= self._settles_at:
                # Once for all who ask until then: every bell would be two questions, and each of them a bell.
                self._settles_at = now + SETTLE_S / 2
                self.wake(SETTLE_S)
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
        holding = Holding(
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
        holding.count(item)
        if item.losses >= self._config.suspect_losses:
            holding.began_at = self._environment.monotonic()
        try:
            holding.arguments = step.shape.whole(item.input)
        except InvalidInput as wrong:
            self.unreserve(step)
            what = f"the input of step {item.key!r}"
            self._hold_run(holding, unreadable(item.key, "input", what, item.input, wrong))
            return
        barred = probe is None and step.depends in self.gates.paused
        self.begin(holding, item.checkpoint, barred=barred or crowded)

    def begin(self, holding: Holding, checkpoint: bytes | None = None, *, barred: bool = False) -> None:
        """Execute a step whose lease is committed. Its place was reserved before; meanwhile it may have been barred."""
        if barred or self.closing or not self.holds():
            # It came while a gate was shut or all places were taken, while this agent was told to leave, or its process was
            # paused and the lease is gone: not begun.
            self.unreserve(holding.step)
            self.hand_back(holding)
            return
        self.held[holding.run_id, holding.n] = holding
        if holding.step.hedge:
            holding.started = self._monotonic()
        elif self._uncounted:
            self._uncounted -= 1
        else:
            holding.started, holding.weight = self._monotonic(), self.durations.stride
            self._uncounted = holding.weight - 1
        loop = asyncio.get_running_loop()
        holding.here = Attempting(
            run_id=holding.run_id,
            key=holding.key,
            attempt=holding.attempt,
            step=holding.step.name,
            on_beat=holding.beat,
            on_save=partial(self._save, holding),
            saved_raw=checkpoint,
            undoes=holding.undoes,
            loop=loop,
            limit=self._config.payload_max_bytes,
        )
        holding.task = loop.create_task(
            self._run_async(holding) if holding.step.is_async else self._run_thread(holding)
        )

    # --- executing ----------------------------------------------------------------------------------------------------

    async def _run_async(self, holding: Holding) -> None:
        holding.begun = True
        here_var.set(holding.here)  # the task's own context: it goes with the task
        step, timer = holding.step, None
        if holding.timeout_s is not None:
            timer = asyncio.get_running_loop().call_later(holding.timeout_s, self._time_out, holding)
        returned = False
        try:
            value = await step.shape.call(step.fn, holding.arguments)
            returned = True
            output = step.shape.encode_result(value, self._config.payload_max_bytes)
        except asyncio.CancelledError as error:
            self._cancelled(holding, error)
        except BaseException as error:
            if by_signal(error) or _is_torn_down(error):
                self._leave(holding)
                raise
            self._fail_with(holding, unstored(step, error) if returned else raised(step, error))
        else:
            self._succeed(holding, output)
        finally:
            if timer is not None:
                timer.cancel()

    async def _run_thread(self, holding: Holding) -> None:
        """A thread cannot be stopped: after its timeout it is left to itself, and keeps its place until it returns."""
        holding.begun = True
        step = holding.step
        if step.isolate:
            await self._run_isolated(holding)
            return
        here_var.set(holding.here)
        try:
            call = asyncio.get_running_loop().run_in_executor(
                self._threads,
                contextvars.copy_context().run,
                execute,
                step,
                holding.arguments,
                self._config.payload_max_bytes,
            )
        except RuntimeError as error:  # no thread can be started: it has not begun
            log.warning("step %s of run %s: %s", holding.step.name, holding.run_id, error)
            if self._let_go(holding):
                told = codec.encode_error(error, step=step.name, unsure=holding.unsure)
                again = holding.run_id, holding.n, holding.fence, NO_THREAD_WAITS_S, Ending.FAILED, told
                self._write(TryAgain(*again, excused=True), lambda _: self.wake(NO_THREAD_WAITS_S))
            return
        try:
            async with asyncio.timeout(holding.timeout_s):
                ended = await asyncio.shield(call)
        except TimeoutError:
            holding.timed_out = True
            self._abandon_thread(holding, call)
            self._fail(holding, _overran(holding), Ending.TIMED_OUT)
        except asyncio.CancelledError as error:
            self._abandon_thread(holding, call)
            self._cancelled(holding, error)
        else:
            self._end(holding, ended)

    async def _run_isolated(self, holding: Holding) -> None:
        """A process of its own can be killed: at its timeout, or when the step is no longer wanted."""
        assert holding.here is not None
        limit = asyncio.timeout(holding.timeout_s)
        try:
            async with limit:
                ended = await isolation.execute(
                    holding.step, holding.arguments, holding.here, self._config.payload_max_bytes
                )
        except asyncio.CancelledError as error:
            self._cancelled(holding, error)
        except isolation.ChildDied as died:
            self._fail(holding, died.error, Ending.LOST, place=died.place)
        except Exception as error:  # noqa: BLE001  it could not be started
            if limit.expired():
                self._fail(holding, _overran(holding), Ending.TIMED_OUT)
            else:
                self._fail(holding, error, Ending.FAILED)
        else:
            self._end(holding, ended)

    def _end(self, holding: Holding, ended: bytes | Raised) -> None:
        if isinstance(ended, Raised):
            self._fail_with(holding, ended)
        else:
            self._succeed(holding, ended)

    def _abandon_thread(self, holding: Holding, call: asyncio.Future[Any]) -> None:
        if holding.here is not None:
            holding.here.cancelled = True
        if not call.done():
            self._free_threads -= 1

            def returned(done: asyncio.Future[Any]) -> None:
                self._free_threads += 1
                if not done.cancelled():
                    done.exception()

            call.add_done_callback(returned)

    def _time_out(self, holding: Holding) -> None:
        holding.timed_out = True
        if holding.here is not None:
            holding.here.cancelled = True
        if holding.task is not None:
            holding.task.cancel()

    def _cancelled(self, holding: Holding, error: BaseException) -> None:
        if holding.lost:
            self._let_go(holding)
        elif holding.timed_out:
            self._fail(holding, _overran(holding), Ending.TIMED_OUT)
        elif self.closing:
            self._leave(holding)
        else:
            self._fail_with(holding, raised(holding.step, error))

    def _leave(self, holding: Holding) -> None:
        """This agent leaves, and the step has not ended: another agent's turn. If its code has begun, it may have had its effect,
        and nobody would know any more once the next attempt fails."""
        if not self._let_go(holding):
            return
        if not holding.begun or holding.twin:
            self.hand_back(holding)
            return
        left = StepLost("its agent left before it had finished", step=holding.step.name)
        told = codec.encode_error(left, step=holding.step.name, ending=Ending.LOST, unsure=True)
        step = holding.run_id, holding.n, holding.fence
        self._write(TryAgain(*step, 0.0, Ending.LOST, told, excused=True), None)

    def hand_back(self, holding: Holding) -> None:
        """Not begun: another agent's turn. A twin is just given up."""
        if holding.twin:
            self.twins.fail(holding)
        else:
            self._write(HandBack(holding.run_id, holding.n, holding.fence), None)

    def _hold_run(self, holding: Holding, error: Unreadable) -> None:
        """The code here cannot read what was recorded for the step. Nobody knows whether another agent's can, so a person
        decides: the step is handed back and its run is held. A twin is just given up."""
        log.warning("run %s is held: %s", holding.run_id, error)
        if holding.twin:
            self.twins.fail(holding)
        else:
            note = hold_note("drift", error)
            self._write(HandBack(holding.run_id, holding.n, holding.fence, hold=note), None)

    # --- reporting ----------------------------------------------------------------------------------------------------

    def _succeed(self, holding: Holding, output: bytes) -> None:
        if self._let_go(holding):
            self.tally.succeeded += 1
            if self.gates.windows or holding.probe is not None:
                self._note(holding, breaker.Sign.WELL)
            if holding.started is not None:
                took_s = self._monotonic() - holding.started
                self.durations.add(step_name(holding.step.name), took_s, holding.weight)
            if holding.twin:
                self.twins.win(holding, output)
                return
            self._write(
                Report(
                    holding.run_id,
                    holding.n,
                    holding.fence,
                    StepState.SUCCEEDED,
                    output,
                    None,
                    self._clock.now(),
                ),
                None,
            )

    def _fail_with(self, holding: Holding, left: Raised) -> None:
        self._fail(holding, left.error, Ending.FAILED, unsure=left.unsure, told=left.told)

    def _fail(
        self,
        holding: Holding,
        error: BaseException,
        ending: Ending,
        *,
        place: str = "",
        unsure: bool = False,
        told: str | None = None,
    ) -> None:
        """The attempt failed. `unsure`: it may have had its effect all the same. `told`: the error as it is recorded, if somebody
        who knew more of it has written it down."""
        if not self._let_go(holding):
            return
        if isinstance(error, Unreadable) and error.kind in ("input", "checkpoint"):
            self._hold_run(holding, error)
            return
        self.tally.failed += 1
        now = self._clock.now()
        sign = breaker.read_failure(holding.retry, error, ending)
        known = sign is breaker.Sign.TROUBLE and self.gates.excuses(holding)
        self._note(holding, sign, error)
        if holding.twin:
            self.twins.fail(holding)
            return
        verdict = policy.decide(
            holding.retry,
            policy.classify(ending, error),
            holding,
            error=error,
            elapsed_s=now - holding.issued_at,
            random=self._environment.random,
            config=self._config,
            outage=known,
        )
        unsure = unsure or holding.unsure or ending is not Ending.FAILED
        step = holding.run_id, holding.n, holding.fence

        def recorded(unsure: bool) -> str:
            if told is not None:
                return codec.mark_unsure(told, unsure=unsure)
            return codec.encode_error(error, step=holding.step.name, ending=ending, unsure=unsure)

        def give_up(unsure: bool) -> None:
            if isinstance(verdict, policy.Quarantine):
                name, kind = holding.step.name, name_of(type(error))
                where = place or codec.place_of(error) or str(ending)
                print_ = policy.fingerprint(name, kind, where)
                op = Quarantine(*step, ending, recorded(unsure), verdict.failure, print_, name, kind, where)
                self._write(op, None)
            else:
                self._write(Report(*step, StepState.FAILED, None, recorded(unsure), self._clock.now()), None)

        if isinstance(verdict, policy.TryAgain):
            delay_s = verdict.after_s
            if verdict.excused and holding.retry.total is None:
                delay_s = max(delay_s, self.gates.rest_s(holding))

            def waiting(answer: Any) -> None:
                if answer is Answer.ACCEPTED:
                    self.wake(delay_s)

            again = TryAgain(*step, delay_s, ending, recorded(unsure), verdict.excused, verdict.failure)
            self._write(again, waiting)
        elif holding.step.hedge:
            self.twins.outwait(holding, ending, unsure, give_up)
        else:
            give_up(unsure)

    def _note(self, holding: Holding, sign: breaker.Sign, error: BaseException | None = None) -> None:
        """Count what the attempt said of its dependency, and have the store told when it matters."""
        words = (
            None if error is None else f"{type(error).__name__}: {codec.message_of(error)}"[:ERROR_MAX_CHARS]
        )
        if self.gates.note(holding, sign, words, self._environment.monotonic()):
            self.tell(self._config.breaker_tell_s)

    def _let_go(self, holding: Holding) -> bool:
        """Give the place back; False when nothing may be reported."""
        if self.held.pop((holding.run_id, holding.n), None) is not holding:
            return False
        self.unreserve(holding.step)
        if holding.began_at > -math.inf:
            self._suspects_ended.add((holding.run_id, holding.n, holding.fence))
            self.wake(SETTLE_S)  # the next one may begin
        holding.task = holding.here = None  # both refer back to it: without them, it is freed at once
        return not holding.lost

    # --- beating ------------------------------------------------------------------------------------------------------

    async def _save(self, holding: Holding, raw: bytes) -> None:
        if holding.twin:
            return  # what the next attempt finds is what the step itself saved
        saved: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._write(
            Save(holding.run_id, holding.n, holding.fence, checkpoint=raw),
            lambda answer: None if saved.done() else saved.set_result(answer),
        )
        answer = await saved
        if isinstance(answer, StoreError) and not isinstance(answer, LeaseLost):
            raise answer  # a step that believes that it is saved would not do it again

    async def beat(self) -> None:
        """Write progress, and drop what this agent no longer holds: cancelled, timed out elsewhere, reclaimed."""
        for holding in list(self.held.values()):
            if holding.progress is not None and not holding.twin:
                progress, holding.progress = holding.progress, None
                self._write(Save(holding.run_id, holding.n, holding.fence, progress=progress), None)
        held = {place: holding.fence for place, holding in self.held.items()}
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
        holding = self.held.get((run_id, n))
        if holding is not None:
            holding.lost = True
            if holding.here is not None:
                holding.here.cancelled = True
            self._cancel(holding)

    def _cancel(self, holding: Holding) -> None:
        if holding.task is not None:
            holding.task.cancel()
            if not holding.begun:
                self._cancelled(holding, asyncio.CancelledError())

    # --- leaving ------------------------------------------------------------------------------------------------------

    async def drain(self, limit_s: float) -> None:
        """Finish what is running within the limit, hand the rest back."""
        self.closing = True
        tasks = [holding.task for holding in self.held.values() if holding.task is not None]
        if tasks and limit_s > 0:
            await asyncio.wait(tasks, timeout=limit_s)
        left = [holding for holding in self.held.values() if holding.task is not None]
        for holding in left:
            self._cancel(holding)
        if left:
            await asyncio.wait([holding.task for holding in left if holding.task is not None], timeout=5)
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


def _overran(holding: Holding) -> StepTimeout:
    return StepTimeout(
        f"attempt {holding.attempt} did not complete within {holding.timeout_s:g} s",
        error_type="holdfast.errors.StepTimeout",
        step=holding.step.name,
    )
