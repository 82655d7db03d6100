"""Workflow code that a replay would not repeat is warned about when it is declared, and only that."""

import asyncio
import datetime as dt
import os
import random
import secrets
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
import uuid
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date
from datetime import datetime as clock
from functools import partial
from random import randint
from time import time as seconds
from typing import Any

import httpx2
import pytest

from holdfast import HoldfastWarning, Signal, now, step, undo_with, workflow
from holdfast import random as chance
from holdfast.workflow.lint import findings, forgotten


async def uses_time() -> object:
    time.sleep(0)  # noqa: ASYNC251  that is the point
    return time.time(), time.monotonic()


async def uses_a_renamed_import() -> float:
    return seconds()


async def uses_datetime() -> object:
    return dt.datetime.now(UTC), clock.utcnow(), date.today(), dt.date.today()  # noqa: DTZ003, DTZ011


async def uses_random() -> object:
    return random.random(), random.choice([1]), randint(1, 2), random.SystemRandom().random()


async def uses_identity() -> object:
    return uuid.uuid4(), uuid.uuid1(), os.urandom(1), secrets.token_hex()


async def uses_files_and_processes() -> object:
    with open("/dev/null") as file:  # noqa: ASYNC230, PTH123
        return file, subprocess.run(["true"], check=True), subprocess.Popen  # noqa: ASYNC221


async def uses_the_network() -> object:
    socket.create_connection(("localhost", 1))
    urllib.request.urlopen("http://localhost")  # noqa: ASYNC210
    async with httpx2.AsyncClient() as client:
        return await client.get("http://localhost")


async def uses_threads() -> None:
    await asyncio.to_thread(len, [])
    await asyncio.create_subprocess_exec("true")


async def prints() -> None:
    print("hello")


async def hides_it_in_a_nested_function() -> object:
    def inner() -> float:
        return max([time.time() for _ in range(3)])

    return inner


async def imports_inside() -> object:
    import time as t
    from uuid import uuid4

    return t.time(), uuid4()


@pytest.mark.parametrize(
    ("fn", "names", "advice"),
    [
        (uses_time, {"time.time()", "time.monotonic()", "time.sleep()"}, "holdfast.now()"),
        (uses_a_renamed_import, {"seconds()"}, "holdfast.now()"),
        (
            uses_datetime,
            {"dt.datetime.now()", "clock.utcnow()", "date.today()", "dt.date.today()"},
            "holdfast.now()",
        ),
        (
            uses_random,
            {"random.random()", "random.choice()", "randint()", "random.SystemRandom()"},
            "holdfast.random()",
        ),
        (
            uses_identity,
            {"uuid.uuid4()", "uuid.uuid1()", "os.urandom()", "secrets.token_hex()"},
            "holdfast.uuid4()",
        ),
        (uses_files_and_processes, {"open()", "subprocess.run()", "subprocess.Popen()"}, "put it in a step"),
        (
            uses_the_network,
            {"socket.create_connection()", "urllib.request.urlopen()", "httpx2.AsyncClient()"},
            "put it in a step",
        ),
        (uses_threads, {"asyncio.to_thread()", "asyncio.create_subprocess_exec()"}, "put it in a step"),
        (prints, {"print()"}, "use logging, which logs once"),
        (hides_it_in_a_nested_function, {"time.time()"}, "holdfast.now()"),
        (imports_inside, {"t.time()", "uuid4()"}, "holdfast.now()"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_a_replay_would_not_repeat_is_found(fn: Any, names: set[str], advice: str) -> None:
    """Each place is named, with what to write instead."""
    found = findings(fn)
    assert {name for _, name, _ in found} == names
    assert any(advice in text for _, _, text in found)


def test_the_warning_points_at_the_line() -> None:
    """File and line are those of the code, and the class can be filtered."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")

        @workflow
        async def flow() -> float:
            return time.time()

    (warning,) = caught
    assert warning.category is HoldfastWarning
    assert warning.filename == __file__
    assert warning.lineno == flow.fn.__code__.co_firstlineno + 2
    assert "flow() uses time.time()" in str(warning.message)
    assert "use holdfast.now()" in str(warning.message)


class Clock:
    """An author's own class whose methods have names of clock functions."""

    time = "noon"

    def now(self) -> str:
        return self.time

    def open(self) -> str:
        return "open"


async def is_innocent(time: Clock, random: Any) -> object:
    """Code with names that only look alike: parameters, attributes, a seeded Random, types, exceptions, harmless
    functions of the modules."""
    own = Clock()
    seeded = random.Random(5)
    spread = [len(str(value)) for value in (time.time, time.now(), own.open(), seeded.random())]
    deadline = dt.datetime(2026, 1, 1, tzinfo=UTC) + dt.timedelta(days=1)
    parsed = dt.datetime.fromisoformat("2026-01-01"), clock.fromtimestamp(0, UTC)
    name = (
        urllib.parse.quote("a b"),
        os.fspath("a"),
        uuid.UUID(int=1),
        uuid.uuid5(uuid.NAMESPACE_DNS, "a"),
    )
    try:
        await asyncio.sleep(1)
        await asyncio.wait_for(asyncio.Event().wait(), 1)
    except (OSError, subprocess.CalledProcessError, httpx2.HTTPError, urllib.error.URLError, TimeoutError):
        pass
    return deadline, parsed, name, now(), chance().random(), partial(len), spread


async def takes_seeded_dice() -> float:
    return random.Random(1).random()


@pytest.mark.parametrize("fn", [is_innocent, takes_seeded_dice], ids=lambda fn: fn.__name__)
def test_innocent_code_is_left_alone(fn: Any) -> None:
    """A wrong warning teaches people to ignore all of them."""
    assert findings(fn) == []


@step
async def work(n: int) -> int:
    return n


done = Signal("lint-done", int)


async def forgets() -> None:
    work(1)  # type: ignore[unused-coroutine]
    work.using(timeout=5)(2)  # type: ignore[unused-coroutine]
    done.wait(5)  # type: ignore[unused-coroutine]
    nested(3)  # type: ignore[unused-coroutine]


@workflow(name="lint.nested")
async def nested(n: int) -> int:
    return n


async def forgets_nothing() -> None:
    task = asyncio.create_task(work(1))
    await work(2)
    await asyncio.gather(work(3), nested(4))
    undo_with(work, 1)
    both = [work(5), work(6)]
    for each in both:
        await each
    await task


def test_a_call_that_nobody_awaits_is_warned_of() -> None:
    """A step that is called and not awaited does nothing, and Python says so only later and elsewhere."""
    assert [name for _, name in forgotten(forgets)] == ["work", "work", "done", "nested"]
    assert forgotten(forgets_nothing) == []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        workflow(name="lint.forgets")(forgets)
    assert "forgets() calls work and does not await it, so nothing happens" in str(warned[0].message)


async def starts_threads() -> None:
    threading.Thread(target=list).start()
    with ThreadPoolExecutor() as pool:
        pool.submit(list)


def test_threads_are_warned_of() -> None:
    """What they do is not recorded, and happens again at every replay."""
    assert [what for _, what, _ in findings(starts_threads)] == [
        "threading.Thread()",
        "ThreadPoolExecutor()",
    ]
