"""The heart of a remote agent: a process beside it that renews its lease through the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from urllib.error import HTTPError

import httpx2
import pytest

from holdfast import Holdfast
from holdfast.model import NodeRow
from holdfast.remote.heart import HttpRenewer
from holdfast.store.heart import Order
from holdfast.workflow.workflow import Workflow
from tests.http.processes import Process
from tests.roles import blockers
from tests.roles.conftest import until
from tests.roles.outside import effects
from tests.roles.test_heart import hearts_of, is_alive, no_loss, node_of
from tests.roles.test_recovery import node_process, quick

LEASE_S = 3.0
"""A busy machine may start a heart a second late."""
BEYOND_S = LEASE_S * 2.5
LONG_S = 60.0


@pytest.fixture
async def server(tmp_path: Path, store_url: str) -> AsyncIterator[Process]:
    made = await asyncio.to_thread(Process, tmp_path, store_url, "server")
    yield made
    made.close()


@pytest.mark.parametrize(
    "workflow", [blockers.with_blocked_gil, blockers.with_blocked_loop], ids=["gil", "loop"]
)
async def test_a_blocked_remote_agent_keeps_its_step_beyond_several_leases(
    server: Process, store_url: str, tmp_path: Path, workflow: Workflow[[str, float], int]
) -> None:
    """A step keeps the GIL, or blocks the event loop, while a Supervisor and another agent look on."""
    folder = str(tmp_path)
    async with (
        Holdfast(store_url, roles=["scheduler", "supervisor"], config=quick(LONG_S)) as hf,
        node_process(server.url, "agent", LEASE_S) as first,
    ):
        run = await hf.start(workflow, folder, BEYOND_S)
        await until(lambda: "held attempt 1" in effects(folder))
        await until(lambda: bool(hearts_of(first.pid)))
        async with node_process(server.url, "agent", LONG_S):
            assert await run.result(LONG_S) == 1
        assert await no_loss(run)
        assert effects(folder) == ["held attempt 1", "released attempt 1"]


async def test_a_killed_remote_agent_leaves_no_heart(server: Process, store_url: str) -> None:
    """And its lease, which was long, has ended."""
    async with Holdfast(store_url, roles=()) as hf, node_process(server.url, "agent", 30.0) as first:
        await until(lambda: bool(hearts_of(first.pid)))
        hearts = hearts_of(first.pid)
        first.kill()
        await first.wait()
        await until(lambda: not any(is_alive(pid) for pid in hearts))
        node = await node_of(hf, first.pid)
        assert node.lease_until < await hf.store.now() + 3


async def registered(url: str) -> str:
    async with httpx2.AsyncClient(base_url=url) as client:
        body = {"groups": [{"name": "g", "steps": ["shop.add"]}], "lease_s": 20.0}
        return str((await client.post("/v1/agents", json=body)).json()["agent"])


def renewer(url: str, agent: str) -> HttpRenewer:
    return HttpRenewer(Order(f"{url}/v1/agents/{agent}", agent, 1, 20.0, 4.0, 60.0, 0.0))


async def test_a_heart_renews_says_that_its_process_is_gone_and_hears_that_it_was_reclaimed(
    server: Process, store_url: str
) -> None:
    """Only a new pulse is recorded, so that one sees since when the event loop is silent."""

    async def node() -> NodeRow:
        (found,) = [one for one in await hf.store.nodes.nodes() if one.id == agent]
        return found

    async with Holdfast(store_url, roles=()) as hf:
        agent = await registered(server.url)
        beating = renewer(server.url, agent)
        await hf.store.remotes.shorten(agent, 5.0)
        now = await asyncio.to_thread(beating.renew, '{"steps": 1}', 0.5)
        assert now is not None
        first = await node()
        assert first.lease_until == pytest.approx(now + 20, abs=1)
        assert '"steps"' in first.offers
        assert await asyncio.to_thread(beating.renew, '{"steps": 2}', 30.0) is not None
        assert (await node()).offers == first.offers
        await asyncio.to_thread(beating.say_gone)
        assert (await node()).lease_until <= await hf.store.now()
        await hf.store.nodes.retire(agent)
        assert await asyncio.to_thread(beating.renew, None, 0.0) is None
    server.close()
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(beating.renew, None, 0.0)


async def test_a_heart_follows_no_redirect() -> None:
    """Its token is for one server."""
    asked = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_response(302)
            self.send_header("Location", "/taken")
            self.end_headers()

        do_GET = do_POST  # noqa: N815  the library's name

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as listening:
        serving = Thread(target=listening.serve_forever, daemon=True)
        serving.start()
        beating = renewer(f"http://127.0.0.1:{listening.server_port}", "an-agent")
        with pytest.raises(HTTPError):
            await asyncio.to_thread(beating.renew, None, 0.0)
        listening.shutdown()
    assert asked == ["/v1/agents/an-agent/beat"]
