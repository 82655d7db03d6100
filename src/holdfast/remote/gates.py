"""The gate desk of a server, over HTTP."""

from __future__ import annotations

from holdfast.access import Identity
from holdfast.desk.gates import Placed
from holdfast.errors import WrongState
from holdfast.model import Breaker, Hold, HoldScope
from holdfast.remote import rows
from holdfast.remote.transport import MaybeDone, Transport
from holdfast.wire import answers, requests
from holdfast.wire.paths import path_of


class RemoteGateDesk:
    """A gate desk that asks a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def breakers(self, who: Identity) -> list[Breaker]:
        found = await self._transport.get(who, "/v1/breakers", answers.Breakers)
        return [rows.breaker(one) for one in found.items]

    async def open(self, who: Identity, dependency: str, note: str = "") -> Breaker:
        return await self._breaker(who, dependency, "open", note)

    async def close(self, who: Identity, dependency: str, note: str = "") -> Breaker:
        return await self._breaker(who, dependency, "close", note)

    async def reset(self, who: Identity, dependency: str, note: str = "") -> Breaker:
        return await self._breaker(who, dependency, "reset", note)

    async def _breaker(self, who: Identity, name: str, verb: str, note: str) -> Breaker:
        path = f"/v1/breakers/{path_of(name)}/{verb}"
        unknown = lambda: WrongState(f"{name!r} has no breaker: `holdfast breakers` lists them")  # noqa: E731
        return rows.breaker(
            await self._transport.post(who, path, answers.Breaker, requests.Noted(note=note), unknown)
        )

    async def holds(self, who: Identity) -> list[Hold]:
        return [rows.hold(one) for one in (await self._transport.get(who, "/v1/holds", answers.Holds)).items]

    async def hold(self, who: Identity, scope: HoldScope, value: str, note: str = "") -> Placed:
        body = requests.HoldPlace(scope=scope.value, value=value, note=note)
        found = await self._transport.post(who, "/v1/holds", answers.HoldPlaced, body)
        return Placed(rows.hold(found.hold), found.new, found.known)

    async def release(self, who: Identity, scope: HoldScope, value: str, note: str = "") -> Hold:
        body = requests.HoldPlace(scope=scope.value, value=value, note=note)
        held = await self.holds(who)
        try:
            return rows.hold(await self._transport.post(who, "/v1/holds/release", answers.Hold, body))
        except MaybeDone:
            now = await self.holds(who)
            gone = [one for one in held if one.scope is scope and one not in now]
            if len(gone) != 1:
                raise
            return gone[0]
