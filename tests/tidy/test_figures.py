"""`make figures` writes down each part's figures, or why there are none."""

import json
import subprocess
import sys
from pathlib import Path

from tests import figures
from tests.figures import Part, counted, files, measured, passed, searched

ROOT = Path(__file__).parents[2]


def test_a_part_that_is_missing_is_said_so() -> None:
    """No figure is better than a wrong one, and the other parts go on."""
    result = measured(Part("x", [sys.executable, "-m", "tests.nowhere"], "tests.nowhere"))
    assert result["missing"] == "there is no tests.nowhere here"
    assert "figures" not in result


def test_a_part_that_fails_is_said_so() -> None:
    """What it printed is kept."""
    result = measured(Part("x", [sys.executable, "-c", "print('{}'); raise SystemExit(3)"], "json"))
    assert (result["exit"], result["figures"]) == (3, {})
    assert result["failed"].startswith("exit code 3")
    assert "no JSON" in measured(Part("x", [sys.executable, "-c", "print('oops')"], "json"))["failed"]


def test_files_of_tests_are_collected() -> None:
    """A test writes its figures into the folder that HOLDFAST_FIGURES names."""
    code = "import os, pathlib; pathlib.Path(os.environ['HOLDFAST_FIGURES'], 'a.json').write_text('[1]')"
    assert measured(Part("x", [sys.executable, "-c", code], "json", files))["figures"] == {"a": [1]}


def test_what_tests_print_is_read(tmp_path: Path) -> None:
    """The figures say how many tests passed, and how much the search of a model visited."""
    out = "claims {'a': 1}: 15000 states, 31000 moves, 7 ends, 2.1 s\n.\n3 passed, 1 skipped in 2.20s\n"
    assert passed(out, tmp_path) == {"passed": 3, "skipped": 1}
    assert searched(out, tmp_path) == [
        {"what": "claims {'a': 1}", "states": 15000, "moves": 31000, "ends": 7}
    ]
    assert counted("GET /healthz\n  nobody alpha 200\n\n9,324 cells\n", tmp_path) == {"cells": 9324}
    assert counted(".6,044 requests, 0 answered 5xx\n", tmp_path) == {"requests": 6044, "answered 5xx": 0}


def test_the_whole_is_one_document(tmp_path: Path) -> None:
    """The document has the seed and the machine, and each part has its commit. A part that is not measured again stays
    as it was."""
    out = tmp_path / "figures.json"
    out.write_text('{"parts": {"mutants": {"commit": "", "changed": false, "at": ""}}}')
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
    assert set(found) == {"seed", "python", "cores", "parts", "not_measured"}
    assert all(part.keys() >= {"commit", "changed", "at"} for part in found["parts"].values())
    assert found["parts"].keys() == {"mutants", "clean example", "careless example"}
    assert found["parts"]["clean example"]["figures"]["boundaries"] > 40
    assert found["parts"]["careless example"]["figures"]["findings"]
    assert {part.name for part in figures.parts()} >= {"simulation", "mutants", "chaos", "speed on SQLite"}
