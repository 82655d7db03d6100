"""Renews a lease from the heart's process. A renewal need not survive a power cut, so its commit does not wait for the
disk. And it never moves the write-ahead log into the file, because that can take long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from holdfast.environment import Environment
from holdfast.store.sqlite.address import path_of
from holdfast.store.sqlite.clock import Clock
from holdfast.store.sqlite.verbs import STATEMENTS
from holdfast.store.verbs import Verb


class SqliteRenewer:
    def __init__(self, url: str, node: str, lease_s: float, environment: Environment) -> None:
        self._node, self._lease_s = node, lease_s
        self._clock = Clock(environment, is_shared=True)
        self._connection = apsw.Connection(path_of(url), flags=apsw.SQLITE_OPEN_READWRITE)
        self._connection.set_busy_timeout(int(lease_s * 1000 / 4))
        self._connection.pragma("synchronous", "NORMAL")
        self._connection.wal_autocheckpoint(0)
        self._clock.serve(self._connection)

    def renew(self, pulse: str | None, silent_s: float) -> float | None:
        with self._writing():
            values = (self._node, self._lease_s, pulse, silent_s)
            renewed: float | None = self._connection.execute(STATEMENTS[Verb.renew], values).get
        return renewed

    def say_gone(self) -> None:
        with self._writing():
            self._connection.execute(STATEMENTS[Verb.say_gone], (self._node,))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Open a transaction that uses the store's time, with the anchor from the file."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._clock.learn(connection)
            self._clock.begin_session()
            yield
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()
