"""Debounced starts and starts in batches, which some seeds play: several callers start for a few keys, some of them twice,
while processes die, commits get lost and runs are admitted. Each start is in exactly one run."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast import workflow
from holdfast.starts import Batch, Debounce
from holdfast.store import gathers, schedulers
from holdfast.store.verbs import Verb
from holdfast.testing.world import Process
from tests.simulation.mutants import code, mutant, sql
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from tests.simulation.invariants import Checker, Commit
    from tests.simulation.simulation import Simulation

MOST, QUIET_S, AT_MOST_S = 3, 0.4, 1.2
ADMITTED = (
    "SELECT id, workflow, input, queue, state, begin_at, created_at FROM runs "
    "WHERE id IN (SELECT DISTINCT run_id FROM gathered) AND NOT removing"
)
INPUTS = "SELECT id, input FROM runs WHERE workflow = ? AND retry_of IS NULL AND forked_from IS NULL AND queue >= 0"
GATHERED = "SELECT id, items FROM gathered WHERE run_id = ? ORDER BY n"


@workflow(batch=Batch("site:{site}", size=MOST, wait=0.8))
async def crawled(site: str, pages: list[int]) -> list[int]:
    await asyncio.sleep(0.1)
    return pages


@workflow(debounce=Debounce("doc:{doc}", quiet=QUIET_S, at_most=AT_MOST_S))
async def indexed(doc: str, value: int) -> int:
    await asyncio.sleep(0.1)
    return value


def I49_starts_are_taken(checker: Checker, commit: Commit) -> Iterable[str]:
    """A batch that may begin has the items of all starts that it took, in their order. A debounced run has the input of the
    newest start. A run that may begin takes no further start. A batch that is full may begin, and a debounced run waits for
    no longer than it was declared."""
    if not commit.tables & {"gathered", "gathers", "runs"}:
        return
    known = checker.world.gathered
    for run_id, name, raw, queue, state, begin_at, created_at in checker.connection.execute(
        ADMITTED
    ).fetchall():
        rows = checker.connection.execute(GATHERED, (run_id,)).fetchall()
        given = json.loads(raw)
        if run_id in known and known[run_id] != len(rows):
            yield f"{run_id} has begun with {known[run_id]} starts, and has {len(rows)} now"
        if queue < 0:
            if state == "cancelled":
                known[run_id] = len(rows)
            elif name == crawled.name and sum(len(json.loads(items)) for _, items in rows) >= MOST:
                yield f"batch {run_id} is full, and waits for more"
            elif name == indexed.name and begin_at > created_at + AT_MOST_S + 0.001:
                yield f"debounced {run_id} begins {begin_at - created_at:.3f} s after its first start"
            continue
        known[run_id] = len(rows)
        if name == crawled.name:
            pages = [page for _, items in rows for page in json.loads(items)]
            if given["pages"] != pages:
                yield f"batch {run_id} has {given['pages']}, and took {pages}"
            checker.world.sometimes("a batch began" if len(pages) < 3 else "a batch was full")
        elif given["value"] != int(rows[-1][0].removeprefix("g")):
            yield f"debounced {run_id} has {given['value']}, and the newest start is {rows[-1][0]}"
        elif len(rows) > 1:
            checker.world.sometimes("a debounced run took several starts")


class Gathers(Part):
    name = "gathers"
    share = 0.1
    known = (crawled, indexed)
    checks = (I49_starts_are_taken,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._taken: dict[int, str] = {}
        self._left = 0

    def begin(self, simulation: Simulation) -> None:
        self._left = self.dice.randint(4, 14)
        for number in range(self._left):
            simulation.drive(self._play(simulation, number))

    async def _play(self, simulation: Simulation, number: int) -> None:
        dice = self.dice
        await asyncio.sleep(dice.random() * 5)
        key, which = dice.choice("ab"), dice.choice((crawled, crawled, indexed))
        for _ in range(dice.choice((1, 1, 2))):
            found = await simulation.asked(partial(_start, which, key, number), tries=1000)
            if found is not None and self._taken.setdefault(number, found) != found:
                self._taken[-number - 1] = found
        self._left -= 1

    def waits_for(self, simulation: Simulation) -> Iterator[str]:
        if self._left:
            yield f"{self._left} starts were not answered"
        execute = simulation.checker.connection.execute
        for (run_id,) in execute(
            "SELECT id FROM runs WHERE finished_at IS NULL AND id IN (SELECT run_id FROM gathered)"
        ).fetchall():
            yield f"{run_id}, which took starts, has not ended"

    def endings(self, simulation: Simulation) -> Iterator[str]:
        """Each start that was answered is in one run, and in the run that the answer named."""
        if simulation.parts.plays("retention"):
            return
        counted: Counter[int] = Counter()
        places: dict[int, str] = {}
        execute = simulation.checker.connection.execute
        for run_id, raw in execute(INPUTS, (crawled.name,)).fetchall():
            for page in json.loads(raw)["pages"]:
                counted[page] += 1
                places[page] = run_id
        for page, times in counted.items():
            if times != 1:
                yield f"G5 item {page} is in {times} batches"
        for number, run_id in self._taken.items():
            if number < 0:
                yield f"G5 start {-number - 1} was answered with {self._taken[-number - 1]} and with {run_id}"
            elif not execute(
                "SELECT 1 FROM gathered WHERE id = ? AND run_id = ?", (f"g{number}", run_id)
            ).fetchall():
                yield f"G5 start {number} was answered with {run_id}, which did not take it"
            elif number in places and places[number] != run_id:
                yield f"G5 start {number} was answered with {run_id}, and is in {places[number]}"


async def _start(which: Any, key: str, number: int, process: Process) -> str:
    one = which.using(id=f"g{number}")
    run = await (process.start(one, key, [number]) if which is crawled else process.start(one, key, number))
    return run.id


@mutant("a batch begins with all its items", within=60, part="gathers")
def batches_are_not_filled(stack: ExitStack) -> None:
    async def fill(session: Any, run_ids: Any) -> None: ...

    code(stack, schedulers, "fill_batches", fill)


@mutant("the newest start counts", within=60, part="gathers")
def debounced_runs_keep_the_first_input(stack: ExitStack) -> None:
    sql(stack, "move_debounced", "input = ?2, ", "")


@mutant("a run that may begin takes no further start", within=60, part="gathers")
def begun_runs_take_starts(stack: ExitStack) -> None:
    sql(stack, "open_gather", " AND +state = 'pending' AND queue < 0", "")


@mutant("a repeated start is taken once", within=100, part="gathers")
def repeated_starts_are_taken_again(stack: ExitStack) -> None:
    real = gathers.take

    def take(run: Any, bytes_max: int) -> Any:
        script = real(run, bytes_max)
        ask = next(script)
        while True:
            rows = yield ask
            if ask.verb == "note_gathered" and not rows:
                yield gathers.ScriptStatement(Verb.forget_gathered, (run.id,))
                rows = yield ask
            try:
                ask = script.send(rows)
            except StopIteration as done:
                return done.value

    code(stack, gathers, "take", take)
