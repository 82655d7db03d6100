"""Workflows that serve updates."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

from holdfast import Refused, Signal, Update, continue_as_new, here, publish, step, workflow

effects: Counter[str] = Counter()
gates: dict[str, asyncio.Event] = {}


@dataclass
class Address:
    street: str
    floor: int = 0


@dataclass
class Confirmation:
    label: str


change = Update("change_address", Address, Confirmation)
other = Update("other", int, int)
done = Signal("done", int)


@step
async def relabel(street: str) -> str:
    effects[f"relabel {street}"] += 1
    if street == "nowhere":
        raise LookupError("no such street")
    if street in gates:
        await gates[street].wait()
    return f"{street} ({here.run_id})"


@relabel.undo
async def tear_off(label: str | None, street: str) -> None:
    effects[f"tear off {street}"] += 1


@workflow
async def ships(fails: bool = False) -> str:
    """Serve changes of the address until `done`."""
    address = ["old"]

    async def serve(to: Address) -> Confirmation:
        if to.street == "late":
            raise Refused("it is too late for that")
        label = await relabel(to.street)
        address.append(to.street)
        publish("address", to)
        return Confirmation(label)

    def check(to: Address) -> None:
        if to.street == address[-1]:
            raise ValueError("that is the address already")

    async with change.serve(serve, check=check):
        await done.wait()
        if fails:
            raise LookupError("the ship sank")
    return " ".join(address)


@step
async def nail(street: str) -> str:
    return street


@nail.undo(retry=1)
async def pull_out(done: str | None, street: str) -> None:
    raise OSError("the nail sits tight")


@workflow
async def cannot_undo() -> None:
    """Serve, fail, and fail to undo."""
    await nail("here")
    async with other.serve(abs):
        await done.wait()
        raise LookupError("out")


@workflow
async def cancels_itself() -> str:
    """Serve with a function that raises a cancellation of its own."""

    async def serve(value: int) -> int:
        raise asyncio.CancelledError

    async with other.serve(serve):
        await done.wait()
    return "out"


@workflow
async def opens_late() -> list[int]:
    """Serve only after `done`, and wait for nothing but a call."""
    got: list[int] = []
    called = asyncio.Event()

    def serve(value: int) -> int:
        got.append(value)
        if len(got) == 2:
            called.set()
        return value + 1

    await done.wait()
    async with other.serve(serve):
        await called.wait()
    return got


@workflow
async def hangs(leaves: bool) -> str:
    """Serve with a function that never ends."""

    async def serve(value: int) -> int:
        effects["hangs"] += 1
        return await done_later.wait()

    async with other.serve(serve, grace=0.2):
        await done.wait()
        if not leaves:
            raise LookupError("out")
    return "out"


done_later = Signal("done_later", int)


@workflow
async def goes_round(rounds: int = 3) -> int:
    """Serve one call in each generation."""
    called = asyncio.Event()

    async def serve(value: int) -> int:
        await relabel(str(value))
        called.set()
        return value * 10

    async with other.serve(serve):
        await called.wait()
        if rounds:
            continue_as_new(rounds - 1)
    return rounds


@workflow
async def in_turn() -> list[str]:
    """Serve one call at a time, each with a step."""
    order: list[str] = []

    async def serve(to: Address) -> Confirmation:
        order.append(f"begin {to.street}")
        await relabel(to.street)
        order.append(f"end {to.street}")
        return Confirmation(to.street)

    async with change.serve(serve):
        await done.wait()
    return order


@workflow
async def serves_twice() -> str:
    async with other.serve(abs), other.serve(abs):
        return "not reached"
