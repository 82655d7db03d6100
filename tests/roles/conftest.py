from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from holdfast import Holdfast
from holdfast.config import Config
from tests.roles import flows

FAST = Config(poll_s=0.05, sweep_s=0.05, renew_s=0.3, beat_s=0.05, park_after_s=0.2, heart=False)
"""Short intervals for what only runs as a safety net. Tests need it to run, and need not wait long for it. No process
stands beside each node: starting a thousand of them takes as long as a third of the tests. What a heart does is claimed in
`test_heart.py`, `test_recovery.py` and `test_quarantine.py`, and by all processes that tests start."""


@pytest.fixture(autouse=True)
def clean_effects() -> None:
    flows.effects.clear()
    flows.keys.clear()
    flows.gates.clear()


@pytest.fixture
async def hf(store_url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(store_url, config=FAST) as holdfast:
        yield holdfast


async def until(true: Callable[[], bool], limit_s: float = 60.0) -> None:
    """Wait until a condition of this process is true, with a deadline instead of a guess. The deadline is for what never
    happens, so it is far longer than what happens takes on a busy machine."""
    async with asyncio.timeout(limit_s):
        while not true():  # noqa: ASYNC110  a condition outside this loop gives no event
            await asyncio.sleep(0.005)
