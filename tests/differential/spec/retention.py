"""What the leader removes."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.model import RunState, StepState
from tests.differential.spec.leader import Supervising
from tests.differential.spec.rows import Run

CODED = ("a", "c")
"""Nodes that have shop.order loaded."""


class Retention(Supervising):
    def declare(self, name: str, version: str, digest: str) -> None:
        """Write a declaration. If the same is declared again, the time is noted once an hour."""
        known = self.workflows.get((name, version))
        if known is None:
            self.workflows[name, version] = digest, self.now, self.now
        elif known[0] != digest or known[2] < self.now - 1:
            self.workflows[name, version] = digest, known[1], self.now

    def forget_workflows(self, epoch: int, before: float) -> int:
        """Remove declarations that nobody has made for a long time and no live node has."""
        if not self.leads(epoch):
            return 0
        has = any(self.is_live(node) for node in CODED)
        gone = [
            key
            for key, (_, _, last_at) in self.workflows.items()
            if last_at < before and not (has and key == ("shop.order", "1"))
        ]
        for key in gone:
            del self.workflows[key]
        return len(gone)

    def prune(self, epoch: int | None, state: RunState, before: float, kept: Collection[RunState]) -> int:
        """Remove ended runs. A run is removed after its children, after the steps that joined it have ended, and only
        if no run above it is open, or did not succeed and is kept."""
        if epoch is not None and not self.leads(epoch):
            return 0
        gone = [
            run.id
            for run in self.runs.values()
            if run.state is state
            and run.finished_at is not None
            and run.finished_at < before
            and not any(child.parent_id == run.id for child in self.runs.values())
            and not self._kept_above(run, before, kept)
            and run.id not in self.joins.values()
            and not self._may_go_on_from(run)
        ]
        for run_id in gone:
            del self.runs[run_id]
            self.steps = {key: step for key, step in self.steps.items() if step.run_id != run_id}
            self.signals = {key: row for key, row in self.signals.items() if row.run_id != run_id}
            self.attempts = [row for row in self.attempts if row[0] != run_id]
            self.forget_logs(run_id)
            self.quarantine = {key: row for key, row in self.quarantine.items() if key[0] != run_id}
            self.twins = {key: row for key, row in self.twins.items() if key[0] != run_id}
            self.journal = [row for row in self.journal if row[2] != run_id]
            self.inherited = {key: row for key, row in self.inherited.items() if key[0] != run_id}
            self.joins = {key: joined for key, joined in self.joins.items() if key[0] != run_id}
        if gone:
            self.note("me", "prune")
        return len(gone)

    def _may_go_on_from(self, run: Run) -> bool:
        return any(
            child == run.id and owner in self.runs and self.runs[owner].finished_at is None
            for (owner, _), (_, child) in self.inherited.items()
        )

    def _kept_above(self, run: Run, before: float, kept: Collection[RunState]) -> bool:
        above = None if run.parent_id is None else self.runs.get(run.parent_id)
        if above is None:
            return False
        if above.finished_at is None:
            return True
        is_kept = above.finished_at >= before or above.state in kept
        return (above.state is not RunState.SUCCEEDED and is_kept) or self._kept_above(above, before, kept)

    def forget_nodes(self, epoch: int, before: float) -> int:
        """Remove nodes that left and have nothing."""
        if not self.leads(epoch):
            return 0
        holders = {run.owner for run in self.runs.values()}
        holders |= {step.agent for step in self.steps.values() if step.state is StepState.RUNNING}
        gone = [
            name
            for name, node in self.nodes.items()
            if node.retired_at is not None and node.retired_at < before and name not in holders
        ]
        for name in gone:
            del self.nodes[name]
        return len(gone)

    def forget_journal(self, epoch: int, before: float) -> int:
        """Remove old entries that belong to no run."""
        if not self.leads(epoch):
            return 0
        kept = [row for row in self.journal if row[2] is not None or row[3] >= before]
        gone, self.journal = len(self.journal) - len(kept), kept
        return gone

    def prune_alerts(self, epoch: int, before: float) -> int:
        """Remove alerts that were cleared, with their deliveries."""
        if not self.leads(epoch):
            return 0
        gone = {
            number
            for number, alert in self.alerts.items()
            if alert.cleared_at is not None and alert.cleared_at < before
        }
        self.alerts = {number: alert for number, alert in self.alerts.items() if number not in gone}
        self.deliveries = {name: one for name, one in self.deliveries.items() if one.alert not in gone}
        return len(gone)
