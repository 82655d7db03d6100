"""The command line through a server: the same commands print the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.conftest import Cli, until
from tests.commands.conftest import folder as folder  # noqa: PLC0414  pytest finds it here
from tests.http.processes import Process


@pytest.fixture
def at_store(folder: Path, store_url: str) -> Iterator[Cli]:
    made = Cli(folder, store_url)
    yield made
    made.close_all()


@pytest.fixture
def server(folder: Path, store_url: str) -> Iterator[Process]:
    made = Process(folder, store_url, "up", "app.py")
    yield made
    made.close()


@pytest.fixture
def by_http(folder: Path, server: Process) -> Iterator[Cli]:
    made = Cli(folder, server.url)
    yield made
    made.close_all()


VOLATILE = re.compile(r'"(silent_s|at|lease_until|left_s|most_s|eta|started_at|has|full|known)": [^,\n]*')


def _still(text: str) -> str:
    """Leave out what changes from one moment to the next, and the digits of times beyond the second."""
    text = re.sub(r"for \d+(\.\d+)? \w+", "for a while", VOLATILE.sub("", text))
    return re.sub(r"(\d\d:\d\d:\d\d)\.\d+", r"\1", text)


READS = (
    ("ps",),
    ("ps", "--state", "succeeded", "--all"),
    ("show", "done"),
    ("show", "waits"),
    ("show", "bad"),
    ("why", "waits"),
    ("logs", "done"),
    ("holds",),
    ("breakers",),
    ("quarantine",),
    ("alerts", "--all"),
    ("acts",),
    ("tokens",),
    ("agents",),
)


def test_every_reading_command_prints_the_same(at_store: Cli, by_http: Cli) -> None:
    """What a command reads through a server is what it reads at the store."""
    at_store.open_gate()
    by_http("start", "app.py:gated", "--id", "done")
    by_http("watch", "done")
    by_http("start", "app.py:everything", "--id", "waits", "--tag", "a=b")
    by_http("start", "app.py:failing", "--id", "bad")
    by_http("watch", "bad", code=1)
    by_http("hold", "--step", "gate", "--note", "why")
    by_http("cancel", "--prefix", "waits", "--dry-run")
    until(lambda: "paid" in at_store("why", "waits").out)
    for words in READS:
        seen: list[tuple[str, str]] = []
        while len(seen) < 10 and not any(
            through == direct for through, direct in seen
        ):  # a node's figures change in between
            seen.append((_still(by_http(*words, "--json").out), _still(at_store(*words, "--json").out)))
        through, direct = seen[-1]
        assert through == direct, words


def test_every_acting_command_acts(at_store: Cli, by_http: Cli) -> None:
    """Runs are started, sent to, steered, and acted on by the filter, through a server."""
    by_http("start", "app.py:everything", "--id", "a")
    by_http("signal", "a", "paid", "--data", "3")
    assert by_http("watch", "a", "--json").json["output"] == at_store("show", "a", "--json").json["output"]
    by_http("start", "app.py:everything", "--id", "b")
    assert by_http("hold", "b", "--json").json["state"] == "held"
    assert by_http("release", "b", "--json").json["state"] in {"pending", "running"}
    by_http("cancel", "b")
    by_http("watch", "b", code=1)
    assert by_http("retry", "b", "--json").json["id"] == "b~2"
    assert by_http("cancel", "--prefix", "b~", "--yes", "--json").json["done"] == 1
    by_http("signal", "nobody", "paid", code=2)
    by_http("breakers", "open", "bank")
    assert {one["name"]: one["state"] for one in by_http("breakers", "--json").json}["bank"] == "open"
    made = by_http("tokens", "create", "--role", "admin", "--namespace", "*", "--json").json
    token = {"HOLDFAST_TOKEN": made["token"]}
    until(lambda: by_http("ps", code=None).code == 2)  # servers notice the first token within a second
    refused = by_http("ps", code=2)
    assert "HOLDFAST_TOKEN" in refused.errors
    assert by_http("tokens", "--json", **token).json[0]["id"] == made["id"]
    assert made["token"] not in by_http("agents", **token).out
    assert made["token"] not in at_store("tokens", "--json").out


@pytest.mark.parametrize(
    "words",
    [
        ("migrate",),
        ("doctor",),
        ("prune", "--older-than", "1d"),
        ("server",),
        ("up", "app.py"),
        ("run", "app.py:gated"),
    ],
    ids=lambda words: str(words[0]),
)
def test_what_needs_the_database_says_so(folder: Path, words: tuple[str, ...]) -> None:
    """A command that cannot work through a server says so, and how to go on. It does not ask the server first."""
    cli = Cli(folder, "https://holdfast.example")
    said = cli(*words, code=2).errors
    assert "needs the database itself" in said
    assert "--store" in said


def test_people_read_the_same_through_a_server(at_store: Cli, by_http: Cli) -> None:
    """A list says in the same words what each run waits for, and a stuck run shows why it undoes itself, too."""
    by_http("start", "app.py:undoes_itself", "--id", "sold")
    by_http("start", "app.py:render", "--id", "waits")
    by_http("start", "app.py:waits_an_hour", "--id", "off")
    until(lambda: by_http("show", "sold", "--json").json["state"] == "stuck")
    until(lambda: "rendered" in at_store("ps").out and "patient" in at_store("ps").out)
    assert "rendered waits for an agent" in by_http("ps").out
    shown = by_http("show", "sold", "--json").json
    assert shown == at_store("show", "sold", "--json").json
    assert "sold out" in by_http("show", "sold").out
    (listed,) = by_http("ps", "sold", "--json").json
    assert [listed] == at_store("ps", "sold", "--json").json
    assert (listed["error"]["message"], "traceback" in listed["note"]) == ("sold out", False)
    for words in (
        ("fork", "off", "--from", "nosuch"),
        ("skip", "sold", "nosuch", "--note", "by hand"),
        ("callback", "off", "nosuch", "--data", "1"),
        ("callback", "nobody", "--data", "1"),
    ):
        through, direct = by_http(*words, code=2), at_store(*words, code=2)
        assert through.errors == direct.errors, words
        assert by_http(*words, "--json", code=2).out == at_store(*words, "--json", code=2).out, words


def test_schedules_are_listed_and_steered_through_a_server(at_store: Cli, by_http: Cli) -> None:
    """The same commands print the same, and `hf.schedules` is the same book."""
    words = (
        "--times",
        "0 3 * * MON",
        "--tz",
        "Europe/Oslo",
        "--input",
        '{"x": 4}',
        "--jitter",
        "60s",
        "--missed",
        "5",
    )
    by_http("schedules", "create", "nightly", "app.gated", *words)
    assert "exists already" in by_http("schedules", "create", "nightly", "app.gated", *words, code=1).out
    by_http("schedules", "create", "nightly", "app.gated", "--times", "@daily", code=2)
    by_http("schedules", "create", "nightly", "app.gated", "--times", "@daily", "--replace")
    by_http("schedules", "create", "nightly", "app.gated", *words, "--replace")
    by_http("schedules", "pause", "nightly", "--note", "stock")
    by_http("schedules", "resume", "nightly")
    at_store.open_gate()
    run = by_http("schedules", "run", "nightly", "--json").json["run"]
    assert by_http("watch", run, "--json").json["output"] is not None
    for read in (("schedules",), ("schedules", "nightly"), ("schedules", "preview", "nightly", "-n", "5")):
        assert _still(by_http(*read, "--json").out) == _still(at_store(*read, "--json").out), read
    span = ("--from", "2026-09-01", "--to", "2026-09-20")
    dry = ("schedules", "backfill", "nightly", *span, "--dry-run")
    assert by_http(*dry).out == at_store(*dry).out
    by_http("schedules", "backfill", "nightly", *span, "--most", "1")
    (fill,) = by_http("schedules", "nightly", "--json").json["backfills"]
    by_http("schedules", "stop", "nightly", fill["id"])
    by_http("schedules", "stop", "nightly", "none", code=2)
    by_http("schedules", "remove", "nightly")
    for missing in (("nightly",), ("preview", "nightly"), ("pause", "nightly"), ("remove", "nightly")):
        assert "nightly" in by_http("schedules", *missing, code=2).errors
