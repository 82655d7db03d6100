"""The view desk of a server, over HTTP."""

from __future__ import annotations

from holdfast.access import Identity
from holdfast.remote.transport import Transport
from holdfast.store.views import View
from holdfast.wire import answers, requests
from holdfast.wire import views as wire
from holdfast.wire.paths import path_of


class RemoteViewDesk:
    """A view desk that asks a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self, who: Identity) -> list[View]:
        found = await self._transport.get(who, "/v1/views", wire.Views)
        return [View(one.name, one.query) for one in found.items]

    async def save(self, who: Identity, view: View) -> View:
        body = wire.SaveView(name=view.name, query=view.query)
        found = await self._transport.post(who, "/v1/views", wire.View, body)
        return View(found.name, found.query)

    async def remove(self, who: Identity, name: str) -> bool:
        path = f"/v1/views/{path_of(name)}/remove"
        return (await self._transport.post(who, path, answers.Removed, requests.Nothing())).removed
