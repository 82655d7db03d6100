"""Steps that run until the test lets them end, so that it can do something to the store meanwhile."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from holdfast import Signal, here, step, workflow

paid: Signal[Any] = Signal("paid", Any)


def note(folder: str, line: str) -> None:
    descriptor = os.open(Path(folder) / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


@step(name="waiting.wait")
async def wait(folder: str, i: int) -> int:
    note(folder, f"wait {i} attempt {here.attempt} pid {os.getpid()}")
    while not (Path(folder) / "gate").exists():  # noqa: ASYNC110  nothing signals that another process opens the gate
        await asyncio.sleep(0.02)
    return i


@workflow(name="waiting.waiting")
async def waiting(folder: str, width: int = 6) -> int:
    if width < 0:
        await paid.wait()
    return sum(await asyncio.gather(*(wait(folder, i) for i in range(width))))
