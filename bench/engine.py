"""How many runs and steps one process moves, through the product's own machinery, with fsync on.

    python -m bench.engine                                   both stores: a SQLite file, and the tests' PostgreSQL
    python -m bench.engine --store postgresql://… --json

A: runs of one no-op step, runs/s. B: runs of 10 sequential no-op steps, steps/s. A run counts when its end is committed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from contextlib import ExitStack
from tempfile import TemporaryDirectory

import uvloop

from holdfast import Holdfast, step, workflow
from holdfast.environment import Environment
from holdfast.store import open_store
from tests.postgres import postgres_server


@step
async def noop(x: int) -> int:
    return x + 1


@workflow
async def chain(length: int) -> int:
    x = 0
    for _ in range(length):
        x = await noop(x)
    return x


async def drive(hf: Holdfast, runs: int, length: int, in_flight: int) -> float:
    """Start `runs` runs, at most `in_flight` at a time; seconds until the last has ended."""
    left = runs

    async def lane() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            run = await hf.start(chain, length)
            assert await run.result() == length

    began = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(in_flight)))
    return time.perf_counter() - began


async def measure(url: str, in_flight: int) -> dict[str, float]:
    store = open_store(url, Environment())
    await store.migrate()
    await store.close()
    async with Holdfast(url) as hf:
        await drive(hf, 200, 2, in_flight)
        before = hf.node.writer.commits
        one = await drive(hf, 10_000, 1, in_flight)
        between = hf.node.writer.commits
        ten = await drive(hf, 1_000, 10, in_flight)
        after = hf.node.writer.commits
        states = await hf.store.runs_by_state()
        assert set(states) == {"succeeded"}, states
    return {
        "A_runs_per_s": round(10_000 / one),
        "B_steps_per_s": round(10_000 / ten),
        "A_commits": between - before,
        "B_commits": after - between,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", action="append", help="an empty store; may be given several times")
    parser.add_argument("--in-flight", type=int, default=500, help="runs started at a time (500)")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with ExitStack() as stack:
        stores = given.store
        if not stores:
            folder = stack.enter_context(TemporaryDirectory())
            stores = [f"sqlite:///{folder}/bench.db", stack.enter_context(postgres_server()).url]
        for url in stores:
            name = url.split(":", 1)[0]
            figures = uvloop.run(measure(url, given.in_flight))
            if given.json:
                print(json.dumps({"store": name, **figures}))
            else:
                print(f"{name:12}", *(f"{key} {value:>8,}" for key, value in figures.items()))


if __name__ == "__main__":
    main()
