"""Servers, schedulers and agents as processes of their own, for kills."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
DEADLINE_S = 60.0
EXAMPLES = Path(__file__).parents[2] / "examples" / "agents"


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


class Fleet:
    """Processes in one folder. All of them are killed at the end."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder, self.store = folder, store
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.logs: dict[int, Path] = {}
        self._all: list[subprocess.Popen[bytes]] = []

    def holdfast(self, *words: str, store: str | None = None, **environment: str) -> subprocess.Popen[bytes]:
        return self.run([HOLDFAST, *words], HOLDFAST_STORE=store or self.store, **environment)

    def run(self, words: list[str], **environment: str) -> subprocess.Popen[bytes]:
        log = self.folder / f"log-{len(self._all)}"
        with log.open("wb") as output:
            process = subprocess.Popen(
                words,
                cwd=self.folder,
                env={**os.environ, "NO_COLOR": "1", **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.logs[process.pid] = log
        self._all.append(process)
        return process

    def server(self) -> subprocess.Popen[bytes]:
        made = self.holdfast("server", "--port", str(self.port))
        until(self.is_up, lambda: self.said(made))
        return made

    def is_up(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as line:
            line.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return b"200" in line.recv(100)
        return False

    def said(self, process: subprocess.Popen[bytes]) -> str:
        return self.logs[process.pid].read_text()

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for process in self._all:
            self.kill(process)


@contextmanager
def fleet(folder: Path, store: str) -> Iterator[Fleet]:
    with ExitStack() as stack:
        made = Fleet(folder, store)
        stack.callback(made.close)
        yield made


def until(
    true: Callable[[], object], otherwise: Callable[[], str] = str, limit_s: float = DEADLINE_S
) -> None:
    """Wait until something is true, with a deadline for what never happens."""
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.01)
