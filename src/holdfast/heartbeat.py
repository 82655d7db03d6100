"""How a node keeps its lease: from its own event loop, or by a heart, a process beside it (`holdfast.store.heart`).

Either way the node measures its lease on the monotonic clock, from the moment at which it sent the renewal. `until` is
when the lease ends. If that time has passed, the node has lost its lease, whatever the store would say.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import subprocess
import sys
from collections.abc import Callable

from holdfast.config import Config
from holdfast.environment import Environment, StoreClock
from holdfast.errors import StoreError
from holdfast.interpreters import module_path, python
from holdfast.store.heart import LAPSED, LEAVE, RECLAIMED, STALLED, HeartMessage, Order, line_of
from holdfast.store.nodes import Nodes

log = logging.getLogger("holdfast.node")

IDLE_MS = 300
"""How long a heart waits before it loads anything, so that a process that ends soon pays only for an empty interpreter.
This is far less than a lease. The heart then goes on by itself, so a node that blocks right after its start keeps its
lease, too. If the node is killed meanwhile, its end of the pipe closes, and the heart goes on at once to say so in the
store."""
BOOT = f"""\
import select, sys, _signal
for number in (1, 2, 15): _signal.signal(number, _signal.SIG_IGN)
try:
    with open("/proc/self/comm", "w") as name: name.write("holdfast-heart")
except OSError: pass
node = select.poll(); node.register(0, 0)
node.poll({IDLE_MS})
sys.path[:] = sys.argv[1].split("\\n")
from holdfast.store.heart import main
main()
"""
RESTART_MIN_S, RESTART_MAX_S = 0.1, 5.0
"""How long a node waits before it starts another heart. The time doubles with each heart that dies without having
renewed. Meanwhile the node renews by itself."""
WAS_RECLAIMED = "the leader took this node for gone and reclaimed what it had"
LEAVE_S = 0.5
"""How long a heart may take to close its connection before the node kills it."""


class Heartbeat:
    """Renews the lease from the node's event loop."""

    def __init__(
        self,
        store: Nodes,
        node: str,
        *,
        environment: Environment,
        clock: StoreClock,
        config: Config,
        pulse: Callable[[], str],
        lost: Callable[[str], None],
    ) -> None:
        self._store, self._node = store, node
        self._environment, self._clock, self._config = environment, clock, config
        self._pulse, self._lost = pulse, lost
        self.sent = 0.0
        self.until = math.inf
        """When the lease ends, on the monotonic clock."""

    def renewed(self, sent: float) -> None:
        """Extend the lease, because a renewal that was sent at this monotonic time was answered."""
        if sent > self.sent:
            self.sent, self.until = sent, sent + self._config.lease_s

    async def renew(self) -> None:
        """Renew once, from this process."""
        sent = self._environment.monotonic()
        store_now = await self._store.renew(self._node, self._config.lease_s, self._pulse())
        if store_now is None:
            self._lost(WAS_RECLAIMED)
            return
        self.renewed(sent)
        self._clock.learn(self._environment.monotonic(), store_now)

    def start(self) -> None: ...

    def look(self) -> None:
        """Read at once what the heart has written about the lease."""

    async def run(self) -> None:
        while True:
            jitter = 0.75 + self._environment.random.random() / 2
            await self._environment.sleep(self._config.renew_s * jitter)
            await self._try_to_renew()

    async def _try_to_renew(self) -> None:
        if self._environment.monotonic() < self.until:
            try:
                await self.renew()
            except StoreError as error:
                log.warning("node %s could not renew its lease: %s", self._node, error)
            except Exception:
                # Whatever the error is, the loop tries again: without it the node would lose its lease.
                log.exception("node %s could not renew its lease", self._node)

    def end(self) -> None:
        """End the lease for good. No later renewal brings it back."""
        self.sent, self.until = math.inf, -math.inf

    async def stop(self) -> None: ...


class HeartProcess(Heartbeat):
    """Renews the lease by a heart, and from the node's event loop while the heart does not renew."""

    _process: subprocess.Popen[bytes] | None = None
    _unread = b""
    _beating = False
    _restart_s = RESTART_MIN_S
    _restart_at = 0.0
    _trouble: str | None = None
    """Why the last renewal did not work, which is said once."""

    @property
    def pid(self) -> int | None:
        """The process id of the heart, while there is one."""
        return None if self._process is None else self._process.pid

    @property
    def _is_over(self) -> bool:
        """True if the lease has ended: a heart must not bring it back."""
        return self._environment.monotonic() >= self.until

    def _order(self, address: str) -> Order:
        return Order(
            address,
            self._node,
            os.getpid(),
            self._config.lease_s,
            self._config.renew_s,
            self._config.stall_s,
            self.sent,
            self._store.heart_headers,
        )

    def start(self) -> None:
        """Start a heart, and do not wait for it."""
        if not self._is_over:  # the answer to the first renewal may have come too late
            self._launch()

    def _launch(self) -> None:
        address = self._store.shared_url
        assert address is not None
        order = self._order(address)
        try:
            # It gets a session of its own, so that signals of the terminal to the node's process group do not reach it.
            self._process = heart = subprocess.Popen(  # noqa: S603
                python("-c", BOOT, "\n".join(module_path())),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            log.warning(
                "no heart could be started for node %s: %s; the node renews by itself", self._node, error
            )
            self._back_off()
            return
        assert heart.stdin is not None
        assert heart.stdout is not None
        os.set_blocking(heart.stdin.fileno(), False)
        os.set_blocking(heart.stdout.fileno(), False)
        self._unread, self._beating = b"", False
        self._say(line_of(order))
        asyncio.get_running_loop().add_reader(heart.stdout.fileno(), self.look)

    def _say(self, line: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the heart is gone, which `look` notices, or it does not read
            os.write(self._process.stdin.fileno(), line)

    def look(self) -> None:
        process = self._process
        if process is None or process.stdout is None:
            return
        gone = False
        with contextlib.suppress(BlockingIOError):
            while read := os.read(process.stdout.fileno(), 65_536):
                self._unread += read
            gone = True
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            self._heard(HeartMessage(**json.loads(line)))
        if gone and self._process is process:
            log.warning("the heart of node %s ended; the node starts another one", self._node)
            self._back_off()
            self._kill()

    def _back_off(self) -> None:
        self._restart_at = self._environment.monotonic() + self._restart_s
        self._restart_s = min(self._restart_s * 2, RESTART_MAX_S)

    def _heard(self, message: HeartMessage) -> None:
        if message.store_now is not None:
            self._beating, self._restart_s, self._trouble = True, RESTART_MIN_S, None
            self.renewed(message.sent)
            self._clock.learn(message.answered, message.store_now)
        elif message.trouble is not None:
            if message.trouble != self._trouble:
                log.warning("the heart of node %s could not renew: %s", self._node, message.trouble)
            self._trouble = message.trouble
        elif message.end == RECLAIMED:
            self._lost(WAS_RECLAIMED)
        elif message.end == STALLED:
            log.warning(
                "node %s made no progress for %g s, so its heart stopped renewing",
                self._node,
                self._config.stall_s,
            )
        elif message.end == LAPSED and self._is_over:
            # Otherwise the node has renewed in the place of its heart, which could not reach the store. The heart ends, and
            # the node starts another one.
            self._lost("it could not renew in time")

    async def run(self) -> None:
        """Send the heart signs of life, and renew in its place while it does not renew. Signs of life never wait for a
        renewal: without them the heart takes its node for stalled, and a store that is slow to answer is no stall."""
        pulse_s = self._config.renew_s / 2
        renewing: asyncio.Task[None] | None = None
        try:
            while True:
                if self._process is not None:
                    self._say(self._pulse().encode() + b"\n")
                elif self._restart_at <= self._environment.monotonic():
                    self.start()
                late = self._environment.monotonic() - self.sent > 2 * self._config.renew_s
                if late and (renewing is None or renewing.done()):
                    renewing = asyncio.create_task(self._try_to_renew(), name="holdfast-renew")
                await self._environment.sleep(pulse_s)
        finally:
            if renewing is not None:
                renewing.cancel()
                await asyncio.wait([renewing])

    def _close_pipes(self) -> subprocess.Popen[bytes] | None:
        """Close the pipes to the heart, which makes it leave. Return its process."""
        if self._process is not None:
            self._say(LEAVE + b"\n")
        process, self._process = self._process, None
        if process is not None and process.stdin is not None and process.stdout is not None:
            asyncio.get_running_loop().remove_reader(process.stdout.fileno())
            process.stdin.close()
            process.stdout.close()
        return process

    def _kill(self) -> None:
        process = self._close_pipes()
        if process is not None:
            process.kill()
            process.wait()

    def end(self) -> None:
        super().end()
        self._kill()

    async def stop(self) -> None:
        beating = self._beating
        process = self._close_pipes()
        if process is None:
            return
        until = self._environment.monotonic() + (LEAVE_S if beating else 0.0)
        while process.poll() is None and self._environment.monotonic() < until:
            await self._environment.sleep(0.005)
        process.kill()
        process.wait()


def heartbeat_type(store: Nodes, environment: Environment, config: Config) -> type[Heartbeat]:
    """Return the kind of heartbeat to use: a heart if another process can reach the store. It cannot in a simulation,
    or if the store is in memory."""
    if config.heart and environment.is_real and store.shared_url is not None and sys.executable:
        return HeartProcess
    return Heartbeat
