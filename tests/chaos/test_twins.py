"""kill -9 of processes at random moments while a third of all steps straggle and get twins.

`HOLDFAST_KILLS=50 pytest tests/chaos/test_twins.py` is the long version (`make chaos`); the suite does a few.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.durations import step_name
from holdfast.model import StepState
from tests.roles import stragglers
from tests.roles.outside import effects

KILLS = int(os.environ.get("HOLDFAST_KILLS", "6"))
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
NAME = step_name(stragglers.traced.name)
NODES = 3
IN_FLIGHT = 10
STRAGGLE_S = 2.0


async def node(url: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.roles.stragglers",
        url,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "HOLDFAST_STRAGGLERS": "0.3"},
    )


@pytest.mark.timeout(300 + 20 * KILLS)
async def test_whatever_dies_a_step_with_a_twin_has_one_outcome(store_url: str, tmp_path: Path) -> None:
    """Every run succeeds. The result that its code got is the one in its rows. A step has one key, however often it
    ran."""
    dice, folder = random.Random(SEED), str(tmp_path)
    nodes = [await node(store_url) for _ in range(NODES)]
    outcomes: dict[str, list[str]] = {}
    killing = True
    try:
        async with Holdfast(store_url, roles=[]) as caller:

            async def lane(number: int) -> None:
                turn = 0
                while killing or turn == 0:
                    run = await caller.start(stragglers.traced_run, folder, f"{number}.{turn}", STRAGGLE_S)
                    outcomes[run.id] = await run.result(120)
                    turn += 1

            lanes = asyncio.gather(*(lane(number) for number in range(IN_FLIGHT)))
            while sum(count for _, _, count in await caller.store.durations.durations([NAME])) < 30:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            for _ in range(KILLS):
                await asyncio.sleep(dice.uniform(0.5, 2.5))
                victim = dice.randrange(NODES)
                nodes[victim].kill()
                await nodes[victim].wait()
                nodes[victim] = await node(store_url)
            killing = False
            await lanes
            twins: Counter[str] = Counter()
            for run_id, given in outcomes.items():
                steps = await caller.store.reads.steps(run_id)
                assert [step.state for step in steps] == [StepState.SUCCEEDED] * 3
                assert [json.loads(step.output or b"") for step in steps] == given
                twins.update(str(twin.state) for twin in await caller.store.twins.twins(run_id))
            keys = Counter(line.rpartition(" ")[2] for line in effects(folder))
            assert len(keys) == 3 * len(outcomes)
            assert {name for name, _, rows in await caller.store.reads.doctor() if rows} == set()
            print(
                f"\n{store_url.partition(':')[0]}: {KILLS} kills, {len(outcomes)} runs, {len(keys)} steps, "
                f"{sum(keys.values())} executions, twins {dict(twins)}, seed {SEED}"
            )
    finally:
        for process in nodes:
            if process.returncode is None:
                process.kill()
            await process.wait()
