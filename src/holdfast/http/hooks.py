"""Webhooks come in, and operators make the hooks at which they do."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

from holdfast.access.signatures import Scheme
from holdfast.desk.hooks import HookMade
from holdfast.http.call import Call, Given
from holdfast.http.reader import demand_sound
from holdfast.http.refusals import Refusal
from holdfast.model import HookRow
from holdfast.namespaces import shown
from holdfast.wire import answers
from holdfast.wire import hooks as wire
from holdfast.wire.paths import id_of, path_of


async def receive(call: Call) -> Given:
    """Take a webhook. A hook that does not exist and a bad signature are refused in the same bytes."""
    sound = partial(demand_sound, config=call.server.config)
    found = await call.server.webhooks.receive(id_of(call.path["hook"]), call.headers, call.body, sound)
    if found is None:
        raise Refusal("unauthenticated", "there is no such hook, or the signature is not good")
    return Given(wire.Received(found.is_new), 202)


async def hooks(call: Call) -> Given:
    return Given(wire.Hooks([_hook(call, row) for row in await call.desk.hooks.list(call.who)]))


async def create(call: Call) -> Given:
    given: wire.NewHook = call.body
    made = await call.desk.hooks.create(
        call.who, given.name, Scheme(given.scheme), given.secret, given.header
    )
    return _made(call, made, 201)


async def rotate(call: Call) -> Given:
    given: wire.RotateHook = call.body
    made = await call.desk.hooks.rotate(call.who, call.id("hook"), given.secret, given.grace_s)
    return _made(call, made, 200)


async def remove(call: Call) -> Given:
    await call.desk.hooks.remove(call.who, call.id("hook"))
    return Given(answers.Removed(True))


def _made(call: Call, made: HookMade, status: int) -> Given:
    return Given(wire.HookMade(_hook(call, made.hook), made.secret), status)


def _hook(call: Call, row: HookRow) -> wire.Hook:
    return wire.Hook(
        name=shown(call.who.namespace, row.name),
        path=f"/v1/in/{path_of(row.name)}",
        scheme=row.scheme,
        header=row.header if row.scheme == Scheme.HMAC else None,
        actor=row.actor,
        created_at=datetime.fromtimestamp(row.created_at, UTC),
        rotated_at=None if row.rotated_at is None else datetime.fromtimestamp(row.rotated_at, UTC),
        old_until=None if row.old_until is None else datetime.fromtimestamp(row.old_until, UTC),
    )
