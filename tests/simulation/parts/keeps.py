"""Sagas that pass a point of no return, rest for a while and fail then. So their runs are replayed in between."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from msgspec import structs

from holdfast.decider import undo_plan
from holdfast.decider.decider import Decider
from tests.simulation.mutants import code, mutant
from tests.simulation.parts.part import Part
from tests.simulation.program import Plan

FIRST_TAG = 800
"""Tags from here on are not drawn by others."""


class Keeps(Part):
    name = "keeps"
    share = 0.12

    def finished(self, plan: Plan) -> Plan:
        dice = self.dice
        first = plan[1] if plan[0] == "again" else plan
        rest = ["nap", dice.choice((0.3, 1.0, 2.0))]
        before = [["do", dice.choice(("book", "pay")), FIRST_TAG + i, "quick"] for i in range(2)]
        after = [["do", "book", FIRST_TAG + 5 + i, "quick"] for i in range(2)]
        body = [before[0], before[1], ["keep"], after[0], rest, after[1], rest]
        first[1].insert(dice.randint(0, 1), ["saga", ["seq", body], True])
        return plan


@mutant("what came before keep() in a saga stays after a replay", within=60, part="keeps")
def replays_forget_keep(stack: ExitStack) -> None:
    real = Decider.keep

    def keep(self: Any) -> None:
        kept = self._kept_undoable
        real(self)
        if self._replaying:
            self._kept_undoable = kept

    code(stack, Decider, "keep", keep)


@mutant("what came before keep() stays when the run is undone", within=60, part="keeps")
def undoing_runs_forget_keep(stack: ExitStack) -> None:
    real = undo_plan.Undoing._plan

    def plan(self: Any, steps: Any) -> None:
        run, self.run = self.run, structs.replace(self.run, kept_n=0)
        real(self, steps)
        self.run = run

    code(stack, undo_plan.Undoing, "_plan", plan)
