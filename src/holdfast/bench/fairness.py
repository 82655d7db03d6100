"""K: runs with fair keys and limits, compared with runs without. They take turns, because others may use the machine, too, and
each is first in turn, because the store grows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from holdfast.bench.driver import Bench, check_recorded, drive, hosted
from holdfast.bench.figures import Figure, figure
from holdfast.bench.work import chain, limited_chain
from holdfast.client import Holdfast
from holdfast.workflow.workflow import Workflow

KEYS = 100
CHAIN = 10
ROUNDS, QUICK_ROUNDS = 5, 3


class FairRound(NamedTuple):
    per_s: float
    """Steps a second."""
    cpu_us: float
    """Processor time of the scheduler's process for one step."""


async def fair_and_limited(bench: Bench) -> list[Figure]:
    """K."""
    kinds: dict[str, Callable[[int], Workflow[[int], int]]] = {
        "plain": lambda number: chain,
        "fair": lambda number: chain.using(fair=f"key-{number % KEYS}"),
        "limited": lambda number: limited_chain.using(fair=f"key-{number % KEYS}"),
    }
    rounds: dict[str, list[FairRound]] = {name: [] for name in kinds}
    async with (
        hosted(bench, "agent", "holdfast.bench.work"),
        Holdfast(bench.url, roles=("scheduler", "supervisor")) as hf,
    ):
        for number in range(bench.size(ROUNDS, QUICK_ROUNDS) + 1):
            names = [*kinds]
            first = number % len(names)
            for name in names[first:] + names[:first]:
                bench.say(f"K, {name}, round {number}")
                found = await _round(bench, hf, kinds[name])
                if number:  # the first one is to warm up, and makes the queues
                    rounds[name].append(found)

    def by_plain(name: str) -> list[float]:
        return [one.per_s / base.per_s for one, base in zip(rounds[name], rounds["plain"], strict=True)]

    return [
        figure(
            "steps_per_s",
            "steps/s",
            [one.per_s for one in rounds["limited"]],
            f"as G, ten steps in sequence, {KEYS} fair keys and a limit for each",
        ),
        figure("limited_by_plain", "", by_plain("limited"), "the same, by the rate without keys and limits"),
        figure("fair_by_plain", "", by_plain("fair"), "with fair keys alone, by the rate without"),
        figure(
            "cpu_per_step",
            "µs",
            [one.cpu_us for one in rounds["limited"]],
            "processor time of the scheduler, with keys and limits",
        ),
        figure("plain_cpu_per_step", "µs", [one.cpu_us for one in rounds["plain"]], "and without"),
    ]


async def _round(bench: Bench, hf: Holdfast, made: Callable[[int], Workflow[[int], int]]) -> FairRound:
    runs = bench.size(1_000, 200)
    before, cpu_s = await hf.store.reads.runs_by_state(), time.process_time()
    per_s = runs * CHAIN / await drive(hf, runs, CHAIN, made)
    cpu_us = (time.process_time() - cpu_s) / (runs * CHAIN) * 1e6
    await check_recorded(hf, before, runs)
    return FairRound(per_s, cpu_us)
