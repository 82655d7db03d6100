"""What the programs in this folder share: each measures one system and prints one line of JSON for each letter.

A program runs in the environment of its system (see environments.py), so this file uses the standard library alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple

WIDTH = 1_000
CHAIN = 10
PAUSE_S = 0.01
"""Before each run of D, so that it finds an idle system and not the end of the one before."""
SETTLE_S = 3.0
"""A second worker is given this long to come up before the first is killed."""
PATIENCE_S = 120.0
RECOVERY_MAX_S = 20.0
"""E waits so long. A system that has not taken the step up by then is told as such."""

FOLDER = Path(os.environ.get("BENCH_FOLDER", "."))
"""For the files of this program and its workers."""


class NotOffered(Exception):
    """The system has no way of its own to do this work."""


class Sizes(NamedTuple):
    """How much a system is given, so that each measurement takes some seconds."""

    runs: int
    chains: int
    latencies: int = 100


class System(AbstractAsyncContextManager[Any]):
    """One system, up between `__aenter__` and `__aexit__`. What it does not override it does not offer."""

    sizes = Sizes(runs=1_000, chains=100)

    async def __aexit__(self, *exception: object) -> None:
        pass

    async def ones(self, count: int) -> None:
        """So many runs of one step, from the first start to the last result."""
        raise NotOffered

    async def tens(self, count: int) -> None:
        """So many runs of ten steps, one after the other."""
        raise NotOffered

    async def fan(self, width: int) -> None:
        """One run of so many steps side by side, joined."""
        raise NotOffered

    async def once(self) -> None:
        """One run of one step, start to result."""
        raise NotOffered

    async def recover(self) -> float | None:
        """Seconds from SIGKILL of a worker to its step running in another one; None when it does not come to that."""
        raise NotOffered


def main(
    system: Callable[[], System], run: Callable[[Coroutine[Any, Any, None]], None] = asyncio.run
) -> None:
    """`python -m bench.peers.NAME --only A,B --quick`. `run` is how a program of this system runs its loop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="A,B,C,D,E")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    run(_measure(system, options.only.split(","), options.quick))


async def _measure(system: Callable[[], System], letters: list[str], quick: bool) -> None:
    if rest := [letter for letter in letters if letter != "E"]:
        async with system() as it:
            sizes = Sizes(it.sizes.runs // 5, it.sizes.chains // 5, 20) if quick else it.sizes
            await _timed(it.ones(max(20, sizes.runs // 5)))  # to warm up
            for letter in rest:
                await _tell(letter, _figures(letter, it, sizes))
    if "E" in letters:
        await _tell("E", _recovered(system()))


async def _tell(letter: str, figures: Awaitable[dict[str, Any]]) -> None:
    try:
        told = await figures
    except NotOffered:
        told = {"not_offered": True}
    print(json.dumps({"letter": letter, **told}), flush=True)


async def _figures(letter: str, it: System, sizes: Sizes) -> dict[str, Any]:
    if letter == "A":
        return {"value": sizes.runs / await _timed(it.ones(sizes.runs))}
    if letter == "B":
        return {"value": sizes.chains * CHAIN / await _timed(it.tens(sizes.chains))}
    if letter == "C":
        return {"value": await _timed(it.fan(WIDTH))}
    taken = []
    for _ in range(sizes.latencies):
        await asyncio.sleep(PAUSE_S)
        taken.append(await _timed(it.once()) * 1000)
    return {"value": _percentile(taken, 50), "p95": _percentile(taken, 95), "p99": _percentile(taken, 99)}


async def _recovered(system: System) -> dict[str, Any]:
    taken = await system.recover()
    return {"value": taken} if taken is not None else {"over": RECOVERY_MAX_S}


async def _timed(work: Awaitable[None]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


def _percentile(values: list[float], share: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, -(-share * len(ordered) // 100) - 1)]


async def in_flight(work: Callable[[], Awaitable[object]], count: int, at_once: int) -> None:
    """Do the work so many times, so many at once."""
    left = count

    async def lane() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await work()

    async with asyncio.TaskGroup() as lanes:
        for _ in range(min(at_once, count)):
            lanes.create_task(lane())


# --- processes ----------------------------------------------------------------------------------------------------------


def program(name: str) -> str:
    """A program of the environment this one runs in."""
    return str(Path(sys.executable).with_name(name))


def spawn(*command: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, its output in `log`."""
    with (FOLDER / "log").open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **options
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL it and its children."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def end(*processes: subprocess.Popen[bytes] | None) -> None:
    """Let them leave; what does not is killed."""
    for process in processes:
        if process is not None and process.poll() is None:
            process.terminate()
    for process in processes:
        if process is not None:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                pass
            kill(process)


async def until_works(work: Callable[[], Awaitable[object]], what: str) -> None:
    """A server that has just been started: try until it answers."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        try:
            await work()
        except Exception as error:
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"{what} did not come up: {error}") from error
            await asyncio.sleep(0.1)
        else:
            return


# --- E ------------------------------------------------------------------------------------------------------------------


def hold(path: str) -> float:
    """The step of E: note when it began. How long it then stays, in seconds: the second time not at all."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{time.monotonic()!r}\n".encode())
    times = len(Path(path).read_text().splitlines())
    os.close(descriptor)
    return RECOVERY_MAX_S + 20 if times == 1 else 0.0


async def recovered(
    worker: Callable[[], subprocess.Popen[bytes]], begin: Callable[[str], Awaitable[object]]
) -> float | None:
    """One worker takes the step, another comes up, the first is killed."""
    path = FOLDER / f"begun-{time.monotonic_ns()}"
    first, second = worker(), None
    try:
        beginning = asyncio.ensure_future(begin(str(path)))
        await _begun(path, 1, PATIENCE_S)
        second = worker()
        await asyncio.sleep(SETTLE_S)
        killed_at = time.monotonic()
        kill(first)
        again_at = await _begun(path, 2, RECOVERY_MAX_S)
        beginning.cancel()
        await asyncio.gather(beginning, return_exceptions=True)
        return None if again_at is None else again_at - killed_at
    finally:
        kill(first)
        if second is not None:
            kill(second)


async def _begun(path: Path, times: int, limit_s: float) -> float | None:
    give_up_at = time.monotonic() + limit_s
    while time.monotonic() < give_up_at:
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) >= times:
            return float(lines[times - 1])
        await asyncio.sleep(0.005)
    return None
