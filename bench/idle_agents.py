"""What 1,000 idle remote agents cost a server, how soon they are back after it was killed, and whether the steps that were
running then are lost.

.venv/bin/python bench/idle_agents.py [AGENTS] [STORE]

Each agent keeps a claim and a stream open, as a real one does. They are made of bare sockets, in this process, so that
their own cost is not the server's. The server and the scheduler are processes of their own.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from holdfast import Holdfast, step, workflow

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
WATCH_S = 20.0
WAIT_S = 20.0
RUNNING = 50
"""How many steps run at agents when the server is killed."""


@step(name="bench.nothing", elsewhere=True)
async def nothing() -> int:
    raise NotImplementedError


@workflow(name="bench.one")
async def one() -> int:
    return await nothing()


def started(store: str, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [HOLDFAST, *words],
        env={**os.environ, "HOLDFAST_STORE": store},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


class Server:
    def __init__(self, store: str, port: int) -> None:
        self.port = port
        self.process = started(store, "server", "--port", str(port))

    async def up(self) -> None:
        while True:
            try:
                status, _ = await ask(self.port, "GET", "/readyz")
                if status == 200:
                    return
            except OSError:
                await asyncio.sleep(0.02)

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE") / 1e6


async def ask(port: int, verb: str, path: str, body: object = None) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        raw = b"" if body is None else json.dumps(body).encode()
        head = f"{verb} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(raw)}\r\nConnection: close\r\n\r\n".encode() + raw)
        answer = await reader.read()
        if not answer:
            raise ConnectionResetError
        return int(answer[9:12]), answer.partition(b"\r\n\r\n")[2]
    finally:
        writer.close()


class Agent:
    may_end: asyncio.Event
    """When steps end. Until then they run."""
    running = 0
    """How many steps run."""

    def __init__(self, port: int, back: dict[Agent, float]) -> None:
        self._port, self._back = port, back
        self._turn, self._id = 0, ""

    async def run(self) -> None:
        groups = [{"name": "g", "steps": ["bench.nothing"], "places": 1}]
        while not self._id:
            try:
                status, body = await ask(self._port, "POST", "/v1/agents", {"groups": groups})
                self._id = json.loads(body)["agent"] if status == 201 else ""
            except OSError:
                pass
            if not self._id:
                await asyncio.sleep(random.random())
        await asyncio.gather(self._poll(), self._stream())

    async def _poll(self) -> None:
        while True:
            self._turn += 1
            body = {"turn": self._turn, "free": {"g": 1}, "wait_s": WAIT_S, "has": []}
            try:
                self._back[self] = time.monotonic()
                status, text = await ask(self._port, "POST", f"/v1/agents/{self._id}/claim", body)
            except OSError:
                self._back.pop(self, None)
                await asyncio.sleep(random.random() * 2)
                continue
            if status != 200:
                raise SystemExit(f"a claim got {status}")
            for claimed in json.loads(text)["steps"]:
                await self._execute(claimed)

    async def _execute(self, claimed: dict[str, object]) -> None:
        """Execute a step until it may end, and report it until there is an answer. While it runs, nothing is claimed."""
        Agent.running += 1
        self._back.pop(self, None)
        await self.may_end.wait()
        said = {name: claimed[name] for name in ("run", "n", "fence", "secret")}
        body = {"reports": [{**said, "verb": "succeed", "output": 1}]}
        while True:
            try:
                status, text = await ask(self._port, "POST", f"/v1/agents/{self._id}/report", body)
            except OSError:
                await asyncio.sleep(random.random() * 2)
                continue
            if status != 200 or json.loads(text)["answers"][0] not in {"accepted", "duplicate"}:
                raise SystemExit(f"a report got {status}: {text.decode()}")
            return

    async def _stream(self) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writer.write(f"GET /v1/agents/{self._id}/stream HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                while await reader.read(4096):
                    pass
                writer.close()
            except OSError:
                pass
            await asyncio.sleep(random.random() * 2)


async def main(number: int, store: str) -> None:
    port = random.randint(20_000, 60_000)
    server = Server(store, port)
    await server.up()
    Agent.may_end = asyncio.Event()
    back: dict[Agent, float] = {}
    """When each agent sent the claim that waits now."""
    tasks = [asyncio.create_task(Agent(port, back).run()) for _ in range(number)]
    while len(back) < number:
        await asyncio.sleep(0.1)
    await asyncio.sleep(5)
    cpu_s, began = server.cpu_s(), time.monotonic()
    await asyncio.sleep(WATCH_S)
    share = (server.cpu_s() - cpu_s) / (time.monotonic() - began)
    print(f"{number:,} idle agents: {share:.1%} of a core, {server.memory_mb():.0f} MB")
    scheduler = started(store, "scheduler", str(Path(__file__).resolve()))
    async with Holdfast(store, roles=()) as hf:
        runs = [await hf.start(one) for _ in range(RUNNING)]
        while Agent.running < RUNNING:
            await asyncio.sleep(0.02)
        server = await killed(server, store, number - RUNNING, back)
        Agent.may_end.set()
        results = [await run.result(timeout=60) for run in runs]
        rows = [row for run in runs for row in await hf.store.reads.steps(run.id)]
    spent = sum(row.losses > 0 or row.attempt - row.excused != 1 for row in rows)
    print(f"steps that ran meanwhile: {len(results)} succeeded, {spent} spent an attempt more")
    for task in tasks:
        task.cancel()
    for process in (scheduler, server.process):
        process.kill()
        process.wait()


async def killed(server: Server, store: str, number: int, back: dict[Agent, float]) -> Server:
    """Kill the server, start another one, and wait until so many claims are open again. Return the other one."""
    port = server.port
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    killed_at = time.monotonic()
    server = Server(store, port)
    await server.up()
    up_at, count = time.monotonic(), 0
    while count < number and time.monotonic() < up_at + 60:
        await asyncio.sleep(0.02)
        count = sum(at > killed_at for at in back.values())
    took_s = time.monotonic() - up_at
    print(f"after a kill: {count:,} claims are back {took_s:.1f} s after the next server is up")
    return server


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=".") as folder:
        given = sys.argv[2] if len(sys.argv) > 2 else f"sqlite:///{Path(folder).resolve()}/idle.db"
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000, given))
