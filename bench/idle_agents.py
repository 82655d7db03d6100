"""What 1,000 idle remote agents cost a server, and how soon they are back after it was killed.

.venv/bin/python bench/idle_agents.py [AGENTS] [STORE]

Each agent keeps a claim and a stream open, as a real one does. They are made of bare sockets, in this process, so that
their own cost is not the server's. The server is a process of its own.
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

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
WATCH_S = 20.0
WAIT_S = 20.0


class Server:
    def __init__(self, store: str, port: int) -> None:
        self.port = port
        self.process = subprocess.Popen(
            [HOLDFAST, "server", "--port", str(port)],
            env={**os.environ, "HOLDFAST_STORE": store},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

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
                status, _ = await ask(self._port, "POST", f"/v1/agents/{self._id}/claim", body)
                if status == 200:
                    continue
                raise SystemExit(f"a claim got {status}")
            except OSError:
                self._back.pop(self, None)
                await asyncio.sleep(random.random() * 2)

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
    for task in tasks:
        task.cancel()
    server.process.kill()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=".") as folder:
        given = sys.argv[2] if len(sys.argv) > 2 else f"sqlite:///{Path(folder).resolve()}/idle.db"
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000, given))
