"""uvicorn's connection with two limits that it does not have: how large the head of a request may be, and how long it may
take to arrive. Without them, somebody who sends slowly, or without end, keeps connections and memory."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_S = 10.0
"""How long the head of a request may take to arrive, also that of the first one on a new connection."""
HEAD_MAX_BYTES = 32 * 1024
"""The address and all headers. A token and a cursor need a few hundred bytes."""


CHUNK_SHARE = 8
"""How many bytes may come for each byte of a body that is sent in chunks: before each chunk stands its length."""


class Bounded(HttpToolsProtocol):
    _timer: asyncio.TimerHandle | None = None
    _in_head = True
    _is_whole = True
    """True if the last request has arrived completely."""
    _head_bytes = 0
    _read_bytes = 0
    """How many bytes came last. A head may have ended among them."""
    _rest_bytes = 0
    """How many bytes came after the head of a request: its body, the lengths of chunks, and headers after the body."""
    _body_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        self._read_bytes = len(data)
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_MAX_BYTES:
                self.send_400_response("The head of the request is too large.")
        else:
            self._rest_bytes += len(data)
            if self._rest_bytes > HEAD_MAX_BYTES + CHUNK_SHARE * self._body_bytes:
                self._cut()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_whole = False
        self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # nobody reads a header that comes after the body
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._rest_bytes, self._body_bytes = -self._read_bytes, 0
        self._stop_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_whole = True
        self._await_more()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_more()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._cut_in(HEAD_S)

    def _await_more(self) -> None:
        """Wait for the next request, if everything is answered, or for the rest of one that was refused before its end.
        uvicorn waits for ever once anything has come."""
        if not self._in_head and self.cycle.response_complete:
            self._cut_in(self.timeout_keep_alive if self._is_whole else HEAD_S)

    def _cut_in(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._cut)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cut(self) -> None:
        self.transport.close()
