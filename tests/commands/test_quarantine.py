"""`quarantine`, and what other commands say about a step in it, on both stores."""

import pytest

from tests.commands.conftest import Cli


def broken(cli: Cli, run_id: str = "q") -> str:
    """Make a run whose step is in quarantine, and return the fingerprint."""
    ended = cli("run", "app.py:breaks", "--id", run_id, "--json", code=1).json
    assert ended["state"] == "stuck"
    return str(cli("quarantine", "--json").json[0]["fingerprint"])


def test_it_lists_what_waits_by_fingerprint(cli: Cli) -> None:
    """It has a list for people and one for scripts. If nothing is in quarantine, it says so."""
    cli("migrate")
    assert cli("quarantine").out == "nothing is in quarantine\n"
    alike = broken(cli, "one")
    broken(cli, "two")
    (row,) = cli("quarantine", "--json").json
    assert len(row["fingerprint"]) == 12
    assert (row["step"], row["error"], row["place"]) == ("app.fragile", "holdfast.errors.StepLost", "exit 3")
    assert (row["steps"], row["runs"], row["example"]) == (2, 2, "one")
    listed = cli("quarantine").out
    assert f"{alike} app.fragile: StepLost (exit 3)" in listed
    assert "2 steps of 2 runs" in listed
    assert len(cli("quarantine", "--run", "two", "--json").json) == 1
    assert cli("quarantine", "--run", "nobody", "--json").json == []


def test_other_commands_name_a_step_in_quarantine(cli: Cli) -> None:
    """`why` says what to do, `show` and `ps` show the state, and `doctor` counts such steps."""
    alike = broken(cli)
    why = cli("why", "q").out
    assert "It is stuck: step fragile has been in quarantine for" in why
    assert f"`holdfast quarantine release {alike}`" in why
    assert "in quarantine" in cli("show", "q").out
    (row,) = [step for step in cli("show", "q", "--json").json["steps"] if step["quarantined"]]
    assert (row["key"], row["losses"], row["spent"]) == ("fragile", 1, 0)
    assert "exited with 3" in cli("ps").out
    assert "quarantine: 1 step of 1 fingerprint" in cli("doctor").out
    assert cli("doctor", "--json").json["quarantine"] == {alike: 1}


@pytest.mark.parametrize("by", ["fingerprint", "run", "retry"])
def test_a_released_step_is_tried_again(cli: Cli, by: str) -> None:
    """It is released by its fingerprint, by its run, or by `retry`. With the cause gone, the run succeeds."""
    alike = broken(cli)
    cli.open_gate()
    if by == "retry":
        assert "its steps in quarantine are tried again" in cli("retry", "q").out
    else:
        which = [alike] if by == "fingerprint" else ["--run", "q"]
        released = cli("quarantine", "release", *which, "--note", "fixed in 2.4.1")
        assert released.out == "1 step released: each is tried again, with fresh budgets\n"
    assert cli("run", "app.py:breaks", "--id", "q", "--json").json["output"] == 8
    assert cli.effects() == ["first", "fragile", "fragile"]
    if by != "retry":
        notes = [entry["note"] for entry in cli("show", "q", "--json").json["journal"]]
        assert f"{alike} fixed in 2.4.1" in notes


def test_a_skipped_step_has_the_result_that_was_given(cli: Cli) -> None:
    """Its workflow goes on with that result."""
    alike = broken(cli)
    shown = cli("quarantine", "skip", alike, "--result", "41", "--json").json
    assert shown == {"act": "skip", "fingerprint": alike, "run": None, "steps": 1}
    assert cli("run", "app.py:breaks", "--id", "q", "--json").json["output"] == 42


def test_a_failed_step_fails_its_run(cli: Cli) -> None:
    """The run fails with the error that was recorded."""
    cli("quarantine", "fail", broken(cli))
    ended = cli("run", "app.py:breaks", "--id", "q", "--json", code=1).json
    assert (ended["state"], ended["error"]["type"]) == ("failed", "StepLost")


def test_a_stuck_run_is_cancelled(cli: Cli) -> None:
    """It is cancelled like any other run, and needs no --force."""
    broken(cli)
    assert "is asked to cancel itself" in cli("cancel", "q").out
    assert cli("run", "app.py:breaks", "--id", "q", "--json", code=1).json["state"] == "cancelled"
    assert cli("quarantine", "--json").json == []


def test_what_cannot_be_meant_is_refused(lite: Cli) -> None:
    """A call that makes no sense gets one line and changes nothing. If there is nothing to decide, the exit code is
    1."""
    alike = broken(lite)
    assert "name a fingerprint" in lite("quarantine", "release", code=2).errors
    assert "release, skip or fail" in lite("quarantine", "list", alike, code=2).errors
    assert "--result is for skip" in lite("quarantine", "fail", alike, "--result", "1", code=2).errors
    assert "not JSON" in lite("quarantine", "skip", alike, "--result", "{", code=2).errors
    assert "no such step is in quarantine" in lite("quarantine", "release", "0000", code=1).out
    assert "no undo to skip" in lite("skip", "q", "--note", "x", code=2).errors
    assert len(lite("quarantine", "--json").json) == 1
