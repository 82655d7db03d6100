"""`holdfast check` says what new code would do to the open runs, before it is deployed."""

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import apsw
import psycopg
import pytest

from holdfast import Holdfast
from holdfast.model import NewSignal
from tests.commands.conftest import Cli, until

APP = """
from holdfast import Signal, Stop, step, workflow

go = Signal("go", int)


@step
async def charge(cents: int) -> str:
    return "c1"


@charge.undo(retry=1)
async def refund(done: str | None, cents: int) -> None:
    raise Stop("the bank is closed")


@step
async def ship(address: str) -> str:
    return address


@workflow
async def order(cents: int = 300) -> str:
    await charge(cents)
    await go.wait()
    return await ship("Oslo")


@workflow
async def doomed() -> None:
    await charge(5)
    raise Stop("no")
"""


def tables(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table of the store."""
    if url.startswith("sqlite:"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            names = [
                row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            ]
            return {
                name: sorted(connection.execute(f'SELECT * FROM "{name}"').fetchall(), key=repr)
                for name in names
            }
        finally:
            connection.close()
    with psycopg.connect(url) as pg:
        rows = pg.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'").fetchall()
        return {
            name: sorted(pg.execute(f'SELECT * FROM holdfast."{name}"'.encode()).fetchall(), key=repr)
            for (name,) in rows
        }


@contextmanager
def up(cli: Cli) -> Iterator[subprocess.Popen[str]]:
    process = cli.start("up", "app.py")
    yield process
    process.send_signal(signal.SIGINT)
    cli.end(process)


def waits_for_go(cli: Cli, run: str) -> bool:
    return "signal 'go'" in cli("why", run).out


@pytest.fixture
def shop(cli: Cli) -> Cli:
    """A store with two orders that wait for a signal, one that nobody took up yet, and a run that is stuck."""
    (cli.folder / "app.py").write_text(APP)
    with up(cli) as process:
        for run in ("a", "b"):
            cli("start", "app.py:order", "--id", run)
        cli("start", "app.py:doomed", "--id", "stuck")
        for run in ("a", "b"):
            until(partial(waits_for_go, cli, run), process)
        until(lambda: "stuck" in cli("ps", "--state", "stuck").out, process)
    cli("start", "app.py:order", "--id", "pending")
    return cli


def deploy(cli: Cli, old: str, new: str) -> None:
    """Change the code."""
    assert old in APP
    (cli.folder / "app.py").write_text(APP.replace(old, new))


def found(cli: Cli, code: int = 1) -> dict[str, dict[str, Any]]:
    """Return what `check` found, by run."""
    shown = cli("check", "app.py", "--json", code=code).json
    assert shown["runs"] == 4
    assert shown["ok"] is (code == 0)
    return {one["run"]: one for one in shown["findings"]}


def test_code_that_fits_is_confirmed(shop: Cli) -> None:
    """The same code, and code that only adds a step behind where the runs are, fit them all."""
    ended = shop("check", "app.py")
    assert ended.out == "✓ all 4 open runs fit this code\n"
    deploy(shop, 'return await ship("Oslo")', 'await charge(1)\n    return await ship("Bergen")')
    assert found(shop, code=0) == {}


def test_a_drift_is_shown_with_both_sides(shop: Cli) -> None:
    """The code asks for a recorded step with another input. `check` names the run, the step, what was recorded and what
    is asked for now. Its exit code is 1."""
    deploy(shop, "await charge(cents)", "await charge(cents + 1)")
    drifts = found(shop)
    assert set(drifts) == {"a", "b"}
    drift = drifts["a"]
    assert (drift["kind"], drift["step"], drift["state"]) == ("drift", "charge", "running")
    assert drift["recorded"] == 'call app.charge {"cents":300}'
    assert drift["asked"] == 'call app.charge {"cents":301}'
    words = shop("check", "app.py", code=1).out
    assert "✗ a (app.order version 1, running): drift at step charge\n" in words
    assert '    recorded   call app.charge {"cents":300}\n' in words
    assert "2 of 4 open runs do not fit this code: 2 drift" in words
    assert "1 more findings; --limit 0 lists all" in shop("check", "app.py", "--limit", "1", code=1).out


def test_nothing_is_changed(shop: Cli) -> None:
    """`check` changes no row of the store, whether the code fits or not."""
    before = tables(shop.store)
    assert before["runs"]
    shop("check", "app.py")
    deploy(shop, "await charge(cents)", "await charge(cents + 1)")
    shop("check", "app.py", code=1)
    assert tables(shop.store) == before


def test_markers_are_listed_with_the_runs_that_need_them(shop: Cli) -> None:
    """Runs that went past the marker go the old way. A marker that no open run needs can be removed."""
    deploy(
        shop,
        "    await charge(cents)\n",
        '    await charge(cents)\n    patched("after")\n',
    )
    code = (shop.folder / "app.py").read_text()
    (shop.folder / "app.py").write_text(code.replace("import Signal,", "import Signal, patched,"))
    words = shop("check", "app.py").out
    assert "· marker after of app.order: 2 open runs go the old way\n" in words
    assert (
        "· marker never of app.order: no open run goes the old way" not in words
    )  # the compiler left it out
    listed = shop("check", "app.py", "--json").json["markers"]
    assert listed == [{"workflow": "app.order", "marker": "after", "old": 2, "new": 0, "needed": True}]
    with up(shop) as process:
        for run in ("a", "b"):
            shop("hold", run)
            shop("release", run)
        until(
            lambda: "the old way" in shop("show", "a").out and "the old way" in shop("show", "b").out, process
        )
        until(lambda: "the new way" in shop("show", "pending").out, process)
        for run in ("a", "b"):
            shop("cancel", run)
        until(lambda: len(shop("ps", "--state", "stuck", "--json").json) == 3, process)
    ended = shop("check", "app.py")
    assert (
        "· marker after of app.order: no open run goes the old way; once this code is deployed, remove"
        in ended.out
    )
    (shop.folder / "app.py").write_text(APP)
    assert "✗" not in shop("check", "app.py").out  # the run that went the new way does not need it


UNDO = APP[APP.index("@charge.undo") : APP.index("@step\nasync def ship")]
CHANGES = [
    (
        "async def order(",
        "async def sale(",
        {"a": "unknown workflow", "b": "unknown workflow", "pending": "unknown workflow"},
    ),
    (
        "@workflow\nasync def order",
        '@workflow(version="2")\nasync def order',
        {"a": "unknown version", "b": "unknown version", "pending": "unknown version"},
    ),
    (
        "cents: int = 300) -> str:\n    await",
        "cents: list[int]) -> str:\n    await",
        {"a": "input", "b": "input", "pending": "input"},
    ),
    ("cents: int) -> str", "cents: str) -> str", {"a": "fails", "b": "fails"}),
    (
        "async def order(cents: int = 300) -> str:\n    await charge(cents)",
        "async def order(amount: int = 300) -> str:\n    await charge(amount)",
        {"a": "input", "b": "input", "pending": "input"},
    ),
    ('int) -> str:\n    return "c1"', "int) -> bool:\n    return True", {"a": "result", "b": "result"}),
    ('Signal("go", int)', 'Signal("start", int)', {"a": "signal", "b": "signal"}),
    (UNDO, "", {"a": "unknown undo", "b": "unknown undo", "stuck": "unknown undo"}),
]


def test_what_is_gone_or_no_longer_fits_is_named(shop: Cli) -> None:
    """For each run it names the workflow, version or undo that the code no longer has, or the input that it cannot
    read."""
    for old, new, kinds in CHANGES:
        deploy(shop, old, new)
        shown = found(shop)
        assert {run: one["kind"] for run, one in shown.items()} == kinds, new
        if "stuck" in kinds:
            assert shown["stuck"]["message"] == "this code has no app.refund, which undoes step 'charge'"


def test_what_cannot_be_read_is_shown_with_both_sides(shop: Cli) -> None:
    """It shows what was recorded, and what this code makes of it. An input of the run is shown without a step."""
    deploy(
        shop,
        "cents: int = 300) -> str:\n    await",
        "amount: int = 300) -> str:\n    cents = amount\n    await",
    )
    words = shop("check", "app.py", code=1).out
    assert "✗ a (app.order version 1, running): input\n" in words
    assert '    recorded   {"cents":300}\n' in words
    assert "    this code  order(): cents: 300 is recorded, and nothing in this code takes it\n" in words
    deploy(shop, 'Signal("go", int)', 'Signal("start", int)')
    words = shop("check", "app.py", code=1).out
    assert "✗ a (app.order version 1, running): signal at step go\n" in words
    assert "    recorded   signal go\n" in words
    assert "    this code  signal start at 'start'\n" in words


def test_a_signal_that_was_set_aside_is_shown(shop: Cli) -> None:
    """`check` shows it before a scheduler has seen it, `show` and `why` from then on. The run ends with the right
    signal."""

    async def send() -> None:  # another workflow can send it; the command would refuse it
        async with Holdfast(shop.store, roles=()) as hf:
            await hf.store.operators.send_signal(NewSignal("a", "go", "wrong", b'"far"'))

    asyncio.run(send())
    words = shop("check", "app.py").out
    assert (
        "· a (app.order version 1, running): the signal 'go' would be set aside: signal go: expected `int`, got `str`"
        in words
    )
    with up(shop) as process:
        until(lambda: "set aside" in shop("why", "a").out, process)
        assert (
            "(key wrong) did not fit and was set aside (signal go: expected `int`, got `str`)"
            in shop("why", "a").out
        )
        assert "set aside: signal go: expected `int`, got `str`" in " ".join(shop("show", "a").out.split())
        (sent,) = shop("show", "a", "--json").json["signals"]
        assert (sent["key"], sent["delivered"], sent["set_aside"]) == (
            "wrong",
            True,
            "signal go: expected `int`, got `str`",
        )
        shop("signal", "a", "go", "--data", "7")
        until(lambda: "succeeded" in shop("why", "a").out, process)


def test_a_renamed_step_is_shown(shop: Cli) -> None:
    """The name of a step is its identity, so the code would execute the step again under its new name. That is allowed,
    and worth knowing. Held runs are checked, too."""
    shop("hold", "a")
    (shop.folder / "app.py").write_text(APP.replace("charge", "bill"))
    shown = found(shop, code=0)
    assert {run: one["kind"] for run, one in shown.items()} == {"a": "passed over", "b": "passed over"}
    assert (
        "does not ask for step 'charge' (yet), which has succeeded; it now asks for bill"
        in shown["a"]["message"]
    )
    assert shown["a"]["state"] == "held"


def test_a_step_that_waits_for_code_that_is_gone_is_named(lite: Cli) -> None:
    """The step backs off, and no agent with the new code could try it again."""
    process = lite.start("run", "app.py:waits_an_hour", "--id", "w")
    until(lambda: "patient" in lite.effects(), process)
    until(lambda: "ready" in lite("show", "w", "--json").out, process)
    process.send_signal(signal.SIGINT)
    lite.end(process)
    code = (lite.folder / "app.py").read_text()
    (lite.folder / "app.py").write_text(code.replace("patient(", "patience("))
    (one,) = lite("check", "app.py", "--json", code=1).json["findings"]
    assert (one["kind"], one["step"], one["asked"]) == ("unknown step", "patient", "patience")
    assert "no agent with this code can execute it" in one["message"]


def test_code_that_cannot_be_imported_is_an_error_of_the_call(lite: Cli) -> None:
    """The error names the line that is wrong, and the exit code is 2."""
    (lite.folder / "bad.py").write_text("import holdfast\nholdfast.stp\n")
    shown = lite("check", "bad.py", "--json", code=2).json
    assert shown["error"]["message"].startswith("bad.py, line 2: AttributeError")
    assert "no store at" in lite("check", "app.py", code=2).errors


def test_without_runs_there_is_nothing_to_say(lite: Cli) -> None:
    """An empty store fits any code."""
    lite("run", "app.py:pays", "--input", '{"card": {"number": "1", "cents": 1}}')
    assert lite("check", "app.py").out == "no run is open\n"
