"""Schedules, which some seeds play: a few that are due every second or two, with all overlap policies, while leaders die and
change, commits get lost and clocks jump. Somebody pauses and resumes them, runs them now, and fills what was missed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from holdfast import workflow
from holdfast.desk.schedules import BackfillRequest, ScheduleRequest
from holdfast.errors import HoldfastError
from holdfast.lifecycle import RUN_ENDED
from holdfast.store import schedules as storing
from holdfast.testing.world import EPOCH, Process
from holdfast.times import decision
from holdfast.times.plan import Missed, Overlap, Plan, read_plan
from tests.simulation.mutants import code, mutant
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from tests.simulation.invariants import Checker, Commit
    from tests.simulation.simulation import Simulation

OVERLAPS: tuple[Overlap, ...] = ("skip", "skip", "buffer_one", "buffer_all", "cancel_other", "allow")
LAST_S = 7.0
"""After so many seconds the schedules have no time any more: two seconds after the faults are over."""
SCHEDULES = "SELECT name, cursor, plan, state, created_at FROM schedules"
FIRES = "SELECT at, repeat, fate, run_id, last_at, times, backfill, ended FROM fires WHERE schedule = ?"
RUNS = "SELECT id, state FROM runs WHERE id LIKE ? || '@%' AND retry_of IS NULL AND forked_from IS NULL"


@workflow
async def scheduled(pause_s: float) -> str:
    await asyncio.sleep(pause_s)
    return "done"


def I48_one_fate(checker: Checker, commit: Commit) -> Iterable[str]:
    """Each time of a schedule up to its cursor has one fate, and none after it. A fate changes only if the time waited. Each
    time that was started has one run, and each run a time. Unless overlap is allowed, one run is open."""
    if not commit.tables & {"schedules", "backfills"}:
        return
    known = checker.world.fates
    for name, cursor, text, _, created in checker.connection.execute(SCHEDULES).fetchall():
        plan = read_plan(text)
        own: list[tuple[float, float]] = []
        started: list[str] = []
        for at, repeat, fate, run_id, last_at, times, backfill, _ in checker.connection.execute(
            FIRES, (name,)
        ).fetchall():
            was = known.get((name, at, repeat))
            if was not in {None, fate, "buffered"}:
                yield f"the fate of {at - EPOCH:g} of {name} was {was} and is {fate}"
            if was != fate:
                known[name, at, repeat] = fate
                checker.world.sometimes(f"a time of a schedule: {fate}")
            if run_id is not None:
                started.append(run_id)
            if repeat == 1 and at % 1 == 0 and backfill is None:
                own.append((at, last_at))
                found = len(list(plan.between(at - 1, last_at)))
                if found != times:
                    yield f"a fate of {name} stands for {times} times from {at - EPOCH:g} on, and there are {found}"
        yield from _covered(name, plan, created, cursor, sorted(own))
        runs = dict(checker.connection.execute(RUNS, (name,)).fetchall())
        lost = set() if checker.world.parts.plays("retention") else set(started) - runs.keys()
        if len(started) != len(set(started)) or lost or not runs.keys() <= set(started):
            yield f"{name} has the fires {sorted(started)} and the runs {sorted(runs)}"


def _covered(
    name: str, plan: Plan, created: float, cursor: float, own: list[tuple[float, float]]
) -> Iterator[str]:
    decided: list[float] = []
    for at, last_at in own:
        decided += plan.between(at - 1, last_at)
    expected = list(plan.between(created, cursor))
    if decided != expected:
        odd = sorted(set(decided) ^ set(expected)) or decided
        yield f"times of {name} that have no fate or two: {[at - EPOCH for at in odd]}, of {len(expected)}"


class Schedules(Part):
    name = "schedules"
    share = 0.1
    known = (scheduled,)
    checks = (I48_one_fate,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._plans: dict[str, Plan] = {}

    def begin(self, simulation: Simulation) -> None:
        for number in range(self.dice.randint(1, 3)):
            simulation.drive(self._play(simulation, f"s{number}"))

    async def _play(self, simulation: Simulation, name: str) -> None:
        dice = self.dice
        choices: tuple[Missed, ...] = ("once", "skip", "all")
        missed = dice.choice(choices)
        plan = Plan(
            f"{dice.choice((1, 1, 2))}s",
            end=EPOCH + LAST_S,
            overlap=dice.choice(OVERLAPS),
            missed=missed,
            missed_max=2 if missed == "all" else 1,
            jitter_s=dice.choice((0.0, 0.0, 0.5)),
            pause_after=dice.choice((None, 2)),
        )
        pause_s = dice.choice((0.0, 0.3, 1.5))
        await asyncio.sleep(dice.random())
        request = ScheduleRequest(name, scheduled.name, plan, f'{{"pause_s": {pause_s}}}'.encode())
        if await simulation.asked(partial(_create, request), tries=20) is None:
            return
        self._plans[name] = plan
        for _ in range(dice.choice((0, 1, 2))):
            await asyncio.sleep(dice.random() * 2)
            act = dice.choice(("pause", "run", "backfill"))
            if act == "pause":
                await simulation.asked(partial(_steer, "pause", name), tries=4)
                await asyncio.sleep(dice.random() * 2)
            elif act == "run":
                await simulation.asked(partial(_steer, "run", name), tries=2)
            else:
                again = dice.choice(("none", "failed", "all"))
                await simulation.asked(partial(_fill, name, again, dice.choice((1, 2))), tries=2)
        await simulation.asked(partial(_steer, "resume", name), tries=50)

    def heal(self, simulation: Simulation) -> None:
        for name in self._plans:
            simulation.drive(self._resume(simulation, name))

    async def _resume(self, simulation: Simulation, name: str) -> None:
        """Resume what failures have paused, until the schedule has no time any more."""
        for _ in range(8):
            await asyncio.sleep(1)
            await simulation.asked(partial(_steer, "resume", name), tries=4)

    def waits_for(self, simulation: Simulation) -> Iterator[str]:
        execute = simulation.checker.connection.execute
        for name, state in execute("SELECT name, state FROM schedules WHERE state = 'active'").fetchall():
            yield f"schedule {name} is {state}, and should have ended"
        for (name,) in execute("SELECT DISTINCT schedule FROM fires WHERE ended = 0").fetchall():
            if execute("SELECT state FROM schedules WHERE name = ?", (name,)).get != "paused":
                yield f"schedule {name} has a time whose run was not seen to end"
        for (one,) in execute("SELECT id FROM backfills WHERE state = 'running'").fetchall():
            yield f"backfill {one} did not end"

    def endings(self, simulation: Simulation) -> Iterator[str]:
        """Every run of a schedule that succeeded returned what its code returns."""
        for run in simulation.checker.runs.values():
            schedule, at, _ = run.id.partition("@")
            if at and schedule in self._plans and run.state in RUN_ENDED:
                if run.state == "succeeded" and run.output != b'"done"':
                    yield f"G2 run {run.id} returned {run.output!r}"


async def _create(request: ScheduleRequest, process: Process) -> Any:
    return await process.desk.schedules.create(process.who, request) or True


async def _steer(act: str, name: str, process: Process) -> Any:
    try:
        return await getattr(process.desk.schedules, act)(process.who, name)
    except HoldfastError as no:
        return no


async def _fill(name: str, again: str, most: int, process: Process) -> Any:
    now = await process.store.now()
    begin, end = (datetime.fromtimestamp(int(at), UTC) for at in (now - 3, now))
    try:
        request = BackfillRequest(begin, end, most=most, again=again)
        return await process.desk.schedules.backfill(process.who, name, request)
    except HoldfastError as no:
        return no


@mutant("a time that is missed has a fate", within=100, part="schedules")
def missed_times_are_forgotten(stack: ExitStack) -> None:
    code(stack, decision._Decider, "_miss", lambda self, *miss: None)
    code(stack, decision, "count_all", lambda *span: None)


@mutant("a time that is started has its run", within=20, part="schedules")
def times_start_nothing(stack: ExitStack) -> None:
    async def start(session: Any, starts: Any, takers: Any) -> int:
        return 0

    code(stack, storing, "_start", start)


@mutant("the cursor moves with the fate", within=20, part="schedules")
def the_cursor_stays(stack: ExitStack) -> None:
    real = storing._moved

    def moved(row: Any) -> Any:
        return real(structs.replace(row, cursor=row.cursor - 1))

    code(stack, storing, "_moved", moved)
