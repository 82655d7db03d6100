"""A process whose node lost its lease goes on as another node, unless it is about to leave."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from holdfast import Holdfast, step, workflow
from holdfast.config import Config
from tests.roles.conftest import until

CONFIG = Config(lease_s=60.0, renew_s=0.1, heart=False)


class Door:
    """Two points in a step: it has begun, and it may end."""

    begun: asyncio.Event
    open: asyncio.Event


@pytest.fixture(autouse=True)
def shut_door() -> None:
    Door.begun, Door.open = asyncio.Event(), asyncio.Event()


@step
async def pass_door() -> int:
    """It does not stop when it is asked to, so that its node leaves only when the door is open."""
    Door.begun.set()
    while not Door.open.is_set():
        with suppress(asyncio.CancelledError):
            await Door.open.wait()
    return 7


@workflow
async def visit() -> int:
    return await pass_door()


async def test_a_process_whose_lease_was_lost_joins_again(store_url: str) -> None:
    """Somebody declared its node gone. It stops that node's steps and goes on as a new node, which executes them again."""
    async with Holdfast(store_url, config=CONFIG) as hf:
        run = await hf.start(visit)
        await Door.begun.wait()
        first = hf.node.id
        Door.open.set()
        await hf.store.nodes.retire(first)
        await until(lambda: hf.node.id != first and hf.node.started)
        assert await run.result(60) == 7


async def test_a_node_that_loses_its_lease_while_it_leaves_is_not_replaced(store_url: str) -> None:
    """The process was asked to leave. It does not come back behind the back of whoever asked."""
    async with Holdfast(store_url, roles=(), config=CONFIG) as other:
        hf = await Holdfast(store_url, config=CONFIG).open()
        await hf.start(visit)
        await Door.begun.wait()
        node = hf.node
        leaving = asyncio.create_task(hf.close(drain_s=30))
        await until(lambda: node.draining)
        await other.store.nodes.retire(node.id)
        await until(lambda: node.fenced)
        Door.open.set()
        await leaving
        assert [row.id for row in await other.store.nodes.nodes() if row.retired_at is None] == []
        assert hf._rejoining is None
