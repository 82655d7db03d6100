"""What an operator sees of a run that undoes what it did, and can do about it, on both stores."""

from tests.commands.conftest import Cli


def test_an_undone_run_says_what_it_undid_and_what_it_kept(cli: Cli) -> None:
    """The exit code is 1 and the state is undone. `show` lists the steps that have no undo as kept."""
    cli.open_gate()
    ended = cli("run", "app.py:undoes_itself", "--id", "u", "--json", code=1).json
    assert (ended["state"], ended["error"]["message"]) == ("undone", "sold out")
    assert cli.effects() == ["booked", "announced", "unbooked-b1"]
    assert cli("show", "u", "--json").json["kept"] == ["announced"]
    assert "kept" in cli("show", "u").out
    assert "has been undone" in cli("why", "u").out


def test_a_stuck_run_is_mended_by_retry(cli: Cli) -> None:
    """`why` names the undo that gave up, and what to do. When the cause is gone, the run ends undone after `retry`."""
    cli("run", "app.py:undoes_itself", "--id", "s", code=1)
    why = cli("why", "s").out
    assert "stuck" in why
    assert "holdfast retry s" in why
    assert "holdfast skip s booked" in why
    assert cli("ps", "--state", "stuck", "--json").json[0]["id"] == "s"
    cli.open_gate()
    cli("retry", "s")
    assert cli("run", "app.py:undoes_itself", "--id", "s", "--json", code=1).json["state"] == "undone"
    assert cli.effects()[-1] == "unbooked-b1"


def test_a_stuck_run_is_mended_by_hand(cli: Cli) -> None:
    """`skip` needs a note and counts the undo as done. The journal keeps the note."""
    cli("run", "app.py:undoes_itself", "--id", "h", code=1)
    assert "--note" in cli("skip", "h", code=2).errors
    assert "no step" in cli("skip", "h", "nothing", "--note", "x", code=2).errors
    cli("skip", "h", "booked", "--note", "cancelled by phone")
    assert cli("run", "app.py:undoes_itself", "--id", "h", "--json", code=1).json["state"] == "undone"
    notes = [entry["note"] for entry in cli("show", "h", "--json").json["journal"]]
    assert "cancelled by phone" in notes


def test_cancelling_a_stuck_run_needs_force(cli: Cli) -> None:
    """Without --force the command says that it is needed. With it the run ends where it is."""
    cli("run", "app.py:undoes_itself", "--id", "c", code=1)
    assert "--force" in cli("cancel", "c").out
    cli("cancel", "c", "--force", "--note", "leave it")
    ended = cli("run", "app.py:undoes_itself", "--id", "c", "--json", code=1).json
    assert ended["state"] == "failed"
    assert cli.effects() == ["booked", "announced"]
