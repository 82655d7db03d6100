"""The application that the chaos tests kill: twenty sequential steps whose effects are lines in a file.

Each step writes a line ("began") before its work. A step that the store recorded as succeeded must never begin again.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast import here, step, workflow


@step
async def tick(ledger: str, i: int) -> int:
    descriptor = os.open(Path(ledger), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{i} {here.key} {here.attempt}\n".encode())
    os.close(descriptor)
    await asyncio.sleep(0.005)
    return i


@workflow
async def twenty(ledger: str) -> int:
    total = 0
    for i in range(20):
        total += await tick(ledger, i)
    return total
