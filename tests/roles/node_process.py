"""A node in a process of its own: `python -m tests.roles.node_process URL ROLES LEASE_S [STALL_S [DRAIN_S]]`. It prints
`up` when the node has joined."""

from __future__ import annotations

import asyncio
import signal
import sys

from holdfast import Holdfast
from holdfast.config import Config
from tests.roles import blockers, outside, poisonous  # noqa: F401  registers the workflows


async def main(url: str, roles: str, lease_s: float, stall_s: float = 60.0, drain_s: float = 0.2) -> None:
    config = Config(
        lease_s=lease_s,
        renew_s=lease_s / 5,
        leader_lease_s=lease_s,
        poll_s=0.1,
        beat_s=0.1,
        stall_s=stall_s,
    )
    hf = Holdfast(url, roles=roles.split(","), config=config)
    await hf.open()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print("up", flush=True)
    await stop.wait()
    await hf.close(drain_s=drain_s)
    print("left", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:])))
