"""The ask desk of a server, over HTTP."""

from __future__ import annotations

from msgspec import Raw

from holdfast.access import Identity
from holdfast.desk.asks import AskFilter
from holdfast.errors import UnknownAsk
from holdfast.remote.transport import Transport
from holdfast.wire import answers, requests
from holdfast.wire.paths import path_of


class RemoteAskDesk:
    """An ask desk that asks a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self, who: Identity, where: AskFilter) -> list[answers.Ask]:
        query = {
            "who": where.who,
            "run": where.run,
            "state": "ended" if where.ended else "open",
            "after": where.after or None,
            "limit": where.limit,
        }
        return (await self._transport.get(who, "/v1/asks", answers.Asks, query)).items

    async def get(self, who: Identity, ask: str) -> answers.Ask:
        return await self._transport.get(
            who, f"/v1/asks/{path_of(ask)}", answers.Ask, None, lambda: UnknownAsk.of(ask)
        )

    async def answer(
        self, who: Identity, ask: str, value: bytes, note: str = "", *, by: str | None = None
    ) -> answers.AskAnswered:
        """Answer an ask. This may be sent again: the same answer changes nothing."""
        body = requests.Answer(value=Raw(value), note=note, by=by)
        path = f"/v1/asks/{path_of(ask)}/answer"
        return await self._transport.post(who, path, answers.AskAnswered, body, lambda: UnknownAsk.of(ask))

    async def delegate(
        self, who: Identity, ask: str, to: str, note: str = "", *, by: str | None = None
    ) -> answers.Ask:
        """Hand a place over. If the answer is lost, this is not sent again: then look at the ask."""
        body = requests.Delegate(to=to, note=note, by=by)
        path = f"/v1/asks/{path_of(ask)}/delegate"
        return await self._transport.post(
            who, path, answers.Ask, body, lambda: UnknownAsk.of(ask), is_repeatable=False
        )
