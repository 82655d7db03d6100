"""What a part of the simulation is. Each part has a module of its own, with its dice, its cases of plans, its
invariants and its mutants, and a line in `KINDS` of `tests/simulation/parts/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.workflow.step import Step
from holdfast.workflow.workflow import Workflow

if TYPE_CHECKING:
    from holdfast.testing.world import Process
    from tests.simulation.invariants import Checker, Commit
    from tests.simulation.program import Plan
    from tests.simulation.simulation import Simulation


class Part:
    """Something that only some seeds play. There is one object for each seed that plays it.

    A part draws from its own dice, so a seed that does not play it is the same as if the part did not exist. Its
    methods are called at the moments that their names say. None of them has to do anything.
    """

    name: ClassVar[str]
    share: ClassVar[float]
    """The share of the seeds that play it."""
    goes_by_time: ClassVar[bool] = False
    """What is promised about it holds for a store whose clock is never set back."""
    known: ClassVar[tuple[Step[Any, Any] | Workflow[Any, Any], ...]] = ()
    """Steps and workflows that are declared in its module. Only seeds that play the part know them."""
    checks: ClassVar[tuple[Callable[[Checker, Commit], Iterable[str]], ...]] = ()
    """Its invariants, which are called after every commit."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = Random(f"{self.name}/{seed}")
        self.is_played = self.dice.random() < self.share

    # --- what is drawn ------------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """Return limits of the configuration that this part needs."""
        return {}

    def steps(self) -> tuple[str, ...]:
        """Return names of steps that are drawn beside the others. See `program.STEPS`."""
        return ()

    def behaviours(self) -> tuple[str, ...]:
        """Return behaviours of steps that are drawn beside the others."""
        return ()

    def kinds(self) -> tuple[str, ...]:
        """Return kinds of plans that are drawn beside the others. See `program.CASES`."""
        return ()

    def finished(self, plan: Plan) -> Plan:
        """Return what a run's plan becomes, after it was drawn."""
        return plan

    def using(self, simulation: Simulation, workflow: Workflow[Any, Any], run_id: str) -> Workflow[Any, Any]:
        """Return the workflow as the run with this id is started."""
        return workflow

    def labels(self) -> tuple[str, ...]:
        """Return the labels of a process that starts."""
        return ()

    def roles(self, drawn: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """Return the roles of the processes that begin, for those that were drawn."""
        return drawn

    def process_type(self, roles: tuple[str, ...]) -> type[Process] | None:
        """Return the class of a process with these roles, if it is not the usual one."""
        return None

    # --- what happens -------------------------------------------------------------------------------------------------

    def spawned(self, simulation: Simulation, process: Process) -> None:
        """A process was made, and is not opened yet."""

    def begin(self, simulation: Simulation) -> None:
        """The seed begins: its runs are drawn, and nothing has happened yet."""

    def observe(self, simulation: Simulation, commit: Commit) -> None:
        """Something was committed, and its invariants were checked."""

    def renewed(self, simulation: Simulation, node: str) -> None:
        """The lease of a node was renewed. Nothing else was committed, so no invariant was checked."""

    async def answer(self, simulation: Simulation, process: Process, verb: str) -> None:
        """The store has answered, and the answer is on its way to the process."""

    def killed(self, simulation: Simulation, process: Process) -> None:
        """A process was killed, or vanished with its host."""

    def heal(self, simulation: Simulation) -> None:
        """All faults are over."""

    # --- how it ends --------------------------------------------------------------------------------------------------

    def waits_for(self, simulation: Simulation) -> Iterator[str]:
        """Yield what must still happen when all runs have ended. The seed ends when nothing is left, and is broken if
        something is left after the limit."""
        yield from ()

    def endings(self, simulation: Simulation) -> Iterator[str]:
        """Yield what is wrong at the end of the seed."""
        yield from ()

    def close(self) -> None:
        """The seed is over, however it ended."""
