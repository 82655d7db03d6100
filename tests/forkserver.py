"""Processes of the `holdfast` command that do not import Holdfast again. Most of what a short command costs is its
imports, and the tests of the commands start thousands of them.

`Forked` is a `subprocess.Popen` whose process is forked from a parent that has imported everything. From there on the
process runs the installed script, or with `-m` a module of the tests, with arguments, a working folder, an environment
and streams of its own. What Python reads when it starts, such as `PYTHONHASHSEED`, is the parent's: a command that
depends on it needs a `Popen`.
"""

import atexit
import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from holdfast.commands import COMMANDS

ROOT = Path(__file__).parents[1]
HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
PRELOADED = (
    *(f"holdfast.commands.{module}" for module, _ in COMMANDS.values()),
    "holdfast.http.listener",
    "holdfast.remote.caller",
    "holdfast.remote.node",
    "holdfast.store.sqlite",
    "holdfast.store.postgres",
)
HEADER_BYTES = 8


class Parent:
    """The process that forks the others, as its clients see it."""

    def __init__(self) -> None:
        ours, its = socket.socketpair()
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import main; main()", str(its.fileno())],
                cwd=ROOT,
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._socket = ours
        atexit.register(self.close)

    def fork(self, words: list[str], cwd: str, env: dict[str, str], streams: list[int]) -> tuple[int, int]:
        """Start a process. Return its id, and a pipe from which its return code can be read when it has ended."""
        ended, write = os.pipe()
        request = json.dumps([words, cwd, env]).encode()
        header = len(request).to_bytes(HEADER_BYTES, "big")
        try:
            socket.send_fds(self._socket, [header], [*streams, write])
            self._socket.sendall(request)
            answer = received(self._socket, HEADER_BYTES)
        finally:
            os.close(write)
        return int.from_bytes(answer, "big"), ended

    def close(self) -> None:
        """The parent ends when nobody can ask it any more."""
        self._socket.close()
        self._process.wait()


def received(connection: socket.socket, length: int) -> bytes:
    """Read exactly so many bytes."""
    found = b""
    while len(found) < length:
        if not (more := connection.recv(length - len(found))):
            raise EOFError
        found += more
    return found


_parents: dict[int, Parent] = {}


def parent() -> Parent:
    """The parent of this process's commands."""
    if os.getpid() not in _parents:
        _parents[os.getpid()] = Parent()
    return _parents[os.getpid()]


class Forked(subprocess.Popen[str]):
    """`holdfast …`, or `-m tests.…`, as a process of its own, always in a session of its own."""

    _ended = -1

    def _execute_child(self, words: list[str], *given: Any) -> None:
        cwd, env, streams = given[4], given[5], given[9:15]
        inherited = [given if given >= 0 else own for own, given in enumerate((streams[0], *streams[3::2]))]
        self.pid, self._ended = parent().fork(
            words, os.fspath(cwd or Path.cwd()), dict(os.environ if env is None else env), inherited
        )
        self._child_created = True
        self._close_pipe_fds(*streams)  # type: ignore[attr-defined]

    def _internal_poll(self, *_: object, **__: object) -> int | None:
        return self._after(0)

    def _wait(self, timeout: float | None) -> int:
        code = self._after(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def _after(self, seconds: float | None) -> int | None:
        """Return the return code, for which this waits so long."""
        if self.returncode is None and select.select([self._ended], [], [], seconds)[0]:
            code = os.read(self._ended, 16)
            os.close(self._ended)
            assert code, "the process that forks the commands is gone"
            self.returncode = int(code)
        return self.returncode


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `holdfast …` to its end."""
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    with Forked([HOLDFAST, *words], text=True, stdin=nothing, stdout=pipe, stderr=pipe) as process:
        out, errors = process.communicate(timeout=60)
    return subprocess.CompletedProcess(words, process.returncode, out, errors)


# --- in the parent -----------------------------------------------------------------------------------------------------


def serve(connection: socket.socket) -> list[str] | None:
    """Fork what is asked for. Return the words of a command in each child, and None in the parent at its end."""
    bell, rung = os.pipe()
    os.set_blocking(rung, False)
    os.set_blocking(bell, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(rung, warn_on_full_buffer=False)
    children: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([connection.fileno(), bell], [], [])
        if bell in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(bell, 4096)
            report_ends(children)
        if connection.fileno() not in ready:
            continue
        header, descriptors, _, _ = socket.recv_fds(connection, HEADER_BYTES, 4)
        if not header:
            return None
        header += received(connection, HEADER_BYTES - len(header))
        words, cwd, env = json.loads(received(connection, int.from_bytes(header, "big")))
        *streams, ended = descriptors
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            connection.sendall(os.getpid().to_bytes(HEADER_BYTES, "big"))
            connection.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            for open_one in (bell, rung, *descriptors, *children.values()):
                os.close(open_one)
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(env)
            return list(words)
        children[pid] = ended
        for stream in streams:
            os.close(stream)


def report_ends(children: dict[int, int]) -> None:
    """Write of each child that has ended how it ended."""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
            os.write(children[pid], str(os.waitstatus_to_exitcode(status)).encode())
        os.close(children.pop(pid))


def main() -> None:
    for module in PRELOADED:
        __import__(module)
    gc.collect()
    gc.freeze()  # so that a collection in a child does not copy all of it
    words = serve(socket.socket(fileno=int(sys.argv[1])))
    if words is not None:
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            old = getattr(sys, name)
            new = open(number, old.mode, encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
            new.reconfigure(line_buffering=old.line_buffering)
            setattr(sys, name, new)
            setattr(sys, f"__{name}__", new)
        try:
            execute(words)
        except SystemExit as end:
            leave(end)
            raise


def execute(words: list[str]) -> None:
    """Run a command in this process."""
    if words[0] == "-m":
        sys.path[0], sys.argv = str(ROOT), words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    sys.path[0] = str(Path(words[0]).parent)
    for module in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[module]  # a program may have its own
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")


def leave(end: SystemExit) -> None:
    """End the process as Python does, but leave the modules as they are. To take them down would copy all the memory that
    this process shares with its parent, which takes longer than most commands."""
    if not isinstance(end.code, int | None):
        return
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the threads
    atexit._run_exitfuncs()
    end.__traceback__ = None
    # What is left behind says so, such as a task that is pending. Python collects it at its end, where no line is to blame.
    exec(compile("gc.collect()", "sys", "exec"), {"gc": gc})
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return
    os._exit((end.code or 0) & 0xFF)
