"""Runs with deadlines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from holdfast.decider.decider import Decider
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import DEADLINE
from holdfast.scheduler import scheduler
from holdfast.workflow.workflow import Workflow
from tests.simulation.mutants import code, mutant, sql
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from tests.simulation.invariants import Checker, Commit
    from tests.simulation.simulation import Simulation


def I28_deadlines_last(checker: Checker, commit: Commit) -> Iterable[str]:
    """A run's deadline never changes. Whoever goes on with the run has a timer for it, in each generation."""
    for _, before, after in commit.runs:
        if after is None:
            continue
        if before is not None and before.deadline != after.deadline:
            yield f"the deadline of {after.id} was {before.deadline} and is {after.deadline}"
        if before is None and after.parent_id is None and after.retry_of is None:
            limit_s = checker.world.limits_s.get(after.id)
            if after.forked_from is not None:
                origin = checker.runs[after.forked_from]
                limit_s = None if origin.deadline is None else origin.deadline - origin.created_at
            if (after.deadline is None) != (limit_s is None):
                yield f"{after.id} has the deadline {after.deadline} and the limit {limit_s}"
            elif after.deadline is not None and abs(after.deadline - after.created_at - limit_s) > 0.001:
                yield f"{after.id} has {after.deadline - after.created_at} s until its deadline, not {limit_s}"
    for _, before, after in commit.steps:
        if before is None and after is not None and after.run_id not in commit.retried:
            changed = (run for _, _, run in commit.runs if run is not None and run.id == after.run_id)
            run = next(changed, None) or checker.runs.get(after.run_id)
            if run is None or run.deadline is None or run.state in ("undoing", *RUN_ENDED):
                continue
            timers = checker.connection.execute(
                "SELECT ready_at FROM steps WHERE run_id = ? AND n > ? AND key LIKE '%' || ?",
                (run.id, run.base_n, DEADLINE),
            ).fetchall()
            if len(timers) != 1 or abs(timers[0][0] - run.deadline) > 0.001:
                yield f"{run.id} has the deadline {run.deadline}, and the timers {timers}"


class Deadlines(Part):
    name = "deadlines"
    share = 0.2
    checks = (I28_deadlines_last,)

    def begin(self, simulation: Simulation) -> None:
        for run_id in simulation.plans:
            simulation.limits_s[run_id] = self.dice.choice((0.4, 1.0, 2.5, 60.0, None))

    def using(self, simulation: Simulation, workflow: Workflow[Any, Any], run_id: str) -> Workflow[Any, Any]:
        limit_s = simulation.limits_s[run_id]
        return workflow if limit_s is None else workflow.using(timeout=limit_s)

    def endings(self, simulation: Simulation) -> Iterator[str]:
        """A run whose deadline was delivered before its end does not succeed, and ends because of it."""
        runs = simulation.checker.runs
        for step in simulation.checker.steps.values():
            if step.key.endswith(DEADLINE) and step.state == "succeeded" and step.delivered_seq:
                run = runs[step.run_id]
                simulation.sometimes("a deadline came")
                if run.state == "succeeded" and step.delivered_seq < simulation.checker.last_seq[run.id]:
                    yield f"I28 {run.id} succeeded after its deadline had come"
        for run in runs.values():
            late = run.deadline is not None and run.finished_at is not None and simulation.clocks_ok
            if (
                late
                and (run.finished_at or 0) > (run.deadline or 0) + LATE_MAX_S
                and run.state == "succeeded"
            ):
                yield f"I28 {run.id} succeeded {(run.finished_at or 0) - (run.deadline or 0):.1f} s after its deadline"


LATE_MAX_S = 8.0
"""How late a deadline may be delivered while things go wrong, and until a run was claimed after that."""


@mutant("a run that continues as new keeps its deadline", within=300, part="deadlines")
def new_generations_have_no_deadline(stack: ExitStack) -> None:
    class Forgetful(Decider):
        def __init__(self, *args: Any, **more: Any) -> None:
            if more.get("generation", 1) > 1:
                more["deadline"] = None
            super().__init__(*args, **more)

    code(stack, scheduler, "Decider", Forgetful)


@mutant("a deadline is counted from the start", within=60, part="deadlines")
def deadlines_are_longer(stack: ExitStack) -> None:
    sql(stack, "start_runs", "+ ?11,", "+ ?11 + 1,")


@mutant("a deadline ends the run", within=60, part="deadlines")
def deadlines_are_ignored(stack: ExitStack) -> None:
    from holdfast.decider.decider import Decider

    code(stack, Decider, "_expire", lambda self: None)
