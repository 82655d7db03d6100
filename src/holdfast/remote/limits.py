"""The limit desk of a server, over HTTP."""

from __future__ import annotations

from holdfast.access import Identity
from holdfast.desk.limits import LIST_MAX
from holdfast.errors import UnknownLimit
from holdfast.remote.transport import Transport
from holdfast.wire import answers, requests
from holdfast.wire.paths import path_of


class RemoteLimitDesk:
    """A limit desk that asks a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def fairs(self, who: Identity, after: str = "", limit: int = LIST_MAX) -> list[answers.FairKey]:
        return (
            await self._transport.get(who, "/v1/fair", answers.FairKeys, {"after": after, "limit": limit})
        ).items

    async def list(self, who: Identity, after: str = "", limit: int = LIST_MAX) -> list[answers.Limit]:
        return (
            await self._transport.get(who, "/v1/limits", answers.Limits, {"after": after, "limit": limit})
        ).items

    async def get(self, who: Identity, key: str) -> answers.LimitSeen:
        return await self._transport.get(
            who, f"/v1/limits/{path_of(key)}", answers.LimitSeen, None, lambda: UnknownLimit.of(key)
        )

    async def set(self, who: Identity, key: str, most: int | None, note: str = "") -> answers.Limit:
        body = requests.SetLimit(most=most, note=note)
        return await self._transport.post(
            who, f"/v1/limits/{path_of(key)}", answers.Limit, body, lambda: UnknownLimit.of(key)
        )

    async def set_fair(self, who: Identity, key: str, weight: int, note: str = "") -> answers.FairKey:
        body = requests.SetFair(key=key, weight=weight, note=note)
        return await self._transport.post(who, "/v1/fair", answers.FairKey, body)
