"""Processes that are killed, stopped and replaced under load, on both stores.

`HOLDFAST_CHAOS_S=60 pytest tests/chaos/test_processes.py -s` is the long version (`make chaos`); the suite does a short
one.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from tests.chaos.load import LEASE_S
from tests.chaos.world import SECONDS, SEED, outlasting, world


def named(scenario: str, url: str) -> str:
    return f"{scenario} {'sqlite' if url.startswith('sqlite') else 'postgresql'}"


async def test_killed_processes_lose_nothing(store_url: str, tmp_path: Path) -> None:
    """Processes get SIGKILL at random moments, again and again. Every run that was accepted succeeds, with one result
    per step."""
    dice = random.Random(SEED)
    async with world(named("kills", store_url), store_url, tmp_path) as it:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            await it.kill(dice.randrange(len(it.fleet)))
            await asyncio.sleep(dice.uniform(0.1, 0.8))
        await it.end_and_count()


async def test_rolling_restarts_lose_nothing(store_url: str, tmp_path: Path) -> None:
    """Nodes are drained and replaced one after the other. The restarts themselves cost no attempt: steps run twice only
    where a busy machine lost a lease."""
    async with world(named("rolling restarts", store_url), store_url, tmp_path) as it:
        until, number = time.monotonic() + SECONDS, 0
        while time.monotonic() < until:
            await it.restart(number % len(it.fleet))
            number += 1
            await asyncio.sleep(0.3)
        figures = await it.end_and_count()
        assert int(str(figures["executed more than once"])) <= int(str(figures["attempts lost"])), figures


async def test_a_stopped_process_starts_nothing_when_it_goes_on(store_url: str, tmp_path: Path) -> None:
    """A process gets SIGSTOP for three leases, then SIGCONT. The node that was stopped begins no step any more, and
    none of its results is accepted. Its process goes on as another node."""
    async with world(named("stops", store_url), store_url, tmp_path) as it:
        until, number = time.monotonic() + SECONDS, 0
        while True:
            process = it.fleet[number % len(it.fleet)]
            nodes = {line.node for line in it.lines() if line.pid == process.pid and line.node != "-"}
            stopped_at = time.time()
            await it.stop(number % len(it.fleet), outlasting())
            went_on_at = time.time()
            await it.until(await it.ended() + 10)
            late = it.began_between(nodes, stopped_at + LEASE_S, went_on_at + 60)
            assert late == [], f"{len(late)} steps began under a lease that had ended"
            number += 1
            if time.monotonic() >= until:
                break
        await it.end_and_count()
