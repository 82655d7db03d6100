"""Limits while agents are killed, on both stores, by what a ledger outside says.

`HOLDFAST_CHAOS_S=300 pytest tests/chaos/test_limits.py -s` is the long version, with eight agents (`make chaos`); the suite
does a short one with three.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import psycopg
import pytest

from holdfast import Holdfast
from holdfast.run import Run
from tests.chaos import limited
from tests.chaos.fleet import Fleet
from tests.chaos.load import CONFIG
from tests.chaos.world import END_S, SECONDS, SEED, publish

AGENTS = 8 if SECONDS >= 20 else 3
FULL_AGENTS = 8
KILL_EVERY_S = 0.5
LOOK_S = 0.02
STEPS = 60


def fleet_of(url: str, ledger: Path, agents: int) -> Fleet:
    """Every second process has no heart, as if its host were gone with it: only its lease shows that it is dead. Every fourth
    one is a scheduler, too, so that runs are lost as well."""

    def command(number: int) -> list[str]:
        roles = "scheduler,agent" if number % 4 == 1 else "agent"
        heart = "heart" if number % 2 else "none"
        return ["tests.chaos.limited", url, str(ledger), roles, heart]

    return Fleet(ledger, *(command(number) for number in range(agents)))


@pytest.mark.timeout(SECONDS + 3 * END_S)
async def test_killed_agents_never_pass_a_limit_and_leak_none_of_it(store_url: str, tmp_path: Path) -> None:
    """While agents get SIGKILL twice a second, neither the store nor the ledger ever has more at work than a limit allows: for
    a limit alone, with weights, three at once, and for runs. After the last kill the limit is full again, every run ends,
    and all places are free."""
    dice, seen, looks, ledger = random.Random(SEED), Counter[str](), 0, tmp_path / "ledger"
    async with Holdfast(store_url, roles=("scheduler", "supervisor"), config=CONFIG) as hf:
        runs: list[Run[int]] = []
        singles: list[Run[None]] = []

        async def look() -> bool:
            """Look at all limits, and see that there is something to do. Return whether the first one is full."""
            nonlocal looks
            looks += 1
            found = {one.key: one for one in await hf.limits.list()}
            for one in found.values():
                assert one.used <= one.most, f"{one.used} of {one.most} under {one.key}"
                seen[one.key] = max(seen[one.key], one.used)
            if "five" not in found or not (await hf.limits.show("five")).waiters:
                runs.append(await hf.start(limited.many, str(ledger), STEPS))
            if "open" not in found or not (await hf.limits.show("open")).waiters:
                singles.extend([await hf.start(limited.one_of_two, str(ledger)) for _ in range(4)])
            # A step that takes two places may not fit into the last one.
            return "five" in found and found["five"].used >= limited.MOST["five"] - 1

        with fleet_of(store_url, ledger, AGENTS) as fleet:
            await _until(look)
            until, kill_at = time.monotonic() + SECONDS, time.monotonic()
            while time.monotonic() < until:
                await look()
                if time.monotonic() >= kill_at:
                    kill_at += KILL_EVERY_S
                    fleet.kill(dice.randrange(AGENTS))
                await asyncio.sleep(LOOK_S)
            killed_at = time.time()
            runs.append(await hf.start(limited.many, str(ledger), STEPS))
            await _until(look)
            for run in runs:
                assert await run.result(END_S) == sum(range(STEPS))
            for single in singles:
                await single.result(END_S)
            assert {one.key: one.used for one in await hf.limits.list()} == dict.fromkeys(limited.MOST, 0)
            fleet.demand_alive()
    most, full_at, begun = Counter[str](), 0.0, 0
    for at, used in limited.replayed(ledger.read_text().splitlines()):
        begun += 1
        for key, number in used.items():
            assert number <= limited.MOST[key], f"{number} of {limited.MOST[key]} at once under {key}"
            most[key] = max(most[key], number)
        if not full_at and at > killed_at and used["five"] >= limited.MOST["five"] - 1:
            full_at = at
    assert most["five"] == seen["five"] == limited.MOST["five"]
    assert most["open"] == limited.MOST["open"]
    assert full_at
    figures = {
        "agents": AGENTS,
        "kills": fleet.kills,
        "looks": looks,
        "lines": begun,
        "runs": len(runs) + len(singles),
        "most": dict(most),
        "full_again_s": round(full_at - killed_at, 2),
    }
    kind = store_url.partition(":")[0]
    print(f"\nlimits {kind}: {figures}")
    publish(f"limits {kind}", figures)


@pytest.mark.timeout(SECONDS + 3 * END_S)
async def test_a_limit_that_is_always_full_is_never_passed(store_url: str, tmp_path: Path) -> None:
    """Eight agents want more than a limit of 5 allows all the time, and get SIGKILL twice a second. No snapshot of the rows has
    six that run: so what a killed process left counts until it is reclaimed. Nor does the ledger, which counts what lives. The
    limit is full nearly all the time, and free when all have ended."""
    dice, rows, ledger = random.Random(SEED), Counter[int](), tmp_path / "ledger"
    async with Holdfast(store_url, roles=("scheduler", "supervisor"), config=CONFIG) as hf:
        runs: list[Run[int]] = []

        async def more() -> None:
            if len((await hf.limits.show("steady")).waiters) < STEPS // 2:
                runs.append(await hf.start(limited.crowd, str(ledger), STEPS))

        async def used() -> int:
            return sum(one.used for one in await hf.limits.list())

        async def is_full() -> bool:
            return await used() == limited.STEADY

        runs.append(await hf.start(limited.crowd, str(ledger), STEPS))
        with counted(store_url) as running, fleet_of(store_url, ledger, FULL_AGENTS) as fleet:
            await _until(is_full)
            until, kill_at, begun_at = time.monotonic() + SECONDS, time.monotonic(), time.time()
            while time.monotonic() < until:
                rows[running()] += 1
                await more()
                if time.monotonic() >= kill_at:
                    kill_at += KILL_EVERY_S
                    fleet.kill(dice.randrange(FULL_AGENTS))
                await asyncio.sleep(LOOK_S)
            ended_at = time.time()
            for run in runs:
                assert await run.result(END_S + SECONDS) == sum(range(STEPS))
            fleet.demand_alive()
            assert running() == 0
            assert await used() == 0
    lines = ledger.read_text().splitlines()
    most = max(used["steady"] for _, used in limited.replayed(lines))
    share = rows[limited.STEADY] / rows.total()
    figures = {
        "agents": FULL_AGENTS,
        "kills": fleet.kills,
        "snapshots": rows.total(),
        "most in a snapshot": max(rows),
        "full in a snapshot": round(share, 3),
        "most in the ledger": most,
        "full in the ledger": round(_full_share(lines, begun_at, ended_at), 3),
        "begun": sum(line.startswith("began") for line in lines),
        "steps": STEPS * len(runs),
    }
    kind = store_url.partition(":")[0]
    print(f"\nfull limit {kind}: {figures}")
    publish(f"full limit {kind}", figures)
    assert max(rows) == most == limited.STEADY, figures
    assert share > 0.5, figures


@contextmanager
def counted(url: str) -> Iterator[Callable[[], int]]:
    """Return what counts the steps that run under the limit that is always full, by their rows alone, beside the product."""
    steps = "SELECT count(*) FROM {0}steps s JOIN {0}limits l ON l.id = s.limit_a AND l.name = 'steady' WHERE s.state = 'running'"
    if url.startswith("sqlite:"):
        with closing(apsw.Connection(url.removeprefix("sqlite:///"))) as file:
            file.set_busy_timeout(60_000)
            yield lambda: int(str(file.execute(steps.format("")).fetchall()[0][0]))
    else:
        with psycopg.connect(url, autocommit=True) as session:
            yield lambda: session.execute(steps.format("holdfast.").encode()).fetchall()[0][0]


def _full_share(lines: list[str], since: float, until: float) -> float:
    """Return for which share of this time the limit was full by the ledger, which has nothing of what was killed."""
    full_s, at, is_full = 0.0, since, False
    for next_at, used in limited.replayed(lines):
        if since < next_at < until:
            full_s += (next_at - at) * is_full
            at, is_full = next_at, used["steady"] == limited.STEADY
    return full_s / (until - since)


async def _until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(END_S):
        while not await true():  # noqa: ASYNC110  rows in the store
            await asyncio.sleep(LOOK_S)
