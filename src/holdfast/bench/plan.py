"""The list of measurements, by letter, and what runs them one after the other."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from holdfast.bench import fairness, growth, latency, recovery, throughput
from holdfast.bench.driver import Bench
from holdfast.bench.figures import Figure
from holdfast.environment import Environment


class Measurement(NamedTuple):
    name: str
    measure: Callable[[Bench], Awaitable[list[Figure]]]


async def _agents_over_http(bench: Bench) -> list[Figure]:
    from holdfast.bench.remote import agents_over_http  # noqa: PLC0415  it needs the extras `server` and `remote`

    return await agents_over_http(bench)


MEASUREMENTS = {
    "A": Measurement("one-step runs", throughput.one_step_runs),
    "B": Measurement("ten-step runs", throughput.ten_step_runs),
    "C": Measurement("a wide run", throughput.wide_run),
    "D": Measurement("latency when idle", latency.idle),
    "E": Measurement("a killed agent", recovery.killed_agent),
    "F": Measurement("memory and start-up", recovery.footprint),
    "G": Measurement("agents apart", throughput.agents_apart),
    "H": Measurement("among sleeping runs", latency.among_sleepers),
    "I": Measurement("growing history", growth.growth),
    "J": Measurement("agents over HTTP", _agents_over_http),
    "K": Measurement("fair and limited", fairness.fair_and_limited),
}
LAST = "H"
"""This measurement leaves its sleeping runs behind, so in a store that all measurements share it comes last."""


async def measured(
    letters: Sequence[str], url: str | None, *, quick: bool, say: Callable[[str], None]
) -> AsyncGenerator[tuple[str, list[Figure]], None]:
    """Yield the figures of each measurement when it is done. Without a URL, each gets a new SQLite file in the working
    folder."""
    world = Environment()
    for letter in sorted(letters, key=lambda letter: (url is not None and letter == LAST, letter)):
        with working_folder() as folder:
            say(f"{letter}: {MEASUREMENTS[letter].name}")
            bench = Bench(url or f"sqlite:///{folder}/bench.db", folder, quick, say, world)
            yield letter, await MEASUREMENTS[letter].measure(bench)


@contextmanager
def working_folder() -> Iterator[Path]:
    """Make a temporary folder in the working folder. The system's temporary folder may be in memory, where fsync costs
    nothing."""
    with TemporaryDirectory(prefix="holdfast-bench-", dir=Path.cwd(), ignore_cleanup_errors=True) as name:
        yield Path(name)


def fsync_ms() -> float:
    """Return how long it takes to make one 8 KiB write durable in the working folder. No commit to a file there can be
    faster."""
    world, taken = Environment(), []
    with working_folder() as folder, (folder / "probe").open("wb", buffering=0) as file:
        for _ in range(50):
            began = world.monotonic()
            file.write(bytes(8192))
            os.fsync(file.fileno())
            taken.append((world.monotonic() - began) * 1000)
    return sorted(taken)[len(taken) // 2]
