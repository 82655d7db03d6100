"""Cloud provisioning: one resource per request, however often it is asked for."""

import json
from pathlib import Path

import pytest

from examples import provisioning
from holdfast import Holdfast, RunFailed


def made(cloud: Path) -> list[str]:
    """The kinds of all resources that exist."""
    return sorted(json.loads(file.read_text())["kind"] for file in cloud.glob("*-*.json"))


async def test_a_platform_is_provisioned(store_url: str, tmp_path: Path) -> None:
    """Network, machines, database and name exist in the cloud, and the machines are in the network."""
    async with Holdfast(store_url) as hf:
        run = await hf.start(provisioning.provision, "shop", 3, str(tmp_path))
        platform = await run.result(timeout=60)
    assert made(tmp_path) == ["database", "machine", "machine", "machine", "network"]
    assert {machine.within for machine in platform.machines} == {platform.network.id}
    zone = json.loads((tmp_path / "zone.json").read_text())
    assert zone["shop.example"] == [machine.address for machine in platform.machines]
    assert platform.url == "https://shop.example"


async def test_starting_the_same_id_again_makes_nothing_new(store_url: str, tmp_path: Path) -> None:
    """The same id is the same run: no second platform."""
    async with Holdfast(store_url) as hf:
        wanted = provisioning.provision.using(id="platform")
        first = await (await hf.start(wanted, "shop", 1, str(tmp_path))).result(timeout=60)
        assert await (await hf.start(wanted, "shop", 1, str(tmp_path))).result(timeout=60) == first
    assert made(tmp_path) == ["database", "machine", "network"]


async def test_a_used_up_quota_fails_the_run(store_url: str, tmp_path: Path) -> None:
    """The cloud's refusal is the run's error, and the quota was kept."""
    async with Holdfast(store_url) as hf:
        run = await hf.start(provisioning.provision, "mall", 9, str(tmp_path))
        with pytest.raises(RunFailed, match="the quota of 8 machines is used up"):
            await run.result(timeout=60)
    assert made(tmp_path).count("machine") <= provisioning.QUOTA


def test_a_repeated_request_gets_the_same_resource(tmp_path: Path) -> None:
    """The token names the resource."""
    cloud = provisioning.Cloud(str(tmp_path))
    first = cloud.create("token", "machine", "m", "")
    assert cloud.create("token", "machine", "m", "") == first
    assert made(tmp_path) == ["machine"]
