"""A lease outlives a blocked process, and not a stopped one. The heart does this, with real processes, on both
stores."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.heartbeat import Heartbeat, HeartProcess, heartbeat_type
from holdfast.model import NodeRow
from holdfast.run import Run
from holdfast.store import open_store
from holdfast.workflow.workflow import Workflow
from tests.roles import blockers, outside
from tests.roles.conftest import until
from tests.roles.outside import effects
from tests.roles.test_recovery import node_process, quick

LEASE_S = 3.0
"""The lease of a process that is blocked or stopped. A busy machine may start a heart a second late."""
BEYOND_S = LEASE_S * 1.5
LONG_S = 60.0
"""The lease of those that look on, and how long they wait for what must happen."""


def hearts_of(pid: int) -> list[int]:
    """Return the processes that are the heart of this process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        if name == "holdfast-heart" and int(rest.split()[1]) == pid:
            found.append(int(folder.name))
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def node_of(caller: Holdfast, pid: int) -> NodeRow:
    (node,) = [node for node in await caller.store.nodes.nodes() if node.pid == pid]
    return node


async def node_of_id(caller: Holdfast, node_id: str) -> NodeRow:
    (node,) = [node for node in await caller.store.nodes.nodes() if node.id == node_id]
    return node


async def no_loss(run: Run[int], attempts: int = 1) -> bool:
    view = await run.view()
    return not view.attempts and view.steps[0].attempt == attempts


@pytest.mark.parametrize(
    "workflow", [blockers.with_blocked_gil, blockers.with_blocked_loop], ids=["gil", "loop"]
)
async def test_a_blocked_process_keeps_its_step_beyond_its_lease(
    store_url: str, tmp_path: Path, workflow: Workflow[[str, float], int]
) -> None:
    """A step keeps the GIL, or blocks the event loop, for longer than a lease. It is not reclaimed while a Supervisor and
    another agent look on, and its outcome is accepted."""
    folder = str(tmp_path)
    async with (
        node_process(store_url, "agent", LEASE_S),
        Holdfast(store_url, roles=["scheduler", "supervisor"], config=quick(LONG_S)) as hf,
    ):
        run = await hf.start(workflow, folder, BEYOND_S)
        await until(lambda: "held attempt 1" in effects(folder))
        async with node_process(store_url, "agent"):
            assert await run.result(LONG_S) == 1
        assert await no_loss(run)
        assert effects(folder) == ["held attempt 1", "released attempt 1"]


async def test_a_step_that_blocks_at_once_is_kept_too(store_url: str, tmp_path: Path) -> None:
    """A node that blocks before its heart has sent anything keeps its lease: the heart needs nothing of the event
    loop."""
    async with Holdfast(store_url, config=quick(LEASE_S)) as hf:
        first = hf.node.id
        run = await hf.start(blockers.with_blocked_loop, str(tmp_path), BEYOND_S)
        assert await run.result(LONG_S) == 1
        assert hf.node.id == first
        assert await no_loss(run)


async def test_a_process_stopped_beyond_its_lease_cannot_write(store_url: str, tmp_path: Path) -> None:
    """A process gets SIGSTOP for longer than its lease, then SIGCONT. The attempt ends in the stopped process, and its outcome
    does not count."""
    folder = str(tmp_path)
    async with (
        Holdfast(store_url, roles=["scheduler", "supervisor"], config=quick(LONG_S)) as hf,
        node_process(store_url, "agent", LEASE_S) as first,
    ):
        run = await hf.start(outside.around_block, folder)
        await until(lambda: "block gate attempt 1" in effects(folder))
        await until(lambda: bool(hearts_of(first.pid)))
        os.kill(first.pid, signal.SIGSTOP)
        async with asyncio.timeout(LONG_S):
            while (node := await node_of(hf, first.pid)).retired_at is None:  # noqa: ASYNC110  the store gives no event
                await asyncio.sleep(0.02)
        async with node_process(store_url, "agent") as second:
            await until(lambda: "block gate attempt 2" in effects(folder))
            (tmp_path / "gate").touch()
            os.kill(first.pid, signal.SIGCONT)
            assert await run.result(LONG_S) == 2
            steps = await run.steps()
            assert steps[1].agent == (await node_of(hf, second.pid)).id
        assert (await node_of_id(hf, node.id)).lease_until == node.lease_until
        assert [attempt.ending for attempt in (await run.view()).attempts] == ["lost"]
        assert [name for name, _, broken in await hf.store.reads.doctor() if broken] == []


async def test_a_continued_process_writes_nothing_even_when_nobody_took_over(
    store_url: str, tmp_path: Path
) -> None:
    """Without any Supervisor the rows still belong to it. A process that slept through its lease leaves them alone, and
    joins again as another node."""
    folder = str(tmp_path)
    async with (
        Holdfast(store_url, roles=["scheduler"], config=quick(LONG_S)) as hf,
        node_process(store_url, "agent", LEASE_S) as first,
    ):
        run = await hf.start(outside.around_block, folder)
        await until(lambda: "block gate attempt 1" in effects(folder))
        await until(lambda: bool(hearts_of(first.pid)))
        held_by = (await run.steps())[1].agent
        os.kill(first.pid, signal.SIGSTOP)
        (tmp_path / "gate").touch()  # the step ends as soon as the process goes on
        await asyncio.sleep(BEYOND_S)
        os.kill(first.pid, signal.SIGCONT)
        async with asyncio.timeout(LONG_S):
            while sum(node.pid == first.pid for node in await hf.store.nodes.nodes()) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        step = (await run.steps())[1]
        assert (step.state, step.agent, step.attempt) == ("running", held_by, 1)
        assert "mark after" not in effects(folder)


async def test_a_stalled_node_is_reclaimed(store_url: str, tmp_path: Path) -> None:
    """An event loop is blocked beyond the stall limit. The heart gives the node up, the step runs elsewhere, and what
    the node writes when it wakes is refused."""
    folder = str(tmp_path)
    async with (
        Holdfast(store_url, roles=["scheduler", "supervisor"], config=quick(LONG_S)) as hf,
        node_process(store_url, "agent", LEASE_S, stall_s=1.5) as first,
    ):
        run = await hf.start(blockers.with_blocked_loop, folder, 60.0)
        await until(lambda: "held attempt 1" in effects(folder))
        stuck = await node_of(hf, first.pid)
        async with node_process(store_url, "agent"):
            await until(lambda: "held attempt 2" in effects(folder))
            (tmp_path / "gate").touch()
            assert await run.result(LONG_S) == 2
        assert [attempt.ending for attempt in (await run.view()).attempts] == ["lost"]
        assert (await node_of_id(hf, stuck.id)).retired_at is not None


async def test_the_heart_dies_with_its_node(store_url: str) -> None:
    """After kill -9 of the node's process, no process of it is left."""
    async with node_process(store_url, "agent") as first:
        await until(lambda: bool(hearts_of(first.pid)))
        await asyncio.sleep(1.0)  # by now it renews, and is not only started
        hearts = hearts_of(first.pid)
        first.kill()
        await first.wait()
        await until(lambda: not any(is_alive(pid) for pid in hearts))


async def test_the_heart_leaves_with_its_node(store_url: str) -> None:
    """Closing waits for the heart, so that no process of the node touches the store afterwards."""
    async with Holdfast(store_url, config=quick(LEASE_S)) as hf:
        heartbeat = hf.node.heartbeat
        assert isinstance(heartbeat, HeartProcess)
        pid = heartbeat.pid
        assert pid is not None
        await until(lambda: heartbeat._beating)
    assert not is_alive(pid)


async def test_a_killed_heart_is_replaced(store_url: str) -> None:
    """The node notices that its heart is gone, renews by itself meanwhile, and starts another."""
    async with Holdfast(store_url, config=quick(6.0)) as hf:
        heartbeat, first = hf.node.heartbeat, hf.node.id
        assert isinstance(heartbeat, HeartProcess)
        await until(lambda: heartbeat._beating)
        pid = heartbeat.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda: heartbeat.pid not in {None, pid} and heartbeat._beating)
        assert (hf.node.id, hf.node.fenced) == (first, False)


async def test_a_stopped_heart_costs_nothing_while_the_loop_runs(store_url: str) -> None:
    """The node does not rely on a heart that is silent."""
    async with Holdfast(store_url, config=quick(LEASE_S)) as hf:
        heartbeat, first = hf.node.heartbeat, hf.node.id
        assert isinstance(heartbeat, HeartProcess)
        await until(lambda: heartbeat._beating)
        assert heartbeat.pid is not None
        os.kill(heartbeat.pid, signal.SIGSTOP)
        await asyncio.sleep(BEYOND_S)
        assert (hf.node.id, hf.node.fenced) == (first, False)


async def test_terminating_the_whole_group_leaves_the_heart_until_the_node_is_gone(store_url: str) -> None:
    """A service manager signals every process. The node drains for longer than its lease, and needs its heart until
    then."""
    async with Holdfast(store_url, config=quick(LEASE_S)) as hf:
        heartbeat = hf.node.heartbeat
        assert isinstance(heartbeat, HeartProcess)
        pid = heartbeat.pid
        assert pid is not None
        await until(lambda: heartbeat._beating)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(pid, number)
        sent = heartbeat.sent
        await until(lambda: heartbeat.sent > sent)
        assert heartbeat.pid == pid


class Simulated(Environment):
    def monotonic(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("url", "config", "environment", "kind"),
    [
        ("sqlite:///file.db", Config(), Environment(), HeartProcess),
        ("sqlite:///file.db", Config(heart=False), Environment(), Heartbeat),
        ("sqlite:///file.db", Config(), Simulated(), Heartbeat),
        ("sqlite://:memory:", Config(), Environment(), Heartbeat),
    ],
)
def test_a_heart_is_for_processes_that_share_a_store(
    url: str, config: Config, environment: Environment, kind: type[Heartbeat]
) -> None:
    """In memory and in a simulation the event loop renews. With `Config(heart=False)` it does, too."""
    assert heartbeat_type(open_store(url, environment, config).nodes, environment, config) is kind
