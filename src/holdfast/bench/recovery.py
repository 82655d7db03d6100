"""E: how soon a step runs again when the process that ran it is killed. F: memory and start-up of a node."""

from __future__ import annotations

from contextlib import AsyncExitStack

from holdfast.bench.driver import Bench, NotMeasured, begun, drive, hosted, memory_mb, own_folder
from holdfast.bench.figures import Figure, figure
from holdfast.bench.work import chain_then_wait
from holdfast.client import Holdfast


async def killed_agent(bench: Bench) -> list[Figure]:
    """E."""
    taken = []
    for round_ in range(bench.size(9, 2)):
        bench.say(f"E: kill {round_ + 1}")
        taken.append(await _kill_once(bench))
    return [figure("seconds", "s", taken, "from SIGKILL of an agent to its step running in another one")]


async def _kill_once(bench: Bench) -> float:
    """Kill the one of two agents that executes a step, and return the seconds until the other one executes it. A
    scheduler and a supervisor run meanwhile."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(own_folder(bench))
        hf = await stack.enter_async_context(Holdfast(bench.url, roles=("scheduler", "supervisor")))
        agents = {}
        for _ in range(2):
            agent = await stack.enter_async_context(hosted(bench, "agent", "holdfast.bench.work"))
            agents[agent.pid] = agent
        run = await hf.start(chain_then_wait, 0, str(folder))
        first = await begun(bench, folder)
        # The kill must not always come at the same moment between two passes of the supervisor.
        await bench.world.sleep(hf.environment.random.random())
        killed_at = bench.world.monotonic()
        agents[first.pid].kill()
        second = await begun(bench, folder, time=2)
        if second.pid == first.pid or second.at < killed_at:
            raise NotMeasured("the step ran again before its agent was killed")
        (folder / "go-0").touch()
        await run.result()
        return second.at - killed_at


async def footprint(bench: Bench) -> list[Figure]:
    """F."""
    up, idle, loaded = [], [], []
    runs = bench.size(5_000, 500)
    for round_ in range(bench.size(5, 2)):
        bench.say(f"F: start {round_ + 1}")
        async with hosted(bench, "up", "holdfast.bench.work") as node:
            up.append(node.up_s)
            await bench.world.sleep(0.5)
            idle.append(memory_mb(node.pid))
            if round_ == 0:
                async with Holdfast(bench.url, roles=()) as hf:
                    await drive(hf, runs, 1)
                loaded.append(memory_mb(node.pid))
    return [
        figure("up", "s", up, "`holdfast up`: from its start, Python's included, to taking work"),
        figure("idle_memory", "MB", idle, "`holdfast up`: resident memory when idle, with its children"),
        figure("loaded_memory", "MB", loaded, f"the same after {runs:,} runs"),
    ]
