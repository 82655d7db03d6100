"""`start`, `signal`, `update`, `cancel`, `hold`, `release`, `retry` and `migrate`. Each is one write."""

from pathlib import Path

from holdfast.store.migrations import read_migrations
from tests.commands.conftest import Cli, until


def test_start_returns_at_once(cli: Cli) -> None:
    """The run is recorded and pending. Starting it again gives the same run, and another input is a conflict."""
    for _ in range(2):
        shown = cli("start", "app.py:gated", "--input", "[1]", "--id", "s", "--json").json
        assert shown == {"id": "s", "state": "pending"}
    assert cli("start", "app.py:gated", "--input", "[2]", "--id", "s", "--json", code=2).json["error"][
        "type"
    ] == ("Conflict")
    assert cli.effects() == []
    made = cli("start", "app.py:gated", "--json").json["id"]
    assert [row["id"] for row in cli("ps", "--json").json] == [made, "s"]


def test_start_lets_a_run_begin_later(cli: Cli) -> None:
    """`--in` takes a span and `--at` a time. `show` and `why` say when it begins."""
    cli("start", "app.py:gated", "--id", "s", "--in", "2h")
    cli("start", "app.py:gated", "--id", "t", "--at", "2090-01-01T00:00Z")
    shown = cli("show", "t", "--json").json
    assert (shown["state"], shown["begin_at"]) == ("pending", "2090-01-01T00:00:00.000Z")
    assert "begins" in cli("show", "s").out
    assert "It is to begin in" in cli("why", "s").out
    for wrong in (
        ("--in", "soon"),
        ("--in", "0s"),
        ("--at", "tomorrow"),
        ("--in", "1h", "--at", "2090-01-01"),
    ):
        cli("start", "app.py:gated", "--id", "u", *wrong, code=2)
    assert sorted(row["id"] for row in cli("ps", "--json").json) == ["s", "t"]


def test_start_promises_when_a_run_ends(cli: Cli) -> None:
    """`--due` takes a span or a time. `show`, `why` and `ps` say when that is. A time that has passed is refused."""
    cli("start", "app.py:gated", "--id", "s", "--due", "2h")
    cli("start", "app.py:gated", "--id", "t", "--due", "2090-01-01T00:00Z")
    assert cli("show", "t", "--json").json["due_at"] == "2090-01-01T00:00:00.000Z"
    assert "due in" in cli("show", "s").out
    assert "It is due in" in cli("why", "s").out
    assert "due in" in cli("ps").out
    for wrong in ("2020-01-01", "0s", "soon"):
        cli("start", "app.py:gated", "--id", "u", "--due", wrong, code=2)
    assert sorted(row["id"] for row in cli("ps", "--json").json) == ["s", "t"]


def test_a_signal_reaches_a_run_even_before_it_waits(cli: Cli) -> None:
    """The data of the signal is the result of the wait. The same key again is the same signal."""
    cli.open_gate()
    cli("start", "app.py:everything", "--id", "s")
    for data in ("900", "901"):
        shown = cli("signal", "s", "paid", "--data", data, "--key", "event-7", "--json").json
        assert shown == {"id": "s", "state": "pending", "signal": "paid"}
    assert cli("run", "app.py:everything", "--id", "s", "--json").json["output"] == [0, 2, 3, 8, 900]
    assert "has ended" in cli("signal", "s", "paid", code=2).errors


def test_a_signal_takes_its_data_from_standard_input(lite: Cli) -> None:
    """`--data -` reads standard input."""
    lite("start", "app.py:everything", "--id", "s")
    lite("signal", "s", "paid", "--data", "-", given="[1, 2]")
    assert [signal["payload"] for signal in lite("show", "s", "--json").json["signals"]] == [[1, 2]]


def test_an_update_prints_its_answer(cli: Cli) -> None:
    """The same key prints the same answer. A refusal, an error and no answer in time exit with 1, a wrong call with
    2. `show` and `why` know the calls."""
    cli("start", "app.py:changes", "--id", "u")
    process = cli.start("run", "app.py:changes", "--id", "u", "--json")
    for _ in range(2):
        assert cli("update", "u", "change", "--data", "5", "--key", "k").out == '"now 5"\n'
    shown = cli("update", "u", "change", "--data", "6", "--json").json
    assert shown == {"id": "u", "state": "running", "update": "change", "reply": "now 6"}
    refused = cli("update", "u", "change", "--data", "-5", "--json", code=1).json
    assert refused["error"] == {"type": "Refused", "message": "only upwards"}
    assert "LookupError: too far" in cli("update", "u", "change", "--data", "100", code=1).errors
    assert (
        "another value under the key"
        in cli("update", "u", "change", "--data", "7", "--key", "k", code=2).errors
    )
    assert (
        "try `holdfast update u change --data 0`"
        in cli("update", "u", "chance", "--data", "7", code=2).errors
    )
    assert "holdfast update u change --data 0" in cli("update", "u", "change", "--data", '"x"', code=2).errors
    cli("hold", "u")
    late = cli("update", "u", "change", "--data", "8", "--key", "late", "--timeout", "0", code=1)
    assert "recorded under the key 'late'" in late.errors
    assert "holdfast release u" in late.errors
    page = cli("show", "u", "--json").json
    assert [(row["name"], row["payload"], row["answer"], row["reply"]) for row in page["updates"]] == [
        ("change", 5, "returned", "now 5"),
        ("change", 6, "returned", "now 6"),
        ("change", -5, "refused", None),
        ("change", 100, "raised", None),
        ("change", 8, None, None),
    ]
    assert page["signals"] == []
    assert "refused: " in cli("show", "u").out
    cli.end(process)
    cli("release", "u")
    process = cli.start("run", "app.py:changes", "--id", "u", "--json")
    assert cli("update", "u", "change", "--data", "8", "--key", "late").out == '"now 8"\n'
    assert "serving the update 'change'" in cli("why", "u").out
    cli("signal", "u", "paid", "--data", "1")
    assert cli.end(process).json["output"] == [5, 6, 8]
    assert "has ended and serves no updates" in cli("update", "u", "change", "--data", "5", code=2).errors


def test_cancel_ends_a_pending_run_at_once(cli: Cli) -> None:
    """Nobody owns the run, so it is cancelled at once. Cancelling it again says so, and running it prints that end."""
    cli("start", "app.py:gated", "--id", "c")
    assert cli("cancel", "c", "--note", "changed my mind", "--json").json == {"id": "c", "state": "cancelled"}
    assert "was cancelled before" in cli("cancel", "c").out
    shown = cli("run", "app.py:gated", "--id", "c", "--json", code=1).json
    assert (shown["state"], shown["error"]["message"]) == ("cancelled", "changed my mind")
    assert cli.effects() == []


def test_cancel_reaches_a_running_step(cli: Cli) -> None:
    """The run ends cancelled, and the process that carries it exits with 1."""
    process = cli.start("run", "app.py:gated", "--id", "c", "--json")
    until(lambda: "gate" in cli.effects(), process)
    assert cli("cancel", "c").out == "● c is asked to cancel itself\n"
    ended = cli.end(process)
    assert (ended.code, ended.json["state"]) == (1, "cancelled")
    assert [step["state"] for step in ended.json["steps"]] == ["succeeded", "cancelled"]


def test_a_held_run_goes_on_when_released(cli: Cli) -> None:
    """`ps` shows the held run. After `release` it runs to its end."""
    cli.open_gate()
    cli("start", "app.py:gated", "--id", "h")
    assert cli("hold", "h", "--note", "why not", "--json").json == {"id": "h", "state": "held"}
    assert "why not" in cli("ps", "--state", "held").out
    assert cli("release", "h", "--json").json == {"id": "h", "state": "pending"}
    assert "only a held run" in cli("release", "h", code=2).errors
    assert cli("run", "app.py:gated", "--id", "h", "--json").json["output"] == 3
    ended = "error: run 'h' has succeeded: only a run that has not ended can be held\n"
    assert cli("hold", "h", code=2).errors == ended


def test_retry_of_a_failed_run_keeps_what_succeeded(cli: Cli) -> None:
    """The retry has a new id and does not run the recorded step again. With mended code it succeeds."""
    cli("run", "app.py:failing", "--id", "f", code=1)
    shown = cli("retry", "f", "--json").json
    assert shown == {"id": "f~2", "state": "pending", "retry_of": "f"}
    file = cli.folder / "app.py"
    file.write_text(file.read_text().replace("    raise Stop(why)", "    return None"))
    assert cli("run", "app.py:failing", "--id", "f~2", "--json").json["state"] == "succeeded"
    assert cli.effects() == ["first"]
    assert "nothing to retry" in cli("retry", "f~2", code=2).errors


def test_retry_of_a_live_run_does_not_wait_for_the_back_off(cli: Cli) -> None:
    """The next attempt would be in an hour. After `retry` it is made at once."""
    process = cli.start("run", "app.py:waits_an_hour", "--id", "r", "--json")
    until(lambda: "backs off" in cli("why", "r", code=None).out, process)
    cli.open_gate()
    assert cli("retry", "r").out == "● r is running: what backs off is tried at once\n"
    assert cli.end(process).json["output"] == 3
    assert cli.effects() == ["patient", "patient"]


def test_migrate_says_from_where_to_where(folder: Path, empty_url: str) -> None:
    """An empty database goes to this version's schema. A second time there is nothing to do."""
    cli = Cli(folder, empty_url)
    shown = cli("migrate", "--json").json
    current = len(read_migrations("holdfast.store.sqlite"))
    assert (shown["from"], shown["to"]) == (0, current)
    assert cli("migrate").out.endswith(f"is at schema {current}: nothing to do\n")
    assert cli("ps", "--json").json == []


def test_an_unknown_run_is_an_error(cli: Cli) -> None:
    """Every command that takes a run prints one line and exits with 2. With --json it prints an object with the same
    words."""
    cli("migrate")
    for command in ("show", "why", "watch", "cancel", "retry", "hold", "release", "signal"):
        ended = cli(command, "nobody", *(["paid"] if command == "signal" else []), "--json", code=2)
        assert ended.json["error"]["type"] == "UnknownRun"
        assert ended.errors == f"error: {ended.json['error']['message']}\n"
        assert "'nobody'" in ended.errors


def test_fork_begins_where_one_says_with_what_one_edits(lite: Cli) -> None:
    """The command names the new run and what it keeps. Without the code, values are compared with what was recorded, and
    with what the code declared. The other run stays."""
    lite.open_gate()
    lite("run", "app.py:gated", "--id", "one")
    made = lite("fork", "one", "--from", "gate", "--json").json
    assert made == {
        "id": "one-fork-1",
        "state": "pending",
        "forked_from": "one",
        "kept": 1,
        "undone_before": [],
    }
    assert lite("run", "app.py:gated", "--id", "one-fork-1").out.strip() == "3"
    assert lite.effects() == ["first", "gate", "last", "gate", "last"]
    said = lite("fork", "one", "--set", "gate=40", "--id", "two").out
    assert said.strip().endswith("two is pending: it keeps 2 steps of one")
    assert lite("run", "app.py:gated", "--id", "two").out.strip() == "41"
    assert "it begins at the beginning" in lite("fork", "one", "--input", '{"x": 7}', "--id", "three").out
    assert lite("show", "three", "--json").json["forked_from"] == "one"
    assert "forked from" in lite("show", "three").out
    assert "It was forked from one." in lite("why", "three").out
    for wrong, words in (
        (["--from", "sail"], "run 'one' has no step 'sail': `holdfast show one` lists them"),
        (["--set", "gate"], "'gate' is not of the form STEP=JSON"),
        (["--set", 'gate="many"'], "the result of step 'gate': the recorded one is a number, this is a text"),
        (["--input", '{"x": "many"}'], "input of app.gated: x"),
        (["--input", "[1]"], "give an object by the names of the arguments"),
        (["--input", "null"], "null is no input"),
        (["--id", "two"], "run 'two' exists"),
        (["--id", " two"], "cannot be a run's id"),
    ):
        assert words in lite("fork", "one", *wrong, code=2).errors
    assert len(lite("ps", "--json").json) == 4
