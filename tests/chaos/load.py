"""The work of the chaos tests, and the node that does it: `python -m tests.chaos.load URL LEDGER [ROLES]`.

Every execution of a step appends two lines to a ledger that the product does not know: when it began and what it
returned. A result is a token that no other execution returns. So a result that is recorded twice, or lost, can be seen.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import signal
import sys
import time
from pathlib import Path

from holdfast import Holdfast, Retry, here, step, workflow
from holdfast.config import Config
from holdfast.errors import HoldfastError
from holdfast.workflow import outside

LEASE_S = 2.0
CONFIG = Config(
    lease_s=LEASE_S,
    renew_s=LEASE_S / 6,
    leader_lease_s=LEASE_S,
    poll_s=0.2,
    sweep_s=0.1,
    beat_s=0.2,
    park_after_s=1.0,
    connect_s=1.0,
    answer_s=LEASE_S * 1.5,
    losses_max=1000,
    steps_max=50,
)
"""Short limits, so that much can happen in a minute. A step may be lost any number of times, because the tests kill
often."""

log = logging.getLogger("chaos")
FOREVER = Retry(attempts=1000, delay=0.05, max_delay=0.5)
_numbers = itertools.count(1)


def note(ledger: str, *words: object) -> None:
    """Write one line, as a whole or not at all, even when the process is killed."""
    line = " ".join(map(str, (*words, f"{time.time():.4f}"))) + "\n"
    descriptor = os.open(Path(ledger), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def node_id() -> str:
    opened = outside.current()
    return opened.node.id if isinstance(opened, Holdfast) else "-"


@step(retry=FOREVER)
async def effect(ledger: str, i: int) -> str:
    node = node_id()
    note(ledger, "began", here.key, here.attempt, os.getpid(), node)
    await asyncio.sleep(random.uniform(0.002, 0.04))
    token = f"{here.key}/{os.getpid()}/{next(_numbers)}"
    note(ledger, "ended", here.key, here.attempt, os.getpid(), node, token)
    return token


@step(retry=FOREVER)
def effect_in_thread(ledger: str, i: int) -> str:
    note(ledger, "began", here.key, here.attempt, os.getpid(), "-")
    time.sleep(random.uniform(0.002, 0.02))
    token = f"{here.key}/{os.getpid()}/{next(_numbers)}"
    note(ledger, "ended", here.key, here.attempt, os.getpid(), "-", token)
    return token


@workflow
async def order(ledger: str) -> list[str]:
    """Steps one after the other, side by side and in threads, and a timer."""
    first = await effect(ledger, 0)
    both = await asyncio.gather(effect(ledger, 1), effect_in_thread(ledger, 2))
    await asyncio.sleep(0.01)
    return [first, *both, await effect(ledger, 3)]


async def main(url: str, ledger: str, roles: str = "scheduler,agent,supervisor") -> None:
    logging.basicConfig(level=logging.WARNING, format=f"%(asctime)s {os.getpid()} %(name)s %(message)s")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    hf = Holdfast(url, roles=roles.split(","), config=CONFIG)
    while True:
        try:
            await hf.open()
            break
        except HoldfastError as error:  # a process manager would start it again, too
            log.warning("opening: %s", error)
        await asyncio.sleep(0.2)
    note(ledger, "up", "-", "-", os.getpid(), hf.node.id)
    await stop.wait()
    await hf.close(drain_s=5.0)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
