"""Steps that fail after they had a part of their effect. They declare `undo_failed`, so that is undone."""

from __future__ import annotations

from contextlib import ExitStack

from holdfast import Retry, Stop, here, step
from holdfast.decider import effect, undo_plan
from tests.simulation import program
from tests.simulation.ledger import ledger
from tests.simulation.mutants import code, mutant
from tests.simulation.parts.part import Part


@step(retry=Retry(attempts=2, delay=0.1), timeout=2.5, undo_failed=True)
async def wire(tag: int, how: str) -> int:
    """A step that fails after its effect, if it fails."""
    if how == "stop" or (how == "flaky" and here.attempt <= 2):
        await program._do(tag, "quick")
        raise Stop("half of it is done") if how == "stop" else ConnectionError("half of it is done")
    return await program._do(tag, how)


@wire.undo(retry=Retry(attempts=6, delay=0.1, max_delay=0.3))
async def unwire(done: int | None, tag: int, how: str) -> None:
    await program._undo(done, tag, how)
    ledger.simulation.sometimes("a step that failed for sure was undone") if done is None else None


program.STEPS["wire"] = wire
program.UNDOABLE.add("wire")


class Halves(Part):
    name = "halves"
    share = 0.2
    known = (wire, unwire)

    def steps(self) -> tuple[str, ...]:
        return ("wire", "wire", "wire")

    def behaviours(self) -> tuple[str, ...]:
        return ("stop", "flaky", "flaky")

    def kinds(self) -> tuple[str, ...]:
        return ("saga", "try")


@mutant("a step that failed for sure is undone if it declares undo_failed", within=60, part="halves")
def sure_failures_stay(stack: ExitStack) -> None:
    real = undo_plan._may_have_happened
    code(stack, undo_plan, "_may_have_happened", lambda row, undo: real(row, undo.removesuffix("!")))
    _ = effect
