"""Workflows that the tests of the roles run. They count their effects in a dictionary: there is one process, with real
steps."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from dataclasses import dataclass

from holdfast import (
    Retry,
    RetryIn,
    Signal,
    Stop,
    continue_as_new,
    here,
    now,
    publish,
    random,
    set_progress,
    step,
    uuid4,
    workflow,
)

effects: Counter[str] = Counter()
keys: list[str] = []
gates: dict[str, asyncio.Event] = {}
QUICK = Retry(attempts=3, delay=0.01, jitter="none")


@dataclass
class Parcel:
    city: str
    grams: int


paid = Signal("paid", Parcel)


@step
async def add(x: int, y: int = 1) -> int:
    effects["add"] += 1
    return x + y


@step
def add_in_thread(x: int) -> int:
    effects[f"thread {threading.current_thread().name.split('_')[0]}"] += 1
    return x + 1


@step(retry=QUICK)
async def flaky(name: str, failures: int) -> int:
    effects[name] += 1
    keys.append(here.key)
    if here.attempt <= failures:
        raise ConnectionError(f"attempt {here.attempt}")
    return here.attempt


@step(retry=Retry(attempts=2, delay=0.01))
async def put_off(name: str) -> int:
    effects[name] += 1
    if effects[name] <= 3:
        raise RetryIn(0.01)
    return effects[name]


@step(retry=QUICK)
async def stopper(name: str) -> None:
    effects[name] += 1
    raise Stop("no use")


@step(timeout=0.1, retry=Retry(attempts=2, delay=0.01))
async def hang(name: str) -> None:
    effects[name] += 1
    await asyncio.sleep(60)


@step(timeout=0.1, retry=1)
def hang_in_thread(name: str) -> None:
    effects[name] += 1
    while not here.cancelled:
        time.sleep(0.005)
    effects[f"{name} cancelled"] += 1


@step(retry=Retry(attempts=3, delay=0.01))
async def checkpointed(name: str) -> int:
    done = here.saved or 0
    effects[f"{name} from {done}"] += 1
    if done < 2:
        await here.save(done + 1)
        raise ConnectionError("again")
    return int(done)


@step
async def gated(name: str) -> str:
    effects[name] += 1
    try:
        await gates[name].wait()
    except asyncio.CancelledError:
        effects[f"{name} cancelled"] += 1
        raise
    return name


@step(needs=["gpu"])
async def needs_gpu() -> str:
    effects["gpu"] += 1
    return "rendered"


@step
async def slow_square(x: int) -> int:
    effects["running"] += 1
    effects["most"] = max(effects["most"], effects["running"])
    await asyncio.sleep(0.002)
    effects["running"] -= 1
    if x == 13:
        raise Stop("unlucky")
    return x * x


@workflow
async def chain(length: int) -> int:
    x = 0
    for _ in range(length):
        x = await add(x)
    return x


@workflow
async def threads(count: int) -> int:
    return sum(await asyncio.gather(*(add_in_thread(i) for i in range(count))))


@workflow
async def retried(name: str, failures: int) -> int:
    return await flaky(name, failures)


@workflow
async def calls_put_off(name: str) -> int:
    return await put_off(name)


@workflow
async def stopped(name: str) -> str:
    try:
        await stopper(name)
    except Stop as error:
        return f"caught {error}"
    return "not stopped"


@workflow
async def times_out(name: str) -> str:
    try:
        await hang(name)
    except TimeoutError:
        return "timed out"
    return "?"


@workflow
async def times_out_in_thread(name: str) -> str:
    try:
        await hang_in_thread(name)
    except TimeoutError:
        return "timed out"
    return "?"


@workflow
async def resumes_checkpoint(name: str) -> int:
    return await checkpointed(name)


@workflow
async def waits_for_payment(patience_s: float) -> str:
    try:
        parcel = await paid.wait(timeout=patience_s)
    except TimeoutError:
        return "never paid"
    return f"{parcel.city} {parcel.grams}"


@workflow
async def busy_then_paid(name: str) -> str:
    await gated(name)
    return (await paid.wait(timeout=60)).city


@workflow
async def wide(count: int) -> int:
    return len(await asyncio.gather(*(add(i) for i in range(count))))


@workflow
async def parent(length: int) -> int:
    one, two = await asyncio.gather(chain(length), chain.using(id=f"child-of-{length}")(length + 1))
    return one + two


@workflow
async def parent_of_failure() -> str:
    try:
        await fails("boom")
    except ValueError as error:
        return f"child said {error}"
    return "?"


@workflow
async def fails(message: str) -> None:
    await add(1)
    raise ValueError(message)


@workflow
async def gate(name: str) -> str:
    return await gated(name)


@workflow
async def parent_of_gate(name: str) -> str:
    return await gate(name)


@workflow
async def sleeps(seconds: float) -> float:
    began = now()
    await asyncio.sleep(seconds)
    return (now() - began).total_seconds()


@workflow
async def mapped(count: int, tolerate: int) -> int:
    squares = await slow_square.map(range(count), limit=5, tolerate=tolerate)
    return sum(value for value in squares if isinstance(value, int))


@workflow(timeout=0.2)
async def too_long(name: str) -> str:
    return await gated(name)


@workflow
async def counts_down(left: int, seen: list[str]) -> list[str]:
    seen = [*seen, f"{left}:{await add(left, 0)}"]
    if left == 0:
        return seen
    return continue_as_new(left - 1, seen)


@workflow(timeout=0.5)
async def goes_round(name: str, left: int) -> str:
    """Continues as new at once, and then waits for longer than it may take."""
    if left > 0:
        return continue_as_new(name, left - 1)
    return await gated(name)


@workflow
async def collects(left: int, grams: int) -> int:
    grams += (await paid.wait()).grams
    if left == 1:
        return grams
    return continue_as_new(left - 1, grams)


@workflow
async def chance() -> list[str]:
    first = [str(uuid4()), str(random().random()), now().isoformat()]
    await add(1)
    return [*first, str(uuid4())]


@workflow
async def speaks() -> str:
    set_progress(0.5, "half way")
    publish("city", "Oslo")
    await gated("speaks")
    publish("grams", 12)
    return "done"


@workflow
async def renders() -> str:
    return await needs_gpu()


@workflow
async def renders_later() -> str:
    await add(1)
    return await needs_gpu.using(needs=["gpu", "large"])()


@workflow
async def cleans_up(name: str) -> str:
    try:
        return await gated(name)
    finally:
        await add(1)
        effects[f"{name} cleaned"] += 1


@workflow
async def takes_parcel(parcel: Parcel) -> str:
    return f"{parcel.city} {await add(parcel.grams)} {os.sep}"


@step
async def echo(word: str) -> str:
    effects[word] += 1
    return word


@workflow
async def echoes(word: str) -> str:
    return await echo(word)


@step
async def gated_echo(word: str) -> str:
    effects["waiting"] += 1
    await gates["all"].wait()
    return word


@workflow
async def gated_echoes(word: str) -> str:
    return await gated_echo(word)


@workflow
async def stubborn() -> str:
    try:
        return await gated("one")
    except asyncio.CancelledError:
        return await gated("two")
