"""Two ledgers, and transfers between them. A transfer may be refused, overrun its time or lose its process at any
moment."""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from holdfast import Retry, Stop, here, step, workflow

OPENING = 1_000_000
QUICK = Retry(attempts=4, delay=0.05)


def ledger(folder: str, bank: str) -> sqlite3.Connection:
    rows = sqlite3.connect(Path(folder, f"{bank}.db"), timeout=30, isolation_level=None)
    rows.execute("PRAGMA journal_mode = WAL")
    return rows


def open_banks(folder: str) -> None:
    for bank in ("west", "east"):
        with closing(ledger(folder, bank)) as rows:
            rows.execute("CREATE TABLE account (balance INTEGER)")
            rows.execute("CREATE TABLE postings (key TEXT PRIMARY KEY, amount INTEGER, state TEXT)")
            rows.execute("INSERT INTO account VALUES (?)", (OPENING,))


def post(folder: str, bank: str, amount: int, key: str) -> str:
    """Post an amount once per key. A key that was reversed before it was posted is refused."""
    with closing(ledger(folder, bank)) as rows:
        rows.execute("BEGIN IMMEDIATE")
        with rows:
            known = rows.execute("SELECT state FROM postings WHERE key = ?", (key,)).fetchone()
            if known == ("reversed",):
                raise Stop("it was reversed before it was posted")
            if known is None:
                rows.execute("UPDATE account SET balance = balance + ?", (amount,))
                rows.execute("INSERT INTO postings VALUES (?, ?, 'posted')", (key, amount))
    return key


def reverse(folder: str, bank: str, key: str) -> None:
    with closing(ledger(folder, bank)) as rows:
        rows.execute("BEGIN IMMEDIATE")
        with rows:
            known = rows.execute("SELECT amount, state FROM postings WHERE key = ?", (key,)).fetchone()
            if known is None:
                rows.execute("INSERT INTO postings VALUES (?, 0, 'reversed')", (key,))
            elif known[1] == "posted":
                rows.execute("UPDATE account SET balance = balance - ?", (known[0],))
                rows.execute("UPDATE postings SET state = 'reversed' WHERE key = ?", (key,))


def misbehave(place: str) -> None:
    """Fail, or wait, at random. This is real chance: it belongs to the world outside, and not to the workflow."""
    dice = random.random()
    if dice < 0.05:
        raise ConnectionError(f"{place} hung up")
    if dice < 0.07:
        raise Stop(f"{place} is refused")
    time.sleep(random.uniform(0, 0.01))


@step(retry=QUICK, timeout=20, undo_failed=True)
def withdraw(folder: str, amount: int) -> str:
    """Withdraw. It may raise after its effect, so even its own errors do not mean that nothing happened: hence
    `undo_failed`."""
    misbehave("before")
    key = post(folder, "west", -amount, here.key)
    misbehave("after")
    return key


@withdraw.undo(retry=Retry(attempts=50, delay=0.02, max_delay=0.5))
def undo_withdraw(done: str | None, folder: str, amount: int) -> None:
    if random.random() < 0.1:
        raise ConnectionError("the bank hung up")
    reverse(folder, "west", done or here.undoes)


@step(retry=QUICK, timeout=20, undo_failed=True)
def deposit(folder: str, amount: int) -> str:
    misbehave("before")
    key = post(folder, "east", amount, here.key)
    misbehave("after")
    return key


@deposit.undo(retry=Retry(attempts=50, delay=0.02, max_delay=0.5))
def undo_deposit(done: str | None, folder: str, amount: int) -> None:
    if random.random() < 0.1:
        raise ConnectionError("the bank hung up")
    reverse(folder, "east", done or here.undoes)


@step(retry=QUICK)
async def confirm(amount: int) -> None:
    if random.random() < 0.1:
        raise Stop("the customer says no")


@workflow
async def transfer(folder: str, amount: int) -> int:
    await withdraw(folder, amount)
    await deposit(folder, amount)
    await confirm(amount)
    return amount
