"""`holdfast bench` prints figures with their spread, and does not touch a store that is in use."""

import pytest

from tests.commands.conftest import Cli


def test_it_measures(cli: Cli) -> None:
    """Each measurement that was asked for gives its figures, with the median between the smallest and the largest."""
    found = cli("bench", "--quick", "--only", "A,D", "--json", "--store", cli.store).json
    assert set(found) == {"store", "python", "cores", "quick", "fsync_ms", "figures"}
    assert found["quick"] is True
    assert set(found["figures"]) == {"A", "D"}
    assert set(found["figures"]["A"]) == {"runs_per_s", "cpu_per_run"}
    assert set(found["figures"]["D"]) == {"p50", "p95", "p99"}
    for figures in found["figures"].values():
        for figure in figures.values():
            assert set(figure) == {"unit", "median", "low", "high", "rounds", "what"}
            assert 0 < figure["low"] <= figure["median"] <= figure["high"]
    assert found["figures"]["D"]["p50"]["median"] <= found["figures"]["D"]["p99"]["median"]


def test_without_a_store_it_leaves_nothing_behind(lite: Cli) -> None:
    """By default it uses a new file in the working folder and removes it afterwards. It does not touch HOLDFAST_STORE.
    People get a table."""
    before = set(lite.folder.iterdir())
    ended = lite("bench", "--quick", "--only", "c")
    assert "one run of 1,000 steps side by side" in ended.out
    assert "C: a wide run" in ended.errors
    assert set(lite.folder.iterdir()) == before


def test_a_store_with_runs_is_refused(lite: Cli) -> None:
    """Nobody fills a store in use with measurements by mistake."""
    lite("start", "app.py:gated")
    refused = lite("bench", "--quick", "--only", "C", "--store", lite.store, code=2)
    assert "has 1 runs: name an empty one" in refused.errors
    lite("bench", "--quick", "--only", "C", "--store", lite.store, "--force")


@pytest.mark.parametrize("given", ["Z", "A,AB", ""])
def test_an_unknown_measurement_is_refused(lite: Cli, given: str) -> None:
    """The error lists the measurements there are."""
    assert (
        "is not a measurement: name some of A,B,C,D,E,F,G,H,I"
        in lite("bench", "--only", given, code=2).errors
    )
