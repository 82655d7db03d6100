"""What Holdfast has learned about durations, as people and scripts see it."""

import asyncio

import pytest

from holdfast import Holdfast
from holdfast.durations import Eta, rest_name, step_name
from holdfast.model import NodeRow, RunRow, RunState, StepKind, StepRow, StepState, Twin, TwinState
from holdfast.sketch import bucket_of
from holdfast.supervisor.facts import Facts
from holdfast.supervisor.outlook import Outlook
from holdfast.supervisor.why import explain
from holdfast.terminal import wording
from tests.commands.conftest import Cli, until


def teach(store: str, *counts: tuple[str, float, float]) -> None:
    """Record durations as (name, seconds, how often)."""

    async def add() -> None:
        async with Holdfast(store, roles=[]) as hf:
            await hf.store.durations.add_durations(
                [(name, bucket_of(took), times) for name, took, times in counts]
            )

    asyncio.run(add())


@pytest.fixture
def under_way(cli: Cli) -> Cli:
    """A run that waits at the gate, on a store that knows how long others waited."""
    process = cli.start("run", "app.py:gated", "--id", "slow")
    until(lambda: "gate" in cli.effects(), process)
    store = cli.store.replace("sqlite:///holdfast.db", f"sqlite:///{cli.folder}/holdfast.db")
    teach(store, (rest_name("app.gated", "app.gate", 2), 1000.0, 20), (step_name("app.gate"), 1000.0, 50))
    return cli


def test_ps_show_and_watch_say_when_a_run_will_end(under_way: Cli) -> None:
    """Scripts get an object, people get a few words."""
    (row,) = under_way("ps", "--json").json
    assert 800 < row["eta"]["left_s"] <= row["eta"]["most_s"] < 1100
    assert row["eta"]["samples"] == 20
    assert row["eta"]["at"].endswith("Z")
    assert "left" in under_way("ps").out
    shown = under_way("show", "slow", "--json").json
    assert shown["eta"]["samples"] == 20
    assert [(step["straggler"], step["twin"]) for step in shown["steps"]] == [(False, None)] * 2
    assert "eta" in under_way("show", "slow").out
    watching = under_way.start("watch", "slow")
    under_way.open_gate()
    ended = under_way.end(watching)
    assert ended.code == 0
    (row,) = under_way("ps", "--json").json
    assert row["eta"] is None


def running(**more: object) -> StepRow:
    values = dict.fromkeys(StepRow.__struct_fields__) | {
        "run_id": "r", "n": 1, "key": "pay", "kind": StepKind.CALL, "name": "shop.pay", "state": StepState.RUNNING,
        "attempt": 1, "agent": "a", "started_at": 100.0, "issued_at": 100.0, "after_seq": 0, "losses": 0, "excused": 0,
    }  # fmt: skip
    return StepRow(**(values | more))  # type: ignore[arg-type]


def run_row() -> RunRow:
    values = dict.fromkeys(RunRow.__struct_fields__) | {"id": "r", "state": RunState.RUNNING, "kept_n": 0}
    return RunRow(**values)  # type: ignore[arg-type]


TWIN = Twin("r", 1, TwinState.RUNNING, "a", "b", 150.0, 152.0, None)
NODES = [NodeRow(name, f"host-{name}", 7, "agent", "{}", 1, 0.0, 1e9, None) for name in "ab"]


def test_why_names_a_straggler_and_its_twin() -> None:
    """It says how long such steps take, where the twin runs, and for how long."""
    facts = Facts(
        run_row(), [running()], [], [], NODES, [], 160.0, outlook=Outlook(None, {"shop.pay": 20.0}, {1: TWIN})
    )
    assert explain(facts) == (
        "Step pay has been running on host-a pid 7 for 60 s, attempt 1; that is longer than such steps usually take, "
        "which is at most 20 s; its twin has been running on host-b pid 7 for 8.0 s."
    )
    usual = facts._replace(outlook=Outlook(None, {"shop.pay": 90.0}, {}))
    assert explain(usual) == "Step pay has been running on host-a pid 7 for 60 s, attempt 1."


def test_a_live_view_marks_a_straggler_and_its_twin() -> None:
    """It does so in a few words, and says nothing about a step that has ended or takes its usual time."""
    outlook = Outlook(Eta(12.0, 30.0, 9), {"shop.pay": 20.0}, {1: TWIN})
    words = wording.taking_long(running(), outlook, 160.0)
    assert words == "longer than usual (at most 20 s) · its twin has been running for 8.0 s"
    assert wording.taking_long(running(started_at=150.0), outlook._replace(twins={}), 160.0) == ""
    done = running(state=StepState.SUCCEEDED, finished_at=159.0)
    assert wording.taking_long(done, outlook, 160.0) == ""
    assert wording.left(outlook.after(2.0).eta) == "about 10 s left"
    assert wording.left(outlook.after(99.0).eta) == "about 0 ms left"
    assert wording.left(None) == ""
