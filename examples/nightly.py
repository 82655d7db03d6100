"""Nightly batch: interest for every account, in chunks, each posting exactly once.

    holdfast run examples/nightly.py:post_interest --id interest-2026-01-31 --input '{"day": "2026-01-31"}'

What it shows:
- the day is in the run's id, so that starting the night's run again is the same run;
- `step.map` over chunks, with a limit;
- a share of failing chunks is tolerated and reported;
- neither a second attempt nor a second run for the same day can post twice, because the ledger has one posting per
  account and day.

The ledger is work/nightly/ledger.db, made with 1,000 sample accounts if it does not exist. One of them is damaged.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from holdfast import Retry, here, now, set_progress, step, workflow

SCHEMA = """
CREATE TABLE accounts (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL, rate TEXT NOT NULL);
CREATE TABLE postings (account INTEGER, day TEXT, cents INTEGER, key TEXT, PRIMARY KEY (account, day));
"""


@dataclass(frozen=True)
class Posted:
    first: int
    accounts: int
    cents: int


@dataclass(frozen=True)
class Night:
    day: date
    accounts: int
    cents: int
    failed_chunks: int
    report: str


@step
def open_ledger(folder: str) -> list[int]:
    """Return the accounts to go through. Make a sample ledger if there is none."""
    path = Path(folder, "ledger.db")
    if not path.exists():
        make_ledger(path, accounts=1000)
    with closing(connect(folder)) as ledger:
        return [account for (account,) in ledger.execute("SELECT id FROM accounts ORDER BY id")]


@step(retry=Retry(attempts=4, never=ValueError), timeout=60)
def post(folder: str, day: date, accounts: list[int]) -> Posted:
    """Post one chunk in one transaction: all of its postings, or none."""
    with closing(connect(folder)) as ledger, ledger:
        ledger.execute("BEGIN IMMEDIATE")
        for account in accounts:
            cents, rate = ledger.execute(
                "SELECT cents, rate FROM accounts WHERE id = ?", (account,)
            ).fetchone()
            interest = round(cents * float(rate) / 100 / 365)
            added = ledger.execute(
                "INSERT INTO postings VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (account, day.isoformat(), interest, here.key),
            )
            if added.rowcount:
                ledger.execute("UPDATE accounts SET cents = cents + ? WHERE id = ?", (interest, account))
        marks = ",".join("?" * len(accounts))
        (posted,) = ledger.execute(
            f"SELECT sum(cents) FROM postings WHERE day = ? AND account IN ({marks})",
            (day.isoformat(), *accounts),
        ).fetchone()
    return Posted(accounts[0], len(accounts), posted)


@step
def write_report(folder: str, day: date, at: str, lines: list[str]) -> str:
    path = Path(folder, f"interest-{day}.txt")
    path.write_text("\n".join([f"Interest of {day}, written {at}", "", *lines, ""]))
    return str(path)


@workflow
async def post_interest(
    day: date = date(2026, 1, 31), folder: str = "work/nightly", chunk: int = 50, limit: int = 4
) -> Night:
    accounts = await open_ledger(folder)
    chunks = [accounts[n : n + chunk] for n in range(0, len(accounts), chunk)]
    results = await post.map([(folder, day, each) for each in chunks], limit=limit, tolerate=0.1)
    set_progress(0.9, "all chunks are through")

    done = [result for result in results if isinstance(result, Posted)]
    lines = [
        f"accounts {each[0]:>5} to {each[-1]:>5}: "
        + (f"{result.cents / 100:10.2f}" if isinstance(result, Posted) else f"FAILED  {result}")
        for each, result in zip(chunks, results, strict=True)
    ]
    report = await write_report(folder, day, f"{now():%Y-%m-%d %H:%M} UTC", lines)
    return Night(
        day,
        sum(each.accounts for each in done),
        sum(each.cents for each in done),
        len(chunks) - len(done),
        report,
    )


def connect(folder: str) -> sqlite3.Connection:
    return sqlite3.connect(Path(folder, "ledger.db"), timeout=30, isolation_level=None)


def make_ledger(path: Path, accounts: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    with closing(sqlite3.connect(draft)) as ledger:
        ledger.executescript(SCHEMA)
        rows = [
            (n, 10_000 + n * 137, "n/a" if n == 333 else f"{1 + n % 4}.5") for n in range(1, accounts + 1)
        ]
        ledger.executemany("INSERT INTO accounts VALUES (?, ?, ?)", rows)
        ledger.commit()
    draft.rename(path)
