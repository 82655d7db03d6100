"""Plays many seeds, in this process or in several, and puts together what they found."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from tests.simulation.mutants import MUTANTS, Mutant, switched_on
from tests.simulation.parts import Parts
from tests.simulation.simulation import FAULTS_S, Result, simulate
from tests.simulation.sometimes import SOMETIMES

CHUNK = 50
KEPT = Path(__file__).with_name("seeds.txt")
REACHED_WITHIN = 1300
"""Every rare state is reached within this many seeds, or there is something wrong with the simulation."""


def kept_seeds() -> dict[int, str]:
    """Return the seeds that once found something, and what they found."""
    found = {}
    for line in KEPT.read_text("utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            seed, _, what = line.partition(" ")
            found[int(seed)] = what.strip()
    return found


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


def play(seeds: Iterable[int]) -> Report:
    report, begun = Report(), time.process_time()
    for seed in seeds:
        report.add(simulate(seed))
    report.cpu_s = time.process_time() - begun
    return report


def quietly() -> None:
    """Suppress what Python prints when it collects the remains of killed processes."""
    sys.unraisablehook = lambda unraisable: None
    sys.stderr = open(os.devnull, "w") if multiprocessing.parent_process() else sys.stderr  # noqa: SIM115, PTH123


def play_all(
    seeds: range, processes: int, progress: Callable[[Report], None] = lambda report: None
) -> Report:
    """Play these seeds in this many processes, and call `progress` with the report after each chunk."""
    report = Report()
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    for part in _played(chunks, processes):
        report.merge(part)
        progress(report)
    return report


def _played(chunks: list[range], processes: int) -> Iterator[Report]:
    if processes <= 1:
        yield from map(play, chunks)
        return
    with multiprocessing.get_context("spawn").Pool(processes, quietly) as pool:
        yield from pool.imap_unordered(play, chunks)


class Survived(Exception):
    """No seed found a mutant."""


def hunt(mutant: Mutant) -> tuple[int, str]:
    """Return how many seeds it took to find the mutant, and what it broke. Raises Survived when it is not found."""
    with switched_on(mutant):
        for tried, seed in zip(
            range(1, mutant.within + 1), seeds_with(mutant.part, mutant.first), strict=False
        ):
            result = simulate(seed)
            if result.broken:
                return tried, result.broken[0]
    raise Survived(
        f"{mutant.name} survived {mutant.within} seeds. No check notices that this is no longer true: {mutant.claim}"
    )


def seeds_with(part: str, first: int = 0) -> Iterator[int]:
    """Yield the seeds that play this part; without one, all seeds."""
    for seed in count(first):
        if not part or getattr(Parts(seed, faults_s=FAULTS_S), part):
            yield seed


def find_mutants(names: Iterable[str]) -> list[Mutant]:
    wanted = set(names)
    unknown = wanted - {mutant.name for mutant in MUTANTS}
    if unknown:
        raise SystemExit(
            f"no mutant is called {', '.join(sorted(unknown))}: --mutants without a name runs all"
        )
    return [mutant for mutant in MUTANTS if not wanted or mutant.name in wanted]
