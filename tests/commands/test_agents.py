"""`agents`, and processes that leave when they reach a limit."""

import json

import pytest

from tests.commands.conftest import Cli, until


def test_agents_says_who_works_and_how_each_is_doing(cli: Cli) -> None:
    """It shows the state and the roles of each process, what it can do and what it has. If there is none, it says what
    to do."""
    cli("migrate")
    assert "no process works on this store" in cli("agents").out
    process = cli.start("up", "app.py", "--label", "gpu", "--steps-max", "7")
    until(lambda: cli("agents", "--json").json, process)
    cli("start", "app.py:gated", "--id", "r")
    until(lambda: "gate" in cli.effects(), process)
    (found,) = cli("agents", "--json").json
    assert (found["state"], found["pid"], found["capacity"], found["labels"]) == (
        "busy",
        process.pid,
        7,
        ["gpu"],
    )
    assert found["roles"] == ["scheduler", "agent", "supervisor"]
    assert (found["leads"], found["pool"]) == (True, None)
    assert "has led for" in cli("agents").out
    assert (found["steps_held"], found["runs_owned"]) == (1, 1)
    assert "app.gate" in found["steps"]
    assert {"● busy", "1/7", "gpu"} <= {
        cell.strip() for cell in cli("agents").out.replace(",", "  ").split("  ")
    }
    cli.open_gate()
    cli("watch", "r")
    process.terminate()
    assert cli.end(process).code == 0
    assert cli("agents", "--json").json == []
    (left,) = cli("agents", "--all", "--json").json
    assert (left["state"], left["id"]) == ("offline", found["id"])
    assert "left" in cli("agents", "--all").out


@pytest.mark.parametrize("limit", [("--max-steps", "2"), ("--max-memory", "1")], ids=["steps", "memory"])
def test_an_agent_leaves_when_it_reaches_a_limit(lite: Cli, limit: tuple[str, str]) -> None:
    """It drains and ends with 0, so that a process manager starts a fresh one, which goes on."""
    lite("start", "app.py:gated", "--id", "r")
    lite.open_gate()
    scheduler = lite.start("scheduler", "app.py")
    agent = lite.start("agent", "app.py", *limit, "--json")
    ended = lite.end(agent)
    assert ended.code == 0
    events = [json.loads(line).get("event") for line in ended.out.splitlines()]
    assert [event for event in events if event in {"up", "limit", "draining", "down"}] == [
        "up",
        "limit",
        "draining",
        "down",
    ]
    lite.start("agent", "app.py")
    assert lite("watch", "r", "--json").json["output"] == 3
    assert sorted(lite.effects()) == ["first", "gate", "last"]
    scheduler.terminate()
    assert lite.end(scheduler).code == 0
