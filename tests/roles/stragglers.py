"""Steps of which some take very long for no reason, and nodes in other processes that run them: `python -m
tests.roles.stragglers URL` prints `up` when its node has joined. HOLDFAST_STRAGGLERS=0.3 makes more steps straggle, and
lets every one have a twin."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from pathlib import Path

from holdfast import Holdfast, Retry, here, step, workflow
from holdfast.config import Config
from tests.roles.outside import note

USUAL_S = 0.05
SHARE = float(os.environ.get("HOLDFAST_STRAGGLERS", "0.02"))


def unlucky(name: str, attempt: int) -> bool:
    """True for two attempts in a hundred, also of a twin."""
    dice = hashlib.blake2b(f"{name} {attempt}".encode(), digest_size=8).digest()
    return int.from_bytes(dice) < SHARE * 2**64


async def work(folder: str, name: str, straggle_s: float) -> str:
    note(folder, f"{name} {here.attempt} {here.key}")
    await asyncio.sleep(straggle_s if unlucky(name, here.attempt) else USUAL_S)
    return name


@step
async def plainly(folder: str, name: str, straggle_s: float) -> str:
    return await work(folder, name, straggle_s)


@step(hedge=True)
async def hedged(folder: str, name: str, straggle_s: float) -> str:
    return await work(folder, name, straggle_s)


@workflow
async def plain_run(folder: str, name: str, straggle_s: float) -> str:
    return await plainly(folder, f"{name} a", straggle_s) + await plainly(folder, f"{name} b", straggle_s)


@workflow
async def hedged_run(folder: str, name: str, straggle_s: float) -> str:
    return await hedged(folder, f"{name} a", straggle_s) + await hedged(folder, f"{name} b", straggle_s)


@step(hedge=True, retry=Retry(attempts=20, delay=0.05))
async def traced(folder: str, name: str, straggle_s: float) -> str:
    """Return who did it."""
    return f"{await work(folder, name, straggle_s)}|{here.attempt}|{os.getpid()}"


@workflow
async def traced_run(folder: str, name: str, straggle_s: float) -> list[str]:
    first = await traced(folder, f"{name} a", straggle_s)
    both = await asyncio.gather(*(traced(folder, f"{name} {one}", straggle_s) for one in "bc"))
    return [first, *both]


# --- one step under control, by files ------------------------------------------------------------------------------------


async def exists(*files: Path) -> None:
    while not any(file.exists() for file in files):  # noqa: ASYNC110  a file gives no event
        await asyncio.sleep(0.01)


@step(hedge=True, retry=Retry(attempts=1))
async def guarded(folder: str, name: str) -> str:
    """End quickly while the file `slow` does not exist. Otherwise files decide: `first` for the first execution,
    `second` for any later one. The content of the file says how it ends."""
    place = Path(folder)
    if not (place / "slow").exists():
        return "quick"
    who = "second" if here.attempt > 1 else "first"
    note(folder, f"{who} began {here.key} {os.getpid()}")
    try:
        await exists(place / who)
    except asyncio.CancelledError:
        note(folder, f"{who} stopped")
        raise
    note(folder, f"{who} ends")
    if (place / who).read_text() == "fail":
        raise ValueError(f"{who} failed")
    return who


@guarded.undo
async def unguard(result: str | None, folder: str, name: str) -> None:
    note(folder, f"undone {result} of {here.undoes}")


@step
async def fail_when_asked(folder: str) -> None:
    await exists(Path(folder) / "fail run")
    raise ValueError("as asked")


@workflow
async def guarded_run(folder: str, name: str, then_fails: bool = False) -> str:
    result = await guarded(folder, name)
    if then_fails:
        await fail_when_asked(folder)
    return result


@workflow
async def warm_up(folder: str, times: int) -> None:
    await guarded.map([(folder, str(number)) for number in range(times)])


async def main(url: str) -> None:
    often = Config(hedge_share=1.0, learn_s=0.1) if SHARE > 0.02 else Config()
    hf = Holdfast(url, config=often)
    await hf.open()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print("up", flush=True)
    await stop.wait()
    await hf.close(drain_s=0.2)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
