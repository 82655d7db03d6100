"""`alerts` shows what a person should know. `prune` removes what nobody needs any more."""

import json
from typing import Any

from tests.commands.conftest import Cli, until

CANARY = "s3cret-canary"


def failing(cli: Cli, run_id: str) -> None:
    cli("run", "app.py:failing", "--id", run_id, "--input", '["no luck"]', code=None)


def test_a_failed_run_is_listed_and_cleared(cli: Cli) -> None:
    """An alert is listed until somebody clears it. After that only --all lists it."""
    cli.open_gate()
    failing(cli, "f")
    process = cli.start("supervisor")
    until(lambda: cli("alerts", "--json").json != [], process)
    found = {row["kind"]: row for row in cli("alerts", "--json").json}
    row = found["run failed"]
    assert (row["run"], row["level"], row["times"], row["deliveries"]) == ("f", "error", 1, [])
    assert "run failed: run f of" in cli("alerts").out
    cli("alerts", "clear", *(str(one["id"]) for one in found.values()))
    assert "no open alert" in cli("alerts").out
    assert "is not open" in cli("alerts", "clear", str(row["id"]), code=1).out
    again = {one["kind"]: one for one in cli("alerts", "--all", "--json").json}["run failed"]
    assert again["cleared_at"] is not None
    assert "name the alerts" in cli("alerts", "clear", code=2).errors


def test_a_supervisor_sends_the_alert_that_another_process_raised(cli: Cli) -> None:
    """The supervisor has the channels, and another process had the run."""
    channel = {"type": "command", "argv": ["tee", "-a", "sent"], "kinds": ["run failed"]}
    (cli.folder / "alerts.json").write_text(json.dumps({"channels": {"file": channel}}))
    failing(cli, "f")
    process = cli.start("supervisor", "--alerts", "alerts.json")
    sent = cli.folder / "sent"
    until(lambda: sent.exists() and sent.read_text(), process)
    assert json.loads(sent.read_text())["run"] == "f"
    until(lambda: cli("alerts", "--json").json[0]["sent_at"] is not None, process)
    assert "file (raised) sent" in cli("alerts").out


def test_each_channel_is_tested(lite: Cli) -> None:
    """Each channel gets one line, and the exit code is 1 if one failed. Without a file, or with an unknown name, one
    line says what to do."""
    channels = {
        "good": {"type": "command", "argv": ["tee", "sent"]},
        "bad": {"type": "command", "argv": ["false"]},
        "inside": {"type": "webhook", "url_env": "HOOK_URL", "secret_env": "HOOK"},
    }
    (lite.folder / "alerts.json").write_text(json.dumps({"channels": channels}))
    secrets: dict[str, Any] = {"HOOK_URL": f"http://127.0.0.1:9/{CANARY}", "HOOK": CANARY}
    ended = lite("alerts", "test", "--alerts", "alerts.json", "--json", code=1, **secrets)
    assert {row["channel"]: row["ok"] for row in ended.json} == {"good": True, "bad": False, "inside": False}
    assert "not a public address" in ended.json[2]["error"]
    shown = lite("alerts", "test", "--channel", "good", HOLDFAST_ALERTS="alerts.json", **secrets)
    assert shown.out == "✓ good (command): took it\n"
    assert json.loads((lite.folder / "sent").read_text())["event"] == "test"
    assert (
        "no channel is called 'x'"
        in lite("alerts", "test", "--alerts", "alerts.json", "--channel", "x", code=2, **secrets).errors
    )
    assert "--alerts" in lite("alerts", "test", code=2).errors
    assert "HOOK_URL is not set" in lite("alerts", "test", "--alerts", "alerts.json", code=2).errors
    assert CANARY not in ended.out + ended.errors + shown.out + shown.errors


def test_wrong_channels_stop_the_start(lite: Cli) -> None:
    """A supervisor does not start if it cannot send alerts as its settings say."""
    (lite.folder / "alerts.toml").write_text('[channels.ops]\ntype = "pigeon"\n')
    assert "pigeon" in lite("supervisor", "--alerts", "alerts.toml", code=2).errors


def test_prune_removes_what_ended(cli: Cli) -> None:
    """It counts runs with --dry-run, chooses them by age and state, removes them, and leaves open runs alone."""
    cli.open_gate()
    cli("run", "app.py:gated", "--id", "good")
    failing(cli, "bad")
    cli("start", "app.py:gated", "--id", "live")
    assert cli("prune", "--older-than", "0s", "--dry-run", "--json").json == {
        "dry_run": True,
        "runs": 2,
        "rows": 0,
    }
    assert cli("prune", "--older-than", "1d", "--json").json["runs"] == 0
    assert cli("prune", "--older-than", "0s", "--state", "succeeded", "--json").json["runs"] == 1
    assert [row["id"] for row in cli("ps", "--json").json] == ["live", "bad"]
    assert "1 run removed" in cli("prune", "--older-than", "0s").out
    assert [row["id"] for row in cli("ps", "--json").json] == ["live"]
    cli("doctor")
    for wrong in (
        ["--older-than", "soon"],
        ["--older-than", "-1d"],
        ["--older-than", "1d", "--state", "running"],
        [],
    ):
        cli("prune", *wrong, code=2)


def test_a_supervisor_prunes(cli: Cli) -> None:
    """With `--keep-days 0` it removes a run as soon as it looks at it."""
    cli.open_gate()
    cli("run", "app.py:gated", "--id", "good")
    process = cli.start("supervisor", "--keep-days", "0")
    until(lambda: cli("ps", "--json").json == [], process)
    cli("doctor")
