"""Money transfer: the sum over both ledgers never changes, and a transfer happens as a whole or not at all."""

import asyncio
import json
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from examples import transfer
from holdfast import Holdfast, Run, RunFailed, Stop
from holdfast.errors import RunCancelled, RunUndone
from holdfast.model import RunState
from tests.examples.conftest import ROOT, Ended, until

TRANSFER = f"{ROOT}/examples/transfer.py:transfer"
SUM = 2 * transfer.OPENING


def balances(banks: Path) -> tuple[int, int]:
    """Return what Ada and Grace have. The sum must always be the same, unless a transfer is under way."""
    found = []
    for bank in ("west", "east"):
        with closing(transfer.ledger(str(banks), bank)) as rows:
            found.append(rows.execute("SELECT balance FROM accounts").fetchone()[0])
    return found[0], found[1]


def receipts(banks: Path) -> list[str]:
    return [receipt.read_text() for receipt in banks.glob("receipts/*.txt")]


async def began(run: Run[str], key: str) -> None:
    """Wait until an agent has the step."""

    async def has_begun() -> bool:
        return any(step.key == key and step.attempt for step in await run.steps())

    await until(has_begun)


async def test_money_goes_from_one_bank_to_the_other(store_url: str, tmp_path: Path) -> None:
    """One account has less by what the other has more, and there is a receipt."""
    async with Holdfast(store_url) as hf:
        receipt = await (await hf.start(transfer.transfer, 250, banks=str(tmp_path))).result(timeout=60)
    assert balances(tmp_path) == (750, 1250)
    assert await asyncio.to_thread(Path(receipt).read_text) == "250 from ada to grace\n"


async def test_a_refused_deposit_gives_the_money_back(store_url: str, tmp_path: Path) -> None:
    """The east bank has no such account. So the west bank gives the money back, and the run ends undone."""
    async with Holdfast(store_url) as hf:
        run = await hf.start(transfer.transfer, 250, to="nobody", banks=str(tmp_path))
        with pytest.raises(RunUndone, match="the east bank has no account 'nobody'"):
            await run.result(timeout=60)
    assert balances(tmp_path) == (1000, 1000)


async def test_what_cannot_be_taken_is_a_plain_failure(store_url: str, tmp_path: Path) -> None:
    """The first step is refused. Nothing was done, so nothing is undone, and the run ends failed."""
    async with Holdfast(store_url) as hf:
        run = await hf.start(transfer.transfer, 5_000, banks=str(tmp_path))
        with pytest.raises(RunFailed, match="ada has not got 5000"):
            await run.result(timeout=60)
        assert await run.state() is RunState.FAILED
    assert balances(tmp_path) == (1000, 1000)


async def test_both_postings_are_reversed_newest_first(store_url: str, tmp_path: Path) -> None:
    """The receipt cannot be written. So the deposit is reversed first, then the withdrawal."""
    (tmp_path / "receipts").write_text("a file where a folder should be")
    async with Holdfast(store_url) as hf:
        run = await hf.start(transfer.transfer, 250, banks=str(tmp_path))
        with pytest.raises(RunUndone, match="FileExistsError"):
            await run.result(timeout=60)
        undos = [step.key for step in await run.steps() if step.key.startswith("undo:")]
    assert undos == ["undo:deposit", "undo:withdraw"]
    assert balances(tmp_path) == (1000, 1000)


async def test_a_deposit_whose_outcome_is_unknown_is_reversed(store_url: str, tmp_path: Path) -> None:
    """The run is cancelled while the east ledger is locked and the deposit waits for it. Whether the deposit or its
    reversal comes first, the deposit does not stand."""
    transfer.ledger(str(tmp_path), "east").close()
    async with Holdfast(store_url) as hf:
        with closing(sqlite3.connect(tmp_path / "east.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            run = await hf.start(transfer.transfer, 250, banks=str(tmp_path))
            await began(run, "deposit")
            await run.cancel()
            await began(run, "undo:deposit")
            other.execute("COMMIT")
        with pytest.raises(RunCancelled):
            await run.result(timeout=60)
    assert balances(tmp_path) == (1000, 1000)
    with closing(transfer.ledger(str(tmp_path), "east")) as rows:
        assert rows.execute("SELECT reversed FROM postings").fetchall() == [(1,)]


async def test_many_transfers_keep_the_sum(store_url: str, tmp_path: Path) -> None:
    """Of thirty transfers at once, a third go to an account that does not exist. The others arrive, and the sum stays
    the same."""
    async with Holdfast(store_url) as hf:
        wanted = ["grace", "grace", "nobody"] * 10
        runs = [await hf.start(transfer.transfer, 10, to=to, banks=str(tmp_path)) for to in wanted]
        ended = await asyncio.gather(*(run.result(timeout=90) for run in runs), return_exceptions=True)
    assert [isinstance(each, RunUndone) for each in ended] == [to == "nobody" for to in wanted]
    assert balances(tmp_path) == (800, 1200)
    assert len(receipts(tmp_path)) == 20


@pytest.mark.parametrize("to", ["grace", "nobody"])
@pytest.mark.parametrize("postings", [1, 2])
def test_a_killed_transfer_happens_as_a_whole_or_not_at_all(
    store_url: str,
    tmp_path: Path,
    command: Callable[..., Ended],
    start_command: Callable[..., subprocess.Popen[str]],
    to: str,
    postings: int,
) -> None:
    """kill -9 as soon as the ledgers show the first or second change, which may be a posting or a reversal. Then the
    run goes on."""
    banks = tmp_path / "banks"
    given = json.dumps({"amount": 250, "to": to, "banks": str(banks)})
    arguments = ("run", TRANSFER, "--id", "killed", "--store", store_url, "--input", given)

    def changes() -> int:
        count = 0
        for bank in ("west", "east"):
            with closing(transfer.ledger(str(banks), bank)) as rows:
                count += rows.execute(
                    "SELECT count(*) + coalesce(sum(reversed), 0) FROM postings"
                ).fetchone()[0]
        return count

    process = start_command(*arguments)
    while changes() < postings:
        assert process.poll() is None, process.communicate()[1]
    process.send_signal(signal.SIGKILL)
    process.wait()

    ended = command(*arguments)
    assert ended.shown["state"] == ("succeeded" if to == "grace" else "undone")
    assert balances(banks) == ((750, 1250) if to == "grace" else (1000, 1000))


def test_reversing_twice_is_reversing_once(tmp_path: Path) -> None:
    """An undo that is executed again changes nothing."""
    transfer.post(str(tmp_path), "west", "ada", -250, "k")
    for _ in range(2):
        transfer.reverse(str(tmp_path), "west", "k")
    assert transfer.total(str(tmp_path)) == SUM


def test_a_posting_that_comes_after_its_reversal_is_refused(tmp_path: Path) -> None:
    """A posting that was under way while its run was undone is refused."""
    transfer.reverse(str(tmp_path), "west", "k")
    with pytest.raises(Stop, match="was reversed"):
        transfer.post(str(tmp_path), "west", "ada", -250, "k")
    assert transfer.total(str(tmp_path)) == SUM


@pytest.mark.parametrize("amount", [0, -250])
async def test_only_money_can_be_transferred(store_url: str, tmp_path: Path, amount: int) -> None:
    """An amount of zero or less is refused."""
    async with Holdfast(store_url) as hf:
        with pytest.raises(RunFailed, match="cannot be transferred"):
            await (await hf.start(transfer.transfer, amount, banks=str(tmp_path))).result(timeout=60)
    assert balances(tmp_path) == (1000, 1000)
