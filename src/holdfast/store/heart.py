"""The heart: a tiny process beside a node that renews the node's lease, so that a blocked event loop or a held GIL does
not lose it. The node's side is `holdfast.heartbeat`; a dialect's `heart` module knows how to renew.

The order comes by standard input as one JSON line, then what the node says of itself, one line a ping; what became of
each renewal goes out by standard output. When the node's process is gone, its heart says so in the store, at once: others
need not wait for the lease to run out.

May change: the lease of the node that started it. Must never: renew for a node that is gone, stopped by a signal, or
silent for longer than its stall limit; nor renew a lease that has already run out, because others may have acted on that;
nor say of a process that is there that it is gone.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.environment import Environment

RECLAIMED, LAPSED, STALLED = "reclaimed", "lapsed", "stalled"
"""Why a heart ends while its node lives."""
LEAVE = b"leave"
"""What a node says to a heart it needs no longer, before it hangs up."""
ORPHANED_S = 1.0
"""The pipe of a process that ends is closed before its children get another parent: microseconds, or longer on a host with much
to do. A node that hangs up and is still there after this is not gone."""
LOOK_S = 0.002
"""How often to look for that."""
READ_BYTES = 65_536


class Order(msgspec.Struct):
    """What a heart is told when it is started."""

    url: str
    node: str
    pid: int
    lease_s: float
    renew_s: float
    stall_s: float
    sent: float
    """When the last renewal was sent, on the monotonic clock, which all processes of a host share."""


class HeartMessage(msgspec.Struct, omit_defaults=True):
    """What a heart says: a renewal that was sent and answered at these monotonic times, trouble, or why it ends."""

    sent: float = 0.0
    answered: float = 0.0
    store_now: float | None = None
    trouble: str | None = None
    end: str | None = None


class Renewer(Protocol):
    """A connection of the heart's own to the store."""

    def renew(self, pulse: str | None, silent_s: float) -> float | None:
        """Renew, noting what the node said of itself so long ago; the store's time, or None when it was buried."""

    def say_gone(self) -> None:
        """The node's process is gone: its lease ends now."""

    def close(self) -> None: ...


class Heart:
    def __init__(self, order: Order, environment: Environment) -> None:
        self._order, self._environment = order, environment
        self._renewer: Renewer | None = None
        self._sent = order.sent
        self._told_at = environment.monotonic()
        self._pulse: str | None = None
        self._unread = b""
        self._let_go = False
        self._heard = [0, *watched(order.pid)]

    def beat(self) -> str | None:
        """Renew again and again; why it came to an end, None when the node is gone."""
        monotonic, order = self._environment.monotonic, self._order
        at = 0.0
        while self._listen(at - monotonic()):
            if monotonic() < at:
                continue
            if os.getppid() != order.pid:
                return None
            silent_s = monotonic() - self._told_at
            if silent_s > order.stall_s:
                return STALLED
            if monotonic() - self._sent > order.lease_s:
                return LAPSED
            again_s = order.renew_s / 4
            # A process that was stopped must find, when it goes on, that it lost its lease: it slept through its timeouts.
            if silent_s <= order.renew_s or not is_stopped(order.pid):
                renewed = self._renew(silent_s)
                if renewed is None:
                    return RECLAIMED
                if renewed:
                    again_s = order.renew_s * (0.75 + self._environment.random.random() / 2)
            at = monotonic() + again_s
        return None

    def _renew(self, silent_s: float) -> bool | None:
        """Whether it was renewed; None when there is nothing left to renew."""
        sent = self._environment.monotonic()
        try:
            if self._renewer is None:
                self._renewer = renewer(self._order)
            store_now = self._renewer.renew(self._pulse, silent_s)
        except Exception as error:  # noqa: BLE001  whatever it is, the node is told and it is tried again
            self.say(HeartMessage(trouble=f"{type(error).__name__}: {error}"))
            self.close()
            return False
        if store_now is None:
            return None
        self._sent = sent
        self.say(HeartMessage(sent, self._environment.monotonic(), store_now))
        return True

    def is_orphaned(self) -> bool:
        """Whether the node's process is gone. One that has let its heart go, or hung up and is still there, is not."""
        monotonic = self._environment.monotonic
        until = monotonic() + ORPHANED_S
        while not self._let_go and monotonic() < until:
            if os.getppid() != self._order.pid:
                return True
            select.select([], [], [], LOOK_S)
        return False

    def say_gone(self) -> None:
        """End the lease of a process that is gone. While the store is away it is tried again, until the lease has ended by
        itself."""
        monotonic, order = self._environment.monotonic, self._order
        while monotonic() < self._sent + order.lease_s:
            try:
                if self._renewer is None:
                    self._renewer = renewer(order)
                self._renewer.say_gone()
            except Exception:  # noqa: BLE001  nobody is left who could be told
                self.close()
                select.select([], [], [], min(1.0, order.renew_s / 4))
            else:
                return

    def _listen(self, limit_s: float) -> bool:
        """Hear the node for at most so long; False when it is gone, or needs no heart any more."""
        ready, _, _ = select.select(self._heard, [], [], max(0.0, limit_s))
        if ready:
            read = os.read(0, READ_BYTES) if 0 in ready else b""
            if not read:
                return False
            *lines, self._unread = (self._unread + read).split(b"\n")
            if LEAVE in lines:
                self._let_go = True
                return False
            if lines:
                self._pulse, self._told_at = lines[-1].decode(), self._environment.monotonic()
        return True

    def say(self, said: HeartMessage) -> None:
        os.write(1, msgspec.json.encode(said) + b"\n")

    def close(self) -> None:
        if self._renewer is not None:
            self._renewer.close()
            self._renewer = None


def watched(pid: int) -> list[int]:
    """A descriptor that can be read when the process has ended, where there are such: a child that the process forked keeps
    its end of the pipe open."""
    try:
        return [os.pidfd_open(pid)]
    except (AttributeError, OSError):
        return []  # `is_orphaned` and every renewal ask for the parent


def renewer(order: Order) -> Renewer:
    from holdfast.store import dialect_of  # noqa: PLC0415  a dialect needs what is above

    made: Renewer = dialect_of(order.url).open_renewer(order)
    return made


def is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger keeps the process from running at all."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except OSError:
        asked = ["ps", "-o", "state=", "-p", str(pid)]
        state = subprocess.run(asked, capture_output=True, check=False, text=True).stdout.strip()  # noqa: S603
    return state[:1] in {"T", "t"}


def main() -> None:
    # Whoever ends the node's whole process group leaves it time to drain: until then it needs its lease.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    line = b""
    while not line.endswith(b"\n"):
        read = os.read(0, 1)
        if not read:
            sys.exit(0)
        line += read
    heart = Heart(msgspec.json.decode(line, type=Order), Environment())
    try:
        end = heart.beat()
        if end is not None:
            heart.say(HeartMessage(end=end))
    except BrokenPipeError:
        end = None  # the node is gone
    if end is None and heart.is_orphaned():
        heart.say_gone()
    heart.close()
    os._exit(0)


if __name__ == "__main__":
    main()
