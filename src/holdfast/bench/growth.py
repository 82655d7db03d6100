"""I: what a long history costs, of the whole store and of one run."""

from __future__ import annotations

import statistics
from pathlib import Path

from holdfast.bench.driver import PATIENCE_S, Bench, NotMeasured, begun, drive, hosted, own_folder
from holdfast.bench.figures import Figure, figure
from holdfast.bench.throughput import CHAIN, chain_rates
from holdfast.bench.work import chain, chain_then_wait, noop
from holdfast.client import Holdfast
from holdfast.run import Run

SHORT = 100
SHORT_RUNS = 10


async def growth(bench: Bench) -> list[Figure]:
    """I."""
    return [*await _store_history(bench), *await _run_history(bench)]


async def _store_history(bench: Bench) -> list[Figure]:
    """Measure B in a store with 1, 10 and 100 times a history of ended runs of the same kind."""
    unit = bench.size(5_000, 500)
    figures = []
    async with Holdfast(bench.url) as hf:
        for times in (1, 10, 100):
            while (missing := unit * times // CHAIN - await _ended(hf)) > 0:
                bench.say(f"I: {missing:,} runs to go to a history of {unit * times:,} steps")
                await drive(hf, min(missing, 2_000), CHAIN)
            rates = await chain_rates(bench, hf, f"I, {unit * times:,} steps of history")
            words = f"as B, with {unit * times:,} steps of history ({times}x)"
            figures.append(figure(f"history_{times}x", "steps/s", rates, words))
    return figures


async def _ended(hf: Holdfast) -> int:
    return (await hf.store.reads.runs_by_state()).get("succeeded", 0)


async def _run_history(bench: Bench) -> list[Figure]:
    """Measure one long run alone in a process, then kill that process, and measure the run's replay in another one."""
    length, rounds = bench.size(10_000, 1_000), bench.size(5, 2)
    with own_folder(bench) as folder:
        async with Holdfast(bench.url, roles=()) as hf:
            async with hosted(bench, "up", "holdfast.bench.work") as node:
                bench.say(f"I: runs of {SHORT} steps, and one of {length:,}")
                short = [await _short(hf) for _ in range(SHORT_RUNS)]
                run = await hf.start(chain_then_wait, length, str(folder), rounds + 1)
                await _reached(bench, run, folder)
                long = await _ms_per_step(run, length)
                short += [await _short(hf) for _ in range(SHORT_RUNS)]
                node.kill()
            replayed = [await _replay(bench, run, folder, turn) for turn in range(rounds)]
            (folder / f"go-{rounds}").touch()
            async with Holdfast(bench.url):
                await run.result(timeout=PATIENCE_S)
    ratio = long / statistics.median(short)
    return [
        figure("short_run", "ms", short, f"per step, a run of {SHORT} steps alone"),
        figure("long_run", "ms", [long], f"per step, a run of {length:,} steps alone"),
        figure("long_to_short", "x", [ratio], "the second divided by the first"),
        figure(
            "replay",
            "s",
            replayed,
            "that run after a kill: from opening a node to its next step, which needs the replay",
        ),
    ]


async def _short(hf: Holdfast) -> float:
    run = await hf.start(chain, SHORT)
    await run.result(timeout=PATIENCE_S)
    return await _ms_per_step(run, SHORT)


async def _ms_per_step(run: Run[int], length: int) -> float:
    """Return the time per step from the run's beginning to the end of its last `noop`, as the store recorded it."""
    row, steps, *_ = await run.rows()
    ended = [step.finished_at for step in steps if step.name == noop.name]
    if len(ended) != length or None in ended or row.started_at is None:
        raise NotMeasured(f"run {row.id} has {len(ended)} of its {length} steps")
    return (max(at for at in ended if at is not None) - row.started_at) / length * 1000


async def _reached(bench: Bench, run: Run[int], folder: Path) -> None:
    """Wait until the long run has reached its first step that waits for a file."""
    while not (folder / "begun-0").exists():
        row = await run.info()
        if row.finished_at is not None:
            raise NotMeasured(f"run {row.id} ended as {row.state}")
        await bench.world.sleep(0.1)


async def _replay(bench: Bench, run: Run[int], folder: Path, turn: int) -> float:
    """Return how long a new node takes to replay the run. First a supervisor reclaims the run from the dead node, and
    the file makes the waiting step return at once. Then a node opens and takes up the run, until its next step has
    begun: for that, its code must have been replayed so far. Closing that node leaves everything as the kill did."""
    bench.say(f"I: replay {turn + 1}")
    (folder / f"go-{turn}").touch()
    async with Holdfast(bench.url, roles=("supervisor",)):
        while await _owned(run):
            await bench.world.sleep(0.01)
    began = bench.world.monotonic()
    async with Holdfast(bench.url):
        return (await begun(bench, folder, turn + 1)).at - began


async def _owned(run: Run[int]) -> bool:
    return (await run.rows()).run.owner is not None
