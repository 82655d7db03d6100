"""Dramatiq with Redis: two processes of four threads, everything in memory. Pipelines are its own; a group is joined by
the client."""

from __future__ import annotations

import os
import subprocess
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from bench.peers.measuring import CHAIN, PATIENCE_S, Sizes, System, end, hold, main, program, recovered, spawn

broker = RedisBroker(url=f"{os.environ['BENCH_REDIS']}/2")
broker.add_middleware(Results(backend=RedisBackend(url=f"{os.environ['BENCH_REDIS']}/3")))
dramatiq.set_broker(broker)
PATIENCE_MS = int(PATIENCE_S * 1000)


@dramatiq.actor(store_results=True)
def noop(x: int) -> int:
    return x + 1


@dramatiq.actor
def held(path: str) -> None:
    time.sleep(hold(path))


def worker(processes: int = 2, threads: int = 4) -> subprocess.Popen[bytes]:
    return spawn(program("dramatiq"), "bench.peers.dramatiq", "-p", str(processes), "-t", str(threads))


class DramatiqSystem(System):
    sizes = Sizes(runs=3_000, chains=300)

    async def __aenter__(self) -> DramatiqSystem:
        self._worker = worker()
        await self.once()
        return self

    async def __aexit__(self, *exception: object) -> None:
        end(self._worker)

    async def ones(self, count: int) -> None:
        for message in [noop.send(0) for _ in range(count)]:
            message.get_result(block=True, timeout=PATIENCE_MS)

    async def tens(self, count: int) -> None:
        lines = [
            dramatiq.pipeline([noop.message(0), *(noop.message() for _ in range(CHAIN - 1))]).run()
            for _ in range(count)
        ]
        for line in lines:
            assert line.get_result(block=True, timeout=PATIENCE_MS) == CHAIN

    async def fan(self, width: int) -> None:
        group = dramatiq.group([noop.message(0) for _ in range(width)]).run()
        assert sum(group.get_results(block=True, timeout=PATIENCE_MS)) == width

    async def once(self) -> None:
        assert noop.send(0).get_result(block=True, timeout=PATIENCE_MS) == 1

    async def recover(self) -> float | None:
        async def begin(path: str) -> None:
            held.send(path)

        return await recovered(lambda: worker(1, 1), begin)


if __name__ == "__main__":
    main(DramatiqSystem)
