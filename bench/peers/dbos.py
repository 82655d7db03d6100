"""DBOS on PostgreSQL: workflows in the process that starts them, as its documentation does it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

from dbos import DBOS, DBOSClient

from bench.peers.measuring import CHAIN, Sizes, System, hold, in_flight, main, recovered, spawn

URL = os.environ["BENCH_POSTGRES"]
AT_ONCE = 50
QUEUE = "held"


@DBOS.step()
async def noop(x: int) -> int:
    return x + 1


@DBOS.workflow()
async def one() -> int:
    return await noop(0)


@DBOS.workflow()
async def ten() -> int:
    x = 0
    for _ in range(CHAIN):
        x = await noop(x)
    return x


@DBOS.workflow()
async def fan(width: int) -> int:
    return sum(await asyncio.gather(*(noop(0) for _ in range(width))))


@DBOS.step()
async def held(path: str) -> None:
    await asyncio.sleep(hold(path))


@DBOS.workflow()
async def assignment(path: str) -> None:
    await held(path)


def launch(executor: str) -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": URL,
            "log_level": "ERROR",
            "application_version": "1",
            "executor_id": executor,
        }
    )
    DBOS.launch()


def work() -> None:
    launch(f"worker-{os.getpid()}")
    DBOS.register_queue(QUEUE)
    while True:
        time.sleep(3600)


class DbosSystem(System):
    sizes = Sizes(runs=400, chains=80)

    async def __aenter__(self) -> DbosSystem:
        launch("bench")
        return self

    async def __aexit__(self, *exception: object) -> None:
        DBOS.destroy()

    async def ones(self, count: int) -> None:
        await in_flight(one, count, AT_ONCE)

    async def tens(self, count: int) -> None:
        await in_flight(ten, count, AT_ONCE)

    async def fan(self, width: int) -> None:
        assert await fan(width) == width

    async def once(self) -> None:
        assert await one() == 1

    async def recover(self) -> float | None:
        launch("bench")  # makes the tables
        DBOS.destroy()
        client = DBOSClient(system_database_url=URL)

        async def begin(path: str) -> None:
            options = {"queue_name": QUEUE, "workflow_name": assignment.__qualname__, "app_version": "1"}
            await asyncio.to_thread(client.enqueue, options, path)

        def worker() -> subprocess.Popen[bytes]:
            return spawn(sys.executable, "-m", "bench.peers.dbos", "work")

        return await recovered(worker, begin)


if __name__ == "__main__":
    if sys.argv[1:] == ["work"]:
        work()
    else:
        main(DbosSystem)
