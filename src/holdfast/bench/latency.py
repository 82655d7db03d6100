"""D: how long one run takes when there is nothing else to do. H: the same, with very many runs asleep in the store."""

from __future__ import annotations

import asyncio

from holdfast.bench.driver import Bench, NotMeasured, hosted, memory_mb, with_store
from holdfast.bench.figures import Figure, figure, percentile
from holdfast.bench.work import chain
from holdfast.client import Holdfast
from holdfast.interpreters import python

PAUSE_S = 0.01
"""The pause between two runs, so that each run meets an idle system and not the end of the one before."""


async def idle(bench: Bench) -> list[Figure]:
    """D."""
    taken = await _latencies(bench, bench.size(300, 60), "D")
    return _percentiles(taken, "", "a run of one step on an idle system, start to result")


async def among_sleepers(bench: Bench) -> list[Figure]:
    """H."""
    runs, sleepers = bench.size(300, 60), bench.size(100_000, 5_000)
    before = await _latencies(bench, runs, "H, no run sleeps")
    before_mb = await _idle_memory(bench)
    await put_to_sleep(bench, sleepers)
    after = await _latencies(bench, runs, f"H, {sleepers:,} sleep")
    after_mb = await _idle_memory(bench)
    return [
        *_percentiles(before, "empty_", "as D, right before"),
        *_percentiles(after, "", f"as D, with {sleepers:,} runs asleep"),
        figure("empty_memory", "MB", [before_mb], "memory of `holdfast up`, right before"),
        figure("memory", "MB", [after_mb], f"memory of `holdfast up`, with {sleepers:,} runs asleep"),
    ]


async def _latencies(bench: Bench, runs: int, what: str) -> list[float]:
    taken = []
    async with Holdfast(bench.url) as hf:
        for number in range(runs + 20):
            if number % 20 == 0:
                bench.say(f"{what}: run {number}")
            taken.append(await latency(hf))
    return taken[20:]


async def latency(hf: Holdfast) -> float:
    """Return the milliseconds from `start` to the result of one run, which begins after a pause."""
    await hf.environment.sleep(PAUSE_S)
    began = hf.environment.monotonic()
    await (await hf.start(chain, 1)).result()
    return (hf.environment.monotonic() - began) * 1000


def _percentiles(taken: list[float], prefix: str, what: str) -> list[Figure]:
    return [
        figure(f"{prefix}p{share}", "ms", [percentile(taken, share / 100)], f"{what}, p{share}")
        for share in (50, 95, 99)
    ]


async def _idle_memory(bench: Bench) -> float:
    async with hosted(bench, "up", "holdfast.bench.work") as node:
        await bench.world.sleep(1.0)
        return memory_mb(node.pid)


async def put_to_sleep(bench: Bench, sleepers: int) -> None:
    """Put this many runs to sleep in the store. A process of its own does it, so that its memory is free again
    afterwards."""
    process = await asyncio.create_subprocess_exec(
        *python("-m", "holdfast.bench.sleepers", str(sleepers)),
        env=with_store(bench.url),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            bench.say(f"H: {int(line):,} runs asleep")
        if await process.wait() != 0:
            raise NotMeasured("the store could not be filled with sleeping runs")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
