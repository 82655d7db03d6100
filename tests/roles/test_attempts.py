"""Two attempts of one step at one agent: the Supervisor reclaimed the first, and the same agent claimed the step
again."""

from __future__ import annotations

import asyncio

from holdfast import Holdfast, Retry, here, step, workflow
from holdfast.config import Config
from tests.roles.conftest import until
from tests.store.conftest import run_sql

CONFIG = Config(poll_s=0.05, sweep_s=0.05, beat_s=3600, timeout_grace_s=0.0, steps_max=2, stop_grace_s=0.0)
"""The agent does not ask by itself what it still has: it notices the first attempt's end when it claims the second."""
PAST = {"sqlite": "1", "postgres": "to_timestamp(1)"}

began: list[int] = []
may_end: dict[int, asyncio.Event] = {}


@step(retry=Retry(attempts=5, delay=0.01))
async def stubborn() -> int:
    """The first attempt goes on although it is asked to stop."""
    attempt = here.attempt
    began.append(attempt)
    while not may_end[attempt].is_set():
        try:
            await may_end[attempt].wait()
        except asyncio.CancelledError:
            if attempt > 1:
                raise
    return attempt


@workflow
async def around_stubborn() -> int:
    return await stubborn()


async def test_a_later_attempt_at_the_same_agent_is_the_one_that_counts(store_url: str) -> None:
    """The end of the reclaimed attempt takes nothing from the later one, and both free their places."""
    began.clear()
    may_end.update({n: asyncio.Event() for n in range(1, 6)})
    async with Holdfast(store_url, config=CONFIG) as hf:
        run = await hf.start(around_stubborn)
        agent = hf.node.agent
        assert agent is not None
        await until(lambda: began == [1])
        past = PAST["sqlite" if store_url.startswith("sqlite") else "postgres"]
        run_sql(store_url, f"UPDATE steps SET complete_by = {past} WHERE state = 'running'")
        await until(lambda: began == [1, 2])
        assert agent.places.full == 1.0
        may_end[1].set()
        await until(lambda: agent.places.full == 0.5)
        assert (await run.steps())[0].state == "running"
        may_end[2].set()
        assert await run.result(60) == 2
        assert began == [1, 2]
        assert agent.places.full == 0.0
