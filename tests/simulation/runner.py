"""Plays many seeds, in this process or in several, and puts together what they found."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count, islice
from typing import Any, NamedTuple

import apsw

from tests.simulation.mutants import MUTANTS, Mutant, switched_on
from tests.simulation.parts import Parts
from tests.simulation.simulation import (
    CHECK_RAISED,
    DATABASE_ERROR,
    FAULTS_S,
    Result,
    rare_garbage_collection,
    simulate,
)
from tests.simulation.sometimes import SOMETIMES

CHUNK = 50
FRESH = 10_000_000
"""The first of the seeds with which mutants are counted. No number of seeds was chosen by looking at them."""
OTHER_CHECKS = {"a": "callback", "no": "spins"}
"""Names of checks whose findings begin with another word: a callback that raised, and time that does not pass."""
REACHED_WITHIN = 1300
"""Every rare state is reached within this many seeds, or there is something wrong with the simulation."""


def replay_command(seed: int) -> str:
    return f"uv run python -m tests.simulation --seed {seed} --trace"


class Report:
    """What many seeds found, and how much they did."""

    def __init__(self) -> None:
        self.seeds = 0
        self.commits = 0
        self.virtual_s = 0.0
        self.cpu_s = 0.0
        self.runs: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.sometimes: Counter[str] = Counter()
        self.broken: dict[int, list[str]] = {}

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.commits += result.commits
        self.virtual_s += result.virtual_s
        self.runs += result.runs
        self.faults += result.faults
        self.sometimes += result.sometimes
        if result.broken:
            self.broken[result.seed] = result.broken

    def merge(self, other: Report) -> None:
        for name in ("seeds", "commits", "virtual_s", "cpu_s", "runs", "faults", "sometimes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.broken.update(other.broken)

    @property
    def never(self) -> list[str]:
        """Rare states that were not reached."""
        return [what for what in SOMETIMES if not self.sometimes[what]]

    def as_json(self) -> dict[str, Any]:
        return {
            "seeds": self.seeds,
            "violations": len(self.broken),
            "broken": {
                str(seed): {"what": what, "replay": replay_command(seed)}
                for seed, what in sorted(self.broken.items())
            },
            "virtual_hours": round(self.virtual_s / 3600, 2),
            "commits_checked": self.commits,
            "cpu_s": round(self.cpu_s, 1),
            "seeds_per_core_s": round(self.seeds / self.cpu_s, 1) if self.cpu_s else None,
            "runs": dict(sorted(self.runs.items())),
            "faults": dict(sorted(self.faults.items())),
            "sometimes": {what: self.sometimes[what] for what in SOMETIMES},
            "never_reached": self.never,
        }


def play(seeds: Iterable[int], *, plain: bool = False) -> Report:
    report, begun = Report(), time.process_time()
    with rare_garbage_collection():
        for seed in seeds:
            report.add(simulate(seed, plain=plain))
    report.cpu_s = time.process_time() - begun
    return report


def quietly() -> None:
    """Prepare a process that only plays seeds. Suppress what Python prints when it collects the remains of killed
    processes, and let SQLite not count the memory that it uses, which it does under a lock."""
    sys.unraisablehook = lambda unraisable: None
    sys.stderr = open(os.devnull, "w") if multiprocessing.parent_process() else sys.stderr  # noqa: SIM115, PTH123
    apsw.shutdown()
    apsw.config(apsw.SQLITE_CONFIG_MEMSTATUS, False)
    apsw.initialize()


def play_all(
    seeds: range,
    processes: int,
    progress: Callable[[Report], None] = lambda report: None,
    report: Report | None = None,
    *,
    plain: bool = False,
) -> Report:
    """Play these seeds in this many processes, and call `progress` with the report after each chunk. The findings are
    added to `report`, if one is given. With `plain`, no seed plays parts."""
    report = Report() if report is None else report
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    for part in _played(chunks, processes, partial(play, plain=plain)):
        report.merge(part)
        progress(report)
    return report


def _played(chunks: list[range], processes: int, play_chunk: Callable[[range], Report]) -> Iterator[Report]:
    if processes <= 1:
        yield from map(play_chunk, chunks)
        return
    with multiprocessing.get_context("spawn").Pool(processes, quietly) as pool:
        yield from pool.imap_unordered(play_chunk, chunks)


class Survived(Exception):
    """No seed found a mutant."""


class NotAsPlanted(Exception):
    """A mutant died of a database error, or of an exception in a check. That shows nothing about the promise that it
    breaks."""


class Find(NamedTuple):
    """A seed that found a mutant."""

    seed: int
    number: int
    """The how manieth it is of the seeds that count for the mutant."""
    broken: str


def seeds_for(mutant: Mutant, likely: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield the seeds within which the mutant must be found, with their numbers. The likely one comes first, if it is one
    of them."""
    if likely is not None:
        for number, seed in enumerate(islice(seeds_with(mutant.part), mutant.within), 1):
            if seed >= likely:
                yield from [(number, seed)] if seed == likely else []
                break
    for number, seed in enumerate(islice(seeds_with(mutant.part), mutant.within), 1):
        if seed != likely:
            yield number, seed


def hunt(mutant: Mutant, likely: int | None = None) -> Find:
    """Return the seed that finds the mutant: the likely one, or else the first one. Raises Survived when it is not found,
    and NotAsPlanted when SQLite refuses one of its statements."""
    with switched_on(mutant):
        for number, seed in seeds_for(mutant, likely):
            if broken := _broken_by(mutant, seed):
                return Find(seed, number, broken[0])
    raise Survived(
        f"{mutant.name} survived {mutant.within} seeds. No check notices that this is no longer true: {mutant.claim}"
    )


def _broken_by(mutant: Mutant, seed: int) -> list[str]:
    """Return what the mutant broke in this seed. A constraint of the database that it broke does not count: it keeps the
    mutant from what it is planted for, and another seed must find that."""
    broken = simulate(seed).broken
    refused = [what for what in broken if what.startswith((DATABASE_ERROR, CHECK_RAISED))]
    for what in refused:
        if "ConstraintError" not in what:
            raise NotAsPlanted(f"{mutant.name}, seed {seed}: {what}")
    return [] if refused else broken


class Census:
    """How many of some seeds find a mutant, and which checks notice it."""

    def __init__(self, mutant: Mutant, seeds: int) -> None:
        self.mutant, self.seeds, self.found = mutant, seeds, 0
        self.by: Counter[str] = Counter()
        """By check, how many seeds it found the mutant in."""
        self.alone: Counter[str] = Counter()
        """The same, where no other check noticed anything."""

    def add(self, broken: list[str]) -> None:
        checks = {check_of(what) for what in broken}
        self.found += bool(checks)
        self.by.update(checks)
        if len(checks) == 1:
            self.alone.update(checks)

    def as_json(self) -> dict[str, Any]:
        by = dict(sorted(self.by.items()))
        alone = dict(sorted(self.alone.items()))
        return {"found": self.found, "of": self.seeds, "part": self.mutant.part, "by": by, "alone": alone}


def census(mutant: Mutant, seeds: int, first: int = FRESH) -> Census:
    """Count how many seeds find the mutant. These seeds are none that anybody has tried before."""
    found = Census(mutant, seeds)
    with switched_on(mutant):
        for seed in islice(seeds_with(mutant.part, first), seeds):
            found.add(_broken_by(mutant, seed))
    return found


def _count_one(name: str, seeds: int) -> tuple[str, dict[str, Any]]:
    return name, census(find_mutants([name])[0], seeds).as_json()


def count_all(names: list[str], seeds: int, processes: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Count each of these mutants, in this many processes."""
    one = partial(_count_one, seeds=seeds)
    if processes <= 1:
        yield from map(one, names)
        return
    with multiprocessing.get_context("spawn").Pool(processes, quietly) as pool:
        yield from pool.imap(one, names)


def kills_alone(counted: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """Return for each check the mutants that no other check noticed in any seed."""
    only: dict[str, list[str]] = {}
    for name, found in counted.items():
        if len(found["by"]) == 1:
            only.setdefault(next(iter(found["by"])), []).append(name)
    return only


def check_of(broken: str) -> str:
    """Return the name of the check that found this: of an invariant, of a promise, or `callback`."""
    name = broken.split(":", 1)[0].split(" ", 1)[0]
    return name.split("_", 1)[0] if name[:1] in "IG" and name[1:2].isdigit() else OTHER_CHECKS.get(name, name)


def seeds_with(part: str, first: int = 0) -> Iterator[int]:
    """Yield the seeds that play this part; without one, all seeds."""
    for seed in count(first):
        if not part or Parts(seed, faults_s=FAULTS_S).plays(part):
            yield seed


def find_mutants(names: Iterable[str]) -> list[Mutant]:
    wanted = set(names)
    unknown = wanted - {mutant.name for mutant in MUTANTS}
    if unknown:
        raise SystemExit(
            f"no mutant is called {', '.join(sorted(unknown))}: --mutants without a name runs all"
        )
    return [mutant for mutant in MUTANTS if not wanted or mutant.name in wanted]
