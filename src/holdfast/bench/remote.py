"""J: an agent that reaches the store through a server, compared with one at the store itself. The two take turns, because
others may use the machine, too."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from typing import NamedTuple

from holdfast.bench.driver import Bench, check_recorded, drive, hosted
from holdfast.bench.figures import Figure, figure, percentile
from holdfast.bench.latency import PAUSE_S, latency
from holdfast.bench.work import begins
from holdfast.client import Holdfast
from holdfast.http.listener import Address, serving

CHAIN = 10
ROUNDS, QUICK_ROUNDS = 5, 2


class Round(NamedTuple):
    """One round, of runs of one step and of ten."""

    ones: float
    """Runs a second."""
    tens: float
    """Steps a second."""
    cpu_us: float
    """Processor time of the scheduler's process, with the server in it, for one step of ten."""


async def agents_over_http(bench: Bench) -> list[Figure]:
    """J."""
    roles = ("scheduler", "supervisor", "server")
    async with AsyncExitStack() as stack:
        hf = await stack.enter_async_context(Holdfast(bench.url, roles=roles))
        url = await stack.enter_async_context(serving(hf, hf.desk, Address("127.0.0.1", 0)))
        local: list[Round] = []
        remote: list[Round] = []
        for number in range(bench.size(ROUNDS, QUICK_ROUNDS)):
            local.append(await _round(bench, hf, f"J, at the store, round {number + 1}"))
            remote.append(await _round(bench._replace(url=url), hf, f"J, by HTTP, round {number + 1}"))
        taken, begun = await _latencies(bench._replace(url=url), hf)
    by_ones = [far.ones / near.ones for near, far in zip(local, remote, strict=True)]
    by_tens = [far.tens / near.tens for near, far in zip(local, remote, strict=True)]
    return [
        figure("runs_per_s", "runs/s", [one.ones for one in remote], "as G, the agent behind a server"),
        figure("runs_by_local", "", by_ones, "the same, by the rate of an agent at the store"),
        figure("steps_per_s", "steps/s", [one.tens for one in remote], "as G, ten steps in sequence"),
        figure("steps_by_local", "", by_tens, "the same, by the rate of an agent at the store"),
        figure(
            "cpu_per_step", "µs", [one.cpu_us for one in remote], "processor time of scheduler and server"
        ),
        figure(
            "local_cpu_per_step",
            "µs",
            [one.cpu_us for one in local],
            "of the scheduler, with an agent at the store",
        ),
        *(
            figure(
                f"begin_p{share}",
                "ms",
                [percentile(begun, share / 100)],
                f"idle, from when a step is ready until its code begins, p{share}",
            )
            for share in (50, 99)
        ),
        *(
            figure(
                f"p{share}",
                "ms",
                [percentile(taken, share / 100)],
                f"one step, idle, start to result, p{share}",
            )
            for share in (50, 99)
        ),
    ]


async def _round(bench: Bench, hf: Holdfast, what: str) -> Round:
    bench.say(what)
    async with hosted(bench, "agent", "holdfast.bench.work"):
        rates: list[float] = []
        cpu_us = 0.0
        for length, runs in ((1, bench.size(3_000, 500)), (CHAIN, bench.size(600, 100))):
            await drive(hf, max(50, runs // 10), length)
            before, cpu_s = await hf.store.reads.runs_by_state(), time.process_time()
            rates.append(runs * length / await drive(hf, runs, length))
            cpu_us = (time.process_time() - cpu_s) / (runs * length) * 1e6
            await check_recorded(hf, before, runs)
    return Round(rates[0], rates[1], cpu_us)


async def _latencies(bench: Bench, hf: Holdfast) -> tuple[list[float], list[float]]:
    """Return the milliseconds of runs, and those until the code of a step begins."""
    bench.say("J, latency")
    count = bench.size(200, 40) + 20
    async with hosted(bench, "agent", "holdfast.bench.work"):
        taken = [await latency(hf) for _ in range(count)]
        begun = [await _begins(hf) for _ in range(count)]
    return taken[20:], begun[20:]


async def _begins(hf: Holdfast) -> float:
    """Return the milliseconds from when a step was ready, by the store's clock, until its code began, by this host's. The
    database must be on this host, too."""
    await hf.environment.sleep(PAUSE_S)
    run = await hf.start(begins)
    at = await run.result()
    (row,) = await hf.store.reads.steps(run.id)
    return (at - row.issued_at) * 1000
