"""How an agent knows that it belongs to a pool, and that the pool is gone.

Its badge and the number of a pipe stand in its environment. Nobody writes to the pipe: when the pool's process ends, in
whatever way, the pipe is closed, and an agent that nobody keeps any more drains and leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

import msgspec

POOL, PIPE = "HOLDFAST_POOL", "HOLDFAST_POOL_PIPE"


class Badge(msgspec.Struct, frozen=True):
    name: str
    """Of the pool, for people."""
    member: str
    by: str
    """Of this start of the pool, so that members of an earlier one are not taken for its own."""

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


def taken() -> tuple[Badge | None, int | None]:
    """The badge and the pipe, taken out of the environment, because what a step starts is not of the pool."""
    badge, pipe = os.environ.pop(POOL, None), os.environ.pop(PIPE, None)
    if badge is None:
        return None, None
    if pipe is not None:
        os.set_inheritable(int(pipe), False)
    return msgspec.json.decode(badge, type=Badge), None if pipe is None else int(pipe)


def of_offers(offers: dict[str, Any]) -> Badge | None:
    """The badge that a node shows in the store."""
    shown = offers.get("pool")
    if shown is None:
        return None
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(shown, Badge)
    return None


async def left_alone(pipe: int) -> None:
    """Until the pool is gone."""
    loop, gone = asyncio.get_running_loop(), asyncio.Event()

    def look() -> None:
        if not os.read(pipe, 1):
            gone.set()

    loop.add_reader(pipe, look)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(pipe)
