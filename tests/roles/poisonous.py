"""Steps that kill the process that runs them, until a file says that they are mended."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from holdfast import Retry, here, step, workflow
from tests.roles.outside import block, mark, note


def is_mended(folder: str) -> bool:
    return (Path(folder) / "mended").exists()


def die(how: str) -> None:
    """Kill this process, as native code does that goes wrong."""
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), {"segv": signal.SIGSEGV, "kill": signal.SIGKILL}[how])


@step
async def explode(folder: str, how: str) -> str:
    note(folder, f"explode attempt {here.attempt}")
    if not is_mended(folder):
        die(how)
    return "mended"


@step(isolate=True, retry=Retry(losses=1))
def explode_alone(folder: str, how: str) -> str:
    note(folder, f"alone attempt {here.attempt}")
    if not is_mended(folder):
        die(how)
    return "mended"


@step(retry=Retry(quarantine=False, losses=0))
async def explode_loudly(folder: str, how: str) -> str:
    die(how)
    return "?"


@step(retry=Retry(attempts=2, delay=0.01, quarantine=True))
async def refuse(folder: str) -> str:
    note(folder, f"refuse attempt {here.attempt}")
    if not is_mended(folder):
        raise ValueError("not today")
    return "mended"


@step(isolate=True, retry=Retry(attempts=1, quarantine=True))
def refuse_alone(folder: str) -> str:
    raise ValueError("not in here")


@step
async def book(folder: str, name: str) -> str:
    note(folder, f"book {name}")
    return name


@book.undo
async def unbook(done: str | None, folder: str, name: str) -> None:
    note(folder, f"unbook {name} attempt {here.attempt}")
    if name == "poison" and not is_mended(folder):
        die("kill")


@workflow
async def exploding(folder: str, how: str) -> str:
    return await explode(folder, how)


@workflow
async def exploding_alone(folder: str, how: str) -> str:
    await book(folder, "first")
    return await explode_alone(folder, how)


@workflow
async def catches_the_loss(folder: str) -> str:
    try:
        return await explode_loudly(folder, "kill")
    except Exception as error:  # noqa: BLE001  the test looks at the error
        return type(error).__name__


@workflow
async def beside(folder: str, how: str, many: int) -> list[int]:
    """A poison step among others that run for a long time."""
    others = [block(folder, f"gate-{number}") for number in range(many)]
    *found, _ = await asyncio.gather(*others, explode(folder, how))
    return [1 for _ in found]


@workflow
async def branches(folder: str) -> str:
    """A poison step beside a branch of several steps."""

    async def branch() -> str:
        for name in ("one", "two", "three"):
            await mark(folder, name)
        return "through"

    return " and ".join(await asyncio.gather(explode_alone(folder, "segv"), branch()))


@workflow
async def parent(folder: str, how: str) -> str:
    try:
        return await exploding(folder, how)
    except Exception as error:  # noqa: BLE001  the test looks at the error
        return type(error).__name__


@workflow
async def undone(folder: str) -> None:
    for name in ("first", "poison", "last"):
        await book(folder, name)
    raise RuntimeError("undo it")


@workflow
async def refused(folder: str) -> str:
    try:
        return await refuse(folder)
    except ValueError as error:
        return f"caught {error}"


@workflow
async def refused_alone(folder: str) -> str:
    return await refuse_alone(folder)


@workflow(timeout=2.0)
async def in_time(folder: str) -> str:
    await book(folder, "first")
    return await explode_alone(folder, "exit")
