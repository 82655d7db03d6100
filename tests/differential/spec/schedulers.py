"""What schedulers claim and fire."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.lifecycle import RUN_ACTIVE, RUN_ENDED, By
from holdfast.model import RunState, StepKind, StepState
from holdfast.store.answers import Answer
from tests.differential.spec.commits import Commits
from tests.differential.spec.rows import CANCELLED, CONFLICT, moved_run, moved_step


class Scheduling(Commits):
    def claim_runs(self, node: str, runs: Sequence[str] | None = None) -> list[tuple[str, int]]:
        wanted = [run.id for run in self.claimable() if runs is None or run.id in runs]
        return [claimed for run_id in wanted if (claimed := self.claim_run(node, run_id)) is not None]

    def claim_run(self, node: str, run_id: str) -> tuple[str, int] | None:
        """Return (run, fence). A claim raises the fence, so that hops of an earlier owner find no row."""
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

    def answer_joins(self) -> int:
        due = {
            place: run
            for place, joined in self.joins.items()
            if (run := self.runs.get(joined)) is None or run.state in RUN_ENDED
        }
        for place, run in due.items():
            if run is None:
                self._end_child_step(place, StepState.FAILED, None, CONFLICT)
            elif run.state is RunState.SUCCEEDED:
                self._end_child_step(place, StepState.SUCCEEDED, run.output, None)
            else:
                self._end_child_step(place, StepState.FAILED, None, run.error or CANCELLED)
            del self.joins[place]
        return len(due)

    def hold_run(self, run_id: str, fence: int, note: str) -> Answer:
        run = self.runs.get(run_id)
        if run is None or run.fence != fence:
            return Answer.FENCED
        self._hold(run, By.SCHEDULER, note)
        self.failures.append((run_id, 0))
        self.note("scheduler", "hold", run_id)
        return Answer.ACCEPTED
