"""One trace from the caller through the run to each attempt."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from examples.traced import drawn, order, put_back, reserve
from holdfast.testing.sim import Sim

PROGRAM = Path(__file__).parents[2] / "examples/traced.py"

ANCHOR = """\
POST /orders anchor
  start traced.order
    run traced.order succeeded
    traced.reserve failed
      ask the warehouse
    traced.reserve succeeded
      ask the warehouse
    run traced.delivery succeeded
    traced.ship succeeded
"""
UNICORN = """\
POST /orders unicorn
  start traced.order
    run traced.order undone
    traced.reserve failed
      ask the warehouse
    traced.reserve succeeded
      ask the warehouse
    run traced.delivery failed
    traced.ship failed
    traced.put_back succeeded
"""


def test_the_program_draws_both_orders(tmp_path: Path) -> None:
    """Each is one trace: the retry, the child run and the undo are in it."""
    spans = tmp_path / "spans.jsonl"
    ended = subprocess.run(
        [sys.executable, PROGRAM, spans],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert ANCHOR + UNICORN in ended.stdout
    lines = spans.read_text().splitlines()
    assert len({json.loads(line)["context"]["trace_id"] for line in lines}) == 2
    assert drawn(lines) in ended.stdout


def test_without_traces_it_is_an_order_like_any_other(sim: Sim) -> None:
    run = sim.start(order, "anchor")
    sim.advance(hours=1)
    assert run.result() == "parcel with anchor"
    assert len(sim.calls(reserve)) == 2
    assert not sim.calls(put_back)
