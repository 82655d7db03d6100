"""Exhaustively: a crash before and after every effect and every write, with an application failure at every step.

After each crash, the outside ledger is complete or fully undone, and what was undone was undone in reverse order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.config import Config
from tests.roles import undo_flows
from tests.roles.crash import through

CONFIG = Config(poll_s=0.05, sweep_s=0.02, beat_s=0.05, heart=False)
numbers = itertools.count()

TRIP = ["flight", "hotel", "car", "confirm"]
TRANSFER = ["withdraw", "deposit", "confirm"]


def begin_trip(run_id: str) -> Callable[[Holdfast], Any]:
    return lambda hf: hf.start(undo_flows.trip.using(id=run_id), run_id)


def begin_transfer(run_id: str) -> Callable[[Holdfast], Any]:
    return lambda hf: hf.start(undo_flows.transfer.using(id=run_id), 250)


@pytest.mark.parametrize(
    ("steps", "begin", "failing"),
    [(TRIP, begin_trip, name) for name in [*TRIP, None]]
    + [(TRANSFER, begin_transfer, name) for name in [*TRANSFER, None]],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_crash_anywhere_leaves_all_or_nothing(
    store_url: str, steps: list[str], begin: Callable[[str], Any], failing: str | None
) -> None:
    """Whichever point the process dies at, the run ends as it would have, and the ledger shows all of it or none."""
    crash_at: int | None = None
    points = 0
    while crash_at is None or crash_at <= points:
        undo_flows.ledger.clear()
        undo_flows.log.clear()
        undo_flows.fail = {failing} if failing else set()
        run_id = f"run-{next(numbers)}"
        passed, state = await through(store_url, CONFIG, begin(run_id), crash_at, run_id)
        where = passed.passed[-1] if crash_at else "nowhere"
        before = steps[: steps.index(failing)] if failing else []
        if failing is None:
            assert state == "succeeded", where
        elif before:
            assert state == "undone", where
        else:  # the node that died may have begun the refused step itself: then it is undone, to be sure
            assert state in ({"failed", "undone"} if crash_at else {"failed"}), where
        done = [entry.removeprefix("do ") for entry in undo_flows.log if entry.startswith("do ")]
        undone = [entry.removeprefix("undo ") for entry in undo_flows.log if entry.startswith("undo ")]
        if failing is None:
            assert (done, undone) == (steps, []), where
        else:
            assert done == before, where
            assert undone == [name for name in reversed(before) if name != "confirm"], where
        if crash_at is None:
            points = len(passed.passed)
            assert points > 4
        crash_at = 1 if crash_at is None else crash_at + 1
