"""A store that keeps ended runs for some seconds only, so that runs are removed beside others that go on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from math import inf
from typing import TYPE_CHECKING, Any

from holdfast.lifecycle import RUN_ENDED
from holdfast.supervisor.retention import DAY_S
from tests.simulation.mutants import mutant, sql
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from tests.simulation.invariants import Checker, Commit
    from tests.simulation.simulation import Simulation

KEEP_S = 5.0
"""Longer than things go wrong. A start that is tried again must find the run that it started."""
TABLES = {
    "steps": "run_id", "attempts": "run_id", "signals": "run_id", "quarantine": "run_id", "twins": "run_id",
    "joins": "waiter_id", "inherited": "run_id",
    "journal": "via IS NULL AND run_id",
}  # fmt: skip
"""What belongs to a run, and by which column. The audit outlives it."""


def I30_only_what_nobody_needs(checker: Checker, commit: Commit) -> Iterable[str]:
    """A run is removed only long after its end, whole, after its children, and not while a run above it is open or can be
    retried."""
    removed = [before for _, before, after in commit.runs if after is None]
    # The leader looks at the clock once in a pass, and the clock may be set back until it removes what was old then.
    old = commit.now - KEEP_S + 0.001 if checker.world.clocks_ok else inf
    for run in removed:
        if commit.verb != "prune":
            yield f"{run.id} is gone"
        checker.world.pruned.add(run.id)
        if run.parent_id is not None:
            checker.world.sometimes("a child was removed before its parent")
        if run.state not in RUN_ENDED or run.finished_at > old:
            yield f"{run.id}, which is {run.state}, was removed {commit.now - (run.finished_at or commit.now):.1f} s after its end"
        above = checker.runs.get(run.parent_id or "")
        while above is not None:
            is_kept = above.state != "succeeded" and (above.finished_at or 0.0) > old
            if is_kept and above.id not in checker.world.pruned:
                yield f"{run.id} was removed, and a retry of {above.id} above it may have to undo it"
            if above.state not in RUN_ENDED:
                yield f"{run.id} was removed, and {above.id} above it is {above.state}"
            above = checker.runs.get(above.parent_id or "")
        for child in checker.runs.values():
            if child.parent_id == run.id and child.id not in checker.world.pruned:
                yield f"{run.id} was removed, and its child {child.id} was not"
        for table, column in TABLES.items():
            left = checker.connection.execute(
                f"SELECT count(*) FROM {table} WHERE {column} = ?", (run.id,)
            ).get
            if left:
                yield f"{run.id} was removed, and {left} rows of {table} were not"
    if commit.verb == "prune" and not removed:
        for _, before, after in commit.steps:
            if after is None and checker.runs[before.run_id].state not in RUN_ENDED:
                yield f"step {before.n} of {before.run_id} was removed, and its run goes on"


class Retention(Part):
    name = "retention"
    share = 0.12
    checks = (I30_only_what_nobody_needs,)

    def settings(self) -> dict[str, Any]:
        return {
            "keep_days": KEEP_S / DAY_S,
            "prune_every_s": 0.5,
            "prune_rows_max": self.dice.choice((3, 500)),
            "keep_nodes_days": 2.0 / DAY_S,
            "keep_journal_days": 2.0 / DAY_S,
        }

    def kinds(self) -> tuple[str, ...]:
        return ("child", "nap", "child")

    def waits_for(self, simulation: Simulation) -> Iterator[str]:
        for run_id in simulation.checker.runs:
            if run_id not in simulation.pruned:
                yield f"{run_id} has ended and was never removed"


@mutant("a run stays while one above it is open", within=100, part="retention")
def children_of_open_runs_are_removed(stack: ExitStack) -> None:
    sql(stack, "prunable", "SELECT 1 FROM above WHERE finished_at IS NULL", "SELECT 1 FROM above WHERE 0")


@mutant("a run stays while one above it can be retried", within=100, part="retention")
def children_of_failed_runs_are_removed(stack: ExitStack) -> None:
    sql(stack, "prunable", "finished_at >= ?2 OR", "0 OR")


@mutant("what belongs to a run is removed with it", within=30, part="retention")
def attempts_stay(stack: ExitStack) -> None:
    sql(stack, "prune_attempts", "LIMIT ?2", "LIMIT 0 * ?2")


@mutant("a run is removed after its children", within=60, part="retention")
def parents_are_removed_first(stack: ExitStack) -> None:
    sql(stack, "prunable", "WHERE c.parent_id = r.id", "WHERE c.parent_id = r.id AND c.id = ''")


@mutant("a run is kept for as long as the settings say", within=30, part="retention")
def runs_are_removed_early(stack: ExitStack) -> None:
    sql(stack, "old_runs", "finished_at < ?2", "finished_at < ?2 + 2")
