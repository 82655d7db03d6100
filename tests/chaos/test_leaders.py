"""The leader killed or stopped under load: recovery goes on within the leader's lease, nothing is lost, nothing happens twice.

`HOLDFAST_LEADERS=20 pytest tests/chaos/test_leaders.py -s` is the long version (`make chaos`); the suite does two rounds.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from holdfast import Holdfast
from holdfast.config import DEFAULT
from holdfast.model import Ending, LeaderLease, NodeRow, RunState
from tests.chaos import app
from tests.store.made import end_overdue, reclaim

ROUNDS = int(os.environ.get("HOLDFAST_LEADERS", "2"))
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
HOLDFAST = Path(sys.executable).with_name("holdfast")
PATIENCE_S = 60.0
SLOW_S = 5.0
"""How much a busy machine may add to a time limit."""
LANES = 8
"""How many runs are under way at a time."""


async def until(condition: Callable[[], Awaitable[object]], limit_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + limit_s
    while not await condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


class Crew:
    """Processes of `holdfast`. Each counts once the store knows it."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._processes: dict[int, asyncio.subprocess.Process] = {}

    async def start(self, *command: str) -> NodeRow:
        process = await asyncio.create_subprocess_exec(
            HOLDFAST,
            *command,
            "--store",
            self._hf.url,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        self._processes[process.pid] = process
        found: list[NodeRow] = []

        async def known() -> bool:
            assert process.returncode is None, f"{command} ended"
            found[:] = [node for node in await self._hf.store.nodes.living(100) if node.pid == process.pid]
            return bool(found)

        await until(known)
        return found[0]

    async def signal(self, node: NodeRow, number: signal.Signals) -> None:
        process = self._processes[node.pid]
        process.send_signal(number)
        if number is signal.SIGKILL:
            await process.wait()
            del self._processes[node.pid]

    async def as_they_are(self, nodes: list[NodeRow]) -> list[NodeRow]:
        """Return the nodes that these processes are now. On a busy machine a process may lose its lease, and join again as
        another node."""
        living = {node.pid: node for node in await self._hf.store.nodes.living(100)}
        return [living.get(node.pid, node) for node in nodes]

    async def joined_again(self, node: NodeRow) -> NodeRow:
        """Wait until the same process has joined as another node, and return that node."""
        found: list[NodeRow] = []

        async def known() -> bool:
            found[:] = [
                one
                for one in await self._hf.store.nodes.living(100)
                if one.pid == node.pid and one.id != node.id
            ]
            return bool(found)

        await until(known)
        return found[0]

    async def close(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            await process.wait()


@asynccontextmanager
async def loaded(hf: Holdfast, folder: Path) -> AsyncIterator[list[str]]:
    """Start runs, LANES at a time, for as long as the block lasts. At its end all of them have succeeded."""
    begun: list[str] = []
    stop = asyncio.Event()

    async def lane() -> None:
        while not stop.is_set():
            run_id = f"r{len(begun)}"
            begun.append(run_id)
            run = await hf.start(app.twenty.using(id=run_id), str(folder / run_id))
            assert await run.result(PATIENCE_S) == sum(range(20))

    async with asyncio.TaskGroup() as lanes:
        for _ in range(LANES):
            lanes.create_task(lane())
        try:
            yield begun
        finally:
            stop.set()


async def leader_of(hf: Holdfast) -> LeaderLease:
    leader = await hf.store.leader.leader()
    assert leader is not None
    return leader


async def test_leaders_killed_and_stopped_under_load(store_url: str, tmp_path: Path) -> None:
    """In each round the leader is killed or stopped, and an agent is killed with it. Another leads, and reclaims what the
    agent had, within the leader's lease. What the deposed one writes, then or when it goes on, changes nothing: each agent
    is reclaimed once, each run ends right, and no recorded step runs again."""
    dice = random.Random(SEED)
    took: dict[str, list[float]] = {"kill": [], "stop": []}
    recovered: dict[str, list[float]] = {"kill": [], "stop": []}
    fleet_app = str(app.__file__)
    lost_agents: list[str] = []
    async with Holdfast(store_url, roles=[]) as hf:
        crew = Crew(hf)
        try:
            await crew.start("scheduler", fleet_app)
            agents = [await crew.start("agent", fleet_app) for _ in range(2)]
            supervisors = [await crew.start("supervisor") for _ in range(3)]
            async with loaded(hf, tmp_path) as begun:
                for number in range(ROUNDS):
                    await asyncio.sleep(dice.uniform(0.2, 1.5))  # anywhere between two renewals of the lease
                    how = ("kill", "stop")[number % 2]
                    before = await leader_of(hf)
                    supervisors, agents = await crew.as_they_are(supervisors), await crew.as_they_are(agents)
                    (leading,) = [node for node in supervisors if node.id == before.node]
                    agent = agents.pop(0)
                    at = time.monotonic()
                    await crew.signal(leading, signal.SIGKILL if how == "kill" else signal.SIGSTOP)
                    await crew.signal(agent, signal.SIGKILL)
                    lost_agents.append(agent.id)

                    async def taken_over(before: LeaderLease = before) -> bool:
                        return (await leader_of(hf)).epoch > before.epoch

                    async def reclaimed(agent: NodeRow = agent) -> bool:
                        return agent.id not in {node.id for node in await hf.store.nodes.living(100)}

                    await until(taken_over)
                    took[how].append(time.monotonic() - at)
                    await until(reclaimed)
                    recovered[how].append(time.monotonic() - at)
                    after = await leader_of(hf)
                    assert (after.predecessor, after.node != before.node) == (before.node, True)
                    await deposed_changes_nothing(hf, before.epoch, agents[0].id)
                    agents.append(await crew.start("agent", fleet_app))
                    if how == "kill":
                        supervisors.remove(leading)
                        supervisors.append(await crew.start("supervisor"))
                    elif number % 6 == 5:
                        # Longer than its own lease: it is reclaimed, and joins again as another node when it goes on.
                        await until(lambda leading=leading: is_reclaimed(hf, leading))  # type: ignore[misc]
                        await crew.signal(leading, signal.SIGCONT)
                        supervisors.remove(leading)
                        supervisors.append(await crew.joined_again(leading))
                    else:
                        await crew.signal(leading, signal.SIGCONT)
                    assert (await leader_of(hf)).epoch == after.epoch, "one that was deposed leads again"
            await nothing_lost_nothing_twice(hf, tmp_path, begun)
            reclaimed_nodes = [
                entry.note for entry in await hf.store.reads.journal(None, 10_000) if entry.verb == "reclaim"
            ]
            assert {
                agent: sum(agent in note for note in reclaimed_nodes) for agent in lost_agents
            } == dict.fromkeys(lost_agents, 1)
        finally:
            await crew.close()
    for how, times in took.items():
        if times:
            back = recovered[how]
            print(
                f"{how}: {len(times)} times, seed {SEED}: another leads after p50 {median(times):.2f} s, max {max(times):.2f} s; "
                f"what an agent killed with it had is reclaimed after p50 {median(back):.2f} s, max {max(back):.2f} s"
            )
            assert max(times) < DEFAULT.leader_lease_s + SLOW_S
            assert max(back) < DEFAULT.leader_lease_s + DEFAULT.sweep_s + SLOW_S
    print(f"{len(begun)} runs, {len(lost_agents)} agents lost")


async def deposed_changes_nothing(hf: Holdfast, epoch: int, node: str) -> None:
    """Try all that the former leader could still write: it changes nothing."""
    assert await reclaim(hf.store, node, epoch, "a deposed leader says so", 3, 100) is None
    assert await end_overdue(hf.store, epoch, -60.0, 100) == 0
    assert await hf.store.alerts.raise_alerts(epoch, []) is False
    assert await hf.store.retention.forget_nodes(epoch, time.time() + 60, 100) == 0


async def is_reclaimed(hf: Holdfast, node: NodeRow) -> bool:
    return node.id not in {one.id for one in await hf.store.nodes.living(100)}


async def nothing_lost_nothing_twice(hf: Holdfast, folder: Path, begun: list[str]) -> None:
    """Every run that was accepted succeeded. A step of it began once more only where an attempt was lost."""
    assert await hf.store.reads.runs_by_state() == {RunState.SUCCEEDED: len(begun)}
    for run_id in begun:
        lines = [line.split() for line in (folder / run_id).read_text().splitlines()]
        order = [int(i) for i, _, _ in lines]
        assert order == sorted(order), f"a recorded step of {run_id} ran again: {order}"
        lost = Counter(one.n for one in await hf.store.reads.attempts(run_id) if one.ending == Ending.LOST)
        again = {i: times - 1 for i, times in Counter(order).items() if times > 1}
        assert sum(again.values()) <= sum(lost.values()), (run_id, again, lost)
    assert [name for name, _, broken in await hf.store.reads.doctor() if broken] == []
