"""Steps with small budgets, one for each class of failure, that fail in one way until their budget is used up."""

from __future__ import annotations

from contextlib import ExitStack

from holdfast import Retry, policy, step
from tests.simulation import program
from tests.simulation.mutants import code, mutant
from tests.simulation.parts.part import Part


@step(
    retry=Retry(attempts=4, delay=0.1, max_delay=0.4, jitter="none", timeouts=2, throttles=1, losses=1),
    timeout=0.4,
    undo_failed=True,
)
async def tire(tag: int, how: str) -> int:
    return await program._do(tag, how)


@tire.undo(retry=Retry(attempts=6, delay=0.1, max_delay=0.3))
async def rest(done: int | None, tag: int, how: str) -> None:
    await program._undo(done, tag, how)


program.STEPS["tire"] = tire
program.UNDOABLE.add("tire")


class Budgets(Part):
    name = "budgets"
    share = 0.15
    known = (tire, rest)

    def steps(self) -> tuple[str, ...]:
        return ("tire", "tire", "tire")

    def behaviours(self) -> tuple[str, ...]:
        return ("never ends", "never ends", "puts off")


@mutant("a step times out no more often than its budget for that allows", within=60, part="budgets")
def timeouts_have_one_more(stack: ExitStack) -> None:
    real = policy._after_timeout
    code(stack, policy, "_after_timeout", lambda retry, times, **more: real(retry, times - 1, **more))
