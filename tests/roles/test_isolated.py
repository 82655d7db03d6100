"""`isolate=True`: a step in a process of its own, which can be killed and can die alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.config import Config
from holdfast.errors import RunCancelled
from tests.roles import alone, flows
from tests.roles.conftest import until


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def descriptors() -> int:
    """How many descriptors are open, but for connections to PostgreSQL: the pool opens one more whenever it needs one."""
    lines = (
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]
    )
    connections = {f"socket:[{line[9]}]" for line in lines}
    return sum(_target(one) not in connections for one in Path("/proc/self/fd").iterdir())


def _target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except FileNotFoundError:  # the one that lists the others
        return ""


async def test_it_runs_in_another_process(hf: Holdfast) -> None:
    """The step's process is a child of the agent's, and gives its result and progress back."""
    pid, parent = await (await hf.start(alone.looks, os.getpid())).result(60)
    assert pid != os.getpid()
    assert parent == os.getpid()


@pytest.mark.parametrize("how", ["signal", "exit"])
async def test_its_death_is_an_attempt_that_was_lost(hf: Holdfast, tmp_path: Path, how: str) -> None:
    """A step that kills its process does not kill the agent. The attempt is recorded as lost, and the next one runs."""
    run = await hf.start(alone.dying, how, str(tmp_path))
    assert await run.result(60) == "survived"
    assert [attempt.ending for attempt in (await run.view()).attempts] == ["lost"]


async def test_it_is_killed_at_its_timeout_with_all_its_children(hf: Holdfast, tmp_path: Path) -> None:
    """The whole process group gets SIGTERM, then SIGKILL."""
    assert await (await hf.start(alone.hanging, str(tmp_path))).result(60) == "killed"
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    await until(lambda: not any(map(alive, pids)))


async def test_cancelling_the_run_kills_it(hf: Holdfast, tmp_path: Path) -> None:
    """A cancelled step's process is gone."""
    run = await hf.start(alone.waiting, str(tmp_path))
    await until((tmp_path / "pid").exists)
    pid = int((tmp_path / "pid").read_text())
    await run.cancel()
    with pytest.raises(RunCancelled):
        await run.result(60)
    await until(lambda: not alive(pid))


async def test_its_checkpoints_outlive_it(hf: Holdfast) -> None:
    """`here.save` is durable when it returns, in the step's process, too."""
    assert await (await hf.start(alone.saving)).result(60) == 3


async def test_its_standard_input_is_empty(hf: Holdfast) -> None:
    """A step that reads its standard input, or starts a program that does, reads nothing and does not wait."""
    read, inherited, saved = await (await hf.start(alone.reading)).result(60)
    assert (read, inherited) == ("", "")
    assert saved == "the agent still hears it"


async def test_its_own_errors_are_its_own(hf: Holdfast) -> None:
    """An exception crosses the process boundary with its own class."""
    assert await (await hf.start(alone.refusing)).result(60) == "not in here"


async def test_it_leaves_nothing_open(hf: Holdfast, tmp_path: Path) -> None:
    """However its process ended, the agent has no more descriptors than before."""
    await (await hf.start(alone.looks, os.getpid())).result(60)
    before = descriptors()
    for how in ("signal", "exit"):
        folder = tmp_path / how
        folder.mkdir()
        await (await hf.start(alone.dying, how, str(folder))).result(60)
        await (await hf.start(alone.looks, os.getpid())).result(60)
    await until(lambda: descriptors() <= before)


async def test_a_fan_out_wider_than_the_agent_is_claimed_as_places_come_free(store_url: str) -> None:
    """When more steps wait than there are places, no poll is needed to go on."""
    config = Config(steps_max=10, poll_s=600.0)
    async with Holdfast(store_url, config=config) as hf:
        assert await (await hf.start(flows.wide, 150)).result(60) == 150


GUARDED = 'if __name__ == "__main__":\n    asyncio.run(main())'
SCRIPT = """
import asyncio, os, sys
from pathlib import Path
from holdfast import Holdfast, step, workflow

with Path("ran").open("a") as ran:
    ran.write("ran\\n")

@step(isolate=True, retry=3)
def add(number: int) -> int:
    return number + 1

@workflow
async def adding(number: int) -> int:
    return await add(number)

async def main() -> None:
    async with Holdfast(sys.argv[1]) as hf:
        run = await hf.start(adding, 1)
        try:
            print(await run.result(60))
        except Exception as error:
            print(error)
        print(len((await run.view()).attempts), "attempts before the last")

CALL
"""


@pytest.mark.parametrize(
    ("call", "said", "loaded"),
    [
        (GUARDED, "2", 2),
        ("asyncio.run(main())", "line 26 again: put what the script does under `if __name__", 1),
        (
            "if True:\n    asyncio.run(main())",
            "line 27 again: put what the script does under `if __name__",
            1,
        ),
        (
            # The step may end before the thread of the other process opens a store, or after that was refused.
            "import threading; threading.Thread(target=lambda: asyncio.run(main())).start()",
            ("2", "script.py opens a store whenever it is loaded"),
            2,
        ),
    ],
    ids=["guarded", "bare", "inside", "thread"],
)
def test_its_process_never_runs_the_script_again(
    store_url: str, tmp_path: Path, call: str, said: str | tuple[str, ...], loaded: int
) -> None:
    """A script without a `__main__` guard is refused at the first attempt, before anything of it is done twice. Where
    this cannot be known beforehand, the other process opens no store."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("CALL", call))
    done = subprocess.run(
        [sys.executable, script, store_url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    expected = (said,) if isinstance(said, str) else said
    assert any(text in done.stdout for text in expected), done.stdout + done.stderr
    assert "0 attempts before the last" in done.stdout
    assert (tmp_path / "ran").read_text().splitlines() == ["ran"] * loaded
