"""Processes of one of these modules, forked so that one is up again before the next kill, and killed with SIGKILL."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.chaos.load import note
from tests.forkserver import Forked


class Fleet:
    """Some processes. Each begins as another one when it has been killed. The ledger has a line about each kill."""

    def __init__(self, ledger: Path, *commands: list[str]) -> None:
        self._ledger, self._commands = ledger, commands
        self._log = ledger.with_suffix(".log")
        self.processes: list[Forked] = []
        self.kills = 0

    def _start(self, number: int) -> Forked:
        nowhere = subprocess.DEVNULL
        with self._log.open("ab") as log:
            return Forked(["-m", *self._commands[number]], stdin=nowhere, stdout=nowhere, stderr=log)

    def kill(self, number: int) -> None:
        """Kill a process, and start another one in its place."""
        self._end(self.processes[number])
        self.kills += 1
        self.processes[number] = self._start(number)

    def _end(self, process: Forked) -> None:
        note(str(self._ledger), "killed", process.pid, "-", "-")
        process.kill()
        process.wait(60)

    def demand_alive(self) -> None:
        """Raise if a process has ended that nobody killed."""
        for process in self.processes:
            assert process.poll() is None, f"a process ended by itself: {self._log.read_text()[-3000:]}"

    def __enter__(self) -> Fleet:
        self.processes += [self._start(number) for number in range(len(self._commands))]
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                self._end(process)
