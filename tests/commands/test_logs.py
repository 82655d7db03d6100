"""`holdfast logs`, and the log of a node as JSON."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from tests.commands.conftest import Cli, until

PROGRAM = """
import asyncio
import logging
from pathlib import Path

from holdfast import Retry, here, step, workflow

log = logging.getLogger("bank")


@step(retry=Retry(attempts=2, delay=0.01))
async def charge(card: str) -> str:
    log.info("charging %s", card)
    if here.attempt == 1:
        log.error("no answer \\x1b[31m\\nINFO forged")
        raise ConnectionError("busy")
    return card


@step(retry=Retry(attempts=1, losses=3))
async def wait() -> str:
    log.info("waiting")
    while not Path("open").exists():
        await asyncio.sleep(0.02)
    log.info("open")
    return "open"


@step(retry=1)
async def fail() -> None:
    log.warning("it will fail")
    raise ValueError("no")


@workflow
async def order(card: str = "tok") -> str:
    log.info("begins")
    return await charge(card)


@workflow
async def long() -> str:
    return await wait()


@workflow
async def failing() -> None:
    await fail()
"""


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def write_program(folder: Path) -> None:
    (folder / "bank.py").write_text(PROGRAM)


def test_what_was_logged_is_printed(cli: Cli, folder: Path) -> None:
    """In the order of time, by step, attempt and level, for people and for scripts. No text is obeyed by the terminal,
    and no line can pose as another one."""
    write_program(folder)
    cli("run", "bank.py:order", "--id", "o")
    shown = cli("logs", "o").out.splitlines()
    assert [line.split(maxsplit=1)[1] for line in shown if not line.startswith("    ")] == [
        "INFO     workflow bank: begins",
        "INFO     charge bank: charging tok",
        "ERROR    charge bank: no answer \\x1b[31m",
        "INFO     charge (attempt 2) bank: charging tok",
    ]
    assert "    INFO forged" in shown
    found = lines(cli("logs", "o", "charge", "--json").out)
    assert [(one["step"], one["attempt"], one["level"]) for one in found] == [
        ("charge", 1, "info"),
        ("charge", 1, "error"),
        ("charge", 2, "info"),
    ]
    assert found[0] | {"at": None} == {
        "at": None,
        "level": "info",
        "logger": "bank",
        "message": "charging tok",
        "run": "o",
        "step": "charge",
        "attempt": 1,
        "stream": None,
    }
    assert len(lines(cli("logs", "o", "--attempt", "2", "--json").out)) == 1
    assert [one["level"] for one in lines(cli("logs", "o", "--level", "error", "--json").out)] == ["error"]
    page = cli("show", "o", "--json").json
    assert page["log_lines"] == 4
    assert [step["log_lines"] for step in page["steps"]] == [3]
    assert "logged 3 lines" in cli("show", "o").out


def test_a_failed_step_says_where_its_lines_are(lite: Cli, folder: Path) -> None:
    """`why` names the command, and it can be pasted."""
    write_program(folder)
    lite("run", "bank.py:failing", "--id", "f 1", code=1)
    assert "`holdfast logs 'f 1' fail` shows the 1 line that it logged." in lite("why", "f 1").out
    assert "it will fail" in lite("logs", "f 1", "fail").out


def test_wrong_questions_get_an_answer(lite: Cli, folder: Path) -> None:
    """They exit with 2 and say what to do."""
    write_program(folder)
    lite("run", "bank.py:order", "--id", "o")
    assert "no run has the id 'x'" in lite("logs", "x", code=2).errors
    assert (
        "run 'o' has no step 'chrage': `holdfast show o` lists them"
        in lite("logs", "o", "chrage", code=2).errors
    )
    assert "run 'o' has no step 'later'" in lite("logs", "o", "later", "-f", code=2).errors
    assert "--level" in lite("logs", "o", "--level", "loud", code=2).errors


def test_a_killed_agent_leaves_what_was_written(cli: Cli, folder: Path) -> None:
    """What a beat has written before `kill -9` stays with its attempt. Whoever follows sees both attempts, and the
    command ends with the run."""
    write_program(folder)
    first = cli.start("up", "bank.py")
    cli("start", "bank.py:long", "--id", "l")
    until(lambda: lines(cli("logs", "l", "--json").out), first)
    following = cli.start("logs", "l", "wait", "-f", "--json")
    os.killpg(first.pid, signal.SIGKILL)
    second = cli.start("up", "bank.py")
    until(lambda: len(lines(cli("logs", "l", "--json").out)) > 1, second)
    cli.open_gate()
    found = lines(cli.end(following).out)
    assert [(one["attempt"], one["message"]) for one in found] == [
        (1, "waiting"),
        (2, "waiting"),
        (2, "open"),
    ]


def test_the_log_of_a_node_is_json_for_machines(lite: Cli, folder: Path) -> None:
    """Each line of standard error is an object that names the node, and for lines of a step the run, the step and the
    attempt."""
    write_program(folder)
    up = lite.start("up", "bank.py", HOLDFAST_LOG_FORMAT="json")
    lite("start", "bank.py:order", "--id", "o")
    lite("watch", "o")
    up.terminate()
    logged = lines(lite.end(up).errors)
    (charging, again) = [one for one in logged if one["message"] == "charging tok"]
    (ready,) = [one for one in logged if one["event"] == "up"]
    assert charging | {"at": None} == {
        "at": None,
        "event": "log",
        "level": "info",
        "logger": "bank",
        "message": "charging tok",
        "run": "o",
        "workflow": None,
        "step": "charge",
        "attempt": 1,
        "node": ready["node"],
    }
    assert again["attempt"] == 2
    assert [one["workflow"] for one in logged if one["message"] == "begins"] == ["bank.order"]
