"""The time of a SQLite store: one clock for all processes of the host, which a host's clock that is set does not move.

A host's clock may jump: somebody sets it, a virtual machine wakes up. Leases would seem to have run out, and timers fire an hour
early or late. So the store's time is what the kernel counts since the host started, which nobody can set, plus an anchor that
stands in the file and is the same for everybody. The anchor is the host's clock when the first node came. It is taken anew when
no node lives; or by the leader (`follow_host`), when the host's clock has been ahead for so long that it must be meant.
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
"""Less is a clock that is being adjusted, not one that was set."""
MEANT_AFTER_S = 600.0
"""A host's clock that is ahead for this long was set on purpose, or the host slept."""


def _boot() -> str | None:
    """Which start of the host this is. Where that cannot be asked, the host's own clock is the store's."""
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
        return self._environment.now() if self._anchor is None else _steady() + self._anchor

    def serve(self, connection: apsw.Connection) -> None:
        """Statements on this connection can ask for the store's time: `store_now()` is when their session began, for all of them."""
        connection.create_scalar_function("store_now", lambda *_: self._session_now, 0)

    def begin_session(self) -> float:
        """From now on `store_now()` is this time. Sessions follow one another: none waits for anything in between."""
        self._session_now = self.now()
        return self._session_now

    def learn(self, connection: apsw.Connection) -> bool:
        """Take over what stands in the file; whether that is of use here."""
        row = connection.execute(STATEMENTS[SqliteVerb.clock]).get if self._boot is not None else None
        if row is None or row[0] != self._boot:
            return False
        self._anchor = row[1]
        return True

    def is_right(self, connection: apsw.Connection) -> bool:
        """Whether nothing is to be written: the host's clock says the same, or nodes live by the anchor."""
        if self._boot is None:
            return True
        if not self.learn(connection):
            return False
        ahead_s = self._environment.now() - self.now()
        return abs(ahead_s) < APART_S or bool(
            connection.execute(STATEMENTS[SqliteVerb.clock_in_use], (self.now(),)).get
        )

    def anchor(self, connection: apsw.Connection | None) -> None:
        """From now on the store's time is the host's. Without a connection, which may only read, for this process alone."""
        self._anchor = self._environment.now() - _steady()
        if connection is not None:
            connection.execute(STATEMENTS[SqliteVerb.set_clock], (self._boot, self._anchor))

    def follow_host(self, connection: apsw.Connection) -> bool:
        """Follow a host's clock that has been ahead for long. Called by the leader, within a transaction: leases and what runs
        move along, so that nothing runs out by it; whether they did. Nothing follows a clock that was set back: times would go backwards."""
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
        log.warning("the host's clock has been %.0f s ahead for long: the store follows it", ahead_s)
        self._ahead_since = None
        for statement in (
            STATEMENTS[SqliteVerb.move_leases],
            STATEMENTS[SqliteVerb.move_nodes],
            STATEMENTS[SqliteVerb.move_steps],
        ):
            connection.execute(statement, (ahead_s,))
        self.anchor(connection)
        return True
