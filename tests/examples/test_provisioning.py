"""Cloud provisioning: one resource per request, however often it is requested; all of a platform, or nothing."""

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from examples import provisioning
from holdfast import Holdfast, Stop
from holdfast.errors import RunCancelled, RunUndone
from tests.examples.conftest import ROOT, Ended, until


def made(cloud: Path) -> list[str]:
    """Return the kinds of all resources that exist."""
    return sorted(json.loads(file.read_text())["kind"] for file in cloud.glob("*-*.json"))


def trail(cloud: Path) -> tuple[list[str], list[str]]:
    """Return what was made and what was removed, each in its order."""
    lines = [line.split() for line in (cloud / "trail.txt").read_text().splitlines()]
    return [each for what, each in lines if what == "made"], [
        each for what, each in lines if what == "removed"
    ]


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


async def test_a_used_up_quota_tears_everything_down(store_url: str, tmp_path: Path) -> None:
    """The cloud's refusal is the run's error, and nothing is left of what was built."""
    async with Holdfast(store_url) as hf:
        run = await hf.start(provisioning.provision, "mall", 9, str(tmp_path))
        with pytest.raises(RunUndone, match="the quota of 8 machines is used up"):
            await run.result(timeout=60)
    assert made(tmp_path) == []
    came, went = trail(tmp_path)
    assert sorted(came) == sorted(went)
    assert came[0] == went[-1]
    assert came[0].startswith("network-")


async def test_what_others_have_stays(store_url: str, tmp_path: Path) -> None:
    """Only what the run itself made is removed."""
    async with Holdfast(store_url) as hf:
        shop = await (await hf.start(provisioning.provision, "shop", 2, str(tmp_path))).result(timeout=60)
        with pytest.raises(RunUndone):
            await (await hf.start(provisioning.provision, "mall", 8, str(tmp_path))).result(timeout=60)
    assert made(tmp_path) == ["database", "machine", "machine", "network"]
    zone = json.loads((tmp_path / "zone.json").read_text())
    assert zone == {"shop.example": [machine.address for machine in shop.machines]}


async def test_cancelled_while_it_comes_up_it_is_torn_down(store_url: str, tmp_path: Path) -> None:
    """The run is cancelled while machines and database start. They are removed, and after them the network they are
    in."""

    async def all_made() -> bool:
        return len(made(tmp_path)) == 5

    async with Holdfast(store_url) as hf:
        run = await hf.start(provisioning.provision, "shop", 3, str(tmp_path))
        await until(all_made)
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=60)
    assert made(tmp_path) == []
    came, went = trail(tmp_path)
    assert came[0] == went[-1]


def test_killed_while_it_tears_down_it_goes_on_with_that(
    store_url: str,
    tmp_path: Path,
    command: Callable[..., Ended],
    start_command: Callable[..., subprocess.Popen[str]],
) -> None:
    """kill -9 as soon as something is removed. The same command again removes the rest, each resource once."""
    cloud = tmp_path / "cloud"
    given = json.dumps({"name": "mall", "machines": 9, "cloud": str(cloud)})
    program = f"{ROOT}/examples/provisioning.py:provision"
    arguments = ("run", program, "--id", "killed", "--store", store_url, "--input", given)
    process = start_command(*arguments)
    while not list(cloud.glob("*.gone")):
        assert process.poll() is None, process.communicate()[1]
    process.send_signal(signal.SIGKILL)
    process.wait()

    ended = command(*arguments)
    assert (ended.code, ended.shown["state"]) == (1, "undone")
    assert made(cloud) == []
    came, went = trail(cloud)
    assert len(went) == len(set(went))
    assert len(set(came) - set(went)) <= 1  # killed after the removal and before it was written to the trail
    assert came[0] == went[-1]


def test_a_repeated_request_gets_the_same_resource(tmp_path: Path) -> None:
    """The token names the resource."""
    cloud = provisioning.Cloud(str(tmp_path))
    first = cloud.create("token", "machine", "m", "")
    assert cloud.create("token", "machine", "m", "") == first
    assert made(tmp_path) == ["machine"]


def test_a_removed_resource_does_not_come_back(tmp_path: Path) -> None:
    """A request that comes after the removal of its resource is refused. Removing it twice is the same as once."""
    cloud = provisioning.Cloud(str(tmp_path))
    for _ in range(2):
        cloud.remove(cloud.name_of("machine", "token"))
    with pytest.raises(Stop, match="its token is used up"):
        cloud.create("token", "machine", "m", "")
    assert made(tmp_path) == []


def test_a_network_in_use_is_not_removed(tmp_path: Path) -> None:
    """So an undo in the wrong order would fail."""
    cloud = provisioning.Cloud(str(tmp_path))
    network = cloud.create("n", "network", "net", "")
    cloud.create("m", "machine", "m", network.id)
    with pytest.raises(OSError, match="in use by machine-"):
        cloud.remove(network.id)
