"""A trip and a transfer whose effects are entries in a ledger outside the product, with crash points around each."""

from __future__ import annotations

from holdfast import Retry, Stop, here, step, workflow
from tests.roles.crash import point

QUICK = Retry(attempts=2, delay=0.01, jitter="none")

ledger: dict[str, str] = {}
"""For each key, "done" or "undone"."""
log: list[str] = []
"""What happened outside, in order."""
fail: set[str] = set()
"""Names of the steps that fail."""


async def do(name: str, key: str) -> str:
    """Have an effect, once per key. An effect that was undone before it happened is refused."""
    await point(f"before {name}")
    if name in fail:
        raise Stop(f"{name} is refused")
    if ledger.get(key) == "undone":
        raise Stop(f"{name} was undone before it happened")
    if key not in ledger:
        ledger[key] = "done"
        log.append(f"do {name}")
    await point(f"after {name}")
    return key


async def undo(name: str, key: str) -> None:
    await point(f"before undo {name}")
    if ledger.get(key) == "done":
        log.append(f"undo {name}")
    ledger[key] = "undone"
    await point(f"after undo {name}")


@step(retry=QUICK)
async def flight(trip: str) -> str:
    return await do("flight", here.key)


@flight.undo
async def cancel_flight(done: str | None, trip: str) -> None:
    await undo("flight", done or here.undoes)


@step(retry=QUICK)
async def hotel(trip: str) -> str:
    return await do("hotel", here.key)


@hotel.undo
async def cancel_hotel(done: str | None, trip: str) -> None:
    await undo("hotel", done or here.undoes)


@step(retry=QUICK)
async def car(trip: str) -> str:
    return await do("car", here.key)


@car.undo
async def cancel_car(done: str | None, trip: str) -> None:
    await undo("car", done or here.undoes)


@step(retry=QUICK)
async def confirm(trip: str) -> str:
    return await do("confirm", here.key)


@workflow
async def trip(name: str) -> list[str]:
    return [await flight(name), await hotel(name), await car(name), await confirm(name)]


@step(retry=QUICK)
async def withdraw(amount: int) -> str:
    return await do("withdraw", here.key)


@withdraw.undo
async def give_back(done: str | None, amount: int) -> None:
    await undo("withdraw", done or here.undoes)


@step(retry=QUICK)
async def deposit(amount: int) -> str:
    return await do("deposit", here.key)


@deposit.undo
async def undo_deposit(done: str | None, amount: int) -> None:
    await undo("deposit", done or here.undoes)


@workflow
async def transfer(amount: int) -> str:
    await withdraw(amount)
    await deposit(amount)
    return await confirm(str(amount))
