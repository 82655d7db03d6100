"""What agents claim, and what nodes do about themselves."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.lifecycle import By
from holdfast.model import StepState
from holdfast.store.claims import LOSSES_NEVER
from tests.differential.spec.commits import Commits
from tests.differential.spec.rows import SECOND, Node, Step, moved_step


class Working(Commits):
    def claim_steps(
        self,
        node: str,
        lanes: Sequence[int],
        limit: int,
        suspect_losses: int = LOSSES_NEVER,
        suspects: int = 0,
        runs: Sequence[str] | None = None,
    ) -> list[tuple[str, int, int, int]]:
        """Return (run, n, fence, attempt) of each claimed step. The claim counts the attempt, not its end."""
        due = self.due([lane for lane in lanes if self.is_passable(lane)], runs)
        if not suspects:
            due = [step for step in due if step.losses < suspect_losses]
        due, suspected = due[:limit], [step for step in due[:limit] if step.losses >= suspect_losses]
        due = [step for step in due if step not in suspected[suspects:]]
        return self._claim(node, due) if self.is_live(node) else []

    def _claim(self, node: str, due: Sequence[Step]) -> list[tuple[str, int, int, int]]:
        claimed = []
        for step in due:
            complete_by = None if step.timeout_s is None else self.now + step.timeout_s * SECOND
            running = moved_step(
                step,
                "claim",
                By.AGENT,
                agent=node,
                attempt=step.attempt + 1,
                started_at=self.now,
                complete_by=complete_by,
            )
            self._put(running)
            claimed.append((running.run_id, running.n, running.fence, running.attempt))
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
        self.nodes[node] = self.nodes[node]._replace(retired=True, retired_at=self.now)
        self.resign(node)

    def reconcile(
        self, node: str, runs: Sequence[tuple[str, int]], steps: Sequence[tuple[str, int, int]]
    ) -> tuple[int, int]:
        freed = [run for run in self.runs.values() if run.owner == node and (run.id, run.fence) not in runs]
        for run in freed:
            self._free(run)
        back = [
            step
            for step in self.steps.values()
            if step.agent == node
            and step.state is StepState.RUNNING
            and (step.run_id, step.n, step.fence) not in steps
        ]
        for step in back:
            self._hand_back(step, By.AGENT)
        return len(freed), len(back)
