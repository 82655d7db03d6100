"""Nightly batch: each account gets its interest once."""

import sqlite3
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from examples import nightly
from holdfast import Holdfast, RunFailed

DAY = date(2026, 1, 31)


def postings(folder: Path) -> dict[int, int]:
    with closing(sqlite3.connect(folder / "ledger.db")) as ledger:
        return dict(ledger.execute("SELECT account, cents FROM postings WHERE day = ?", (DAY.isoformat(),)))


def balance(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "ledger.db")) as ledger:
        return int(ledger.execute("SELECT sum(cents) FROM accounts").fetchone()[0])


async def post(store_url: str, folder: Path, run_id: str, chunk: int = 50) -> nightly.Night:
    async with Holdfast(store_url) as hf:
        run = await hf.start(nightly.post_interest.using(id=run_id), DAY, str(folder), chunk)
        return await run.result(timeout=60)


async def test_interest_is_posted_to_every_sound_account(store_url: str, tmp_path: Path) -> None:
    """The chunk with the damaged account is left out as a whole, all others are posted and reported."""
    night = await post(store_url, tmp_path, "night")
    posted = postings(tmp_path)
    assert (night.accounts, night.failed_chunks) == (950, 1)
    assert sorted(posted) == [n for n in range(1, 1001) if not 301 <= n <= 350]
    assert night.cents == sum(posted.values()) > 0
    report = (tmp_path / "interest-2026-01-31.txt").read_text()
    assert night.report == str(tmp_path / "interest-2026-01-31.txt")
    assert "301 to   350: FAILED  could not convert string to float: 'n/a'" in report


async def test_a_second_run_for_the_same_day_posts_nothing(store_url: str, tmp_path: Path) -> None:
    """Another run, with other keys, finds every posting made: balances stay."""
    first = await post(store_url, tmp_path, "night")
    before = balance(tmp_path)
    again = await post(store_url, tmp_path, "night-by-hand")
    assert balance(tmp_path) == before
    assert again.cents == first.cents


async def test_too_many_failing_chunks_fail_the_night(store_url: str, tmp_path: Path) -> None:
    """With chunks so large that one of them is more than a tenth, the damaged account stops the run."""
    with pytest.raises(RunFailed, match="could not convert string to float"):
        await post(store_url, tmp_path, "night", chunk=500)
