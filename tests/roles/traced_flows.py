"""Workflows whose steps have spans of their own."""

from __future__ import annotations

import asyncio

from opentelemetry import trace

import examples.traced
from holdfast import Holdfast, Retry, Signal, Stop, Update, here, step, workflow
from holdfast.events import Event

assert examples.traced.order.name  # with SPANS_FILE, it writes the spans of this process
tracer = trace.get_tracer("flows")
go = Signal("go", str)
change = Update("change", str, str)
paid = Event("traced.paid", str)
inner: list[Holdfast] = []
"""What a step of `starts` uses to start another run."""


@step(retry=Retry(attempts=3, on=ConnectionError, delay=0.01, jitter="none"))
async def flaky(x: int) -> int:
    with tracer.start_as_current_span("inside"):
        if here.attempt == 1:
            raise ConnectionError("canary-4f1d is busy")
    return x + 1


@flaky.undo
async def unflaky(result: int | None, x: int) -> None:
    with tracer.start_as_current_span("inside an undo"):
        pass


@step
def threaded(x: int) -> int:
    with tracer.start_as_current_span("inside a thread"):
        return x + 1


@step(isolate=True)
def isolated(x: int) -> int:
    with tracer.start_as_current_span("inside a process"):
        return x + 1


@step(timeout=0.05, retry=Retry(attempts=1))
async def slow() -> None:
    await asyncio.sleep(60)


@workflow
async def plain(x: int) -> int:
    return await threaded(await flaky(x))


@workflow
async def apart(x: int) -> int:
    return await isolated(x)


@workflow
async def parent(x: int) -> int:
    await asyncio.sleep(0.01)
    return await child(x)


@workflow
async def child(x: int) -> int:
    return await threaded(x)


@workflow
async def fails(x: int) -> int:
    await flaky(x)
    raise Stop("no")


@workflow
async def late() -> None:
    await slow()


@workflow
async def waits(x: int) -> str:
    await threaded(x)

    async def changed(to: str) -> str:
        return to

    async with change.serve(changed):
        return await go.wait()


@workflow(on="traced.ordered")
async def ordered(name: str) -> str:
    await threaded(1)
    return await paid.wait(name)


@step
async def start_another() -> None:
    run = await inner[0].start(child.using(id="started-inside"), 1)
    await run.result(timeout=60)


@workflow
async def starts() -> None:
    await start_another()
