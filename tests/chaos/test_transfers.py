"""Transfers between two ledgers while the processes that run them are killed: no money is made or lost, no run is lost.

`HOLDFAST_TRANSFERS=1000 pytest tests/chaos/test_transfers.py -s` is the long version (`make chaos`).
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.lifecycle import RUN_ENDED
from tests.chaos import bank
from tests.forkserver import HOLDFAST, Forked

TRANSFERS = int(os.environ.get("HOLDFAST_TRANSFERS", "80"))
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
STRIDE = 30
"""How many postings and ends of runs there are between two kills, at most."""


def up(url: str, said: Path) -> Forked:
    """Start a process. What it says is added to this file."""
    words = [HOLDFAST, "up", str(bank.__file__), "--store", url]
    with said.open("a") as to:
        return Forked(
            words, stdin=subprocess.DEVNULL, stdout=to, stderr=subprocess.STDOUT, start_new_session=True
        )


def kill(process: Forked) -> None:
    process.kill()
    process.wait()


def postings(folder: str) -> int:
    """Return how often the ledgers were written."""
    count = 0
    for name in ("west", "east"):
        with closing(bank.ledger(folder, name)) as rows:
            count += rows.execute("SELECT count(*) FROM postings").fetchone()[0]
    return count


@pytest.mark.timeout(200 + 2 * TRANSFERS)
async def test_no_money_is_made_or_lost(store_url: str, tmp_path: Path) -> None:
    """Transfers have random refusals and errors, and processes get SIGKILL all the while, as soon as there was a little
    progress: a process that is killed before it is up shows nothing. Every run ends, the sum of
    the ledgers is what it was, and each run's two postings are both there or both reversed, as its state says."""
    dice, folder = random.Random(SEED), str(tmp_path)
    bank.open_banks(folder)
    kills, ended, said = 0, 0, tmp_path / "said.txt"
    async with Holdfast(store_url, roles=[]) as hf:
        ids = [f"t{i}" for i in range(TRANSFERS)]
        for start in range(0, TRANSFERS, 100):
            await asyncio.gather(
                *(hf.start(bank.transfer.using(id=run_id), folder, 1) for run_id in ids[start : start + 100])
            )
        fleet = [up(store_url, said), up(store_url, said)]
        try:
            async with asyncio.timeout(100 + 2 * TRANSFERS):
                next_kill = dice.randint(1, STRIDE)
                while ended < TRANSFERS:
                    await asyncio.sleep(dice.uniform(0.0, 0.05))
                    states = await hf.store.reads.runs_by_state()
                    ended = sum(states.get(state, 0) for state in RUN_ENDED)
                    assert [one.poll() for one in fleet] == [None, None], said.read_text()
                    if (progress := ended + postings(folder)) >= next_kill and ended < TRANSFERS:
                        victim = dice.randrange(len(fleet))
                        kill(fleet[victim])
                        kills += 1
                        fleet[victim] = up(store_url, said)
                        next_kill = progress + dice.randint(1, STRIDE)
        except TimeoutError:
            raise AssertionError(f"{ended} of {TRANSFERS} have ended\n{said.read_text()}") from None
        finally:
            for process in fleet:
                kill(process)
        assert kills > 1
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
