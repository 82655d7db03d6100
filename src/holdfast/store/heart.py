"""The heart: a small process beside a node that renews the node's lease. So a node does not lose its lease when its
event loop is blocked or a library does not release the GIL. The node's side is `holdfast.heartbeat`. The `heart` module
of each dialect knows how to renew, and that of `remote` for a node that reaches the store through a server.

On standard input the heart gets its order as one JSON line, and then a line for each sign of life, in which the node
describes its state. On standard output it writes what became of each renewal. When the node's process is gone, the
heart says so in the store at once, so that others need not wait until the lease runs out.

A heart may change only the lease of the node that started it. It must never

- renew for a node that is gone, is stopped by a signal, or was silent for longer than its stall limit;
- renew a lease that has already run out, because others may have acted on that;
- say that a process is gone while it is there.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from holdfast.environment import Environment

RECLAIMED, LAPSED, STALLED = "reclaimed", "lapsed", "stalled"
"""Why a heart ends although the node's process is still there."""
LEAVE = b"leave"
"""What a node writes to a heart that it no longer needs, before it closes the pipe."""
ORPHANED_S = 1.0
"""How long to look whether a node that closed the pipe is gone. The kernel closes the pipes of a process that ends
before it gives its children another parent. That takes microseconds, or longer on a busy host. A node that is still the
parent after this time is not gone."""
LOOK_S = 0.002
"""How often to look in that time."""
READ_BYTES = 65_536
REMOTE = "holdfast.remote.heart"
"""The module that renews through a server. It stands above this one, so it is loaded by its name, as dialects are."""


class Order(NamedTuple):
    """What a node asks of its heart, when it starts it."""

    url: str
    node: str
    pid: int
    lease_s: float
    renew_s: float
    stall_s: float
    sent: float
    """When the last renewal was sent, on the monotonic clock. All processes of a host share that clock."""
    headers: dict[str, str] = {}  # noqa: RUF012  nobody changes it
    """What goes with each request, if the address is that of a server: the token, and the namespace."""


class HeartMessage(NamedTuple):
    """What a heart writes to its node: a renewal with the monotonic times when it was sent and answered, or trouble, or
    why the heart ends."""

    sent: float = 0.0
    answered: float = 0.0
    store_now: float | None = None
    trouble: str | None = None
    end: str | None = None


def line_of(said: Order | HeartMessage) -> bytes:
    """Return an order or a message as it is sent through the pipe."""
    return json.dumps(said._asdict()).encode() + b"\n"


class Renewer(Protocol):
    """The heart's own connection to the store."""

    def renew(self, pulse: str | None, silent_s: float) -> float | None:
        """Renew the lease and record the pulse, which the node sent `silent_s` ago. Return the store's time, or None if
        the node was reclaimed."""

    def say_gone(self) -> None:
        """Record that the node's process is gone. This ends its lease."""

    def close(self) -> None: ...


class Heart:
    def __init__(self, order: Order, environment: Environment) -> None:
        self._order, self._environment = order, environment
        self._renewer: Renewer | None = None
        self._sent = order.sent
        self._heard_at = environment.monotonic()
        self._pulse: str | None = None
        self._unread = b""
        self._let_go = False

    def live(self) -> None:
        """Beat, and say why this ends. If the node's process is gone, say so in the store."""
        try:
            end = self.beat()
            if end is not None:
                self.say(HeartMessage(end=end))
        except BrokenPipeError:
            end = None  # the node is gone
        if end is None and self.is_orphaned():
            self.say_gone()
        self.close()

    def beat(self) -> str | None:
        """Renew again and again. Return why the heart ends. None: the node is gone, or needs no heart any more."""
        monotonic, order = self._environment.monotonic, self._order
        at = 0.0
        while self._listen(at - monotonic()):
            if monotonic() < at:
                continue
            if self._is_parent_gone():
                return None
            silent_s = monotonic() - self._heard_at
            if silent_s > order.stall_s:
                return STALLED
            if monotonic() - self._sent > order.lease_s:
                return LAPSED
            again_s = order.renew_s / 4
            # A stopped process misses its timeouts. So when it continues, it must find that it has lost its lease.
            if silent_s <= order.renew_s or not self._is_parent_stopped():
                renewed = self._renew(silent_s)
                if renewed is None:
                    return RECLAIMED
                if renewed:
                    again_s = order.renew_s * (0.75 + self._environment.random.random() / 2)
            at = monotonic() + again_s
        return None

    def _renew(self, silent_s: float) -> bool | None:
        """Try to renew once. Return whether that worked, or None if the node was reclaimed."""
        sent = self._environment.monotonic()
        try:
            if self._renewer is None:
                self._renewer = self._open_renewer()
            store_now = self._renewer.renew(self._pulse, silent_s)
        except Exception as error:  # noqa: BLE001  whatever it is, the heart reports it to the node and tries again
            self.say(HeartMessage(trouble=f"{type(error).__name__}: {error}"))
            self.close()
            return False
        if store_now is None:
            return None
        self._sent = sent
        self.say(HeartMessage(sent, self._environment.monotonic(), store_now))
        return True

    def is_orphaned(self) -> bool:
        """True if the node's process is gone. False if the node has sent its heart away, or closed the pipe and is
        still there."""
        monotonic = self._environment.monotonic
        until = monotonic() + ORPHANED_S
        while not self._let_go and monotonic() < until:
            if self._is_parent_gone():
                return True
            self._rest(LOOK_S)
        return False

    def say_gone(self) -> None:
        """End the lease of a process that is gone. If the store is away, try again until the lease has run out
        anyway."""
        monotonic, order = self._environment.monotonic, self._order
        while monotonic() < self._sent + order.lease_s:
            try:
                if self._renewer is None:
                    self._renewer = self._open_renewer()
                self._renewer.say_gone()
            except Exception:  # noqa: BLE001  the node is gone, so there is nobody to report it to
                self.close()
                self._rest(min(1.0, order.renew_s / 4))
            else:
                return

    def _listen(self, limit_s: float) -> bool:
        """Wait at most `limit_s` for a line from the node. Return False if the node is gone, or needs no heart any
        more."""
        read = self._read(max(0.0, limit_s))
        if read is None:
            return True
        if not read:
            return False
        *lines, self._unread = (self._unread + read).split(b"\n")
        if LEAVE in lines:
            self._let_go = True
            return False
        if lines:
            self._pulse, self._heard_at = lines[-1].decode(), self._environment.monotonic()
        return True

    def close(self) -> None:
        if self._renewer is not None:
            self._renewer.close()
            self._renewer = None

    # --- what it has of the system, which a simulation replaces -----------------------------------------------------

    def _read(self, limit_s: float) -> bytes | None:
        """Wait at most `limit_s` for what the node writes. Return None if there is nothing, and b"" if the pipe
        is closed or the process has ended."""
        ready, _, _ = select.select(self._descriptors, [], [], limit_s)
        if not ready:
            return None
        return os.read(0, READ_BYTES) if 0 in ready else b""

    @cached_property
    def _descriptors(self) -> list[int]:
        return [0, *watched(self._order.pid)]

    def say(self, message: HeartMessage) -> None:
        os.write(1, line_of(message))

    def _rest(self, seconds: float) -> None:
        select.select([], [], [], seconds)

    def _is_parent_gone(self) -> bool:
        return os.getppid() != self._order.pid

    def _is_parent_stopped(self) -> bool:
        return is_stopped(self._order.pid)

    def _open_renewer(self) -> Renewer:
        return renewer(self._order)


def watched(pid: int) -> list[int]:
    """Return a descriptor that becomes readable when the process ends, if the system has such descriptors. The pipe
    alone is not enough: a child that the process forked keeps its end open."""
    try:
        return [os.pidfd_open(pid)]
    except (AttributeError, OSError):
        return []  # then `is_orphaned` and `beat` find out, because the heart gets another parent


def renewer(order: Order) -> Renewer:
    from holdfast.store import dialect_of  # noqa: PLC0415  dialects import `Order` and `Renewer` from this module

    is_server = urlsplit(order.url).scheme in {"http", "https"}
    opened: Renewer = (import_module(REMOTE) if is_server else dialect_of(order.url)).open_renewer(order)
    return opened


def is_stopped(pid: int) -> bool:
    """True if a signal or a debugger has stopped the process."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except OSError:
        import subprocess  # noqa: PLC0415  only where there is no /proc

        command = ["ps", "-o", "state=", "-p", str(pid)]
        state = subprocess.run(command, capture_output=True, check=False, text=True).stdout.strip()  # noqa: S603
    return state[:1] in {"T", "t"}


def main() -> None:
    # These signals may go to the node's whole process group. The node needs its lease while it drains, so its heart
    # stays.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    line = b""
    while not line.endswith(b"\n"):
        read = os.read(0, 1)
        if not read:
            sys.exit(0)
        line += read
    heart = Heart(Order(**json.loads(line)), Environment())
    heart.live()
    os._exit(0)


if __name__ == "__main__":
    main()
