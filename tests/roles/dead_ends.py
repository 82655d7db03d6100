"""What strangers write at first: workflows and steps called where they are something else than they look."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from typing import Any

from holdfast import Holdfast, HoldfastWarning, Retry, here, publish, step, workflow

opened: dict[str, Holdfast] = {}
keys: list[str] = []
blocked = threading.Event()

warnings.simplefilter("ignore", HoldfastWarning)


@step
async def send(to: str) -> str:
    keys.append(here.key)
    return here.step


@step
def write(to: str) -> str:
    keys.append(here.key)
    here.save({"to": to})
    return here.key


@workflow
async def other(n: int) -> int:
    return n


@step(retry=Retry(attempts=2, delay=0.01))
async def outer() -> list[str]:
    own = here.key
    await send("a")
    await asyncio.gather(send("b"), send("c"))
    await write("d")
    await send.map(["e", "f"])
    assert here.key == own
    assert here.saved is None
    if here.attempt == 1:
        raise ConnectionError("again")
    return [own]


@workflow
async def calls_steps_in_a_step() -> list[str]:
    return await outer()


@step(retry=1)
async def awaits_a_workflow() -> int:
    return await other(1)


@workflow
async def calls_a_workflow_in_a_step() -> int:
    return await awaits_a_workflow()


@workflow
async def starts() -> str:
    return (await opened["hf"].start(other, 1)).id


@workflow
async def waits() -> Any:
    return opened["hf"].wait(opened["hf"].start(other, 1))


@workflow
async def opens() -> str:
    async with Holdfast("sqlite:///never.db"):
        return ""


@step
async def takes(what: object) -> str:
    return ""


@workflow
async def passes_a_generator() -> str:
    return await takes(n for n in range(3))


@workflow
async def publishes_under_a_number() -> None:
    publish(3, "x")  # type: ignore[arg-type]


@workflow
async def passes_a_step() -> str:
    return await takes(send)


@workflow
async def passes_a_coroutine() -> str:
    call = other(1)
    try:
        return await takes(call)
    finally:
        call.close()


@workflow
async def blocks() -> str:
    blocked.set()
    time.sleep(0.5)  # noqa: ASYNC251  that is the point
    return ""


warnings.simplefilter("default", HoldfastWarning)
