"""`pool` runs as many agents on this host as there is work. These are real processes; some claims depend on the
store."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands.conftest import Cli, until

PATIENCE_S = 60.0


class Watched:
    """A pool that prints what it does, one object a line."""

    def __init__(self, cli: Cli, process: subprocess.Popen[str]) -> None:
        self.cli, self.process = cli, process
        self.lines: list[dict[str, Any]] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def own(self, *events: str) -> list[dict[str, Any]]:
        """Return these events of the pool itself, and not of its agents."""
        return [line for line in self.lines if "from" not in line and line["event"] in events]

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None, (
                self.lines,
                self.process.stderr and self.process.stderr.read(),
            )
            assert time.monotonic() < deadline, (self.lines, self.cli.fallen())
            time.sleep(0.02)

    def until_event(self, event: str, times: int = 1, **what: Any) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            return [line for line in self.own(event) if what.items() <= line.items()]

        self.until(lambda: len(found()) >= times)
        return found()[times - 1]

    def pids(self) -> dict[str, int]:
        """Return the process ids of all agents that were ever at work."""
        return {line["agent"]: line["pid"] for line in self.own("live")}

    def end(self) -> int:
        code = self.process.wait(PATIENCE_S)
        self._reading.join(PATIENCE_S)
        return code


Begin = Callable[..., Watched]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Returns a function that starts `holdfast pool`. At the end of the test every pool and its agents leave."""
    begun: list[Watched] = []

    def made(cli: Cli, *arguments: str) -> Watched:
        begun.append(Watched(cli, cli.start("pool", "app.py", "--json", *arguments)))
        return begun[-1]

    yield made
    for one in begun:
        one.cli.open_gate()
        if one.process.poll() is None:
            one.process.send_signal(signal.SIGTERM)
        one.end()
        until(lambda one=one: not any(alive(pid) for pid in one.pids().values()))  # type: ignore[misc]


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def attempts(cli: Cli, run_id: str) -> dict[str, int]:
    return {step["key"]: step["attempts"] for step in cli("show", run_id, "--json").json["steps"]}


def test_a_pool_grows_with_what_waits_and_shrinks_when_idle(cli: Cli, begin: Begin) -> None:
    """If steps wait because every agent is full, the pool starts more agents. If nothing is left to do, all but the
    least drain. This costs no attempt. `agents` says who belongs to the pool."""
    pool = begin(cli, "--max", "3", "--steps-max", "1", "--shrink-after", "1", "--name", "web")
    cli.start("scheduler", "app.py")
    for n in range(3):
        cli("start", "app.py:gated", "--id", f"r{n}")
    pool.until(lambda: cli.effects().count("gate") == 3)
    assert max(line["wanted"] for line in pool.own("scale")) == 3
    rows = cli("agents", "--json").json
    assert sorted(row["pool"] for row in rows if row["roles"] == ["agent"]) == ["web"] * 3
    (itself,) = [row for row in rows if row["roles"] == ["pool"]]
    assert (itself["pool_strength"]["most"], itself["pid"]) == (3, pool.process.pid)
    assert "web" in cli("agents").out
    cli.open_gate()
    for n in range(3):
        assert cli("watch", f"r{n}", "--json").json["output"] == 3
        assert set(attempts(cli, f"r{n}").values()) == {1}
    pool.until(lambda: pool.own("status")[-1]["agents"] == 1 and not pool.own("status")[-1]["draining"])
    assert {line["why"] for line in pool.own("stop")} == {"not needed now"}


def test_an_agent_that_is_killed_is_replaced(cli: Cli, begin: Begin) -> None:
    """Its step runs again in the next agent."""
    pool = begin(cli)
    for role in (("scheduler", "app.py"), ("supervisor",)):
        cli.start(*role)
    cli("start", "app.py:gated", "--id", "r")
    pool.until(lambda: "gate" in cli.effects())
    os.kill(pool.until_event("live", agent="1")["pid"], signal.SIGKILL)
    ended = pool.until_event("ended", agent="1")
    assert (ended["how"], ended["asked"]) == ("by SIGKILL", False)
    pool.until_event("live", agent="2")
    cli.open_gate()
    assert cli("watch", "r", "--json").json["output"] == 3
    assert attempts(cli, "r")["gate"] == 2


def test_sighup_replaces_the_agents_and_costs_no_attempt(cli: Cli, begin: Begin) -> None:
    """An old agent leaves only when a new one is at work, and it may finish the steps it has."""
    pool = begin(cli, "--min", "2", "--max", "2")
    cli.start("scheduler", "app.py")
    pool.until_event("live", times=2)
    cli("start", "app.py:gated", "--id", "r")
    pool.until(lambda: "gate" in cli.effects())
    pool.process.send_signal(signal.SIGHUP)
    pool.until_event("stop", times=2)
    cli.open_gate()
    assert cli("watch", "r", "--json").json["output"] == 3
    assert set(attempts(cli, "r").values()) == {1}
    pool.until_event("ended", times=2, asked=True)
    events = [(line["event"], line["agent"]) for line in pool.own("live", "stop")]
    assert [event for event, _ in events] == ["live", "live", "live", "stop", "live", "stop"]
    assert {agent for event, agent in events if event == "stop"} == {"1", "2"}


def test_changed_code_is_taken_up_and_broken_code_takes_nothing_away(lite: Cli, begin: Begin) -> None:
    """While the file cannot be imported, the old agents stay at work. Once it is mended, new agents replace them."""
    pool = begin(lite)
    pool.until_event("live")
    app = lite.folder / "app.py"
    sound = app.read_text()
    app.write_text(sound + "\nthis is no Python\n")
    pool.until_event("renew")
    pool.until_event("ended", times=2, asked=False)
    assert pool.own("stop") == []
    app.write_text(sound + "\n# mended\n")
    pool.until_event("renew", times=2)
    pool.until_event("stop", agent="1", why="replaced")
    assert "app.py has changed" in pool.own("renew")[0]["message"]


def test_agents_that_do_not_stay_are_an_alert(cli: Cli, begin: Begin) -> None:
    """After too many crashes in a row the pool says so and starts agents rarely, and the leader raises an alert."""
    app = cli.folder / "app.py"
    app.write_text(
        app.read_text() + "\nif Path('broken').exists():\n    raise OSError('the licence ran out')\n"
    )
    cli.start("supervisor")
    pool = begin(cli, "--no-watch")
    pool.until_event("live")
    (cli.folder / "broken").touch()
    os.kill(pool.until_event("live", agent="1")["pid"], signal.SIGKILL)
    trouble = pool.until_event("trouble")
    assert "end soon after they are started" in trouble["message"]
    crashed = len(pool.own("start"))
    found: list[dict[str, Any]] = []

    def alerted() -> bool:
        found[:] = [one for one in cli("alerts", "--json").json if one["kind"] == "pool trouble"]
        return bool(found)

    pool.until(alerted)
    assert "pool app" in found[0]["message"]
    assert len(pool.own("start")) <= crashed + 1
    (cli.folder / "broken").unlink()
    pool.process.send_signal(signal.SIGHUP)
    pool.until(lambda: len(pool.own("live")) == 2)


def test_agents_of_a_killed_pool_drain(cli: Cli, begin: Begin) -> None:
    """Nobody would replace them any more. They finish the steps they have, and leave in good order."""
    pool = begin(cli, "--min", "2", "--max", "2")
    cli.start("scheduler", "app.py")
    pool.until_event("live", times=2)
    cli("start", "app.py:gated", "--id", "r")
    pool.until(lambda: "gate" in cli.effects())
    pool.process.kill()
    pool.end()
    until(lambda: sum(alive(pid) for pid in pool.pids().values()) == 1)
    cli.open_gate()
    until(lambda: not any(alive(pid) for pid in pool.pids().values()))
    assert attempts(cli, "r")["gate"] == 1
    left = [row for row in cli("agents", "--all", "--json").json if row["roles"] == ["agent"]]
    assert all(row["left_at"] is not None for row in left)


def test_sigterm_drains_and_a_second_one_hurries(lite: Cli, begin: Begin) -> None:
    """The first signal lets agents finish. The second does not wait for a step that does not end."""
    pool = begin(lite)
    lite.start("scheduler", "app.py")
    lite("start", "app.py:endless", "--id", "e")
    pool.until(lambda: "stubborn" in lite.effects())
    pool.process.send_signal(signal.SIGTERM)
    pool.until_event("stop", why="the pool leaves")
    assert pool.process.poll() is None
    began = time.monotonic()
    pool.process.send_signal(signal.SIGTERM)
    assert pool.end() == 0
    assert time.monotonic() - began < 25
    assert pool.own("down")


def test_an_agent_that_reached_its_limit_is_replaced_at_once(lite: Cli, begin: Begin) -> None:
    """An agent that leaves in good order does not count as a crash."""
    pool = begin(lite, "--max-steps", "1")
    lite.start("scheduler", "app.py")
    lite.open_gate()
    lite("start", "app.py:gated", "--id", "r")
    assert lite("watch", "r", "--json").json["output"] == 3
    pool.until_event("ended", agent="1")
    pool.until_event("live", agent="2")
    assert {line["how"] for line in pool.own("ended")} == {"with exit code 0"}
    assert not any("is started in" in line["message"] for line in pool.own("ended"))


def test_what_cannot_work_is_said_at_once(lite: Cli) -> None:
    """If there is no such file, --max is less than --min, or the code cannot be imported, the exit code is 2 and one
    line says why."""
    assert "there is no file nothing.py" in lite("pool", "nothing.py", code=2).errors
    assert "--max 1 is less than --min 2" in lite("pool", "app.py", "--min", "2", "--max", "1", code=2).errors
    (lite.folder / "bad.py").write_text("import no_such_module\n")
    ended = lite("pool", "bad.py", code=2)
    assert "agent 1 | error: bad.py, line 1: ModuleNotFoundError" in ended.errors
    assert "agents cannot start here" in ended.errors


def test_what_agents_print_is_passed_on_with_their_name(lite: Cli) -> None:
    """Without --json, what steps print goes to standard output and logs go to standard error, each line with its
    agent."""
    process = lite.start("pool", "app.py")
    lite.start("scheduler", "app.py")
    lite("start", "app.py:noise", "--id", "n")
    assert lite("watch", "n", "--json").json["output"] == "quiet"
    process.send_signal(signal.SIGTERM)
    ended = lite.end(process)
    assert ended.code == 0
    assert "agent 1 | printed by a step\n" in ended.out
    assert "agent 1 | printed by a program\n" in ended.out
    assert "INFO holdfast.node: agent 1 is asked to drain: the pool leaves" in ended.errors
    assert "agent 1 | " in ended.errors


def test_a_line_that_only_looks_like_json_is_passed_on_as_text(lite: Cli) -> None:
    """Whatever a step prints: JSON that is nested too deeply to be read, and JSON that says it is from another agent."""
    (lite.folder / "prints.py").write_text(
        "import sys\nfrom holdfast import step, workflow\n"
        "@step\ndef talk() -> str:\n"
        "    sys.stderr.write('[' * 5000 + '\\n' + '{\"from\": \"agent 9\"}\\n')\n"
        "    return 'said'\n"
        "@workflow\nasync def said() -> str:\n    return await talk()\n"
    )
    process = lite.start("pool", "prints.py", "--log-format", "json")
    lite.start("scheduler", "prints.py")
    lite("start", "prints.py:said", "--id", "r")
    assert lite("watch", "r", "--json").json["output"] == "said"
    process.send_signal(signal.SIGTERM)
    ended = lite.end(process)
    assert ended.code == 0
    lines = [json.loads(line) for line in ended.errors.splitlines()]
    assert {"from": "agent 1", "event": "output", "line": "[" * 5000} in lines
    assert {"from": "agent 1"} in lines
