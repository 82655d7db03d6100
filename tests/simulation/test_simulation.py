"""The whole product under one seed, many times; and planted bugs, each of which must be found."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.runner import REACHED_WITHIN, hunt, kept_seeds, play, replay_command
from tests.simulation.simulation import simulate

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect what killed processes leave behind, without printing what happens then."""
    before, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    yield
    gc.collect()
    sys.unraisablehook = before


def test_no_seed_breaks_a_promise() -> None:
    """Whatever goes wrong, every invariant holds after every commit, and when all heals every run ends. All rare states
    are reached, too: a simulation that never reaches a state proves nothing about it."""
    report = play(range(REACHED_WITHIN))
    assert not report.broken, "\n".join(
        f"{broken[0]}\n  replay: {replay_command(seed)}" for seed, broken in report.broken.items()
    )
    assert not report.never


@pytest.mark.parametrize("seed", kept_seeds())
def test_what_a_seed_once_found_stays_fixed(seed: int) -> None:
    assert not simulate(seed).broken


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_dies(mutant: Mutant) -> None:
    """A planted bug is found within its number of seeds."""
    count, broken = hunt(mutant)
    assert count <= mutant.within, broken


@pytest.mark.parametrize("seed", [7, 41, 100, 240])
def test_the_same_seed_gives_the_same_hash(seed: int) -> None:
    """It is the same twice here, and in a process whose sets have another order."""
    first, second = simulate(seed), simulate(seed)
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed), "--json"]
    played = subprocess.run(
        command, capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": "5"}
    )
    assert first.hash == second.hash == json.loads(played.stdout)["hash"]
    assert first.commits > 0


def test_different_seeds_differ() -> None:
    assert len({simulate(seed).hash for seed in range(5)}) == 5
