"""What operators ask about the store, and what anybody may ask about the server."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.errors import StoreError
from holdfast.http import views
from holdfast.http.call import Call, Given
from holdfast.http.refusals import Refusal
from holdfast.model import HoldScope
from holdfast.store.reads import JournalFilter
from holdfast.wire import answers, requests
from holdfast.wire.paths import id_of

TEXT = "text/plain; version=0.0.4; charset=utf-8"
READY_S = 5.0
"""How long the store may take to answer before a server counts as not ready."""

Limit = Annotated[int, Meta(ge=1, le=200)]
Sought = Annotated[str, Meta(max_length=200)]


class EverythingQuery(msgspec.Struct):
    all: bool = False


class QuarantineQuery(msgspec.Struct):
    run: Annotated[str, Meta(max_length=1_000)] | None = None
    """Only steps of this run. The id is written as in a path."""


class AlertsQuery(msgspec.Struct):
    all: bool = False
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class JournalQuery(msgspec.Struct):
    limit: Limit = 50
    actor: Sought = ""
    """Only what was done by somebody whose name contains this text."""
    verb: Sought = ""
    """Only verbs that contain this text: `refuse` finds requests that were refused."""
    via: Sought = ""
    """The way by which whoever acted had come. `*` is any: what people and programs did, and not what roles of Holdfast did."""
    request: Sought = ""


async def workflows(call: Call) -> Given:
    found = await call.desk.workflows.list(call.who)
    return _with_mark(call, answers.Workflows([views.workflow(one) for one in found]))


async def workflow(call: Call) -> Given:
    name = call.id("name")
    found = await call.desk.workflows.get(call.who, name)
    return _with_mark(call, answers.WorkflowVersions(name, [views.whole_workflow(one) for one in found]))


def _with_mark(call: Call, body: Any) -> Given:
    mark = hashlib.blake2b(msgspec.json.encode(body), digest_size=12).hexdigest()
    headers = {"ETag": f'"{mark}"'}
    return Given(status=304, headers=headers) if call.knows(mark) else Given(body, headers=headers)


async def agents(call: Call) -> Given:
    seen = await call.desk.agents.list(call.who, everything=call.query.all)
    nodes = [views.agent(one, seen.leader) for one in seen.nodes]
    return Given(answers.Agents(nodes, views.leader(seen.lease), views.moment(seen.now)))


async def lanes(call: Call) -> Given:
    return Given(answers.Lanes([views.lane(one) for one in await call.desk.agents.lanes(call.who)]))


async def holds(call: Call) -> Given:
    return Given(answers.Holds([views.hold(one) for one in await call.desk.gates.holds(call.who)]))


async def add_hold(call: Call) -> Given:
    given = _scoped(call)
    placed = await call.desk.gates.hold(call.who, HoldScope(given.scope), given.value, given.note)
    return Given(
        answers.HoldPlaced(views.hold(placed.hold), placed.new, placed.known), 201 if placed.new else 200
    )


async def remove_hold(call: Call) -> Given:
    given = _scoped(call)
    return Given(
        views.hold(await call.desk.gates.release(call.who, HoldScope(given.scope), given.value, given.note))
    )


def _scoped(call: Call) -> requests.HoldPlace:
    given: requests.HoldPlace = call.body
    if (given.scope == "all") == bool(given.value):
        raise Refusal("invalid", "give the name of what to hold; the scope all takes no name", place="/value")
    return given


async def breakers(call: Call) -> Given:
    return Given(answers.Breakers([views.breaker(one) for one in await call.desk.gates.breakers(call.who)]))


async def open_breaker(call: Call) -> Given:
    name = _storable(call, "name")
    return Given(views.breaker(await call.desk.gates.open(call.who, name, call.body.note)))


async def close_breaker(call: Call) -> Given:
    name = _storable(call, "name")
    return Given(views.breaker(await call.desk.gates.close(call.who, name, call.body.note)))


async def reset_breaker(call: Call) -> Given:
    name = _storable(call, "name")
    return Given(views.breaker(await call.desk.gates.reset(call.who, name, call.body.note)))


def _storable(call: Call, name: str) -> str:
    """Return a name in the path, from which a row is made."""
    found = call.id(name)
    if not found.isprintable() or not 0 < len(found) <= requests.NAME_MAX:
        raise Refusal("unknown")
    return found


async def quarantine(call: Call) -> Given:
    found = await call.desk.quarantine.list(call.who)
    if call.query.run is not None:
        run = id_of(call.query.run)
        if run is None:
            raise Refusal("unknown")
        alike = await call.desk.quarantine.fingerprints(call.who, run)
        found = [one for one in found if one.fingerprint in alike]
    return Given(answers.Quarantine([views.poison(one) for one in found]))


async def release_quarantined(call: Call) -> Given:
    return await _resolve(call, "release")


async def fail_quarantined(call: Call) -> Given:
    return await _resolve(call, "fail")


async def skip_quarantined(call: Call) -> Given:
    return await _resolve(call, "skip", json.loads(bytes(call.body.result)))


async def _resolve(call: Call, act: Literal["release", "skip", "fail"], result: Any = None) -> Given:
    print_ = _storable(call, "fingerprint")
    done = await call.desk.quarantine.resolve(call.who, act, print_, note=call.body.note, result=result)
    if not done:
        raise Refusal("unknown")
    return Given(answers.Resolved(done))


async def alerts(call: Call) -> Given:
    found = await call.desk.alerts.list(call.who, everything=call.query.all, limit=call.query.limit)
    return Given(answers.Alerts([views.alert(one) for one in found]))


async def clear_alert(call: Call) -> Given:
    return Given(answers.Cleared(await call.desk.alerts.clear(call.who, call.number("alert"))))


async def journal(call: Call) -> Given:
    query: JournalQuery = call.query
    where = JournalFilter(query.actor, query.verb, query.via, query.request)
    found = await call.desk.journal.list(call.who, query.limit, where)
    return Given(answers.Journal([views.entry(row, call.who) for row in found]))


async def me(call: Call) -> Given:
    who = call.who
    return Given(
        answers.Me(
            str(who.kind),
            who.id,
            who.name,
            str(who.role),
            sorted(who.namespaces),
            who.namespace,
            list(who.can),
            who.payloads,
            list(who.who),
            views.moment(await call.desk.now(who)),
        )
    )


async def openapi(call: Call) -> Given:
    return Given(msgspec.Raw(call.server.openapi()))


async def healthz(call: Call) -> Given:
    """Say that the event loop runs. The store is not asked."""
    return Given(b"", media_type="text/plain")


async def readyz(call: Call) -> Given:
    """Say whether the store answers, its schema fits, and the server is not leaving. If not, the reason is in the log,
    not in the answer."""
    if not call.server.is_leaving:
        try:
            async with asyncio.timeout(READY_S):
                await call.server.hf.store.now()
            return Given(b"", media_type="text/plain")
        except (StoreError, TimeoutError):
            pass
    return Given(b"", 503, media_type="text/plain")


async def metrics(call: Call) -> Given:
    return Given((await call.server.metrics()).encode(), media_type=TEXT)
