"""A ledger outside of Holdfast: four senders repeat their events to two servers that are killed and started again, while the
process that executes is killed, too. Each event has one effect, and none is missed."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cloudevents.conversion import to_binary, to_structured
from cloudevents.http import CloudEvent

from holdfast import Holdfast
from holdfast.desk.starts import StartRequest
from tests.http.processes import Process

SENDERS = 4
AWAITED = 5
"""How many events each sender sends that a run waits for."""
LIMIT_S = 600.0
APP = """
from pathlib import Path
from holdfast import here, step, workflow
from holdfast.events import Event

noted = Event("ledger.note", int)

@step
async def enter(event: str) -> str:
    with Path("ledger").open("a") as file:
        file.write(f"{event} {here.key}\\n")
    return event

@workflow(on="ledger.entry")
async def entry(event: str) -> str:
    return await enter(event)

@workflow
async def listens(sender: int, many: int) -> list[int]:
    return [await noted.wait(str(sender)) for _ in range(many)]
"""


class World:
    """Two servers and a process that executes, each of which may be killed at any time."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder, self.store = folder, store
        self.dice = random.Random(7)
        self.servers = [Process(folder, store, "server") for _ in range(2)]
        self.node = Process(folder, store, "up", "app.py")
        self.kills = 0
        self.is_over = False

    async def trouble(self) -> None:
        """Kill one process after the other, and start it again."""
        while not self.is_over:
            await asyncio.sleep(self.dice.uniform(0.1, 0.8))
            victim = self.dice.randrange(3)
            if victim < 2:
                self.servers[victim] = await asyncio.to_thread(self._anew, self.servers[victim], "server")
            else:
                self.node = await asyncio.to_thread(self._anew, self.node, "up", "app.py")
            self.kills += 1

    def _anew(self, old: Process, *words: str) -> Process:
        old.end(signal.SIGKILL)
        return Process(self.folder, self.store, *words)

    def close(self) -> None:
        for one in (*self.servers, self.node):
            one.close()


async def send(world: World, client: httpx2.AsyncClient, event: CloudEvent) -> dict[str, Any]:
    """Send an event until it is answered, and once more now and then."""
    form = world.dice.choice((to_structured, to_binary))
    headers, body = form(event)
    answers = 0
    wanted = world.dice.choice((1, 1, 2, 3))
    while True:
        url = world.dice.choice(world.servers).url
        with suppress(httpx2.HTTPError):
            answer = await client.post(f"{url}/v1/events", content=body, headers=headers)
            if answer.status_code == 202:
                answers += 1
                if answers >= wanted:
                    found: dict[str, Any] = answer.json()["items"][0]
                    return found
            else:
                assert answer.status_code in {500, 503}, answer.text
        await asyncio.sleep(0.05)


async def sender(world: World, client: httpx2.AsyncClient, number: int, many: int) -> dict[str, str]:
    """Send so many events that start a run each, and some that a run waits for. Return the runs by event."""
    started = {}
    notes = set(world.dice.sample(range(many), AWAITED))
    for i in range(many):
        if i in notes:
            note = {
                "type": "ledger.note",
                "source": f"sender-{number}",
                "id": f"note-{i}",
                "subject": str(number),
            }
            await send(world, client, CloudEvent(note, i))
        name = f"{number}.{i}"
        entry = CloudEvent({"type": "ledger.entry", "source": f"sender-{number}", "id": str(i)}, name)
        (started[name],) = (await send(world, client, entry))["started"]
    started["notes"] = json.dumps(sorted(notes))
    return started


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("many", [40, pytest.param(5_000, marks=pytest.mark.long)])
async def test_every_event_has_one_effect_whoever_is_killed(
    tmp_path: Path, store_url: str, many: int
) -> None:
    (tmp_path / "app.py").write_text(APP)
    world = World(tmp_path, store_url)
    try:
        async with httpx2.AsyncClient(timeout=20) as client, Holdfast(store_url, roles=()) as hf:
            runs = []
            for number in range(SENDERS):
                given = json.dumps({"sender": number, "many": AWAITED}).encode()
                begun = await hf.desk.starts.start(
                    hf.who, StartRequest("app.listens", given, id=f"listens-{number}")
                )
                runs.append(begun.run)
            trouble = asyncio.create_task(world.trouble())
            sent = await asyncio.gather(*(sender(world, client, number, many) for number in range(SENDERS)))
            world.is_over = True
            await trouble
            for one, number in zip(sent, range(SENDERS), strict=True):
                expected = json.loads(one.pop("notes"))
                assert sorted(await hf.run(runs[number]).result(LIMIT_S)) == expected
            started = {name: run for one in sent for name, run in one.items()}
            for name, run in started.items():
                assert await hf.run(run).result(LIMIT_S) == name
    finally:
        world.close()
    assert len(set(started.values())) == len(started) == SENDERS * many
    keys = Counter(line.split()[0] for line in set((tmp_path / "ledger").read_text().splitlines()))
    assert keys == Counter(started.keys())  # each effect has one key, however often its process died
    print(f"{len(started):,} events started {len(started):,} runs, through {world.kills} kills")
