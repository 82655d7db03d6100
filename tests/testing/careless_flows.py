"""Workflows that do not decide by their input and their results alone. After a crash each would be held, or act
twice."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import os
import random
import secrets
import socket
import time
import uuid
import warnings
from collections.abc import Iterator
from datetime import date, datetime

from holdfast import HoldfastWarning, Stop, step, workflow
from holdfast.workflow.workflow import Workflow
from tests.testing.careless_help import stamp

# `@workflow` warns of some of them where they are declared. Another test covers that.
warnings.filterwarnings("ignore", category=HoldfastWarning)

NAMES = ["ann", "bob", "cy", "di"]


@step
async def act(what: str) -> str:
    return what


@step
async def other(what: str) -> str:
    return what


class Thing:
    def __init__(self, name: str) -> None:
        self.name = name


@workflow
async def goes_through_a_set() -> int:
    for name in set(NAMES):
        await act(name)
    return 0


@workflow
async def goes_through_two_names(names: list[str] = NAMES[:2]) -> int:
    for name in frozenset(names):
        await act(name)
    return 0


@workflow
async def gathers_a_set() -> int:
    await asyncio.gather(*(act(name) for name in set(NAMES)))
    return 0


@workflow
async def lists_a_set() -> int:
    await act(",".join(set(NAMES)))
    return 0


@workflow
async def makes_a_dict_of_a_set() -> int:
    table = dict.fromkeys(set(NAMES), 0)
    await act(json.dumps(table))
    return 0


@workflow
async def takes_the_first_of_a_set() -> int:
    await act(next(iter({name.upper() for name in NAMES})))
    return 0


@workflow
async def pops_of_a_set() -> int:
    left = set(NAMES)
    while left:
        await act(left.pop())
    return 0


@workflow
async def shows_a_set() -> int:
    await act(str(frozenset(NAMES)))
    return 0


@workflow
async def returns_a_set_as_it_comes() -> list[str]:
    await act("x")
    return list(set(NAMES))


@workflow
async def goes_through_what_differs() -> int:
    for name in {"ann", "bob", "cy"} - {"cy"} | {"eve"}:
        await act(name)
    return 0


@workflow
async def hashes_a_text() -> int:
    await act(str(hash("ann")))
    return 0


@workflow
async def decides_by_a_hash() -> int:
    for name in NAMES:
        await (act(name) if hash(name) % 2 else other(name))
    return 0


@workflow
async def sorts_by_hash() -> int:
    await act(min(NAMES, key=hash))
    return 0


@workflow
async def names_an_address() -> int:
    await act(str(id(object())))
    return 0


@workflow
async def shows_an_object() -> int:
    await act(repr(Thing("x")))
    return 0


@workflow
async def goes_through_a_set_of_objects() -> int:
    things = {Thing(name) for name in "abcdefgh"}
    await act("".join(thing.name for thing in things))
    return 0


@workflow
async def reads_the_clock() -> int:
    await act(str(time.time()))
    return 0


@workflow
async def decides_by_the_hour() -> int:
    await (act("morning") if datetime.now().hour < 12 else other("afternoon"))  # noqa: DTZ005
    return 0


@workflow
async def decides_by_the_weekday() -> int:
    if date.today().weekday() >= 5:  # noqa: DTZ011
        await other("weekend")
    await act("x")
    return 0


@workflow
async def writes_the_year() -> int:
    await act(time.strftime("%Y"))
    return 0


@workflow
async def returns_the_day() -> str:
    await act("x")
    return datetime.utcnow().date().isoformat()  # noqa: DTZ003


@workflow
async def asks_somebody_for_the_time() -> int:
    await act(stamp())
    return 0


@workflow
async def flips_a_coin() -> int:
    await (act("heads") if random.random() < 0.5 else other("tails"))
    return 0


@workflow
async def audits_one_in_fifty() -> int:
    if random.random() < 0.02:
        await other("audit")
    await act("x")
    return 0


@workflow
async def draws() -> int:
    await act(random.choice(NAMES * 100))
    return 0


@workflow
async def makes_an_id() -> int:
    await act(uuid.uuid4().hex)
    return 0


@workflow
async def makes_a_token() -> int:
    await act(secrets.token_hex())
    return 0


@workflow
async def decides_by_the_environment() -> int:
    if os.environ.get("CARELESS_FEATURE"):
        await other("new")
    await act("x")
    return 0


@workflow
async def reads_the_environment() -> int:
    await act(os.environ["PATH"])
    return 0


@workflow
async def names_its_process() -> int:
    await act(str(os.getpid()))
    return 0


@workflow
async def names_its_host() -> int:
    await act(socket.gethostname())
    return 0


numbers = itertools.count()
seen: list[str] = []
cache: dict[str, str] = {}
letters: Iterator[str] = iter("abcdefghijklmnopqrstuvwxyz" * 1000)


@workflow
async def counts_for_all() -> int:
    await act(str(next(numbers)))
    return 0


@workflow
async def remembers_what_it_saw() -> int:
    if "x" not in seen:
        seen.append("x")
        await other("first")
    await act("x")
    return 0


@workflow
async def keeps_a_result() -> str:
    if "x" not in cache:
        cache["x"] = await act("x")
    return cache["x"]


@workflow
async def shares_a_generator() -> int:
    await act(next(letters))
    return 0


def _collected(name: str, into: list[str] = []) -> str:  # noqa: B006
    into.append(name)
    return ",".join(into)


@workflow
async def shares_a_default() -> int:
    await act(_collected("x"))
    return 0


@functools.cache
def _lot(name: str) -> float:
    return random.random()


@workflow
async def remembers_a_draw() -> int:
    await act(str(_lot("x")))
    return 0


@workflow
async def careless_child() -> int:
    await act(",".join(set(NAMES)))
    return 0


@workflow
async def has_a_careless_child() -> int:
    return await careless_child()


@workflow
async def is_careless_when_something_fails() -> int:
    try:
        await act("x")
    except Stop:
        for name in set(NAMES):
            await other(name)
    return 0


FLOWS = [each for each in list(globals().values()) if isinstance(each, Workflow)]
