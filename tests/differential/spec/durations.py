"""Durations that nodes count, and twins."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.lifecycle import STEP_ENDED, By
from holdfast.model import LogPart, RunState, StepState, TwinState
from holdfast.store.answers import Answer
from tests.differential.spec.commits import Commits
from tests.differential.spec.rows import NEVER, Twin, moved_step

FADED = 0.05
"""A count below this is removed."""


class Learning(Commits):
    # --- durations --------------------------------------------------------------------------------------------------

    def add_durations(self, counts: Sequence[tuple[str, int, float]]) -> None:
        for name, bucket, count in counts:
            before, _ = self.durations.get((name, bucket), (0.0, 0.0))
            self.durations[name, bucket] = before + count, self.now

    def fade_durations(self, epoch: int, attempts_max: float, keep_h: float, rows_max: int) -> int:
        """Halve and remove counts. Return how many rows were changed."""
        if not self.leads(epoch):
            return 0
        sums: dict[str, float] = {}
        for (name, _), (count, _) in self.durations.items():
            sums[name] = sums.get(name, 0.0) + count
        halved = {key for key in self.durations if sums[key[0]] > attempts_max}
        for key in halved:
            count, last_at = self.durations[key]
            self.durations[key] = count / 2, last_at
        gone = {
            key
            for key, (count, last_at) in self.durations.items()
            if last_at < self.now - keep_h or count < FADED
        }
        left = sorted(set(self.durations) - gone, key=lambda key: self.durations[key][1])
        gone |= set(left[: max(0, len(left) - rows_max)])
        for key in gone:
            del self.durations[key]
        return len(halved) + len(gone)

    # --- twins ------------------------------------------------------------------------------------------------------

    def make_twins(self, epoch: int, steps: Sequence[tuple[str, int, int]]) -> list[tuple[str, int]]:
        made = []
        for run_id, n, fence in steps if self.leads(epoch) else ():
            step = self.steps.get((run_id, n))
            if (
                step is not None
                and (step.fence, step.state, step.losses) == (fence, StepState.RUNNING, 0)
                and self.runs[run_id].state is RunState.RUNNING
                and (run_id, n) not in self.twins
            ):
                self.twins[run_id, n] = Twin(TwinState.READY, step.fence, step.lane, step.agent, self.now)
                self.note("supervisor", "hedge", run_id)
                made.append((run_id, n))
        return made

    def claim_twins(self, node: str, lanes: Sequence[int], limit: int) -> list[tuple[str, int, int, int]]:
        """Return (run, n, the twin's fence, attempt) of each claimed twin, the oldest first."""
        ready = sorted(
            (twin.made_at, key)
            for key, twin in self.twins.items()
            if twin.state is TwinState.READY
            and twin.lane in lanes
            and twin.not_agent != node
            and key in self.steps
            and self.steps[key].fence == twin.step_fence
            and self.runs[key[0]].state is RunState.RUNNING
            and self.is_passable(twin.lane)
            and self.is_free(self.runs[key[0]])
        )
        claimed = []
        for _, key in ready[:limit] if self.is_live(node) else ():
            twin = self.twins[key]
            self.twins[key] = twin._replace(
                state=TwinState.RUNNING, agent=node, started_at=self.now, fence=twin.fence + 1
            )
            claimed.append((*key, twin.fence + 1, self.steps[key].attempt + 1))
        return claimed

    def lost_twins(self, node: str, claimed: Sequence[tuple[str, int, int]]) -> list[tuple[str, int]]:
        return [
            (run_id, n)
            for run_id, n, fence in claimed
            if (twin := self.twins.get((run_id, n))) is None
            or (twin.fence, twin.agent) != (fence, node)
            or (run_id, n) not in self.steps
            or self.steps[run_id, n].finished_at is not None
        ]

    def end_twin(
        self,
        node: str,
        place: tuple[str, int, int],
        state: TwinState,
        output: bytes,
        logs: Sequence[LogPart],
    ) -> Answer:
        run_id, n, fence = place
        twin = self.twins.get((run_id, n))
        if twin is None or twin.agent != node:
            return Answer.FENCED
        if twin.fence != fence or not self.is_live(node):
            before = (twin.fence, twin.state, state) == (fence + 1, TwinState.WON, TwinState.WON)
            return Answer.DUPLICATE if before else Answer.FENCED
        ended = twin._replace(state=state, ended_at=self.now, fence=fence + 1)
        self.twins[run_id, n] = ended
        self.keep_logs(run_id, n, logs)
        if state is not TwinState.WON:
            return Answer.ACCEPTED
        step = self.steps.get((run_id, n))
        if step is None or step.state in STEP_ENDED or step.ready_at >= NEVER:
            self.twins[run_id, n] = ended._replace(state=TwinState.OUTRUN)
            return Answer.FENCED
        if step.state is StepState.RUNNING:
            self.attempts.append((run_id, n, step.attempt, "refused", step.agent))
        self._put(
            moved_step(
                step,
                "outrun",
                By.AGENT,
                output=output,
                error=None,
                finished_at=self.now,
                agent=node,
                started_at=twin.started_at,
                complete_by=None,
            )
        )
        return Answer.ACCEPTED

    def bar_twin(self, run_id: str, n: int) -> TwinState:
        twin = self.twins.get((run_id, n))
        if twin is None:
            twin = Twin(TwinState.BARRED, 0, 0, None, self.now, ended_at=self.now)
        elif twin.state is TwinState.READY:
            twin = twin._replace(state=TwinState.BARRED, ended_at=self.now, fence=twin.fence + 1)
        self.twins[run_id, n] = twin
        return twin.state

    def stop_twin(self, run_id: str, n: int) -> None:
        twin = self.twins.get((run_id, n))
        if twin is not None and twin.ended_at is None:
            self.twins[run_id, n] = twin._replace(
                state=TwinState.OUTRUN, ended_at=self.now, fence=twin.fence + 1
            )

    def sweep_twins(self, epoch: int) -> int:
        idle = [key for key, twin in self.twins.items() if twin.ended_at is None and self._is_idle(key, twin)]
        for key in idle if self.leads(epoch) else ():
            self.stop_twin(*key)
        return len(idle) if self.leads(epoch) else 0

    def _is_idle(self, key: tuple[str, int], twin: Twin) -> bool:
        """True if nobody needs the twin any more. Its step has ended, is in quarantine, no longer exists or has changed
        before the twin began, or its agent is gone."""
        step = self.steps.get(key)
        if step is None or step.finished_at is not None or step.ready_at >= NEVER:
            return True
        if twin.state is TwinState.READY:
            return step.fence != twin.step_fence
        return twin.agent is None or not self.is_live(twin.agent)
