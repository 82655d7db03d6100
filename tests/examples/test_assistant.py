"""A model loop: every turn is durable, and what it did is undone if it gives up."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.assistant import OWNER, assist, reserve, search, think
from holdfast.errors import RunFailed
from holdfast.testing.sim import Sim


def test_it_asks_before_it_spends_and_answers(sim: Sim, tmp_path: Path) -> None:
    run = sim.start(assist, "two", str(tmp_path))
    (asked,) = sim.asks(run)
    assert asked.question == "reserve a table for two for 200?"
    assert list(tmp_path.iterdir()) == []
    sim.answer(run, True, by=OWNER)
    assert run.result() == "You have a table for two."
    assert [file.read_text() for file in tmp_path.iterdir()] == ["a table for two"]


def test_a_no_ends_it_and_nothing_is_left(sim: Sim, tmp_path: Path) -> None:
    run = sim.start(assist, "two", str(tmp_path))
    sim.answer(run, False, by=OWNER)
    with pytest.raises(RunFailed, match="the owner said no"):
        run.result()
    assert list(tmp_path.iterdir()) == []


def test_a_loop_that_finds_no_end_is_stopped(sim: Sim, tmp_path: Path) -> None:
    run = sim.start(assist, "a yacht", str(tmp_path))
    with pytest.raises(RunFailed, match="25 turns, and no answer"):
        run.result()


def test_no_crash_reserves_twice_or_leaves_anything(sim: Sim, tmp_path: Path) -> None:
    """Wherever a process dies, the run ends as without the crash. Only a turn that was not recorded is thought again."""
    sim = sim.using(idempotent=[think, search])
    report = sim.crash_everywhere(assist, "two", str(tmp_path), free_below=1000)
    assert report.ok, report
    assert report.effects(reserve) == {1}
