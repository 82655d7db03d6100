"""Runs that call a step or a workflow for each of many items, flat and in pages. Each item has one outcome, only so many
are under way at a time, and only so many may fail."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from holdfast import Retry, here, step, workflow
from holdfast.lifecycle import RUN_ENDED
from holdfast.workflow import fan
from tests.simulation import program
from tests.simulation.ledger import ledger
from tests.simulation.mutants import code, mutant
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from tests.simulation.invariants import Checker, Commit
    from tests.simulation.simulation import Simulation

FIRST_TAG = 700
"""Tags from here to 799 are not drawn by others."""
QUICK = Retry(attempts=3, delay=0.1, max_delay=0.4)
PATIENT = Retry(attempts=6, delay=0.1, max_delay=0.3)


@step(retry=QUICK, timeout=2.5)
async def each(tag: int, how: str) -> int:
    return await program._do(tag, how)


@each.undo(retry=PATIENT)
async def uneach(done: int | None, tag: int, how: str) -> None:
    await program._undo(done, tag, how)


@workflow
async def small(tag: int, how: str) -> int:
    return await each(tag, how)


@step(retry=PATIENT, timeout=2.5)
async def pour(tags: list[int]) -> int:
    """Take the results of a page, once for each key."""
    simulation = ledger.simulation
    part = simulation.parts.find("maps")
    assert isinstance(part, Maps)
    simulation.began(0)
    await asyncio.sleep(part.dice.random() * 0.2)
    part.poured.setdefault(here.key, tags)
    simulation.did(here.key, 0)
    return len(tags)


def _family(run_id: str) -> str:
    """Return the run that a run came from by children and retries."""
    return run_id.partition("/")[0].partition("~")[0]


def I38_so_many_at_a_time(checker: Checker, commit: Commit) -> Iterable[str]:
    """Of the calls of one map, at most `limit` are under way."""
    part = checker.world.parts.find("maps")
    assert isinstance(part, Maps)
    for _, before, after in commit.steps:
        if before is not None or after is None or after.run_id in commit.retried:
            continue
        family = _family(after.run_id)
        if family not in part.limits or after.kind != "call" or "each" not in after.key:
            continue
        names = "key LIKE '%each%' AND kind = 'call' AND key NOT LIKE 'undo:%'"
        live = checker.connection.execute(
            f"SELECT count(*) FROM steps WHERE finished_at IS NULL AND {names} AND (run_id = ?1 OR run_id LIKE ?1 || '/%')"
            " AND run_id NOT LIKE ?1 || '/%~%'",  # a retry of a child by hand belongs to no map
            (family,),
        ).get
        if live > part.limits[family]:
            yield f"{live} calls of the map of {family} are under way, and its limit is {part.limits[family]}"
    for _, before, after in commit.runs:
        if (
            before is None
            and after is not None
            and after.parent_id is not None
            and after.workflow.endswith("small")
        ):
            family = _family(after.id)
            live = checker.connection.execute(
                "SELECT count(*) FROM runs WHERE workflow = ? AND finished_at IS NULL AND parent_id LIKE ? || '/%'",
                (after.workflow, family),
            ).get
            if live > part.limits.get(family, live):
                yield f"{live} children of the map of {family} are under way, and its limit is {part.limits[family]}"


class MapResult:
    """In an expected result: the results of a map, in their order. Items that must fail have failed, and others may have,
    as long as not more than allowed did."""

    def __init__(self, items: list[list[Any]], allowed: int, into: bool) -> None:
        self._items, self._allowed, self._into = items, allowed, into

    def __eq__(self, other: object) -> bool:
        must = sum(how == "stop" for _, how in self._items)
        if self._into:
            return (
                isinstance(other, list)
                and len(other) == 3
                and sum(other[1:]) == len(self._items)
                and must <= other[2] <= self._allowed
            )
        return (
            isinstance(other, list)
            and len(other) == len(self._items)
            and sum(one == "failed" for one in other) <= self._allowed
            and all(
                one == "failed" or (one == tag and how != "stop")
                for one, (tag, how) in zip(other, self._items, strict=True)
            )
        )

    def __repr__(self) -> str:
        return f"MapResult({self._items}, {self._allowed})"

    __hash__ = None  # type: ignore[assignment]


class Maps(Part):
    name = "maps"
    share = 0.1
    known = (each, uneach, small, pour)
    checks = (I38_so_many_at_a_time,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.limits: dict[str, int] = {}
        """By run, how many calls of its map may be under way."""
        self.poured: dict[str, list[int]] = {}
        """By `here.key`, what the step that takes the results got."""
        self._maps: dict[str, program.Plan] = {}

    def settings(self) -> dict[str, Any]:
        """Many items fail at first, and the step's own breaker would open for longer than a seed lasts."""
        return {"breaker_failures_min": 1000}

    def finished(self, plan: program.Plan) -> program.Plan:
        """Put one map at the beginning or the end of what a run does."""
        dice = self.dice
        count = dice.choice((0, 1, 3, 5, 9))
        stops = dice.choice((0.0, 0.0, 0.2))
        hows = ("quick", "quick", "ok", "flaky", "unsure", "slow")
        items = [
            [FIRST_TAG + i, "stop" if dice.random() < stops else dice.choice(hows)] for i in range(count)
        ]
        what = ["map", items, dice.choice((1, 2, 4, 8)), dice.choice((0, 0, 1, 3, 0.4)),
                dice.choice((2, 3, 100)), dice.random() < 0.3, dice.random() < 0.3]  # fmt: skip
        first = plan[1] if plan[0] == "again" else plan
        first[1].insert(dice.choice((0, len(first[1]))), what)
        return plan

    def begin(self, simulation: Simulation) -> None:
        for run_id, plan in simulation.plans.items():
            for what in _maps(plan):
                self._maps[run_id], self.limits[run_id] = what, what[2]

    def endings(self, simulation: Simulation) -> Iterator[str]:
        """Each item had one call, whatever crashed, and each result went once into the step that takes them."""
        checker = simulation.checker
        if simulation.parts.retries or simulation.parts.plays("forks"):
            return
        keys: Counter[tuple[str, int]] = Counter()
        for run_id, tag in simulation.book.by_tag:
            if FIRST_TAG <= tag < 800:
                keys[_family(run_id), tag] += 1
        for (run_id, tag), count in keys.items():
            if run_id in self._maps and count > 1:
                yield f"G2 item {tag} of the map of {run_id} was called {count} times"
        for run_id, what in self._maps.items():
            _, items, _, _, page, _, into = what
            run = checker.runs[run_id]
            if len(items) > page and run.state in RUN_ENDED:
                simulation.sometimes("a map was divided into pages")
            if run.state != "succeeded" or run.generation > 1:
                continue
            done = {
                tag for tag, how in items if simulation.book.by_tag.get((run_id, tag)) or keys[run_id, tag]
            }
            if into:
                got = Counter(
                    tag
                    for key, tags in self.poured.items()
                    if _family(key.split("::")[0]) == run_id
                    for tag in tags
                )
                if set(got.values()) - {1} or not set(got) <= done:
                    yield f"G2 the results {dict(got)} of the map of {run_id} were taken, and done are {done}"
                if _tally(run.output) not in (None, len(got)):
                    yield f"G2 the map of {run_id} took {len(got)} results, and says {run.output!r}"


def _tally(output: bytes | None) -> int | None:
    """Return how many items of a map were done, as the run's result says. None if the result does not say it."""
    tallies = [found for found in _lists(json.loads(json.loads(output or b"null"))) if found[:1] == ["tally"]]
    return int(tallies[0][1]) if len(tallies) == 1 else None


def _lists(value: Any) -> Iterator[list[Any]]:
    if isinstance(value, list):
        yield value
        for one in value:
            yield from _lists(one)


def _maps(plan: Any) -> Iterator[program.Plan]:
    if isinstance(plan, list):
        if plan[:1] == ["map"]:
            yield plan
        for part in plan:
            yield from _maps(part)


async def _walk(plan: program.Plan) -> Any:
    _, items, limit, tolerate, page, children, into = plan
    mapped: Any = small if children else each
    calls = (tuple(item) for item in items) if len(items) % 2 else [tuple(item) for item in items]
    found: Any = await mapped.map(
        calls, limit=limit, tolerate=tolerate, page=page, **({"into": pour} if into else {})
    )
    if into:
        return ["tally", *found]
    return ["failed" if isinstance(one, Exception) else one for one in found]


def _foretell(plan: program.Plan) -> Any:
    _, items, _, tolerate, _, _, into = plan
    allowed = int(tolerate * len(items)) if isinstance(tolerate, float) else tolerate
    if sum(how == "stop" for _, how in items) > allowed:
        raise program.MustFail
    return MapResult(items, allowed, into)


program.CASES["map"] = program.Case(lambda draw, depth, bounded: draw.do(), _walk, _foretell)


@mutant("a map has at most `limit` calls under way", within=60, part="maps")
def maps_have_no_limit(stack: ExitStack) -> None:
    real = fan._fan

    async def unlimited(call: Any, calls: Any, *, limit: int, allowed: int) -> Any:
        return await real(call, calls, limit=limit + 3, allowed=allowed)

    code(stack, fan, "_fan", unlimited)


@mutant("a map fails if more calls failed than it tolerates", within=60, part="maps")
def maps_tolerate_one_more(stack: ExitStack) -> None:
    real = fan.allowance
    code(stack, fan, "allowance", lambda tolerate, count: real(tolerate, count) + 1)


@mutant("a map that is divided into pages calls every item", within=60, part="maps")
def pages_lose_an_item(stack: ExitStack) -> None:
    real = fan._Pages._next_page

    async def next_page(self: Any) -> Any:
        if self._items and self._ahead:
            del self._ahead[0]
        return await real(self)

    code(stack, fan._Pages, "_next_page", next_page)


@mutant("the results of a map have the order of its items", within=60, part="maps")
def results_come_in_any_order(stack: ExitStack) -> None:
    real = fan._fan

    async def shuffled(call: Any, calls: Any, *, limit: int, allowed: int) -> Any:
        found = await real(call, calls, limit=limit, allowed=allowed)
        return found[::-1]

    code(stack, fan, "_fan", shuffled)


@mutant("each result of a map goes once into the step that takes them", within=60, part="maps")
def results_are_poured_twice(stack: ExitStack) -> None:
    real = fan._poured

    async def poured(mapped: Any, results: Any, into: Any) -> Any:
        await real(mapped, results, into)
        return await real(mapped, results, into)

    code(stack, fan, "_poured", poured)
