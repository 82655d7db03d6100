"""`cancel`, `hold`, `release`, `retry`, `skip` and `fork` on many runs, and `acts`."""

from __future__ import annotations

from tests.commands.conftest import Cli


def starts(cli: Cli, *run_ids: str) -> None:
    for run_id in run_ids:
        cli("start", "app.py:gated", "--input", "[1]", "--id", run_id)


def test_many_runs_are_cancelled_after_a_preview(cli: Cli) -> None:
    """Without --yes and without a terminal nothing happens, and the exit code is 2. The plan can be carried out later,
    once."""
    starts(cli, "a-1", "a-2", "b-1")
    shown = cli("cancel", "--prefix", "a-", code=2)
    assert "2 runs would be cancelled" in shown.out
    assert "cancelled at once: not begun yet" in shown.out
    assert "add --yes" in shown.errors
    assert [row["state"] for row in cli("ps", "--json").json] == ["pending"] * 3
    plan = cli("cancel", "--prefix", "a-", "--dry-run", "--json").json
    assert (plan["runs"], plan["verb"], plan["command"]) == (2, "cancel", f"holdfast acts go {plan['plan']}")
    assert plan["changes"][0]["sample"] == ["a-1", "a-2"]
    assert "2 of 2 runs cancelled" in cli("acts", "go", plan["plan"]).out
    assert "2 of 2 runs cancelled before" in cli("acts", "go", plan["plan"]).out
    assert {row["id"]: row["state"] for row in cli("ps", "--json").json} == {
        "a-1": "cancelled",
        "a-2": "cancelled",
        "b-1": "pending",
    }
    journal = cli("show", "a-1", "--json").json["journal"]
    assert [plan["plan"] in entry["note"] for entry in journal] == [True]


def test_what_changed_since_the_plan_is_listed(lite: Cli) -> None:
    """The exit code is 1, and `acts show` says what became of each run."""
    starts(lite, "a-1", "a-2")
    plan = lite("hold", "--state", "pending", "--dry-run", "--json").json["plan"]
    lite("hold", "a-1", "--note", "mine")
    done = lite("acts", "go", plan, "--json", code=1).json
    assert (done["done"], done["changed"], done["refused"], done["state"]) == (1, 1, 0, "done")
    assert [one["run"] for one in done["left_alone"]] == ["a-1"]
    fates = lite("acts", "show", plan, "--json").json["fates"]
    assert {one["run"]: one["fate"] for one in fates} == {"a-1": "changed", "a-2": "done"}
    shown = lite("acts", "show", plan, "--fate", "changed").out
    assert "a-1: it is now held" in shown
    assert "a-2" not in shown
    assert "1 of 2 runs held, 1 left alone" in lite("acts").out


def test_a_standing_hold_and_held_runs_are_different_things(lite: Cli) -> None:
    """`hold --workflow` alone stops steps. With --state it holds the runs that there are."""
    starts(lite, "a-1")
    assert "workflow gated is held" in lite("hold", "--workflow", "gated").out
    assert lite("ps", "--state", "held", "--json").json == []
    assert "is released" in lite("release", "--workflow", "gated").out
    lite("hold", "--workflow", "gated", "--state", "pending", "--yes")
    assert [row["id"] for row in lite("ps", "--state", "held", "--json").json] == ["a-1"]
    assert "--state held` releases its held runs" in lite("release", "--workflow", "gated", code=2).errors
    lite("release", "--workflow", "gated", "--state", "held", "--yes")
    assert lite("ps", "--state", "held", "--json").json == []


def test_what_means_no_run_says_so(lite: Cli) -> None:
    """No run is no error. An unknown workflow, no filter, and a run beside a filter are."""
    starts(lite, "a-1")
    assert "no run is meant by that" in lite("retry", "--state", "failed").out
    assert lite("retry", "--state", "failed", "--yes", "--json").json["plan"] is None
    assert "none of the 1 run that are meant" in lite("release", "--state", "pending").out
    assert "no workflow is called" in lite("cancel", "--workflow", "gatd", code=2).errors
    assert "name a RUN, or say which" in lite("cancel", code=2).errors
    assert "not both" in lite("cancel", "a-1", "--state", "pending", code=2).errors
    assert "--yes and --dry-run are for" in lite("cancel", "a-1", "--yes", code=2).errors
    assert "are for one run" in lite("fork", "--state", "pending", "--id", "x", code=2).errors
    assert "no act on many runs yet" in lite("acts").out
    assert "no act has the id" in lite("acts", "go", "nothing", code=2).errors
    assert "name the act" in lite("acts", "stop", code=2).errors


def test_the_oldest_runs_are_listed_first(cli: Cli) -> None:
    """`ps --oldest`: what has been under way for longest, on both stores."""
    starts(cli, "a-1", "a-2", "a-3")
    assert [row["id"] for row in cli("ps", "--oldest", "--limit", "2", "--json").json] == ["a-1", "a-2"]
    assert [row["id"] for row in cli("ps", "a-", "--oldest", "--all", "--json").json] == ["a-1", "a-2", "a-3"]
    assert "these are the oldest 2" in cli("ps", "--oldest", "--limit", "2").errors


def test_several_runs_are_named_one_by_one(lite: Cli) -> None:
    """`hold a b` is a plan of exactly these. What cannot be held is listed, and a name that no run has is an error."""
    starts(lite, "a-1", "a-2", "a-22", "b-1")
    lite("hold", "b-1")
    plan = lite("hold", "a-2", "b-1", "a-1", "a-2", "--dry-run", "--json").json
    assert (plan["runs"], plan["left"][0]["sample"]) == (2, ["b-1"])
    assert "2 of 2 runs held" in lite("acts", "go", plan["plan"]).out
    assert {row["id"] for row in lite("ps", "--state", "held", "--json").json} == {"a-1", "a-2", "b-1"}
    assert "no run has the id 'a-3'" in lite("cancel", "a-1", "a-3", "--yes", code=2).errors
    assert "not both" in lite("cancel", "a-1", "a-2", "--prefix", "a", code=2).errors
    assert "2 of 2 runs released" in lite("release", "a-1", "a-2", "--yes").out
    assert "name one thing" in lite("hold", "a-1", "--step", "x", code=2).errors
    assert "not both" in lite("hold", "a-1", "a-2", "--step", "x", code=2).errors
