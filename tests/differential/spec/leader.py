"""The leader, and what it reclaims."""

from __future__ import annotations

import msgspec

from holdfast.config import DEFAULT
from holdfast.lifecycle import By
from holdfast.model import AlertKind, StepState
from holdfast.store.answers import LostStep
from holdfast.supervisor.reclaim import Loss, lost, overdue, remedy_of
from tests.differential.spec.commits import Commits
from tests.differential.spec.rows import DICE, NEVER, Listed, Step, moved_step


class Supervising(Commits):
    def dead_nodes(self) -> set[str]:
        names = {run.owner for run in self.runs.values() if run.owner is not None}
        names |= {
            step.agent
            for step in self.steps.values()
            if step.state is StepState.RUNNING and step.agent is not None
        }
        expired = {
            name for name, node in self.nodes.items() if not node.retired and node.lease_until < self.now
        }
        return expired | {name for name in names if not self.is_live(name)}

    def reclaim(self, node: str, epoch: int, losses_max: int) -> tuple[int, int, int] | None:
        """Reclaim the runs and steps of a node that is gone. Return the numbers of runs, of steps, and of steps that
        failed."""
        if not self.leads(epoch):
            return None
        runs = [run for run in self.runs.values() if run.owner == node]
        for run in runs:
            self._free(run)
        steps = [
            step for step in self.steps.values() if step.agent == node and step.state is StepState.RUNNING
        ]
        failed = sum(self._reclaim_steps(step, lost(node, "gone"), losses_max) for step in steps)
        if runs or steps or self.is_live(node):
            self.note("supervisor", "reclaim")
        if self.is_live(node):
            self.nodes[node] = self.nodes[node]._replace(retired=True, retired_at=self.now)
            self._raise(AlertKind.AGENT_OFFLINE, "warning", f"{AlertKind.AGENT_OFFLINE}:here")
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
            self._reclaim_steps(step, overdue(), DEFAULT.losses_max)
            self.note("supervisor", "end_overdue", step.run_id)
        return len(late)

    def _reclaim_steps(self, step: Step, loss: Loss, losses_max: int) -> bool:
        """Take a step away from its agent. The same function as in the product decides what becomes of it. Return
        whether it failed."""
        self.attempts.append((step.run_id, step.n, step.attempt, loss.ending, step.agent))
        lost_step = LostStep(**{name: getattr(step, name) for name in LostStep.__struct_fields__})
        config = msgspec.structs.replace(DEFAULT, losses_max=losses_max)
        remedied = remedy_of(loss, DICE, config, lost_step, step.issued_at)
        entry = remedied.quarantine
        freed = step._replace(
            agent=None,
            complete_by=None,
            error=loss.ending.value if remedied.needs_person else step.error,
            losses=step.losses + remedied.losses,
            timeouts=step.timeouts + remedied.timeouts,
            ready_at=NEVER if entry is not None else self.now,
        )
        if remedied.state is StepState.FAILED:
            self._end(freed, By.SUPERVISOR, StepState.FAILED)
            return True
        if entry is not None:
            self.failures.append((step.run_id, step.n))
            self._put(moved_step(freed, "quarantine", By.SUPERVISOR))
            listed = Listed(entry.fingerprint, step.name, entry.error, entry.place, self.now)
            self.quarantine[step.run_id, step.n] = listed
            self.note("supervisor", "quarantine", step.run_id)
        else:
            self._put(moved_step(freed, "reclaim", By.SUPERVISOR))
        return False
