"""PostgreSQL loses connections, restarts and fails over while the nodes are well. No node ends, nothing is lost, and no
attempt or budget is spent. This is tested with `holdfast up`, and embedded."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.config import Config
from holdfast.errors import StoreError
from holdfast.model import NodeRow, RunState
from tests.chaos import waits
from tests.chaos.servers import OwnServer, both_hosts, own_server

UP = 2
"""How many processes of `holdfast up` there are, beside the embedded node."""
RUNS, WIDTH = 3, 6
PATIENCE_S = 90.0
UP_LEASE_S = Config().lease_s

SESSIONS = (
    "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
)

Harm = Callable[[list[OwnServer]], Awaitable[None]]


async def single_sessions(servers: list[OwnServer]) -> None:
    """Terminate every session of every process, one after the other."""
    for (pid,) in await asyncio.to_thread(servers[0].ask, SESSIONS):
        await asyncio.to_thread(servers[0].ask, f"SELECT pg_terminate_backend({pid})")
        await asyncio.sleep(0.4)  # twice the leader's interval


async def all_sessions(servers: list[OwnServer]) -> None:
    """Terminate all sessions four times: that is more often than a step may lose its agent."""
    for _ in range(4):
        await asyncio.to_thread(servers[0].ask, SESSIONS.replace("pid", "pg_terminate_backend(pid)", 1))
        await asyncio.sleep(0.5)


def restart(seconds: float) -> Harm:
    async def restarted(servers: list[OwnServer]) -> None:
        await asyncio.to_thread(servers[0].crash)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(servers[0].start)

    return restarted


async def failover(servers: list[OwnServer]) -> None:
    await asyncio.to_thread(servers[0].crash)
    await asyncio.to_thread(servers[1].promote)


@asynccontextmanager
async def up(url: str, folder: Path, number: int) -> AsyncIterator[asyncio.subprocess.Process]:
    with (folder / f"up-{number}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("holdfast"),
            "up",
            waits.__file__,
            "--store",
            url,
            stdout=log,
            stderr=log,
            cwd=Path(__file__).parents[2],
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def eventually(condition: Callable[[], Awaitable[bool]], seconds: float = PATIENCE_S) -> None:
    async with asyncio.timeout(seconds):
        while True:
            with suppress(StoreError):
                if await condition():
                    return
            await asyncio.sleep(0.05)


async def live(hf: Holdfast) -> dict[str, NodeRow]:
    return {node.id: node for node in await hf.store.nodes.nodes() if node.retired_at is None}


def began(folder: Path) -> list[str]:
    found = folder / "effects"
    return found.read_text().splitlines() if found.exists() else []


@asynccontextmanager
async def servers(names: int) -> AsyncIterator[list[OwnServer]]:
    """One server, or one with a synchronous copy."""
    with own_server() as one, own_server() as other:
        one.make()
        await asyncio.to_thread(one.start)
        if names == 2:
            await asyncio.to_thread(other.follow, one)
            await asyncio.to_thread(other.start)
            one.demand_standby(True)
            await asyncio.to_thread(one.await_standby)
        yield [one, other]


@pytest.mark.parametrize(
    ("harm", "names", "lease_s"),
    [
        pytest.param(single_sessions, 1, UP_LEASE_S, id="single sessions"),
        pytest.param(all_sessions, 1, UP_LEASE_S, id="all sessions"),
        pytest.param(restart(0.2), 1, UP_LEASE_S, id="restart of 0.2 s"),
        pytest.param(restart(2), 1, UP_LEASE_S, id="restart of 2 s"),
        pytest.param(failover, 2, UP_LEASE_S, id="failover"),
        pytest.param(restart(20), 1, 60.0, id="restart of 20 s"),
    ],
)
async def test_a_store_that_comes_back_finds_every_node_and_step(
    harm: Harm, names: int, lease_s: float, tmp_path: Path
) -> None:
    """While steps run on every node, sessions are terminated, or the server is away for less than a lease. The same
    processes go on as the same nodes with the same attempts. No loss is counted, and they take up new work."""
    # This node has fewer places than there are steps, so that the other processes get some.
    config = Config(
        lease_s=lease_s, connect_s=2.0, steps_max=RUNS * WIDTH // 3 if lease_s == UP_LEASE_S else 100
    )
    async with AsyncExitStack() as stack:
        they = await stack.enter_async_context(servers(names))
        url = both_hosts(*they) if names == 2 else they[0].url
        hf = await stack.enter_async_context(Holdfast(url, config=config))
        ups = []
        if lease_s == UP_LEASE_S:
            ups = [await stack.enter_async_context(up(url, tmp_path, i)) for i in range(UP)]

        async def all_joined() -> bool:
            return len(await live(hf)) == 1 + len(ups)

        await eventually(all_joined)
        runs = [await hf.start(waits.waiting.using(id=f"r{i}"), str(tmp_path), WIDTH) for i in range(RUNS)]

        async def all_begun() -> bool:
            return len(began(tmp_path)) == RUNS * WIDTH

        await eventually(all_begun)
        before = await live(hf)
        assert len({line.split()[-1] for line in began(tmp_path)}) > len(ups) // 2

        await harm(they)

        async def all_renewed() -> bool:
            now = await live(hf)
            assert set(now) == set(before)
            return all(now[node].lease_until > before[node].lease_until + 1 for node in before)

        await eventually(all_renewed)
        (tmp_path / "gate").touch()
        for run in runs:
            assert await run.result(PATIENCE_S) == sum(range(WIDTH))
        another = await hf.start(waits.waiting.using(id="another"), str(tmp_path), WIDTH)
        assert await another.result(PATIENCE_S) == sum(range(WIDTH))

        assert [process.returncode for process in ups] == [None] * len(ups)
        assert set(await live(hf)) == set(before)
        for run in runs:
            view = await run.view()
            assert view.attempts == []
            assert {(step.attempt, step.losses, step.excused) for step in view.steps} == {(1, 0, 0)}
        assert len(began(tmp_path)) == (RUNS + 1) * WIDTH, "no step began twice"
        assert [name for name, _, broken in await hf.store.reads.doctor() if broken] == []


async def test_an_outage_longer_than_the_lease_hands_steps_on_once(tmp_path: Path) -> None:
    """No node could renew its lease. Every node stops its steps, and joins again as another node when the server is
    back. Each step runs once more, and no process ended."""
    async with AsyncExitStack() as stack:
        they = await stack.enter_async_context(servers(1))
        url = they[0].url
        hf = await stack.enter_async_context(
            Holdfast(url, config=Config(connect_s=2.0, steps_max=RUNS * WIDTH // 3))
        )
        ups = [await stack.enter_async_context(up(url, tmp_path, i)) for i in range(UP)]

        async def all_joined() -> bool:
            return len(await live(hf)) == 1 + UP

        await eventually(all_joined)
        before = await live(hf)
        runs = [await hf.start(waits.waiting.using(id=f"r{i}"), str(tmp_path), WIDTH) for i in range(RUNS)]

        async def all_begun() -> bool:
            return len(began(tmp_path)) == RUNS * WIDTH

        await eventually(all_begun)
        await restart(UP_LEASE_S * 1.5)(they)

        async def all_others() -> bool:
            now = await live(hf)
            return len(now) == 1 + UP and not set(now) & set(before)

        await eventually(all_others)
        assert sorted(node.pid for node in (await live(hf)).values()) == sorted(
            node.pid for node in before.values()
        )

        async def all_again() -> bool:
            return len(began(tmp_path)) == 2 * RUNS * WIDTH

        await eventually(all_again)
        (tmp_path / "gate").touch()
        for run in runs:
            assert await run.result(PATIENCE_S) == sum(range(WIDTH))
            assert (await run.info()).state is RunState.SUCCEEDED
            assert {(step.attempt, step.losses) for step in await run.steps()} == {(2, 1)}
        assert [process.returncode for process in ups] == [None] * UP
        assert len(began(tmp_path)) == 2 * RUNS * WIDTH
