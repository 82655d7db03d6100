"""Runs that were promised to end within a moment, while leaders die and change: people are notified once, and only of what is open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from holdfast.supervisor import lateness
from holdfast.workflow.workflow import Workflow
from tests.simulation.mutants import code, mutant
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from tests.simulation.invariants import Checker, Commit
    from tests.simulation.simulation import Simulation

LATE = "SELECT id, run_id FROM alerts WHERE kind = 'run late' AND cleared_at IS NULL"
WARNED = "SELECT due_at, finished_at FROM runs WHERE id = ?"


def I62_warned_of_what_is_due(checker: Checker, commit: Commit) -> Iterable[str]:
    """A run that people are warned of is open at that moment and was promised to end. While its alert is open, it has no other."""
    if "alerts" not in commit.tables:
        return
    notified: set[str] = set()
    for number, run_id in checker.connection.execute(LATE).fetchall():
        if run_id in notified:
            yield f"two alerts say that {run_id} is late"
        notified.add(run_id)
        if number in checker.world.warned:
            continue
        checker.world.warned.add(number)
        checker.world.sometimes("a run is late")
        found = checker.connection.execute(WARNED, (run_id,)).fetchone()
        if found is None or found[0] is None or found[1] is not None:
            yield f"people are notified that {run_id} is late, and its due time and its end are {found}"


class Promises(Part):
    name = "promises"
    share = 0.1
    checks = (I62_warned_of_what_is_due,)

    def using(self, simulation: Simulation, workflow: Workflow[Any, Any], run_id: str) -> Workflow[Any, Any]:
        due_s = self.dice.choice((0.05, 0.2, 0.35, None))
        return workflow.using(due=due_s)

    def waits_for(self, simulation: Simulation) -> Iterator[str]:
        for _, run_id in simulation.checker.connection.execute(LATE).fetchall():
            yield f"people are notified that {run_id} is late, and it has ended"


@mutant("what has ended is late no more", within=60, part="promises")
def late_forever(stack: ExitStack) -> None:
    code(stack, lateness, "KINDS", frozenset())
