"""Holdfast: all roles in one process, through its public API. E has agents in processes of their own."""

from __future__ import annotations

import asyncio
import os
import subprocess

from bench.peers.measuring import CHAIN, Sizes, System, hold, in_flight, main, program, recovered, spawn
from holdfast import Holdfast, step, workflow
from holdfast.bench.work import chain, fan
from holdfast.commands.event_loop import run_long

URL = os.environ["BENCH_STORE"]
AT_ONCE = 500


@step
async def held(path: str) -> None:
    await asyncio.sleep(hold(path))


@workflow
async def assignment(path: str) -> None:
    await held(path)


class HoldfastSystem(System):
    sizes = Sizes(runs=10_000, chains=3_000)

    async def __aenter__(self) -> HoldfastSystem:
        self._holdfast = await Holdfast(URL).open()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._holdfast.close()

    async def _chain(self, length: int) -> None:
        assert await (await self._holdfast.start(chain, length)).result() == length

    async def ones(self, count: int) -> None:
        await in_flight(self.once, count, AT_ONCE)

    async def tens(self, count: int) -> None:
        await in_flight(lambda: self._chain(CHAIN), count, AT_ONCE)

    async def fan(self, width: int) -> None:
        assert await (await self._holdfast.start(fan, width)).result() == width

    async def once(self) -> None:
        await self._chain(1)

    async def recover(self) -> float | None:
        async with Holdfast(URL, roles=("scheduler", "supervisor")) as scheduling:

            def worker() -> subprocess.Popen[bytes]:
                return spawn(program("holdfast"), "agent", "bench.peers.holdfast", "--store", URL)

            async def begin(path: str) -> None:
                await (await scheduling.start(assignment, path)).result()

            return await recovered(worker, begin)


if __name__ == "__main__":
    main(HoldfastSystem, run_long)  # as `holdfast up` does
