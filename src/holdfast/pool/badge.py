"""How an agent knows that it belongs to a pool, and that the pool is gone.

The agent finds its badge and the number of a pipe in its environment. Nobody writes to the pipe. When the pool's
process ends, in whatever way, the pipe is closed. Then the agent has no pool any more, drains and leaves.
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
    """The name of the pool, for people."""
    member: str
    """The name of the agent within the pool."""
    by: str
    """The id of this start of the pool, so that it does not take the members of an earlier start for its own."""

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


def take_from_environment() -> tuple[Badge | None, int | None]:
    """Return the badge and the pipe, and remove them from the environment: a process that a step starts is not in the
    pool."""
    badge, pipe = os.environ.pop(POOL, None), os.environ.pop(PIPE, None)
    if badge is None:
        return None, None
    if pipe is not None:
        os.set_inheritable(int(pipe), False)
    return msgspec.json.decode(badge, type=Badge), None if pipe is None else int(pipe)


def of_offers(offers: dict[str, Any]) -> Badge | None:
    """Return the badge that a node shows in its offers in the store; None if it shows none."""
    shown = offers.get("pool")
    if shown is None:
        return None
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(shown, Badge)
    return None


async def pool_is_gone(pipe: int) -> None:
    """Wait until the process of the pool has ended."""
    loop, gone = asyncio.get_running_loop(), asyncio.Event()

    def look() -> None:
        if not os.read(pipe, 1):
            gone.set()

    loop.add_reader(pipe, look)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(pipe)
