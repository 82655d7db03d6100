"""How much of the product the simulation executes. What it never executes stands in `unplayed.toml`, with the reason."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast

SOURCE = Path(holdfast.__file__).parent
LOOKED_AT = ("supervisor/*.py", "scheduler/*.py", "agent/*.py", "store/*.py", "store/sqlite/*.py")
SEEDS = 300
SHARE_MIN = 0.9
"""At least this share of the lines is executed, in files that are not listed whole."""
_REASONS = tomllib.loads(Path(__file__).with_name("unplayed.toml").read_text("utf-8"))["unplayed"]
UNPLAYED: dict[str, str] = {place: reason["why"] for reason in _REASONS for place in reason["places"]}
"""By function (`supervisor/why.py::explain`) or by file, why the simulation does not execute all of it."""


def _functions(file: Path) -> Iterator[tuple[str, int, int]]:
    """Yield each function of a file with its first and last line. Inner ones come after the function around them."""

    def walk(node: ast.AST, name: str) -> Iterator[tuple[str, int, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{name}.{child.name}" if name else child.name
                if not isinstance(child, ast.ClassDef):
                    yield inner, child.lineno, child.end_lineno or child.lineno
                yield from walk(child, inner)
            else:
                yield from walk(child, name)

    yield from walk(ast.parse(file.read_text("utf-8")), "")


def _place(file: Path, line: int) -> str:
    """Return the outermost function that a line is in; if it is in none, the file."""
    path = str(file.relative_to(SOURCE))
    inside = [name for name, first, last in _functions(file) if first <= line <= last]
    return f"{path}::{inside[0]}" if inside else path


def test_each_reason_names_something_that_exists() -> None:
    """No reason in the list is about a function that is gone."""
    files = [file for pattern in LOOKED_AT for file in SOURCE.glob(pattern)]
    known = {str(file.relative_to(SOURCE)) for file in files}
    known |= {f"{file.relative_to(SOURCE)}::{name}" for file in files for name, _, _ in _functions(file)}
    assert [place for place in UNPLAYED if place not in known] == []


@pytest.mark.timeout(900)
def test_300_seeds_execute_all_but_what_is_listed(tmp_path: Path) -> None:
    """The roles and the store have no line that the simulation never executes, apart from the functions in the list."""
    data, report = tmp_path / "data", tmp_path / "report.json"
    python = [sys.executable, "-m"]
    seeds = ["-m", "tests.simulation", "--seeds", str(SEEDS), "--jobs", "1", "--json"]
    run = [*python, "coverage", "run", f"--data-file={data}", *seeds]
    subprocess.run(run, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([*python, "coverage", "json", f"--data-file={data}", "-o", str(report), "-q"], check=True)
    left: dict[str, list[int]] = {}
    lines = missed = 0
    looked_at = {file for pattern in LOOKED_AT for file in SOURCE.glob(pattern)}
    for name, found in json.loads(report.read_text("utf-8"))["files"].items():
        file = Path(name).resolve()
        path = str(file.relative_to(SOURCE)) if file in looked_at else None
        if path is None or path in UNPLAYED:
            continue
        for line in found["missing_lines"]:
            place = _place(file, line)
            if place not in UNPLAYED:
                missed += 1
                left.setdefault(place, []).append(line)
        lines += len(found["executed_lines"])
    listed = "".join(f"\n{place}: {', '.join(map(str, found))}" for place, found in sorted(left.items()))
    assert not left, (
        f"{missed} lines beside {lines} were never executed, and have no reason in unplayed.toml:{listed}"
    )
