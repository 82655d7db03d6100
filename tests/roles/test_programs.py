"""A program that is run is `__main__` in its own process and a module in others: its exceptions are the same in
both."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

APP = """
import asyncio, sys
from holdfast import Holdfast, Retry, Signal, publish, step, workflow

go: Signal[int] = Signal("go", int)

class Bad(Exception):
    code: int

    def __init__(self, code: int) -> None:
        super().__init__("bad", code)
        self.code = code

@step(retry=Retry(2, on=Bad))
def near(n: int) -> int:
    raise Bad(n)

@step(isolate=True, retry=1)
def apart(n: int) -> int:
    raise Bad(n)

@workflow
async def whole() -> list[str]:
    seen = []
    for one in (near, apart):
        try:
            await one(7)
        except Bad as bad:
            seen.append(f"{type(bad).__name__} {bad.code}")
    publish("seen", seen)
    await go.wait()
    return seen

async def main() -> None:
    async with Holdfast("sqlite:///holdfast.db") as hf:
        run = await hf.start(whole.using(id="r"))
        while "seen" not in await run.published():
            await asyncio.sleep(0.01)

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.parametrize("how", [["app.py"], ["-m", "app"]], ids=["file", "module"])
def test_what_a_program_recorded_is_read_by_one_that_imports_it(tmp_path: Path, how: list[str]) -> None:
    """A step's own exception is caught by its class, also from another process; and the run goes on under `holdfast
    run`."""
    (tmp_path / "app.py").write_text(APP)
    holdfast = Path(sys.executable).with_name("holdfast")
    subprocess.run([sys.executable, *how], cwd=tmp_path, check=True, timeout=60)
    subprocess.run(
        [holdfast, "signal", "r", "go", "--data", "1"], cwd=tmp_path, check=True, capture_output=True
    )
    done = subprocess.run(
        [holdfast, "run", "app.py:whole", "--id", "r", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    run = json.loads(done.stdout)
    assert (run["state"], run.get("output")) == ("succeeded", ["Bad 7", "Bad 7"]), run
    assert {step["key"]: step["attempts"] for step in run["steps"]}["near"] == 2
