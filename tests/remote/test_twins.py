"""Remote agents and twins: a hedged step that is slow at one of them gets a second attempt at another one, through a
server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from holdfast import Holdfast
from holdfast.model import StepState, TwinState
from tests.remote.conftest import Faults, Served, served, through
from tests.roles.conftest import until
from tests.roles.outside import effects
from tests.roles.test_hedge import QUICK, both_run, keys, sound, until_stored


class Hedging(NamedTuple):
    at: Served
    agents: list[Holdfast]
    faults: list[Faults]
    """The network before each agent."""
    lose: set[str]
    """The requests whose next reply gets lost."""

    @property
    def hf(self) -> Holdfast:
        return self.at.hf


@pytest.fixture
async def hedging(store_url: str) -> AsyncIterator[Hedging]:
    """A scheduler and a server, and two agents that reach them by HTTP alone."""
    lose: set[str] = set()

    def plan(request: httpx2.Request) -> str:
        part = request.url.path.rpartition("/")[2]
        if b'"twin":true' in request.content:
            part = "twin report"
        if part in lose:
            lose.discard(part)
            return "lose the reply"
        return ""

    async with AsyncExitStack() as stack:
        at = await stack.enter_async_context(served(store_url, ("scheduler", "supervisor", "server"), QUICK))
        faults = [Faults(plan) for _ in range(2)]
        agents = [
            await stack.enter_async_context(through(one, at.url, roles=["agent"], config=QUICK))
            for one in faults
        ]
        yield Hedging(at, agents, faults, lose)


async def test_the_twin_at_a_remote_agent_is_first(hedging: Hedging, tmp_path: Path) -> None:
    """The run gets the twin's result, and the step itself is stopped and recorded as outrun."""
    run = await both_run(hedging.hf, tmp_path)
    (tmp_path / "second").write_text("end")
    assert await run.result(60) == "second"
    await until(lambda: "first stopped" in effects(tmp_path))
    assert len(keys(tmp_path)) == 1
    view = await run.view()
    (outran,), (done,) = view.attempts, view.steps
    assert "twin" in str(outran.error)
    assert (done.state, done.attempt) == (StepState.SUCCEEDED, 1)
    (twin,) = await hedging.hf.store.twins.twins(run.id)
    assert (twin.state, twin.agent, twin.not_agent) == (TwinState.WON, done.agent, outran.agent)
    assert {twin.agent, twin.not_agent} == {one.node.id for one in hedging.agents}
    await sound(hedging.hf)


async def test_the_step_is_first_and_its_remote_twin_is_stopped(hedging: Hedging, tmp_path: Path) -> None:
    """The other agent hears that nobody needs its twin any more."""
    run = await both_run(hedging.hf, tmp_path)
    (tmp_path / "first").write_text("end")
    assert await run.result(60) == "first"
    await until(lambda: "second stopped" in effects(tmp_path))
    assert (await run.view()).attempts == []
    await sound(hedging.hf)


async def test_a_remote_twin_that_fails_costs_its_step_nothing(hedging: Hedging, tmp_path: Path) -> None:
    """The step goes on, and no attempt of it is spent."""
    run = await both_run(hedging.hf, tmp_path)
    (tmp_path / "second").write_text("fail")

    async def failed() -> bool:
        return [one.state for one in await hedging.hf.store.twins.twins(run.id)] == [TwinState.FAILED]

    await until_stored(failed)
    (tmp_path / "first").write_text("end")
    assert await run.result(60) == "first"
    assert (await run.view()).attempts == []


async def test_the_lost_reply_to_a_twin_s_report_does_no_harm(hedging: Hedging, tmp_path: Path) -> None:
    """It is sent again, and the server knows it."""
    run = await both_run(hedging.hf, tmp_path)
    hedging.lose.add("twin report")
    (tmp_path / "second").write_text("end")
    assert await run.result(60) == "second"
    await until(lambda: not hedging.lose)
    (twin,) = await hedging.hf.store.twins.twins(run.id)
    assert twin.state is TwinState.WON
