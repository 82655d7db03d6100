"""What 1,000 idle remote agents cost a server, how soon they are back after it was killed, and whether the steps that were
running then are lost.

    .venv/bin/python bench/idle_agents.py [AGENTS] [STORE]
    .venv/bin/python -m tests.postgres .venv/bin/python bench/idle_agents.py 1000 {}

Each agent keeps a claim and a stream open, as a real one does. From the second figure on, its heart beats, too, as that of an
agent in Python does. Agents are made of bare sockets, in this process, so that their own cost is not the server's. The server and
the scheduler are processes of their own. What the server uses includes its own heart.
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
from holdfast.remote.node import RENEW_S

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
QUIET_S, WATCH_S = 8.0, 20.0
WAIT_S = 20.0
RUNNING = 50
"""How many steps run at agents when the server is killed."""
PULSE = {"pulse": {"succeeded": 0, "failed": 0, "has": 0}}


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


def token_for(store: str) -> str:
    """Make a token for agents, with the command that operators use."""
    words = [HOLDFAST, "tokens", "create", "--role", "agent", "--name", "bench"]
    made = subprocess.run(
        words, env={**os.environ, "HOLDFAST_STORE": store}, check=True, stdout=subprocess.PIPE
    )
    return made.stdout.decode().strip()


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
        return sum(map(_cpu_s, self._family()))

    def memory_mb(self) -> float:
        return sum(map(_memory_mb, self._family()))

    def _family(self) -> list[int]:
        """Return the server's process, and those that it has started: its heart."""
        pid = self.process.pid
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


async def ask(port: int, verb: str, path: str, body: object = None) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        raw = b"" if body is None else json.dumps(body).encode()
        head = f"{verb} {path} HTTP/1.1\r\n{Agent.head}Content-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(raw)}\r\nConnection: close\r\n\r\n".encode() + raw)
        answer = await reader.read()
        if not answer:
            raise ConnectionResetError
        status = int(answer[9:12])
        if status == 503:
            raise ConnectionError("the server cannot answer now")
        return status, answer.partition(b"\r\n\r\n")[2]
    finally:
        writer.close()


class Agent:
    head = "Host: localhost\r\n"
    """What stands in every request. The token comes to it."""
    may_end: asyncio.Event
    """When steps end. Until then they run."""
    hearts: asyncio.Event
    """When hearts begin to beat."""
    beats = 0
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
        await asyncio.gather(self._poll(), self._stream(), self._beat())

    async def _beat(self) -> None:
        """Beat as a heart does, each time over a connection of its own."""
        await self.hearts.wait()
        await asyncio.sleep(random.random() * RENEW_S)
        while True:
            try:
                status, _ = await ask(self._port, "POST", f"/v1/agents/{self._id}/beat", PULSE)
            except OSError:
                status = 0  # the server is away
            if status not in {0, 200}:
                raise SystemExit(f"a beat got {status}")
            Agent.beats += status == 200
            await asyncio.sleep(RENEW_S)

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
                raise SystemExit(f"a claim got {status}: {text.decode()}")
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
                writer.write(f"GET /v1/agents/{self._id}/stream HTTP/1.1\r\n{self.head}\r\n".encode())
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
    Agent.head += f"Authorization: Bearer {token_for(store)}\r\n"
    Agent.may_end, Agent.hearts = asyncio.Event(), asyncio.Event()
    back: dict[Agent, float] = {}
    """When each agent sent the claim that waits now."""
    tasks = [asyncio.create_task(Agent(port, back).run()) for _ in range(number)]
    while len(back) < number:
        await asyncio.sleep(0.1)
    await watch(server, f"{number:,} idle agents, poll and stream")
    Agent.hearts.set()
    await watch(server, "with their hearts")
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


async def watch(server: Server, what: str) -> None:
    """Say what the server uses, once what came before is over."""
    await asyncio.sleep(QUIET_S)
    cpu_s, beats, began = server.cpu_s(), Agent.beats, time.monotonic()
    await asyncio.sleep(WATCH_S)
    took_s = time.monotonic() - began
    share, beats_per_s = (server.cpu_s() - cpu_s) / took_s, (Agent.beats - beats) / took_s
    print(f"{what}: {share:.1%} of a core, {server.memory_mb():.0f} MB ({beats_per_s:.0f} beats/s)")


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
