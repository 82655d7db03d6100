"""Leaders killed while schedules fire, on both stores: each time has one fate, and each start one run.

`HOLDFAST_CHAOS_S=60 pytest tests/chaos/test_schedules.py -s` is the long version (`make chaos`); the suite does a short one.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import pytest

from holdfast import Holdfast
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import FireFate, RunState, ScheduleState
from holdfast.schedules import every
from holdfast.store.reads import RunFilter
from holdfast.times.plan import read_plan
from tests.chaos import timed
from tests.chaos.fleet import Fleet
from tests.chaos.load import CONFIG
from tests.chaos.world import END_S, SECONDS, SEED, publish

AROUND_S = 0.15
"""A leader is killed at most so long before or after a time."""
LAST_S = 2.0
"""For so long after the last kill there are times."""
PLANS = {
    "skip": ("1s", 0.3, 0.0),
    "skip-long": ("1s", 1.5, 0.0),
    "allow": ("1s", 1.5, 0.0),
    "buffer_one": ("1s", 1.5, 0.0),
    "buffer_all": ("2s", 1.0, 0.0),
    "cancel_other": ("1s", 1.5, 0.0),
    "skip-jitter": ("1s", 0.0, 0.4),
}
"""By name, whose first part is the overlap policy: its times, for how long each run sleeps, and its jitter."""


@pytest.mark.timeout(SECONDS + 3 * END_S)
async def test_each_time_has_one_fate_while_leaders_are_killed(store_url: str, tmp_path: Path) -> None:
    """Two processes can lead, and who leads gets SIGKILL around times that are due every second. Every time has exactly one
    fate, every started time exactly one run, and every run a time, with all overlap policies. No time is missed."""
    dice, ledger, kind = random.Random(SEED), tmp_path / "ledger", store_url.partition(":")[0]
    ledger.touch()
    ends = datetime.fromtimestamp(math.ceil(time.time() + SECONDS + LAST_S), UTC)
    async with Holdfast(store_url, roles=("scheduler", "agent"), config=CONFIG) as hf:
        for name, (times, pause_s, jitter_s) in PLANS.items():
            overlap = name.partition("-")[0]
            plan = every(times, name=name, overlap=overlap, jitter=jitter_s, end=ends)  # type: ignore[arg-type]
            await hf.schedules.create(plan, timed.timed, str(ledger), pause_s)
        commands = [["tests.chaos.timed", store_url, heart] for heart in ("heart", "none")]
        with Fleet(ledger, *commands) as fleet:
            await _kill_leaders(hf, fleet, dice, ends - timedelta(seconds=LAST_S))
            async with asyncio.timeout(END_S):
                while not await _is_over(hf):  # noqa: ASYNC110  rows in the store
                    await asyncio.sleep(0.1)
            fleet.demand_alive()
        assert fleet.kills > 0
        fates, late = await _judged(hf, ends.timestamp(), ledger)
        leader = await hf.store.leader.leader()
        assert leader is not None
    figures = {
        "kills": fleet.kills,
        "epochs": leader.epoch,
        "schedules": len(PLANS),
        "times": sum(fates.values()),
        "fates": dict(fates),
        "late p50 s": round(median(late), 3),
        "late max s": round(max(late), 3),
    }
    print(f"\nschedules {kind}: {figures}")
    publish(f"schedules {kind}", figures)


async def _kill_leaders(hf: Holdfast, fleet: Fleet, dice: random.Random, until: datetime) -> None:
    """Kill whoever leads, again and again, shortly before or after a time."""
    while time.time() < until.timestamp():
        leader = await hf.store.leader.leader()
        pids = {node.id: node.pid for node in await hf.store.nodes.living(100)}
        numbers = {process.pid: number for number, process in enumerate(fleet.processes)}
        number = None if leader is None else numbers.get(pids.get(leader.node, 0))
        if number is None:  # nobody leads yet
            await asyncio.sleep(0.02)
            continue
        await asyncio.sleep(
            max(0.0, math.ceil(time.time()) + dice.uniform(-AROUND_S, AROUND_S) - time.time())
        )
        fleet.kill(number)


async def _is_over(hf: Holdfast) -> bool:
    """True if no schedule has a time any more, and nothing of any of them waits or runs."""
    rows = await hf.store.schedules.schedules()
    if {row.state for row in rows} != {ScheduleState.ENDED}:
        return False
    fires = [fire for row in rows for fire in await hf.store.schedules.fires(row.name, limit=100_000)]
    return all(fire.ended for fire in fires)


async def _judged(hf: Holdfast, ends_at: float, ledger: Path) -> tuple[Counter[str], list[float]]:
    """Compare times, fates, runs and what has run. Return how many times there are of each fate, and how late starts were
    decided that did not wait."""
    found = await hf.store.reads.runs(RunFilter(limit=100_000))
    runs = {run.id: run for run in found}
    started: list[str] = []
    fates, late = Counter[str](), list[float]()
    for row in await hf.store.schedules.schedules():
        plan = read_plan(row.plan)
        fires = sorted(await hf.store.schedules.fires(row.name, limit=100_000), key=lambda fire: fire.at)
        assert [at for fire in fires for at in plan.between(fire.at - 0.5, fire.last_at)] == list(
            plan.between(row.created_at, ends_at)
        ), f"times of {row.name} that have no fate, or two"
        fates.update(str(fire.fate) for fire in fires)
        started += [fire.run_id or "" for fire in fires if fire.fate is FireFate.STARTED]
        if row.name in {"allow", "skip"}:
            late += [fire.decided_at - fire.at for fire in fires]
    assert FireFate.MISSED not in fates
    assert len(started) == len(set(started)), "a run has two times"
    assert set(started) == set(runs), "a started time without its run, or a run without its time"
    assert {run.state for run in found} <= RUN_ENDED
    _demand_ran_once(ledger, {run.id for run in found if run.state is RunState.SUCCEEDED})
    return fates, late


def _demand_ran_once(ledger: Path, succeeded: set[str]) -> None:
    """Demand that no time was run by two runs, and that every run that succeeded did something."""
    by_time: dict[tuple[str, str], set[str]] = {}
    for line in ledger.read_text().splitlines():
        what, schedule, at, run_id, _ = line.split()
        if what == "ran":
            by_time.setdefault((schedule, at), set()).add(run_id)
    assert [runs for runs in by_time.values() if len(runs) > 1] == []
    assert succeeded <= {run for runs in by_time.values() for run in runs}
