"""The published figures: one command runs all measurements and proofs, and writes down their results.

    python -m tests.figures --out docs/figures.json

Each part is a command that prints JSON, or tests that leave JSON files or print what they counted. The result also says
which parts are missing, and which failed; then the exit code is 1. Environment variables set how much is done:
HOLDFAST_SEEDS (of the simulation), HOLDFAST_CENSUS (fresh seeds for each planted bug), HOLDFAST_CHAOS_S (seconds of
harm for each scenario), HOLDFAST_EXAMPLES (of the comparison of the stores), HOLDFAST_FUZZ (made-up requests), HOLDFAST_SEED.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
SEEDS = os.environ.get("HOLDFAST_SEEDS", "1000")
CENSUS = os.environ.get("HOLDFAST_CENSUS", "1000")
SEED = os.environ.get("HOLDFAST_SEED", "1")
HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
NOT_MEASURED = [
    "hosts that vanish and clocks that jump: the simulation has them, real machines do not",
    "disks that lie about fsync",
    "the dashboard in a browser: `make pages` tries it, and measures its budgets",
    "questions to people, callbacks and events with kills: their tests pass or fail, and leave no figures here",
]


Read = Callable[[str, Path], Any]
"""Reads the figures from what was printed, and from the folder that HOLDFAST_FIGURES names."""


def printed(out: str, folder: Path) -> Any:
    """Read one JSON document from what was printed."""
    return json.loads(out)


def files(out: str, folder: Path) -> dict[str, Any]:
    """Read the JSON files, one for each scenario."""
    return {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}


def passed(out: str, folder: Path) -> dict[str, int]:
    """Read how many tests passed, failed and so on, as pytest sums it up."""
    return {
        word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)\b", out[-200:])
    }


def searched(out: str, folder: Path) -> list[dict[str, Any]]:
    """Read how much each search of a model visited."""
    found = re.findall(r"^(.+): (\d+) states, (\d+) moves, (\d+) ends", out, re.MULTILINE)
    return [
        {"what": what, "states": int(states), "moves": int(moves), "ends": int(ends)}
        for what, states, moves, ends in found
    ]


def counted(out: str, folder: Path) -> dict[str, int]:
    """Read what was counted: `9,324 cells`, or `6,044 requests, 0 answered 5xx`."""
    found = re.findall(r"\b([\d,]+) (cells|requests|answered 5xx)\b", out)
    return {what: int(count.replace(",", "")) for count, what in found}


class Part(NamedTuple):
    """One part of the figures, and the command that measures it."""

    name: str
    command: list[str]
    needs: str
    """A module that the part needs."""
    read: Read = printed
    may_find: bool = False
    """True if exit code 1 means that the command found something, as it should."""


def parts() -> Iterator[Part]:
    python = sys.executable
    simulation = "tests.simulation.__main__"
    seeds = ["--seeds", SEEDS, "--jobs", str(os.cpu_count() or 1)]
    yield Part("simulation", [python, "-m", "tests.simulation", *seeds, "--json"], simulation)
    yield Part("mutants", [python, "-m", "tests.simulation", "--mutants", "--json"], simulation)
    census = ["--mutants", "--census", CENSUS, *seeds[2:], "--json"]
    yield Part("mutants counted", [python, "-m", "tests.simulation", *census], simulation)
    tests = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "3600"]
    yield Part("model check", [*tests, "tests/modelcheck", "-s"], "tests.modelcheck", searched)
    yield Part("stores compared", [*tests, "tests/differential"], "tests.differential", passed)
    yield Part("chaos", [*tests, "tests/chaos"], "tests.chaos", files)
    yield Part("authorisation", [python, "-m", "tests.http.matrix"], "tests.http.matrix", counted)
    yield Part("made-up requests", [*tests, "tests/http/test_fuzz.py", "-s"], "tests.http.test_fuzz", counted)
    simulate = [HOLDFAST, "simulate", "--json"]
    yield Part("clean example", [*simulate, "examples/order.py:order"], "holdfast.commands.simulate")
    yield Part(
        "careless example",
        [*simulate, "examples/order.py:careless_order"],
        "holdfast.commands.simulate",
        may_find=True,
    )
    bench = [HOLDFAST, "bench", "--json"]
    yield Part("speed on SQLite", bench, "holdfast.bench")
    on_postgres = [python, "-m", "tests.postgres", *bench, "--store", "{}"]
    yield Part("speed on PostgreSQL", on_postgres, "holdfast.bench")
    yield Part("speed in pairs", [python, "bench/pairs.py", "--json"], "bench.pairs")


def measured(part: Part, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Run a part, and return its `figures`, or why there are none."""
    here = f"{Path(sys.executable).parent}{os.sep}"
    found: dict[str, Any] = {"command": " ".join(part.command).replace(here, "")}
    if not _is_there(part.needs):
        return found | {"missing": f"there is no {part.needs.removesuffix('.__main__')} here"}
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(
            part.command,
            cwd=ROOT,
            env={**environment, "HOLDFAST_FIGURES": folder},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        found |= {"seconds": round(time.monotonic() - begun, 1), "exit": ended.returncode}
        try:
            figures = part.read(ended.stdout, Path(folder))
        except json.JSONDecodeError:
            return found | {"failed": f"it printed no JSON: {ended.stdout[-500:]!r}"}
    found["figures"] = figures
    if ended.returncode not in {0, 1 if part.may_find else 0}:
        found["failed"] = f"exit code {ended.returncode}: {ended.stdout[-2000:]}"
    return found


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()


def _where_and_when() -> dict[str, Any]:
    return {
        "commit": _git("rev-parse", "HEAD"),
        "changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.figures", description="Write the published figures."
    )
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "figures.json")
    parser.add_argument(
        "--only", action="append", default=[], help="only this part, the others stay; may be repeated"
    )
    given = parser.parse_args()
    before = json.loads(given.out.read_text())["parts"] if given.only and given.out.exists() else {}
    found: dict[str, Any] = {
        "seed": SEED,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "parts": before,
        "not_measured": NOT_MEASURED,
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for part in parts():
        if given.only and part.name not in given.only:
            continue
        print(f"{part.name}: {' '.join(part.command)}", file=sys.stderr, flush=True)
        found["parts"][part.name] = result = _where_and_when() | measured(part)
        print(f"  {result.get('missing') or result.get('failed') or 'done'}", file=sys.stderr, flush=True)
        # Write after each part, because a part may take half an hour.
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(given.out)
    return 1 if any("failed" in result for result in found["parts"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
