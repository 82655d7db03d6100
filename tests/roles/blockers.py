"""Steps that keep the whole process from running, and a workflow around each."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

from holdfast import here, step, workflow
from tests.roles.outside import note


@step
def block_gil(folder: str, seconds: float) -> int:
    """Call into C without releasing the interpreter: no thread of this process runs meanwhile."""
    note(folder, f"held attempt {here.attempt}")
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
    note(folder, f"released attempt {here.attempt}")
    return here.attempt


@step
async def block_loop(folder: str, seconds: float) -> int:
    """Block the event loop with ordinary blocking code, until its file exists or this long."""
    note(folder, f"held attempt {here.attempt}")
    until = time.monotonic() + seconds
    while time.monotonic() < until and not (Path(folder) / "gate").exists():
        time.sleep(0.01)  # noqa: ASYNC251  this is what the test is about
    note(folder, f"released attempt {here.attempt}")
    return here.attempt


@workflow
async def with_blocked_gil(folder: str, seconds: float) -> int:
    return await block_gil(folder, seconds)


@workflow
async def with_blocked_loop(folder: str, seconds: float) -> int:
    return await block_loop(folder, seconds)
