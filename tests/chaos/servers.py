"""PostgreSQL servers that a test may crash, fill and replace: one, or a primary with a synchronous standby."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests import postgres

USER = "postgres"


class OwnServer:
    """One server in its own folder. What it answered as committed is on disk: fsync is on."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "data"
        self.port = postgres.free_port()
        self._home = postgres.installation()
        if os.geteuid() == 0:
            shutil.chown(folder, *postgres.unprivileged())

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    def run(self, program: str, *arguments: str | Path, check: bool = True) -> None:
        command = [postgres.binaries(self._home) / program, *arguments]
        user, group = postgres.unprivileged() if os.geteuid() == 0 else (None, None)
        subprocess.run(
            command,
            check=check,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=user,
            group=group,
            extra_groups=None if user is None else [],
        )

    def guarded(self) -> subprocess.Popen[bytes]:
        """A process that waits until this one closes its pipe, however it ends, and then stops the server and removes
        its folder."""
        pg_ctl = postgres.binaries(self._home) / "pg_ctl"
        clear = 'read _; "$0" stop -m immediate -D "$1/data" >/dev/null 2>&1; rm -rf "$1"'
        user, group = postgres.unprivileged() if os.geteuid() == 0 else (None, None)
        return subprocess.Popen(
            ["sh", "-c", clear, pg_ctl, self.folder],
            stdin=subprocess.PIPE,
            start_new_session=True,
            user=user,
            group=group,
            extra_groups=None if user is None else [],
        )

    def make(self) -> None:
        postgres.run_there(self.folder, "cp", "-Rp", self._home / "template", self.data)
        self.write_settings()

    def write_settings(self) -> None:
        """Set this server's folder and port in its settings, in place of those it was copied with."""
        with (self.data / "postgresql.conf").open("a") as settings:
            settings.write(
                f"listen_addresses = '127.0.0.1'\nport = {self.port}\nunix_socket_directories = '{self.folder}'\n"
                "max_connections = 200\nmin_wal_size = 32MB\nmax_wal_size = 64MB\n"
            )

    def follow(self, primary: OwnServer) -> None:
        """Copy a running primary and follow it."""
        place = ("-h", "127.0.0.1", "-p", str(primary.port), "-U", USER)
        self.run("pg_basebackup", *place, "-D", self.data, "-R", "-X", "stream", "-c", "fast")
        self.write_settings()

    def start(self, check: bool = True) -> None:
        self.run("pg_ctl", "start", "-w", "-D", self.data, "-l", self.folder / "log", check=check)

    def crash(self) -> None:
        self.run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", self.data, check=False)

    def promote(self) -> None:
        self.run("pg_ctl", "promote", "-w", "-D", self.data)

    def answers(self) -> bool:
        try:
            with psycopg.connect(self.url, connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False

    def freeze(self) -> None:
        """Stop all its processes. Its clients do not notice."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        head = int((self.data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{head}/task/{head}/children").read_text().split()
        for pid in (head, *map(int, children)):
            os.kill(pid, number)

    def ask(self, sql: str) -> list[tuple[object, ...]]:
        # Also works on a server that refuses writes.
        writing = "-c default_transaction_read_only=off"
        with psycopg.connect(self.url, autocommit=True, connect_timeout=10, options=writing) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def demand_standby(self, yes: bool) -> None:
        """Set whether a commit waits until a standby has it."""
        self.ask(f"ALTER SYSTEM SET synchronous_standby_names = '{'*' if yes else ''}'")
        self.ask("SELECT pg_reload_conf()")

    def await_standby(self, seconds: float = 60.0) -> None:
        give_up_at = time.monotonic() + seconds
        while self.ask("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'") == []:
            assert time.monotonic() < give_up_at, "no standby came"
            time.sleep(0.05)


@contextmanager
def own_server(folder: Path | None = None) -> Iterator[OwnServer]:
    """Return a server in a new folder, or in the caller's. It is stopped and removed at the end."""
    place = Path(tempfile.mkdtemp(prefix="hfown-", dir=folder))
    place.chmod(0o755)
    server = OwnServer(place)
    guard = server.guarded()
    try:
        yield server
    finally:
        if sys.exc_info()[0] is not None and (place / "log").exists():
            sys.stderr.write((place / "log").read_text()[-3000:])
        guard.communicate(timeout=60)
        shutil.rmtree(place, ignore_errors=True)


def both_hosts(one: OwnServer, other: OwnServer) -> str:
    """Return one address that names two servers. A client uses the one that takes writes."""
    return f"postgresql://{USER}@127.0.0.1:{one.port},127.0.0.1:{other.port}/postgres"


@contextmanager
def small_disk(mb: int) -> Iterator[Path]:
    """Make a file system that can be filled. This needs the right to mount."""
    place = Path(tempfile.mkdtemp(prefix="hfdisk-"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mb}m", "tmpfs", place], check=True)
    place.chmod(0o777)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=False)
        shutil.rmtree(place, ignore_errors=True)


def may_mount() -> bool:
    place = tempfile.mkdtemp(prefix="hfdisk-")
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=False, capture_output=True
        )
        if mounted.returncode == 0:
            subprocess.run(["umount", place], check=False)
        return mounted.returncode == 0
    except OSError:
        return False
    finally:
        Path(place).rmdir()


def fill(place: Path) -> Path:
    """Take all the room there is, and return the file that has to be removed to free it."""
    ballast = place / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return ballast
