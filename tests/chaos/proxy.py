"""A small TCP proxy in front of PostgreSQL that can do to connections what networks do.

`cut` resets all connections. While `dropping` is set, everything on all connections disappears, and neither side
notices. `deafen` does the same to the connections there are, while new ones work, as after a firewall forgot them.
`lose_replies` lets a request reach the server, and closes the connection before the reply: so it is unknown whether it
was committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random


class Proxy:
    def __init__(self, host: str, port: int, seed: int = 1) -> None:
        self._host, self._port = host, port
        self._server: asyncio.Server | None = None
        self._pairs: set[_Pair] = set()
        self._dice = random.Random(seed)
        self.dropping = False
        self.lose_replies = 0.0
        """The probability that the reply to a request is lost, together with its connection."""
        self.lost_replies = 0
        self.port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.sleep(0)

    def cut(self) -> int:
        """Reset every connection, and return how many there were."""
        pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            pair.abort()
        return len(pairs)

    def deafen(self) -> int:
        """Let everything on the connections there are disappear from now on, and return how many there are."""
        for pair in self._pairs:
            pair.deaf = True
        return len(self._pairs)

    def heal(self) -> None:
        """Let everything pass again, and reset all connections: data is missing in them, so they are of no use."""
        self.dropping = False
        self.lose_replies = 0.0
        self.cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pair = _Pair(writer)
        self._pairs.add(pair)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while self.dropping:  # connecting gets no answer either
                await asyncio.sleep(0.05)
                if writer.is_closing():
                    return
            there_reader, pair.there = await asyncio.open_connection(self._host, self._port)
            back = asyncio.ensure_future(self._pass(pair, there_reader, writer, back=True))
            pair.tasks.append(back)
            await self._pass(pair, reader, pair.there, back=False)
        self._pairs.discard(pair)
        pair.abort()

    async def _pass(
        self, pair: _Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool
    ) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while chunk := await reader.read(65_536):
                if self.dropping or pair.deaf:
                    continue
                if back and self._dice.random() < self.lose_replies:
                    self.lost_replies += 1
                    break  # the server has done it, and the client does not get the reply
                writer.write(chunk)
                await writer.drain()
        if not (pair.deaf or self.dropping):
            self._pairs.discard(pair)
            pair.abort()


class _Pair:
    """The two halves of one connection."""

    def __init__(self, here: asyncio.StreamWriter) -> None:
        self.here = here
        self.there: asyncio.StreamWriter | None = None
        self.tasks: list[asyncio.Future[None]] = []
        self.deaf = False

    def abort(self) -> None:
        for writer in (self.here, self.there):
            if writer is not None:
                writer.transport.abort()
        for task in self.tasks:
            task.cancel()
