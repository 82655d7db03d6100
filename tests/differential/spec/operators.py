"""What callers and operators do to a run."""

from __future__ import annotations

from holdfast.lifecycle import RUN_ACTIVE, RUN_ENDED, By
from holdfast.model import CANCEL, UNDO, NewSignal, RunState, StepState
from holdfast.store.answers import Answer
from tests.differential.spec.quarantine import Quarantining
from tests.differential.spec.rows import CANCELLED, NEVER, WrongState, moved_run


class Operating(Quarantining):
    def send_signal(self, signal: NewSignal) -> Answer:
        if (signal.run_id, signal.name, signal.key) in self.signals:
            return Answer.DUPLICATE
        return Answer.ACCEPTED if self._send(signal) else Answer.FENCED

    def cancel_run(self, run_id: str, *, again: bool) -> RunState:
        run = self.runs[run_id]
        if run.state is RunState.PENDING and not self.steps_of(run_id):
            self._put(moved_run(run, "cancel", By.OPERATOR, finished_at=self.now, note="why"))
            self.note("me", "cancel", run_id)
            self._end_parents_step(run, StepState.FAILED, None, CANCELLED)
            return RunState.CANCELLED
        if run.state is RunState.HELD:
            self.release(run_id)
        heard = sum(one.name == CANCEL and one.delivered_seq is not None for one in self.signals_of(run_id))
        key = f"cancel#{heard + 1}" if again and heard else "cancel"
        if self._send(NewSignal(run_id, CANCEL, key, b"")):
            self.note("me", "cancel", run_id)
        self._unstick(run_id)
        return self.runs[run_id].state

    def hold(self, run_id: str) -> RunState:
        run = self.runs[run_id]
        if run.state is RunState.HELD:
            return RunState.HELD
        if run.state is not RunState.PENDING and run.state not in RUN_ACTIVE:
            raise WrongState
        self._hold(run, By.OPERATOR, "why")
        self.note("me", "hold", run_id)
        return RunState.HELD

    def release(self, run_id: str) -> RunState:
        run = self.runs[run_id]
        if run.state is not RunState.HELD:
            raise WrongState
        state = RunState.UNDOING if run.resume is RunState.UNDOING else RunState.PENDING
        self._put(moved_run(run, "release", By.OPERATOR, state, resume=None, note=None))
        self.note("me", "release", run_id)
        if state is RunState.UNDOING:
            self._steer(run_id, "resume")
        return state

    def steer_undo(self, run_id: str, act: str) -> RunState:
        run = self.runs[run_id]
        if run.state is RunState.STUCK and run.resume is RunState.RUNNING:
            raise WrongState  # it waits for a step in quarantine
        if RunState.UNDOING not in {run.state, run.resume} and run.state is not RunState.STUCK:
            raise WrongState
        if run.state is not RunState.UNDOING:
            self._put(moved_run(run, "unstick", By.OPERATOR, resume=None, note=None))
        for number, alert in self.alerts.items():
            if alert.key == f"run stuck:{run_id}" and alert.cleared_at is None:
                self.alerts[number] = alert._replace(cleared_at=self.now)
        self._steer(run_id, act)
        return self.runs[run_id].state

    def _steer(self, run_id: str, act: str) -> None:
        self.steered += 1
        self._send(NewSignal(run_id, UNDO, f"{self.steered}", b""))
        self.note("me", act, run_id)

    def retry_now(self, run_id: str) -> int:
        backing_off = [
            step
            for step in self.steps_of(run_id)
            if step.state is StepState.READY and self.now < step.ready_at < NEVER
        ]
        for step in backing_off:
            self._put(step._replace(ready_at=self.now, fence=step.fence + 1))
        if backing_off:
            self.note("me", "retry", run_id)
        return len(backing_off)

    def retry_run(self, run_id: str) -> str:
        """Retry a run. A second request gets the same run. Only the newest run of a chain can be retried, and a child
        only with its parent."""
        run, later = self.runs[run_id], self.retried_as(run_id)
        if run.state not in RUN_ENDED or run.state is RunState.SUCCEEDED:
            raise WrongState
        if later is not None:
            if self.retried_as(later.id) is not None:
                raise WrongState
            return later.id
        parent = self.newest(run.parent_id)
        if (parent is not None and parent.state is not RunState.SUCCEEDED) or self.lives_below(run_id):
            raise WrongState
        new_id = self.go_on_from(run, None, None)
        self.note("me", "retry", run_id)
        return new_id
