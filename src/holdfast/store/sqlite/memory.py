"""A database in memory with several connections. A simulation uses it, and all its processes share it."""

from __future__ import annotations

import itertools

import apsw

from holdfast.environment import Environment
from holdfast.store.sqlite.address import IN_MEMORY
from holdfast.store.sqlite.connections import STATEMENTS_KEPT, Connections

PAGE_BYTES = 1024
"""A connection copies the pages that others have changed, and the rows of a simulation are few and small."""
STATEMENTS_OF_ONE_KEPT = 256
"""How many prepared statements apsw keeps for one verb. It looks through all of them at each use."""


class MemoryConnections(Connections):
    """Connections to one database in memory. Nobody can read while somebody has begun to write."""

    _made = itertools.count()

    def __init__(self, environment: Environment) -> None:
        super().__init__(IN_MEMORY, environment)
        self._name = f"/holdfast-{next(self._made)}"  # the slash makes SQLite share it within the process

    def _connect(self, flags: int) -> apsw.Connection:
        is_first = flags & apsw.SQLITE_OPEN_CREATE
        return apsw.Connection(
            self._name,
            vfs="memdb",
            flags=flags | apsw.SQLITE_OPEN_NOMUTEX,  # a simulation has one thread
            statementcachesize=STATEMENTS_KEPT if is_first else STATEMENTS_OF_ONE_KEPT,
        )

    def _set_up(self, connection: apsw.Connection) -> None:
        super()._set_up(connection)
        connection.pragma("page_size", PAGE_BYTES)

    def reader(self) -> apsw.Connection:
        """Return one more connection, for what one verb reads."""
        return self._connect_reader()
