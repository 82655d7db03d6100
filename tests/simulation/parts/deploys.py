"""A deploy in the middle of a seed: all processes die, and those that replace them have new code.

Old and new code differ at the `patch` parts of a plan. The old code does the first part of each. The new code asks for a
marker, and does the first or the second. Whatever dies when, a run goes one way at all parts with the same name, no
scheduler holds it, and its marker says which way it went.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast import patched
from holdfast.decider.markers import Markers
from holdfast.testing.loop import PROCESS
from holdfast.testing.world import Process
from tests.simulation import program
from tests.simulation.ledger import ledger
from tests.simulation.mutants import code, mutant
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

NAMES = ("discount", "tax")


class Deploys(Part):
    name = "deploys"
    share = 0.1

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.at_s = 0.2 + self.dice.random() * 2.5
        self._is_deployed = False
        self._newer: set[Process] = set()
        """The processes that have the new code."""

    def kinds(self) -> tuple[str, ...]:
        return ("patch",) * 8

    def spawned(self, simulation: Simulation, process: Process) -> None:
        if self._is_deployed:
            self._newer.add(process)

    def begin(self, simulation: Simulation) -> None:
        simulation._later(self.at_s, partial(self._deploy, simulation))

    def _deploy(self, simulation: Simulation) -> None:
        """Kill every process. Others with the new code come up in their place, as after any death."""
        if simulation.healed:
            return
        self._is_deployed = True
        simulation.log("new code is deployed")
        for process in simulation.living:
            simulation.kill(process)

    def has_new_code(self) -> bool:
        """True if the process that runs now has the new code."""
        return PROCESS.get() in self._newer

    def endings(self, simulation: Simulation) -> Iterator[str]:
        """A run that did something the old way did nothing the new way, and its marker says so."""
        rows = simulation.checker.connection.execute(
            "SELECT run_id, name, output FROM steps WHERE kind = 'marker'"
        )
        markers = {(run_id, name): output == b"true" for run_id, name, output in rows.fetchall()}
        for place, ways in self._ways(simulation).items():
            run_id, name = place
            if len(ways) > 1:
                yield f"G2 run {run_id} went both ways at the marker {name}"
            elif place in markers and markers[place] not in ways:
                yield f"G2 run {run_id} went another way at the marker {name} than was recorded"
            elif place in markers:
                simulation.sometimes(f"a run went the {'new' if markers[place] else 'old'} way at a marker")

    @staticmethod
    def _ways(simulation: Simulation) -> dict[tuple[str, str], set[bool]]:
        """Return which ways each run had effects behind each marker."""
        tags = {run_id: dict(_tags(plan)) for run_id, plan in simulation.plans.items()}
        found: dict[tuple[str, str], set[bool]] = {}
        for run_id, tag in simulation.book.by_run:
            first = run_id.partition("/")[0].partition("~")[0]
            if tag in tags.get(first, {}):
                name, is_new = tags[first][tag]
                found.setdefault((run_id, name), set()).add(is_new)
        return found


def _tags(plan: Any) -> Iterator[tuple[int, tuple[str, bool]]]:
    """Yield the tag of each step behind a marker, the marker's name, and whether it is the new way."""
    if not isinstance(plan, list):
        return
    if plan[:1] == ["patch"]:
        _, name, old, new = plan
        yield old[2], (name, False)
        yield new[2], (name, True)
        return
    for part in plan:
        yield from _tags(part)


def _draw(draw: program.Draw, depth: int, bounded: bool) -> program.Plan:
    return ["patch", draw.dice.choice(NAMES), draw.do(), draw.do()]


async def _walk(plan: program.Plan) -> Any:
    """Do what the code of this process does there."""
    _, name, old, new = plan
    (part,) = [part for part in ledger.simulation.parts if isinstance(part, Deploys)]
    is_new = part.has_new_code() and patched(name)
    return await program._walk(new if is_new else old)


def _foretell(plan: program.Plan) -> Any:
    """Either way may fail on purpose, so only a run that must fail both ways must fail."""
    _, _, old, new = plan
    for part in (old, new):
        try:
            program.expected_result(part)
        except program.MustFail:
            continue
        return program.ANY
    raise program.MustFail


program.CASES["patch"] = program.Case(_draw, _walk, _foretell)


@mutant("a run that went past a marker goes the old way", within=60, part="deploys")
def replays_go_the_new_way(stack: ExitStack) -> None:
    real = Markers.ask

    def ask(self: Any, name: str, *, is_new: bool, seq: int) -> bool:
        return real(self, name, is_new=True, seq=seq)

    code(stack, Markers, "ask", ask)


@mutant("the way of a run is recorded", within=60, part="deploys")
def markers_are_not_recorded(stack: ExitStack) -> None:
    code(stack, Markers, "take", lambda self, last_n: [])
