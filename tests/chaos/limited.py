"""Steps and runs under limits and rates, and the node that executes them: `python -m tests.chaos.limited URL LEDGER ROLES HEART`.

Every execution appends a line to a ledger that the product does not know: when it has begun, and before it ends. A line is
appended as a whole, so the order of the lines is the order in which these things happened: a place is taken before the
line that says so, and free again after the line that says that. So what the ledger says is at work at once really was.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

from holdfast import Holdfast, Retry, here, step, workflow
from holdfast.limits import Limit, Rate
from tests.chaos.load import CONFIG, note

MOST = {"five": 5, "three": 3, "odd:true": 2, "odd:false": 2, "open": 2}
"""How many each limit allows at once."""
STEADY, STEADY_S = 5, 0.3
"""A limit that always has more to do than it allows, and how long each of its steps works."""
FOREVER = Retry(attempts=1000, delay=0.01)
BRISK, BRISK_PER_S = Rate("brisk", 20, per=1, burst=10), 1.0
MINUTE, MINUTE_PER_S = Rate("minute", 100, per=60, burst=10), 60.0


async def at_work(ledger: str, seconds: float = 0.05, /, **places: int) -> None:
    """Take so many slots under these limits for so long, by what the ledger says."""
    about = (os.getpid(), f"{here.key}/{here.attempt}")
    note(ledger, "began", *about, ",".join(f"{key}={number}" for key, number in places.items()))
    await asyncio.sleep(seconds)
    note(ledger, "ended", *about, "-")


@step(limits=[Limit("five", MOST["five"])], retry=FOREVER)
async def light(ledger: str, number: int) -> int:
    await at_work(ledger, five=1)
    return number


@step(limits=[Limit("five", MOST["five"]), Limit("three", MOST["three"])], retry=FOREVER)
async def middling(ledger: str, number: int) -> int:
    await at_work(ledger, five=1, three=1)
    return number


@step(limits=[Limit("five", MOST["five"], weight=2), Limit("three", 3), Limit("odd:{odd}", 2)], retry=FOREVER)
async def heavy(ledger: str, number: int, odd: bool) -> int:
    await at_work(ledger, **{"five": 2, "three": 1, f"odd:{str(odd).lower()}": 1})
    return number


@workflow
async def many(ledger: str, number: int) -> int:
    def one(i: int) -> Awaitable[int]:
        if i % 3 == 0:
            return heavy(ledger, i, i % 2 == 1)
        return middling(ledger, i) if i % 3 == 1 else light(ledger, i)

    return sum(await asyncio.gather(*(one(i) for i in range(number))))


@step(limits=[Limit("steady", STEADY)], retry=FOREVER)
async def steady(ledger: str, number: int) -> int:
    """It works for so long that the limit is free only for a moment between two of these."""
    await at_work(ledger, STEADY_S, steady=1)
    return number


@workflow
async def crowd(ledger: str, number: int) -> int:
    return sum(await asyncio.gather(*(steady(ledger, i) for i in range(number))))


@step(retry=FOREVER)
async def enter(ledger: str) -> None:
    note(ledger, "began", "-", here.run_id, "open=1")


@step(retry=FOREVER)
async def leave(ledger: str) -> None:
    note(ledger, "ended", "-", here.run_id, "-")


@workflow(limits=[Limit("open", MOST["open"])])
async def one_of_two(ledger: str) -> None:
    """A run is open from its first step to its last one, also while it sleeps."""
    await enter(ledger)
    await asyncio.sleep(0.05)
    await leave(ledger)


@step(limits=[BRISK], retry=FOREVER)
async def brisk(ledger: str, number: int) -> int:
    note(ledger, "began", os.getpid(), f"{here.key}/{here.attempt}", "brisk=1")
    return number


@step(limits=[MINUTE], retry=FOREVER)
async def minute(ledger: str, number: int) -> int:
    note(ledger, "began", os.getpid(), f"{here.key}/{here.attempt}", "minute=1")
    return number


@workflow
async def paced(ledger: str, rate: str, number: int) -> int:
    one = brisk if rate == BRISK.key else minute
    return sum(await asyncio.gather(*(one(ledger, i) for i in range(number))))


def replayed(lines: Iterable[str]) -> Iterator[tuple[float, Counter[str]]]:
    """Go through a ledger. Yield after each line its time, and how much of each limit was in use.

    The test writes that it kills a process before it does. From there on nothing of that process counts, although it may
    have lived for a moment longer: so the ledger never says more than there was."""
    working: dict[tuple[str, str], Counter[str]] = {}
    used, dead = Counter[str](), set[str]()

    def end(which: tuple[str, str]) -> None:
        used.subtract(working.pop(which, Counter()))

    for line in lines:
        what, pid, which, under, at = line.split()
        if what == "up":
            dead.discard(pid)
        elif what == "killed":
            dead.add(pid)
            for one in [one for one in working if one[0] == pid]:
                end(one)
        elif what == "ended":
            end((pid, which))
        elif pid not in dead and (pid, which) not in working:
            pairs = (one.split("=") for one in under.split(","))
            working[pid, which] = Counter({key: int(number) for key, number in pairs})
            used.update(working[pid, which])
        yield float(at), used


async def main(url: str, ledger: str, roles: str, heart: str) -> None:
    config = replace(CONFIG, heart=heart == "heart")
    async with Holdfast(url, roles=roles.split(","), config=config):
        note(ledger, "up", os.getpid(), "-", "-")
        await asyncio.Event().wait()


if __name__ == "__main__":
    Path(sys.argv[2]).touch()
    asyncio.run(main(*sys.argv[1:]))
