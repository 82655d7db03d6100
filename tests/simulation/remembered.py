"""Which seed found each mutant the last time. The tests try that one first: it shows as well as all seeds before it do
that the mutant is found within its number of seeds.

A seed plays something else as soon as anything more is drawn. Then the tests look for another one, in all seeds that
count. They claim the same, but take longer until `python -m tests.simulation --mutants --remember` has looked again."""

from __future__ import annotations

import multiprocessing
import tomllib
from pathlib import Path

from tests.simulation import matrix
from tests.simulation.runner import Find, NotAsPlanted, Survived, find_mutants, hunt, quietly

FILE = Path(__file__).with_name("remembered.toml")
SEEDS: dict[str, int] = tomllib.loads(FILE.read_text("utf-8"))
"""By mutant, the seed that found it the last time."""
HEAD = "# By mutant, the seed that found it the last time. Written by `python -m tests.simulation --mutants --remember`.\n"


def look(name: str) -> tuple[str, Find | None]:
    """Look for the first seed that finds a mutant: by the invariant whose own mutant it is, if there is one."""
    (mutant,) = find_mutants([name])
    own = [invariant for invariant, its in matrix.OWN.items() if its == name]
    try:
        return name, matrix.found_alone(mutant, own[0]) if own else hunt(mutant)
    except (Survived, NotAsPlanted):
        return name, None


def remember(names: list[str], processes: int) -> list[str]:
    """Look for these mutants again, and write down which seeds found them. Return the mutants that no seed found."""
    seeds, lost = dict(SEEDS), []
    with multiprocessing.get_context("spawn").Pool(processes, quietly) as pool:
        for name, found in pool.imap_unordered(look, names):
            seeds.pop(name, None)
            if found is None:
                lost.append(name)
            else:
                seeds[name] = found.seed
            FILE.write_text(HEAD + "".join(f"{name} = {seeds[name]}\n" for name in sorted(seeds)), "utf-8")
    return lost
