"""Workflows whose effects are lines in files, so that processes can be killed around them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast import here, step, workflow


def note(folder: str, line: str) -> None:
    """Append one whole line, durably enough to outlive this process."""
    descriptor = os.open(Path(folder) / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def effects(folder: str | Path) -> list[str]:
    file = Path(folder) / "effects"
    return file.read_text().splitlines() if file.exists() else []


@step
async def mark(folder: str, name: str) -> int:
    note(folder, f"mark {name}")
    return os.getpid()


@step
async def block(folder: str, name: str) -> int:
    """Runs until its file exists."""
    note(folder, f"block {name} attempt {here.attempt}")
    while not (Path(folder) / name).exists():  # noqa: ASYNC110  a file gives no event
        await asyncio.sleep(0.01)
    note(folder, f"unblocked {name} attempt {here.attempt}")
    return here.attempt


@workflow
async def around_block(folder: str) -> int:
    await mark(folder, "before")
    attempt = await block(folder, "gate")
    await mark(folder, "after")
    return attempt
