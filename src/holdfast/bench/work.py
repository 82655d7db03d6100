"""The steps and workflows that are measured: ordinary ones. Agents in processes of their own load this module by its
name.

All have explicit names, so that their rows have the same size in all versions of Holdfast and the figures can be
compared.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast.environment import Environment
from holdfast.workflow.limits import Limit
from holdfast.workflow.step import step
from holdfast.workflow.workflow import workflow

MONTH_S = 30 * 86_400
LOOK_S = 0.005
_world = Environment()


@step(name="work.noop")
async def noop(x: int) -> int:
    return x + 1


@step(name="work.begun_at")
async def begun_at() -> float:
    """Return what time it is when a step's code begins."""
    return _world.now()


@step(name="work.limited_noop", limits=[Limit("work:{fair}", 5)])
async def limited_noop(x: int) -> int:
    return x + 1


@step(name="work.wait_for_file")
async def wait_for_file(folder: str, turn: int) -> float:
    """Append a line to the file `begun-TURN` that says when it began. Return when the file `go-TURN` exists."""
    descriptor = os.open(Path(folder) / f"begun-{turn}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{os.getpid()} {_world.monotonic()!r}\n".encode())
    os.close(descriptor)
    while not (Path(folder) / f"go-{turn}").exists():
        await _world.sleep(LOOK_S)
    return _world.monotonic()


@workflow(name="work.chain")
async def chain(length: int) -> int:
    """Execute steps one after the other."""
    x = 0
    for _ in range(length):
        x = await noop(x)
    return x


@workflow(name="work.begins")
async def begins() -> float:
    return await begun_at()


@workflow(name="work.limited_chain")
async def limited_chain(length: int) -> int:
    """The same under a limit for each fair key."""
    x = 0
    for _ in range(length):
        x = await limited_noop(x)
    return x


@workflow(name="work.fan")
async def fan(width: int) -> int:
    """Execute steps side by side, and wait for all of them."""
    return sum(await asyncio.gather(*(noop(0) for _ in range(width))))


@workflow(name="work.nap")
async def nap() -> None:
    """Sleep for longer than anybody measures."""
    await asyncio.sleep(MONTH_S)  # noqa: TID251  durable, in a workflow


@workflow(name="work.chain_then_wait")
async def chain_then_wait(length: int, folder: str, turns: int = 1) -> int:
    """Make a long history, and then execute steps that run until their process is killed or their file exists."""
    x = 0
    for _ in range(length):
        x = await noop(x)
    for turn in range(turns):
        await wait_for_file(folder, turn)
    return x
