"""The whole product under one seed, many times; and planted bugs, each of which must be found."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from msgspec import structs

from tests.simulation import endings, invariants, matrix, remembered
from tests.simulation.ledger import Book
from tests.simulation.mutants import MUTANTS, Mutant, sql
from tests.simulation.runner import (
    REACHED_WITHIN,
    NotAsPlanted,
    Survived,
    hunt,
    play,
    replay_command,
    seeds_for,
)
from tests.simulation.schedule import Schedule, decoded, encoded, kept_schedules
from tests.simulation.simulation import CHECK_RAISED, Simulation, replay, simulate

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


@pytest.mark.parametrize("schedule", kept_schedules(), ids=lambda schedule: schedule.found)
def test_what_a_schedule_once_found_stays_fixed(schedule: Schedule) -> None:
    assert not replay(schedule).broken


@pytest.mark.parametrize("seed", [7, 41, 100, 240])
def test_a_schedule_plays_as_its_seed_did(seed: int) -> None:
    """What is kept of a seed is all that it drew by name, so in the same version both play the same."""
    played = simulate(seed)
    assert replay(decoded(encoded(played.schedule))).hash == played.hash


def test_a_schedule_plays_what_another_seed_did_not_draw() -> None:
    """The schedule decides, and not the number of the seed: under another number the same workflows and faults come."""
    drawn = simulate(240).schedule
    played = replay(structs.replace(drawn, seed=41)).schedule
    assert encoded(structs.replace(played, seed=240)) == encoded(drawn)
    assert encoded(simulate(41).schedule) != encoded(played)


def test_a_mutant_that_dies_of_a_database_error_is_not_as_planted() -> None:
    """A statement that SQLite refuses breaks every seed, and shows nothing about the promise."""

    def misspelt(stack: ExitStack) -> None:
        sql(stack, "record_outcomes", "AND fence = ?3", "AND fance = ?3")

    with pytest.raises(NotAsPlanted, match="fance"):
        hunt(Mutant("misspelt", "an outcome counts only with its fence", misspelt, 20))


@pytest.mark.parametrize("method", ["committed", "began", "did"])
def test_an_exception_in_a_check_is_a_failure_of_the_seed(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that raises has not judged what it looked at. The product would take the exception for an error of the store
    or of a step, and hide it."""

    def raises(*args: object) -> None:
        raise LookupError("this check is wrong")

    owner, name = {
        "committed": (invariants, "CHECKS"),
        "began": (Simulation, "_demand_lease"),
        "did": (Book, "did"),
    }[method]
    monkeypatch.setattr(owner, name, (*invariants.CHECKS, raises) if name == "CHECKS" else raises)
    broken = simulate(7).broken
    assert broken[0].startswith(f"{CHECK_RAISED} LookupError('this check is wrong') in {method}"), broken


def test_an_exception_in_a_check_at_the_end_is_a_failure_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*args: object) -> None:
        raise LookupError("this check is wrong")

    monkeypatch.setattr(endings, "cancels_are_obeyed", raises)
    broken = simulate(7).broken
    assert broken[0].startswith(f"{CHECK_RAISED} LookupError('this check is wrong') at the end"), broken


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_dies(mutant: Mutant) -> None:
    """A planted bug is found within its number of seeds."""
    found = hunt(mutant, remembered.SEEDS.get(mutant.name))
    assert found.number <= mutant.within, found


def test_the_likely_seed_is_tried_first_and_the_others_if_it_is_not_the_one() -> None:
    """The seeds are those that count, whatever is remembered. A seed beyond them is not tried."""

    def nothing(stack: ExitStack) -> None:
        pass

    harmless = Mutant("harmless", "nothing is wrong", nothing, within=4)
    assert list(seeds_for(harmless, 2)) == [(3, 2), (1, 0), (2, 1), (4, 3)]
    assert list(seeds_for(harmless, 9)) == list(seeds_for(harmless)) == [(1, 0), (2, 1), (3, 2), (4, 3)]
    with pytest.raises(Survived, match="nothing is wrong"):
        hunt(harmless, likely=2)


def test_only_seeds_of_mutants_are_remembered() -> None:
    assert remembered.SEEDS.keys() <= {mutant.name for mutant in MUTANTS}


def test_each_invariant_has_a_mutant_of_its_own_or_a_reason() -> None:
    """An invariant that fails only where another check fails, too, shows nothing by itself. `matrix.toml` names for each
    one a mutant that nothing else finds, or says why there is none."""
    assert matrix.OWN.keys() | matrix.SHARED.keys() == matrix.INVARIANTS.keys()
    assert not matrix.OWN.keys() & matrix.SHARED.keys()
    assert set(matrix.OWN.values()) <= {mutant.name for mutant in MUTANTS}
    assert all(len(why) > 20 for why in matrix.SHARED.values())


@pytest.mark.parametrize("invariant", sorted(matrix.OWN))
def test_an_invariant_finds_its_mutant_with_all_others_switched_off(invariant: str) -> None:
    (mutant,) = [mutant for mutant in MUTANTS if mutant.name == matrix.OWN[invariant]]
    assert matrix.found_alone(mutant, invariant, remembered.SEEDS.get(mutant.name)) is not None


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
