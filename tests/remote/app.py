"""The program of the processes in these tests. Each test has a copy in its own folder."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast import here, step, workflow


def effect(name: str) -> None:
    with Path("effects").open("a") as file:
        file.write(f"{name} {here.key} {os.getpid()}\n")


def _is_open() -> bool:
    return Path("open").exists()


@step
async def add(a: int) -> int:
    effect("add")
    await asyncio.sleep(0.02)
    return a + 1


@step
async def gated() -> int:
    effect("gated")
    while not _is_open():  # noqa: ASYNC110  it is a file
        await asyncio.sleep(0.01)
    return os.getpid()


@workflow(name="app.adds")
async def adds(n: int) -> int:
    total = 0
    for _ in range(n):
        total = await add(total)
    return total


@workflow(name="app.waits")
async def waits() -> int:
    return await gated()
