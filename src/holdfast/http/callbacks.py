"""Other systems end callbacks at addresses that only they have. Operators end them by the run's id. A list has no addresses."""

from __future__ import annotations

from typing import Annotated, cast

import msgspec
from msgspec import Meta

from holdfast.desk.callbacks import LIST_MAX, CallbacksAsked, LocalCallbackDesk
from holdfast.errors import InvalidInput
from holdfast.http.call import Call, Given
from holdfast.http.reader import demand_media_type, read_body
from holdfast.http.refusals import Refusal
from holdfast.wire import requests

GONE = {410: "another answer came first, or nobody waits for it any more"}


class CallbacksQuery(msgspec.Struct):
    run: str | None = None
    workflow: str | None = None
    step: str | None = None
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=LIST_MAX)] = 50


async def callbacks(call: Call) -> Given:
    query: CallbacksQuery = call.query
    where = CallbacksAsked(
        run=query.run, workflow=query.workflow, step=query.step, cursor=query.cursor, limit=query.limit
    )
    try:
        return Given(await call.desk.callbacks.list(call.who, where))
    except InvalidInput as wrong:
        place, _, words = str(wrong).partition(": ")
        if place == "cursor":
            raise Refusal("malformed", words, place="?cursor") from None
        raise Refusal("invalid", str(wrong), place=f"?{place}") from None


def _addressed(call: Call) -> LocalCallbackDesk:
    """Return the desk of addresses. Only a server on the store has one."""
    return cast("LocalCallbackDesk", call.desk.callbacks)


async def receive(call: Call) -> Given:
    """Take a result. An address that is no address is refused before the body is looked at."""
    row = await _addressed(call).demand(call.path["token"])
    demand_media_type(call.header("content-type"))
    result: requests.CallbackResult = read_body(call.body, requests.CallbackResult, call.server.config)
    try:
        return Given(await _addressed(call).answer_at(row, result, call.request))
    except InvalidInput as wrong:
        raise _refused(wrong) from None


async def extend(call: Call) -> Given:
    row = await _addressed(call).demand(call.path["token"])
    return Given(await _addressed(call).extend(row))


async def answer(call: Call) -> Given:
    given: requests.AnswerCallback = call.body
    try:
        taken = await call.desk.callbacks.answer(call.who, call.id("run"), given.step, given, given.note)
    except InvalidInput as wrong:
        raise _refused(wrong) from None
    return Given(taken)


def _refused(wrong: InvalidInput) -> Refusal:
    place = str(wrong).partition(":")[0]
    return Refusal("invalid", str(wrong), place=f"/{place}" if place in {"output", "error", "step"} else "")
