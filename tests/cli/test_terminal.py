"""What people see: a live picture in a real terminal."""

import os
import pty
import re
import select
import signal
import subprocess
import time

import pytest

from tests.cli.conftest import DEADLINE_S, HOLDFAST, Cli

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """A command on a terminal of 100 by 30."""

    def __init__(self, cli: Cli, *arguments: str, **environment: str) -> None:
        self._main, child = pty.openpty()
        self.process = subprocess.Popen(
            [HOLDFAST, *arguments],
            cwd=cli.folder,
            env={
                **{name: value for name, value in os.environ.items() if name != "NO_COLOR"},
                "HOLDFAST_STORE": cli.store,
                "TERM": "xterm",
                "COLUMNS": "100",
                "LINES": "30",
                **environment,
            },
            stdin=child,
            stdout=child,
            stderr=child,
            start_new_session=True,
        )
        os.close(child)
        self.seen = ""

    def read(self) -> str:
        """Everything it wrote so far."""
        while select.select([self._main], [], [], 0.05)[0]:
            try:
                data = os.read(self._main, 65536)
            except OSError:
                break
            self.seen += data.decode(errors="replace")
            if not data:
                break
        return self.seen

    def until(self, words: str) -> str:
        deadline = time.monotonic() + DEADLINE_S
        while words not in COLOUR.sub("", self.read()):
            assert time.monotonic() < deadline, self.seen
        return self.seen

    def end(self) -> int:
        deadline = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            self.read()
            assert time.monotonic() < deadline, self.seen
        self.read()
        os.close(self._main)
        return self.process.returncode


def test_a_run_is_drawn_while_it_goes_on(lite: Cli) -> None:
    """One line a step with its state; the picture is redrawn in place, in colours, and ends with the result."""
    terminal = Terminal(lite, "run", "app.py:gated", "--id", "live")
    terminal.until("● gate")
    lite.open_gate()
    assert terminal.end() == 0
    plain = COLOUR.sub("", terminal.seen)
    assert "✓ first" in plain
    assert "✓ live succeeded in" in plain
    assert plain.rstrip().endswith("3")
    assert "\x1b[1A" in terminal.seen
    assert COLOUR.search(terminal.seen)
    assert "\x1b[?25l" not in terminal.seen, "a killed process would leave the terminal without a cursor"


@pytest.mark.parametrize("command", ["run", "show", "ps"])
def test_no_color_is_respected(lite: Cli, command: str) -> None:
    """NO_COLOR: no colour, in what is drawn and in what is printed."""
    lite.open_gate()
    lite("run", "app.py:gated", "--id", "plain")
    arguments = {"run": ["app.py:gated", "--id", "new"], "show": ["plain"], "ps": []}[command]
    terminal = Terminal(lite, command, *arguments, NO_COLOR="1")
    assert terminal.end() == 0
    assert "gated" in terminal.seen
    assert not re.search(r"\x1b\[(3|9)[0-9]", terminal.seen)


def test_ctrl_c_at_the_terminal(lite: Cli) -> None:
    """It says how to go on, in words to copy."""
    terminal = Terminal(lite, "run", "app.py:gated", "--id", "left")
    terminal.until("● gate")
    os.killpg(terminal.process.pid, signal.SIGINT)
    assert terminal.end() == 130
    assert "`holdfast run app.py:gated --id left` goes on with it" in " ".join(terminal.seen.split())


def test_up_shows_one_calm_line(lite: Cli) -> None:
    """Runs by state and who leads; what steps print scrolls by above it."""
    terminal = Terminal(lite, "up", "app.py")
    terminal.until("no runs yet")
    lite("start", "app.py:noise", "--id", "n")
    terminal.until("1 succeeded")
    assert "printed by a step" in terminal.seen
    assert "leads" in terminal.seen
    os.killpg(terminal.process.pid, signal.SIGTERM)
    assert terminal.end() == 0
    assert "draining" in terminal.seen


def test_a_pool_shows_one_calm_line(lite: Cli) -> None:
    """How many agents of how many, what they do; what they print and what the pool does scrolls by above it. Ctrl-C at the
    terminal is the pool's affair: agents are told once, by it."""
    terminal = Terminal(lite, "pool", "app.py", "--max", "3")
    terminal.until("1 of 1 agent (1 to 3)")
    lite.start("scheduler", "app.py")
    lite("start", "app.py:noise", "--id", "n")
    terminal.until("agent 1 | printed by a step")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 0
    plain = COLOUR.sub("", terminal.seen)
    assert "agent 1 is told to drain: the pool leaves" in plain
    assert "agent 1 ended with exit code 0" in plain


def test_a_picture_is_never_taller_than_the_terminal(lite: Cli) -> None:
    """Many steps in a small window: some are shown, the rest is counted."""
    terminal = Terminal(lite, "run", "app.py:wide", "--input", "[500]", "--id", "w")
    assert terminal.end() == 0
    plain = COLOUR.sub("", terminal.seen)
    assert "… 477 more steps" in plain
    assert "✓ w succeeded in" in plain
