"""Measures the ratios of G, H and I on two stores that take turns on one machine: `python bench/pairs.py`.

`holdfast bench` measures a store before and after it is filled. Minutes pass between the two, in which the machine's
own speed may change by more than the effect that is measured. Here one store stays small, and the other gets what
should not matter. Each round is done on both, one right after the other, and gives one ratio. The result is the median
over all rounds, with the quartiles.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # so that it runs as a file too

import psycopg  # noqa: E402

from holdfast.bench.driver import IN_FLIGHT, Bench, drive, hosted  # noqa: E402
from holdfast.bench.latency import latency, put_to_sleep  # noqa: E402
from holdfast.bench.throughput import CHAIN  # noqa: E402
from holdfast.client import Holdfast  # noqa: E402
from holdfast.commands.event_loop import run_long  # noqa: E402
from holdfast.environment import Environment  # noqa: E402
from tests.postgres import postgres_server  # noqa: E402

RUNS = 1_000
ROUNDS = 20
LATENCIES = 300
SLEEPERS = 100_000
HISTORY = 500_000
SHARES = ("G_one_step", "G_ten_steps", "H", "I")

Round = Callable[[], Awaitable[float]]
Figures = dict[str, Any]


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


async def in_turns(one: Round, other: Round, rounds: int) -> Figures:
    """Return the values of `other` divided by those of `one`, round by round. They take turns in being first."""
    ones, others = [], []
    for number in range(rounds):
        if number % 2:
            others.append(await other())
            ones.append(await one())
        else:
            ones.append(await one())
            others.append(await other())
    shares = [after / before for before, after in zip(ones, others, strict=True)]
    low, middle, high = statistics.quantiles(shares, n=4)
    return {
        "ratio": round(middle, 3),
        "quartiles": [round(low, 3), round(high, 3)],
        "medians": [round(statistics.median(ones), 2), round(statistics.median(others), 2)],
        "rounds": rounds,
    }


def rate_of(hf: Holdfast, runs: int, length: int) -> Round:
    async def rate() -> float:
        return runs * length / await drive(hf, runs, length)

    return rate


async def measure(here: str, there: str, scale: float) -> Figures:
    """Measure all ratios on two empty stores. A `scale` below 1 makes it shorter and rougher."""
    runs, rounds = max(IN_FLIGHT, int(RUNS * scale)), max(4, int(ROUNDS * scale))
    bench = Bench(there, Path.cwd(), False, say, Environment())
    figures: Figures = {}
    async with (
        Holdfast(here) as whole,
        hosted(bench, "agent", "holdfast.bench.work"),
        Holdfast(there, roles=("scheduler", "supervisor")) as apart,
    ):
        for name, count, length in (("G_one_step", runs * 5, 1), ("G_ten_steps", runs, CHAIN)):
            say(f"{name}: the agent in a process of its own, beside all in one process")
            one, other = rate_of(whole, count, length), rate_of(apart, count, length)
            await one()
            await other()
            figures[name] = await in_turns(one, other, rounds)
    say(f"I: {int(HISTORY * scale):,} steps of history")
    async with Holdfast(there) as old:
        for _ in range(int(HISTORY * scale) // (2_000 * CHAIN) + 1):
            await drive(old, 2_000, CHAIN)
    async with Holdfast(here) as young, Holdfast(there) as old:
        await drive(young, runs, CHAIN)
        await drive(old, runs, CHAIN)
        figures["I"] = await in_turns(rate_of(young, runs, CHAIN), rate_of(old, runs, CHAIN), rounds)
    say(f"H: {int(SLEEPERS * scale):,} runs asleep")
    await put_to_sleep(bench, int(SLEEPERS * scale))
    async with Holdfast(here) as calm, Holdfast(there) as full:
        one, other = partial(latency, calm), partial(latency, full)
        for _ in range(20):
            await one()
            await other()
        figures["H"] = await in_turns(one, other, max(20, int(LATENCIES * scale)))
    return figures


@contextmanager
def sqlite_stores() -> Iterator[tuple[str, str]]:
    """Yield the addresses of two SQLite stores in the working folder. The system's temporary folder may be in memory,
    where fsync costs nothing."""
    with TemporaryDirectory(dir=".", prefix=".pairs-") as folder:
        root = Path(folder).resolve()
        yield f"sqlite:///{root / 'here.db'}", f"sqlite:///{root / 'there.db'}"


@contextmanager
def postgres_stores() -> Iterator[tuple[str, str]]:
    names = [f"pairs_{uuid4().hex[:12]}" for _ in range(2)]
    with postgres_server() as server:
        with psycopg.connect(server.url, autocommit=True) as session:
            for name in names:
                session.execute(f"CREATE DATABASE {name}".encode())
        here, there = map(server.database_url, names)
        yield here, there
        with psycopg.connect(server.url, autocommit=True) as session:
            for name in names:
                session.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench/pairs.py", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="a twentieth of the work, and rougher")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    options = parser.parse_args()
    figures: Figures = {}
    for name, stores in (("sqlite", sqlite_stores), ("postgres", postgres_stores)):
        say(f"{name}:")
        with stores() as (here, there):
            figures[name] = run_long(measure(here, there, 0.05 if options.quick else 1.0))
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    for name, shares in figures.items():
        print(name)
        for share in SHARES:
            found = shares[share]
            low, high = found["quartiles"]
            one, other = found["medians"]
            print(
                f"  {share:12} {found['ratio']:.2f} ({low:.2f} – {high:.2f})   {other:,} divided by {one:,}"
            )


if __name__ == "__main__":
    main()
