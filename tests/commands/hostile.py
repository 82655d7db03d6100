"""A program in which every text attacks the terminal that shows it."""

import logging
from typing import Any

from holdfast import Retry, Signal, ask, here, publish, set_progress, step, workflow
from holdfast.limits import Limit

EVIL = "\x1b]0;pwned\x07\x1b[2J\x9b31m\x08\r\x7f\u202eeliF\u2066\u200b[/x][link=http://evil]y[/link]:smiley:\nFORGED"
go: Signal[Any] = Signal("go", Any)


class EvilError(Exception):
    pass


@step(retry=Retry(1))
async def spoil(text: str) -> str:
    here.beat(0.5, text)
    error = EvilError(text)
    error.add_note(text)
    raise error


@step
async def echo(text: str) -> str:
    here.beat(0.5, text)
    return text


@workflow
async def caught(text: str) -> str:
    set_progress(0.5, text)
    publish("said", text)
    try:
        await spoil(text)
    except EvilError:
        pass
    return await echo.using(key="[/x]")(text)


@workflow
async def waiting(text: str) -> None:
    set_progress(0.5, text)
    await go.wait()


@step(limits=[Limit("shared", 1)])
async def limited(text: str) -> str:
    logging.getLogger("hostile").warning("said %s", text)
    return text


@workflow(on="evil.came")
async def asking(text: str) -> None:
    logging.getLogger("hostile").warning("said %s", text)
    await ask("team:finance", text, bool, show={"what": text})


@workflow
async def waits_for_room(text: str) -> str:
    return await limited(text)


@workflow
async def failing(text: str) -> None:
    await spoil(text)
