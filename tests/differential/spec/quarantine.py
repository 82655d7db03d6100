"""Steps in quarantine, and runs that wait for nothing else."""

from __future__ import annotations

from holdfast.lifecycle import RUN_ACTIVE, By
from holdfast.model import RunState, StepKind
from tests.differential.spec.commits import Commits
from tests.differential.spec.rows import moved_run, moved_step


class Quarantining(Commits):
    def resolve_quarantine(
        self, act: str, fingerprint: str | None, run_id: str | None, before: float, result: bytes, limit: int
    ) -> int:
        wanted = sorted(
            key
            for key, listed in self.quarantine.items()
            if fingerprint in {None, listed.fingerprint}
            and run_id in {None, key[0]}
            and listed.at <= before
            and key in self.steps
            and self.is_quarantined(self.steps[key])
        )[:limit]
        for key in wanted:
            step = self.steps[key]
            if act == "release":
                fresh = {"excused": step.attempt, "losses": 0, "timeouts": 0, "throttled": 0}
                self._put(moved_step(step, "release", By.OPERATOR, ready_at=self.now, **fresh))
            elif act == "skip":
                ended = {"finished_at": self.now, "output": result, "error": None}
                self._put(moved_step(step, "skip", By.OPERATOR, **ended))
            else:
                self._put(moved_step(step, "give_up", By.OPERATOR, finished_at=self.now))
            del self.quarantine[key]
            self.note("me", act, key[0])
        for one in {key[0] for key in wanted} | ({run_id} if run_id is not None else set()):
            self._unstick(one)
        return len(wanted)

    def _unstick(self, run_id: str) -> None:
        """Let a run that was stuck because of quarantine go on in its former state."""
        run = self.runs.get(run_id)
        if run is not None and run.state is RunState.STUCK and run.resume is not None:
            name = "resolve" if run.resume is RunState.RUNNING else "unstick"
            self._put(moved_run(run, name, By.OPERATOR, resume=None, note=None))

    def stick_quarantined(self, epoch: int, limit: int) -> int:
        if not self.leads(epoch):
            return 0
        self.quarantine = {
            key: listed
            for key, listed in self.quarantine.items()
            if key in self.steps and self.is_quarantined(self.steps[key])
        }
        unmoving = sorted(
            run_id for run_id in {key[0] for key in self.quarantine} if self._is_unmoving(run_id)
        )
        for run_id in unmoving[:limit]:
            run = self.runs[run_id]
            first = min((listed.at, key) for key, listed in self.quarantine.items() if key[0] == run_id)[1]
            error = self.steps[first].error
            self._put(moved_run(run, "stick", By.SUPERVISOR, resume=run.state, owner=None, note=error))
            self.note("supervisor", "stick", run_id)
        return len(unmoving[:limit])

    def _is_unmoving(self, run_id: str) -> bool:
        return (
            self.runs[run_id].state in RUN_ACTIVE
            and all(signal.delivered_seq is not None for signal in self.signals_of(run_id))
            and all(
                step.delivered_seq is not None or step.kind is StepKind.UNDO or self.is_quarantined(step)
                for step in self.steps_of(run_id)
            )
        )
