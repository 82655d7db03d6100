"""PostgreSQL itself crashes, fails over and fills its disk; SQLite's disk fills up, too."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from tests.chaos.load import LEASE_S
from tests.chaos.servers import OwnServer, both_hosts, fill, may_mount, own_server, small_disk
from tests.chaos.world import SECONDS, SEED, world

mountable = pytest.mark.skipif(not may_mount(), reason="filling a disk needs the right to mount a small one")


async def test_crashes_of_the_server_lose_nothing(tmp_path: Path) -> None:
    """The server crashes (`pg_ctl stop -m immediate`) and starts, again and again. What it answered is there, and every
    run succeeds."""
    dice = random.Random(SEED)
    with own_server() as server:
        server.make()
        server.start()
        async with world("server crashes", server.url, tmp_path) as it:
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                it.fault("server restarts")
                await asyncio.to_thread(server.crash)
                await asyncio.to_thread(server.start)
                await asyncio.sleep(dice.uniform(0.2, 1.5))
            await it.end_and_count()


async def test_a_failover_to_a_synchronous_standby_loses_nothing(tmp_path: Path) -> None:
    """The primary is gone for good, and its standby is promoted. Clients whose address names both find it by
    themselves, and every run whose start was answered succeeds."""
    with own_server() as one, own_server() as other:
        one.make()
        one.start()
        other.follow(one)
        other.start()
        one.demand_standby(True)
        one.await_standby()
        primary, standby = one, other
        async with world("failovers", both_hosts(one, other), tmp_path) as it:
            until = time.monotonic() + SECONDS
            while True:
                it.fault("failovers")
                before = len(it.accepted)
                await asyncio.to_thread(_fail_over, primary, standby)
                await it.until(before, 120)
                primary, standby = standby, primary
                if time.monotonic() >= until:
                    break
                await asyncio.to_thread(_rebuild, primary, standby)
            await it.end_and_count()


def _fail_over(primary: OwnServer, standby: OwnServer) -> None:
    primary.crash()
    standby.promote()


def _rebuild(primary: OwnServer, standby: OwnServer) -> None:
    """Bring the lost server back, as a copy that follows the new primary."""
    import shutil

    shutil.rmtree(standby.data)
    standby.follow(primary)
    standby.start()
    primary.demand_standby(True)
    primary.await_standby()


@mountable
async def test_a_full_disk_under_sqlite_loses_nothing(tmp_path: Path) -> None:
    """While there is no room, nothing is accepted. When there is room again, everything goes on."""
    with small_disk(48) as disk:
        async with world("full disk sqlite", f"sqlite:///{disk}/holdfast.db", tmp_path, nodes=2) as it:
            until = time.monotonic() + SECONDS
            while True:
                it.fault("full disks")
                ballast = fill(disk)
                await asyncio.sleep(LEASE_S * 1.5)
                before = await it.ended()
                ballast.unlink()
                await it.until(before + 10, 90)
                if time.monotonic() >= until:
                    break
            await it.end_and_count()


@mountable
async def test_a_full_disk_under_postgresql_loses_nothing(tmp_path: Path) -> None:
    """The same holds for the server's disk. The server may crash for want of room. Then the test starts it again, as
    its manager would."""
    with small_disk(220) as disk, own_server(disk) as server:
        server.make()
        server.start()
        async with world("full disk postgresql", server.url, tmp_path, nodes=2) as it:
            until = time.monotonic() + SECONDS
            while True:
                it.fault("full disks")
                ballast = await asyncio.to_thread(fill, disk)
                await asyncio.sleep(LEASE_S * 1.5)
                before = len(it.accepted)
                ballast.unlink()
                if not await asyncio.to_thread(server.answers):
                    await asyncio.to_thread(server.crash)
                    await asyncio.to_thread(server.start)
                await it.until(before, 90)
                if time.monotonic() >= until:
                    break
            await it.end_and_count()
