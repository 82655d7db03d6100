"""A store that answers and takes no writes. Callers get an error within seconds, what is under way waits, and
everything goes on by itself when the store can be written again."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.config import Config
from holdfast.errors import StoreError, StoreFull, StoreUnreachable
from tests.chaos import waits
from tests.chaos.servers import fill, may_mount, own_server, small_disk

ERROR_WITHIN_S = Config().start_s + 5.0
"""How soon a caller must get the error. On a machine with nothing else to do it takes half a second more than
`start_s`."""
mountable = pytest.mark.skipif(not may_mount(), reason="it needs the right to mount")


class Store:
    """A store whose writes can be forbidden and allowed."""

    def __init__(self, url: str, forbid: Callable[[], None], allow: Callable[[], None]) -> None:
        self.url, self.forbid, self.allow = url, forbid, allow


@asynccontextmanager
async def read_only_postgres() -> AsyncIterator[Store]:
    with own_server() as server:
        server.make()
        await asyncio.to_thread(server.start)

        def read_only(yes: bool) -> None:
            server.ask(f"ALTER SYSTEM SET default_transaction_read_only = {'on' if yes else 'off'}")
            server.ask("SELECT pg_reload_conf()")

        yield Store(server.url, lambda: read_only(True), lambda: read_only(False))


@asynccontextmanager
async def full_disk() -> AsyncIterator[Store]:
    with small_disk(32) as disk:
        ballast: list[Path] = []
        yield Store(
            f"sqlite:///{disk}/holdfast.db",
            lambda: ballast.append(fill(disk)),
            lambda: ballast.pop().unlink(),
        )


KINDS = [
    pytest.param(read_only_postgres, "default_transaction_read_only is on", id="read-only postgres"),
    pytest.param(full_disk, "is full: make room", id="full disk", marks=mountable),
]


async def refused_in_time(call: Awaitable[Any]) -> StoreError:
    """Return the error that a call raises, and check that it comes in time."""
    begun = time.monotonic()
    with pytest.raises(StoreError) as raised:
        await asyncio.wait_for(call, 60)
    assert time.monotonic() - begun < ERROR_WITHIN_S
    assert isinstance(raised.value, StoreFull | StoreUnreachable)
    return raised.value


@pytest.mark.parametrize("roles", [["scheduler", "agent", "supervisor"], []], ids=["node", "caller"])
@pytest.mark.parametrize(("kind", "words"), KINDS)
async def test_a_caller_gets_an_error_and_what_is_under_way_waits(
    kind: Callable[[], Any], words: str, roles: list[str], tmp_path: Path
) -> None:
    """`start`, `signal` and `cancel` raise, and say why and what to do. A start that was refused does not happen later. A run
    under way ends when the store takes writes again, with nothing lost, and new ones start."""
    config = Config(lease_s=60.0)
    async with (
        kind() as store,
        Holdfast(store.url, config=config) as node,
        Holdfast(store.url, roles=roles, config=config) as caller,
    ):
        run = await node.start(waits.waiting.using(id="under way"), str(tmp_path), 3)
        async with asyncio.timeout(30):
            while len(_began(tmp_path)) < 3:  # noqa: ASYNC110  the test waits for steps, which do not signal it
                await asyncio.sleep(0.02)
        await asyncio.to_thread(store.forbid)
        refused = await asyncio.gather(
            refused_in_time(caller.start(waits.waiting.using(id="refused"), str(tmp_path), 1)),
            refused_in_time(caller.send_signal("under way", "paid", b"1", None)),
            refused_in_time(caller.run("under way").cancel()),
        )
        for error in refused:
            assert words in str(error)
        assert "run 'refused' was not started" in str(refused[0])
        (tmp_path / "gate").touch()
        await asyncio.to_thread(store.allow)
        assert await run.result(60) == 3
        again = await caller.start(waits.waiting.using(id="again"), str(tmp_path), 2)
        assert await again.result(60) == 1
        assert {row.id for row in await caller.runs()} == {"under way", "again"}
        steps = await run.steps()
        assert {(row.attempt, row.losses) for row in steps} == {(1, 0)}


def _began(folder: Path) -> list[str]:
    found = folder / "effects"
    return found.read_text().splitlines() if found.exists() else []


@pytest.mark.parametrize(("kind", "words"), KINDS)
async def test_the_command_says_it_too(kind: Callable[[], Any], words: str, tmp_path: Path) -> None:
    """`holdfast start`, `signal` and `cancel` end with exit code 2 within seconds, and name the reason."""
    async with kind() as store:
        async with Holdfast(store.url) as hf:
            await (await hf.start(waits.waiting.using(id="r"), str(tmp_path), 0)).result(30)
        async with Holdfast(store.url, roles=[]) as hf:
            await hf.start(waits.waiting.using(id="pending"), str(tmp_path), 1)
        await asyncio.to_thread(store.forbid)
        for command in (
            ["start", f"{waits.__file__}:waiting", "--id", "no", "--input", json.dumps({"folder": "x"})],
            ["signal", "pending", "paid"],
            ["cancel", "pending"],
        ):
            begun = time.monotonic()
            done = await asyncio.to_thread(
                subprocess.run,
                [Path(sys.executable).with_name("holdfast"), *command, "--store", store.url],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 2, (command, done)
            assert words in done.stderr, (command, done)
            assert time.monotonic() - begun < ERROR_WITHIN_S + 5, command
        await asyncio.to_thread(store.allow)


async def test_a_start_whose_outcome_is_unknown_says_so(tmp_path: Path) -> None:
    """The server vanishes during a commit. The error says that the run may have been started, and that it is safe to
    start it again with the same id. And it is."""
    with own_server() as server:
        server.make()
        await asyncio.to_thread(server.start)
        (tmp_path / "gate").touch()
        async with Holdfast(server.url) as hf:
            await (await hf.start(waits.waiting, str(tmp_path), 1)).result(30)
            server.freeze()
            try:
                error = await refused_in_time(hf.start(waits.waiting.using(id="r"), str(tmp_path), 2))
            finally:
                server.thaw()
            assert "it is not known whether run 'r' was started" in str(error)
            assert "start it again with the same id" in str(error)
            run = await hf.start(waits.waiting.using(id="r"), str(tmp_path), 2)
            assert await run.result(60) == 1
            assert sum("wait" in line for line in _began(tmp_path)) == 1 + 2


async def test_a_server_that_is_down_is_named(tmp_path: Path) -> None:
    """Nothing can have been written. So the start is withdrawn, and does not happen when the server is back."""
    with own_server() as server:
        server.make()
        await asyncio.to_thread(server.start)
        (tmp_path / "gate").touch()
        async with Holdfast(server.url, config=Config(lease_s=60.0)) as hf:
            await (await hf.start(waits.waiting, str(tmp_path), 1)).result(30)
            await asyncio.to_thread(server.crash)
            first = await refused_in_time(hf.start(waits.waiting.using(id="first"), str(tmp_path), 1))
            error = await refused_in_time(hf.start(waits.waiting.using(id="second"), str(tmp_path), 1))
            assert "cannot reach the database" in str(first)
            assert "run 'second' was not started: cannot reach the database" in str(error)
            await asyncio.to_thread(server.start)
            run = await hf.start(waits.waiting.using(id="third"), str(tmp_path), 1)
            assert await run.result(60) == 0
            assert "second" not in {row.id for row in await hf.runs()}
