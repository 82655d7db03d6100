"""The application of the outage test: one step whose dependency is down while a file exists. Every call writes two
lines."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from holdfast import here, step, workflow


def write(ledger: str, what: str) -> None:
    descriptor = os.open(Path(ledger) / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{time.time():.6f} {what} {here.key} {os.getpid()}\n".encode())
    os.close(descriptor)


@step(depends="stripe")
async def charge(ledger: str, i: int) -> int:
    write(ledger, "began")
    while (Path(ledger) / "hangs").exists():  # noqa: ASYNC110  nothing else signals that the file is gone
        await asyncio.sleep(0.01)
    down = (Path(ledger) / "down").exists()
    await asyncio.sleep(0.05)
    write(ledger, "failed" if down else "succeeded")
    if down:
        raise ConnectionError("stripe does not answer")
    return i


@workflow
async def order(ledger: str, i: int) -> int:
    return await charge(ledger, i)
