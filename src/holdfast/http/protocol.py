"""uvicorn's connection with two limits that it does not have: how large the head of a request may be, and how long it may
take to arrive. Without them, somebody who sends slowly, or without end, keeps connections and memory."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_S = 10.0
"""How long the head of a request may take to arrive, also that of the first one on a new connection."""
HEAD_MAX_BYTES = 32 * 1024
"""The address and all headers. A token and a cursor need a few hundred bytes."""


class Bounded(HttpToolsProtocol):
    _timer: asyncio.TimerHandle | None = None
    _in_head = True
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_MAX_BYTES:
                self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._stop_timer()
        self._in_head, self._head_bytes = True, 0
        self._timer = self.loop.call_later(HEAD_S, self._cut)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cut(self) -> None:
        self.transport.close()
