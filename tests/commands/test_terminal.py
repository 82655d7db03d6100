"""What people see in a real terminal: a live picture."""

import os
import pty
import re
import select
import signal
import subprocess
import time

import pytest

from tests.commands.conftest import DEADLINE_S, Cli, until
from tests.forkserver import HOLDFAST

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """A command on a terminal of 100 columns and 30 lines."""

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
        """Return everything it has written so far."""
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
    """Each step is a line with its state. The picture is redrawn in place, in colours, and ends with the result."""
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
    """With NO_COLOR nothing that is drawn or printed has a colour."""
    lite.open_gate()
    lite("run", "app.py:gated", "--id", "plain")
    arguments = {"run": ["app.py:gated", "--id", "new"], "show": ["plain"], "ps": []}[command]
    terminal = Terminal(lite, command, *arguments, NO_COLOR="1")
    assert terminal.end() == 0
    assert "gated" in terminal.seen
    assert not re.search(r"\x1b\[(3|9)[0-9]", terminal.seen)


def test_ctrl_c_at_the_terminal(lite: Cli) -> None:
    """It prints the command that goes on with the run."""
    terminal = Terminal(lite, "run", "app.py:gated", "--id", "left")
    terminal.until("● gate")
    os.killpg(terminal.process.pid, signal.SIGINT)
    assert terminal.end() == 130
    assert "`holdfast run app.py:gated --id left` goes on with it" in " ".join(terminal.seen.split())


def test_up_shows_one_calm_line(lite: Cli) -> None:
    """The line has the runs by state and says who leads. What steps print scrolls by above it."""
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
    """The line says how many agents there are of how many, and what they do. What they print and what the pool does
    scrolls by above it. Ctrl-C at the terminal reaches only the pool, which then stops its agents."""
    terminal = Terminal(lite, "pool", "app.py", "--max", "3")
    terminal.until("1 of 1 agent (1 to 3)")
    lite.start("scheduler", "app.py")
    lite("start", "app.py:noise", "--id", "n")
    terminal.until("agent 1 | printed by a step")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 0
    plain = COLOUR.sub("", terminal.seen)
    assert "agent 1 is asked to drain: the pool leaves" in plain
    assert "agent 1 ended with exit code 0" in plain


def test_a_picture_is_never_taller_than_the_terminal(lite: Cli) -> None:
    """If a window is too small for all steps, it shows some and counts the rest."""
    terminal = Terminal(lite, "run", "app.py:wide", "--input", "[500]", "--id", "w")
    assert terminal.end() == 0
    plain = COLOUR.sub("", terminal.seen)
    assert "… 477 more steps" in plain
    assert "✓ w succeeded in" in plain


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_ps_shows_ids_and_what_is_waited_for_at_any_width(lite: Cli, columns: int) -> None:
    """Ids of any length are shown whole, and so is what their runs wait for. No line is too long."""
    ids = ["order-42", "0199c2f0-7d3e-7f3c-9a55-1f1d8a1b2c3d", "a" * 50, "billing/" + "é" * 28]
    for run_id in ids:
        lite("start", "app.py:gated", "--id", run_id)
    terminal = Terminal(lite, "ps", COLUMNS=str(columns), NO_COLOR="1")
    assert terminal.end() == 0
    shown = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", terminal.seen).replace("\r", "")
    for run_id in ids:
        assert run_id in shown, shown
    assert shown.count("waits for a scheduler") == len(ids), shown
    assert max(len(line) for line in shown.splitlines() if line not in ids) <= columns, shown


def test_ps_says_what_keeps_a_step_from_beginning(lite: Cli) -> None:
    """It names the hold or the breaker, and does not say that an agent is missing."""
    lite("start", "app.py:pays", "--input", '{"card": {"number": "n", "cents": 7}}')
    up = lite.start("up", "app.py")
    lite("hold", "--step", "app.first", "--note", "stocktaking")
    lite("breakers", "open", "app.nothing", "--note", "maintenance")
    lite("start", "app.py:gated", "--id", "held")
    lite("start", "app.py:wide", "--id", "behind", "--input", "[1]")

    def words(run_id: str) -> str:
        return next(line for line in lite("ps").out.splitlines() if line.startswith(run_id))

    until(lambda: "first is held by" in words("held"), up)
    assert "(stocktaking)" in words("held")
    until(lambda: "nothing waits for app.nothing, whose breaker is open" in words("behind"), up)
