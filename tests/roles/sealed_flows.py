"""Workflows that handle what nobody else should read."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from holdfast import Retry, Secret, Signal, Stop, Update, ask, here, publish, step, workflow
from holdfast.events import Event
from holdfast.starts import Batch, Debounce

CANARY = "canary-4f1d"
log = logging.getLogger(__name__)
seen: list[str] = []
more = Signal("more", str)
change = Update("change", str, str)


@dataclass
class Card:
    number: Secret[str]
    holder: str


@step
async def read(text: str) -> str:
    here.save(text)
    log.warning("reading %s", text)
    return text + "!"


@read.undo
async def unread(result: str | None, text: str) -> None:
    seen.append(f"undo {text} {result}")


@workflow
async def letters(text: str) -> str:
    """Everything that is a payload says CANARY: input, results, checkpoint, log, signal, update, published value."""
    log.warning("a run with %s", text)
    first = await read(text)
    publish("draft", first)

    async def changed(to: str) -> str:
        return await read(to)

    async with change.serve(changed):
        second = await more.wait()
    both = await asyncio.gather(read(second), letter(text))
    return first + both[0] + both[1]


@workflow
async def letter(text: str) -> str:
    return await read(f"child of {text}")


@workflow
async def returned(text: str) -> str:
    await read(text)
    raise Stop("the letters came back")


@step(retry=Retry(attempts=1))
async def charge(card: Card) -> str:
    log.warning("charging %s", card.number.value)
    seen.append(card.number.value)
    if card.holder == "nobody":
        raise RuntimeError(f"no card {card.number.value}")
    return f"charged {card.holder}"


@workflow
async def pay(card: Card) -> str:
    return await charge(card)


@workflow(on="card.came")
async def shown_to_people(card: Card) -> str:
    """Takes a secret with an event, shows it to people, and gets one from them."""
    return await charge(await ask("person:anna", "Is it this one?", Card, show=card))


came = Event("letter.came", str)


@workflow
async def takes(name: str) -> str:
    return await came.wait(name)


@step(callback=True)
async def deliver(text: str) -> str:
    seen.append(here.callback)
    return here.later()


@workflow
async def delivered(text: str) -> str:
    return await deliver(text)


@workflow
async def asks_two() -> list[str]:
    return [one.value for one in await ask("team:finance", "Is it right?", str, of=2)]


@workflow(batch=Batch("letters", size=100, wait=1))
async def gathers(letters: list[str]) -> str:
    return ",".join(letters)


@workflow(debounce=Debounce("newest", quiet=60))
async def newest(text: str) -> str:
    return text
