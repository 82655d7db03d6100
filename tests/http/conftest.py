"""A server in this process: the real application on a real store, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx2
import msgspec
import pytest

from holdfast import Holdfast
from holdfast.access import Role, local
from holdfast.access.tokens import ID_BYTES, SECRET_BYTES, make, namespaces
from holdfast.config import Config
from holdfast.http.app import Server, make_app
from holdfast.http.guard import SigningIssuer
from holdfast.model import ComposedRow, NewToken
from holdfast.namespaces import stored
from holdfast.occasions import Composition, Group, Part
from holdfast.store.database import StoreCall
from holdfast.store.occasions import declare_composed, write_composed
from holdfast.store.schedules import DeclaredSet
from holdfast.store.settings import PUBLIC_URL
from holdfast.wire.cloudevents import CloudEvent
from tests.http import flows
from tests.store.made import asked, asks_people, calls_back, new_run

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
    issuer: SigningIssuer | None = None,
) -> AsyncIterator[Asked]:
    async with Holdfast(url, roles=roles, config=config, namespace=namespace) as hf:
        server = Server(hf, hf.desk, is_loopback=is_loopback, issuer=issuer)
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
    who: Sequence[str] = (),
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
        json.dumps([f"person:{role}", *who]) if who else "[]",
    )
    assert await hf.store.tokens.add_token(row, "test")
    return token.text


async def made_ask(
    hf: Holdfast, namespace: str, run: str, question: str, *who: str, of: int = 1, not_by: Sequence[str] = ()
) -> str:
    """Let a run ask people, as a scheduler would write it. Return the id of the ask."""
    node, name = f"asks-{run}", stored(namespace, "shop.pay")
    await hf.store.nodes.register(node, host="host", pid=1, roles="", offers="{}", capacity=0, lease_s=600.0)
    one = asked(
        namespace=namespace,
        workflow=name,
        question=question,
        show=f'"{question}"',
        who=who,
        quorum=of,
        not_by=json.dumps(not_by),
    )
    new = new_run(stored(namespace, run), workflow=name, namespace=namespace, input=b"{}")
    await asks_people(hf.store, one, run=new, node=node)
    return one.id


async def made_callback(hf: Holdfast, namespace: str, run: str, expires_s: float | None = None) -> str:
    """Let a run wait for a callback, as a scheduler would write it. Return the path at which another system ends it."""
    node, name = f"calls-{run}", stored(namespace, "shop.pay")
    await hf.store.nodes.register(node, host="host", pid=1, roles="", offers="{}", capacity=0, lease_s=600.0)
    new = new_run(stored(namespace, run), workflow=name, namespace=namespace, input=b"{}")
    await calls_back(hf.store, run=new, node=node, expires_s=expires_s)
    await hf.store.settings.set_setting(PUBLIC_URL, "https://holdfast.example")
    request = (await hf.store.reads.steps(new.id))[0]
    url = await hf.store.callbacks.address(new.id, 1, request.issued_at, b"k" * 32)
    return url.removeprefix("https://holdfast.example")


async def made_occasion(hf: Holdfast, namespace: str, value: str, secret: str = "") -> str:
    """Declare a composed trigger, and let an event arrive at an occasion of it. Return the id of the occasion."""
    needs = Group("all", (Part("part", f"part{secret}"), Part("other", f"other{secret}")))
    body = msgspec.json.encode(Composition(needs, "subject", 86_400.0, "skip", "arrived")).decode()
    row = ComposedRow(
        stored(namespace, "report"), namespace, "shop.count", "1", body, "d", f"{namespace} shop"
    )
    lines = DeclaredSet(row.origin, f"digest of {namespace}", write_composed([row]))
    call = StoreCall("declare", (), (), {})
    await hf.store.database.write(call, lambda session: declare_composed(session, [lines]))
    event = CloudEvent(f"part{secret}", "shop", f"part of {value}{secret}", b"1", value)
    await hf.desk.events.emit(local("test").within(namespace), [event])
    return f"report@when:{value}"


def bearer(token: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", **more}


async def until(true: Callable[[], bool], limit_s: float = 20.0) -> None:
    """Wait until a condition of this process is true, with a deadline instead of a guess."""
    async with asyncio.timeout(limit_s):
        while not true():  # noqa: ASYNC110  a condition outside this loop gives no event
            await asyncio.sleep(0.005)
