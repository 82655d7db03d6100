"""Expense approval: two people who are not the one who wants the money."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.expense import Approval, Decision, Expense, reimburse
from holdfast.errors import Forbidden
from holdfast.testing.sim import Sim

TRAIN = Expense("eva", 48_000, "train")


def test_two_others_approve_and_the_lowest_cap_counts(sim: Sim, tmp_path: Path) -> None:
    """The one who started it cannot approve it."""
    run = sim.start(reimburse.using(by="person:eva"), TRAIN, str(tmp_path))
    with pytest.raises(Forbidden):
        sim.answer(run, Approval(True), by="person:eva")
    sim.answer(run, Approval(True), by="person:anna")
    assert list(tmp_path.iterdir()) == []
    sim.answer(run, Approval(True, cap_cents=40_000), by="person:bob")
    assert run.result() == Decision(40_000, "approved by person:anna, person:bob")
    assert [file.read_text() for file in tmp_path.iterdir()] == ["eva 40000\n"]


def test_one_no_is_a_no(sim: Sim, tmp_path: Path) -> None:
    """Nothing is paid."""
    run = sim.start(reimburse.using(by="person:eva"), TRAIN, str(tmp_path))
    sim.answer(run, Approval(False), by="person:anna")
    sim.answer(run, Approval(True), by="person:bob")
    assert run.result() == Decision(0, "declined by person:anna")


def test_after_a_day_the_head_may_answer_and_after_three_it_is_over(sim: Sim, tmp_path: Path) -> None:
    """Nobody is removed when somebody is added."""
    run = sim.start(reimburse.using(by="person:eva"), TRAIN, str(tmp_path))
    sim.advance(days=1, minutes=1)
    (asked,) = sim.asks(run)
    assert [one.who for one in asked.who] == ["team:finance", "person:head-of-finance"]
    sim.advance(days=2)
    assert run.result() == Decision(0, "nobody had the time to look at it")
