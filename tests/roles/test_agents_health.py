"""The health of a node, as others see it in the store: idle, busy, draining, stalled, offline."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from holdfast import Holdfast, Retry, step, workflow
from holdfast.config import Config
from holdfast.model import NodeRow
from holdfast.supervisor.health import NodeHealth, NodeState, examine
from tests.roles import blockers, outside
from tests.roles.conftest import until
from tests.roles.outside import effects
from tests.roles.test_recovery import node_process, quick

LEASE_S = 3.0


@step(retry=Retry(attempts=1))
async def even(number: int) -> int:
    if number % 2:
        raise ValueError("odd")
    return number


@workflow
async def count_even(upto: int) -> int:
    found = await asyncio.gather(*(even(number) for number in range(upto)), return_exceptions=True)
    return sum(not isinstance(one, BaseException) for one in found)


async def healths(hf: Holdfast) -> dict[int, NodeHealth]:
    """Return the health of each node, by its process."""
    loads, now = await hf.store.nodes.loads(), await hf.store.now()
    return {node.pid: examine(node, loads.get(node.id, (0, 0)), now) for node in await hf.store.nodes.nodes()}


async def until_state(hf: Holdfast, pid: int, state: NodeState) -> NodeHealth:
    seen = None
    try:
        async with asyncio.timeout(60):
            while (seen := (await healths(hf))[pid]).state is not state:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(seen) from None
    return seen


async def test_a_node_is_idle_busy_draining_and_gone(store_url: str, tmp_path: Path) -> None:
    """An agent goes through all these states, and others see how many steps it has at each moment."""
    folder = str(tmp_path)
    async with (
        Holdfast(store_url, roles=["scheduler"], config=quick(60.0)) as hf,
        node_process(store_url, "agent", LEASE_S, drain_s=60.0) as agent,
    ):
        idle = await until_state(hf, agent.pid, NodeState.IDLE)
        assert (idle.steps, idle.runs) == (0, 0)
        assert "tests.roles.outside.block" in idle.offers["steps"]
        run = await hf.start(outside.around_block, folder)
        await until(lambda: "block gate attempt 1" in effects(folder))
        busy = await until_state(hf, agent.pid, NodeState.BUSY)
        assert (busy.steps, busy.runs) == (1, 0)
        assert (await healths(hf))[hf.environment.pid].runs == 1
        agent.send_signal(signal.SIGTERM)
        assert (await until_state(hf, agent.pid, NodeState.DRAINING)).steps == 1
        (tmp_path / "gate").touch()
        assert await asyncio.wait_for(agent.wait(), 60) == 0
        gone = await until_state(hf, agent.pid, NodeState.OFFLINE)
        assert gone.node.retired_at is not None
        assert (await run.steps())[1].attempt == 1


async def test_a_blocked_node_is_stalled_and_keeps_what_it_holds(store_url: str, tmp_path: Path) -> None:
    """Its heart keeps it alive, and says since when the node has made no progress. Afterwards it is as before."""
    folder = str(tmp_path)
    async with (
        Holdfast(store_url, roles=["scheduler", "supervisor"], config=quick(60.0)) as hf,
        node_process(store_url, "agent", LEASE_S) as agent,
    ):
        run = await hf.start(blockers.with_blocked_loop, folder, 30.0)
        await until(lambda: "held attempt 1" in effects(folder))
        stalled = await until_state(hf, agent.pid, NodeState.STALLED)
        assert stalled.steps == 1
        assert stalled.silent_s > LEASE_S
        (tmp_path / "gate").touch()
        assert await run.result(60) == 1
        await until_state(hf, agent.pid, NodeState.IDLE)


async def test_a_killed_node_is_offline_when_its_lease_ran_out(store_url: str) -> None:
    """This holds even while there is no Supervisor that could reclaim what it has."""
    async with Holdfast(store_url, roles=()) as hf, node_process(store_url, "agent", LEASE_S) as agent:
        agent.kill()
        offline = await until_state(hf, agent.pid, NodeState.OFFLINE)
        assert offline.node.retired_at is None


async def test_the_success_of_recent_attempts_is_known(store_url: str) -> None:
    """The agent counts them, and writes the rate with its pulse."""
    async with Holdfast(store_url, config=Config(renew_s=0.2)) as hf:
        run = await hf.start(count_even, 10)
        assert await run.result(60) == 5
        async with asyncio.timeout(60):
            while (await healths(hf))[hf.environment.pid].success_rate is None:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        health = (await healths(hf))[hf.environment.pid]
        assert (health.succeeded, health.failed, health.success_rate) == (5, 5, 0.5)


async def test_what_others_read_from_a_row_is_not_changed_by_the_pulse(store_url: str) -> None:
    """`offers` still says what the node can serve."""
    async with Holdfast(store_url, labels=["gpu"], config=Config(renew_s=0.1)) as hf:
        offers: dict[str, object] = {}
        async with asyncio.timeout(60):
            while "pulse" not in offers:
                (node,) = await hf.store.nodes.nodes()
                offers = json.loads(node.offers)
        assert offers["labels"] == ["gpu"]
        assert {"workflows", "steps"} <= offers.keys()


def row(lease_until: float, retired_at: float | None = None, **pulse: object) -> NodeRow:
    offers = {"labels": [], "pulse": {"at": 100.0, "lease_s": 10.0} | pulse}
    return NodeRow("n", "host", 1, "agent", json.dumps(offers), 10, 0.0, lease_until, retired_at)


@pytest.mark.parametrize(
    ("node", "load", "now", "state"),
    [
        (row(110), (0, 0), 101, NodeState.IDLE),
        (row(110), (1, 0), 101, NodeState.BUSY),
        (row(110), (0, 1), 101, NodeState.BUSY),
        (row(110, draining=True), (1, 0), 101, NodeState.DRAINING),
        (row(120), (1, 0), 111, NodeState.STALLED),
        (row(120, draining=True), (1, 0), 111, NodeState.STALLED),
        (row(110), (1, 0), 111, NodeState.OFFLINE),
        (row(110, retired_at=101), (0, 0), 102, NodeState.OFFLINE),
    ],
)
def test_a_nodes_state_follows_from_its_row_its_load_and_the_time(
    node: NodeRow, load: tuple[int, int], now: float, state: NodeState
) -> None:
    """The state follows from the row, the steps that the node has, and the time."""
    assert examine(node, load, now).state is state
