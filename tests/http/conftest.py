"""A server in this process: the real application on a real store, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx2
import pytest

from holdfast import Holdfast
from holdfast.access import Role
from holdfast.access.tokens import ID_BYTES, SECRET_BYTES, make, namespaces
from holdfast.config import Config
from holdfast.http.app import Server, make_app
from holdfast.model import NewToken
from tests.http import flows

FAST = Config(
    poll_s=0.05,
    sweep_s=0.05,
    renew_s=0.3,
    beat_s=0.05,
    heart=False,
    requests_per_s=1e6,
    requests_burst=10**6,
    sign_ins_per_min=10**6,
)
"""Short intervals for what only runs as a safety net, and no limit on requests but where a test sets one."""


assert flows.count.name  # the workflows that all servers here know


class Asked(NamedTuple):
    """A server, and a client that asks it."""

    hf: Holdfast
    server: Server
    client: httpx2.AsyncClient

    async def get(self, path: str, **given: Any) -> httpx2.Response:
        return await self.client.get(path, **given)

    async def post(self, path: str, body: Any = None, **given: Any) -> httpx2.Response:
        return await self.client.post(path, json={} if body is None else body, **given)

    async def started(self, workflow: str = "shop.count", **given: Any) -> str:
        """Start a run, and return the form of its id that stands in a path."""
        answer = await self.post("/v1/runs", {"workflow": workflow, "input": {"a": 1}, **given})
        assert answer.status_code in {200, 201}, answer.text
        return str(answer.json()["ref"])


@asynccontextmanager
async def asking(
    url: str,
    *,
    roles: tuple[str, ...] = (),
    config: Config = FAST,
    is_loopback: bool = True,
    namespace: str | list[str] = "default",
) -> AsyncIterator[Asked]:
    async with Holdfast(url, roles=roles, config=config, namespace=namespace) as hf:
        server = Server(hf, hf.desk, is_loopback=is_loopback)
        transport = httpx2.ASGITransport(app=make_app(server))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield Asked(hf, server, client)


@pytest.fixture
async def quiet(store_url: str) -> AsyncIterator[Asked]:
    """A server beside which nothing executes: runs stay pending."""
    async with asking(store_url) as asked:
        yield asked


@pytest.fixture
async def wide(store_url: str) -> AsyncIterator[Asked]:
    """The same with code that is for all namespaces."""
    async with asking(store_url, namespace="*") as asked:
        yield asked


@pytest.fixture
async def lone() -> AsyncIterator[Asked]:
    """The same on a SQLite in memory, for what does not depend on the store."""
    async with asking("sqlite://:memory:") as asked:
        yield asked


@pytest.fixture
async def busy(store_url: str) -> AsyncIterator[Asked]:
    """A server in a process that hosts all roles."""
    async with asking(store_url, roles=("scheduler", "agent", "supervisor", "server")) as asked:
        yield asked


async def made_token(
    hf: Holdfast,
    role: Role | str,
    *within: str,
    can: str = "[]",
    payloads: bool = True,
    expires_s: float | None = None,
) -> str:
    """Make a token at the store, and return its text."""
    token = make(Role(role), hf.environment.secret(ID_BYTES), hf.environment.secret(SECRET_BYTES))
    row = NewToken(
        token.id,
        str(role),
        str(role),
        namespaces(within or ("default",)),
        can,
        payloads,
        token.digest,
        expires_s,
    )
    assert await hf.store.tokens.add_token(row, "test")
    return token.text


def bearer(token: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", **more}


async def until(true: Callable[[], bool], limit_s: float = 20.0) -> None:
    """Wait until a condition of this process is true, with a deadline instead of a guess."""
    async with asyncio.timeout(limit_s):
        while not true():  # noqa: ASYNC110  a condition outside this loop gives no event
            await asyncio.sleep(0.005)
