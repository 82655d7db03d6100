"""The hook desk of a server, over HTTP."""

from __future__ import annotations

from holdfast.access import Identity
from holdfast.access.signatures import Scheme
from holdfast.desk.hooks import HookMade
from holdfast.errors import UnknownHook
from holdfast.model import DEFAULT_NAMESPACE, HookRow
from holdfast.remote.transport import Transport
from holdfast.wire import answers
from holdfast.wire import hooks as wire
from holdfast.wire.paths import id_of, path_of


class RemoteHookDesk:
    """A hook desk that asks a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self, who: Identity) -> list[HookRow]:
        found = await self._transport.get(who, "/v1/hooks", wire.Hooks)
        return [_row(who, one) for one in found.items]

    async def create(
        self, who: Identity, name: str, scheme: Scheme, secret: str | None = None, header: str | None = None
    ) -> HookMade:
        body = wire.NewHook(name=name, scheme=scheme.value, secret=secret, header=header)
        found = await self._transport.post(who, "/v1/hooks", wire.HookMade, body, is_repeatable=False)
        return HookMade(_row(who, found.hook), found.secret)

    async def rotate(
        self, who: Identity, name: str, secret: str | None = None, grace_s: float = 86_400.0
    ) -> HookMade:
        found = await self._transport.post(
            who,
            f"/v1/hooks/{path_of(name)}/rotate",
            wire.HookMade,
            wire.RotateHook(secret=secret, grace_s=grace_s),
            lambda: UnknownHook.of(name),
            is_repeatable=False,
        )
        return HookMade(_row(who, found.hook), found.secret)

    async def remove(self, who: Identity, name: str) -> None:
        await self._transport.post(
            who, f"/v1/hooks/{path_of(name)}/remove", answers.Removed, None, lambda: UnknownHook.of(name)
        )


def _row(who: Identity, one: wire.Hook) -> HookRow:
    """Return a hook as a row. A server gives no secrets."""
    return HookRow(
        id_of(one.path.removeprefix("/v1/in/")) or one.name,
        who.namespace or DEFAULT_NAMESPACE,
        one.scheme,
        b"",
        None,
        None if one.old_until is None else one.old_until.timestamp(),
        one.header or "",
        one.actor,
        one.created_at.timestamp(),
        None if one.rotated_at is None else one.rotated_at.timestamp(),
    )
