"""What arrives by a socket: slow senders, heads without end, pipelines, and connections that are cut."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.http import listener, protocol
from holdfast.http.listener import Address, serving
from holdfast.store.reads import RunFilter
from tests.http import flows
from tests.http.conftest import FAST, until

CONFIG = msgspec.structs.replace(FAST, body_s=0.3, leave_s=2.0)
HEAD = "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = '{"workflow": "shop.count", "input": {"a": 1}}'


class Heard(NamedTuple):
    hf: Holdfast
    port: int

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def say(self, *parts: str) -> bytes:
        """Send this, and return all that is answered until the connection ends."""
        reader, writer = await self.connect()
        try:
            for part in parts:
                writer.write(part.encode())
                await writer.drain()
            return await asyncio.wait_for(reader.read(), 20)
        except ConnectionError:
            return b""  # the server did not read to the end
        finally:
            writer.close()


@pytest.fixture
async def heard(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Heard]:
    monkeypatch.setattr(protocol, "HEAD_S", 0.3)
    monkeypatch.setattr(listener, "KEEP_ALIVE_S", 1)
    async with (
        Holdfast("sqlite://:memory:", roles=(), config=CONFIG) as hf,
        serving(hf, hf.desk, Address("127.0.0.1", 0)) as url,
    ):
        yield Heard(hf, urlsplit(url).port or 0)


async def test_a_request_that_closes_is_answered_once(heard: Heard) -> None:
    """The plain case, over a real socket."""
    found = await heard.say(f"{HEAD}Connection: close\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}")
    assert found.startswith(b"HTTP/1.1 201")
    assert b"server:" not in found.lower()


async def test_a_body_that_does_not_come_is_refused(heard: Heard) -> None:
    """The sender gets a problem, and nothing was started."""
    found = await heard.say(f"{HEAD}Connection: close\r\nContent-Length: 1000\r\n\r\n{{")
    assert found.startswith(b"HTTP/1.1 400")
    assert b"did not arrive" in found
    assert await heard.hf.store.reads.runs(RunFilter()) == []


@pytest.mark.parametrize("begun", ["", "GET /v1/me HTTP/1.1\r\nHost: local"], ids=["nothing", "half a head"])
async def test_a_head_that_does_not_come_ends_the_connection(heard: Heard, begun: str) -> None:
    """Otherwise a few thousand silent connections would be all that the server can have."""
    assert await heard.say(begun) == b""


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "\r\n"),
        ("POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n", "x"),
    ],
    ids=["an empty line between requests", "a part of a body that is not wanted"],
)
async def test_silence_after_an_answer_ends_the_connection(heard: Heard, first: str, then: str) -> None:
    """Whatever came after the answer: otherwise nobody who has no token would ever give back a connection."""
    reader, writer = await heard.connect()
    writer.write(first.encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 ")
    writer.write(then.encode())
    await asyncio.wait_for(reader.read(), 20)
    writer.close()


@pytest.mark.parametrize("trailer", [f"X: {'x' * 1000}\r\n", "x" * 1000], ids=["many", "one"])
async def test_headers_after_a_body_have_a_bound(heard: Heard, trailer: str) -> None:
    """They are kept by nobody, and whoever sends them without end is cut off."""
    reader, writer = await heard.connect()
    chunked = "POST /nothing HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    writer.write(chunked.encode())
    sent = 0
    with contextlib.suppress(ConnectionError):
        while not reader.at_eof() and sent < 10_000_000:
            writer.write(trailer.encode())
            sent += len(trailer)
            await writer.drain()
            await asyncio.sleep(0)
    writer.close()
    assert sent < 10_000_000


async def test_a_body_in_small_chunks_is_taken(heard: Heard) -> None:
    """The lengths of the chunks are more than the body."""
    body = BODY.replace('"input"', f'"tags": {{"a": "{"x" * 900}"}}, "input"')
    chunks = [f"1\r\n{char}\r\n" for char in body]
    head = f"{HEAD}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert (await heard.say(head, "".join(chunks), "0\r\nX-After: 1\r\n\r\n")).startswith(b"HTTP/1.1 201")


async def test_a_head_without_end_is_refused(heard: Heard) -> None:
    """Its size is bounded before any of it is understood."""
    found = await heard.say(HEAD, *(f"X-{n}: {'x' * 1000}\r\n" for n in range(100)))
    assert found == b"" or found.startswith(b"HTTP/1.1 400")


async def test_requests_in_a_pipeline_are_answered_in_order(heard: Heard) -> None:
    """Each gets its own answer."""
    ask = "GET /v1/runs/nobody HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = "GET /v1/me HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    found = await heard.say(ask + ask + last)
    assert found.count(b"HTTP/1.1 404") == 2
    assert found.rindex(b"HTTP/1.1 404") < found.index(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "line",
    ["NONSENSE\r\n\r\n", "GET /\x00 HTTP/1.1\r\n\r\n", "GET  HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01"],
    ids=repr,
)
async def test_what_is_no_http_is_refused(heard: Heard, line: str) -> None:
    """Also TLS that is spoken to a plain port."""
    found = await heard.say(line)
    assert found == b"" or found.startswith(b"HTTP/1.1 4")


async def test_somebody_who_hangs_up_disturbs_nobody(heard: Heard) -> None:
    """In the middle of a body, or while a request waits."""
    for sent in (f"{HEAD}Content-Length: 1000\r\n\r\n{{", "GET /v1/runs HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        _, writer = await heard.connect()
        writer.write(sent.encode())
        await writer.drain()
        writer.transport.abort()
    found = await heard.say("GET /v1/me HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 200")


async def test_too_many_connections_are_refused() -> None:
    """Those that are open go on, and there is room again when one ends."""
    config = msgspec.structs.replace(CONFIG, connections_max=3)
    async with (
        Holdfast("sqlite://:memory:", roles=(), config=config) as hf,
        serving(hf, hf.desk, Address("127.0.0.1", 0)) as url,
    ):
        heard = Heard(hf, urlsplit(url).port or 0)
        ask = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
        opened = [await heard.connect() for _ in range(2)]
        for reader, writer in opened:
            writer.write(f"{ask}\r\n".encode())
            assert b" 200 " in await reader.readline()
        assert b" 503 " in await heard.say(f"{ask}Connection: close\r\n\r\n")
        for _, writer in opened:
            writer.close()
        async with asyncio.timeout(20):
            while b" 200 " not in await heard.say(f"{ask}Connection: close\r\n\r\n"):
                pass


async def test_leaving_ends_idle_connections_and_finishes_busy_ones() -> None:
    """Nobody is cut off in the middle of an answer."""
    async with Holdfast("sqlite://:memory:", roles=(), config=CONFIG) as hf:
        async with serving(hf, hf.desk, Address("127.0.0.1", 0)) as url:
            heard = Heard(hf, urlsplit(url).port or 0)
            await hf.start(flows.pay.using(id="x"), 1)
            body = '{"runs": ["x"], "wait_s": 20}'
            asked = asyncio.create_task(
                heard.say(
                    "POST /v1/runs/ended HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n{body}"
                )
            )
            await until(lambda: bool(hf.caller._watchers))
        assert (await asked).startswith(b"HTTP/1.1 200")


async def test_a_holdfast_that_is_opened_again_serves_again() -> None:
    """That it left once is forgotten with that opening."""
    hf = Holdfast("sqlite://:memory:", roles=(), config=CONFIG)
    ask = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    for _ in range(2):
        async with hf, serving(hf, hf.desk, Address("127.0.0.1", 0)) as url:
            heard = Heard(hf, urlsplit(url).port or 0)
            assert (await heard.say(ask)).startswith(b"HTTP/1.1 200")
