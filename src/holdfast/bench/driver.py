"""Starts runs and processes, for all measurements."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from holdfast.bench.work import chain
from holdfast.client import Holdfast
from holdfast.environment import Environment
from holdfast.errors import HoldfastError
from holdfast.interpreters import python
from holdfast.lifecycle import RUN_ENDED
from holdfast.workflow.workflow import Workflow

IN_FLIGHT = 500
"""How many runs are awaited at a time where a rate is measured: enough to fill group commits, and half of the runs that
a scheduler keeps in memory."""
PATIENCE_S = 60.0
"""If something that should take milliseconds takes longer than this, it is an error and not a measurement."""


LEAVE_S = 5.0
"""How long a process may take to leave before it is killed."""


class NotMeasured(HoldfastError):
    """A measurement could not be made."""


class Bench(NamedTuple):
    """What a measurement works with."""

    url: str
    folder: Path
    """A folder for the files of this measurement alone."""
    quick: bool
    say: Callable[[str], None]
    """Shows how far the measurement is."""
    world: Environment

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full


async def drive(
    hf: Holdfast,
    runs: int,
    length: int,
    made: Callable[[int], Workflow[[int], int]] = lambda number: chain,
) -> float:
    """Start `runs` chains, IN_FLIGHT at a time. `made` returns the workflow of each, by its number. Return the seconds from
    the first start to the last acknowledged end."""
    left = runs

    async def one_after_another() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            run = await hf.start(made(left), length)
            if await run.result() != length:
                raise NotMeasured(f"run {run.id} returned something else than its {length} steps")

    began = hf.environment.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(IN_FLIGHT, runs)):
            tasks.create_task(one_after_another())
    return hf.environment.monotonic() - began


async def check_recorded(hf: Holdfast, before: dict[str, int], runs: int) -> None:
    """Raise NotMeasured unless the store has every run that was counted, and each succeeded."""
    after = await hf.store.reads.runs_by_state()
    ended = {state: after.get(state, 0) - before.get(state, 0) for state in RUN_ENDED}
    if {state: count for state, count in ended.items() if count} != {"succeeded": runs}:
        raise NotMeasured(f"{runs} runs were acknowledged, the store has {ended}")


class BenchNode(NamedTuple):
    """A `holdfast` command that hosts roles, in a process of its own."""

    pid: int
    up_s: float
    """Seconds from its start until it said that it was up."""
    kill: Callable[[], None]
    """Sends it SIGKILL."""


def with_store(url: str) -> dict[str, str]:
    """Return an environment that names the store. Its address may contain a password, which does not belong on a
    command line."""
    return {**os.environ, "HOLDFAST_STORE": url}


@asynccontextmanager
async def hosted(bench: Bench, *command: str) -> AsyncIterator[BenchNode]:
    """Run `holdfast COMMAND` on the store. The block begins when it is up, and it is stopped when the block ends."""
    began = bench.world.monotonic()
    process = await asyncio.create_subprocess_exec(
        *python("-m", "holdfast", *command),
        "--json",
        env=with_store(bench.url),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    complaints = asyncio.ensure_future(process.stderr.read())
    reading = [complaints]
    try:
        async with asyncio.timeout(PATIENCE_S):
            # Before "up" it may report something else, such as a process that was killed.
            async for line in process.stdout:
                if json.loads(line)["event"] == "up":
                    break
            else:
                raise NotMeasured(
                    f"`holdfast {' '.join(command)}` did not come up: {(await complaints).decode()}"
                )
        up_s = bench.world.monotonic() - began
        reading.append(asyncio.ensure_future(process.stdout.read()))  # otherwise a full pipe would stop it
        yield BenchNode(process.pid, up_s, process.kill)
    finally:
        await _end(process)
        await asyncio.gather(*reading, return_exceptions=True)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Let the process leave in good order, and kill it if that takes too long."""
    try:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(LEAVE_S):
            await process.wait()
    except TimeoutError:
        pass
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


class Begun(NamedTuple):
    """When a `wait_for_file` step began, on the machine's monotonic clock, and in which process."""

    pid: int
    at: float


async def begun(bench: Bench, folder: Path, turn: int = 0, *, time: int = 1) -> Begun:
    """Wait until the step of this turn has begun `time` times. Return when and where it did so for the last of them."""
    file = folder / f"begun-{turn}"
    async with asyncio.timeout(PATIENCE_S):
        while True:
            lines = file.read_text().splitlines() if file.exists() else []
            if len(lines) >= time:
                pid, at = lines[time - 1].split()
                return Begun(int(pid), float(at))
            await bench.world.sleep(0.002)


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process and its children, in MB (10^6 bytes)."""
    proc = Path("/proc")
    if not proc.exists():
        raise NotMeasured("memory is read from /proc, and this system has no /proc")
    pages = int((proc / str(pid) / "statm").read_text().split()[1])
    children = [
        child
        for task in (proc / str(pid) / "task").iterdir()
        for child in ((task / "children").read_text().split() if (task / "children").exists() else ())
    ]
    return pages * os.sysconf("SC_PAGESIZE") / 1e6 + sum(memory_mb(int(child)) for child in children)


@contextmanager
def own_folder(bench: Bench) -> Iterator[Path]:
    with TemporaryDirectory(dir=bench.folder) as name:
        yield Path(name)
