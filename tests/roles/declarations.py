"""Workflows that wait for signals in all the ways that code can name them."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast import Signal, step, workflow


@dataclass
class Payment:
    cents: int
    note: str = ""


paid = Signal("paid-declared", Payment)
BY_NAME = {name: Signal(f"{name}-by-name", int) for name in ("left", "right")}


class Desk:
    rung = Signal("rung", str)


@step
def touch() -> None: ...


@workflow
async def order(wanted: int) -> int:
    got = 0
    while got < wanted:
        got += (await paid.wait()).cents
    return got


async def wait_for_bell() -> str:
    return await Desk.rung.wait()


@workflow
async def rings() -> str:
    async def inner() -> str:
        return await wait_for_bell()

    return await inner()


@workflow
async def chooses(side: str) -> int:
    return await BY_NAME[side].wait()


@workflow
async def forwards(to: str) -> None:
    await touch()
    await paid.send(to, Payment(3))
