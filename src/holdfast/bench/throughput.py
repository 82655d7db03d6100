"""A and B: how much one process does. G: the same, with the steps executed in another process. C: one wide run."""

from __future__ import annotations

import time
from typing import NamedTuple

from holdfast.bench.driver import Bench, check_recorded, drive, hosted
from holdfast.bench.figures import Figure, figure
from holdfast.bench.work import fan
from holdfast.client import Holdfast

ROUNDS, QUICK_ROUNDS = 5, 2
WIDTH = 1_000
CHAIN = 10


class Rates(NamedTuple):
    """What several rounds measured, one value for each round."""

    per_s: list[float]
    """Steps a second."""
    cpu_us: list[float]
    """Processor time of this process for one step. It is steadier than a rate when others use the machine, too."""


async def one_step_runs(bench: Bench) -> list[Figure]:
    """A."""
    async with Holdfast(bench.url) as hf:
        rates = await _rates(bench, hf, bench.size(5_000, 1_000), 1, "A")
    return [
        figure("runs_per_s", "runs/s", rates.per_s, "runs of one step, everything in one process"),
        figure("cpu_per_run", "µs", rates.cpu_us, "processor time of this process for one of them"),
    ]


async def ten_step_runs(bench: Bench) -> list[Figure]:
    """B."""
    async with Holdfast(bench.url) as hf:
        rates = await _rates(bench, hf, bench.size(1_000, 200), CHAIN, "B")
    return [
        figure(
            "steps_per_s", "steps/s", rates.per_s, "runs of ten steps in sequence, everything in one process"
        ),
        figure("cpu_per_step", "µs", rates.cpu_us, "processor time of this process for one of these steps"),
    ]


async def agents_apart(bench: Bench) -> list[Figure]:
    """G."""
    async with (
        hosted(bench, "agent", "holdfast.bench.work"),
        Holdfast(bench.url, roles=("scheduler", "supervisor")) as hf,
    ):
        ones = await _rates(bench, hf, bench.size(5_000, 1_000), 1, "G, one step")
        tens = await _rates(bench, hf, bench.size(1_000, 200), CHAIN, "G, ten steps")
    return [
        figure("runs_per_s", "runs/s", ones.per_s, "as A, the agent in a process of its own"),
        figure("steps_per_s", "steps/s", tens.per_s, "as B, the agent in a process of its own"),
    ]


async def wide_run(bench: Bench) -> list[Figure]:
    """C."""
    taken = []
    async with Holdfast(bench.url) as hf:
        for round_ in range(bench.size(10, 3) + 1):
            bench.say(f"C: round {round_}")
            began = bench.world.monotonic()
            total = await (await hf.start(fan, WIDTH)).result()
            taken.append(bench.world.monotonic() - began)
            assert total == WIDTH
    return [figure("seconds", "s", taken[1:], f"one run of {WIDTH:,} steps side by side, start to result")]


async def chain_rates(bench: Bench, hf: Holdfast, what: str) -> list[float]:
    """Measure B's rate once more, with whatever is in the store by now."""
    return (await _rates(bench, hf, bench.size(1_000, 200), CHAIN, what)).per_s


async def _rates(bench: Bench, hf: Holdfast, runs: int, length: int, what: str) -> Rates:
    """Measure runs of `length` steps in several rounds, after one round to warm up."""
    await drive(hf, max(100, runs // 10), length)
    rates = Rates([], [])
    for round_ in range(bench.size(ROUNDS, QUICK_ROUNDS)):
        bench.say(f"{what}: round {round_ + 1}, {runs:,} runs")
        before, cpu_s = await hf.store.reads.runs_by_state(), time.process_time()
        rates.per_s.append(runs * length / await drive(hf, runs, length))
        rates.cpu_us.append((time.process_time() - cpu_s) / (runs * length) * 1e6)
        await check_recorded(hf, before, runs)
    return rates
