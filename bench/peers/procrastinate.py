"""Procrastinate on PostgreSQL: a queue, with 20 tasks at once. It has no chains, no joins and no results: the end of a
task is seen in its row."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import procrastinate
import psycopg

from bench.peers.measuring import PATIENCE_S, Sizes, System, end, hold, main, recovered, spawn, until_works

URL = os.environ["BENCH_POSTGRES"]
app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=URL, min_size=2, max_size=10),
    import_paths=["bench.peers.procrastinate"],
)


@app.task(name="noop")
async def noop(x: int) -> int:
    return x + 1


@app.task(name="held", retry=True)
async def held(path: str) -> None:
    await asyncio.sleep(hold(path))


async def work() -> None:
    async with app.open_async():
        await app.run_worker_async(concurrency=20, delete_jobs="never")


def worker() -> subprocess.Popen[bytes]:
    return spawn(sys.executable, "-m", "bench.peers.procrastinate", "work")


class ProcrastinateSystem(System):
    sizes = Sizes(runs=1_500, chains=0)
    _worker: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> ProcrastinateSystem:
        await self._open()
        self._worker = worker()
        await until_works(self.once, "the worker")
        return self

    async def _open(self) -> None:
        await app.open_async()
        self._rows = await psycopg.AsyncConnection.connect(URL, autocommit=True)
        if not await self._one("SELECT to_regclass('procrastinate_jobs')"):
            await app.schema_manager.apply_schema_async()

    async def __aexit__(self, *exception: object) -> None:
        end(self._worker)
        await self._rows.close()
        await app.close_async()

    async def _one(self, query: str, *values: object) -> object:
        row = await (await self._rows.execute(query, values)).fetchone()
        return None if row is None else row[0]

    async def ones(self, count: int) -> None:
        await noop.batch_defer_async(*({"x": 0} for _ in range(count)))
        async with asyncio.timeout(PATIENCE_S):
            while await self._one(
                "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))"
            ):
                await asyncio.sleep(0.01)

    async def once(self) -> None:
        job = await noop.defer_async(x=0)
        async with asyncio.timeout(PATIENCE_S):
            while await self._one("SELECT status FROM procrastinate_jobs WHERE id = %s", job) != "succeeded":
                await asyncio.sleep(0.001)

    async def recover(self) -> float | None:
        await self._open()
        try:
            return await recovered(worker, lambda path: held.defer_async(path=path))
        finally:
            await self.__aexit__()


if __name__ == "__main__":
    if sys.argv[1:] == ["work"]:
        asyncio.run(work())
    else:
        main(ProcrastinateSystem)
