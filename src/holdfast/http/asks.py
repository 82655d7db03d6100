"""What people ask about their questions, and how they answer."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from holdfast.desk.asks import AskFilter
from holdfast.errors import InvalidInput
from holdfast.http.call import Call, Given
from holdfast.http.reader import value_place
from holdfast.http.refusals import Refusal
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
    ask = call.id("ask")
    try:
        taken = await call.desk.asks.answer(call.who, ask, bytes(given.value), given.note, by=given.by)
    except InvalidInput as wrong:
        text = str(wrong)
        other = "/by" if text.startswith("by:") else "/note"
        place = value_place("/value", text) if text.startswith("answer:") else other
        raise Refusal("invalid", text, place=place) from None
    return Given(taken)


async def delegate(call: Call) -> Given:
    given: requests.Delegate = call.body
    return Given(await call.desk.asks.delegate(call.who, call.id("ask"), given.to, given.note, by=given.by))
