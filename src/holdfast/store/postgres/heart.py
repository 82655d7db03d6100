"""Renews a lease from the heart's process, on its own connection. This also works through a connection pooler."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

from holdfast.config import Config
from holdfast.store.postgres.connections import bounded, connect
from holdfast.store.postgres.verbs import STATEMENTS
from holdfast.store.verbs import Verb


class PostgresRenewer:
    def __init__(self, url: str, node: str, lease_s: float) -> None:
        self._url, self._node, self._lease_s = url, node, lease_s
        self._loop = asyncio.new_event_loop()
        self._connection: asyncpg.Connection[Any] | None = None

    def renew(self, pulse: str | None, silent_s: float) -> float | None:
        renewed = self._loop.run_until_complete(
            self._ask(STATEMENTS[Verb.renew], self._node, self._lease_s, pulse, silent_s)
        )
        return None if renewed is None else float(renewed.timestamp())

    def say_gone(self) -> None:
        self._loop.run_until_complete(self._ask(STATEMENTS[Verb.say_gone], self._node))

    async def _ask(self, statement: str, *arguments: Any) -> Any:
        async with asyncio.timeout(self._lease_s / 2):
            if self._connection is None:
                settings = {"application_name": "holdfast heart"}
                # If one host does not answer, half of the time is left for the next one.
                config = Config(lease_s=self._lease_s, connect_s=self._lease_s / 4)
                self._connection = await connect(self._url, config, settings, statement_cache_size=0)
            with bounded(self._connection, self._lease_s / 2):
                return await self._connection.fetchval(statement, *arguments)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._loop.call_soon(self._loop.stop)  # one turn of the loop, which closes the socket
            self._loop.run_forever()
        self._loop.close()
