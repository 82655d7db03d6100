"""Operators who mend what a run failed of, and retry the run.

A step stops its run the first time, and succeeds in the retry. Some of these steps are in sagas, which the exception leaves.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from holdfast.store import retries
from tests.simulation.mutants import code, mutant
from tests.simulation.parts.part import Part


class Repairs(Part):
    name = "repairs"
    share = 0.12

    def behaviours(self) -> tuple[str, ...]:
        return ("mended later",) * 4

    def steps(self) -> tuple[str, ...]:
        return ("book", "book", "pay")

    def kinds(self) -> tuple[str, ...]:
        return ("saga",) * 4


@mutant("a retry does again what a saga undid because the run failed", within=200, part="repairs")
def sagas_that_ended_the_run_stay_undone(stack: ExitStack) -> None:
    real = retries._end

    def end(*args: Any) -> Any:
        return real(*args)._replace(since=float("inf"))

    code(stack, retries, "_end", end)
