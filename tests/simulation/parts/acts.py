"""Acts on many runs, which some seeds play: operators plan to cancel, hold, release, retry or skip whatever fits, and carry
it out while everything goes wrong. Whoever carries out an act may die; then others go on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.errors import WrongState
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import RunState
from holdfast.store import acts as acting
from holdfast.store.operators import Cause
from holdfast.store.rows import run_of
from holdfast.store.verbs import Verb
from holdfast.testing.world import Process
from tests.simulation.mutants import code, mutant, sql
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from tests.simulation.invariants import Checker, Commit
    from tests.simulation.simulation import Simulation

VERBS = ("cancel", "hold", "hold", "release", "retry", "retry")
ANY = tuple(str(state) for state in RunState)
OPEN = tuple(str(state) for state in RunState if state not in RUN_ENDED)
MAIN = {
    "cancel": ("cancel", "abandon"),
    "hold": ("hold",),
    "release": ("release",),
    "retry": ("retry",),
    "skip": ("skip",),
}
"""What the journal calls the verb of an act."""
ACT = "SELECT verb, state, fence, runs, done, changed, refused FROM acts WHERE id = ?"
RUNS = "SELECT run_id, state, fence, fate FROM act_runs WHERE act_id = ?"
JOURNAL = "SELECT verb FROM journal WHERE run_id = ? AND note LIKE ?"


def I42_acted_on_once_as_planned(checker: Checker, commit: Commit) -> Iterable[str]:
    """Only who has the act carries it out. A run is acted on if it is still as it was planned, once, with a row in the
    journal, and its fate never changes. A run that has changed is not touched."""
    if commit.verb not in ("carry_out", "refuse_next") or "acts" not in commit.tables:
        return
    act_id = commit.asked["act_id"]
    verb, _, fence, *_ = checker.connection.execute(ACT, (act_id,)).fetchall()[0]
    if fence != commit.asked["fence"]:
        yield f"act {act_id} was carried out with the fence {commit.asked['fence']}, and it is {fence}"
    known = checker.world.fates
    touched = {
        before.id: (before, after)
        for _, before, after in commit.runs
        if before is not None and after is not None
    }
    for run_id, state, planned_fence, fate in checker.connection.execute(RUNS, (act_id,)).fetchall():
        was = known.get((act_id, run_id))
        if was is not None and was != fate:
            yield f"the fate of {run_id} in act {act_id} was {was} and is {fate}"
        if fate is None or was is not None:
            continue
        known[act_id, run_id] = fate
        checker.world.sometimes(f"an act: {fate}")
        before, after = touched.get(run_id, (checker.runs.get(run_id),) * 2)
        entries = Counter(
            row[0] for row in checker.connection.execute(JOURNAL, (run_id, f"%act {act_id}%")).fetchall()
        )
        if fate == "done":
            if before is None or (before.state, before.fence) != (state, planned_fence):
                yield f"{run_id} was planned as {state} {planned_fence}, and acted on as {before}"
            if not entries or sum(entries[one] for one in MAIN[verb]) > 1:
                yield f"{run_id} was acted on, and the journal has {dict(entries)}"
        else:
            if entries:
                yield f"{run_id} is {fate}, and the journal has {dict(entries)}"
            if before is not None and after is not None and before[1:4] != after[1:4]:
                yield f"{run_id} is {fate}, and was {before} and is {after}"


class Acts(Part):
    name = "acts"
    share = 0.15
    checks = (I42_acted_on_once_as_planned,)

    def settings(self) -> dict[str, Any]:
        return {
            "act_batch_max": self.dice.choice((1, 1, 2, 100)),
            "act_lease_s": self.dice.choice((0.01, 0.1, 0.8)),
        }

    def behaviours(self) -> tuple[str, ...]:
        return ("gives up", "broken")

    def begin(self, simulation: Simulation) -> None:
        for _ in range(self.dice.randint(2, 5)):
            simulation.drive(self._act(simulation, self.dice.random() * 3))

    async def _act(self, simulation: Simulation, after_s: float) -> None:
        """Plan an act, wait a little, and let one or two processes carry it out. Somebody may stop it."""
        dice = self.dice
        await asyncio.sleep(after_s)
        # What an operator counts as undone is there, and a retry would do it once more. So no seed plays both.
        retries = simulation.parts.retries
        verb = dice.choice(VERBS if retries else (*VERBS, "skip"))
        force = verb == "cancel" and not retries and dice.random() < 0.4
        # A run that serves updates must succeed: see `updates.py`.
        prefix = "r" if simulation.parts.plays("updates") or dice.random() < 0.3 else None
        states = ANY if retries else OPEN
        plan = await simulation.asked(partial(_planned, verb, states, force, prefix), tries=4)
        if plan is None:
            return
        simulation.log(f"planned {verb} {plan.id}: {plan.preview.sentence}")
        await asyncio.sleep(dice.random())
        for _ in range(dice.choice((1, 1, 2))):
            simulation.drive(self._carry_out(simulation, plan.id))
        if dice.random() < 0.2:
            await asyncio.sleep(dice.random() * 0.3)
            if await simulation.asked(partial(_stopped, plan.id), tries=2) is not None:
                simulation.sometimes("an act was stopped")

    async def _carry_out(self, simulation: Simulation, act_id: str) -> None:
        # Few tries: after that, it is the leader who must go on.
        await simulation.asked(partial(_carried_out, act_id), tries=self.dice.choice((1, 2)))

    def observe(self, simulation: Simulation, commit: Commit) -> None:
        if commit.verb == "take_act" and "acts" in commit.tables:
            simulation.sometimes("an act was taken over")

    def waits_for(self, simulation: Simulation) -> Iterator[str]:
        running = "SELECT id FROM acts WHERE state = 'running'"
        for (act_id,) in simulation.checker.connection.execute(running).fetchall():
            yield f"act {act_id} was begun and did not end"

    def endings(self, simulation: Simulation) -> Iterator[str]:
        """What an act counted is what became of its runs, and nothing is left of an act that is done."""
        rows = simulation.checker.connection.execute("SELECT id, state FROM acts").fetchall()
        for act_id, state in rows:
            _, _, _, runs, *counted = simulation.checker.connection.execute(ACT, (act_id,)).fetchall()[0]
            fates = Counter(
                fate for *_, fate in simulation.checker.connection.execute(RUNS, (act_id,)).fetchall()
            )
            if counted != [fates["done"], fates["changed"], fates["refused"]]:
                yield f"G2 act {act_id} counted {counted} of {dict(fates)}"
            if state == "done" and (fates[None] or sum(counted) != runs):
                yield f"G2 act {act_id} is done, and counted {counted} of {runs} runs, {dict(fates)}"


async def _planned(
    verb: Any, states: tuple[str, ...], force: bool, prefix: str | None, process: Process
) -> Any:
    return await process.plan(verb, state=states, force=force, prefix=prefix)


async def _carried_out(act_id: str, process: Process) -> Any:
    try:
        return await process.act(act_id).carry_out()
    except WrongState as no:
        return no


async def _stopped(act_id: str, process: Process) -> Any:
    return await process.store.acts.stop_act(act_id, "sim")


@mutant("a run that has changed since the plan is left alone", within=100, part="acts")
def changed_runs_are_acted_on(stack: ExitStack) -> None:
    real = acting._OneRun.on

    async def on(self: Any, session: Any, planned: Any) -> Any:
        row = await session.row(Verb.lock_run, planned[0])
        now = planned if row is None else (planned[0], run_of(row).state, run_of(row).fence)
        return await real(self, session, now)

    code(stack, acting._OneRun, "on", on)


@mutant("the leader goes on with an act that nobody carries out", within=150, part="acts")
def idle_acts_stay(stack: ExitStack) -> None:
    sql(stack, "idle_acts", "LIMIT ?1", "LIMIT 0 * ?1")


@mutant("what an act says became of a run is what it did", within=20, part="acts")
def all_runs_seem_to_refuse(stack: ExitStack) -> None:
    sql(stack, "end_fates", "SET fate = ?2", "SET fate = 'refused'")


@mutant("the journal of each run names the act", within=20, part="acts")
def acts_leave_no_trace(stack: ExitStack) -> None:
    code(stack, Cause, "said", lambda self, words: words)
