"""Cloud provisioning: a network first, then machines and a database in parallel, then a name for them.

    holdfast run examples/provisioning.py:provision --input '{"name": "shop", "machines": 3}'
    holdfast run examples/provisioning.py:provision --input '{"name": "mall", "machines": 9}'     over the quota: torn down

What it shows:
- `TaskGroup` in a workflow;
- `here.key` as the client token: two requests with the same token make one resource;
- waiting for something slow by asking now and then, with a durable `asyncio.sleep` in between, so that no agent is busy
  while nothing happens;
- an undo for everything that is made. The order of undoing matters here: a cloud does not remove a network that still has
  machines in it.

The cloud is a folder, work/cloud: one JSON file for each resource, and a trail of what came and went.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast import Stop, here, set_progress, step, workflow

QUOTA = 8
"""How many machines the cloud gives at most."""


@dataclass(frozen=True)
class Resource:
    id: str
    kind: str
    name: str
    address: str
    usable_from: float
    """When the resource is up: it takes a moment."""
    within: str = ""


@dataclass(frozen=True)
class Platform:
    network: Resource
    machines: list[Resource]
    database: Resource
    url: str


@step(timeout=10)
def create(cloud: str, kind: str, name: str, within: str = "") -> Resource:
    """Ask the cloud for a resource. Asking again with the same key gives the same one."""
    return Cloud(cloud).create(here.key, kind, name, within)


@create.undo
def remove(made: Resource | None, cloud: str, kind: str, name: str, within: str = "") -> None:
    """Remove the resource. If nobody knows whether it was made, find it by the token it would have been made with."""
    Cloud(cloud).remove(made.id if made else Cloud.name_of(kind, here.undoes))


@step(timeout=10)
def is_up(cloud: str, resource: Resource) -> bool:
    return Cloud(cloud).find(resource.id).usable_from <= time.time()


@step(timeout=10)
def point(cloud: str, name: str, machines: list[Resource]) -> str:
    """Give the machines a name. Writing the same record twice changes nothing."""
    Cloud(cloud).point(f"{name}.example", [machine.address for machine in machines])
    return f"https://{name}.example"


@point.undo
def unpoint(url: str | None, cloud: str, name: str, machines: list[Resource]) -> None:
    Cloud(cloud).point(f"{name}.example", [])


async def ready(cloud: str, kind: str, name: str, within: str = "") -> Resource:
    """Create a resource, then wait until it is up. This is a part of the workflow, not a step."""
    resource = await create(cloud, kind, name, within)
    async with asyncio.timeout(300):
        while not await is_up(cloud, resource):  # noqa: ASYNC110  only the cloud knows, and it has no events
            await asyncio.sleep(0.5)
    return resource


@workflow
async def provision(name: str = "shop", machines: int = 3, cloud: str = "work/cloud") -> Platform:
    network = await ready(cloud, "network", name)
    set_progress(0.3, "the network is up")
    async with asyncio.TaskGroup() as group:  # if one fails, the others are cancelled
        database = group.create_task(ready(cloud, "database", f"{name}-db", network.id), name="database")
        servers = [
            group.create_task(ready(cloud, "machine", f"{name}-{n}", network.id), name=f"machine-{n}")
            for n in range(1, machines + 1)
        ]
    made = [server.result() for server in servers]
    set_progress(0.9, f"{machines} machines and the database are up")
    return Platform(network, made, database.result(), await point(cloud, name, made))


class Cloud:
    """A cloud of files. A token names its resource, so a repeated request finds what the first one made."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    @staticmethod
    def name_of(kind: str, token: str) -> str:
        return f"{kind}-{hashlib.sha256(token.encode()).hexdigest()[:10]}"

    def create(self, token: str, kind: str, name: str, within: str) -> Resource:
        resource_id = self.name_of(kind, token)
        with self._alone():
            if self._file(resource_id).exists():
                return self.find(resource_id)
            if self._gone(resource_id).exists():
                raise Stop(f"{resource_id} was removed: its token is used up")
            if kind == "machine" and len(list(self.folder.glob("machine-*.json"))) >= QUOTA:
                raise Stop(f"the quota of {QUOTA} machines is used up")
            address = f"10.0.{int(resource_id[-2:], 16)}.{int(resource_id[-4:-2], 16)}"
            resource = Resource(resource_id, kind, name, address, time.time() + 0.7, within)
            write(self._file(resource_id), asdict(resource))
            self._note("made", resource_id)
            return resource

    def remove(self, resource_id: str) -> None:
        """Remove the resource if it is there, and leave a mark, so that a request which comes late does not make it after all."""
        with self._alone():
            inside = [
                file.stem
                for file in self.folder.glob("*-*.json")
                if self.find(file.stem).within == resource_id
            ]
            if inside:
                raise OSError(f"{resource_id} is in use by {', '.join(inside)}")
            self._gone(resource_id).touch()
            if self._file(resource_id).exists():
                self._file(resource_id).unlink()
                self._note("removed", resource_id)

    def find(self, resource_id: str) -> Resource:
        return Resource(**json.loads(self._file(resource_id).read_text()))

    def point(self, name: str, addresses: list[str]) -> None:
        """Let a name stand for these addresses. Without addresses, remove the name."""
        zone = self.folder / "zone.json"
        with self._alone():
            records = json.loads(zone.read_text()) if zone.exists() else {}
            records.pop(name, None)
            write(zone, {**records, name: addresses} if addresses else records)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let in one request at a time, so that the quota is kept."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _note(self, what: str, resource_id: str) -> None:
        with (self.folder / "trail.txt").open("a") as trail:
            trail.write(f"{what} {resource_id}\n")

    def _file(self, resource_id: str) -> Path:
        return self.folder / f"{resource_id}.json"

    def _gone(self, resource_id: str) -> Path:
        return self.folder / f"{resource_id}.gone"


def write(path: Path, value: object) -> None:
    """Write the file whole or not at all."""
    draft = path.with_suffix(f".{os.getpid()}.draft")
    draft.write_text(json.dumps(value, indent=2))
    draft.replace(path)
