"""Rates with agents in processes of their own, on both stores, by when a ledger outside says that steps began.

`HOLDFAST_CHAOS_S=300 pytest tests/chaos/test_rates.py -s` is the long version, also with a hundred a minute (`make chaos`); the
suite does a short one with twenty a second.
"""

from __future__ import annotations

import asyncio
import random
import time
from itertools import pairwise
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.model import Attempt, StepRow
from tests.chaos import limited
from tests.chaos.load import CONFIG
from tests.chaos.test_limits import KILL_EVERY_S, fleet_of
from tests.chaos.world import END_S, SECONDS, SEED, publish

AGENTS = 4
RATES = [(limited.BRISK, limited.BRISK_PER_S), (limited.MINUTE, limited.MINUTE_PER_S)][
    : 2 if SECONDS >= 20 else 1
]


@pytest.mark.timeout(4 * SECONDS + 3 * END_S)
async def test_no_window_has_more_than_a_rate_and_its_burst(store_url: str, tmp_path: Path) -> None:
    """Four agents, which get SIGKILL for the first half of the time, always have something to do. No window has more begins
    than the rate and one burst. While nobody is killed, no window has fewer than the rate, by what was late."""
    dice, ledger, kind = random.Random(SEED), tmp_path / "ledger", store_url.partition(":")[0]
    ledger.touch()
    async with Holdfast(store_url, roles=("scheduler", "supervisor"), config=CONFIG) as hf:
        with fleet_of(store_url, ledger, AGENTS) as fleet:
            numbers = [int(rate.most / per_s * SECONDS) + rate.burst for rate, per_s in RATES]
            runs = [
                await hf.start(limited.paced, str(ledger), rate.key, number)
                for (rate, _), number in zip(RATES, numbers, strict=True)
            ]
            async with asyncio.timeout(END_S):
                while "began" not in ledger.read_text():  # noqa: ASYNC110  lines of other processes
                    await asyncio.sleep(0.02)
            until = time.monotonic() + SECONDS / 2
            while time.monotonic() < until:
                fleet.kill(dice.randrange(AGENTS))
                await asyncio.sleep(KILL_EVERY_S)
            calm_at = time.time() + 2 * CONFIG.lease_s
            for run, number in zip(runs, numbers, strict=True):
                assert await run.result(END_S + 2 * SECONDS) == sum(range(number))
            fleet.demand_alive()
            late_s = await _latest(hf, [run.id for run in runs], ledger.read_text().splitlines())
    for (rate, per_s), number in zip(RATES, numbers, strict=True):
        begun, gap_s = begins(ledger, rate.key), per_s / rate.most
        assert len(begun) >= number
        fullest = max(_within(begun, per_s))
        assert fullest <= rate.most + rate.burst + late_s / gap_s, (
            f"{fullest} in {per_s} s, {late_s:.3f} s late"
        )
        _demand_tokens(begun, gap_s, rate.burst, late_s)
        calm = [at for at in begun if at > calm_at]
        emptiest = min(_within(calm, per_s)[: _whole(calm, per_s)], default=None)
        stall_s = max((after - at for at, after in pairwise(calm)), default=gap_s) - gap_s
        if emptiest is not None and stall_s < rate.burst * gap_s:  # so no token was lost
            assert emptiest >= rate.most - 1 - max(stall_s, 0.0) / gap_s, f"{emptiest} in {per_s} s"
        figures = {
            "agents": AGENTS,
            "kills": fleet.kills,
            "begun": len(begun),
            "allowed": rate.most + rate.burst,
            "fullest window": fullest,
            "emptiest window": emptiest,
            "late_s": round(late_s, 3),
            "stall_s": round(stall_s, 3),
        }
        print(f"\nrate {rate.key} {kind}: {figures}")
        publish(f"rate {rate.key} {kind}", figures)


def begins(ledger: Path, key: str) -> list[float]:
    """Return when steps under this rate began."""
    lines = [line.split() for line in ledger.read_text().splitlines()]
    return sorted(float(at) for what, _, _, under, at in lines if what == "began" and under == f"{key}=1")


def _within(begun: list[float], span_s: float) -> list[int]:
    """Return for each begin how many there are in the time from it on."""
    counts, end = [], 0
    for first, at in enumerate(begun):
        while end < len(begun) and begun[end] <= at + span_s:
            end += 1
        counts.append(end - first)
    return counts


def _whole(begun: list[float], span_s: float) -> int:
    """Return how many of the windows end before the last begin."""
    return sum(at + span_s <= begun[-1] for at in begun)


def _demand_tokens(begun: list[float], gap_s: float, burst: int, late_s: float) -> None:
    """Demand that every window, however long, has at most one token for each gap in it, and one burst."""
    # The most begins beyond one for each gap since any earlier begin: one pass finds the fullest window of all lengths.
    over, since = 0.0, begun[0]
    for at in begun:
        over = max(over - (at - since) / gap_s, 0.0) + 1
        since = at
        assert over <= burst + late_s / gap_s + 1e-3, f"{over:.2f} begins at once, of {burst}"


async def _latest(hf: Holdfast, runs: list[str], lines: list[str]) -> float:
    """Return how long after its claim a step began, by the ledger, at most. So much later than its token it may begin."""
    claimed: dict[str, float] = {}
    for run_id in runs:
        steps = await hf.store.reads.bare_steps(run_id, limit=100_000)
        keys = {one.n: one.effect_key for one in steps}
        attempts: list[StepRow | Attempt] = [*steps, *await hf.store.reads.attempts(run_id)]
        claimed |= {f"{keys[one.n]}/{one.attempt}": one.started_at or 0.0 for one in attempts}
    late = []
    for line in lines:
        what, _, which, _, at = line.split()
        if what == "began":
            assert which in claimed, f"{which} began, and nobody had claimed it"
            late.append(float(at) - claimed[which])
    return max(late)
