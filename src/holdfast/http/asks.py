"""What people ask about their questions, and how they answer."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from holdfast.desk.asks import AskFilter
from holdfast.http.call import Call, Given
from holdfast.wire import answers, requests


class AsksQuery(msgspec.Struct):
    who: str | None = None
    run: str | None = None
    state: Literal["open", "ended"] = "open"
    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


async def asks(call: Call) -> Given:
    query: AsksQuery = call.query
    where = AskFilter(query.who, query.run, query.state == "ended", query.after, query.limit)
    return Given(answers.Asks(await call.desk.asks.list(call.who, where)))


async def ask(call: Call) -> Given:
    return Given(await call.desk.asks.get(call.who, call.id("ask")))


async def answer(call: Call) -> Given:
    given: requests.Answer = call.body
    taken = await call.desk.asks.answer(call.who, call.id("ask"), bytes(given.value), given.note, by=given.by)
    return Given(taken)


async def delegate(call: Call) -> Given:
    given: requests.Delegate = call.body
    return Given(await call.desk.asks.delegate(call.who, call.id("ask"), given.to, given.note, by=given.by))
