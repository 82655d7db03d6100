"""Servers as processes of their own, as an operator starts them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.forkserver import HOLDFAST, Forked

DEADLINE_S = 60.0


class Process:
    """`holdfast …` that listens on a port. `url` is where."""

    def __init__(self, folder: Path, store: str, *arguments: str) -> None:
        self.process = Forked(
            [HOLDFAST, *arguments, "--port", "0", "--json"],
            cwd=folder,
            env={**os.environ, "HOLDFAST_STORE": store, "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.said: list[dict[str, Any]] = []
        self.url = ""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(json.loads(line))
            if found := re.search(r"listening on (\S+)", self.said[-1].get("message", "")):
                self.url = found[1]
                break
        assert self.url, self.process.communicate()

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode

    def close(self) -> None:
        with self.process:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
