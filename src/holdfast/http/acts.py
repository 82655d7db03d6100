"""Acts on many runs: make a plan, which lists exactly the runs it is about, and carry it out."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.desk.acts import Act, demand_plan, make_plan
from holdfast.desk.filters import run_filter, within_namespace
from holdfast.errors import InvalidInput
from holdfast.http import views
from holdfast.http.call import Call, Given
from holdfast.http.refusals import Refusal
from holdfast.model import ActOptions, ActVerb
from holdfast.wire import answers, requests

Limit = Annotated[int, Meta(ge=1, le=500)]


class ActsQuery(msgspec.Struct):
    limit: Limit = 50


class ActRunsQuery(msgspec.Struct):
    fate: Annotated[list[str], Meta(max_length=10)] = []
    """Only runs with one of these fates: done, changed, refused, left."""
    after: Annotated[str, Meta(max_length=1_000)] = ""
    limit: Limit = 50


async def plan(call: Call) -> Given:
    given: requests.Plan = call.body
    hf = call.server.hf
    try:
        where = run_filter(
            now=await call.desk.now(call.who),
            states=given.state,
            workflow=given.workflow,
            tags=given.tags,
            namespace=call.who.namespace,
            since=given.since,
            until=given.until,
            error=given.error,
            prefix=given.prefix,
            traits=given.traits,
            ids=given.runs,
            what="{}",
        )
        how = ActOptions(force=given.force, start=given.start)
        demand_plan(given.verb, where, how, given.note)
        where = within_namespace(where, call.who.namespace)
    except InvalidInput as wrong:
        raise Refusal("invalid", str(wrong)) from None
    made = await make_plan(hf, ActVerb(given.verb), where, how, given.note, actor=call.who.actor)
    return Given(views.act(await call.desk.acts.get(call.who, made.id)), 201)


async def acts(call: Call) -> Given:
    return Given(
        answers.Acts([views.act(row) for row in await call.desk.acts.list(call.who, call.query.limit)])
    )


async def act(call: Call) -> Given:
    return Given(views.act(await call.desk.acts.get(call.who, call.id("act"))))


async def carry_out(call: Call) -> Given:
    """Carry it out for as long as the request may wait. Whoever asks again goes on with it, and so does the leader."""
    await call.desk.acts.get(call.who, call.id("act"))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(call.body.wait_s):
            act = Act(call.server.hf, call.id("act"), namespace=call.who.namespace, actor=call.who.actor)
            await act.carry_out()
    return Given(views.act(await call.desk.acts.get(call.who, call.id("act"))))


async def stop(call: Call) -> Given:
    await call.desk.acts.get(call.who, call.id("act"))
    await call.desk.acts.stop(call.who, call.id("act"))
    return Given(views.act(await call.desk.acts.get(call.who, call.id("act"))))


async def act_runs(call: Call) -> Given:
    query: ActRunsQuery = call.query
    known = {"done", "changed", "refused", "left"}
    if wrong := [fate for fate in query.fate if fate not in known]:
        raise Refusal(
            "invalid", f"{wrong[0]!r} is no fate: it is one of {', '.join(sorted(known))}", place="?fate"
        )
    await call.desk.acts.get(call.who, call.id("act"))
    found = await call.desk.acts.runs(call.who, call.id("act"), query.fate, query.after, query.limit)
    after = found[-1].run_id if len(found) == query.limit else None
    return Given(answers.ActRuns([views.act_run(one) for one in found], after))
