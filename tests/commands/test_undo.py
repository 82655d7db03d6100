"""What an operator sees and does of a run that takes itself back, through the command line, on both stores."""

from tests.commands.conftest import Cli


def test_an_undone_run_says_what_it_undid_and_what_it_kept(cli: Cli) -> None:
    """Exit code 1, state undone; `show` lists the steps that have no undo as kept."""
    cli.open_gate()
    told = cli("run", "app.py:takes_back", "--id", "u", "--json", code=1).json
    assert (told["state"], told["error"]["message"]) == ("undone", "sold out")
    assert cli.effects() == ["booked", "announced", "unbooked-b1"]
    assert cli("show", "u", "--json").json["kept"] == ["announced"]
    assert "kept" in cli("show", "u").out
    assert "is undone" in cli("why", "u").out


def test_a_stuck_run_is_mended_by_retry(cli: Cli) -> None:
    """An undo that gives up is named with the next moves; when the cause is gone, `retry` ends it undone."""
    cli("run", "app.py:takes_back", "--id", "s", code=1)
    told = cli("why", "s").out
    assert "stuck" in told
    assert "holdfast retry s" in told
    assert "holdfast skip s booked" in told
    assert cli("ps", "--state", "stuck", "--json").json[0]["id"] == "s"
    cli.open_gate()
    cli("retry", "s")
    assert cli("run", "app.py:takes_back", "--id", "s", "--json", code=1).json["state"] == "undone"
    assert cli.effects()[-1] == "unbooked-b1"


def test_a_stuck_run_is_mended_by_hand(cli: Cli) -> None:
    """`skip` needs a note, counts the undo as done, and the journal keeps who decided what."""
    cli("run", "app.py:takes_back", "--id", "h", code=1)
    assert "--note" in cli("skip", "h", code=2).errors
    assert "no step" in cli("skip", "h", "nothing", "--note", "x", code=2).errors
    cli("skip", "h", "booked", "--note", "cancelled by phone")
    assert cli("run", "app.py:takes_back", "--id", "h", "--json", code=1).json["state"] == "undone"
    notes = [entry["note"] for entry in cli("show", "h", "--json").json["journal"]]
    assert "cancelled by phone" in notes


def test_cancelling_a_stuck_run_needs_force(cli: Cli) -> None:
    """Without force it says what it waits for; with it the run ends where it is."""
    cli("run", "app.py:takes_back", "--id", "c", code=1)
    assert "--force" in cli("cancel", "c").out
    cli("cancel", "c", "--force", "--note", "leave it")
    ended = cli("run", "app.py:takes_back", "--id", "c", "--json", code=1).json
    assert ended["state"] == "failed"
    assert cli.effects() == ["booked", "announced"]
