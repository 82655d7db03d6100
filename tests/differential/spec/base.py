"""All rows, and questions about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

from holdfast.lifecycle import RUN_ACTIVE, STEP_ENDED
from holdfast.model import Breaker, BreakerState, HoldScope, LogPart, RunState, StepState
from tests.differential.spec.rows import (
    NEVER,
    Alert,
    Delivery,
    Lease,
    Listed,
    Logged,
    Node,
    Run,
    Signal,
    Step,
    Twin,
)


class Base:
    def __init__(self) -> None:
        self.now = 0.0
        self.runs: dict[str, Run] = {}
        self.steps: dict[tuple[str, int], Step] = {}
        self.signals: dict[tuple[str, str, str], Signal] = {}
        self.attempts: list[tuple[str, int, int, str, str | None]] = []
        """(run, n, attempt, ending, agent) of attempts that did not become the outcome of their step."""
        self.logs: dict[tuple[str, int, int, int, int], Logged] = {}
        """By run, n, attempt, twin and part."""
        self.nodes: dict[str, Node] = {}
        self.leases: dict[str, Lease] = {}
        self.failures: list[tuple[str, int]] = []
        self.journal: list[tuple[str, str, str | None, float]] = []
        """(actor, verb, run, at)."""
        self.lanes: dict[int, tuple[str, str]] = {}
        self.undoable: set[int] = set()
        """Lanes of steps that have an undo."""
        """(step name, dependency)."""
        self.breakers: dict[str, Breaker] = {}
        self.holds: dict[tuple[str, str], float] = {}
        self.quarantine: dict[tuple[str, int], Listed] = {}
        self.twins: dict[tuple[str, int], Twin] = {}
        self.durations: dict[tuple[str, int], tuple[float, float]] = {}
        """(count, when it last grew)."""
        self.workflows: dict[tuple[str, str], tuple[str, float, float]] = {}
        """(digest, when it was first and last declared) by name and version."""
        self.alerts: dict[int, Alert] = {}
        self.deliveries: dict[str, Delivery] = {}
        self.joins: dict[tuple[str, int], str] = {}
        """The run that each step (run, n) has joined."""
        self.inherited: dict[tuple[str, str], tuple[str | None, str | None]] = {}
        """(`here.key`, child) that a run takes over for each step key from the run that it is the retry of."""
        self.raised = 0
        self.steered = 0

    def copy(self) -> Self:
        other = type(self).__new__(type(self))
        for name, value in vars(self).items():
            setattr(other, name, value.copy() if isinstance(value, dict | list | set) else value)
        return other

    def keep_logs(self, run_id: str, n: int, parts: Sequence[LogPart]) -> None:
        """Write what was logged. A part takes the place of the one with the same number."""
        for one in parts:
            logged = Logged(one.first_line, one.first_byte, one.lines, one.at, one.body)
            self.logs[run_id, n, one.attempt, int(one.twin), one.part] = logged

    def forget_logs(self, run_id: str) -> None:
        self.logs = {key: row for key, row in self.logs.items() if key[0] != run_id}

    # --- what the rows say ------------------------------------------------------------------------------------------

    def is_live(self, node: str) -> bool:
        return node in self.nodes and not self.nodes[node].retired

    def steps_of(self, run_id: str) -> list[Step]:
        return [step for step in self.steps.values() if step.run_id == run_id]

    def signals_of(self, run_id: str) -> list[Signal]:
        return [signal for signal in self.signals.values() if signal.run_id == run_id]

    def awake(self, run_id: str) -> bool:
        """True if there is something to deliver to the run."""
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

    def is_quarantined(self, step: Step) -> bool:
        return step.state is StepState.READY and step.ready_at >= NEVER

    def is_held(self, scope: HoldScope, value: str) -> bool:
        return (scope, value) in self.holds

    def is_passable(self, lane: int) -> bool:
        """True if no gate is closed that concerns all steps of the lane."""
        if any(scope == HoldScope.ALL for scope, _ in self.holds):
            return False
        if lane not in self.lanes:
            return True
        name, depends = self.lanes[lane]
        return not (
            self.is_held(HoldScope.STEP, name)
            or self.is_held(HoldScope.DEPENDENCY, depends)
            or (depends in self.breakers and self.breakers[depends].state is not BreakerState.CLOSED)
        )

    def is_free(self, run: Run) -> bool:
        """True if no hold keeps the run's steps from beginning."""
        return not (
            self.is_held(HoldScope.WORKFLOW, run.workflow) or self.is_held(HoldScope.NAMESPACE, run.namespace)
        )

    def note(self, actor: str, verb: str, run_id: str | None = None) -> None:
        self.journal.append((actor, verb, run_id, self.now))

    def due(self, lanes: Iterable[int], runs: Sequence[str] | None = None) -> list[Step]:
        """Return ready steps that are due, by priority, then age. If runs are named, only steps of these."""
        found = [
            step
            for step in self.steps.values()
            if step.lane in lanes
            and (runs is None or step.run_id in runs)
            and step.state is StepState.READY
            and step.ready_at <= self.now
            and self.runs[step.run_id].state in RUN_ACTIVE
            and self.is_free(self.runs[step.run_id])
        ]
        return sorted(found, key=lambda step: (-step.priority, step.ready_at, step.run_id, step.n))

    def _put(self, row: Run | Step) -> None:
        if isinstance(row, Run):
            self.runs[row.id] = row
        else:
            self.steps[row.run_id, row.n] = row

    # --- leases ----------------------------------------------------------------------------------------------------

    def lead(self, node: str, lease_h: float, lease: str = "leader") -> int | None:
        """Renew a lease, or take it over with a higher epoch if it has run out or its holder left. Return the epoch, or
        None."""
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
        """True if this epoch is the current one. Every write of a leader needs this."""
        return self.has_lease("leader", epoch)

    def has_lease(self, name: str, epoch: int) -> bool:
        """True if this epoch of the named lease is the current one."""
        lease = self.leases.get(name)
        return lease is not None and lease.epoch == epoch and lease.expires_at > self.now
