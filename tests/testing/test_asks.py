"""Questions to people in `sim`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import pytest

from holdfast import WorkflowError, ask, step, workflow
from holdfast.errors import Forbidden, InvalidInput, RunFailed, WrongState
from holdfast.model import AskState, RunState
from holdfast.testing import NotEnded, Sim


@dataclass
class Approval:
    ok: bool
    note: str = ""


@step
async def pay(cents: int) -> str:
    return f"paid {cents}"


@workflow
async def expense(cents: int) -> str:
    answers = await ask(
        "team:finance",
        "Pay it?",
        Approval,
        show={"cents": cents},
        of=2,
        not_by="starter",
        timeout=timedelta(days=2),
    )
    if not all(one.value.ok for one in answers):
        return "declined by " + ", ".join(one.by for one in answers if not one.value.ok)
    return await pay(cents)


@workflow
async def late() -> str:
    try:
        return str(await ask("person:anna", "There?", bool, timeout=timedelta(hours=1)))
    except TimeoutError:
        return "nobody"


@workflow
async def either() -> str:
    try:
        async with asyncio.timeout(60):
            return await ask("person:anna", "There?", str)
    except TimeoutError:
        return "withdrawn"


@workflow
async def parent(cents: int) -> str:
    return await expense(cents)


def test_two_people_answer_and_the_run_goes_on(sim: Sim) -> None:
    """The person who started the run is not one of them, nor one who started the run above it."""
    run = sim.start(parent.using(by="person:eva"), 900)
    (asked,) = sim.asks(who="team:finance")
    assert (asked.question, asked.of, bytes(asked.show)) == ("Pay it?", 2, b'{"cents":900}')
    child = sim.start(expense.using(by="person:eva"), 900)
    with pytest.raises(Forbidden):
        sim.answer(child, Approval(True), by="person:eva")
    with pytest.raises(InvalidInput, match="ok"):
        sim.answer(child, {"okay": True})
    assert sim.answer(child, Approval(True)).state is AskState.OPEN
    with pytest.raises(WrongState):
        sim.answer(child, Approval(False))
    with pytest.raises(NotEnded, match=r"sim\.answer"):
        child.result()
    sim.answer(child, Approval(True), by="person:bob")
    assert child.result() == "paid 900"
    with pytest.raises(NotEnded, match="asks nobody"):
        sim.answer(child, Approval(True), by="person:cy")
    assert run.state is RunState.RUNNING


def test_the_workflow_judges_what_the_answers_mean(sim: Sim) -> None:
    """It sees who answered what."""
    run = sim.start(expense.using(by="person:eva"), 900)
    sim.answer(run, Approval(True))
    sim.answer(run, Approval(False, "too much"), by="person:bob")
    assert run.result() == "declined by person:bob"


def test_nobody_answers_in_time(sim: Sim) -> None:
    """The wait ends with a TimeoutError, at its time."""
    run = sim.start(late)
    sim.advance(minutes=59)
    assert run.state is RunState.RUNNING
    sim.advance(minutes=2)
    assert run.result() == "nobody"
    assert sim.asks() == []


def test_a_question_that_the_code_gives_up_is_withdrawn(sim: Sim) -> None:
    """Nobody can answer it any more."""
    run = sim.start(either)
    (asked,) = sim.asks(run)
    sim.advance(minutes=2)
    assert run.result() == "withdrawn"
    assert sim.ask(lambda hf: hf.asks.get(asked.id)).state is AskState.WITHDRAWN
    with pytest.raises(WrongState, match="withdrawn"):
        sim.ask(lambda hf: hf.asks.answer(asked.id, "yes", by="person:anna"))


def test_a_cancelled_run_withdraws_its_questions(sim: Sim) -> None:
    """An answer to a run that has ended is refused."""
    run = sim.start(late)
    (asked,) = sim.asks(run)
    sim.cancel(run)
    assert run.state is RunState.CANCELLED
    with pytest.raises(WrongState, match="withdrawn"):
        sim.ask(lambda hf: hf.asks.answer(asked.id, True, by="person:anna"))


def test_four_eyes_need_to_know_the_first_two(sim: Sim) -> None:
    """If nobody has said who started the run, the run fails instead of guessing."""
    with pytest.raises(RunFailed, match="nobody has said who started"):
        sim.start(expense, 1).result()


def test_an_answer_survives_the_death_of_the_process(sim: Sim) -> None:
    """Between the answer and its delivery."""
    run = sim.start(late)
    (asked,) = sim.asks(run)
    sim.stage.ask(lambda hf: hf.asks.answer(asked.id, True, by="person:anna"))
    sim.kill_agent()
    assert run.result() == "True"


def test_ask_works_in_a_workflow_only() -> None:
    """And says so."""
    call = ask("person:anna", "There?", bool)
    with pytest.raises(WorkflowError, match="workflow only"):
        call.send(None)
