"""The comparison with peers runs, and reports what it measured."""

import json
import subprocess
import sys
from itertools import count
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest

from bench.chart import chart
from bench.compare import _ratios
from bench.contenders import CONTENDERS
from bench.pairs import in_turns

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", CONTENDERS)
def test_every_contender_has_a_program_and_pinned_packages(name: str) -> None:
    """Its program is in the repository, and its packages will be the same tomorrow."""
    contender = CONTENDERS[name]
    assert (ROOT / "bench" / "peers" / f"{contender.program}.py").exists()
    assert all("==" in package for package in contender.packages)


def test_a_ratio_is_taken_within_a_round() -> None:
    """The two values of a round met the same noise. For times the ratio is inverted. A measurement without a value
    gives no ratio."""
    measured = {
        "holdfast-sqlite": {
            "A": [{"value": 100.0}, {"value": 50.0}],
            "C": [{"value": 1.0}],
            "E": [{"value": 1.0}],
        },
        "restate": {"A": [{"value": 10.0}, {"value": 10.0}], "C": [{"value": 4.0}], "E": [{"over": 20.0}]},
    }
    ratios = _ratios(measured)["holdfast-sqlite"]["restate"]
    assert ratios["A"] == {"median": 7.5, "low": 5.0, "high": 10.0}
    assert ratios["C"]["median"] == 4.0
    assert "E" not in ratios


@pytest.mark.timeout(240)
def test_it_measures_and_draws(tmp_path: Path) -> None:
    """One command gives figures and a chart."""
    command = [
        sys.executable,
        str(ROOT / "bench" / "compare.py"),
        "--quick",
        "--rounds",
        "1",
        "--only",
        "A,B,E",
    ]
    subprocess.run(
        [*command, "--peers", "holdfast-sqlite", "--out", str(tmp_path)],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    result = json.loads((tmp_path / "comparison.json").read_text())
    figures = result["contenders"]["holdfast-sqlite"]["figures"]
    assert set(figures) == {"A", "B", "E"}
    assert all(figure["low"] == figure["median"] == figure["high"] > 0 for figure in figures.values())
    drawn = fromstring((tmp_path / "comparison.svg").read_text())
    assert drawn.tag.endswith("svg")
    assert chart(result) == (tmp_path / "comparison.svg").read_text()


async def test_a_ratio_is_taken_within_each_round() -> None:
    """A machine that becomes slower and slower does not change the ratio of two measurements that take turns."""
    speeds = (1000 * 0.8**n for n in count())

    async def one() -> float:
        return next(speeds)

    async def other() -> float:
        return next(speeds) / 2

    found = await in_turns(one, other, 20)
    assert found["ratio"] == pytest.approx(0.5, rel=0.05), "it would be 0.4 if one were always first"
    low, high = found["quartiles"]
    assert (low, high) == (pytest.approx(0.4), pytest.approx(0.625))
