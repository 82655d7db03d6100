"""Runs the real command as a process of its own, in a folder of its own that has the program app.py. Most of these
processes are forked from one that has imported Holdfast; tests/commands/test_help.py and test_terminal.py start the
installed script as a shell does."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copyfile
from typing import Any, NamedTuple

import pytest

from tests.forkserver import HOLDFAST, Forked

DEADLINE_S = 60.0
AT_START = ("PYTHON", "LC_", "LANG")
"""Variables that Python reads when it starts."""


class Ended(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    errors: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cli:
    """Runs `holdfast …` in `folder`, on `store`."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder, self.store = folder, store
        self._started: list[subprocess.Popen[str]] = []

    def __call__(self, *arguments: str, given: str = "", code: int | None = 0, **environment: str) -> Ended:
        """Run a command to its end, and check its exit code."""
        process = self.start(*arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **environment)
        ended = self.end(process, given)
        if code is not None:
            assert ended.code == code, ended
        return ended

    def start(
        self,
        *arguments: str,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        **environment: str,
    ) -> subprocess.Popen[str]:
        """Start a command and do not wait for it. It leads a process group of its own."""
        kind = subprocess.Popen if any(name.startswith(AT_START) for name in environment) else Forked
        process = kind(
            [HOLDFAST, *arguments],
            cwd=self.folder,
            env={**os.environ, "HOLDFAST_STORE": self.store, "NO_COLOR": "1", **environment},
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def end(self, process: subprocess.Popen[str], given: str | None = None) -> Ended:
        """Wait for a command to end. It must not have printed a traceback."""
        out, errors = process.communicate(given, timeout=DEADLINE_S * 2)
        assert "Traceback" not in errors, errors
        return Ended(process.returncode, out or "", errors)

    def fallen(self) -> list[Ended]:
        """Return the commands that were started, and have ended with an error by themselves."""
        return [self.end(process) for process in self._started if (process.poll() or 0) > 0]

    def effects(self) -> list[str]:
        """Return what the steps did to the world, in order."""
        file = self.folder / "effects"
        return file.read_text().split() if file.exists() else []

    def open_gate(self) -> None:
        (self.folder / "open").touch()

    def close_all(self) -> None:
        for process in self._started:
            with process:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)


def until(condition: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    """Wait for a condition. Fail if the process that should bring it about ends."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if process is not None and process.poll() is not None:
            raise AssertionError(f"the process ended: {process.communicate()}")
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with app.py."""
    found = tmp_path / "work"
    found.mkdir()
    copyfile(Path(__file__).with_name("app.py"), found / "app.py")
    return found


@pytest.fixture
def cli(folder: Path, store_url: str) -> Iterator[Cli]:
    """The command on either store."""
    made = Cli(folder, store_url)
    yield made
    made.close_all()


@pytest.fixture
def lite(folder: Path) -> Iterator[Cli]:
    """The command on SQLite, for what does not depend on the store."""
    made = Cli(folder, "sqlite:///holdfast.db")
    yield made
    made.close_all()
