"""A dependency fails for a while, with many steps waiting. Few attempts are spent, and all succeed in the end, without
a spike.

`HOLDFAST_OUTAGE_S=60 HOLDFAST_OUTAGE_STEPS=2000 pytest tests/chaos/test_outage.py -s --timeout 600` is the long
version; the suite does a short one. It uses default settings and two processes that host every role.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast import Holdfast
from holdfast.config import DEFAULT
from holdfast.model import AlertKind, Breaker, BreakerState, RunState
from tests.chaos import outage

OUTAGE_S = float(os.environ.get("HOLDFAST_OUTAGE_S", "3"))
STEPS = int(os.environ.get("HOLDFAST_OUTAGE_STEPS", "300"))
LIMIT_S = OUTAGE_S + DEFAULT.breaker_open_max_s + 300
PROCESSES = 2
HOLDFAST = Path(sys.executable).with_name("holdfast")


class Call(NamedTuple):
    at: float
    what: str
    pid: int


def calls(folder: Path) -> list[Call]:
    lines = (folder / "ledger").read_text().splitlines()
    return sorted(Call(float(at), what, int(pid)) for at, what, _, pid in map(str.split, lines))


@contextmanager
def nodes(url: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    started = [
        subprocess.Popen([HOLDFAST, "up", outage.__file__, "--store", url], stderr=subprocess.DEVNULL)
        for _ in range(PROCESSES)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(60)


async def reach(hf: Holdfast, states: set[BreakerState], limit_s: float = 90.0) -> Breaker:
    """Wait until the breaker is in one of these states, and return it."""
    deadline = time.time() + limit_s
    while True:
        rows = await hf.store.gates.breakers()
        if rows and rows[0].state in states:
            return rows[0]
        assert time.time() < deadline, rows
        await asyncio.sleep(0.02)


async def test_an_outage_costs_few_attempts_and_ends_without_a_spike(store_url: str, tmp_path: Path) -> None:
    """While the dependency is down, it only gets the steps that were running when the breaker opened, and single
    probes. When it is back, steps begin in waves, and each wave waits for the one before. No run fails, and an alert is
    raised and cleared."""
    (tmp_path / "down").touch()
    async with Holdfast(store_url, roles=()) as hf:
        runs = [await hf.start(outage.order.using(id=f"order-{i}"), str(tmp_path), i) for i in range(STEPS)]
        waves: list[int] = []
        healed_at = 0.0
        with nodes(store_url):
            await reach(hf, {BreakerState.OPEN})
            began = time.time()
            while await hf.store.reads.runs_by_state() != {"succeeded": STEPS}:
                assert time.time() - began < LIMIT_S, await hf.store.reads.runs_by_state()
                for row in await hf.store.gates.breakers():
                    if row.state is BreakerState.PROBING and [row.wave] != waves[-1:]:
                        waves.append(row.wave)
                if not healed_at and time.time() - began > OUTAGE_S:
                    (tmp_path / "down").unlink()
                    healed_at = time.time()
                await asyncio.sleep(0.02)
            took_s = time.time() - healed_at
            await reach(hf, {BreakerState.CLOSED})
            while any(
                alert.kind == AlertKind.BREAKER_OPEN for alert in await hf.store.alerts.open_alerts(100)
            ):
                assert time.time() - began < LIMIT_S
                await asyncio.sleep(0.05)
        states = [await run.state() for run in runs]
        journal = list(reversed(await hf.store.reads.journal(None, 10_000)))
        alerts = [alert for alert in await hf.store.alerts.alerts() if alert.kind == AlertKind.BREAKER_OPEN]
        steps = [(await run.steps())[0] for run in runs]
        assert not [name for name, _, rows in await hf.store.reads.doctor() if rows]
    assert set(states) == {RunState.SUCCEEDED}
    opened_at = next(entry.at for entry in journal if entry.verb == "breaker open")
    tries = sum(entry.verb == "breaker probing" for entry in journal)
    all_calls = calls(tmp_path)
    at_the_trip = [call for call in all_calls if call.what == "began" and call.at < opened_at + 0.1]
    during = [call for call in all_calls if call.what == "began" and opened_at + 0.1 <= call.at < healed_at]
    spent = sum(step.attempt - step.excused - step.losses for step in steps) - STEPS
    assert len(during) <= tries, "while it is down, only probes reach it"
    assert len([call for call in all_calls if call.what == "failed"]) <= len(at_the_trip) + tries
    assert spent <= PROCESSES * DEFAULT.breaker_failures_min, "only what opened the breaker is spent"
    grown = waves[len(waves) - 1 - waves[::-1].index(1) :]
    assert all(after <= before * 2 for before, after in itertools.pairwise(grown)), waves
    begun = ended = 0
    first_at = min(call.at for call in all_calls if call.what == "succeeded")
    recovery = [call for call in all_calls if call.at >= healed_at]
    for call in recovery:
        begun += call.what == "began"
        ended += call.what == "succeeded"
        assert begun <= max(3, 4 * ended), "a wave waits for the one before"
    starts = [call.at for call in recovery if call.what == "began"]
    first_second = sum(first_at <= at < first_at + 1 for at in starts)
    peak = max(sum(at <= other < at + 1 for other in starts) for at in starts)
    assert first_second <= 128
    assert len(alerts) == 1
    assert alerts[0].cleared_at is not None
    print(
        f"\n{STEPS} steps, down for {OUTAGE_S:g} s: {len(at_the_trip)} calls in flight at the trip, {len(during)} probes while "
        f"down, {spent} attempts spent, waves {waves}, all done {took_s:.1f} s after it was back, "
        f"{first_second} begun in the second after the first success, {peak} in the busiest second"
    )


@pytest.mark.parametrize("who", ["prober", "leader"])
async def test_a_kill_while_probing_does_not_wedge_the_breaker(
    store_url: str, tmp_path: Path, who: str
) -> None:
    """kill -9 of the process that has the probe, or of the leader that waits for it: another probe begins, or another
    leader goes on, and all runs succeed."""
    (tmp_path / "down").touch()
    async with Holdfast(store_url, roles=()) as hf:
        runs = [await hf.start(outage.order.using(id=f"order-{i}"), str(tmp_path), i) for i in range(60)]
        with nodes(store_url) as processes:
            opened = await reach(hf, {BreakerState.OPEN})
            (tmp_path / "hangs").touch()
            (tmp_path / "down").unlink()
            deadline = time.time() + 60
            while not (probes := [call for call in calls(tmp_path) if call.at > opened.window_at + 2]):
                assert time.time() < deadline, await hf.store.gates.breakers()
                await asyncio.sleep(0.02)
            pid = probes[0].pid
            if who == "leader":
                leader = await hf.store.leader.leader()
                assert leader is not None
                pid = next(node.pid for node in await hf.store.nodes.nodes() if node.id == leader[0])
            (killed,) = [process for process in processes if process.pid == pid]
            killed.kill()
            killed.wait()
            (tmp_path / "hangs").unlink()
            await reach(hf, {BreakerState.CLOSED})
            for run in runs:
                await run.result(60)
        steps = [(await run.steps())[0] for run in runs]
        assert not [name for name, _, rows in await hf.store.reads.doctor() if rows]
    spent = sum(step.attempt - step.excused - step.losses for step in steps) - len(runs)
    assert spent <= PROCESSES * DEFAULT.breaker_failures_min
