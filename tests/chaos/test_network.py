"""What networks do between nodes and PostgreSQL: cut connections, drop everything, forget connections, lose answers."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.chaos.load import LEASE_S
from tests.chaos.proxy import Proxy
from tests.chaos.world import SECONDS, SEED, SLOW, Line, outlasting, world


@pytest.fixture
async def proxy(pg_url: str) -> AsyncIterator[Proxy]:
    parts = urlsplit(pg_url)
    proxy = Proxy(parts.hostname or "", parts.port or 5432, SEED)
    await proxy.open()
    yield proxy
    await proxy.close()


def through(proxy: Proxy, url: str) -> str:
    return urlsplit(url)._replace(netloc=f"postgres@127.0.0.1:{proxy.port}").geturl()


async def test_a_node_cut_off_fences_itself(pg_url: str, proxy: Proxy, tmp_path: Path) -> None:
    """A node reaches the outside world but not the database. It starts nothing once its lease has ended, and the others
    go on with its work. When it reaches the database again, it takes part again."""
    async with world("partitions", pg_url, tmp_path, nodes=1) as it:
        cut_off = await it.spawn(through(proxy, pg_url))
        pid = it.fleet[cut_off].pid
        until = time.monotonic() + SECONDS
        while True:
            async with asyncio.timeout(60):
                while not _works(it.lines(), pid, time.time() - 5):  # noqa: ASYNC110  it is another process
                    await asyncio.sleep(0.1)
            it.fault("partitions")
            proxy.dropping = True
            fenced_at = time.time() + LEASE_S
            await asyncio.sleep(outlasting())
            late = [
                line
                for line in it.lines()
                if line.what == "began" and line.pid == pid and fenced_at < line.at < time.time()
            ]
            assert late == [], f"{len(late)} effects began after the lease had ended"
            proxy.heal()
            if time.monotonic() >= until:
                break
        healed_at = time.time()
        async with asyncio.timeout(60 + SLOW):
            while not _works(it.lines(), pid, healed_at):  # noqa: ASYNC110  as above
                await asyncio.sleep(0.1)
        await it.end_and_count()


def _works(lines: list[Line], pid: int, since: float) -> bool:
    return any(line.what == "began" and line.pid == pid and line.at > since for line in lines)


async def test_lost_answers_lose_nothing(pg_url: str, proxy: Proxy, tmp_path: Path) -> None:
    """A node's requests arrive, but the connection is gone before the answer. So it is unknown whether a commit
    happened, and the node asks again. Every run succeeds, with one result per step. The caller is behind the same
    network."""
    url = through(proxy, pg_url)
    async with world("lost answers", url, tmp_path) as it:
        until = time.monotonic() + SECONDS
        dice = random.Random(SEED)
        while time.monotonic() < until:
            it.fault("cuts")
            proxy.lose_replies = dice.uniform(0.005, 0.05)
            await asyncio.sleep(dice.uniform(0.1, 0.5))
            proxy.lose_replies = 0.0
            if dice.random() < 0.5:
                proxy.cut()
            await asyncio.sleep(dice.uniform(0.1, 0.5))
        it.counts["answers lost"] = proxy.lost_replies
        assert proxy.lost_replies
        await it.end_and_count()


async def test_forgotten_connections_are_noticed(pg_url: str, proxy: Proxy, tmp_path: Path) -> None:
    """All connections there are lead nowhere, and neither side notices. The nodes give them up, and new ones work."""
    async with world("half-open connections", through(proxy, pg_url), tmp_path, client_url=pg_url) as it:
        until = time.monotonic() + SECONDS
        while True:
            it.fault("half-open")
            before = await it.ended()
            assert proxy.deafen()
            await it.until(before + 20, 90)
            if time.monotonic() >= until:
                break
        await it.end_and_count()
