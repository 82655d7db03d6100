"""The network between remote programs and servers, in memory and in virtual time. A request is a task of the server's
process, which gets the ASGI application of the product. Requests and replies get lost, doubled and late; what a dead
process has open is closed, unless its host vanished."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any

import httpx2

from holdfast.http.app import Server, make_app
from holdfast.testing.world import Process
from tests.simulation.nodes import WatchedProcess

if TYPE_CHECKING:
    from tests.simulation.parts.door import Door

HOP_S = 0.002
"""How long a message takes that nothing delays."""
SILENT_S = 6.0
"""How long a program waits for a message that got lost. Real ones wait longer; here, longer than a lease is enough."""


SERVED: ContextVar[Exchange | None] = ContextVar("served", default=None)
"""The request that a server's code works on."""


class ServerProcess(WatchedProcess):
    """A process that serves HTTP."""

    _server: Server | None = None
    app: Any = None

    async def open(self, first: str | None = None) -> ServerProcess:
        await super().open(first)
        self._server = Server(self, self.desk, is_loopback=False)
        self.app = make_app(self._server)
        return self

    async def close(self, drain_s: float | None = None) -> None:
        """Leave as a server does: who waits is answered, and no other request is taken."""
        app, self.app = self.app, None
        if app is not None and self._server is not None:
            self._server.leave()
            await self.environment.sleep(HOP_S * 5)
        await super().close(drain_s)


class Exchange:
    """One request on its way to a server, and what comes back."""

    def __init__(
        self, door: Door, client: Process | None, server: ServerProcess, scope: dict[str, Any], body: bytes
    ) -> None:
        self.client, self.server, self.scope = client, server, scope
        self.reply_lost = False
        self.delay_s = HOP_S
        self.renewals = 1
        """How many renewals of a lease this request still stands for."""
        self._door = door
        self._body: bytes | None = body
        self.turn: int | None = json.loads(body)["turn"] if self.path.endswith("/claim") else None
        self._arrived: deque[dict[str, Any]] = deque()
        self._is_broken = False
        self._change: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] = door.loop.create_future()

    @property
    def path(self) -> str:
        return str(self.scope["path"])

    # --- at the server ------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        if self.server.dead or self.server.app is None:
            self.break_off()
        else:
            self._door.exchanges[self] = None
            self.server.run_task(self._serve(self.server.app))

    async def _serve(self, app: Any) -> None:
        SERVED.set(self)
        try:
            await app(self.scope, self._receive, self._send)
        finally:
            self._door.ended(self)

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await asyncio.shield(self._gone)
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self._door.answers(self, message)
        self._door.later(self.delay_s, lambda: self._arrive(message))

    def hang_up(self) -> None:
        """The other end is closed."""
        if not self._gone.done():
            self._gone.set_result(None)

    # --- at the client ------------------------------------------------------------------------------------------------

    def _arrive(self, message: dict[str, Any]) -> None:
        if self._door.is_cut(self.client):
            return
        if self.reply_lost:
            self.break_off()
        else:
            self._arrived.append(message)
            self._wake()

    def break_off(self) -> None:
        """The connection is reset."""
        self._is_broken = True
        self._wake()

    def _wake(self) -> None:
        if self._change is not None and not self._change.done():
            self._change.set_result(None)

    async def next(self, limit_s: float) -> dict[str, Any]:
        """Return the next message of the server."""
        try:
            async with asyncio.timeout(limit_s):
                while not self._arrived:
                    if self._is_broken:
                        raise httpx2.ReadError("the connection was reset")
                    self._change = self._door.loop.create_future()
                    await self._change
        except TimeoutError:
            raise httpx2.ReadTimeout("no answer") from None
        return self._arrived.popleft()

    def close(self) -> None:
        if not self._door.is_cut(self.client):
            self._door.later(HOP_S, self.hang_up)


class Wire(httpx2.AsyncBaseTransport):
    """What a remote program sends its requests through."""

    def __init__(self, door: Door, client: Process) -> None:
        self._door, self._client = door, client

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        door, client = self._door, self._client
        server = door.server()
        if server is None or door.is_cut(client):
            await client.environment.sleep(HOP_S)
            raise httpx2.ConnectError("nobody listens")
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": request.method,
            "scheme": "https",
            "path": request.url.path,
            "raw_path": request.url.raw_path.partition(b"?")[0],
            "root_path": "",
            "query_string": request.url.query,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": (client.name, 0),
            "server": ("door", 443),
        }
        exchange = Exchange(door, client, server, scope, request.content)
        fault = door.fault(exchange)
        if fault == "the request":
            await client.environment.sleep(door.dice.choice((HOP_S, HOP_S, SILENT_S)))
            raise httpx2.ReadError("lost on the way")
        after_s = door.late_s() if fault == "late" else HOP_S
        if fault == "late":
            exchange.delay_s = door.late_s()
        exchange.reply_lost = fault == "the reply"
        door.later(after_s, exchange.begin)
        if fault == "doubled":
            door.send_again(exchange, request.content)
        limit_s = min(request.extensions["timeout"]["read"] or SILENT_S, _patience_s(request.content))
        try:
            head = await exchange.next(limit_s)
        except BaseException:
            exchange.close()
            raise
        return httpx2.Response(head["status"], headers=head["headers"], stream=_Body(exchange, limit_s))


def _patience_s(body: bytes) -> float:
    """Return how long an answer is waited for: a claim asks the server to wait itself."""
    return 20.0 + SILENT_S if b'"wait_s"' in body else SILENT_S


class _Body(httpx2.AsyncByteStream):
    def __init__(self, exchange: Exchange, limit_s: float) -> None:
        self._exchange, self._limit_s = exchange, limit_s

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._exchange.next(self._limit_s)
            yield message.get("body", b"")
            if not message.get("more_body", False):
                return

    async def aclose(self) -> None:
        self._exchange.close()


def call_outside(loop: Any, after_s: float, call: Callable[[], object]) -> None:
    """Call this later, as code of no process."""
    loop.call_later(after_s, call, context=Context())
