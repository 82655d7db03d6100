"""When a node loses its lease, its writer leaves no caller waiting who started a run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.config import DEFAULT
from holdfast.environment import Environment
from holdfast.errors import LeaseLost, StoreGone, StoreUnreachable
from holdfast.model import NewRun
from holdfast.store.answers import Answer
from holdfast.store.operations import HandBack, Op, Start
from holdfast.store.writer import Writer


class NeverAnswers:
    """A database that accepts everything and never answers."""

    async def commit(self, node: str, ops: Sequence[Op]) -> list[Any]:
        return list(await asyncio.get_running_loop().create_future())


class Answers:
    async def commit(self, node: str, ops: Sequence[Op]) -> list[Any]:
        return [Answer.ACCEPTED for _ in ops]


class Anybody:
    """A node for which a writer writes."""

    def has_lease(self) -> bool:
        return True

    async def reconcile(self) -> None: ...

    def lose_store(self, gone: StoreGone) -> None: ...


def writer(store: NeverAnswers | Answers) -> Writer:
    return Writer(store, "node", Environment(), DEFAULT, Anybody())


def start(run_id: str) -> Start:
    return Start(NewRun(run_id, "w", "1", b"", b""))


async def test_starts_that_were_not_answered_are_answered_by_the_successor() -> None:
    """The new writer writes each start, whether it was in flight, queued, or given to the old writer later. An
    operation that needs the lease is refused."""
    old, new = writer(NeverAnswers()), writer(Answers())
    running = asyncio.create_task(old.run())
    in_flight = old.write(start("a"))
    await asyncio.sleep(0)
    queued, held = old.write(start("b")), old.write(HandBack("a", 1, 1))
    old.hand_over(new)
    later = old.write(start("c"))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    old.leave()
    succeeding = asyncio.create_task(new.run())
    async with asyncio.timeout(10):
        assert list(await asyncio.gather(in_flight, queued, later)) == [Answer.ACCEPTED] * 3
        with pytest.raises(LeaseLost):
            await held
    new.close()
    await succeeding


async def test_a_start_that_nobody_can_answer_any_more_raises() -> None:
    """Without a successor the caller gets an error, and can start the run again under its id."""
    old = writer(NeverAnswers())
    running = asyncio.create_task(old.run())
    asked = old.write(start("a"))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    old.leave()
    with pytest.raises(StoreUnreachable, match="start the run again"):
        await asked
