"""The time of a SQLite store: one clock for all processes of the host, which does not jump when somebody sets the
host's clock.

A host's clock may jump, because somebody sets it or a virtual machine wakes up. Then leases would seem to have run out,
and timers would fire an hour early or late. So the store's time is the time since the host started, which the kernel
counts and nobody can set, plus an anchor. The anchor is in the file, so it is the same for all processes. It is chosen
such that the store's time equals the host's clock when the first node comes. It is chosen again when no node lives. The
leader also does that (`follow_host`) when the host's clock has been ahead for so long that it must be right.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

import apsw

from holdfast.environment import Environment
from holdfast.store.sqlite.verbs import STATEMENTS, SqliteVerb

log = logging.getLogger("holdfast.store")

APART_S = 1.0
"""A smaller difference means that the clock is being adjusted, not that somebody set it."""
MEANT_AFTER_S = 600.0
"""A host's clock that is ahead for this long was set on purpose, or the host slept."""


def _boot() -> str | None:
    """Return an id of this start of the host. None if the system has none; then the host's clock is the store's
    clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def _steady() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clock:
    def __init__(self, environment: Environment, *, is_shared: bool) -> None:
        self._environment = environment
        self._boot = (
            _boot() if is_shared and environment.is_real and hasattr(time, "CLOCK_BOOTTIME") else None
        )
        self._anchor: float | None = None
        self._ahead_since: float | None = None
        self._session_now = 0.0

    def now(self) -> float:
        if self._anchor is None:
            return self._environment.now()
        # In whole microseconds, as PostgreSQL keeps times and as a server says them: so a time is the same everywhere.
        return int((_steady() + self._anchor) * 1e6) / 1e6

    def serve(self, connection: apsw.Connection) -> None:
        """Make `store_now()` available to statements on this connection. It is the time when their session began, the
        same for all statements of a session."""
        connection.create_scalar_function("store_now", lambda *_: self._session_now, 0)

    def begin_session(self) -> float:
        """Make `store_now()` the current time from now on. Sessions run one after another, because none waits for
        anything."""
        self._session_now = self.now()
        return self._session_now

    def learn(self, connection: apsw.Connection) -> bool:
        """Take the anchor from the file. Return False if the file has none that is valid for this start of the host."""
        row = connection.execute(STATEMENTS[SqliteVerb.clock]).get if self._boot is not None else None
        if row is None or row[0] != self._boot:
            return False
        self._anchor = row[1]
        return True

    def is_right(self, connection: apsw.Connection) -> bool:
        """True if the anchor in the file can stay: it agrees with the host's clock, or live nodes use it."""
        if self._boot is None:
            return True
        if not self.learn(connection):
            return False
        ahead_s = self._environment.now() - self.now()
        return abs(ahead_s) < APART_S or bool(
            connection.execute(STATEMENTS[SqliteVerb.clock_in_use], (self.now(),)).get
        )

    def anchor(self, connection: apsw.Connection | None) -> None:
        """Set the store's time to the host's clock. Without a connection it is set for this process alone, because the
        file is read-only."""
        self._anchor = self._environment.now() - _steady()
        if connection is not None:
            connection.execute(STATEMENTS[SqliteVerb.set_clock], (self._boot, self._anchor))

    def follow_host(self, connection: apsw.Connection) -> bool:
        """Follow a host's clock that has been ahead for a long time. Return whether the store's time has changed.

        The leader calls this within a transaction. Leases and the start times of running steps are moved by the same
        amount, so that nothing runs out because of the change. The store never follows a clock that was set back,
        because its time must not go backwards.
        """
        if self._anchor is None:
            return False
        ahead_s = self._environment.now() - self.now()
        if ahead_s < APART_S:
            self._ahead_since = None
            return False
        at = self._environment.monotonic()
        if self._ahead_since is None:
            self._ahead_since = at
        if at - self._ahead_since < MEANT_AFTER_S:
            return False
        log.warning("the host's clock has been %.0f s ahead for a long time: the store follows it", ahead_s)
        self._ahead_since = None
        for statement in (
            STATEMENTS[SqliteVerb.move_leases],
            STATEMENTS[SqliteVerb.move_nodes],
            STATEMENTS[SqliteVerb.move_steps],
        ):
            connection.execute(statement, (ahead_s,))
        self.anchor(connection)
        return True
