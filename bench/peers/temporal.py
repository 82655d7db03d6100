"""Temporal's development server, in memory, with its poll limits raised and a worker set up for throughput.

A step has no default that finds a dead worker: E gives it a heartbeat timeout of one second.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from datetime import timedelta
from typing import Any

import uvloop
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import PollerBehaviorAutoscaling, UnsandboxedWorkflowRunner, Worker

from bench.peers.measuring import (
    CHAIN,
    Sizes,
    System,
    end,
    hold,
    in_flight,
    main,
    program,
    recovered,
    spawn,
    until_works,
)

ADDRESS = "127.0.0.1:7533"
QUEUE = "bench"
AT_ONCE = 100
LIMIT = timedelta(seconds=60)
BEAT = timedelta(seconds=1)


@activity.defn
async def noop(x: int) -> int:
    return x + 1


@activity.defn
async def held(path: str) -> None:
    for _ in range(int(hold(path) * 10)):
        activity.heartbeat()
        await asyncio.sleep(0.1)


@workflow.defn
class One:
    @workflow.run
    async def run(self) -> int:
        return await workflow.execute_activity(noop, 0, start_to_close_timeout=LIMIT)


@workflow.defn
class Ten:
    @workflow.run
    async def run(self) -> int:
        x = 0
        for _ in range(CHAIN):
            x = await workflow.execute_activity(noop, x, start_to_close_timeout=LIMIT)
        return x


@workflow.defn
class Fan:
    @workflow.run
    async def run(self, width: int) -> int:
        steps = (workflow.execute_activity(noop, 0, start_to_close_timeout=LIMIT) for _ in range(width))
        return sum(await asyncio.gather(*steps))


@workflow.defn
class Assignment:
    @workflow.run
    async def run(self, path: str) -> None:
        await workflow.execute_activity(held, path, start_to_close_timeout=LIMIT, heartbeat_timeout=BEAT)


async def work() -> None:
    pollers = PollerBehaviorAutoscaling(maximum=50)
    worker = Worker(
        await Client.connect(ADDRESS),
        task_queue=QUEUE,
        workflows=[One, Ten, Fan, Assignment],
        activities=[noop, held],
        max_concurrent_activities=500,
        max_concurrent_workflow_tasks=500,
        max_cached_workflows=5_000,
        workflow_task_poller_behavior=pollers,
        activity_task_poller_behavior=pollers,
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    await worker.run()


def worker() -> subprocess.Popen[bytes]:
    return spawn(sys.executable, "-m", "bench.peers.temporal", "work")


class TemporalSystem(System):
    sizes = Sizes(runs=300, chains=80)
    _worker: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> TemporalSystem:
        await self._serve()
        self._worker = worker()
        await until_works(self.once, "the worker")
        return self

    async def _serve(self) -> None:
        host, port = ADDRESS.split(":")
        raised = [
            argument
            for queue in ("transfer", "visibility", "timer")
            for argument in ("--dynamic-config-value", f"history.{queue}ProcessorMaxPollRPS=2000")
        ]
        self._server = spawn(
            *(program("temporal"), "server", "start-dev", "--headless", "--ip", host, "--port", port),
            *("--log-level", "error", *raised),
        )

        async def connect() -> None:
            self._client = await Client.connect(ADDRESS)

        await until_works(connect, "the server")

    async def __aexit__(self, *exception: object) -> None:
        end(self._worker, self._server)

    async def _run(self, run: Any, *arguments: Any) -> Any:
        return await self._client.execute_workflow(run, *arguments, id=uuid.uuid4().hex, task_queue=QUEUE)

    async def ones(self, count: int) -> None:
        await in_flight(self.once, count, AT_ONCE)

    async def tens(self, count: int) -> None:
        await in_flight(lambda: self._run(Ten.run), count, AT_ONCE)

    async def fan(self, width: int) -> None:
        assert await self._run(Fan.run, width) == width

    async def once(self) -> None:
        assert await self._run(One.run) == 1

    async def recover(self) -> float | None:
        await self._serve()
        try:
            return await recovered(worker, self._begin)
        finally:
            end(self._server)

    async def _begin(self, path: str) -> None:
        start = self._client.start_workflow
        await until_works(
            lambda: start(Assignment.run, path, id=uuid.uuid4().hex, task_queue=QUEUE), "the namespace"
        )


if __name__ == "__main__":
    uvloop.install()
    if sys.argv[1:] == ["work"]:
        asyncio.run(work())
    else:
        main(TemporalSystem)
