"""An application with runs of every kind, for looking at: `holdfast up tests/pages/application.py --port 8080`."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import os
import signal
import sys
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

sys.path.insert(0, str(Path(__file__).parents[2]))

from examples import (
    ci,
    deployment,
    etl,
    expense,
    importer,
    morning,
    nightly,
    order,
    payment,
    provisioning,
    rates,
    shipping,
    subscription,
    training,
    transfer,
    trip,
)
from holdfast import Retry, Signal, Stop, ask, here, publish, set_progress, step, workflow
from holdfast.events import all_of, several, when
from holdfast.limits import Limit, Rate

EXAMPLES = [
    *(
        ci,
        deployment,
        etl,
        expense,
        importer,
        morning,
        nightly,
        order,
        payment,
        provisioning,
        rates,
        shipping,
    ),
    *(subscription, training, transfer, trip),
]
log = logging.getLogger("shop")
approved = Signal("approved", bool)


@step(retry=Retry(attempts=3, delay=0.3, on=ConnectionError), depends="stripe")
async def charge(cents: int, well: bool = True) -> str:
    log.info("charging %s", cents)
    await asyncio.sleep(0.05)
    if not well or (here.attempt == 1 and cents % 2):
        raise ConnectionError("503 Service Unavailable")
    return f"charge-{cents}"


@charge.undo
async def refund(charged: str | None, cents: int, well: bool = True) -> None:
    await asyncio.sleep(0.05)


@step
async def pack(item: str) -> str:
    await asyncio.sleep(0.2)
    return f"{item}, packed"


@step
async def ship(item: str) -> str:
    if item == "piano":
        raise Stop("no courier takes a piano")
    return "on its way"


@step(retry=Retry(attempts=20, delay=600, jitter="none"), depends="post")
async def announce(item: str) -> None:
    raise ConnectionError("the post office does not answer")


@step(retry=Retry(attempts=1))
async def reserve(what: str) -> str:
    return what


@reserve.undo(retry=Retry(attempts=1))
async def unreserve(reserved: str | None, what: str) -> None:
    raise OSError("card_expired")


@step(needs=["gpu"])
async def render(scene: str) -> str:
    return scene


@step(isolate=True, retry=Retry(losses=0))
def poison(size: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return size


@step
async def say(words: str) -> str:
    log.warning("%s", words)
    if words.startswith("fail "):
        raise ValueError(words)
    return words


@step
async def post(n: int) -> int:
    if n == 7:
        raise ValueError("could not convert string to float: 'n/a'")
    return n


@workflow
async def buy(item: str = "lamp", cents: int = 250) -> str:
    charged = await charge(cents)
    set_progress(0.4, "charged")
    packed = await pack(item)
    publish("charged", charged)
    set_progress(0.8, "packed")
    return await ship(packed if item != "piano" else item)


@workflow
async def wait_for_approval(item: str = "car") -> str:
    await charge(1800)
    set_progress(0.5, "waiting for finance")
    publish("total", {"cents": 234000, "currency": "EUR"})
    await approved.wait()
    return await ship(item)


@workflow
async def pay_while_down(cents: int = 100) -> str:
    return await charge(cents, well=False)


@workflow
async def backs_off(item: str = "letter") -> None:
    await pack(item)
    await announce(item)


@workflow
async def gets_stuck(what: str = "room") -> None:
    await reserve(what)
    raise RuntimeError("the hotel burned down")


@workflow
async def needs_a_gpu(scene: str = "harbour") -> str:
    return await render(scene)


@workflow
async def is_poison(size: int = 3) -> int:
    return await poison(size)


@workflow
async def sleeps(hours: float = 20) -> str:
    await pack("tent")
    await asyncio.sleep(hours * 3600)
    return "awake"


@workflow
async def talks(words: str = "hello") -> str:
    return await say(words)


@workflow
async def family(children: int = 3) -> list[str]:
    return list(await asyncio.gather(*(talks(f"child {n}") for n in range(children))))


@workflow
async def posts(count: int = 40) -> int:
    done = await asyncio.gather(*(post(n) for n in range(count)), return_exceptions=True)
    return len([one for one in done if not isinstance(one, BaseException)])


@dataclass
class Approval:
    ok: bool
    cap: int = 2340
    note: str = ""


@workflow
async def approve(question: str = "Book above the travel budget?") -> bool:
    shown = {"Traveller": "Grace Hopper", "Trip": "Tokyo", "Total": "2,340.00 EUR", "Budget": "1,800.00 EUR"}
    return await ask(["team:finance", "person:ada"], question, bool, show=shown, timeout=timedelta(hours=2))


@workflow
async def approve_cap(question: str = "Pay this expense?") -> bool:
    answer = await ask(["team:finance", "person:ada"], question, Approval, show={"cents": 900})
    return answer.ok


@step(limits=[Limit("bank", 2)])
async def sign(n: int) -> int:
    await asyncio.sleep(3600)
    return n


@workflow
async def signs(n: int = 1) -> int:
    return await sign(n)


@step(limits=[Rate("mail", 1, per=3600), Limit("mailer:{fair}", 3)])
async def mail(n: int) -> int:
    return n


@workflow
async def mails(n: int = 1) -> int:
    return await mail(n)


@dataclass
class Address:
    street: str
    code: Annotated[str, Meta(pattern="^[0-9]{4}$")] = "0001"


@dataclass
class Line:
    sku: str
    count: Annotated[int, Meta(ge=1)] = 1


class Card(msgspec.Struct, tag=True):
    number: str


class Transfer(msgspec.Struct, tag=True):
    iban: str
    days: int = 3


@dataclass
class Parcel:
    to: Address
    lines: list[Line]
    pay: Card | Transfer
    on: dt.date
    speed: Literal["slow", "fast"] = "slow"
    bill_to: Address | None = None
    remarks: list[str] = field(default_factory=list)


@workflow
async def deliver(parcel: Parcel, gift: bool = False) -> str:
    return await ship(parcel.to.street)


@workflow
async def close_day(arrived: dict[str, object]) -> int:
    return len(arrived)


when(all_of(fx="fx.published", files=several("file.arrived", 2)), within=timedelta(hours=2), name="evening")(
    close_day
)
