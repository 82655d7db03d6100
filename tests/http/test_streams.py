"""The stream of pokes: it says that something changed, and whoever comes back misses nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec

from holdfast import Holdfast
from holdfast.access import Identity, Kind, Role
from holdfast.http.listener import Address, serving
from holdfast.http.marks import WHOLE
from tests.http.conftest import FAST, Asked, bearer, made_ask, made_callback, made_occasion, made_token

COUNT = {"workflow": "shop.count", "input": {"a": 1}}


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[tuple[Holdfast, str]]:
    """A server on a socket: a client in the same process would wait for the whole stream."""
    async with (
        Holdfast(url, roles=(), config=msgspec.structs.replace(FAST, streams_max=2)) as hf,
        serving(hf, hf.desk, Address("127.0.0.1", 0)) as address,
    ):
        yield hf, address


class Reader:
    """Reads the events of one stream."""

    def __init__(self, client: httpx2.AsyncClient, url: str, *topics: str, **headers: str) -> None:
        query = "&".join(f"topic={quote(topic, safe='')}" for topic in topics)
        self._stream = client.stream("GET", f"{url}/v1/stream?{query}", headers=headers)
        self.last_id = ""

    async def __aenter__(self) -> Reader:
        self._answer = await self._stream.__aenter__()
        assert self._answer.status_code == 200, await self._answer.aread()
        assert self._answer.headers["content-type"].startswith("text/event-stream")
        self._lines = self._answer.aiter_lines()
        assert (await self._next_lines())[0].startswith("retry: ")
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._stream.__aexit__(*exception)

    async def _next_lines(self) -> list[str]:
        found: list[str] = []
        async with asyncio.timeout(20):
            async for line in self._lines:
                if line:
                    found.append(line)
                elif found:
                    return found
        return found

    async def event(self) -> tuple[str, dict[str, Any]]:
        """Return the next event and its data. At the end of the stream: nothing."""
        fields = dict(line.split(": ", 1) for line in await self._next_lines())
        self.last_id = fields.get("id", self.last_id)
        return fields.get("event", ""), json.loads(fields.get("data", "{}"))


async def test_a_change_is_poked_and_has_no_content(store_url: str) -> None:
    """A topic and its mark. The mark of a run is its ETag."""
    async with listening(store_url) as (hf, url), httpx2.AsyncClient(timeout=30) as client:
        await client.post(f"{url}/v1/runs", json={**COUNT, "id": "x", "tags": {"secret": "canary"}})
        async with Reader(client, url, "run:x", "runs:state=held") as reader:
            event, first = await reader.event()
            assert (event, first["topic"]) == ("poke", "run:x")
            found = await client.get(f"{url}/v1/runs/x")
            assert found.headers["etag"] == f'"{first["mark"]}"'
            assert (await reader.event())[1]["topic"] == "runs:state=held"
            await hf.run("x").hold()
            poked = {(await reader.event())[1]["topic"] for _ in range(2)}
            assert poked == {"run:x", "runs:state=held"}


async def test_whoever_comes_back_to_another_server_misses_nothing(store_url: str) -> None:
    """With the last id: nothing if nothing has changed, and otherwise a poke."""
    async with (
        listening(store_url) as (hf, one),
        listening(store_url) as (_, other),
        httpx2.AsyncClient(timeout=30) as client,
    ):
        await client.post(f"{one}/v1/runs", json={**COUNT, "id": "x"})
        async with Reader(client, one, "run:x") as reader:
            await reader.event()
            last = reader.last_id
        async with Reader(client, other, "run:x", **{"Last-Event-ID": last}) as reader:
            waiting = asyncio.create_task(reader.event())
            await hf.run("x").hold()
            _, data = await waiting
            held = (await client.get(f"{other}/v1/runs/x")).headers["etag"]
            assert held == f'"{data["mark"]}"', "the first poke after coming back was about the old state"
            last = reader.last_id
        await hf.run("x").release()
        async with Reader(client, one, "run:x", **{"Last-Event-ID": last}) as reader:
            assert (await reader.event())[1]["topic"] == "run:x"


async def test_a_stream_ends_with_its_server_and_with_its_token(store_url: str) -> None:
    """It says `leave`, so that the reader comes back at once; a revoked token just ends."""
    async with httpx2.AsyncClient(timeout=30) as client:
        async with listening(store_url) as (hf, url):
            reader = Reader(client, url, "run:nobody")
            await reader.__aenter__()
            assert (await reader.event())[1] == {"topic": "run:nobody", "mark": "unknown"}
        assert (await reader.event())[0] == "leave"
        await reader.__aexit__(None, None, None)
        async with listening(store_url) as (hf, url):
            token = await made_token(hf, "viewer")
            async with Reader(client, url, "run:nobody", **bearer(token)) as reader:
                await reader.event()
                await hf.store.tokens.revoke_token(token.split("_")[2], "test")
                assert await reader.event() == ("", {})


async def test_streams_are_counted_by_token(store_url: str) -> None:
    """A token that has too many gets a 429, and closed ones do not count."""
    async with listening(store_url) as (_, url), httpx2.AsyncClient(timeout=30) as client:
        async with Reader(client, url, "run:a") as one, Reader(client, url, "run:b") as two:
            await one.event()
            await two.event()
            assert (await client.get(f"{url}/v1/stream?topic=run:c")).status_code == 429
        async with asyncio.timeout(20):
            while (await client.get(f"{url}/metrics")).text.count("holdfast_streams_open 0") == 0:
                pass
        async with Reader(client, url, "run:c") as again:
            await again.event()


async def test_what_is_no_topic_is_refused(lone: Asked) -> None:
    """And another's run is like one that does not exist."""
    for query in (
        "",
        "?topic=",
        "?topic=run",
        "?topic=run:",
        "?topic=all:x",
        "?topic=runs:state=lost",
        "?topic=runs:x=1",
    ):
        assert (await lone.get(f"/v1/stream{query}")).status_code in {400, 422}, query
    theirs = bearer(await made_token(lone.hf, "operator", "umbrella"))
    mine = bearer(await made_token(lone.hf, "viewer", "acme"))
    await lone.post("/v1/runs", {**COUNT, "id": "x"}, headers=theirs)
    lone.server.leave()
    for run in ("x", "nobody"):
        answer = await lone.get(f"/v1/stream?topic=run:{run}", headers=mine)
        assert answer.text.count("event: poke") == 0
    assert lone.server.streams == {}


async def made_everything(asked: Asked) -> None:
    """Something in every list that an act can make."""
    await asked.post("/v1/runs", {**COUNT, "id": "x"})
    await asked.post("/v1/acts", {"verb": "hold", "prefix": "x"})
    await asked.post("/v1/holds", {"scope": "workflow", "value": "shop.count"})
    await asked.post("/v1/breakers/bank/open", {})
    await asked.post("/v1/fair", {"key": "acme", "weight": 2})
    await asked.post(
        "/v1/schedules", {"name": "daily", "workflow": "shop.count", "times": "0 3 * * *", "input": {"a": 1}}
    )
    await made_ask(asked.hf, "default", "asking", "Pay it?", "person:ada")
    await made_occasion(asked.hf, "default", "2026-11-18")
    await made_callback(asked.hf, "default", "calling")


async def test_a_mark_changes_when_its_list_does_and_not_otherwise(quiet: Asked) -> None:
    """Nor does it depend on who looks: one look serves all in a namespace, and pages of two people would poke each other for ever."""
    ada = Identity(Kind.TOKEN, "1", "ada", Role.ADMIN, frozenset({"default"}), "default")
    bob = Identity(Kind.TOKEN, "2", "bob", Role.VIEWER, frozenset({"default"}), "default", payloads=False)

    async def marks(who: Identity) -> dict[str, str]:
        return {topic: await read(quiet.hf.desk, who) for topic, read in WHOLE.items()}

    empty = await marks(ada)
    assert empty == await marks(bob)
    await made_everything(quiet)
    full = await marks(ada)
    assert full == await marks(bob)
    assert full == await marks(ada)
    rest = {"alerts", "quarantine"}  # they need a supervisor, or a process that dies: see the pages
    assert {topic for topic in WHOLE if full[topic] == empty[topic]} == rest


async def test_each_list_is_a_topic(quiet: Asked) -> None:
    """And a wrong one is refused with their names."""
    async with listening(str(quiet.hf.url)) as (_, url), httpx2.AsyncClient(timeout=30) as client:
        async with Reader(client, url, *WHOLE, "limit:nothing") as reader:
            found = {(await reader.event())[1]["topic"] for _ in range(len(WHOLE) + 1)}
            assert found == {*WHOLE, "limit:nothing"}
        refused = (await client.get(f"{url}/v1/stream?topic=lists")).json()
        assert all(topic in refused["detail"] for topic in WHOLE)
