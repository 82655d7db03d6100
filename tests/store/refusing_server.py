"""A server that refuses connections as PostgreSQL or a pooler does."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.chaos.proxy import Proxy

TLS_ASKED = (80877103).to_bytes(4)


class RefusingServer(Proxy):
    """Answers the first connections with an error, and passes the later ones on to a server at `host` and `port`."""

    def __init__(
        self, code: str, message: str, times: float = math.inf, host: str = "", port: int = 0
    ) -> None:
        super().__init__(host, port)
        self._error = f"SFATAL\0C{code}\0M{message}\0\0".encode()
        self._times = times
        self.refused = 0

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refused >= self._times:
            await super()._accept(reader, writer)
            return
        while size := int.from_bytes(await reader.read(4)):
            asked = await reader.readexactly(size - 4)
            if asked[:4] != TLS_ASKED:
                self.refused += 1
                writer.write(b"E" + (len(self._error) + 4).to_bytes(4) + self._error)
                break
            writer.write(b"N")
        await writer.drain()
        writer.close()


@asynccontextmanager
async def opened(server: RefusingServer) -> AsyncIterator[RefusingServer]:
    """Run such a server for as long as the block lasts."""
    await server.open()
    try:
        yield server
    finally:
        await server.close()
