"""What the State Store promises, as a small program: the rules of starting, claiming, leases, fences and delivery.

Plain rows in dictionaries, one method per verb of `holdfast.store.protocol`, no SQL, no waiting. The tests here run it
beside both dialects and compare; the model check (`tests/modelcheck`) searches its state space. Every transition of a row
goes through the table of `holdfast.lifecycle` and raises the row's fence.

Time is a number of hours that the caller moves. What the dialects leave to chance (ids, texts of errors) has names here.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import msgspec

from holdfast.config import DEFAULT
from holdfast.lifecycle import (
    RUN_ACTIVE,
    RUN_ENDED,
    RUN_TRANSITIONS,
    STEP_ENDED,
    STEP_LIVE,
    STEP_TRANSITIONS,
    By,
    Transition,
)
from holdfast.model import CANCEL, DEADLINE, UNDO, NewRun, RunState, StepKind, StepState
from holdfast.store.protocol import (
    Answer,
    Close,
    HandBack,
    Hop,
    NewSignal,
    NewStep,
    Op,
    Report,
    Save,
    Start,
    TryAgain,
)
from holdfast.store.verdicts import Held, Loss, counts_of, lost, overdue, remedy

CANCELLED = "holdfast.errors.RunCancelled"
"""What the store itself tells a parent of a child that was cancelled."""
SECOND = 1 / 3600
NEVER = 1e9
"""As the model counts hours: beyond all that passes in a test."""
DICE = random.Random(0)
"""For jitter, which is shorter than anything that is compared here."""


class Refused(Exception):
    """A precondition does not hold: nothing is written."""


class WrongState(Exception):
    """An operator asked for what the run's state does not allow."""


class Run(NamedTuple):
    id: str
    workflow: str
    version: str
    state: RunState
    input: bytes
    digest: bytes
    priority: int = 0
    owner: str | None = None
    fence: int = 0
    output: bytes | None = None
    error: str | None = None
    parent_id: str | None = None
    parent_n: int | None = None
    retry_of: str | None = None
    generation: int = 1
    base_n: int = 0
    kept_n: int = 0
    progress: str | None = None
    resume: RunState | None = None
    note: str | None = None
    ending: str | None = None
    deadline: float | None = None
    created_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None


class Step(NamedTuple):
    run_id: str
    n: int
    key: str
    kind: StepKind
    lane: int
    state: StepState
    priority: int = 0
    ready_at: float = 0.0
    attempt: int = 0
    losses: int = 0
    excused: int = 0
    timeouts: int = 0
    throttled: int = 0
    attempts_max: int = 1
    timeout_s: float | None = None
    fence: int = 0
    agent: str | None = None
    complete_by: float | None = None
    output: bytes | None = None
    error: str | None = None
    checkpoint: bytes | None = None
    progress: str | None = None
    delivered_seq: int | None = None
    issued_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    name: str = ""
    retry: str | None = None


class Signal(NamedTuple):
    run_id: str
    name: str
    key: str
    payload: bytes
    delivered_seq: int | None = None


class Lease(NamedTuple):
    holder: str | None
    epoch: int
    expires_at: float


class Node(NamedTuple):
    lease_until: float
    retired: bool = False


def moved_step(step: Step, name: str, by: By, **changes: Any) -> Step:
    """The step after a transition: only from where, and by whom, the lifecycle allows it."""
    target = _target(STEP_TRANSITIONS, name, by, step.state)
    return step._replace(state=StepState(target), fence=step.fence + 1, **changes)


def moved_run(run: Run, name: str, by: By, to: RunState | None = None, **changes: Any) -> Run:
    """The same for a run; `to` where a transition has more than one target."""
    target = _target(RUN_TRANSITIONS, name, by, run.state, to)
    return run._replace(state=RunState(target), fence=run.fence + 1, **changes)


def _target(table: tuple[Transition, ...], name: str, by: By, source: str, to: str | None = None) -> str:
    for row in table:
        if row.name == name and by in row.by and source in row.sources and to in {None, row.target}:
            return row.target
    raise AssertionError(f"the {by} may not {name} what is {source}{f' to {to}' if to else ''}")


CLOSES = {
    RunState.SUCCEEDED: "succeed",
    RunState.FAILED: "fail",
    RunState.CANCELLED: "cancel",
    RunState.UNDONE: "finish_undo",
    RunState.STUCK: "stick",
}


class Spec:
    """The rows, and the verbs that change them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.runs: dict[str, Run] = {}
        self.steps: dict[tuple[str, int], Step] = {}
        self.signals: dict[tuple[str, str, str], Signal] = {}
        self.attempts: list[tuple[str, int, int, str, str | None]] = []
        """(run, n, attempt, ending, agent) of attempts that did not become the outcome."""
        self.nodes: dict[str, Node] = {}
        self.leases: dict[str, Lease] = {}
        self.failures: list[tuple[str, int]] = []
        self.journal: list[tuple[str, str, str]] = []
        self.stuck: set[str] = set()
        """Runs with an open alert."""
        self.steered = 0

    def copy(self) -> Self:
        other = type(self).__new__(type(self))
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, dict | list | set) else value)
        return other

    # --- what the rows say ------------------------------------------------------------------------------------------

    def is_live(self, node: str) -> bool:
        return node in self.nodes and not self.nodes[node].retired

    def steps_of(self, run_id: str) -> list[Step]:
        return [step for step in self.steps.values() if step.run_id == run_id]

    def signals_of(self, run_id: str) -> list[Signal]:
        return [signal for signal in self.signals.values() if signal.run_id == run_id]

    def awake(self, run_id: str) -> bool:
        """Something waits to be delivered."""
        return any(
            step.delivered_seq is None and step.state in STEP_ENDED for step in self.steps_of(run_id)
        ) or any(signal.delivered_seq is None for signal in self.signals_of(run_id))

    def claimable(self) -> list[Run]:
        return [
            run
            for run in self.runs.values()
            if run.state is RunState.PENDING
            or (run.state in RUN_ACTIVE and run.owner is None and self.awake(run.id))
        ]

    def due(self, lanes: Iterable[int]) -> list[Step]:
        """Ready steps whose time has come, by priority, then age."""
        found = [
            step
            for step in self.steps.values()
            if step.lane in lanes
            and step.state is StepState.READY
            and step.ready_at <= self.now
            and self.runs[step.run_id].state in RUN_ACTIVE
        ]
        return sorted(found, key=lambda step: (-step.priority, step.ready_at, step.run_id, step.n))

    def _put(self, row: Run | Step) -> None:
        if isinstance(row, Run):
            self.runs[row.id] = row
        else:
            self.steps[row.run_id, row.n] = row

    # --- writes that share a commit ---------------------------------------------------------------------------------

    def commit(self, node: str, op: Op) -> Answer:
        """One operation: all of it, or nothing and the reason."""
        before = self.copy()
        try:
            return self._write(node, op)
        except Refused:
            vars(self).update(vars(before))
            return self._refuse(node, op)

    def _write(self, node: str, op: Op) -> Answer:
        if isinstance(op, Start):
            return self._start(op.run)
        if isinstance(op, Hop):
            self._hop(node, op)
        elif isinstance(op, Report):
            self._report(op)
        elif isinstance(op, TryAgain):
            self._try_again(node, op)
        elif isinstance(op, HandBack):
            self._hand_back(self._held(op.run_id, op.n, op.fence), By.AGENT)
        elif isinstance(op, Save):
            self._save(op)
        return Answer.ACCEPTED

    def _refuse(self, node: str, op: Op) -> Answer:
        if isinstance(op, Hop) and op.begin is not None:
            return Answer.DUPLICATE
        if isinstance(op, Report) and (step := self.steps.get((op.run_id, op.n))) is not None:
            if (step.fence, step.agent, step.state) == (op.fence + 1, node, op.state):
                return Answer.DUPLICATE
            self.attempts.append((step.run_id, step.n, step.attempt, "refused", node))
        return Answer.FENCED

    def _start(self, run: NewRun) -> Answer:
        if (seen := self.runs.get(run.id)) is not None:
            same = (seen.workflow, seen.digest) == (run.workflow, run.digest)
            return Answer.DUPLICATE if same else Answer.FENCED
        self._put(self._new(run))
        return Answer.ACCEPTED

    def _new(self, run: NewRun) -> Run:
        return Run(
            run.id,
            run.workflow,
            run.version,
            RunState.PENDING,
            run.input,
            run.digest,
            run.priority,
            parent_id=run.parent_id,
            parent_n=run.parent_n,
            deadline=None if run.timeout_s is None else self.now + run.timeout_s * SECOND,
            created_at=self.now,
        )

    def _held(self, run_id: str, n: int, fence: int) -> Step:
        """The fence: an agent's whole precondition."""
        step = self.steps.get((run_id, n))
        if step is None or step.fence != fence:
            raise Refused
        return step

    def _end(self, step: Step, by: By, state: StepState, **changes: Any) -> None:
        name = {StepState.SUCCEEDED: "succeed", StepState.FAILED: "fail", StepState.CANCELLED: "cancel"}[
            state
        ]
        self._put(moved_step(step, name, by, finished_at=self.now, **changes))
        if state is StepState.FAILED and (by is not By.SCHEDULER or step.kind is StepKind.CALL):
            self.failures.append((step.run_id, step.n))

    def _report(self, op: Report) -> None:
        step = self._held(op.run_id, op.n, op.fence)
        self._end(step, By.AGENT, op.state, output=op.output, error=op.error)

    def _try_again(self, node: str, op: TryAgain) -> None:
        step = self._held(op.run_id, op.n, op.fence)
        self.attempts.append((step.run_id, step.n, step.attempt, op.ending, node))
        excused, losses, timeouts, throttled = counts_of(op)
        self._put(
            moved_step(
                step,
                "retry",
                By.AGENT,
                agent=None,
                complete_by=None,
                error=op.error,
                excused=step.excused + excused,
                losses=step.losses + losses,
                timeouts=step.timeouts + timeouts,
                throttled=step.throttled + throttled,
                ready_at=self.now + op.delay_s * SECOND,
            )
        )

    def _hand_back(self, step: Step, by: By) -> None:
        self._put(moved_step(step, "hand_back", by, agent=None, complete_by=None, excused=step.excused + 1))

    def _save(self, op: Save) -> None:
        step = self._held(op.run_id, op.n, op.fence)
        self._put(
            step._replace(
                checkpoint=op.checkpoint if op.checkpoint is not None else step.checkpoint,
                progress=op.progress if op.progress is not None else step.progress,
            )
        )

    def _hop(self, node: str, op: Hop) -> None:
        """One advance of one run by its owner. The run's fence is the precondition, each outcome has its step's."""
        if op.begin is not None:
            if not self.is_live(node) or op.begin.id in self.runs:
                raise Refused
            run = self._new(op.begin)._replace(
                state=RunState.RUNNING, owner=node, fence=op.fence, started_at=self.now
            )
            self._put(run._replace(deadline=op.deadline))
        elif op.run_id not in self.runs or self.runs[op.run_id].fence != op.fence:
            raise Refused
        for end in op.outcomes:
            step = self._held(op.run_id, end.n, end.fence)
            self._end(
                step, By.SCHEDULER, end.state, output=end.output, error=end.error, delivered_seq=end.seq
            )
        for n, seq in op.delivered:
            step = self.steps[op.run_id, n]
            if step.delivered_seq is not None or step.state not in STEP_ENDED:
                raise Refused
            self._put(step._replace(delivered_seq=seq))
        self._hear(op)
        if op.next_input is not None:
            self._continue(op, op.next_input)
        for new in op.issued:
            self._issue(node, op.run_id, new)
        for n, seq, payload, _ in op.ended:
            self._end(
                self.steps[op.run_id, n],
                By.SCHEDULER,
                StepState.SUCCEEDED,
                output=payload,
                delivered_seq=seq,
            )
        for n in op.dropped:
            self._drop(self.steps[op.run_id, n])
        for child in op.children:
            self._start(child)
        for send in op.sends:
            self._send(send)
        run = self.runs[op.run_id]
        if op.next_input is None:
            self._put(
                run._replace(
                    progress=op.progress if op.progress is not None else run.progress,
                    kept_n=max(run.kept_n, op.kept_n or 0),
                )
            )
        if op.close is not None:
            self._close(self.runs[op.run_id], op.close)
        run = self.runs[op.run_id]
        if op.take_back is not None:
            self._put(
                moved_run(
                    run,
                    "undo",
                    By.SCHEDULER,
                    owner=None,
                    ending=op.take_back.ending,
                    error=op.take_back.error,
                )
            )
        if op.park:
            self._put(run._replace(owner=None, fence=run.fence + 1))

    def _hear(self, op: Hop) -> None:
        """Here a signal's number is its place among those of the run."""
        mine = self.signals_of(op.run_id)
        for place, seq in op.signals:
            signal = mine[place]
            if signal.delivered_seq is not None:
                raise Refused
            self.signals[signal[:3]] = signal._replace(delivered_seq=seq)

    def _continue(self, op: Hop, next_input: bytes) -> None:
        run = self.runs[op.run_id]
        last = max((step.n for step in self.steps_of(run.id)), default=0)
        self._put(
            run._replace(
                input=next_input,
                generation=run.generation + 1,
                fence=run.fence + 1,
                base_n=max(run.base_n, last),
                kept_n=0,
                progress=None,
                started_at=self.now,
            )
        )
        self.steps = {key: step for key, step in self.steps.items() if step.run_id != run.id}
        self.attempts = [row for row in self.attempts if row[0] != run.id]
        for signal in self.signals_of(run.id):
            if signal.delivered_seq in op.unread:
                self.signals[signal[:3]] = signal._replace(delivered_seq=None)
            elif signal.delivered_seq is not None:
                del self.signals[signal[:3]]
        self.journal.append(("scheduler", "continue", run.id))

    def _issue(self, node: str, run_id: str, new: NewStep) -> None:
        if (run_id, new.n) in self.steps:  # the hop was written before, and its answer was lost
            raise Refused
        leased = new.state is StepState.RUNNING
        timeout = None if new.timeout_s is None or not leased else self.now + new.timeout_s * SECOND
        self._put(
            Step(
                run_id,
                new.n,
                new.key,
                new.kind,
                new.lane,
                new.state,
                new.priority,
                self.now if new.ready_at is None else new.ready_at,
                int(leased),
                attempts_max=new.attempts_max,
                timeout_s=new.timeout_s,
                fence=int(leased),
                agent=node if leased else None,
                complete_by=timeout,
                issued_at=self.now,
                started_at=self.now if leased else None,
                name=new.name,
                retry=new.retry,
            )
        )

    def _drop(self, step: Step) -> None:
        """The code no longer waits for it: cancelled if live, never to be delivered."""
        if step.state in STEP_LIVE:
            step = moved_step(step, "cancel", By.SCHEDULER, finished_at=self.now)
        if step.delivered_seq is None:
            self._put(step._replace(delivered_seq=0))

    def _close(self, run: Run, close: Close) -> None:
        ended = close.state in RUN_ENDED
        self._put(
            moved_run(
                run,
                CLOSES[close.state],
                By.SCHEDULER,
                close.state,
                owner=None,
                output=close.output,
                error=close.error if ended else run.error,
                note=run.note if ended else close.error,
                finished_at=self.now if ended else None,
            )
        )
        if not ended:
            self.stuck.add(run.id)
            return
        for step in self.steps_of(run.id):
            self._drop(step)
        if close.parent_id is None:
            if close.state in {RunState.FAILED, RunState.UNDONE}:
                self.failures.append((run.id, 0))
            return
        good = close.state is RunState.SUCCEEDED
        self._tell_parent(run, StepState.SUCCEEDED if good else StepState.FAILED, close.output, close.error)

    def _tell_parent(self, run: Run, state: StepState, output: bytes | None, error: str | None) -> None:
        if run.parent_id is None or run.parent_n is None:
            return
        step = self.steps.get((run.parent_id, run.parent_n))
        if step is not None and step.state is StepState.WAITING and step.kind is StepKind.CHILD:
            self._end(step, By.SCHEDULER, state, output=output, error=error)

    # --- schedulers -------------------------------------------------------------------------------------------------

    def claim_runs(self, node: str) -> list[tuple[str, int]]:
        return [claimed for run in self.claimable() if (claimed := self.claim_run(node, run.id)) is not None]

    def claim_run(self, node: str, run_id: str) -> tuple[str, int] | None:
        """(run, fence): a claim raises the fence, so that an earlier owner's hops find no row."""
        run = self.runs.get(run_id)
        if run is None or not self.is_live(node) or run.owner is not None:
            return None
        if run.state is not RunState.PENDING and run.state not in RUN_ACTIVE:
            return None
        began = self.now if run.started_at is None else run.started_at
        self._put(moved_run(run, "claim", By.SCHEDULER, owner=node, started_at=began))
        return run_id, run.fence + 1

    def fire_timers(self) -> int:
        due = [
            step
            for step in self.steps.values()
            if step.kind is StepKind.TIMER
            and step.state is StepState.WAITING
            and step.ready_at <= self.now
            and self.runs[step.run_id].owner is None
            and self.runs[step.run_id].state in RUN_ACTIVE
        ]
        for step in due:
            self._put(moved_step(step, "fire", By.SCHEDULER, finished_at=self.now))
        return len(due)

    def hold_run(self, run_id: str, fence: int, note: str) -> Answer:
        run = self.runs.get(run_id)
        if run is None or run.fence != fence:
            return Answer.FENCED
        self._hold(run, By.SCHEDULER, note)
        self.failures.append((run_id, 0))
        self.journal.append(("scheduler", "hold", run_id))
        return Answer.ACCEPTED

    def _hold(self, run: Run, by: By, note: str) -> None:
        self._put(moved_run(run, "hold", by, resume=run.state, owner=None, note=note))

    # --- agents -----------------------------------------------------------------------------------------------------

    def claim_steps(self, node: str, lanes: Sequence[int], limit: int) -> list[tuple[str, int, int, int]]:
        """(run, n, fence, attempt): the attempt is counted by the claim, not by its end."""
        claimed = []
        for step in self.due(lanes)[:limit] if self.is_live(node) else ():
            complete_by = None if step.timeout_s is None else self.now + step.timeout_s * SECOND
            taken = moved_step(
                step,
                "claim",
                By.AGENT,
                agent=node,
                attempt=step.attempt + 1,
                started_at=self.now,
                complete_by=complete_by,
            )
            self._put(taken)
            claimed.append((taken.run_id, taken.n, taken.fence, taken.attempt))
        return claimed

    # --- nodes ------------------------------------------------------------------------------------------------------

    def register(self, node: str, lease_h: float) -> None:
        self.nodes[node] = Node(self.now + lease_h)

    def renew(self, node: str, lease_h: float) -> bool:
        if not self.is_live(node):
            return False
        self.nodes[node] = Node(self.now + lease_h)
        return True

    def retire(self, node: str) -> None:
        self.reconcile(node, (), ())
        self.nodes[node] = self.nodes[node]._replace(retired=True)
        self.resign(node)

    def reconcile(self, node: str, runs: Sequence[str], steps: Sequence[tuple[str, int]]) -> tuple[int, int]:
        freed = [run for run in self.runs.values() if run.owner == node and run.id not in runs]
        for run in freed:
            self._free(run)
        back = [
            step
            for step in self.steps.values()
            if step.agent == node and step.state is StepState.RUNNING and (step.run_id, step.n) not in steps
        ]
        for step in back:
            self._hand_back(step, By.AGENT)
        return len(freed), len(back)

    def _free(self, run: Run) -> None:
        """Its owner is gone. One that waits for nothing has not said yet what it waits for: it is pending again."""
        quiet = all(step.delivered_seq is not None for step in self.steps_of(run.id)) and all(
            signal.delivered_seq is not None for signal in self.signals_of(run.id)
        )
        if quiet and run.state is RunState.RUNNING:
            self._put(moved_run(run, "free", By.SUPERVISOR, owner=None))
        else:
            self._put(run._replace(owner=None, fence=run.fence + 1))

    # --- the leader -------------------------------------------------------------------------------------------------

    def lead(self, node: str, lease_h: float, lease: str = "leader") -> int | None:
        """Kept while it runs; taken over, with a higher epoch, when it ran out or its holder left."""
        seen = self.leases.get(lease, Lease(None, 0, 0.0))
        current = seen.holder is not None and seen.expires_at > self.now
        holder = None if seen.holder is None else self.nodes.get(seen.holder)
        if current and seen.holder != node and not (holder is not None and holder.retired):
            return None
        epoch = seen.epoch if current and seen.holder == node else seen.epoch + 1
        self.leases[lease] = Lease(node, epoch, self.now + lease_h)
        return epoch

    def resign(self, node: str) -> None:
        for name, lease in self.leases.items():
            if lease.holder == node:
                self.leases[name] = Lease(None, lease.epoch, self.now)

    def leads(self, epoch: int) -> bool:
        """The precondition of every write of a leader."""
        lease = self.leases.get("leader")
        return lease is not None and lease.epoch == epoch and lease.expires_at > self.now

    def dead_nodes(self) -> set[str]:
        holders = {run.owner for run in self.runs.values() if run.owner is not None}
        holders |= {
            step.agent
            for step in self.steps.values()
            if step.state is StepState.RUNNING and step.agent is not None
        }
        expired = {
            name for name, node in self.nodes.items() if not node.retired and node.lease_until < self.now
        }
        return expired | {name for name in holders if not self.is_live(name)}

    def bury(self, node: str, epoch: int, losses_max: int) -> tuple[int, int, int] | None:
        """Clear a dead node's runs and take back its steps: (runs, steps, steps that failed)."""
        if not self.leads(epoch):
            return None
        runs = [run for run in self.runs.values() if run.owner == node]
        for run in runs:
            self._free(run)
        steps = [
            step for step in self.steps.values() if step.agent == node and step.state is StepState.RUNNING
        ]
        failed = sum(self._take_back(step, lost(node, "gone"), losses_max) for step in steps)
        if self.is_live(node):
            self.nodes[node] = self.nodes[node]._replace(retired=True)
        return len(runs), len(steps), failed

    def end_overdue(self, epoch: int, grace_h: float) -> int:
        if not self.leads(epoch):
            return 0
        late = [
            step
            for step in self.steps.values()
            if step.state is StepState.RUNNING
            and step.complete_by is not None
            and step.complete_by < self.now - grace_h
        ]
        for step in late:
            self._take_back(step, overdue(), DEFAULT.losses_max)
            self.journal.append(("supervisor", "end_overdue", step.run_id))
        return len(late)

    def _take_back(self, step: Step, loss: Loss, losses_max: int) -> bool:
        """Take a step from its agent. What follows is the verdict that both dialects ask for; whether it failed."""
        self.attempts.append((step.run_id, step.n, step.attempt, loss.ending, step.agent))
        held = Held(**{name: getattr(step, name) for name in Held._fields})
        config = msgspec.structs.replace(DEFAULT, losses_max=losses_max)
        remedied = remedy(held, loss, now=step.issued_at, random=DICE, config=config)
        taken = step._replace(
            agent=None,
            complete_by=None,
            error=loss.ending.value if remedied.is_told else step.error,
            losses=step.losses + remedied.losses,
            timeouts=step.timeouts + remedied.timeouts,
            ready_at=NEVER if remedied.fingerprint is not None else self.now,
        )
        if remedied.state is StepState.FAILED:
            self._end(taken, By.SUPERVISOR, StepState.FAILED)
            return True
        if remedied.fingerprint is not None:
            self.failures.append((step.run_id, step.n))
            self._put(moved_step(taken, "quarantine", By.SUPERVISOR))
        else:
            self._put(moved_step(taken, "reclaim", By.SUPERVISOR))
        return False

    def prune(self, epoch: int | None, state: RunState, before: float) -> int:
        """Ended runs go after their children, and only when no run above them is live."""
        if epoch is not None and not self.leads(epoch):
            return 0
        gone = [
            run.id
            for run in self.runs.values()
            if run.state is state
            and run.finished_at is not None
            and run.finished_at < before
            and not any(child.parent_id == run.id for child in self.runs.values())
            and not self._live_above(run)
        ]
        for run_id in gone:
            del self.runs[run_id]
            self.steps = {key: step for key, step in self.steps.items() if step.run_id != run_id}
            self.signals = {key: row for key, row in self.signals.items() if row.run_id != run_id}
            self.attempts = [row for row in self.attempts if row[0] != run_id]
            self.journal = [row for row in self.journal if row[2] != run_id]
        return len(gone)

    def _live_above(self, run: Run) -> bool:
        above = None if run.parent_id is None else self.runs.get(run.parent_id)
        return above is not None and (above.finished_at is None or self._live_above(above))

    # --- callers and operators --------------------------------------------------------------------------------------

    def send_signal(self, signal: NewSignal) -> Answer:
        if (signal.run_id, signal.name, signal.key) in self.signals:
            return Answer.DUPLICATE
        return Answer.ACCEPTED if self._send(signal) else Answer.FENCED

    def _send(self, signal: NewSignal) -> bool:
        row = Signal(signal.run_id, signal.name, signal.key, signal.payload)
        run = self.runs.get(signal.run_id)
        if run is None or run.state in RUN_ENDED or row[:3] in self.signals:
            return False
        self.signals[row[:3]] = row
        return True

    def cancel_run(self, run_id: str) -> RunState:
        run = self.runs[run_id]
        if run.state is RunState.PENDING and not self.steps_of(run_id):
            self._put(moved_run(run, "cancel", By.OPERATOR, finished_at=self.now, note="why"))
            self.journal.append(("me", "cancel", run_id))
            self._tell_parent(run, StepState.FAILED, None, CANCELLED)
            return RunState.CANCELLED
        if run.state is RunState.HELD:
            self.release(run_id)
        if self._send(NewSignal(run_id, CANCEL, "cancel", b"")):
            self.journal.append(("me", "cancel", run_id))
        return self.runs[run_id].state

    def hold(self, run_id: str) -> RunState:
        run = self.runs[run_id]
        if run.state is RunState.HELD:
            return RunState.HELD
        if run.state is not RunState.PENDING and run.state not in RUN_ACTIVE:
            raise WrongState
        self._hold(run, By.OPERATOR, "why")
        self.journal.append(("me", "hold", run_id))
        return RunState.HELD

    def release(self, run_id: str) -> RunState:
        run = self.runs[run_id]
        if run.state is not RunState.HELD:
            raise WrongState
        state = RunState.UNDOING if run.resume is RunState.UNDOING else RunState.PENDING
        self._put(moved_run(run, "release", By.OPERATOR, state, resume=None, note=None))
        self.journal.append(("me", "release", run_id))
        if state is RunState.UNDOING:
            self._steer(run_id, "resume")
        return state

    def steer_undo(self, run_id: str, act: str) -> RunState:
        run = self.runs[run_id]
        if RunState.UNDOING not in {run.state, run.resume} and run.state is not RunState.STUCK:
            raise WrongState
        if run.state is not RunState.UNDOING:
            self._put(moved_run(run, "unstick", By.OPERATOR, resume=None, note=None))
        self.stuck.discard(run_id)
        self._steer(run_id, act)
        return self.runs[run_id].state

    def _steer(self, run_id: str, act: str) -> None:
        self.steered += 1
        self._send(NewSignal(run_id, UNDO, f"{self.steered}", b""))
        self.journal.append(("me", act, run_id))

    def retry_now(self, run_id: str) -> int:
        backing_off = [
            step
            for step in self.steps_of(run_id)
            if step.state is StepState.READY and self.now < step.ready_at < NEVER
        ]
        for step in backing_off:
            self._put(step._replace(ready_at=self.now, fence=step.fence + 1))
        if backing_off:
            self.journal.append(("me", "retry", run_id))
        return len(backing_off)

    def retry_run(self, run_id: str, new_id: str, before_seq: int | None) -> None:
        run = self.runs[run_id]
        if run.state not in RUN_ENDED or new_id in self.runs:
            raise WrongState
        self._put(
            Run(
                new_id,
                run.workflow,
                run.version,
                RunState.PENDING,
                run.input,
                run.digest,
                run.priority,
                retry_of=run_id,
                deadline=None if run.deadline is None else self.now + run.deadline - run.created_at,
                created_at=self.now,
            )
        )
        kept = range(1, before_seq or 1)
        for step in self.steps_of(run_id):
            if step.delivered_seq in kept and step.key != DEADLINE:
                self._put(
                    step._replace(run_id=new_id, retry=None, complete_by=None, checkpoint=None, progress=None)
                )
        for signal in self.signals_of(run_id):
            if signal.delivered_seq in kept and not signal.name.startswith("$"):
                self.signals[new_id, signal.name, signal.key] = signal._replace(run_id=new_id)
        self.journal.append(("me", "retry", run_id))
