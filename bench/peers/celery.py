"""Celery with Redis: two worker processes, everything in memory. Chains and chords are its own."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any

from celery import Celery, chain, chord

from bench.peers.measuring import CHAIN, PATIENCE_S, Sizes, System, end, hold, main, program, recovered, spawn

app = Celery("bench", broker=f"{os.environ['BENCH_REDIS']}/0", backend=f"{os.environ['BENCH_REDIS']}/1")
app.conf.broker_connection_retry_on_startup = True


@app.task(name="noop")
def noop(x: int) -> int:
    return x + 1


@app.task(name="total")
def total(values: list[int]) -> int:
    return sum(values)


@app.task(name="held")
def held(path: str) -> None:
    time.sleep(hold(path))


def worker(processes: int = 2) -> subprocess.Popen[bytes]:
    name = f"{time.monotonic_ns()}@%h"
    return spawn(
        *(program("celery"), "-A", "bench.peers.celery", "worker", "-c", str(processes), "-n", name),
        *("-l", "ERROR", "--without-gossip", "--without-mingle"),
    )


class CelerySystem(System):
    sizes = Sizes(runs=2_000, chains=150)

    async def __aenter__(self) -> CelerySystem:
        self._worker = worker()
        await self.once()
        return self

    async def __aexit__(self, *exception: object) -> None:
        end(self._worker)

    async def ones(self, count: int) -> None:
        _join([noop.delay(0) for _ in range(count)])

    async def tens(self, count: int) -> None:
        _join([chain(noop.s(0), *(noop.s() for _ in range(CHAIN - 1))).apply_async() for _ in range(count)])

    async def fan(self, width: int) -> None:
        assert chord(noop.s(0) for _ in range(width))(total.s()).get(timeout=PATIENCE_S) == width

    async def once(self) -> None:
        assert noop.delay(0).get(timeout=PATIENCE_S) == 1

    async def recover(self) -> float | None:
        async def begin(path: str) -> None:
            held.delay(path)

        return await recovered(lambda: worker(1), begin)


def _join(results: list[Any]) -> None:
    for result in results:
        result.get(timeout=PATIENCE_S)


if __name__ == "__main__":
    main(CelerySystem)
