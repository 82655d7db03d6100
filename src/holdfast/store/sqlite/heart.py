"""Renewing a lease from the heart's process. A renewal need not survive a power cut, so its commit does not wait for the
disk; and it never moves the write-ahead log into the file, which can take long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from holdfast.environment import Environment
from holdfast.store.sqlite.clock import Clock
from holdfast.store.sqlite.database import path_of
from holdfast.store.sqlite.verbs import VERBS


class SqliteRenewer:
    def __init__(self, url: str, node: str, lease_s: float, environment: Environment) -> None:
        self._node, self._lease_s = node, lease_s
        self._clock = Clock(environment, shared=True)
        self._connection = apsw.Connection(path_of(url), flags=apsw.SQLITE_OPEN_READWRITE)
        self._connection.set_busy_timeout(int(lease_s * 1000 / 4))
        self._connection.pragma("synchronous", "NORMAL")
        self._connection.wal_autocheckpoint(0)

    def renew(self, pulse: str | None, silent_s: float) -> float | None:
        with self._writing() as now:
            before = self._connection.total_changes()
            self._connection.execute(VERBS.renew, (now + self._lease_s, pulse, now - silent_s, self._node))
            renewed = self._connection.total_changes() > before
        return now if renewed else None

    def say_gone(self) -> None:
        with self._writing() as now:
            self._connection.execute(VERBS.say_gone, (now, self._node))

    @contextmanager
    def _writing(self) -> Iterator[float]:
        """A transaction, and its time."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._clock.learn(connection)
            yield self._clock.now()
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()
