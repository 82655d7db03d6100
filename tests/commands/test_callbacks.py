"""`holdfast callbacks` and `holdfast callback`, as people and scripts use it."""

from __future__ import annotations

from tests.commands.conftest import Cli, until

APP = """
from holdfast import here, step, workflow

@step(callback=True)
async def charge(cents: int) -> int:
    with open("address", "w") as file:
        file.write(here.callback)
    return here.later()

@workflow
async def pays(cents: int = 900) -> int:
    return await charge(cents)
"""


def test_a_callback_is_explained_and_answered_by_hand(cli: Cli) -> None:
    """`why` names the command. The address stands in no output."""
    (cli.folder / "app.py").write_text(APP)
    (cli.folder / "alerts.toml").write_text('public_url = "https://holdfast.example"\n')
    for run in ("c1", "c2"):
        cli("start", "app.py:pays", "--id", run)
    assert "has no callback" in cli("callback", "c1", "--data", "1", code=2).errors
    process = cli.start("up", "app.py", "--alerts", "alerts.toml")
    try:
        until(lambda: "holdfast callback c1" in cli("why", "c1").out, process)
        until(lambda: "holdfast callback c2" in cli("why", "c2").out, process)
        address = (cli.folder / "address").read_text()
        assert address.startswith("https://holdfast.example/v1/callbacks/")
        assert "by another system" in cli("why", "c1").out
        assert "charge" in cli("show", "c1").out
        for command in ("why", "show", "logs"):
            assert address.rpartition("/")[2] not in cli(command, "c1").out
        for options in ([], ["--json"]):
            listed = cli("callbacks", *options).out
            assert address.rpartition("/")[2] not in listed
            assert "https://" not in listed
        assert sorted(one["run"] for one in cli("callbacks", "--json").json) == ["c1", "c2"]
        (one,) = cli("callbacks", "--run", "c2", "--json").json
        assert (one["key"], one["step"], one["workflow"]) == ("charge", "app.charge", "app.pays")
        assert (one["number"], one["expires_at"]) == (1, None)
        assert one["since"] is not None
        lines = cli("callbacks", "--workflow", "pays", "--step", "charge").out.splitlines()
        assert {line.partition(" has been waiting for ")[0] for line in lines} == {"c1 charge", "c2 charge"}
        assert all(line.endswith(", step app.charge of app.pays") for line in lines)
        short = cli("callbacks", "--limit", "1")
        assert (len(short.out.splitlines()), "--limit lists more" in short.errors) == (1, True)
        assert cli("callbacks", "--step", "refund").out == "no run waits for a callback\n"
        assert "output: expected" in cli("callback", "c1", "--data", '"x"', code=2).errors
        assert "give the result with --data" in cli("callback", "c1", code=2).errors
        taken = cli("callback", "c1", "charge", "--data", "7", "--note", "they phoned")
        assert "run c1 was called back" in taken.out
        assert cli("callback", "c1", "--data", "7", "--json").json == {"new": False}
        other = cli("callback", "c1", "--data", "8", code=2)
        assert "ended before" in other.errors
        cli("callback", "c2", "--error", "no money", "--error-type", "CardDeclined")
        until(lambda: cli("show", "c2", "--json").json["state"] == "failed", process)
        assert "CardDeclined: no money" in cli("why", "c2").out
        until(lambda: cli("show", "c1", "--json").json["state"] == "succeeded", process)
        assert cli("callbacks", "--json").json == []
    finally:
        process.terminate()
        process.wait(30)
