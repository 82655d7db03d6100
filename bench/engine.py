"""How many runs and steps one process moves, through the product's own machinery, with fsync on.

    python bench/engine.py --store sqlite:////tmp/bench.db --json
    python bench/engine.py --store postgresql://…

A: runs of one no-op step, runs/s. B: runs of 10 sequential no-op steps, steps/s. A run counts when its end is committed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time

import uvloop

from holdfast import Holdfast, step, workflow
from holdfast.environment import Environment
from holdfast.store import open_store


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True)
    parser.add_argument("--in-flight", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures = uvloop.run(measure(given.store, given.in_flight))
    print(json.dumps(figures) if given.json else "\n".join(f"{name}: {value:,}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
