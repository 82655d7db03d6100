"""Limits, which some seeds play: steps under a limit for each key and under an adaptive one that all share, an operator who sets
numbers and gives them back, while processes die, leaders change and commits get lost. Nothing begins that finds no room."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast import Retry, here, step, workflow
from holdfast.adaptation import LimitChange, look_at
from holdfast.limits import Limit
from holdfast.store.verbs import Verb
from holdfast.supervisor import adaptive_limits
from tests.simulation.ledger import ledger
from tests.simulation.mutants import code, mutant, sql
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from holdfast.testing.world import Process
    from tests.simulation.invariants import Checker, Commit
    from tests.simulation.simulation import Simulation

KEYS, SHARED, CEILING, LEAST = ("a", "b"), "sim.shared", 9, 2
FIRST_TAG = 1_000_000
"""Other programs have lower ones."""
USED = """
SELECT l.name, l.most, l.least, l.declared, l.adaptive AND NOT l.is_set,
       (SELECT count(*) FROM steps s WHERE l.id IN (s.limit_a, s.limit_b, s.limit_c) AND s.state = 'running')
FROM limits l"""
OPEN = "SELECT id FROM runs WHERE id LIKE 'limited-%' AND finished_at IS NULL"
LEADS = "SELECT epoch FROM leases WHERE name = 'leader'"


@step(
    name="sim.limited",
    limits=[Limit("sim:{key}", 3), Limit(SHARED, CEILING, adaptive=True, least=LEAST)],
    retry=Retry(attempts=50, delay=0.2),
)
async def limited(key: str, tag: int, took_s: float, is_busy: bool) -> int:
    simulation = ledger.simulation
    simulation.began(tag)
    await asyncio.sleep(took_s)
    if is_busy and tag % 4 == 0 and not simulation.healed:
        raise ConnectionError("too many")
    simulation.did(here.key, tag)
    return tag


@workflow(name="sim.limits")
async def limits(key: str, tag: int, number: int, took_s: float, is_busy: bool) -> int:
    return len(await asyncio.gather(*(limited(key, tag + one, took_s, is_busy) for one in range(number))))


def I66_limits_hold(checker: Checker, commit: Commit) -> Iterable[str]:
    """Whatever begins finds room under the number that is in force then. An adaptive number is between its floor and its
    ceiling, and nobody moves it but the leader, code and operators."""
    if not commit.tables & {"steps", "limits"}:
        return
    part = checker.world.parts.find("limits")
    assert isinstance(part, Limits)
    for name, most, least, ceiling, is_adaptive, used in checker.connection.execute(USED).fetchall():
        before_most, before_used = part.seen.get(name, (most, 0))
        part.seen[name] = (most, used)
        if used > before_used and used > most:
            yield f"{used} run under {name}, of which {most} may"
        if used == most:
            checker.world.sometimes("a limit was full")
        if is_adaptive and not least <= most <= ceiling:
            yield f"{name} is adaptive from {least} to {ceiling}, and has the number {most}"
        if most == before_most or commit.verb in ("make_queues", "set_limit"):
            continue
        checker.world.sometimes("an adaptive limit rose" if most > before_most else "an adaptive limit fell")
        (epoch,) = checker.connection.execute(LEADS).fetchall()[0]
        if commit.verb != "move_limits" or commit.asked["epoch"] != epoch:
            yield f"{commit.verb} moved {name} from {before_most} to {most}, and the leader's epoch is {epoch}"


class Limits(Part):
    name = "limits"
    share = 0.08
    known = (limited, limits)
    checks = (I66_limits_hold,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seen: dict[str, tuple[int, int]] = {}
        """By limit, its number and how many ran after the last commit."""
        self._left = 0

    def settings(self) -> dict[str, Any]:
        return {"watch_s": 0.2}

    def begin(self, simulation: Simulation) -> None:
        dice = self.dice
        self._left = dice.randint(1, 3)
        is_busy = dice.random() < 0.6
        for number in range(self._left):
            given = (
                dice.choice(KEYS),
                FIRST_TAG + number * 100,
                dice.randint(12, 30),
                dice.choice((0.1, 0.2)),
                is_busy,
            )
            simulation.drive(self._start(simulation, number, given, dice.random()))
        if dice.random() < 0.3:
            most, after_s = dice.choice((0, 1, 20)), 0.5 + dice.random() * 2
            simulation.drive(self._operate(simulation, most, after_s, dice.random() * 2))

    async def _start(self, simulation: Simulation, number: int, given: Any, after_s: float) -> None:
        simulation.limits_s[f"limited-{number}"] = None
        await asyncio.sleep(after_s)
        await simulation.asked(partial(_start, number, given))
        self._left -= 1

    async def _operate(self, simulation: Simulation, most: int, after_s: float, for_s: float) -> None:
        """An operator sets the number, and gives it back later."""
        await asyncio.sleep(after_s)
        self._left += 1
        for given in (most, None):
            if SHARED in self.seen:
                await simulation.asked(partial(_set, given))
            await asyncio.sleep(for_s)
        self._left -= 1

    def waits_for(self, simulation: Simulation) -> Iterator[str]:
        if self._left:
            yield f"{self._left} calls about limits were not answered"
        for (run_id,) in simulation.checker.connection.execute(OPEN).fetchall():
            yield f"{run_id} has not ended"


async def _start(number: int, given: Any, process: Process) -> Any:
    return await process.start(limits.using(id=f"limited-{number}"), *given)


async def _set(most: int | None, process: Process) -> Any:
    return await process.desk.limits.set(process.who, SHARED, most)


@mutant("what begins finds room: the rows that run are counted", within=60, part="limits")
def limits_are_never_full(stack: ExitStack) -> None:
    sql(stack, Verb.limit_rooms, "l.most, l.per_s", "l.most + 1, l.per_s")


@mutant("an adaptive number stays between its floor and its ceiling", within=60, part="limits")
def numbers_leave_their_bounds(stack: ExitStack) -> None:
    real = look_at

    def look(row: Any, watch: Any, now: float) -> Any:
        after, move = real(row, watch, now)
        return after, None if move is None else LimitChange(move.most + CEILING, move.usual_s, move.why)

    code(stack, adaptive_limits, "look_at", look)


@mutant("nobody moves an adaptive number but the leader", within=60, part="limits")
def agents_move_numbers(stack: ExitStack) -> None:
    sql(
        stack,
        Verb.observe_limits,
        "seconds = seconds + ?4",
        "seconds = seconds + ?4, most = min(most + 1, declared)",
    )
