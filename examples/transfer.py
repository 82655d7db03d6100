"""Money transfer: between two banks with a ledger each, and no transaction that spans both.

    holdfast run examples/transfer.py:transfer --input '{"amount": 250}'
    holdfast run examples/transfer.py:transfer --input '{"amount": 250, "to": "nobody"}'     refused: the money comes back

What it shows: `@step.undo`. When money was taken from one ledger and cannot be put into the other, it is put back. When
nobody knows whether it was taken (a timeout, a lost agent), the undo finds out by the step's key (`here.undoes`).
Whatever crashes, the sum over both ledgers is the same before and after.

The ledgers are SQLite files in work/banks: accounts, and one row for each posting under the key that made it. Reversing a
posting marks that row, in the same transaction as the balance. If there is no row yet, reversing writes one with the
mark, so that a posting which comes late under that key is refused. So an undo may come twice, or before its posting.
"""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from holdfast import Retry, Stop, here, step, workflow

BANKS = "work/banks"
OPENING = 1_000
PATIENT = Retry(attempts=5, on=sqlite3.OperationalError, delay=0.2)


@dataclass(frozen=True)
class Posting:
    account: str
    amount: int
    key: str


@step(retry=PATIENT, timeout=10)
def withdraw(banks: str, account: str, amount: int) -> Posting:
    """Take the money out of the west bank, once."""
    return post(banks, "west", account, -amount, here.key)


@withdraw.undo
def give_back(done: Posting | None, banks: str, account: str, amount: int) -> None:
    """Put the money back, if it was taken. `done` is None when nobody knows; then the ledger knows."""
    reverse(banks, "west", done.key if done else here.undoes)


@step(retry=PATIENT, timeout=10)
def deposit(banks: str, account: str, amount: int) -> Posting:
    """Put the money into the east bank, once."""
    return post(banks, "east", account, amount, here.key)


@deposit.undo
def reverse_deposit(done: Posting | None, banks: str, account: str, amount: int) -> None:
    reverse(banks, "east", done.key if done else here.undoes)


@step
def write_receipt(banks: str, frm: str, to: str, amount: int) -> str:
    receipt = receipt_of(banks, here.key)
    receipt.parent.mkdir(parents=True, exist_ok=True)
    receipt.write_text(f"{amount} from {frm} to {to}\n")
    return str(receipt)


@write_receipt.undo
def tear_up(done: str | None, banks: str, frm: str, to: str, amount: int) -> None:
    receipt_of(banks, here.undoes).unlink(missing_ok=True)


@workflow
async def transfer(amount: int = 250, frm: str = "ada", to: str = "grace", banks: str = BANKS) -> str:
    if amount <= 0:
        raise Stop(f"{amount} cannot be transferred")
    await withdraw(banks, frm, amount)
    await deposit(banks, to, amount)
    return await write_receipt(banks, frm, to, amount)


def receipt_of(banks: str, key: str) -> Path:
    return Path(banks, "receipts", f"{hashlib.sha256(key.encode()).hexdigest()[:12]}.txt")


def ledger(banks: str, bank: str) -> sqlite3.Connection:
    """Open a bank's ledger, with its customers in it."""
    folder = Path(banks)
    folder.mkdir(parents=True, exist_ok=True)
    rows = sqlite3.connect(folder / f"{bank}.db", timeout=30, isolation_level=None)
    rows.executescript(
        "CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0));"
        "CREATE TABLE IF NOT EXISTS postings (key TEXT PRIMARY KEY, account TEXT, amount INTEGER, reversed INTEGER);"
    )
    customer = "ada" if bank == "west" else "grace"
    rows.execute("INSERT OR IGNORE INTO accounts VALUES (?, ?)", (customer, OPENING))
    return rows


def post(banks: str, bank: str, account: str, amount: int, key: str) -> Posting:
    """Change a balance once per key. If the key was reversed before its posting came, the posting is refused."""
    with closing(ledger(banks, bank)) as rows:
        rows.execute("BEGIN IMMEDIATE")
        with rows:
            known = rows.execute("SELECT reversed FROM postings WHERE key = ?", (key,)).fetchone()
            if known is not None and known[0]:
                raise Stop(f"posting {key} was reversed")
            if known is None:
                try:
                    changed = rows.execute(
                        "UPDATE accounts SET balance = balance + ? WHERE name = ?", (amount, account)
                    ).rowcount
                except sqlite3.IntegrityError:
                    raise Stop(f"{account} has not got {-amount}") from None
                if not changed:
                    raise Stop(f"the {bank} bank has no account {account!r}")
                rows.execute("INSERT INTO postings VALUES (?, ?, ?, 0)", (key, account, amount))
    return Posting(account, amount, key)


def reverse(banks: str, bank: str, key: str) -> None:
    """Reverse a posting, once. A posting that never came is marked, so that it cannot come any more."""
    with closing(ledger(banks, bank)) as rows:
        rows.execute("BEGIN IMMEDIATE")
        with rows:
            known = rows.execute(
                "SELECT account, amount, reversed FROM postings WHERE key = ?", (key,)
            ).fetchone()
            if known is None:
                rows.execute("INSERT INTO postings VALUES (?, NULL, 0, 1)", (key,))
            elif not known[2]:
                account, amount, _ = known
                rows.execute("UPDATE accounts SET balance = balance - ? WHERE name = ?", (amount, account))
                rows.execute("UPDATE postings SET reversed = 1 WHERE key = ?", (key,))


def total(banks: str) -> int:
    """Return all the money there is."""
    found = 0
    for bank in ("west", "east"):
        with closing(ledger(banks, bank)) as rows:
            found += rows.execute("SELECT sum(balance) FROM accounts").fetchone()[0]
    return found
