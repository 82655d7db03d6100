"""Processes that a node starts import no module from the folder they are started in."""

import os
import subprocess
import sys
from pathlib import Path

APP = """
import asyncio
from holdfast import Holdfast, step, workflow

@step(isolate=True)
def apart() -> int:
    return 7

@workflow
async def whole() -> int:
    return await apart()

async def main() -> None:
    async with Holdfast("sqlite:///holdfast.db") as hf:
        print(await (await hf.start(whole)).result(60))
        await asyncio.sleep(0.7)  # the heart has loaded its modules by then

if __name__ == "__main__":
    asyncio.run(main())
"""
TRAP = "from pathlib import Path\nPath('owned').write_text(__name__)\nraise SystemExit('owned')\n"
MODULES = ("msgspec", "apsw", "holdfast", "click", "json")


def trapped(folder: Path) -> Path:
    """Make a folder with modules that have the names of ours, which someone may have left there."""
    for name in MODULES:
        (folder / f"{name}.py").write_text(TRAP)
    return folder


def test_isolated_steps_and_hearts(tmp_path: Path) -> None:
    """The program is in another folder, and is run from a folder with traps."""
    program, folder = tmp_path / "app", tmp_path / "work"
    program.mkdir()
    folder.mkdir()
    (program / "app.py").write_text(APP)
    done = subprocess.run(
        [sys.executable, program / "app.py"], cwd=trapped(folder), capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("7\n", 0), done
    assert not (folder / "owned").exists(), (folder / "owned").read_text()


def test_agents_of_a_pool(tmp_path: Path) -> None:
    """`holdfast pool` starts its agents in the folder where it was started."""
    program, folder = tmp_path / "app", tmp_path / "work"
    program.mkdir()
    folder.mkdir()
    (program / "shop.py").write_text(APP)
    command = Path(sys.executable).with_name("holdfast")
    environment = {**os.environ, "HOLDFAST_STORE": f"sqlite:///{tmp_path}/holdfast.db"}
    pool = subprocess.Popen(
        [command, "pool", program / "shop.py", "--min", "1", "--max", "1", "--json"],
        cwd=trapped(folder),
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    with pool:
        try:
            assert pool.stdout is not None
            for line in pool.stdout:
                if '"from"' in line and '"up"' in line:
                    break
            else:
                raise AssertionError("no agent came up")
        finally:
            pool.terminate()
    assert not (folder / "owned").exists(), (folder / "owned").read_text()
