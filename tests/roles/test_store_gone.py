"""A SQLite file that is deleted or replaced under live nodes: they notice it, say so and stop, and accept nothing into
it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Holdfast, Signal, step, workflow
from holdfast.errors import StoreGone

HOLDFAST = Path(sys.executable).with_name("holdfast")
LIMIT_S = 60.0
go: Signal[int] = Signal("go", int)


@step
async def seven() -> int:
    return 7


@workflow
async def patient() -> int:
    await seven()
    return await go.wait()


def delete(file: Path) -> None:
    file.unlink()


def move(file: Path) -> None:
    file.rename(file.with_name("elsewhere.db"))


def replace(file: Path) -> None:
    other = file.with_name("other.db")
    other.touch()
    other.replace(file)


@pytest.mark.parametrize("how", [delete, move, replace])
async def test_a_program_notices_that_its_store_is_gone(tmp_path: Path, how: Callable[[Path], None]) -> None:
    """Callers that wait for a run get an error, a start is refused, and nothing is written to the file that is there
    now."""
    file = tmp_path / "holdfast.db"
    async with Holdfast(f"sqlite:///{file}") as hf:
        waiting = await hf.start(patient.using(id="waits"))
        result = asyncio.ensure_future(waiting.result(LIMIT_S))
        how(file)
        with pytest.raises(StoreGone, match=r"was (deleted|replaced)"):
            await result
        with pytest.raises(StoreGone):
            await hf.start(patient.using(id="late"))
        with pytest.raises(StoreGone):
            await go.send("waits", 1)
        assert hf.node.gone is not None
    assert not file.exists() or file.stat().st_size == 0


async def test_a_caller_gets_an_error_at_once(tmp_path: Path) -> None:
    """This holds for a process without roles, too: its start is refused."""
    file = tmp_path / "holdfast.db"
    async with Holdfast(f"sqlite:///{file}", roles=[]) as hf:
        await hf.start(patient.using(id="before"))
        file.unlink()
        with pytest.raises(StoreGone):
            await hf.start(patient.using(id="after"))


def test_a_node_ends_and_says_why(tmp_path: Path) -> None:
    """`holdfast up` exits with 2."""
    store = f"sqlite:///{tmp_path / 'holdfast.db'}"
    up = subprocess.Popen(
        [HOLDFAST, "up", __file__, "--store", store, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with up:
        try:
            assert up.stdout is not None
            assert '"up"' in up.stdout.readline()
            (tmp_path / "holdfast.db").unlink()
            _, errors = up.communicate(timeout=LIMIT_S)
        finally:
            up.kill()
    assert up.returncode == 2, errors
    assert "was deleted or moved away while this process had it open" in errors
    assert "Traceback" not in errors
