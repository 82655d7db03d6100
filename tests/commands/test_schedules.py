"""`holdfast schedules`, as an operator uses it."""

from __future__ import annotations

import json

from tests.commands.conftest import Cli

CREATE = ("schedules", "create", "nightly", "app.nightly", "--times", "0 3 * * 1-5", "--tz", "Europe/Oslo")
APP = """
from holdfast import workflow
from holdfast.schedules import every

@workflow
async def nightly(day: str = "today") -> str:
    return day

every("1d", name="coded")(nightly)
"""


def published(cli: Cli) -> None:
    """Let a process declare the workflow, and its schedule."""
    (cli.folder / "app.py").write_text(APP)
    cli("run", "app.py:nightly")


def test_a_schedule_is_made_listed_shown_paused_and_removed(cli: Cli) -> None:
    """Each step has words for people, and JSON for scripts."""
    published(cli)
    assert "nightly is made: next in" in cli(*CREATE, "--input", '{"day": "x"}').out
    assert "exists already" in cli(*CREATE, "--input", '{"day": "x"}', code=1).out
    assert "another plan" in cli(*CREATE, "--jitter", "5min", code=2).errors
    assert cli(*CREATE, "--jitter", "5min", "--replace").code == 0
    (listed,) = cli("schedules", "--json").json
    assert (listed["name"], listed["times"], listed["tz"]) == ("nightly", "0 3 * * 1-5", "Europe/Oslo")
    assert "0 3 * * 1-5 Europe/Oslo → app.nightly" in cli("schedules").out
    times = cli("schedules", "preview", "nightly", "-n", "5", "--json").json
    assert len(times) == 5
    assert all("T03:00:00" in one["at"] for one in times)
    assert "03:00:00+0" in cli("schedules", "preview", "nightly").out
    assert "is paused" in cli("schedules", "pause", "nightly", "--note", "stock is counted").out
    shown = cli("schedules", "nightly").out
    assert "stock is counted" in shown
    assert "app.nightly version 1" in shown
    assert cli("schedules", "show", "nightly", "--json").json["state"] == "paused"
    assert "is active" in cli("schedules", "resume", "nightly").out
    started = cli("schedules", "run", "nightly", "--json").json
    assert started["fate"] == "started"
    assert "skipped" in cli("schedules", "run", "nightly", code=1).out
    assert "schedule nightly, its time" in cli("show", started["run"]).out
    assert "its runs stay" in cli("schedules", "remove", "nightly").out
    assert cli("schedules", "--json").json == []


def test_a_backfill_says_first_what_it_would_do(lite: Cli) -> None:
    """And `--dry-run` writes nothing."""
    published(lite)
    lite(*CREATE)
    span = ("schedules", "backfill", "nightly", "--from", "2026-01-05", "--to", "2026-01-10")
    out = lite(*span, "--dry-run").out
    assert "would start nightly@2026-01-05T02:00Z~2" in out
    assert "5 of 5 times would start; nothing was written" in out
    assert len(lite(*span, "--dry-run", "--json").json) == 5
    begun = lite(*span, "--json").json
    assert begun["state"] == "running"
    assert f"backfill {begun['id']}: running, 0 started" in lite("schedules", "nightly").out
    assert "is stopped" in lite("schedules", "stop", "nightly", begun["id"]).out


def test_what_cannot_be_meant_is_refused(lite: Cli) -> None:
    """With one line that says what to write."""
    published(lite)
    assert "no schedule yet" in lite("schedules").out
    assert "no schedule is called 'nope'" in lite("schedules", "nope", code=2).errors
    assert "say which schedule" in lite("schedules", "pause", code=2).errors
    assert "needs the workflow" in lite("schedules", "create", "x", code=2).errors
    assert "--times" in lite("schedules", "create", "x", "app.nightly", code=2).errors
    assert (
        "can fire" in lite("schedules", "create", "x", "app.nightly", "--times", "0 0 30 2 *", code=2).errors
    )
    unknown = lite("schedules", "create", "x", "nightly", "--times", "1h", code=2).errors
    assert unknown == "error: no workflow is called 'nightly' here: did you mean 'app.nightly'?\n"
    unknown = lite("schedules", "create", "x", "app.zzz", "--times", "1h", code=2).errors
    assert "no workflow is called 'app.zzz' here: start a process that has it" in unknown
    bad_zone = ("schedules", "create", "x", "app.nightly", "--times", "1h", "--tz", "Mars/Base")
    assert "no such time zone" in lite(*bad_zone, code=2).errors
    (lite.folder / "days.json").write_text(
        json.dumps({"name": "n", "days": ["2020-01-01"], "until": "2020-12-31"})
    )
    over = ("schedules", "create", "x", "app.nightly", "--times", "1d", "--skip", "days.json")
    assert "has ended with 2020-12-31" in lite(*over, code=2).errors
    lite(*CREATE)
    assert "--from" in lite("schedules", "backfill", "nightly", code=2).errors


def test_running_one_workflow_does_not_make_schedules(lite: Cli) -> None:
    """`holdfast run` loads the file with its lines for one run only."""
    published(lite)
    assert lite("schedules", "--json").json == []
