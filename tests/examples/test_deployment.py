"""Rolling deployment: servers are processes, and the roll-out stops at a bad one."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples import deployment
from holdfast import Holdfast
from holdfast.errors import RunCancelled, RunUndone
from tests.examples.conftest import until


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Path]:
    """A folder for servers, all of which are stopped at the end."""
    yield tmp_path / "servers"
    deployment.stop_servers.fn(str(tmp_path / "servers"))


def versions(folder: Path) -> dict[str, str]:
    """Return the version that each server's process says it is running."""
    found = {home.parent.name: deployment.ask(home.parent) for home in folder.glob("*/address")}
    return {name: health["version"] for name, health in sorted(found.items()) if health}


async def roll_out(store_url: str, folder: Path, version: str, unconfigured: list[str]) -> deployment.Rollout:
    async with Holdfast(store_url) as hf:
        roll_out = deployment.roll_out.using(id=f"roll-out-{version}")
        run = await hf.start(roll_out, version, soak_s=0.05, unconfigured=unconfigured, folder=str(folder))
        return await run.result(timeout=60)


async def test_every_server_runs_the_new_version(store_url: str, servers: Path) -> None:
    """After the roll-out each server's own process answers with the new version."""
    done = await roll_out(store_url, servers, "2.0", [])
    assert done == deployment.Rollout("2.0", ["web-1", "web-2", "web-3", "web-4"])
    assert await asyncio.to_thread(versions, servers) == dict.fromkeys(deployment.SERVERS, "2.0")


async def test_a_bad_server_stops_the_roll_out(store_url: str, servers: Path) -> None:
    """The bad server's batch gets its old version back, earlier batches keep the new version, later ones never get
    it."""
    with pytest.raises(RunUndone, match=r"web-3 runs 2\.1: no DATABASE in settings\.env"):
        await roll_out(store_url, servers, "2.1", ["web-3"])
    now = await asyncio.to_thread(versions, servers)
    assert now == {"web-1": "2.1", "web-2": "2.1", "web-3": "1.0", "web-4": "1.0"}


async def test_a_cancelled_roll_out_puts_its_batch_back(store_url: str, servers: Path) -> None:
    """The run is cancelled while it watches the second batch. This batch gets its old version back; the first has
    proved itself."""

    async def all_new() -> bool:
        return set((await asyncio.to_thread(versions, servers)).values()) == {"2.0"}

    async with Holdfast(store_url) as hf:
        run = await hf.start(deployment.roll_out, "2.0", soak_s=2, folder=str(servers))
        await until(all_new)
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=60)
    now = await asyncio.to_thread(versions, servers)
    assert now == {"web-1": "2.0", "web-2": "2.0", "web-3": "1.0", "web-4": "1.0"}


async def test_shut_down_stops_the_processes(store_url: str, servers: Path) -> None:
    """The second workflow of the example leaves no server behind."""
    await roll_out(store_url, servers, "2.0", [])
    async with Holdfast(store_url) as hf:
        stopped = await (await hf.start(deployment.shut_down, str(servers))).result(timeout=60)
    assert stopped == deployment.SERVERS
    assert await asyncio.to_thread(versions, servers) == {}
