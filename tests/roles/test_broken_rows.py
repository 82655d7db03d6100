"""Rows that somebody changed by hand: their run is held or goes on, and no other run waits for it."""

from __future__ import annotations

import asyncio
import subprocess

from holdfast import Holdfast, Signal, publish, step, workflow
from tests import forkserver
from tests.store.conftest import run_sql

go: Signal[int] = Signal("go", int)


@step
async def seven() -> int:
    return 7


@workflow
async def patient() -> int:
    publish("done", await seven())
    return await go.wait()


@workflow
async def quick() -> int:
    return await seven()


DAMAGE = [
    "UPDATE runs SET tags = '{' WHERE id = 'r0'",
    "UPDATE runs SET published = 'x' WHERE id = 'r1'",
    "UPDATE runs SET progress = '[' WHERE id = 'r2'",
    "UPDATE steps SET output = {raw} WHERE run_id = 'r3' AND n = 1",
    "UPDATE steps SET error = '{' WHERE run_id = 'r4'",
    "UPDATE steps SET retry = '{' WHERE run_id = 'r5' AND n = 1",
    "UPDATE runs SET input = {raw} WHERE id = 'r6'",
]


def shown(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    return forkserver.run(*words, "--store", url)


async def test_nobody_else_waits_for_a_broken_row(store_url: str) -> None:
    """Another run ends. The broken ones go on, or are held. `show` shows them, and `doctor` names one."""
    async with Holdfast(store_url) as hf:
        for number in range(len(DAMAGE)):
            run = await hf.start(patient.using(id=f"r{number}"))
            async with asyncio.timeout(60):
                while "done" not in (await run.published()):  # noqa: ASYNC110  nothing gives an event
                    await asyncio.sleep(0.01)
    raw = "x'7b'" if store_url.startswith("sqlite") else "'\\x7b'::bytea"
    for one in DAMAGE:
        run_sql(store_url, one.replace("{raw}", raw))
    async with Holdfast(store_url) as hf:
        for number in range(len(DAMAGE)):
            await go.send(f"r{number}", 3)
        assert await (await hf.start(quick)).result(60) == 7
    for command in (
        *(["show", f"r{number}"] for number in range(len(DAMAGE))),
        ["ps", "--all"],
        ["why", "r1"],
    ):
        ended = await asyncio.to_thread(shown, store_url, *command)
        assert (ended.returncode, ended.stderr) == (0, ""), (command, ended)
    ended = await asyncio.to_thread(shown, store_url, "doctor")
    assert f"I26 is broken in {len(DAMAGE)} rows" in ended.stdout, ended
    assert "but not all of run r0" in ended.stdout, ended
