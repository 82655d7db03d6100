"""What operators ask about fair keys and limits."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.http.call import Call, Given
from holdfast.wire import answers, requests


class FairQuery(msgspec.Struct):
    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200


async def limits(call: Call) -> Given:
    found = await call.desk.limits.list(call.who, call.query.after, call.query.limit)
    return Given(answers.Limits(found))


async def limit(call: Call) -> Given:
    return Given(await call.desk.limits.get(call.who, call.id("limit")))


async def set_limit(call: Call) -> Given:
    given: requests.SetLimit = call.body
    return Given(await call.desk.limits.set(call.who, call.id("limit"), given.most, given.note))


async def fairs(call: Call) -> Given:
    found = await call.desk.limits.fairs(call.who, call.query.after, call.query.limit)
    return Given(answers.FairKeys(found))


async def set_fair(call: Call) -> Given:
    given: requests.SetFair = call.body
    return Given(await call.desk.limits.set_fair(call.who, given.key, given.weight, given.note))
