"""`make figures`: what is there is written down, what is not is said."""

import json
import subprocess
import sys
from pathlib import Path

from tests import figures
from tests.figures import Part, measured

ROOT = Path(__file__).parents[2]


def test_a_part_that_is_missing_is_said_so() -> None:
    """No figure is better than a wrong one, and the rest goes on."""
    told = measured(Part("x", [sys.executable, "-m", "tests.nowhere"], "tests.nowhere"))
    assert told["missing"] == "there is no tests.nowhere here"
    assert "figures" not in told


def test_a_part_that_fails_is_said_so() -> None:
    """What it printed is kept."""
    told = measured(Part("x", [sys.executable, "-c", "print('{}'); raise SystemExit(3)"], "json"))
    assert (told["exit"], told["figures"]) == (3, {})
    assert told["failed"].startswith("exit code 3")
    assert "no JSON" in measured(Part("x", [sys.executable, "-c", "print('oops')"], "json"))["failed"]


def test_files_of_tests_are_collected() -> None:
    """A test writes its figures into the folder that HOLDFAST_FIGURES names."""
    code = "import os, pathlib; pathlib.Path(os.environ['HOLDFAST_FIGURES'], 'a.json').write_text('[1]')"
    assert measured(Part("x", [sys.executable, "-c", code], "json", writes_files=True))["figures"] == {
        "a": [1]
    }


def test_the_whole_is_one_document(tmp_path: Path) -> None:
    """With the commit, the seed and the machine."""
    out = tmp_path / "figures.json"
    command = [
        sys.executable,
        "-m",
        "tests.figures",
        "--out",
        str(out),
        "--only",
        "clean example",
        "--only",
        "careless example",
    ]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    found = json.loads(out.read_text())
    assert set(found) == {
        "commit", "changed", "at", "seed", "python", "cores", "parts", "not_measured",
    }  # fmt: skip
    assert found["parts"]["clean example"]["figures"]["boundaries"] == 58
    assert found["parts"]["careless example"]["figures"]["findings"]
    assert {part.name for part in figures.parts()} >= {"simulation", "mutants", "chaos", "speed"}
