"""Steps that run in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from holdfast import Retry, Stop, here, step, workflow


@step(isolate=True)
def where(agent: int) -> list[int]:
    print("what a step prints is just printed")
    here.beat(0.5, "half")
    return [os.getpid(), os.getppid()]


@step(isolate=True, retry=Retry(attempts=2, delay=0.01))
def dies(how: str, folder: str) -> str:
    Path(folder, f"attempt-{here.attempt}").touch()
    if here.attempt == 2:
        return "survived"
    if how == "signal":
        os.kill(os.getpid(), 9)
    os._exit(7)


@step(isolate=True, timeout=5.0, retry=1)
def hangs(folder: str) -> None:
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(folder, "pids").write_text(f"{os.getpid()} {grandchild.pid}")
    time.sleep(600)


@step(isolate=True)
def waits(folder: str) -> None:
    Path(folder, "pid.part").write_text(str(os.getpid()))
    Path(folder, "pid.part").rename(Path(folder, "pid"))
    time.sleep(600)


@step(isolate=True, retry=Retry(attempts=3, delay=0.01))
def saves() -> int:
    count = (here.saved or 0) + 1
    here.save(count)
    if count < 3:
        os.kill(os.getpid(), 9)
    return count


@step(isolate=True, timeout=20.0, retry=1)
def reads() -> list[str]:
    found = sys.stdin.read()
    inherited = subprocess.run(["cat"], stdout=subprocess.PIPE, text=True, check=True).stdout
    here.save("the agent still hears it")
    return [found, inherited, str(here.saved)]


@step(isolate=True)
def refuses() -> None:
    raise Stop("not in here")


@workflow
async def looks(agent: int) -> list[int]:
    return await where(agent)


@workflow
async def dying(how: str, folder: str) -> str:
    return await dies(how, folder)


@workflow
async def hanging(folder: str) -> str:
    try:
        await hangs(folder)
    except TimeoutError:
        return "killed"
    return "?"


@workflow
async def waiting(folder: str) -> None:
    await waits(folder)


@workflow
async def saving() -> int:
    return await saves()


@workflow
async def refusing() -> str:
    try:
        await refuses()
    except Stop as error:
        return str(error)
    return "?"


@workflow
async def reading() -> list[str]:
    return await reads()
