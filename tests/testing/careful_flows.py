"""Workflows that are right, though they look like some that are not. The kit must report nothing about them."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import random
import time
import warnings
from dataclasses import dataclass
from datetime import timedelta

import holdfast
from holdfast import HoldfastWarning, Retry, Signal, Stop, continue_as_new, here, keep, saga, step, workflow
from holdfast.workflow.workflow import Workflow

warnings.filterwarnings("ignore", category=HoldfastWarning)

NAMES = ["ann", "bob", "cy", "di"]
LIMIT = int(os.environ.get("CAREFUL_LIMIT", "3"))
log = logging.getLogger("careful")
pure: dict[int, int] = {}
go = Signal("go", int)
halt = Signal("halt", int)


@step
async def act(what: str) -> str:
    return f"{what} {here.key}"


@step
async def other(what: str) -> str:
    return f"{what} {here.key}"


@step(retry=Retry(attempts=3, delay=30, jitter="none"))
async def flaky(what: str) -> str:
    if here.attempt == 1:
        raise ConnectionError("busy")
    return f"{what} {here.key}"


@step
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return here.key


@step
async def reserve(what: str) -> str:
    return here.key


@reserve.undo
async def let_go(done: str | None, what: str) -> None:
    assert here.undoes


@step
async def weigh(names: set[str]) -> int:
    return len(f"{sorted(names)} {here.key}")


@step
async def draw() -> float:
    return random.random() + (here.key == "")


@dataclass(frozen=True)
class Thing:
    name: str


@workflow
async def sorts_a_set() -> list[str]:
    return [await act(name) for name in sorted(set(NAMES))]


@workflow
async def hands_on_a_set() -> int:
    return await weigh(set(NAMES))


@workflow
async def asks_a_set() -> int:
    known = {Thing(name) for name in NAMES}
    for name in NAMES:
        if Thing(name) in known:
            await act(name)
    return len(known)


@workflow
async def adds_up_a_set() -> str:
    return await act(str(sum(len(name) for name in set(NAMES))))


@workflow
async def names_the_keys_of_a_set() -> list[str]:
    done = await asyncio.gather(*(act.using(key=name)(name) for name in set(NAMES)))
    return sorted(done)


@workflow
async def asks_holdfast() -> str:
    said = f"{holdfast.now().isoformat()} {holdfast.random().random()} {holdfast.uuid4()}"
    return await act(said)


@workflow
async def logs_the_time() -> str:
    begun = time.perf_counter()
    done = await act("x")
    log.warning("took %s at %s", time.perf_counter() - begun, time.time())
    return done


@workflow
async def takes_the_first() -> str:
    tasks = [asyncio.create_task(act(name)) for name in NAMES[:3]]
    done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    return min(task.result() for task in done)


@workflow
async def takes_them_as_they_come() -> list[str]:
    return [await each for each in asyncio.as_completed([act(name) for name in NAMES[:3]])]


@workflow
async def goes_on_after_the_first() -> str:
    tasks = [asyncio.create_task(act(name)) for name in NAMES[:2]]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    winner = min(task.result() for task in done)
    return await other(winner)


@workflow
async def hedges() -> str:
    first = asyncio.create_task(slow(5))
    done, _ = await asyncio.wait([first], timeout=2)
    tasks = [first] if done else [first, asyncio.create_task(slow(1))]
    done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    return min(task.result() for task in done)


@workflow
async def gives_up_waiting() -> str:
    try:
        async with asyncio.timeout(3):
            return await slow(2)
    except TimeoutError:
        return await act("too late")


@workflow
async def waits_for_so_long() -> str:
    try:
        return await asyncio.wait_for(slow(9), 5)
    except TimeoutError:
        return await act("too late")


@workflow
async def races_a_back_off() -> str:
    try:
        async with asyncio.timeout(20):
            return await flaky("x")
    except TimeoutError:
        return await act("too late")


@workflow
async def races_with_time() -> str:
    task = asyncio.create_task(flaky("x"))
    await asyncio.sleep(30)
    return await task if task.done() else await act("not yet")


@workflow
async def has_a_group() -> list[str]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(act(name)) for name in NAMES[:3]]
    return [task.result() for task in tasks]


@workflow
async def has_consumers() -> list[str]:
    todo: asyncio.Queue[str] = asyncio.Queue()
    for name in NAMES:
        todo.put_nowait(name)
    done: list[str] = []

    async def work() -> None:
        while not todo.empty():
            name = todo.get_nowait()
            done.append(await act.using(key=name)(name))

    await asyncio.gather(work(), work())
    return done


@workflow
async def lets_two_in() -> list[str]:
    room = asyncio.Semaphore(2)

    async def one(name: str) -> str:
        async with room:
            return await act.using(key=name)(name)

    return list(await asyncio.gather(*(one(name) for name in NAMES)))


@workflow
async def signals_race() -> str:
    tasks = {asyncio.create_task(go.wait()), asyncio.create_task(halt.wait())}
    done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    return await act(str(min(task.result() for task in done)))


@workflow
async def signal_or_time() -> str:
    try:
        return await act(str(await go.wait(timeout=timedelta(hours=1))))
    except TimeoutError:
        return await other("nobody")


@workflow
async def child(name: str) -> str:
    return await reserve(name)


@workflow
async def children_race() -> str:
    tasks = [asyncio.create_task(child(name)) for name in NAMES[:2]]
    done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    return min(task.result() for task in done)


@workflow
async def tries_again() -> str:
    for pause in (1, 60):
        try:
            return await act("x")
        except Stop:
            await asyncio.sleep(pause)
    return "given up"


@workflow
async def goes_round(times: int = 3) -> int:
    await act(str(times))
    if times > 1:
        continue_as_new(times - 1)
    return times


@functools.cache
def _square(n: int) -> int:
    return n * n


@workflow
async def remembers_what_is_always_so() -> str:
    if 3 not in pure:
        pure[3] = _square(3)
    return await act(str(pure[3]))


@workflow
async def files_by_address() -> str:
    things = [Thing(name) for name in NAMES]
    table = {id(thing): thing.name for thing in things}
    return await act("".join(table[id(thing)] for thing in things))


@workflow
async def has_dice_of_its_own() -> str:
    return await act(str(random.Random(7).random()))


@workflow
async def was_configured() -> list[str]:
    return [await act(name) for name in NAMES[:LIMIT]]


@workflow
async def returns_what_was_drawn() -> float:
    return await draw()


@workflow
async def undoes_a_part() -> str:
    try:
        async with saga():
            await reserve("seat")
            await act("x")
    except Stop:
        return "not this time"
    return "done"


@workflow
async def keeps_what_it_has() -> str:
    await reserve("seat")
    keep()
    return await act("x")


@workflow
async def bears_failures() -> list[str]:
    done = await asyncio.gather(*(act(name) for name in NAMES[:3]), return_exceptions=True)
    return [type(each).__name__ for each in done]


@workflow
async def gives_one_up() -> str:
    task = asyncio.create_task(act("x"))
    await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass
    return await other("y")


@workflow
async def waits_for_each_other() -> list[str]:
    turn = asyncio.Event()
    said: list[str] = []

    async def second() -> None:
        await turn.wait()
        said.append(await act("second"))

    async def first() -> None:
        said.append(await other("first"))
        turn.set()

    await asyncio.gather(second(), first())
    return said


FLOWS = [each for each in list(globals().values()) if isinstance(each, Workflow) and each is not child]
