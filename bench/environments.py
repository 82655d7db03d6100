"""The environments of the contenders, each made once in a cache folder, and the servers that some of them need."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.contenders import RESTATE_SERVER, Contender

INSTALL_MAX_S = 600


class NotInstalled(Exception):
    """A contender, or something it needs, cannot be installed or started here."""


def cache_folder() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "holdfast-bench"


def python_of(contender: Contender, cache: Path) -> Path:
    """Return the interpreter of the contender's environment. Makes the environment if there is none yet."""
    if not contender.packages:
        return Path(sys.executable)
    pins = hashlib.sha256("\n".join((sys.version, *contender.packages)).encode()).hexdigest()[:12]
    folder = cache / f"{contender.program}-{pins}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        uv = _found("uv")
        _run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder))
        _run(uv, "pip", "install", "--quiet", "--python", str(python), *contender.packages)
        (folder / "complete").touch()
    return python


def restate_server(cache: Path) -> Path:
    """Return the path of the server's program. Installs it from npm if it is not there yet."""
    folder = cache / RESTATE_SERVER.rpartition("/")[2]
    program = folder / "node_modules" / ".bin" / "restate-server"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _run(_found("npm"), "install", "--silent", "--prefix", str(folder), RESTATE_SERVER)
    # npm's script around the program would not pass our signals on to it, so the program itself is used if it is found.
    binaries = sorted(folder.glob("node_modules/@restatedev/restate-server-*/bin/restate-server"))
    return binaries[0] if binaries else program


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Run a Redis with its default settings in this folder. Yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [_found("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        _await_port(port)
        yield f"redis://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def _await_port(port: int) -> None:
    give_up_at = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > give_up_at:
                raise NotInstalled(f"nothing answers at port {port}") from None
            time.sleep(0.05)
        else:
            return


def _found(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise NotInstalled(f"the program `{name}` is not installed")
    return found


def _run(*command: str) -> None:
    try:
        subprocess.run(
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_MAX_S,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        last = str(error.stderr or error).strip().splitlines()[-1:]
        raise NotInstalled(f"`{' '.join(command[:3])} …` failed: {''.join(last)}") from error
