"""Workflows and steps that log, for the tests about logs."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import sys
import threading
from pathlib import Path

from holdfast import Retry, continue_as_new, here, step, workflow

log = logging.getLogger("shop.bank")
gates: dict[str, asyncio.Event] = {}
QUICK = Retry(attempts=3, delay=0.01, jitter="none")


@step(retry=QUICK)
async def charge(failures: int) -> int:
    log.debug("not kept")
    log.info("attempt %d begins", here.attempt)
    if here.attempt <= failures:
        try:
            raise ConnectionError("the bank is away")
        except ConnectionError:
            log.exception("charging failed")
            raise
    return here.attempt


@step(retry=1)
def pack(parcel: str) -> str:
    log.warning("packing %s", parcel)
    return parcel


@workflow
async def order(failures: int = 1) -> int:
    log.info("order begins")
    attempt = await charge(failures)
    log.info("charged at attempt %d", attempt)
    await pack("a rope")
    return attempt


@workflow
async def naps(seconds: float = 0.6) -> str:
    """It leaves memory while it sleeps, and its code is closed then."""
    log.info("before")
    try:
        await asyncio.sleep(seconds)
    finally:
        log.info("slept")
    log.info("after")
    return "done"


@workflow
async def goes_on(generation: int = 1) -> int:
    log.info("generation %d", generation)
    await pack(str(generation))
    if generation < 3:
        continue_as_new(generation + 1)
    return generation


@step(retry=1)
async def waits(name: str) -> str:
    log.info("%s is under way", name)
    await gates[name].wait()
    log.info("%s goes on", name)
    return name


@workflow
async def waiting(name: str) -> str:
    return await waits(name)


@step(retry=1)
def floods(lines: int, size: int) -> int:
    for number in range(lines):
        log.info("%d %s", number, "x" * size)
    return lines


@workflow
async def flooding(lines: int, size: int) -> int:
    return await floods(lines, size)


class Unwilling:
    """An argument of a log call that cannot be written."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


@step(retry=1)
def says_odd_things() -> str:
    log.info("a NUL \0, half of a character \udc80, a colour \x1b[31m")
    log.info("%d pieces", "three")
    log.info(Unwilling())
    log.info("%s", Unwilling())
    log.info(b"bytes")
    log.info("y" * 10_000_000)
    log.info({"event": "from structlog", "pieces": 3, "_record": "hidden"})
    logging.getLogger("holdfast.agent").warning("the engine's own")
    return "said"


@workflow
async def odd() -> str:
    return await says_odd_things()


@step(retry=1)
def uses_threads() -> str:
    def say(what: str) -> None:
        log.info("from %s", what)

    context = contextvars.copy_context()
    threads = [
        threading.Thread(target=say, args=("a bare thread",)),
        threading.Thread(target=context.run, args=(say, "a thread with the context")),
    ]
    for thread in threads:
        thread.start()
        thread.join()
    return "done"


@workflow
async def threaded() -> str:
    return await uses_threads()


late: list[threading.Event] = []


@step(retry=1, timeout=0.05)
def outlives() -> None:
    log.info("in time")
    late[0].wait(20)
    log.info("too late")
    late[1].set()


@workflow
async def outlived() -> str:
    try:
        await outlives()
    except TimeoutError:
        return "timed out"
    return "ended"


@step(isolate=True, retry=Retry(attempts=1, losses=0))
def alone(how: str) -> str:
    log.info("logged alone")
    log.warning("warned alone")
    print("printed")
    print("printed as an error", file=sys.stderr)
    os.system("echo by another program")
    thread = threading.Thread(target=log.info, args=("by a thread",))
    thread.start()
    thread.join()
    sys.stdout.buffer.write(b"no text: \xff\xfe\n" + b"z" * 300_000)
    sys.stdout.flush()
    if how == "dies":
        os.abort()
    return how


@workflow
async def isolated(how: str) -> str:
    return await alone(how)


@workflow
async def fails_in_code() -> str:
    log.error("about to fail")
    raise ValueError("no")


@step(hedge=True, retry=1)
async def slow(folder: str) -> str:
    log.info("slow begins")
    path = Path(folder) / "first"
    if not path.exists():
        path.touch()
        await asyncio.sleep(30)
    return "fast"


@workflow
async def hedged(folder: str) -> str:
    return await slow(folder)
