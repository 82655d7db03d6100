"""Restate: its server beside one Python process that serves the handlers, called over HTTP with 50 connections."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import urllib.request

import restate
from restate import Context, Service

from bench.peers.measuring import (
    CHAIN,
    FOLDER,
    WIDTH,
    Sizes,
    System,
    end,
    hold,
    main,
    program,
    recovered,
    spawn,
    until_works,
)

INGRESS, ADMIN, PEERS, ENDPOINT = 58080, 59070, 55122, 59080
CONNECTIONS = 50
service = Service("bench")


def noop() -> int:
    return 1


@service.handler()
async def one(context: Context, _: int) -> int:
    return await context.run_typed("noop", noop)


@service.handler()
async def ten(context: Context, _: int) -> int:
    return sum([await context.run_typed(f"noop{i}", noop) for i in range(CHAIN)])


@service.handler()
async def fan(context: Context, width: int) -> int:
    steps = [context.run_typed(f"noop{i}", noop) for i in range(width)]
    await restate.gather(*steps)
    return width


@service.handler()
async def assignment(context: Context, path: str) -> int:
    async def held() -> int:
        await asyncio.sleep(hold(path))
        return 1

    return await context.run_typed("held", held)


endpoint = restate.app([service])


class Connection:
    """One HTTP connection that is kept: a client library would cost more than the call."""

    async def open(self) -> Connection:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", INGRESS)
        return self

    def close(self) -> None:
        self._writer.close()

    async def call(self, name: str, argument: object) -> object:
        body = json.dumps(argument).encode()
        head = f"POST /bench/{name} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        self._writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        status, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower().strip().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        raw = (
            await self._reader.readexactly(int(headers["content-length"]))
            if "content-length" in headers
            else await self._chunks()
        )
        if status.split()[1] != "200":
            raise ConnectionError(raw.decode())
        return json.loads(raw)

    async def _chunks(self) -> bytes:
        found = b""
        while size := int(await self._reader.readline(), 16):
            found += await self._reader.readexactly(size)
            await self._reader.readline()
        await self._reader.readline()
        return found


class RestateSystem(System):
    sizes = Sizes(runs=1_500, chains=300)
    _worker: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> RestateSystem:
        await self._serve()
        self._worker = self._spawn_worker()
        await until_works(self._register, "the endpoint")
        self._kept = await Connection().open()
        await until_works(self.once, "the service")
        return self

    async def _serve(self) -> None:
        """The server, and the socket that all processes of the endpoint share."""
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", ENDPOINT))
        self._socket.listen(512)
        settings = {
            "RESTATE_BASE_DIR": str(FOLDER / "restate"),
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{INGRESS}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{ADMIN}",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{PEERS}",
            "RESTATE_LOG_FILTER": "error",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "1",
        }
        self._server = spawn(
            *(os.environ["BENCH_RESTATE"], "--node-name", "one"),
            *("--advertised-address", f"http://127.0.0.1:{PEERS}/"),
            env=os.environ | settings,
            cwd=FOLDER,
        )
        await until_works(lambda: _get(f"http://127.0.0.1:{ADMIN}/health"), "the server")
        await until_works(lambda: _get(f"http://127.0.0.1:{INGRESS}/restate/health"), "the ingress")

    def _spawn_worker(self) -> subprocess.Popen[bytes]:
        number = self._socket.fileno()
        return spawn(
            *(program("hypercorn"), "-w", "1", "-b", f"fd://{number}", "bench.peers.restate:endpoint"),
            pass_fds=[number],
        )

    @staticmethod
    async def _register() -> None:
        body = json.dumps({"uri": f"http://127.0.0.1:{ENDPOINT}/", "force": True}).encode()
        await _get(f"http://127.0.0.1:{ADMIN}/deployments", body)

    async def __aexit__(self, *exception: object) -> None:
        end(self._worker, self._server)
        self._socket.close()

    async def _many(self, name: str, count: int) -> None:
        left = iter(range(count))
        connections = [await Connection().open() for _ in range(CONNECTIONS)]

        async def lane(connection: Connection) -> None:
            for number in left:
                await connection.call(name, number)
            connection.close()

        await asyncio.gather(*map(lane, connections))

    async def ones(self, count: int) -> None:
        await self._many("one", count)

    async def tens(self, count: int) -> None:
        await self._many("ten", count)

    async def fan(self, width: int) -> None:
        assert await self._kept.call("fan", width) == WIDTH

    async def once(self) -> None:
        assert await self._kept.call("one", 0) == 1

    async def recover(self) -> float | None:
        await self._serve()
        try:
            return await recovered(self._spawn_worker, self._begin)
        finally:
            end(self._server)
            self._socket.close()

    async def _begin(self, path: str) -> None:
        await until_works(self._register, "the endpoint")
        await (await Connection().open()).call("holding", path)


async def _get(url: str, body: bytes | None = None) -> None:
    request = urllib.request.Request(url, data=body, headers={"content-type": "application/json"})
    await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=10).read())


if __name__ == "__main__":
    main(RestateSystem)
