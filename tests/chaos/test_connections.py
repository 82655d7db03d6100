"""Every connection to PostgreSQL is cut again and again while runs go on: nothing is lost, nothing is recorded twice."""

from __future__ import annotations

import asyncio
import gc
import os
import random
from collections import Counter

import asyncpg
import pytest

from holdfast import Holdfast, here, step, workflow
from holdfast.config import Config

CUTS = int(os.environ.get("HOLDFAST_CUTS", "8"))
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))

effects: Counter[str] = Counter()


@step
async def count(i: int) -> int:
    effects[here.key] += 1
    await asyncio.sleep(0.002)
    return i


@workflow
async def ten(i: int) -> int:
    total = 0
    for k in range(10):
        total += await count(k)
    return total


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_cut_connections_lose_nothing(pg_url: str) -> None:
    """All backends of the database are terminated at random moments. Every run ends with its result, and a step that
    the store recorded is not executed again."""
    dice = random.Random(SEED)
    config = Config(lease_s=30.0, renew_s=0.5, poll_s=0.2, sweep_s=0.1, start_s=60.0)
    done: list[int] = []
    async with Holdfast(pg_url, config=config) as hf, Holdfast(pg_url, config=config) as other:
        stop = asyncio.Event()

        async def load(client: Holdfast, lane: int) -> None:
            number = 0
            while not stop.is_set():
                number += 1
                run_id = f"{lane}-{number}"
                while True:
                    try:
                        run = await client.start(ten.using(id=run_id), number)
                        done.append(await run.result(60))
                        break
                    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                        await asyncio.sleep(0.05)

        lanes = [asyncio.create_task(load(client, lane)) for lane, client in enumerate([hf, other] * 10)]
        for _ in range(CUTS):
            await asyncio.sleep(dice.uniform(0.2, 0.6))
            knife = await asyncpg.connect(pg_url)
            await knife.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            await knife.close()
        stop.set()
        async with asyncio.timeout(90):
            await asyncio.gather(*lanes)
        states = await hf.store.reads.runs_by_state()
        assert set(states) == {"succeeded"}, states
        assert [name for name, _, broken in await hf.store.reads.doctor() if broken] == []
    gc.collect()  # the driver cannot close connections that were cut: let it warn here
    assert set(done) == {45}
    again = sum(times - 1 for times in effects.values())
    print(
        f"{CUTS} cuts, seed {SEED}: {len(done)} runs, {len(effects)} steps, {again} executed more than once"
    )
