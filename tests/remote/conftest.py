"""A server on a real socket in a process that hosts the roles, and programs that reach it by HTTP alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx2
import pytest

from holdfast import Holdfast
from holdfast.config import Config
from holdfast.http.listener import Address, serving
from tests.http.conftest import FAST, made_token

LATE_S = 0.3
ALL = ("scheduler", "agent", "supervisor", "server")


class Served(NamedTuple):
    """What runs at the store, and the address at which it is served."""

    hf: Holdfast
    url: str


@asynccontextmanager
async def served(
    store_url: str, roles: tuple[str, ...] = ALL, config: Config = FAST, port: int = 0
) -> AsyncIterator[Served]:
    async with (
        Holdfast(store_url, roles=roles, config=config) as hf,
        serving(hf, hf.desk, Address("127.0.0.1", port)) as url,
    ):
        yield Served(hf, url)


@pytest.fixture
async def busy(store_url: str) -> AsyncIterator[Served]:
    """A server in a process that hosts all roles."""
    async with served(store_url) as found:
        yield found


@pytest.fixture
async def remote(busy: Served) -> AsyncIterator[Holdfast]:
    """A program that reaches this server by HTTP alone."""
    async with Holdfast(busy.url) as hf:
        yield hf


@asynccontextmanager
async def with_token(at: Served, role: str, **given: Any) -> AsyncIterator[Holdfast]:
    token = await made_token(at.hf, role, *given.pop("namespaces", ("*",)), **given)
    async with Holdfast(at.url, token=token, namespace="default") as hf:
        yield hf


class Faults(httpx2.AsyncBaseTransport):
    """A network with faults, before the real one. `plan` says of each request what happens to it: `lose the request`,
    `lose the reply`, `double`, `late`, or nothing."""

    def __init__(self, plan: Callable[[httpx2.Request], str]) -> None:
        self._real = httpx2.AsyncHTTPTransport()
        self._plan = plan
        self.done: list[tuple[str, str]] = []
        """What happened to which request."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        fault = self._plan(request)
        self.done.append((request.url.path, fault))
        if fault == "lose the request":
            raise httpx2.ReadError("lost on the way", request=request)
        if fault == "double":
            first = await self._real.handle_async_request(request)
            await first.aread()
            await first.aclose()
        answer = await self._real.handle_async_request(request)
        if fault == "late":
            await asyncio.sleep(LATE_S)
        if fault == "lose the reply":
            await answer.aread()
            await answer.aclose()
            raise httpx2.ReadError("the reply is lost", request=request)
        return answer

    async def aclose(self) -> None:
        await self._real.aclose()


def through(faults: Faults, url: str, **given: Any) -> Holdfast:
    """Return a program whose requests go through a network with faults."""

    class Faulty(Holdfast):
        _http_client = staticmethod(lambda: httpx2.AsyncClient(transport=faults))

    return Faulty(url, **given)


async def eventually(true: Callable[[], Awaitable[bool]], limit_s: float = 30.0) -> None:
    """Wait until something is true, with a deadline for what never happens."""
    async with asyncio.timeout(limit_s):
        while not await true():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
