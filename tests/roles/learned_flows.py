"""Workflows whose steps take as long as their arguments say, or until a file exists."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast import step, workflow
from tests.roles.outside import note


@step
async def nap(seconds: float) -> None:
    await asyncio.sleep(seconds)


@step
async def doze(seconds: float) -> None:
    await asyncio.sleep(seconds)


@step(retry=1)
async def wait_for(folder: str, name: str) -> str:
    note(folder, f"began {name}")
    while not (Path(folder) / name).exists():  # noqa: ASYNC110  a file gives no event
        await asyncio.sleep(0.01)
    return name


@workflow
async def naps(folder: str, gate: str) -> None:
    await nap(0.01)
    await wait_for(folder, gate)
    await doze(0.4)


@workflow
async def loops(times: int) -> None:
    for _ in range(times):
        await nap(0.0)


@workflow
async def waits(folder: str, names: list[str]) -> list[str]:
    return await wait_for.map([(folder, name) for name in names])


@workflow
async def tolerant(folder: str) -> str:
    try:
        return await wait_for(folder, "never")
    except Exception as error:  # noqa: BLE001  the test looks at the error
        return type(error).__name__
