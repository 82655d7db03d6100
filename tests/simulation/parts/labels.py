"""Steps that need a label, and runs and steps with priorities."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from holdfast import Retry, step
from holdfast.agent.claims import Claimer
from holdfast.model import PRIORITY_MAX
from holdfast.workflow.workflow import Workflow
from tests.simulation import program
from tests.simulation.mutants import code, mutant, sql
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from tests.simulation.invariants import Checker, Commit
    from tests.simulation.simulation import Simulation

LABEL = "crane"
FIRST = (-100, 0.0)
"""Before everything that can be claimed."""


@step(retry=Retry(attempts=3, delay=0.1, max_delay=0.4), timeout=2.5, needs=[LABEL], priority=5)
async def lift(tag: int, how: str) -> int:
    return await program._do(tag, how)


@lift.undo(retry=Retry(attempts=6, delay=0.1, max_delay=0.3))
async def lower(done: int | None, tag: int, how: str) -> None:
    await program._undo(done, tag, how)


@step(retry=Retry(attempts=3, delay=0.1, max_delay=0.4), timeout=2.5)
async def sweep(tag: int, how: str) -> int:
    return await program._do(tag, how)


program.STEPS["lift"], program.STEPS["sweep"] = lift, sweep
program.UNDOABLE.add("lift")


def I31_who_may_and_what_comes_first(checker: Checker, commit: Commit) -> Iterable[str]:
    """Only an agent with its label begins a step. Steps and runs of a higher priority are claimed first, and those that
    wait longer before others. In a claim that goes from queue to queue, the latter holds within each queue of a lane: an
    agent of several namespaces shares its places between them."""
    for _, before, after in commit.steps:
        if after is None or after.state != "running" or (before is not None and before.state == "running"):
            continue
        lane = checker.lanes.get(after.lane)
        if lane is not None and LABEL in lane.needs and LABEL not in commit.process._labels:
            yield f"step {after.n} of {after.run_id} needs {LABEL}, and {commit.node} has no such label"
    if (
        commit.verb == "claim_steps"
        and len(commit.steps) == commit.asked["limit"]
        and not commit.asked.get("runs")
        and commit.asked.get("age_s") is None  # those who have waited long, whatever their priority
    ):
        taken = {(after.run_id, after.n) for _, _, after in commit.steps}
        walks = commit.asked.get("walks")
        lowest = min(before.priority for _, before, _ in commit.steps)
        last: dict[tuple[int, int] | None, tuple[int, float]] = {}
        for _, before, _ in commit.steps:
            queue = (before.lane, before.queue) if walks else None
            waited = (-before.priority, before.ready_at)
            last[queue] = max(last.get(queue, waited), waited)
        gates = checker.gates()
        for place, other in checker.steps.items():
            run = checker.runs.get(other.run_id)
            if (
                other.state == "ready"
                and place not in taken
                and other.lane in commit.asked["lanes"]
                and other.losses < checker.config.suspect_losses
                and other.ready_at <= commit.now
                and run is not None
                and run.state in ("running", "undoing")
                and gates.keeps(checker.lanes[other.lane], run) is None
                and (
                    other.priority > lowest
                    or (-other.priority, other.ready_at)
                    < last.get((other.lane, other.queue) if walks else None, FIRST)
                )
            ):
                yield f"step {other.n} of {other.run_id} with priority {other.priority} was passed over"
    if (
        commit.verb == "claim_runs"
        and len(commit.runs) == commit.asked["limit"]
        and commit.asked.get("age_s") is None
    ):
        claimed = {after.id for _, _, after in commit.runs}
        # A claim that goes from queue to queue takes runs that have something to deliver before it does so.
        walks = commit.asked.get("walks")
        least = min(
            (row.priority for _, row, _ in commit.runs if not walks or row.state == "pending"),
            default=PRIORITY_MAX,
        )
        for run in checker.runs.values():
            if (
                run.state == "pending"
                and run.owner is None
                and run.id not in claimed
                and run.queue >= 0
                and run.priority > least
            ):
                yield f"{run.id} with priority {run.priority} was passed over"


class Labels(Part):
    name = "labels"
    share = 0.2
    known = (lift, lower, sweep)
    checks = (I31_who_may_and_what_comes_first,)
    _everywhere = False

    def settings(self) -> dict[str, Any]:
        return {"steps_max": self.dice.choice((1, 2)), "runs_max": self.dice.choice((1, 2, 50))}

    def steps(self) -> tuple[str, ...]:
        return ("lift", "lift", "sweep", "sweep")

    def finished(self, plan: program.Plan) -> program.Plan:
        """Begin with some steps side by side, so that there are more than places."""
        first = plan[1] if plan[0] == "again" else plan
        first[1].insert(
            0, ["par", [["do", self.dice.choice(("lift", "sweep", "work")), 900 + i, "ok"] for i in range(4)]]
        )
        return plan

    def labels(self) -> tuple[str, ...]:
        return (LABEL,) if self._everywhere or self.dice.random() < 0.6 else ()

    def using(self, simulation: Simulation, workflow: Workflow[Any, Any], run_id: str) -> Workflow[Any, Any]:
        return workflow.using(priority=self.dice.choice((1, 0, 0, 3)))

    def heal(self, simulation: Simulation) -> None:
        self._everywhere = True
        simulation.spawn(("agent",))


@mutant("a step begins only at an agent that has its labels", within=30, part="labels")
def labels_do_not_matter(stack: ExitStack) -> None:
    code(stack, Claimer, "can_serve", lambda self, name, needs: name in self._steps)


@mutant("steps of a higher priority are claimed first", within=100, part="labels")
def priorities_do_not_matter(stack: ExitStack) -> None:
    sql(stack, "next_priority", "ORDER BY priority DESC", "ORDER BY priority")
