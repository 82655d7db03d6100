"""Limits while agents are killed, on both stores.

`HOLDFAST_CHAOS_S=300 pytest tests/chaos/test_limits.py` is the long version, with eight agents; the suite does a short one
with three.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Awaitable, Callable

from holdfast import Holdfast
from tests.chaos import limited
from tests.chaos.load import CONFIG
from tests.chaos.world import END_S, SECONDS, SEED, publish

AGENTS = 8 if SECONDS >= 20 else 3
KILL_EVERY_S = 0.5
STEPS = 60


async def spawn(url: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.chaos.limited", url, stderr=asyncio.subprocess.DEVNULL
    )


async def test_killed_agents_never_pass_a_limit_and_leak_none_of_it(store_url: str) -> None:
    """While agents get SIGKILL twice a second, no look ever finds more in use than a limit allows, for a limit alone, with
    weights, and three at once. After the last kill the limit is full again, and every run ends."""
    dice, seen, looks = random.Random(SEED), dict[str, int](), 0
    async with Holdfast(store_url, roles=("scheduler", "supervisor"), config=CONFIG) as hf:
        runs = [await hf.start(limited.many, STEPS)]
        fleet = [await spawn(store_url) for _ in range(AGENTS)]
        try:

            async def look() -> bool:
                nonlocal looks
                looks += 1
                for one in await hf.limits.list():
                    assert one.used <= one.most, f"{one.used} of {one.most} under {one.key}"
                    seen[one.key] = max(seen.get(one.key, 0), one.used)
                return await _is_full(hf)

            await _until(look)
            until, kill_at = time.monotonic() + SECONDS, time.monotonic()
            while time.monotonic() < until:
                await look()
                if time.monotonic() >= kill_at:
                    number, kill_at = dice.randrange(AGENTS), kill_at + KILL_EVERY_S
                    fleet[number].kill()
                    await fleet[number].wait()
                    fleet[number] = await spawn(store_url)
                if (await hf.limits.show("five")).waiters == []:
                    runs.append(await hf.start(limited.many, STEPS))
                await asyncio.sleep(0.005)
            runs.append(await hf.start(limited.many, STEPS))
            killed_at = time.monotonic()
            await _until(look)
            full_s = time.monotonic() - killed_at
            for run in runs:
                assert await run.result(END_S) == sum(range(STEPS))
            assert all(one.used == 0 for one in await hf.limits.list())
        finally:
            for process in fleet:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
    assert seen["five"] == limited.MOST
    publish("limits", {"agents": AGENTS, "looks": looks, "runs": len(runs), "full_again_s": round(full_s, 2)})


async def _is_full(hf: Holdfast) -> bool:
    """True if the limit has no room for another one, or nothing waits for it."""
    found = [one for one in await hf.limits.list() if one.key == "five"]
    return bool(found) and found[0].used >= limited.MOST - 1


async def _until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(END_S):
        while not await true():  # noqa: ASYNC110  rows in the store
            await asyncio.sleep(0.005)
