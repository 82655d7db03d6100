"""Transfers between two ledgers while the processes that run them are killed: no money is made or lost, no run is lost.

`HOLDFAST_TRANSFERS=1000 pytest tests/chaos/test_transfers.py -s` is the long version (`make chaos`).
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

from holdfast import Holdfast
from holdfast.lifecycle import RUN_ENDED
from tests.chaos import bank

TRANSFERS = int(os.environ.get("HOLDFAST_TRANSFERS", "80"))
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
HOLDFAST = Path(sys.executable).with_name("holdfast")


async def up(url: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        HOLDFAST,
        "up",
        str(bank.__file__),
        "--store",
        url,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )


async def test_no_money_is_made_or_lost(store_url: str, tmp_path: Path) -> None:
    """Transfers have random refusals and errors, and processes get SIGKILL all the while. Every run ends, the sum of
    the ledgers is what it was, and each run's two postings are both there or both reversed, as its state says."""
    dice, folder = random.Random(SEED), str(tmp_path)
    bank.open_banks(folder)
    kills = 0
    async with Holdfast(store_url, roles=[]) as hf:
        ids = [f"t{i}" for i in range(TRANSFERS)]
        for start in range(0, TRANSFERS, 100):
            await asyncio.gather(
                *(hf.start(bank.transfer.using(id=run_id), folder, 1) for run_id in ids[start : start + 100])
            )
        fleet = [await up(store_url), await up(store_url)]
        try:
            async with asyncio.timeout(60 + TRANSFERS):
                while True:
                    states = await hf.store.reads.runs_by_state()
                    if sum(states.get(state, 0) for state in RUN_ENDED) == TRANSFERS:
                        break
                    await asyncio.sleep(dice.uniform(0.3, 0.8))
                    victim = dice.randrange(len(fleet))
                    fleet[victim].kill()
                    await fleet[victim].wait()
                    kills += 1
                    fleet[victim] = await up(store_url)
        finally:
            for process in fleet:
                process.kill()
                await process.wait()
        by_run = {run_id: await hf.run(run_id).state() for run_id in ids}
        assert [
            name for name, _, broken in await hf.store.reads.doctor() if broken and not name.startswith("I10")
        ] == []
    balances, live = {}, Counter[str]()
    for name in ("west", "east"):
        with closing(bank.ledger(folder, name)) as rows:
            balances[name] = rows.execute("SELECT balance FROM account").fetchone()[0]
            for key, state in rows.execute("SELECT key, state FROM postings"):
                live[key.split("::")[0]] += state == "posted"
    assert sum(balances.values()) == 2 * bank.OPENING, balances
    for run_id, state in by_run.items():
        assert live[run_id] == (2 if state == "succeeded" else 0), (run_id, state)
    print(f"{TRANSFERS} transfers, {kills} kills, seed {SEED}: {dict(Counter(map(str, by_run.values())))}")
