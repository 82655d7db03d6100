"""Real servers of other projects: gunicorn forks its workers, FastAPI calls plain endpoints in threads."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from holdfast import Holdfast
from holdfast.errors import UnknownRun
from tests.roles import flows
from tests.roles.conftest import FAST

SHOP = """
import os

from flask import Flask
from holdfast import Holdfast, HoldfastError, step, workflow


@step
def double(x: int) -> int:
    return 2 * x


@workflow
async def twice(x: int) -> int:
    return await double(await double(x))


hf = Holdfast(os.environ["HOLDFAST_STORE"])
if os.environ["OPENED"] == "before":
    hf.wait(hf.open())
app = Flask(__name__)


@app.get("/<int:x>")
def run(x: int):
    try:
        found = hf.wait(hf.wait(hf.start(twice.using(id=f"twice-{x}"), x)).result(60))
    except HoldfastError as error:
        return {"error": str(error), "pid": os.getpid()}
    return {"found": found, "pid": os.getpid()}
"""
HOOK = """
import os


def post_worker_init(worker):
    from shop import hf

    if os.environ["OPENED"] == "after":
        hf.wait(hf.open())
"""


class Unix(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(self._path))


def get(door: Path, path: str) -> dict[str, object]:
    connection = Unix(door)
    connection.request("GET", path)
    answer: dict[str, object] = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def listens(door: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asking:
        return asking.connect_ex(str(door)) == 0


@contextmanager
def gunicorn(folder: Path, store: str, opened: str) -> Iterator[Path]:
    """Two workers, forked from a master that has loaded the application."""
    (folder / "shop.py").write_text(SHOP)
    (folder / "gunicorn.conf.py").write_text(HOOK)
    door = folder / "door"
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "--preload", "-w", "2", "-b", f"unix:{door}", "shop:app"],
        cwd=folder,
        env={"HOLDFAST_STORE": store, "OPENED": opened, "PATH": ""},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until = time.monotonic() + 60
        while not listens(door):
            assert server.poll() is None, server.communicate()[1]
            assert time.monotonic() < until
            time.sleep(0.01)
        yield door
        server.send_signal(signal.SIGTERM)
        _, errors = server.communicate(timeout=30)
        assert server.returncode == 0, errors
        assert "Traceback" not in errors, errors
    finally:
        server.kill()
        server.communicate()


def test_workers_that_open_after_the_fork_work(store_url: str, tmp_path: Path) -> None:
    """Each has its own Holdfast. The server ends when it gets SIGTERM."""
    with gunicorn(tmp_path, store_url, "after") as door:
        answers = [get(door, f"/{x}") for x in range(1, 9)]
        assert [answer.get("found") for answer in answers] == [4 * x for x in range(1, 9)], answers


def test_workers_of_a_master_that_opened_get_an_error(store_url: str, tmp_path: Path) -> None:
    """They answer at once with what to do, and nothing hangs."""
    with gunicorn(tmp_path, store_url, "before") as door:
        answer = get(door, "/1")
        assert "before this process was forked" in str(answer["error"])
        assert "post_worker_init" in str(answer["error"])


def test_fastapi_calls_plain_and_async_endpoints(store_url: str) -> None:
    """Both use the one Holdfast that its lifespan opened."""
    hf = Holdfast(store_url, config=FAST)
    app = FastAPI(lifespan=hf.lifespan)

    @app.post("/async/{length}")
    async def start(length: int) -> str:
        return (await hf.start(flows.chain.using(id=f"chain-{length}"), length)).id

    @app.post("/plain/{length}")
    def start_plainly(length: int) -> str:
        return hf.wait(hf.start(flows.chain.using(id=f"chain-{length}"), length)).id

    @app.get("/{run_id}")
    def look(run_id: str) -> dict[str, object]:
        return {"result": hf.wait(hf.run(run_id, flows.chain).result(60))}

    with TestClient(app) as client:
        assert [client.post(f"/{kind}/3").json() for kind in ("async", "plain")] == ["chain-3", "chain-3"]
        assert client.get("/chain-3").json() == {"result": 3}
        with pytest.raises(UnknownRun):
            client.get("/no-such-run")
