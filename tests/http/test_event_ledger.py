"""A ledger outside of Holdfast: four senders repeat their events to two servers that are killed and started again, while the
process that executes is killed, too. Each event has one effect, and none is missed."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
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
BATCH_MAX = 50
"""How many events one request carries at most."""
LIMIT_S = 600.0
APP = """
from pathlib import Path
from holdfast import here, step, workflow
from holdfast.events import Event, all_of, several, when
from holdfast.schedules import occasion

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

@workflow
async def puts_together(parts: dict) -> str:
    value = occasion().value
    assert parts == {"left": f"0.{value}", "right": f"1.{value}", "files": parts["files"]}
    assert sorted(parts["files"]) == [f"2.{value}", f"3.{value}"]
    return await enter(value)

when(
    all_of(left="part.left", right="part.right", files=several("part.file", 2)), within=3600, otherwise="skip"
)(puts_together)
"""
PARTS = ("part.left", "part.right", "part.file", "part.file")
"""What each sender sends for each occasion."""


class World:
    """Two servers and a process that executes, each of which may be killed at any time."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder, self.store = folder, store
        self.dice = random.Random(7)
        self.servers = [Process(folder, store, "server") for _ in range(2)]
        self.node = Process(folder, store, "up", "app.py")
        self.kills = self.deliveries = 0
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


def written(world: World, events: list[CloudEvent]) -> tuple[dict[str, str], bytes]:
    """Return the headers and the body of a request: one event in either form, or a batch."""
    if len(events) == 1:
        headers, body = world.dice.choice((to_structured, to_binary))(events[0])
        return headers, body
    members = b",".join(to_structured(event)[1] for event in events)
    return {"content-type": "application/cloudevents-batch+json"}, b"[" + members + b"]"


async def send(world: World, client: httpx2.AsyncClient, events: list[CloudEvent]) -> list[dict[str, Any]]:
    """Send events until they are answered, and once more now and then."""
    headers, body = written(world, events)
    answers = 0
    wanted = world.dice.choice((1, 1, 2, 3))
    while True:
        url = world.dice.choice(world.servers).url
        with suppress(httpx2.HTTPError):
            answer = await client.post(f"{url}/v1/events", content=body, headers=headers)
            if answer.status_code == 202:
                answers += 1
                world.deliveries += len(events)
                if answers >= wanted:
                    found: list[dict[str, Any]] = answer.json()["items"]
                    return found
            else:
                assert answer.status_code in {500, 503}, answer.text
        await asyncio.sleep(0.05)


async def sender(world: World, client: httpx2.AsyncClient, number: int, many: int) -> dict[str, str]:
    """Send so many events that start a run each, and some that a run waits for. Return the runs by event."""
    source = f"sender-{number}"
    notes = set(world.dice.sample(range(many), AWAITED))
    events = []
    for i in range(many):
        if i in notes:
            note = {"type": "ledger.note", "source": source, "id": f"note-{i}", "subject": str(number)}
            events.append(CloudEvent(note, i))
        events.append(CloudEvent({"type": "ledger.entry", "source": source, "id": str(i)}, f"{number}.{i}"))
    started = {}
    async for event, took in each_sent(world, client, events):
        if event["type"] == "ledger.entry":
            (started[event.data],) = took["started"]
    started["notes"] = json.dumps(sorted(notes))
    return started


async def each_sent(
    world: World, client: httpx2.AsyncClient, events: list[CloudEvent]
) -> AsyncIterator[tuple[CloudEvent, dict[str, Any]]]:
    """Send events one by one and in batches. Yield each with what became of it."""
    while events:
        some = events[: world.dice.choice((1, 1, 2, BATCH_MAX))]
        events = events[len(some) :]
        for one in zip(some, await send(world, client, some), strict=True):
            yield one


async def send_parts(world: World, client: httpx2.AsyncClient, number: int, values: list[str]) -> None:
    """Send a part of each occasion, each sender in an order of its own."""
    events = [
        CloudEvent(
            {"type": PARTS[number], "source": f"sender-{number}", "id": value, "subject": value},
            f"{number}.{value}",
        )
        for value in world.dice.sample(values, len(values))
    ]
    async for _, took in each_sent(world, client, events):
        assert took["late"] == []
        assert took["collected"] == [f"puts_together@when:{took['id']}"]


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
    print(
        f"{len(started):,} events in {world.deliveries:,} deliveries started {len(started):,} runs, through {world.kills} kills"
    )


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("many", [40, pytest.param(2_500, marks=pytest.mark.long)])
async def test_every_occasion_starts_one_run_whoever_is_killed(
    tmp_path: Path, store_url: str, many: int
) -> None:
    """Four senders send the parts of composed triggers at the same time. Whoever brings the last one, to whichever server, and
    however often it is sent again: each occasion has all of its parts, and one run."""
    (tmp_path / "app.py").write_text(APP)
    world = World(tmp_path, store_url)
    values = [f"day-{number}" for number in range(many)]
    try:
        async with httpx2.AsyncClient(timeout=20) as client, Holdfast(store_url, roles=()) as hf:
            trouble = asyncio.create_task(world.trouble())
            await asyncio.gather(*(send_parts(world, client, number, values) for number in range(SENDERS)))
            world.is_over = True
            await trouble
            for value in values:
                assert await hf.run(f"puts_together@when:{value}").result(LIMIT_S) == value
            counted = len(await hf.runs(workflow="app.puts_together", limit=many + 10))
    finally:
        world.close()
    assert counted == many
    effects = Counter(line.split()[0] for line in set((tmp_path / "ledger").read_text().splitlines()))
    assert effects == Counter(values)
    print(
        f"{SENDERS * many:,} events in {world.deliveries:,} deliveries completed {many:,} occasions, through {world.kills} kills"
    )
