"""Servers as processes: where they listen, how they leave, and that nothing is lost when they are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copyfile

import httpx2
import pytest

from holdfast import Holdfast
from holdfast.http.listener import Address
from tests.forkserver import HOLDFAST
from tests.http.conftest import until
from tests.http.processes import Process

COUNT = {"workflow": "shop.count", "input": {"a": 1}}
Start = Callable[..., Process]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    copyfile(Path(__file__).with_name("flows.py"), made / "flows.py")
    return made


@pytest.fixture
def start(folder: Path, store_url: str) -> Iterator[Start]:
    """Start a server on the store, once it listens."""
    started: list[Process] = []

    def begin(*arguments: str) -> Process:
        started.append(Process(folder, store_url, *arguments))
        return started[-1]

    yield begin
    for one in started:
        one.close()


async def test_a_server_leaves_gracefully(start: Start, store_url: str) -> None:
    """On SIGTERM, whoever waits is answered at once with what there is, and the process ends with code 0."""
    up, server = start("up", "flows.py"), start("server")
    async with httpx2.AsyncClient(timeout=60) as client:
        made = await client.post(
            f"{server.url}/v1/runs", json={"workflow": "shop.pay", "input": {"cents": 1}, "id": "x"}
        )
        assert made.status_code == 201
        roles = [one["roles"] for one in (await client.get(f"{up.url}/v1/agents")).json()["items"]]
        assert ["server"] in roles
        assert ["scheduler", "agent", "supervisor", "server"] in roles
        poll = {"runs": ["x"], "wait_s": 20}
        waits = [asyncio.create_task(client.post(f"{server.url}/v1/runs/ended", json=poll)) for _ in range(5)]
        while True:
            figures = (await client.get(f"{server.url}/metrics")).text
            if "holdfast_polls_open 5" in figures:
                break
        ended = asyncio.to_thread(server.end, signal.SIGTERM)
        answers, code = await asyncio.gather(asyncio.gather(*waits), ended)
        assert [answer.json() for answer in answers] == [{"items": []}] * 5
        assert code == 0
        sent = await client.post(f"{up.url}/v1/runs/x/signals", json={"name": "paid", "data": 1})
        assert sent.status_code == 202
        found = (await client.post(f"{up.url}/v1/runs/ended", json=poll)).json()["items"]
        assert found[0]["output"] == 2


async def test_a_killed_server_loses_nothing(start: Start, store_url: str) -> None:
    """With polls open and starts under way. What was answered is there, and another server answers what was not: the same
    ids again make no second run."""
    up, server = start("up", "flows.py"), start("server")
    started: set[str] = set()

    async def begin(client: httpx2.AsyncClient, url: str, n: int) -> None:
        answer = await client.post(f"{url}/v1/runs", json={**COUNT, "id": f"run-{n}"})
        if answer.status_code in {200, 201}:
            started.add(f"run-{n}")

    async with httpx2.AsyncClient(timeout=60) as client:
        body = {"runs": ["nobody"], "wait_s": 20}
        polls = [
            asyncio.create_task(client.post(f"{server.url}/v1/runs/ended", json=body)) for _ in range(20)
        ]
        starts = [asyncio.create_task(begin(client, server.url, n)) for n in range(40)]
        await until(lambda: len(started) >= 10)
        os.killpg(server.process.pid, signal.SIGKILL)
        await asyncio.gather(*starts, *polls, return_exceptions=True)
        for n in range(40):
            await begin(client, up.url, n)
        assert len(started) == 40
        left = set(started)
        while left:
            poll = {"runs": sorted(left), "wait_s": 20}
            items = (await client.post(f"{up.url}/v1/runs/ended", json=poll)).json()["items"]
            assert items, "a run did not end"
            assert {one["output"] for one in items} == {2}
            left -= {one["id"] for one in items}
    async with Holdfast(store_url, roles=()) as hf:
        assert await hf.store.reads.runs_by_state() == {"succeeded": 40}
        steps = [await hf.run(run).steps() for run in started]
        assert {step.attempt for found in steps for step in found} == {1}, "an attempt was spent"


def refused(folder: Path, *arguments: str) -> str:
    store = f"sqlite:///{folder}/holdfast.db"
    ended = subprocess.run(
        [HOLDFAST, "server", *arguments, "--store", store],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2, ended
    assert "Traceback" not in ended.stderr
    return ended.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_without_a_token_only_this_host_is_served(folder: Path, host: str) -> None:
    """The error says how to make one."""
    assert "holdfast tokens create" in refused(folder, "--host", host, "--port", "0")


def test_settings_that_cannot_work_are_refused(folder: Path) -> None:
    """With one line that says what is wrong."""
    assert "belong together" in refused(folder, "--tls-cert", "cert.pem", "--port", "0")
    missing = refused(folder, "--tls-cert", "a.pem", "--tls-key", "b.pem", "--port", "0")
    assert "certificate" in missing


@pytest.mark.parametrize(
    ("host", "loops"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("example.org", False)],
)
def test_which_addresses_are_this_hosts_own(host: str, loops: bool) -> None:
    """A name may lead anywhere, so only `localhost` counts."""
    assert Address(host, 80).is_loopback is loops
