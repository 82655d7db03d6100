"""`python -m holdfast.bench.sleepers COUNT`: starts runs that sleep for a month, and leaves them asleep in
$HOLDFAST_STORE.

They are ordinary runs. Only the limits of this node differ from the default. With the default limits, a scheduler keeps
a waiting run in memory for ten seconds, which is useful only for a run that may go on soon.
"""

from __future__ import annotations

import asyncio
import sys

from holdfast.bench.work import nap
from holdfast.client import Holdfast
from holdfast.config import Config

AT_ONCE = 500
CONFIG = Config(runs_max=20_000, park_after_s=0.0, claim_max=5_000)


async def fill(count: int) -> None:
    async with Holdfast(roles=("scheduler", "supervisor"), config=CONFIG) as hf:
        for done in range(0, count, AT_ONCE):
            await asyncio.gather(*(hf.start(nap) for _ in range(min(AT_ONCE, count - done))))
            if done % 5_000 == 0:
                print(done, flush=True)  # noqa: T201  read by the process that started this one


if __name__ == "__main__":
    asyncio.run(fill(int(sys.argv[1])))
