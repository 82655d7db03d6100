"""Operators who steer runs that undo themselves: they retry undos that gave up, count them as done, or abandon the
run. Others cancel a run again whose code went on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.decider.undo_plan import Undoing
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import UNDO, UNDO_PREFIX, undone_key
from holdfast.testing.world import Process
from tests.simulation.mutants import code, mutant, sql
from tests.simulation.nodes import carried_out
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from tests.simulation.invariants import Checker, Commit
    from tests.simulation.simulation import Simulation


def I29_steered_as_asked(checker: Checker, commit: Commit) -> Iterable[str]:
    """A run that is abandoned ends with the commit that delivers this. What an operator skips is not tried again. A stuck
    run goes on when it is steered, and its alert is cleared."""
    for _, before, after in commit.signals:
        if after is None or after.name != UNDO or not after.delivered_seq:
            continue
        if before is not None and before.delivered_seq:
            continue
        asked = json.loads(after.payload)
        ended = any(
            run is not None and run.id == after.run_id and run.state in RUN_ENDED for _, _, run in commit.runs
        )
        if asked["act"] == "abandon" and not ended and checker.runs[after.run_id].state == "undoing":
            yield f"{after.run_id} was abandoned and goes on"
        if asked["act"] == "skip" and asked["n"] is not None:
            step = checker.steps.get((after.run_id, asked["n"]))
            if step is not None:
                key = undone_key(step.key)[0] if step.key.startswith(UNDO_PREFIX) else step.key
                checker.world.skipped[after.run_id, key] = after.delivered_seq
    for _, before, after in commit.steps:
        if before is None and after is not None and after.key.startswith(UNDO_PREFIX):
            undone = undone_key(after.key)[0]
            if after.after_seq >= checker.world.skipped.get((after.run_id, undone), after.after_seq + 1):
                yield f"the undo of {undone} of {after.run_id} was skipped, and is tried again"
    if commit.verb == "steer_undo":
        run_id = commit.asked["run_id"]
        run = next((run for _, _, run in commit.runs if run and run.id == run_id), checker.runs.get(run_id))
        if run is not None and run.state == "stuck":
            yield f"{run_id} was steered and is still stuck"
        left = "SELECT count(*) FROM alerts WHERE key = 'run stuck:' || ? AND cleared_at IS NULL"
        if checker.connection.execute(left, (run_id,)).get:
            yield f"{run_id} was steered, and the alert that it is stuck is still open"
        waits = "SELECT 1 FROM signals WHERE run_id = ? AND name = ? AND delivered_seq IS NULL"
        if not checker.connection.execute(waits, (run_id, UNDO)).get:
            yield f"{run_id} was steered, and got no signal"


class Steering(Part):
    name = "steering"
    share = 0.2
    checks = (I29_steered_as_asked,)

    def behaviours(self) -> tuple[str, ...]:
        return ("gives up",) * 5

    def steps(self) -> tuple[str, ...]:
        return ("book", "book", "pay")

    def begin(self, simulation: Simulation) -> None:
        simulation.drive(self._steer(simulation))

    async def _steer(self, simulation: Simulation) -> None:
        dice, left = self.dice, self.dice.randint(2, 6)
        while left and not simulation.healed:
            await asyncio.sleep(0.2 + dice.random() * 0.5)
            runs = [run for run in simulation.checker.runs.values() if run.state in ("stuck", "undoing")]
            if not runs:
                continue
            left -= 1
            run = dice.choice(runs)
            act = dice.choice(("retry", "skip", "skip", "abandon"))
            undos = [
                step.n
                for step in simulation.checker.steps.values()
                if step.run_id == run.id and step.key.startswith(UNDO_PREFIX)
            ]
            n = dice.choice(undos) if undos and act != "abandon" and dice.random() < 0.6 else None
            simulation.log(f"steer {run.id}: {act} {n}")
            if await simulation.asked(partial(_steered, run.id, act, n), tries=3) is not None:
                simulation.sometimes(f"an undo was steered: {act}")


async def _steered(run_id: str, act: str, n: int | None, process: Process) -> Any:
    return await carried_out(process, process.store.operators.steer_undo(run_id, act, n, "sim", "steered"))


@mutant("a run that is abandoned ends", within=100, part="steering")
def abandoned_runs_go_on(stack: ExitStack) -> None:
    real = Undoing.deliver_signal

    def deliver_signal(self: Any, name: str, payload: bytes, at: float) -> int:
        return real(self, name, payload.replace(b'"abandon"', b'"go on"'), at)

    code(stack, Undoing, "deliver_signal", deliver_signal)


@mutant("an undo that an operator skipped is not tried again", within=100, part="steering")
def skipped_undos_come_back(stack: ExitStack) -> None:
    real = Undoing.deliver_signal

    def deliver_signal(self: Any, name: str, payload: bytes, at: float) -> int:
        return real(self, name, payload.replace(b'"skip"', b'"retry"'), at)

    code(stack, Undoing, "deliver_signal", deliver_signal)


@mutant("the alert about a stuck run is cleared when somebody steers it", within=100, part="steering")
def stuck_alerts_stay(stack: ExitStack) -> None:
    sql(stack, "clear_stuck", "cleared_at IS NULL", "cleared_at IS NULL AND 0")
