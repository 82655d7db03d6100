"""Calls that look like something else than they are: each works, or says the way."""

from __future__ import annotations

import logging
import threading
import warnings
from typing import Any

import pytest

from holdfast import Holdfast, HoldfastWarning
from holdfast.errors import DefinitionError, RunFailed
from holdfast.scheduler.block_watch import BlockWatch
from holdfast.testing import Sim
from holdfast.workflow.workflow import Workflow
from tests.roles import dead_ends as flows


async def test_steps_in_a_step_have_keys_of_their_own(hf: Holdfast) -> None:
    """Two calls are two effects, the same at every attempt, and different from the outer step's."""
    flows.keys.clear()
    run = await hf.start(flows.calls_steps_in_a_step)
    (own,) = await run.result(60)
    labels = ("send", "send#2", "send#3", "write", "send#4", "send#5")
    expected = [f"{own}/{label}" for label in labels]
    assert sorted(flows.keys[:6]) == sorted(expected)
    assert sorted(flows.keys[6:]) == sorted(expected)


DEAD_ENDS: dict[str, tuple[Workflow[[], Any], str]] = {
    "a workflow in a step": (flows.calls_a_workflow_in_a_step, r"was called in a step.*`await hf.start\(other, …\)`"),
    "start in a workflow": (flows.starts, "call the other workflow directly"),
    "wait in a workflow": (flows.waits, "call the other workflow directly"),
    "open in a workflow": (flows.opens, "a workflow cannot open a Holdfast"),
    "a generator": (flows.passes_a_generator, "a generator cannot be stored: pass a list of what it yields"),
    "a step": (flows.passes_a_step, "a Step cannot be stored: pass its name"),
    "a key that is no text": (flows.publishes_under_a_number, r"publish\(\): the key: expected text, not a int"),
    "a coroutine": (flows.passes_a_coroutine, "a coroutine cannot be stored: await it first"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("case", DEAD_ENDS)
async def test_a_dead_end_says_the_way(hf: Holdfast, case: str) -> None:
    """The error names what was called where, and what to write instead."""
    flow, words = DEAD_ENDS[case]
    flows.opened["hf"] = hf
    with pytest.raises(RunFailed, match=words):
        await (await hf.start(flow)).result(60)


STARTED: dict[str, tuple[Any, str]] = {
    "a step": (flows.send, "this is the step send: call it in a workflow, and start that"),
    "the bare function": (flows.other.fn, r"pass the workflow tests\.roles\.dead_ends\.other itself"),
    "a function": (lambda: None, "put @workflow on it"),
    "a text": ("app.order", r"`holdfast start FILE:NAME`"),
    "a number": (7, "this is a int: pass a function that has @workflow"),
}


@pytest.mark.parametrize("case", STARTED)
async def test_only_a_workflow_can_be_started(hf: Holdfast, sim: Sim, case: str) -> None:
    """The error names what was passed, and what to pass instead; the same in a test."""
    given, words = STARTED[case]
    with pytest.raises(DefinitionError, match=words):
        await hf.start(given)
    with pytest.raises(DefinitionError, match=words):
        sim.start(given)


async def test_a_call_is_no_workflow(hf: Holdfast) -> None:
    """The call is closed, so Python does not warn that nobody awaited it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DefinitionError, match="pass the workflow and its arguments apart"):
            await hf.start(flows.other(1))  # type: ignore[arg-type]


async def test_a_workflow_called_like_a_function_warns_beside_an_open_holdfast(hf: Holdfast) -> None:
    """It works, as in a unit test, and says that nothing of it is recorded."""
    with pytest.warns(HoldfastWarning, match=r"called like a function.*`await hf.start\(other, …\)`"):
        assert await flows.other(1) == 1
    assert await flows.other.fn(2) == 2


async def test_code_that_blocks_the_scheduler_is_named(
    hf: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says which run, which workflow and which line."""
    watch = BlockWatch(0.1)  # the node's own looks once a second
    try:
        with caplog.at_level(logging.WARNING, "holdfast.scheduler"):
            run = await hf.start(flows.blocks.using(id="blocker"))
            await run.result(60)
    finally:
        watch.stop()
    (message,) = [one.getMessage() for one in caplog.records if "without waiting" in one.getMessage()]
    assert "run blocker of tests.roles.dead_ends.blocks" in message
    assert "dead_ends.py:" in message


async def test_the_watch_ends_with_its_node(store_url: str) -> None:
    """No thread is left behind."""

    def watches() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "holdfast-blocking-watch"}

    before = watches()
    async with Holdfast(store_url):
        (made,) = watches() - before
    made.join(10)
    assert not made.is_alive()
