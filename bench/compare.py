"""Compares Holdfast with its peers: the same work, in turns, on one machine. Run it by `python bench/compare.py`.

In each round every contender starts alone, does A to E (see docs/performance.md) and stops. So each contender meets the
same noise as the others, and the spread over the rounds shows how much of a difference is noise. It writes the figures
to results/comparison.json, and a chart of A and B beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # so that it runs as a file too

import asyncpg  # noqa: E402

from bench.chart import chart  # noqa: E402
from bench.contenders import CONTENDERS, Contender  # noqa: E402
from bench.environments import (  # noqa: E402
    NotInstalled,
    cache_folder,
    python_of,
    redis_server,
    restate_server,
)
from tests.postgres import Server, postgres_server  # noqa: E402

LETTERS = {
    "A": "one-step runs, runs/s",
    "B": "ten-step runs, steps/s",
    "C": "1,000 steps side by side, s",
    "D": "latency when idle, p50, ms",
    "E": "a killed process's step runs elsewhere, s",
}
RATES = ("A", "B")
"""Letters for which larger is better. For the others, smaller is better."""
OURS = ("holdfast-sqlite", "holdfast-postgres")
MEASURE_MAX_S = 900.0
KILLS_MAX = 3
"""E is not repeated more often than this, because it mostly waits."""

Values = dict[str, dict[str, list[dict[str, Any]]]]
"""What was measured, by contender and letter, with one entry for each round."""


class Machine(NamedTuple):
    """What all contenders share on this machine."""

    cache: Path
    folder: Path
    postgres: Server | None
    redis: str | None


def main() -> None:
    options = _options()
    names = [name for name in CONTENDERS if name in options.peers]
    with _machine(
        options.cache, {service for name in names for service in CONTENDERS[name].services}
    ) as machine:
        names = [name for name in names if _installed(name, machine)]
        values = _rounds(names, options.only, options.rounds, machine, quick=options.quick)
    result = _result(values, options)
    _print(result)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "comparison.json").write_text(json.dumps(result, indent=1) + "\n")
    if any(letter in options.only for letter in RATES):
        (options.out / "comparison.svg").write_text(chart(result))
    print(f"\nwritten to {options.out}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare Holdfast with its peers on this machine.")
    parser.add_argument("--rounds", type=int, default=5, help="how often each contender is measured")
    parser.add_argument("--only", default=",".join(LETTERS), help="letters, with commas")
    parser.add_argument("--peers", default=",".join(CONTENDERS), help=f"of {', '.join(CONTENDERS)}")
    parser.add_argument("--quick", action="store_true", help="a fifth of the work, and rougher")
    parser.add_argument("--cache", type=Path, default=cache_folder(), help="where the peers are installed")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    options.only, options.peers = options.only.split(","), options.peers.split(",")
    for given, known in ((options.only, LETTERS), (options.peers, CONTENDERS)):
        if unknown := set(given) - known.keys():
            parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return options


@contextmanager
def _machine(cache: Path, services: set[str]) -> Iterator[Machine]:
    """Start the servers that several contenders share. Their folder is in the working folder, because the system's
    temporary folder may be in memory."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="holdfast-compare-", dir=Path.cwd())))
        postgres = stack.enter_context(postgres_server()) if "postgres" in services else None
        redis = None
        if "redis" in services:
            try:
                redis = stack.enter_context(redis_server(folder))
            except NotInstalled:
                pass  # `_installed` says so for each contender that needs it
        yield Machine(cache, folder, postgres, redis)


def _installed(name: str, machine: Machine) -> bool:
    contender = CONTENDERS[name]
    try:
        python_of(contender, machine.cache)
        if "restate" in contender.services:
            restate_server(machine.cache)
        if "redis" in contender.services and machine.redis is None:
            raise NotInstalled("the program `redis-server` is not installed")
    except NotInstalled as reason:
        print(f"{contender.title} is left out: {reason}", file=sys.stderr)
        return False
    return True


def _rounds(names: list[str], letters: list[str], rounds: int, machine: Machine, *, quick: bool) -> Values:
    values: Values = {name: {letter: [] for letter in letters} for name in names}
    for round_ in range(rounds):
        wanted = [letter for letter in letters if letter != "E" or round_ < KILLS_MAX]
        # Every second round goes backwards, so that a contender does not always come right after the same heavy one.
        for name in names if round_ % 2 == 0 else names[::-1]:
            print(f"round {round_ + 1} of {rounds}: {CONTENDERS[name].title}", file=sys.stderr, flush=True)
            try:
                for line in _measured(CONTENDERS[name], wanted, machine, quick=quick):
                    values[name][line.pop("letter")].append(line)
            except (subprocess.SubprocessError, OSError) as error:
                print(f"{CONTENDERS[name].title}: {error}", file=sys.stderr)
    return values


def _measured(
    contender: Contender, letters: list[str], machine: Machine, *, quick: bool
) -> list[dict[str, Any]]:
    """Measure one contender for one round, in a folder and a database of its own."""
    with TemporaryDirectory(dir=machine.folder, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        environment = os.environ | {
            "BENCH_FOLDER": str(folder),
            "BENCH_REDIS": machine.redis or "",
            "BENCH_STORE": f"sqlite:///{folder}/holdfast.db",
            "PYTHONPATH": str(ROOT),
        }
        if "restate" in contender.services:
            environment["BENCH_RESTATE"] = str(restate_server(machine.cache))
        database = f"bench_{time.monotonic_ns()}"
        server = machine.postgres if "postgres" in contender.services else None
        if server is not None:
            asyncio.run(_sql(server.url, f"CREATE DATABASE {database}"))
            url = server.database_url(database)
            environment |= {"BENCH_POSTGRES": url, "BENCH_STORE": url}
        module = f"bench.peers.{contender.program}"
        command = [str(python_of(contender, machine.cache)), "-m", module, "--only", ",".join(letters)]
        try:
            done = subprocess.run(
                [*command, *(["--quick"] if quick else [])],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=MEASURE_MAX_S,
                check=False,
            )
            if done.returncode != 0:
                last = (done.stderr.strip().splitlines() or [_log(folder)])[-1]
                raise subprocess.SubprocessError(f"its program failed: {last}")
            return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        finally:
            if server is not None:
                asyncio.run(_sql(server.url, f"DROP DATABASE {database} WITH (FORCE)"))


def _log(folder: Path) -> str:
    log = folder / "log"
    return log.read_text().strip() if log.exists() else "it printed nothing"


async def _sql(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


# --- figures ------------------------------------------------------------------------------------------------------------


def _result(values: Values, options: argparse.Namespace) -> dict[str, Any]:
    figures = {
        name: {letter: found for letter, lines in by.items() if (found := _figure(lines))}
        for name, by in values.items()
    }
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "load": [round(load, 1) for load in os.getloadavg()],
        },
        "rounds": options.rounds,
        "quick": options.quick,
        "contenders": {
            name: {
                "title": CONTENDERS[name].title,
                "packages": list(CONTENDERS[name].packages),
                "durable": CONTENDERS[name].durable,
                "terms": CONTENDERS[name].terms,
                "figures": figures[name],
            }
            for name in values
        },
        "ratios": _ratios(values),
    }


def _figure(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the median, smallest and largest value of a letter. Without any value, return the reason: `over`, the
    seconds within which it did not happen, or `not_offered`."""
    values = [line["value"] for line in lines if "value" in line]
    if not values:
        return {key: line[key] for line in lines for key in ("over", "not_offered") if key in line}
    figure: dict[str, Any] = _spread(values)
    for share in ("p95", "p99"):
        if found := [line[share] for line in lines if share in line]:
            figure[share] = _rounded(statistics.median(found))
    return figure


def _ratios(values: Values) -> dict[str, dict[str, dict[str, Any]]]:
    """Return how many times better Holdfast is than each peer, from values of the same round."""
    ratios: dict[str, dict[str, dict[str, Any]]] = {}
    for ours in OURS:
        for name in values:
            if ours not in values or name in OURS:
                continue
            for letter in values[name]:
                pairs = [
                    (mine["value"], theirs["value"])
                    for mine, theirs in zip(values[ours][letter], values[name][letter], strict=False)
                    if "value" in mine and "value" in theirs
                ]
                times = [mine / theirs if letter in RATES else theirs / mine for mine, theirs in pairs]
                if times:
                    ratios.setdefault(ours, {}).setdefault(name, {})[letter] = _spread(times)
    return ratios


def _spread(values: list[float]) -> dict[str, Any]:
    return {
        "median": _rounded(statistics.median(values)),
        "low": _rounded(min(values)),
        "high": _rounded(max(values)),
    }


def _rounded(value: float) -> float:
    """Round to three significant digits, because more would be noise."""
    return float(f"{value:.3g}")


def _print(result: dict[str, Any]) -> None:
    contenders = result["contenders"]
    letters: dict[str, dict[str, dict[str, Any]]] = {}
    for name, contender in contenders.items():
        for letter, figure in contender["figures"].items():
            letters.setdefault(letter, {})[name] = figure
    for letter, by in letters.items():
        print(f"\n{letter}: {LETTERS[letter]}")
        for name, figure in by.items():
            more = "".join(
                f"  {_times(result['ratios'][ours][name][letter])} {CONTENDERS[ours].title}"
                for ours in OURS
                if letter in result["ratios"].get(ours, {}).get(name, {})
            )
            print(f"  {contenders[name]['title']:27}{_shown(figure):34}{more}")


def _shown(figure: dict[str, Any]) -> str:
    if "median" not in figure:
        return f"not within {figure['over']:.0f} s" if "over" in figure else "has no such thing"
    tail = f", p99 {figure['p99']:,g}" if "p99" in figure else ""
    return f"{figure['median']:,g} ({figure['low']:,g} – {figure['high']:,g}){tail}"


def _times(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:,g}x ({ratio['low']:,g} – {ratio['high']:,g})"


if __name__ == "__main__":
    main()
