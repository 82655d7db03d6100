"""Which checks find which mutants. A seed usually ends at the first thing that is wrong. Here it goes on to its end, so that
every check has its chance, and a mutant that only one check finds shows what that check is worth."""

from __future__ import annotations

import multiprocessing
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.simulation import invariants
from tests.simulation.invariants import Check
from tests.simulation.mutants import MUTANTS, Mutant, switched_on
from tests.simulation.parts import KINDS
from tests.simulation.runner import Find, check_of, quietly, seeds_for, seeds_with
from tests.simulation.simulation import CHECK_RAISED, DATABASE_ERROR, Simulation, simulate

INVARIANTS: dict[str, tuple[Check, str]] = {check.__name__: (check, "") for check in invariants.CHECKS} | {
    check.__name__: (check, kind.name) for kind in KINDS for check in kind.checks
}
"""By name, each invariant that looks at every commit, and the part that it belongs to."""
_LISTED = tomllib.loads(Path(__file__).with_name("matrix.toml").read_text("utf-8"))
OWN: dict[str, str] = _LISTED["own"]
"""By invariant, a mutant that no other check finds."""
SHARED: dict[str, str] = _LISTED["shared"]
"""By invariant, why no mutant is its own."""
SPINS = "no time passes"
NOTED_MAX = 200


def name_of(broken: str) -> str:
    """Return the name of the check that found this: of the function, if it is an invariant, else of the promise."""
    name = broken.split(":", 1)[0].split(" ", 1)[0]
    return name if name in INVARIANTS else check_of(broken)


@contextmanager
def going_on(noted: list[str]) -> Iterator[None]:
    """Let a seed go on after something was found to be wrong. What was found goes to `noted`."""

    def broke(self: Simulation, what: str) -> None:
        noted.append(what)
        if what.startswith(SPINS) or len(noted) > NOTED_MAX:
            self.loop.stop()

    with patch.object(Simulation, "broke", broke):
        yield


@contextmanager
def only(invariant: str) -> Iterator[None]:
    """Switch all invariants off but one."""
    checks = tuple(check for check in invariants.CHECKS if check.__name__ == invariant)
    with patch.object(invariants, "CHECKS", checks):
        kept = [
            patch.object(kind, "checks", tuple(check for check in kind.checks if check.__name__ == invariant))
            for kind in KINDS
        ]
        for one in kept:
            one.start()
        try:
            yield
        finally:
            for one in kept:
                one.stop()


def found_alone(mutant: Mutant, invariant: str, likely: int | None = None) -> Find | None:
    """Return the seed in which this invariant, with all others switched off, finds the mutant: the likely one, or else the
    first one. None: it does not within the mutant's number of seeds."""
    with switched_on(mutant), only(invariant):
        for number, seed in seeds_for(mutant, likely):
            for what in simulate(seed).broken:
                if name_of(what) == invariant:
                    return Find(seed, number, what)
    return None


def finders(mutant: Mutant, seeds: int) -> dict[str, int]:
    """Return in how many of the first seeds each check finds the mutant, if no seed ends early."""
    found: dict[str, int] = {}
    with switched_on(mutant):
        for seed in islice(seeds_with(mutant.part), seeds):
            noted: list[str] = []
            with going_on(noted):
                simulate(seed)
            for name in {
                name_of(what) for what in noted if not what.startswith((CHECK_RAISED, DATABASE_ERROR))
            }:
                found[name] = found.get(name, 0) + 1
    return dict(sorted(found.items(), key=lambda entry: -entry[1]))


def _finders_of(name: str, seeds: int) -> tuple[str, dict[str, int]]:
    return name, finders(next(one for one in MUTANTS if one.name == name), seeds)


def matrix(names: list[str], seeds: int, processes: int) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield for each of these mutants what `finders` returns."""
    one: Callable[[str], Any] = partial(_finders_of, seeds=seeds)
    if processes <= 1:
        yield from map(one, names)
        return
    with multiprocessing.get_context("spawn").Pool(processes, quietly) as pool:
        yield from pool.imap(one, names)


def without_own(found: dict[str, dict[str, int]]) -> list[str]:
    """Return the invariants that find no mutant alone."""
    alone = {next(iter(checks)) for checks in found.values() if len(checks) == 1}
    return sorted(INVARIANTS.keys() - alone)
