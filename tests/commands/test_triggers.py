"""`holdfast triggers`, as people use it."""

from __future__ import annotations

from tests.commands.conftest import Cli
from tests.commands.test_events import until
from tests.http.processes import Process

APP = """
from holdfast import workflow
from holdfast.events import all_of, several, when

@workflow
async def report(arrived: dict) -> dict:
    return arrived

when(all_of("rates.published", files=several("file.arrived", 2)), within=3600)(report)
"""


def test_what_is_missing_is_shown(cli: Cli) -> None:
    """Who has arrived, what is missing since when and until when, and what became of it."""
    (cli.folder / "app.py").write_text(APP)
    process = cli.start("up", "app.py")
    until(cli, "triggers", has="report")
    assert "nothing waits" in cli("triggers").out
    sent = cli("emit", "file.arrived", "--subject", "d1", "--data", '"a"').out
    assert "arrived at report@when:d1" in sent
    shown = cli("triggers").out
    assert (
        "report starts app.report when all of (rates.published, files=2 × file.arrived) by subject" in shown
    )
    assert "report@when:d1 waits for rates.published, files (1 of 2) since" in shown
    assert "has files" in shown
    found = cli("triggers", "report", "--json").json
    (waiting,) = found["occasions"]
    assert (waiting["state"], waiting["missing"]) == ("open", ["rates.published", "files (1 of 2)"])
    cli("emit", "file.arrived", "--subject", "d1", "--data", '"b"')
    done = cli("emit", "rates.published", "--subject", "d1", "--data", "1").out
    assert "started report@when:d1" in done
    late = cli("emit", "rates.published", "--subject", "d1", "--source", "bank", "--id", "7").out
    assert "came too late for report@when:d1" in late
    assert "came too late for report@when:d1" in cli("events", "bank", "7").out
    assert "report@when:d1" not in cli("triggers").out
    assert "report@when:d1 started; had" in cli("triggers", "report", "--all").out
    until(cli, "show", "report@when:d1", "--json", has='"state": "succeeded"')
    process.terminate()
    process.wait(30)


def test_a_trigger_that_is_unknown_is_an_error(lite: Cli) -> None:
    lite("migrate")
    assert "no code has declared a composed trigger" in lite("triggers").out
    unknown = "error: there is no trigger 'nobody': `holdfast triggers` lists them\n"
    assert lite("triggers", "nobody", code=2).errors == unknown


def test_an_occasion_is_started_or_dropped_by_hand(cli: Cli) -> None:
    """At the store and through a server, by the same words."""
    (cli.folder / "app.py").write_text(APP)
    process = Process(cli.folder, cli.store, "up", "app.py")
    remote = Cli(cli.folder, process.url)
    try:
        until(cli, "triggers", has="report")
        for day, by in (("d1", cli), ("d2", remote)):
            cli("emit", "rates.published", "--subject", day, "--data", "1")
            cli("emit", "rates.published", "--subject", f"{day}-not", "--data", "1")
            said = by("triggers", "start", f"report@when:{day}", "--note", "no file today").out
            assert f"report@when:{day} started without files (0 of 2), by " in said
            assert ": no file today; had rates.published" in said
            done = by("triggers", "drop", f"report@when:{day}-not", "--json").json
            assert (done["state"], done["note"].startswith("dropped by ")) == ("expired", True)
            assert "has ended already" in by("triggers", "drop", f"report@when:{day}", code=2).errors
            assert "no occasion has the id" in by("triggers", "start", "report@when:never", code=2).errors
            until(cli, "show", f"report@when:{day}", "--json", has='"state": "succeeded"')
        assert "nothing waits" in cli("triggers").out
        assert "before the occasion, not 'stop'" in cli("triggers", "stop", "x", code=2).errors
        assert "name the occasion" in cli("triggers", "--note", "x", code=2).errors
    finally:
        process.close()
