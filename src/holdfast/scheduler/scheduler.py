"""The Scheduler owns runs. It lets their deciders run on, and commits what they decide, one hop at a time.

It may change the runs it owns, and the steps it issues for them. It must never execute a step or talk to a remote
service. Every hop names the fence that the node got with the run. When somebody else has raised that fence, the store
refuses the hop, and the run leaves this node's memory.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast.config import Config
from holdfast.decider.commands import Turn
from holdfast.decider.decider import Decider
from holdfast.decider.heritage import Heritage
from holdfast.decider.history import hold_note, why_held
from holdfast.durations import DurationCounts
from holdfast.environment import StoreClock
from holdfast.errors import Bug, Drift, HoldfastError, LeaseLost, StoreError, UndoMissing
from holdfast.lifecycle import RUN_ENDED, STEP_ENDED
from holdfast.log_buffer import LogLimits
from holdfast.model import (
    EVENT_PREFIX,
    NewRun,
    Outcome,
    RunRow,
    RunState,
    SignalRow,
    StepKind,
    StepState,
)
from holdfast.namespaces import DEFAULT_ONLY, Namespaces, bare, stored
from holdfast.queues import NO_QUEUE, QueueKey, under
from holdfast.scheduler.driver import replayed
from holdfast.scheduler.hops import cancelled_without_code, complete, is_empty
from holdfast.scheduler.landmarks import LandmarkSampler
from holdfast.scheduler.new_steps import LaneNumbers, NewSteps, is_derived, lane_key
from holdfast.scheduler.owned_run import Arrival, Owned, Seat, SeatedStep
from holdfast.scheduler.timers import Timers
from holdfast.store.answers import Answer, ClaimedRun
from holdfast.store.bell import Bell
from holdfast.store.events import EventWait
from holdfast.store.operations import Close, Hop, NewStep, Op
from holdfast.store.queues import QueueNumbers
from holdfast.store.rows import tags_text
from holdfast.store.schedulers import Schedulers
from holdfast.store.walk import Turns
from holdfast.traces import spans_for, trace_of
from holdfast.workflow.pages import is_page
from holdfast.workflow.step import Step
from holdfast.workflow.workflow import Workflows

if TYPE_CHECKING:
    from holdfast.spans import Spans

log = logging.getLogger("holdfast.scheduler")

REFUSED_MAX = 5
"""How many hops of one run the store may refuse in this node. One or two refusals are a race. After more than five, the
run is held, because a person should look."""

AGED_OF = 16
"""One run in this many that are claimed is one that has waited long, whatever its priority."""
CONTENDED_S = 0.02
"""How soon a scheduler claims again if it passed over a limit that another claim had locked."""

Then = Callable[[Any], None]
"""Called with the answer to a write, or with the exception that ended it."""


class SchedulerHost(Protocol):
    """What a scheduler needs from its node."""

    def submit(self, op: Op, then: Then) -> None:
        """Write this with the next commit, then call `then` with the answer."""

    def record(self, outcome: Outcome) -> None:
        """Record an outcome of this node's agent that is part of no hop."""

    def ring(self, bell: Bell) -> None: ...

    def claim_runs_after(self, delay_s: float) -> None:
        """Claim runs after this time."""

    def run_ended(self, run_id: str, close: Close) -> None:
        """React to the end of a run that this node owned."""

    def updates_answered(self) -> None:
        """Let those who wait for the answer to an update look."""


class Scheduler:
    def __init__(
        self,
        store: Schedulers,
        host: SchedulerHost,
        node: str,
        *,
        workflows: Workflows,
        seat: Seat | None,
        clock: StoreClock,
        config: Config,
        durations: DurationCounts,
        new_id: Callable[[], str],
        queues: QueueNumbers,
        only: set[str] | None = None,
        namespaces: Namespaces = DEFAULT_ONLY,
    ) -> None:
        """`workflows` has the code by stored names. `durations` is where the node counts how long things take. If `only` is given, the scheduler works only on
        these runs. It adds their children to them."""
        self._store, self._node = store, node
        self._submit, self._record, self._ring = host.submit, host.record, host.ring
        self._run_ended, self._updates_answered = host.run_ended, host.updates_answered
        self._claim_after = host.claim_runs_after
        self._workflows, self._seat, self._namespaces = workflows, seat, namespaces
        self._clock, self._config = clock, config
        self._log_limits = LogLimits.of(config.logs_level, config.logs_max_bytes)
        self._durations, self._only = durations, only
        self.runs: dict[str, Owned] = {}
        self.timers = Timers()
        self.joining: set[str] = set()
        """Runs in memory that wait for a run which may have another parent, or none."""
        self.joins_due = False
        self.unlooked: set[EventWait] = set()
        """Waits for events that began here, and for which nobody has looked yet whether the event came before."""
        self._renewed: set[str] = set()
        """Runs that have continued as new since the store was last asked for signals. Its answer may be from before that:
        it lacks older signals that the code had not waited for, and that are to be delivered again."""
        self._queues = queues
        self._turns, self._owed = Turns(), 0.0
        self._new_steps = NewSteps(
            LaneNumbers(store), queues, seat, clock, config, self.timers.set, new_id=new_id
        )
        self.closing = False
        self._behind = False
        """True if the last read of undelivered outcomes and signals did not get all of them. The scheduler reads again when
        it has committed some of those it got."""
        self._refused: dict[str, int] = {}
        self._sampler = LandmarkSampler(clock, config.rests_per_s)
        self._spans = spans_for(config)
        self._tasks: set[asyncio.Future[None]] = set()
        self._being_held: list[Owned] = []
        """Runs that left memory because they are to be held, and for which the store has not answered yet."""
        self._any_delayed = True
        """There are runs that are to begin later, as far as this scheduler knows. At first it looks."""
        self._unsubmitted: list[Hop] = []
        """Hops that wait for the number of a lane."""

    # --- starting and claiming runs ---------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        return 0 if self.closing else self._config.runs_max - len(self.runs)

    def begin(self, run: NewRun, then: Then) -> bool:
        """Start a run here, with its first steps in the same commit. False if it must be started another way."""
        workflow = self._workflows.get((run.workflow, run.version))
        if workflow is None or self.room <= 0 or run.id in self.runs or run.begins_later:
            return False
        if run.queue is not NO_QUEUE or workflow.limits is not None or run.is_due:
            return False  # it waits for its turn, or has something to write that most runs have not
        at = self._clock.now()
        deadline = None if run.timeout_s is None else at + run.timeout_s
        decider = Decider(
            workflow,
            run.id,
            run.input,
            begun_at=at,
            deadline=deadline,
            payload_max=self._config.payload_max_bytes,
            log_limits=self._log_limits,
            fence=1,
            on_bug=self._config.on_bug,
            is_child=run.parent_id is not None,
            tags=tags_text(run),
        )
        owned = Owned(
            run.id,
            1,
            decider,
            priority=run.priority,
            parent_id=run.parent_id,
            parent_n=run.parent_n,
            workflow=run.workflow,
            namespace=run.namespace,
        )
        owned.begun_at = at
        owned.landmarks = self._sampler.follow(run.workflow, at, started_at=at)
        try:
            decider.begin()
        except (Drift, Bug):
            # The code cannot read its input, or has a bug. The run is held by the scheduler that claims it.
            decider.close()
            return False
        turn = decider.take()
        if not self._new_steps.lanes.know(turn.issued, run.namespace):
            decider.close()
            return False
        self.runs[run.id] = owned
        hop = Hop(run.id, 1, begin=run, begun_at=at, deadline=deadline)
        self._commit(owned, hop, turn, then)
        return True

    async def claim(self) -> int:
        """Claim as many runs as there is room for, and return how many."""
        limit = min(self.room, self._config.claim_max)
        if limit <= 0 or not self._workflows:
            return 0
        only = None if self._only is None else sorted(self._only - self.runs.keys())
        if only == []:
            return 0
        turns = self._turns if self._queues.exist else None
        claimed: list[ClaimedRun] = []
        if aged := min(limit, int(self._owed)):
            self._owed -= aged
            codes = await self._codes()
            with self._turns.for_the_aged(self._config.age_s):
                claimed = await self._store.claim_runs(self._node, codes, aged, only, self._turns)
        if len(claimed) < limit:
            claimed += await self._store.claim_runs(
                self._node, await self._codes(), limit - len(claimed), only, turns
            )
        self._owed = min(limit, self._owed + limit / AGED_OF) if len(claimed) == limit else 0.0
        if turns is not None:
            if turns.is_contended:
                self._claim_after(CONTENDED_S)
            if turns.again_at is not None:
                self._claim_after(max(0.001, turns.again_at - self._clock.now()))
        for item in claimed:
            await self._adopt(item)
        return len(claimed)

    async def _codes(self) -> list[tuple[str, str]]:
        """Return the stored names and versions of the workflows whose runs this node may have. A node for all namespaces
        asks the store which there are."""
        if not self._namespaces.is_all:
            return list(self._workflows)
        there = await self._store.namespaces()
        return [
            (stored(namespace, name), version) for namespace in there for name, version in self._workflows
        ]

    async def claim_one(self, run_id: str) -> bool:
        """Claim this run at once, if nobody owns it. True if this node has it now."""
        if run_id in self.runs or self.room <= 0:
            return False
        claimed = await self._store.claim_run(self._node, run_id)
        if claimed is None:
            return False
        await self._adopt(claimed)
        return True

    async def _adopt(self, claimed: ClaimedRun) -> None:
        """Replay a claimed run, and deliver the outcomes and signals that wait for it."""
        run = claimed.run
        if run.under is None and run.fence == 1 and await self._sent_to_its_queue(claimed):
            return
        try:
            published = json.loads(run.published or "{}")
            decider = await replayed(claimed, self._workflows, self._store, self._clock.now(), self._config)
        except (Drift, UndoMissing, Bug) as changed:
            if not self._undo_without_code(claimed, changed):
                await self._hold(run, changed)
            return
        except StoreError:
            raise  # Nothing is wrong with the run. The node hands it back.
        except HoldfastError as error:
            await self._hold(run, error)
            return
        except (ValueError, RecursionError, msgspec.MsgspecError) as broken:
            # Somebody changed the rows by hand. Hold this run, so that the others do not have to wait for it.
            await self._hold(run, HoldfastError(f"what is recorded of it cannot be read: {broken}"))
            return
        if run.id in self.runs:
            # The run was taken from this node, which did not notice, and this node has claimed it again. What it knew
            # about the run is no longer true.
            before = self.runs[run.id]
            self._leave(before)
            self._record_apart(before.unrecorded())
        owned = Owned.of(run, decider)
        owned.published = published
        if any(step.kind in (StepKind.CHILD, StepKind.START) for step in claimed.steps):
            await self._add_children(run.id)
        if run.state is RunState.RUNNING and not is_page(run.input):
            whole = run.started_at if run.generation == 1 and run.goes_on_from is None else None
            owned.landmarks = self._sampler.follow(
                run.workflow, self._clock.now(), base_n=run.base_n, started_at=whole, steps=claimed.steps
            )
        self.runs[run.id] = owned
        for n, op in decider.waiting.items():
            if op.kind is StepKind.TIMER and op.ready_at is not None:
                self.timers.set(op.ready_at, run.id, n)
            elif op.joins:
                self.joining.add(run.id)
            elif op.kind is StepKind.SIGNAL and op.name.startswith(EVENT_PREFIX):
                self._look_soon([EventWait(run.id, op.name)])
        self._take_in(owned, claimed)
        self._advance(owned, claimed)

    def _take_in(self, owned: Owned, claimed: ClaimedRun) -> None:
        """Take in what came to a run while nobody had it in memory."""
        for step in claimed.steps:
            if step.delivered_seq is None and step.state in STEP_ENDED:
                owned.arrive(step.outcome)
            elif step.kind is StepKind.ASK and step.state is StepState.WAITING:
                owned.asks |= {step.n}
        for signal in claimed.signals:
            if signal.delivered_seq is None:
                owned.arrive(signal)
        if any(step.state is StepState.READY for step in claimed.steps):
            self._ring(Bell.STEPS)  # nobody could claim them while the run was held, or waited to be claimed

    async def _sent_to_its_queue(self, claimed: ClaimedRun) -> bool:
        """True if a run has limits and was started by somebody who does not have its code: a server, or a schedule, which does
        not know the queue of a fair key either. It is pending again, in the queue where it belongs."""
        run = claimed.run
        workflow = self._workflows.get((run.workflow, run.version))
        if workflow is None or claimed.steps or run.state is not RunState.RUNNING:
            return False
        if workflow.limits is None and (run.fair is None or run.queue):
            return False
        limits = () if workflow.limits is None else workflow.limits.filled(run.namespace, run.fair, run.input)
        fair = "" if run.fair is None else stored(run.namespace, run.fair)
        (queue,) = await self._queues.number([QueueKey(fair, limits)])
        queue = msgspec.structs.replace(queue, under=under(limits))
        if await self._store.queue_run(run.id, run.fence, queue):
            self._ring(Bell.RUNS)
        return True

    async def _hold(self, run: RunRow, error: HoldfastError) -> None:
        log.warning("run %s is held: %s", run.id, error)
        await self._store.hold_run(run.id, run.fence, hold_note(why_held(error), error))
        self._ring(Bell.ENDED)

    def _undo_without_code(self, claimed: ClaimedRun, changed: HoldfastError) -> bool:
        """Cancel a run whose code no longer fits it, if somebody asked for that. False if nobody did."""
        hop, run = cancelled_without_code(claimed), claimed.run
        if hop is None:
            return False
        log.warning("run %s is cancelled without its code: %s", run.id, changed)

        def answered(answer: Any) -> None:
            if answer is not Answer.ACCEPTED:
                self._hand_back(run.id, run.fence)
            self._ring(Bell.OUTCOMES)

        self._submit(hop, answered)
        return True

    def _hold_soon(self, owned: Owned, note: str) -> None:
        """Hold a run that has left memory. This may be called where nothing can be awaited."""
        self._being_held.append(owned)

        async def hold() -> None:
            try:
                await self._store.hold_run(owned.run_id, owned.fence, note)
            except Exception:  # noqa: BLE001  the node that claims the run next finds the same reason to hold it
                self._hand_back(owned.run_id, owned.fence)
            finally:
                self._being_held.remove(owned)

        self._soon(hold())

    def _soon(self, coro: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(coro)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- deliveries ---------------------------------------------------------------------------------------------------

    def deliver(self, outcome: Outcome) -> bool:
        """Take an outcome from this node's agent. False if it must be written apart."""
        owned = self.runs.get(outcome.run_id)
        if owned is None or outcome.n not in owned.mine:
            return False
        owned.mine.discard(outcome.n)
        if not owned.arrive(outcome):
            return False  # that of an earlier attempt is on its way, and the store refuses it
        self._advance(owned)
        return True

    def note_lease(self, run_id: str, n: int) -> None:
        """Note that this node's agent has claimed a step. If the run is in memory here, the agent gives the outcome to
        it directly, and the store gets it with the next hop."""
        if owned := self.runs.get(run_id):
            owned.mine.add(n)

    def note_freeing(self, run_id: str, n: int) -> None:
        """Note that a step under a limit has ended here. Others may begin when the hop that says so is committed."""
        if owned := self.runs.get(run_id):
            owned.freeing |= {n}

    def forget_lease(self, run_id: str, n: int) -> None:
        """Note that this node's agent no longer has this step. The outcome will come from the store."""
        if owned := self.runs.get(run_id):
            owned.mine.discard(n)
            self._mark_quiet(owned)

    async def collect(self) -> int:
        """Deliver what others recorded for the runs in memory. Return for how many runs there was something."""
        if not self.runs:
            return 0
        self._renewed.clear()
        found = await self._store.undelivered(self._node, self._config.claim_max)
        touched: dict[str, Owned] = {}
        for outcome in found.steps:
            owned = self.runs.get(outcome.run_id)
            if owned is None or not owned.decider.expects(outcome.n):
                continue
            if outcome.n in owned.mine:
                # The leader or a twin ended the step while this node's agent still executes it.
                owned.mine.discard(outcome.n)
                if self._seat is not None:
                    self._seat.stop(outcome.run_id, [outcome.n])
            if owned.arrive(outcome):
                touched[outcome.run_id] = owned
        self._behind = max(len(found.steps), len(found.signals)) >= self._config.claim_max
        for signal in found.signals:
            owned = self.runs.get(signal.run_id)
            if owned is not None and signal.run_id not in self._renewed and owned.arrive(signal):
                touched[signal.run_id] = owned
        for owned in touched.values():
            self._advance(owned)
        return len(touched)

    def fire(self) -> int:
        """Deliver the timers of runs in memory that have come due, and return how many."""
        now, fired = self._clock.now(), 0
        for run_id, n in self.timers.take_due(now):
            owned = self.runs.get(run_id)
            wait = None if owned is None else owned.decider.waiting.get(n)
            # The entry may be stale: a hop that was never written may have set this timer, and another step may have
            # its number now.
            if (
                owned is None
                or wait is None
                or wait.kind is not StepKind.TIMER
                or (wait.ready_at or 0.0) > now
            ):
                continue
            if owned.arrive(Outcome(run_id, n, StepState.SUCCEEDED, None, None, now, fence=0)):
                self._advance(owned)
            fired += 1
        return fired

    async def fire_sleeping(self) -> int:
        """Record the due timers of runs that are in nobody's memory, and admit the runs that were to begin later and
        whose time has come, so that the runs can be claimed."""
        fired = await self._store.fire_timers(self._config.claim_max)
        if self._any_delayed:
            fired += await self._store.admit_runs(self._config.claim_max)
        return fired

    async def next_sleeping(self) -> float | None:
        """Return in how many seconds there is something to do about a run that is in nobody's memory: its timer comes due,
        or it may begin."""
        start, timer = await self._store.next_start(), await self._store.next_timer()
        self._any_delayed = start is not None
        return min((left_s for left_s in (start, timer) if left_s is not None), default=None)

    def look_at_joins(self) -> None:
        """Make the loop call `answer_joins` soon: a run has ended, and a run in memory here may have joined it."""
        self.joins_due = True
        self.timers.changed.set()

    async def answer_joins(self) -> int:
        """End the steps that joined a run which has ended. Return how many."""
        answered = await self._store.answer_joins(self._config.claim_max)
        if answered:
            self._ring(Bell.OUTCOMES)
        return answered

    # --- one hop ------------------------------------------------------------------------------------------------------

    def _advance(self, owned: Owned, adopted: ClaimedRun | None = None) -> None:
        """Deliver the inbox, let the code run on, and submit the hop. A run that was just adopted gets a hop even if
        its inbox is empty: its code may have asked for something during the replay."""
        if owned.in_flight or not (owned.inbox or adopted is not None):
            return
        hop = Hop(owned.run_id, owned.fence)
        arrived, owned.inbox = owned.inbox, []
        try:
            turn = self._delivered(owned, hop, arrived)
        except HoldfastError as error:
            # The code no longer fits its history, or has a bug.
            self._leave(owned)
            owned.inbox = arrived
            self._record_apart(owned.unrecorded())
            if adopted is None or not self._undo_without_code(adopted, error):
                log.warning("run %s is held: %s", owned.run_id, error)
                self._hold_soon(owned, hold_note(why_held(error), error))
            return
        self._commit(owned, hop, turn, None)

    def _delivered(self, owned: Owned, hop: Hop, arrived: list[Arrival]) -> Turn:
        """Deliver what arrived, in its order, and return what the code did with it."""
        decider = owned.decider
        outcomes: list[Outcome] = []
        signals: list[tuple[int, int]] = []
        for item in arrived:
            if type(item) is Outcome:
                is_recorded = item.fence is None
                if decider.done if is_recorded else not decider.expects(item.n):
                    # If the code has ended, a recorded outcome stays undelivered, for the next generation. One that comes
                    # from this node's agent is written apart: either this turn has given the step up, which may have had
                    # its effect, or another owner of the run asked for it, and this node has not noticed that it lost the
                    # run.
                    self._record_apart([item])
                    continue
                item.seq = decider.deliver(item, whole=is_recorded)
                outcomes.append(item)
            elif not decider.done:
                assert isinstance(item, SignalRow)
                signals.append((item.id, decider.deliver_signal(item.name, item.payload, item.sent_at)))
        hop.outcomes, hop.signals = outcomes, signals
        return decider.take()

    async def learn_lanes(self) -> None:
        """Get the lane numbers of all declared steps, so that issuing a step needs no question to the store."""
        await self._new_steps.lanes.learn(self._namespaces)
        if not self._queues.exist:
            self._queues.exist = await self._store.any_queue()

    def _commit(self, owned: Owned, hop: Hop, turn: Turn, then: Then | None) -> None:
        """Add to the hop what the code did, and submit it."""
        seated: list[SeatedStep] = []
        hop.is_plain = not hop.signals  # what the code did may change that
        if turn.finish is not None and turn.finish.how == "continued":
            # This hop removes the history. So there is no need to write what the code began, ended, set aside or logged.
            turn.issued, turn.ended, turn.set_aside, turn.logs = [], (), (), ()
        if turn.issued:
            hop.issued = self._new_steps.issue(owned, hop, turn.issued, seated)
        # Only these are written with a time, and most hops have none of them.
        now = self._clock.now() if turn.ended or turn.replies or turn.finish is not None else 0.0
        complete(hop, turn, owned, now)
        if not hop.outcomes and is_empty(hop):
            owned.in_flight = False
            self._mark_quiet(owned)
            if then is not None:
                then(Answer.ACCEPTED)
            return
        owned.in_flight = True
        if self._new_steps.unnumbered or self._new_steps.unqueued:
            rows, self._new_steps.unnumbered = self._new_steps.unnumbered, []
            queued, self._new_steps.unqueued = self._new_steps.unqueued, []
            self._unsubmitted.append(hop)
            self._soon(self._number(rows, queued, owned, hop, seated, then))
            return
        self._submit(hop, partial(self._committed, owned, hop, seated, then))

    def known_runs(self) -> list[tuple[str, int]]:
        """Return (run, fence) of each run that this node believes it owns."""
        return [(owned.run_id, owned.fence) for owned in (*self.runs.values(), *self._being_held)]

    def known_steps(self) -> Iterator[tuple[str, int, int]]:
        """Yield (run, n, fence) of each step that this node's agent has ended and whose outcome the writer does not
        have yet. The outcome waits until the hop in flight is answered, or until the lanes of the next hop have
        numbers."""
        for owned in self.runs.values():
            yield from _step_refs(owned.unrecorded())
        for hop in self._unsubmitted:
            yield from _step_refs(hop.outcomes)

    async def _number(
        self,
        rows: list[tuple[NewStep, Step[Any, Any], str]],
        queued: list[tuple[NewStep | NewRun, QueueKey]],
        owned: Owned,
        hop: Hop,
        seated: list[SeatedStep],
        then: Then | None,
    ) -> None:
        """Submit a hop with steps or children whose lanes or queues have no number here yet, as soon as they have."""
        try:
            lanes = self._new_steps.lanes
            await lanes.number((step, namespace) for _, step, namespace in rows)
            for row, step, namespace in rows:
                row.lane = lanes.numbers[lane_key(step, namespace)]
            if queued:
                await self._new_steps.number_queues(hop, queued, owned.under)
        except Exception as error:  # noqa: BLE001  if the hop got no answer, the run would stand still
            # The code has gone on, and nothing of that is written. The node that claims the run next replays it.
            self._evict(owned, error, seated)
            self._record_apart([*hop.outcomes, *owned.unrecorded()])
            self._hand_back(owned.run_id, owned.fence)
            if then is not None:
                then(error)
            return
        finally:
            self._unsubmitted.remove(hop)
        self._submit(hop, partial(self._committed, owned, hop, seated, then))

    def _committed(
        self, owned: Owned, hop: Hop, seated: list[SeatedStep], then: Then | None, answer: Any
    ) -> None:
        if self._refused and answer is Answer.ACCEPTED:
            self._refused.pop(owned.run_id, None)
        self._go_on(owned, hop, seated, answer)
        if then is not None:
            then(answer)

    def _go_on(self, owned: Owned, hop: Hop, seated: list[SeatedStep], answer: Any) -> None:
        """Go on after a hop was answered: begin the steps that it issued for this node, ring the bells, and deliver what
        has arrived meanwhile."""
        owned.in_flight = False
        if answer is not Answer.ACCEPTED:
            self._evict(owned, answer, seated)
            if not isinstance(answer, LeaseLost):
                self._record_apart([*hop.outcomes, *owned.unrecorded()])
                self._hand_back_refused(owned, hop, answer)
            return
        for outcome in hop.outcomes:
            owned.pending.discard(outcome.n)
        if self._behind and (hop.signals or any(outcome.fence is None for outcome in hop.outcomes)):
            self._ring(Bell.OUTCOMES)
        if owned.freeing:
            self._ring_freed(owned, hop)
        if seated and self._seat is not None:
            self._seat.begin(seated)
        if len(seated) < len(hop.issued):
            self._issued_for_others(hop)
        if not hop.is_plain:
            self._ring_others(owned, hop)
        if hop.close is not None:
            self._closed(owned, hop.close)
        elif hop.next_input is not None:
            self._continue(owned, hop)
        elif hop.park or hop.undo is not None:
            timers = [wait.ready_at for wait in owned.decider.waiting.values() if wait.ready_at is not None]
            if timers:
                self.timers.park(min(timers))
            self._leave(owned)
            # This node's agent may have claimed and ended a step of the run meanwhile.
            self._record_apart(owned.unrecorded())
            if hop.sends:
                self._ring(Bell.RUNS)
        elif owned.inbox:
            self._advance(owned)
        else:
            self._mark_quiet(owned)

    def _ring_others(self, owned: Owned, hop: Hop) -> None:
        """Ring the bells for what the hop asks of other runs, of agents, and of those who wait for an update."""
        if hop.children or hop.child_undos:
            self._children_asked(owned, hop)
        if hop.sends or hop.cancelled:
            self._ring(Bell.OUTCOMES)
        if hop.replies:
            self._updates_answered()
        if hop.dropped:
            self._stop_dropped(owned, hop)

    def _issued_for_others(self, hop: Hop) -> None:
        """React to steps that no agent of this process has begun: agents may claim them, or an event may have come that
        the run waits for."""
        if any(step.state is StepState.READY for step in hop.issued):
            self._ring(Bell.STEPS)
        self._look_soon(
            [
                EventWait(hop.run_id, step.name)
                for step in hop.issued
                if step.kind is StepKind.SIGNAL and step.name.startswith(EVENT_PREFIX)
            ]
        )

    def _look_soon(self, waits: list[EventWait]) -> None:
        """Look for events that came before these waits. If this process dies before it has looked, whoever owns the run
        next does, and so does the leader."""
        if waits:
            self.unlooked.update(waits)
            self._ring(Bell.OUTCOMES)

    async def look_for_events(self) -> None:
        """Send runs what came since they began and before they waited for it."""
        waits = list(itertools.islice(self.unlooked, self._config.claim_max))
        if waits:
            found = await self._store.catch_up(waits)
            self.unlooked.difference_update(waits)
            if found or self.unlooked:
                self._ring(Bell.OUTCOMES)

    def _stop_dropped(self, owned: Owned, hop: Hop) -> None:
        self._ring(Bell.CANCELS)
        if self._seat is not None:
            self._seat.stop(owned.run_id, list(hop.dropped))
        owned.mine.difference_update(hop.dropped)

    def _ring_freed(self, owned: Owned, hop: Hop) -> None:
        """Let everybody claim steps if this hop has ended one under a limit."""
        ended = owned.freeing.intersection([outcome.n for outcome in hop.outcomes])
        if ended:
            owned.freeing -= ended
            self._ring(Bell.STEPS)

    def _children_asked(self, owned: Owned, hop: Hop) -> None:
        if self._only is not None:
            self._soon(self._add_children(owned.run_id))
        self._ring(Bell.RUNS)
        if any(child.joins and not child.detached for child in hop.children):
            self.joining.add(owned.run_id)
            self.look_at_joins()  # the run that it joined may have ended before
        if hop.child_undos or any(
            child.detached or child.retry_of is not None or not is_derived(child) for child in hop.children
        ):
            # This commit may have ended the step: it only starts a run, another run had the id, the previous child had
            # succeeded, or the child has nothing to undo.
            self._ring(Bell.OUTCOMES)

    async def _add_children(self, run_id: str) -> None:
        """Work on the run's own children, too, and on the runs that it started. The store says which they are: the code
        may have chosen an id that another run has."""
        if self._only is None:
            return
        children = await self._store.children(run_id)
        self._only.update(child.id for child in children if child.state not in RUN_ENDED)
        self._ring(Bell.RUNS)

    def _closed(self, owned: Owned, close: Close) -> None:
        if owned.landmarks is not None and close.state is RunState.SUCCEEDED:
            owned.landmarks.count(self._durations, close.at)
        if self._spans is not None:
            self._trace_end(self._spans, owned, close)
        self._leave(owned)
        if self._only is not None:
            self._only.discard(owned.run_id)
        if close.parent_id is not None:
            self._ring(Bell.OUTCOMES)
        if owned.under:
            self._ring(Bell.RUNS)  # there is room for another one
        self._run_ended(owned.run_id, close)

    def _trace_end(self, spans: Spans, owned: Owned, close: Close) -> None:
        """Make the span of a run that has ended, now that this is committed."""
        name, generation = bare(owned.workflow), owned.generation
        attributes: dict[str, str | int] = {"holdfast.run": owned.run_id, "holdfast.workflow": name}
        attributes |= {"holdfast.state": str(close.state), "holdfast.generation": generation}
        spans.ended(trace_of(owned.decider.tags), f"run {name}", attributes, owned.begun_at, close.at)

    def _continue(self, owned: Owned, hop: Hop) -> None:
        """Begin the next generation of a run that continues as new."""
        old = owned.decider
        assert isinstance(old, Decider)
        workflow, base_n = old.workflow, old.last_n
        deadline, inherited = old.deadline, old.inherited
        old.close()
        assert hop.next_input is not None
        owned.generation += 1
        owned.fence += 1
        owned.decider = Decider(
            workflow,
            owned.run_id,
            hop.next_input,
            begun_at=hop.begun_at,
            generation=owned.generation,
            base_n=base_n,
            deadline=deadline,
            heritage=Heritage(owned.run_id, inherited),
            payload_max=old.payload_max,
            log_limits=old.log_limits,
            fence=owned.fence,
            on_bug=self._config.on_bug,
            is_child=owned.parent_id is not None,
            tags=old.tags,
        )
        owned.inbox.clear()
        owned.pending.clear()
        owned.signals_seen.clear()
        owned.mine.clear()
        owned.landmarks = None
        self._renewed.add(owned.run_id)
        self._ring(Bell.OUTCOMES)
        try:
            owned.decider.begin()
        except Bug as error:
            log.warning("run %s is held: %s", owned.run_id, error)
            self._leave(owned)
            self._hold_soon(owned, hold_note(why_held(error), error))
            return
        self._commit(owned, Hop(owned.run_id, owned.fence), owned.decider.take(), None)

    def _mark_quiet(self, owned: Owned) -> None:
        """Note that the run waits from now on, unless this node's agent executes one of its steps."""
        if not owned.mine:
            owned.quiet_since = self._clock.now()

    def _leave(self, owned: Owned) -> None:
        # This node may have handed the run back and claimed it again, before it heard that the hand-back was committed.
        # Then the dict has the newer one.
        if self.runs.get(owned.run_id) is owned:
            del self.runs[owned.run_id]
            if self.joining:
                self.joining.discard(owned.run_id)
            if self.room == 1:  # there was none before
                self._claim_after(0.0)
        owned.decider.close()

    def _evict(self, owned: Owned, answer: Any, reserved: list[SeatedStep]) -> None:
        """Remove a run from memory, because what this node knows about it is no longer true."""
        level = logging.WARNING if isinstance(answer, StoreError) else logging.INFO
        log.log(level, "run %s left memory: %s", owned.run_id, answer)
        if reserved and self._seat is not None:
            self._seat.release(reserved)
        self._leave(owned)

    def _hand_back_refused(self, owned: Owned, hop: Hop, answer: Any) -> None:
        """Hand back a run whose hop was refused, or hold it if that happened too often.

        A refused hop does not mean that this node has lost the run. If the node still owns it, the node hands it back,
        and the node that claims it next replays it. If hops of the run are refused again and again, the run is held, so
        that a person looks at what the store says.
        """
        if hop.next_input is not None:
            # The hop may have been committed, and only its answer was lost. Then the run has this fence.
            self._hand_back(owned.run_id, owned.fence + 1)
        refused = self._refused[owned.run_id] = self._refused.get(owned.run_id, 0) + 1
        if refused > REFUSED_MAX:
            del self._refused[owned.run_id]
            reason = str(answer) if isinstance(answer, StoreError) else ""
            message = f"the store refused {refused} of its hops{f': {reason}' if reason else ''}"
            log.warning("run %s is held: %s", owned.run_id, message)
            self._hold_soon(owned, hold_note("refused", HoldfastError(message), said=reason, times=refused))
            return
        if len(self._refused) > self._config.runs_max:
            self._refused.clear()
        self._hand_back(owned.run_id, owned.fence)

    def _hand_back(self, run_id: str, fence: int) -> None:
        """Hand back a run that is no longer in this node's memory, and that the store still counts as this node's."""
        self._submit(Hop(run_id, fence, park=True), lambda answer: self._ring(Bell.OUTCOMES))

    def _record_apart(self, outcomes: Iterable[Outcome]) -> None:
        """Record outcomes of this node's agent without a hop: the run has left memory, but the agent may still have the
        steps."""
        for outcome in outcomes:
            if outcome.fence:
                outcome.seq = None
                self._record(outcome)

    # --- leaving ------------------------------------------------------------------------------------------------------

    def park_quiet(self) -> int:
        """Let runs that have waited for long leave memory, sooner if there is no room. Return how many there are."""
        limit_s = self._config.park_after_s if self.room > 0 else min(1.0, self._config.park_after_s)
        before = self._clock.now() - limit_s
        quiet = [owned for owned in self.runs.values() if owned.quiet and owned.quiet_since < before]
        for owned in quiet[: self._config.claim_max]:
            self._park(owned)
        return len(quiet)

    def park_all(self) -> None:
        """Hand back every run that has no hop in flight. Called when this node stops."""
        self.closing = True
        for owned in list(self.runs.values()):
            if not owned.in_flight:
                self._park(owned)

    def _park(self, owned: Owned) -> None:
        owned.in_flight = True
        hop = Hop(owned.run_id, owned.fence, park=True)
        self._submit(hop, partial(self._go_on, owned, hop, []))

    async def check_lost(self) -> int:
        """Remove from memory the runs that this node no longer owns. Return how many the store named."""
        fences = {owned.run_id: owned.fence for owned in self.runs.values() if not owned.in_flight}
        lost = await self._store.lost_runs(self._node, list(fences.items())) if fences else []
        for run_id in lost:
            owned = self.runs.get(run_id)
            # The fence may have changed since the question: the run continued as new, or left and was claimed again.
            # Then this node owns it.
            if owned is not None and not owned.in_flight and owned.fence == fences[run_id]:
                self._evict(owned, "another node owns it", [])
        return len(lost)

    def abandon(self) -> None:
        """Forget every run, and write nothing. Called when this node has lost its lease."""
        self.closing = True
        for owned in list(self.runs.values()):
            self._leave(owned)


def _step_refs(outcomes: Iterable[Outcome]) -> Iterator[tuple[str, int, int]]:
    """Return (run, n, fence) of the steps that these outcomes belong to."""
    return ((one.run_id, one.n, one.fence) for one in outcomes if one.fence is not None)
