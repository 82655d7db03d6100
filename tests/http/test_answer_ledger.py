"""A ledger outside of Holdfast: callbacks and asks are answered at two servers at once, again and again, while the servers and
the process that executes are killed. Each answer counts once, a quorum is exact, and nothing is missed."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from holdfast import Holdfast
from holdfast.desk.starts import StartRequest
from holdfast.store.settings import PUBLIC_URL
from tests.http.test_event_ledger import LIMIT_S, World

PEOPLE, QUORUM = 4, 2
AGAIN = 3
"""How often each answer is sent to each server."""
APP = """
from pathlib import Path
from holdfast import ask, here, step, workflow

def written(file: str, line: str) -> None:
    with Path(file).open("a") as opened:
        opened.write(line + "\\n")

@step(callback=True)
async def request(name: str) -> str:
    written("addresses", f"{name} {here.callback}")

@step
async def enter(name: str, what: str) -> str:
    written("ledger", f"{name} {what} {here.key}")
    return what

@workflow
async def called(name: str) -> str:
    return await enter(name, await request(name))

@workflow
async def asked(name: str, people: list[str]) -> str:
    answers = await ask(people, f"May {name} go on?", bool, of=2)
    return await enter(name, ",".join(sorted(one.by for one in answers)))
"""


async def answered(world: World, client: httpx2.AsyncClient, server: int, path: str, body: Any) -> list[Any]:
    """Send an answer to one of the servers until it has said something `AGAIN` times. Return what it said."""
    said: list[Any] = []
    while len(said) < AGAIN:
        with suppress(httpx2.HTTPError):
            answer = await client.post(world.servers[server].url + path, json=body)
            if answer.status_code in {500, 503}:
                await asyncio.sleep(0.05)
                continue
            assert answer.status_code in {200, 409, 410}, answer.text
            said.append(answer.json() if answer.status_code == 200 else answer.status_code)
            continue
        await asyncio.sleep(0.05)
    return said


async def at_both(world: World, client: httpx2.AsyncClient, path: str, body: Any) -> list[Any]:
    found = await asyncio.gather(*(answered(world, client, server, path, body) for server in range(2)))
    return [one for said in found for one in said]


def lines(file: Path) -> list[list[str]]:
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


async def call_back(world: World, client: httpx2.AsyncClient, name: str) -> int:
    """Answer a callback with two results at once. Return how often the answer was that theirs was new."""
    while not (found := [one[1] for one in lines(world.folder / "addresses") if one[0] == name]):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    path = urlsplit(found[0]).path
    both = await asyncio.gather(
        *(at_both(world, client, path, {"output": f"{name}-{side}"}) for side in ("left", "right"))
    )
    return sum(one["new"] for said in both for one in said if isinstance(one, dict))


async def answer(
    world: World, client: httpx2.AsyncClient, hf: Holdfast, run: str, people: Sequence[str]
) -> list[str]:
    """Let all people answer the ask of a run at once. Return those whose answers count, as the store has them."""
    while not (found := await hf.asks.list(run=run)):  # noqa: ASYNC110  other processes ask
        await asyncio.sleep(0.05)
    path = f"/v1/asks/{found[0].id}/answer"
    bodies = [{"value": True, "by": one} for one in people]
    await asyncio.gather(*(at_both(world, client, path, body) for body in bodies))
    (ended,) = await hf.asks.list(run=run, ended=True)
    return sorted(one.by for one in ended.answers)


async def started(hf: Holdfast, workflow: str, run: str, **given: Any) -> None:
    await hf.desk.starts.start(hf.who, StartRequest(workflow, json.dumps(given).encode(), id=run))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("many", [8, pytest.param(300, marks=pytest.mark.long)])
async def test_every_answer_counts_once_whoever_is_killed(tmp_path: Path, store_url: str, many: int) -> None:
    (tmp_path / "app.py").write_text(APP)
    people = [f"person:p{number}" for number in range(PEOPLE)]
    async with Holdfast(store_url, roles=()) as hf:
        await hf.store.settings.set_setting(PUBLIC_URL, "https://holdfast.example")
    world = World(tmp_path, store_url)
    try:
        async with (
            httpx2.AsyncClient(timeout=20) as client,
            Holdfast(store_url, roles=()) as hf,
            asyncio.timeout(LIMIT_S),
        ):
            trouble = asyncio.create_task(world.trouble())
            calls, asks = [f"call-{n}" for n in range(many)], [f"ask-{n}" for n in range(many)]
            for call, ask in zip(calls, asks, strict=True):
                await started(hf, "app.called", call, name=call)
                await started(hf, "app.asked", ask, name=ask, people=people)
            news: list[int] = []
            counted: dict[str, list[str]] = {}
            for first in range(0, many, 8):
                part = slice(first, first + 8)
                news += await asyncio.gather(*(call_back(world, client, name) for name in calls[part]))
                found = await asyncio.gather(
                    *(answer(world, client, hf, name, people) for name in asks[part])
                )
                counted |= dict(zip(asks[part], found, strict=True))
            world.is_over = True
            await trouble
            results = {name: await hf.run(name).result(LIMIT_S) for name in (*calls, *asks)}
    finally:
        world.close()
    assert max(news) <= 1  # the one who was first may not have heard it, because its server died
    assert {name: one.split(",") for name, one in results.items() if name in counted} == counted
    assert {len(one) for one in counted.values()} == {QUORUM}
    ledger = {tuple(one) for one in lines(tmp_path / "ledger")}
    assert Counter(name for name, _, _ in ledger) == Counter(results.keys())
    assert {name: what for name, what, _ in ledger} == results
    print(f"{many} callbacks and {many} asks had one effect each, through {world.kills} kills")
