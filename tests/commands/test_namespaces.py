"""Two applications with the same names share a store, each in its own namespace: real processes, on both stores."""

import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.commands.conftest import Cli, until

APP = """
from holdfast import Retry, Signal, step, workflow

opened = Signal("opened", str)


@step(depends="bank", retry=Retry(attempts=1))
async def charge(cents: int) -> str:
    if cents < 0:
        raise ValueError("nothing to charge")
    return "{what} " + str(cents)


@workflow
async def order(cents: int) -> str:
    return await charge(cents)


@workflow
async def waits() -> str:
    return await opened.wait()
"""
NAMES = ("billing", "mailing")


def is_up(cli: Cli, namespace: str) -> bool:
    return bool(cli("agents", "--namespace", namespace, "--json").json)


@pytest.fixture
def shared(cli: Cli) -> Iterator[Cli]:
    """Two applications that are both called app.py, with other code under the same names, each up in its namespace."""
    processes = []
    cli("migrate")
    for name in NAMES:
        folder = Path(cli.folder, name)
        folder.mkdir()
        (folder / "app.py").write_text(APP.replace("{what}", name))
        processes.append(cli.start("up", f"{name}/app.py", "--namespace", name, "--json"))
    for name, process in zip(NAMES, processes, strict=True):
        until(partial(is_up, cli, name), process)
    yield cli
    for process in processes:
        os.killpg(process.pid, signal.SIGTERM)
        cli.end(process)


def test_two_applications_share_a_store_and_do_not_meet(shared: Cli) -> None:
    """The same file name, workflow, step and run id: each is executed by its own code, and sees only its own."""
    for name in NAMES:
        answer = shared(
            "start", f"{name}/app.py:order", "--id", "o1", "--input", '{"cents": 5}', "--namespace", name
        )
        assert "o1 is" in answer.out
        assert shared("watch", "o1", "--namespace", name).out.strip() == f'"{name} 5"'
        (run,) = shared("ps", "--namespace", name, "--json").json
        assert (run["id"], run["namespace"], run["workflow"]) == ("o1", name, "app.order")
        shown = shared("show", "o1", HOLDFAST_NAMESPACE=name).out
        assert "//" not in shown
        assert "charge" in shown
    assert shared("ps", "--json").json == []
    assert shared("show", "o1", code=2).errors.startswith("error: no run has the id 'o1'")
    everything = shared("ps", "--namespace", "*", "--json").json
    assert sorted(run["id"] for run in everything) == ["billing//o1", "mailing//o1"]
    assert shared("show", "billing//o1", "--namespace", "*", "--json").json["output"] == "billing 5"
    assert shared("show", "billing//o1", code=2).errors.startswith("error: no run has the id")


def test_operators_steer_their_own_namespace(shared: Cli) -> None:
    """Holds, acts, alerts, signals, retries and pruning: what is done in one leaves the other as it is."""
    for name in NAMES:
        shared("start", f"{name}/app.py:waits", "--id", "w", "--namespace", name)
    shared("signal", "w", "opened", "--data", '"hello"', "--namespace", "billing")
    assert shared("watch", "w", "--namespace", "billing").out.strip() == '"hello"'
    assert "It has been waiting" in shared("why", "w", "--namespace", "mailing").out
    assert shared("signal", "w", "opened", "--data", '"x"', code=2).errors.startswith("error: no run")

    held = shared("hold", "--step", "charge", "--namespace", "billing", "--json").json
    assert (held["value"], held["known"]) == ("app.charge", True)
    assert shared("holds", "--namespace", "mailing", "--json").json == []
    answer = shared("run", "mailing/app.py:order", "--input", '{"cents": 1}', "--namespace", "mailing")
    assert answer.out.strip() == '"mailing 1"'
    shared("release", "--step", "charge", "--namespace", "billing")

    whole = shared("hold", "--namespace", "billing", "--json").json
    assert (whole["scope"], whole["value"]) == ("namespace", "billing")
    shared("release", "--namespace", "billing")

    failed = shared(
        "run",
        "billing/app.py:order",
        "--input",
        '{"cents": -1}',
        "--id",
        "bad",
        "--namespace",
        "billing",
        code=1,
    )
    assert "nothing to charge" in failed.errors
    until(lambda: shared("alerts", "--namespace", "billing", "--json").json)
    assert shared("alerts", "--namespace", "mailing", "--json").json == []
    listed = shared("alerts", "--namespace", "billing").out
    assert "bad" in listed
    assert "billing//" not in listed

    plan = shared("cancel", "--workflow", "waits", "--namespace", "mailing", "--yes", "--json")
    assert '"w"' in plan.out or plan.code == 0
    assert shared("acts", "--namespace", "billing", "--json").json == []
    assert len(shared("acts", "--namespace", "mailing", "--json").json) == 1

    again = shared("retry", "bad", "--namespace", "billing", "--json").json
    assert again["id"] == "bad~2"
    shared("prune", "--older-than", "0s", "--state", "succeeded", "--namespace", "billing")
    assert [
        run["id"] for run in shared("ps", "--state", "succeeded", "--namespace", "billing", "--json").json
    ] == []
    assert shared("ps", "--state", "succeeded", "--namespace", "mailing", "--json").json != []
    assert shared("doctor", "--namespace", "*", "--json").json["ok"]
    assert shared("check", "billing/app.py", "--namespace", "billing", "--json").code == 0


def test_a_name_that_cannot_be_a_namespace_is_refused(cli: Cli) -> None:
    """With one line that says what a namespace may look like."""
    ended = cli("ps", "--namespace", "a//b", code=2)
    assert "--namespace: 'a//b' cannot be a namespace" in ended.errors


def test_without_a_namespace_the_second_application_is_refused_with_the_way(cli: Cli) -> None:
    """The message names --namespace."""
    for name in NAMES:
        Path(cli.folder, name).mkdir()
        Path(cli.folder, name, "app.py").write_text(APP.replace("{what}", name))
    cli("migrate")
    first = cli.start("up", "billing/app.py", "--json")
    until(partial(is_up, cli, "default"), first)
    refused = cli("up", "mailing/app.py", code=2)
    assert "a namespace of its own (--namespace" in refused.errors
    third = cli.start("up", "mailing/app.py", "--namespace", "*", "--json")
    assert "belongs to another application" in json.dumps(cli.end(third)._asdict())
    os.killpg(first.pid, signal.SIGTERM)
    cli.end(first)
