"""Measures how fast a server takes starts: one by one over several connections, and in batches of 100.

    .venv/bin/python bench/starts.py                                      # on SQLite
    .venv/bin/python -m tests.postgres .venv/bin/python bench/starts.py {}  # on a PostgreSQL that lives as long

One `holdfast server` without code, checking inputs by their published schema. The connections share TOKENS tokens, because a
server takes only so many requests a second from one (`requests_per_s`). It prints the median of three rounds, the processor time
of the server for each start, and the load of the machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from holdfast import Holdfast, workflow

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
TOKENS, CONNECTIONS, ROUNDS, ALONE, BATCHES, IN_BATCH = 4, 32, 3, 2000, 60, 100


@workflow(name="bench.noop")
async def noop(a: int) -> int:
    return a


async def post(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str, path: str, body: object
) -> int:
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw)
    answered = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = re.search(r"content-length: (\d+)", answered, re.IGNORECASE)
    assert length is not None
    text = await reader.readexactly(int(length[1]))
    status = int(answered.split()[1])
    assert status in {200, 201}, text
    return status


async def round_of(port: int, tokens: list[str], name: str, *, batch: int, requests: int) -> float:
    """Send so many requests over all connections. Return how many starts a second."""
    numbers = iter(range(requests))

    async def connection(token: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in numbers:
            items = [
                {"workflow": "bench.noop", "input": {"a": 1}, "id": f"{name}-{number}-{item}"}
                for item in range(batch)
            ]
            if batch == 1:
                await post(reader, writer, token, "/v1/runs", items[0])
            else:
                await post(reader, writer, token, "/v1/runs/batch", {"items": items})
        writer.close()

    begun = time.monotonic()
    connections = CONNECTIONS if batch == 1 else 4
    await asyncio.gather(*(connection(tokens[number % TOKENS]) for number in range(connections)))
    return requests * batch / (time.monotonic() - begun)


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tokens_for(store: str) -> list[str]:
    """Make tokens for programs that start runs, with the command that operators use."""
    words = [HOLDFAST, "tokens", "create", "--role", "starter", "--name", "bench", "--store", store]
    made = [subprocess.run(words, check=True, stdout=subprocess.PIPE) for _ in range(TOKENS)]
    return [one.stdout.decode().strip() for one in made]


async def measure(port: int, pid: int, tokens: list[str]) -> None:
    for batch, requests in ((1, ALONE), (IN_BATCH, BATCHES)):
        rates, costs = [], []
        for number in range(ROUNDS):
            before = processor_s(pid)
            rates.append(await round_of(port, tokens, f"{batch}-{number}", batch=batch, requests=requests))
            costs.append((processor_s(pid) - before) / (requests * batch) * 1e6)
        what = "one by one" if batch == 1 else f"in batches of {batch}"
        print(
            f"{what}: {statistics.median(rates):,.0f} starts/s, {statistics.median(costs):.0f} µs of processor a start"
            f" (load {os.getloadavg()[0]:.1f})"
        )


async def main(store: str) -> None:
    async with Holdfast(store):  # declares the workflow
        pass
    tokens = tokens_for(store)
    command = [HOLDFAST, "server", "--port", "0", "--json", "--store", store]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"listening on http://[^:]+:(\d+)", line):
                await measure(int(found[1]), process.pid, tokens)
                break
    finally:
        process.terminate()
        process.communicate()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/bench.db"))
