"""What happens when processes die, stop or leave, with real processes and signals, on both stores."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from holdfast import Holdfast
from holdfast.config import Config
from tests.roles import outside
from tests.roles.conftest import until
from tests.roles.outside import effects
from tests.store.made import reclaim

LEASE_S = 300.0
"""Longer than any test waits. So when recovery happens earlier, the heart has caused it."""


def quick(lease_s: float) -> Config:
    return Config(lease_s=lease_s, renew_s=lease_s / 5, poll_s=0.1, beat_s=0.1, sweep_s=0.1)


@asynccontextmanager
async def node_process(
    url: str, roles: str, lease_s: float = LEASE_S, stall_s: float = 60.0, drain_s: float = 0.2
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.roles.node_process",
        url,
        roles,
        str(lease_s),
        str(stall_s),
        str(drain_s),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        assert await asyncio.wait_for(process.stdout.readline(), 60) == b"up\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_killed_process_is_noticed_at_once_and_its_run_goes_on(
    store_url: str, tmp_path: Path
) -> None:
    """The node that owns the run and executes its step gets SIGKILL. Another node goes on, although the lease has long
    to run. The recorded step does not run again, and the loss does not spend the step's attempts."""
    folder = str(tmp_path)
    async with (
        Holdfast(store_url, roles=[]) as caller,
        node_process(store_url, "scheduler,agent,supervisor") as first,
    ):
        run = await caller.start(outside.around_block, folder)
        await until(lambda: "block gate attempt 1" in effects(folder))
        async with Holdfast(store_url, config=quick(LEASE_S)):
            first.kill()
            await until(lambda: "block gate attempt 2" in effects(folder))
            (tmp_path / "gate").touch()
            assert await run.result(60) == 2
        view = await run.view()
        assert [attempt.ending for attempt in view.attempts] == ["lost"]
        assert effects(folder).count("mark before") == 1
        assert effects(folder).count("mark after") == 1
        assert view.steps[1].losses == 1


async def test_a_stopped_process_is_fenced_and_its_late_report_refused(
    store_url: str, tmp_path: Path
) -> None:
    """A process gets SIGSTOP for longer than its lease, and its step is reclaimed. After SIGCONT it can write nothing:
    one outcome stands."""
    folder, lease_s = str(tmp_path), 3.0
    async with (
        node_process(store_url, "scheduler,agent", lease_s) as first,
        Holdfast(store_url, roles=[]) as caller,
    ):
        run = await caller.start(outside.around_block, folder)
        await until(lambda: "block gate attempt 1" in effects(folder))
        async with Holdfast(store_url, config=quick(LEASE_S)):
            os.kill(first.pid, signal.SIGSTOP)
            await until(lambda: "block gate attempt 2" in effects(folder))
            (tmp_path / "gate").touch()
            assert await run.result(60) == 2
            os.kill(first.pid, signal.SIGCONT)
            nodes = {node.pid: node for node in await caller.store.nodes.nodes()}
            assert nodes[first.pid].retired_at is not None
            first.terminate()
            await asyncio.wait_for(first.wait(), 60)
        assert (await run.steps())[1].attempt == 2
        assert effects(folder).count("mark after") == 1
        assert [name for name, _, broken in await caller.store.reads.doctor() if broken] == []


async def test_sigterm_drains_and_hands_back_without_spending_an_attempt(
    store_url: str, tmp_path: Path
) -> None:
    """A node that gets SIGTERM hands its unfinished step back, and another node finishes it. No attempt is spent."""
    folder = str(tmp_path)
    async with (
        node_process(store_url, "scheduler,agent,supervisor") as first,
        Holdfast(store_url, roles=[]) as caller,
    ):
        run = await caller.start(outside.around_block, folder)
        await until(lambda: "block gate attempt 1" in effects(folder))
        first.terminate()
        assert await asyncio.wait_for(first.wait(), 60) == 0
        async with Holdfast(store_url, config=quick(LEASE_S)):
            await until(lambda: "block gate attempt 2" in effects(folder))
            (tmp_path / "gate").touch()
            assert await run.result(60) == 2
        step = (await run.steps())[1]
        assert (step.attempt, step.excused, step.losses) == (2, 1, 0)


async def test_roles_in_processes_of_their_own_finish_a_run(store_url: str, tmp_path: Path) -> None:
    """Scheduler, agent and supervisor each in its own process meet only in the store."""
    (tmp_path / "gate").touch()
    async with (
        node_process(store_url, "scheduler"),
        node_process(store_url, "agent") as agent,
        node_process(store_url, "supervisor"),
        Holdfast(store_url, roles=[]) as caller,
    ):
        run = await caller.start(outside.around_block, str(tmp_path))
        assert await run.result(60) == 1
        assert all(step.agent is not None for step in await run.steps())
        nodes = {node.id: node.pid for node in await caller.store.nodes.nodes()}
        assert {nodes[step.agent or ""] for step in await run.steps()} == {agent.pid}


async def test_the_leader_is_succeeded_when_its_process_is_killed(store_url: str) -> None:
    """Leadership passes at once, with a higher epoch, when the leader's process is gone."""
    async with node_process(store_url, "supervisor") as first, Holdfast(store_url, roles=[]) as caller:
        leader = await caller.store.leader.leader()
        assert leader is not None
        async with Holdfast(store_url, roles=["supervisor"], config=quick(LEASE_S)) as second:
            first.kill()
            supervisor = second.node.supervisor
            assert supervisor is not None
            await until(lambda: supervisor.epoch is not None)
            assert (await caller.store.leader.leader() or ("", 0, 0))[:2] == (second.node.id, leader[1] + 1)


async def test_a_node_that_lost_its_lease_begins_again_as_another(store_url: str, tmp_path: Path) -> None:
    """An embedded node was reclaimed while its process could not run. It fences itself, joins again under a new
    identity and finishes the run. Those who wait for the result get it."""
    folder = str(tmp_path)
    config = msgspec.structs.replace(quick(LEASE_S), renew_s=0.2)
    async with Holdfast(store_url, config=config) as hf, Holdfast(store_url, roles=[]) as other:
        run = await hf.start(outside.around_block, folder)
        waiting = asyncio.create_task(run.result(60))
        await until(lambda: "block gate attempt 1" in effects(folder))
        first = hf.node.id
        epoch = await other.store.leader.lead(first, 30)
        assert epoch is not None
        assert await reclaim(other.store, first, epoch, "the test says so", 3, 100) is not None
        await until(lambda: hf.node.id != first)
        (tmp_path / "gate").touch()
        assert await waiting == 2
