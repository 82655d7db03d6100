"""A fleet of real processes under load, the harm that is done to them, and the count at the end.

Lost: a run whose start was answered and that did not succeed. Doubled: a step for which the workflow got another result
than the one in its row, or two results. Recovery: the time from a fault until the next run ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from holdfast import Holdfast
from holdfast.config import Config
from holdfast.errors import HoldfastError
from holdfast.model import RunState
from tests.chaos import load
from tests.chaos.load import CONFIG, LEASE_S

SECONDS = float(os.environ.get("HOLDFAST_CHAOS_S", "3"))
"""How long each scenario does harm."""
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
END_S = 120.0
"""How long everything may take to end by itself after the harm. This is far longer than it takes, because test machines
are slow."""
IN_FLIGHT = 24
SLOW = 5.0
"""A machine that is busy with other tests may do things this many seconds late."""


def publish(scenario: str, figures: Mapping[str, object]) -> None:
    """Write the scenario's figures to a file, in the folder that the environment names."""
    if folder := os.environ.get("HOLDFAST_FIGURES"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        record = {"scenario": scenario, "seed": SEED, "seconds": SECONDS, **figures}
        file = Path(folder, f"chaos-{scenario.replace(' ', '-')}.json")
        file.write_text(json.dumps(record, indent=1) + "\n")


class Line(NamedTuple):
    """A line of the ledger."""

    what: str
    key: str
    attempt: str
    pid: int
    node: str
    token: str | None
    at: float


class World:
    def __init__(self, name: str, url: str, ledger: Path, client_url: str | None = None) -> None:
        self.name, self.url, self.ledger = name, url, ledger
        self.client = Holdfast(
            client_url or url, roles=[], config=Config(poll_s=0.2, connect_s=1.0, answer_s=CONFIG.answer_s)
        )
        self.fleet: list[asyncio.subprocess.Process] = []
        self.accepted: list[str] = []
        self.faults: list[float] = []
        self.counts: Counter[str] = Counter()
        self._log = ledger.with_suffix(".log").open("ab")
        self._loading = True
        self.loader: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # --- processes --------------------------------------------------------------------------------------------------

    async def spawn(self, url: str | None = None, roles: str = "scheduler,agent,supervisor") -> int:
        """Start one more node, and return its number in the fleet."""
        self.fleet.append(await self._start(url or self.url, roles))
        return len(self.fleet) - 1

    async def _start(self, url: str, roles: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.chaos.load",
            url,
            str(self.ledger),
            roles,
            stdout=self._log,
            stderr=self._log,
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )

    async def kill(self, number: int, url: str | None = None) -> None:
        """Kill a process with SIGKILL, and start another one in its place."""
        self.fault("kills")
        self.fleet[number].kill()
        await self.fleet[number].wait()
        self.fleet[number] = await self._start(url or self.url, "scheduler,agent,supervisor")

    async def stop(self, number: int, seconds: float) -> int:
        """Stop a process with SIGSTOP, let it go on later with SIGCONT, and return its pid."""
        self.fault("stops")
        process = self.fleet[number]
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        process.send_signal(signal.SIGCONT)
        return process.pid

    async def restart(self, number: int) -> None:
        """Drain a process with SIGTERM, and start another one in its place."""
        self.fault("rolling restarts")
        self.fleet[number].terminate()
        async with asyncio.timeout(60):
            code = await self.fleet[number].wait()
        assert code == 0, f"a drained node ended with {code}"
        self.fleet[number] = await self._start(self.url, "scheduler,agent,supervisor")
        pid = self.fleet[number].pid
        async with asyncio.timeout(120):  # one after the other: the next one leaves when this one has joined
            while not self.nodes_of(pid):  # noqa: ASYNC110  nothing signals that another process has joined
                await asyncio.sleep(0.1)

    def fault(self, what: str) -> None:
        self.counts[what] += 1
        self.faults.append(time.time())

    # --- load -------------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Start a run whenever one ends. A run whose start was answered counts as accepted."""
        async with asyncio.TaskGroup() as group:
            for lane in range(IN_FLIGHT):
                group.create_task(self._lane(lane))

    async def _lane(self, lane: int) -> None:
        number = 0
        while self._loading:
            number += 1
            run_id = f"{self.name}-{lane}-{number}".replace(" ", "-")
            run = None
            while run is None:
                try:
                    run = await self.client.start(load.order.using(id=run_id), str(self.ledger))
                except HoldfastError:  # the start was not answered, so ask again with the same id
                    await asyncio.sleep(0.1)
            self.accepted.append(run_id)
            while self._loading:
                try:
                    await run.result(timeout=1.0)
                    break
                except TimeoutError:
                    continue
                except HoldfastError:
                    await asyncio.sleep(0.1)

    async def until(self, count: int, seconds: float = 60.0) -> None:
        """Wait until this many runs have ended."""
        async with asyncio.timeout(seconds):
            while (await self.ended()) < count:  # noqa: ASYNC110  nothing signals what other processes do
                await asyncio.sleep(0.05)

    async def ended(self) -> int:
        try:
            return (await self.client.store.reads.runs_by_state()).get(RunState.SUCCEEDED, 0)
        except HoldfastError:
            return 0

    # --- what became of it ------------------------------------------------------------------------------------------

    def lines(self) -> list[Line]:
        found = []
        for raw in self.ledger.read_text().splitlines():
            what, key, attempt, pid, node, *rest = raw.split()
            token = rest[0] if len(rest) == 2 else None
            found.append(Line(what, key, attempt, int(pid), node, token, float(rest[-1])))
        return found

    def nodes_of(self, pid: int) -> list[str]:
        return [line.node for line in self.lines() if line.pid == pid and line.what == "up"]

    def began_between(self, nodes: Iterable[str], since: float, until: float) -> list[Line]:
        """Return the effects that these nodes started in this time."""
        wanted = set(nodes)
        return [
            line
            for line in self.lines()
            if line.what == "began" and line.node in wanted and since < line.at < until
        ]

    async def end_and_count(self) -> dict[str, object]:
        """Do no more harm and start no more runs; wait until every run has ended, and count."""
        self._loading = False
        async with asyncio.timeout(END_S):
            await self.loader  # waits until the starts that are under way are answered
            while not await self._all_ended():  # noqa: ASYNC110  as above
                await asyncio.sleep(0.1)
        figures = await self._count()
        print(f"\n{self.name}: {', '.join(f'{value} {key}' for key, value in figures.items())}")
        publish(self.name, figures)
        assert figures["lost"] == 0, figures
        assert figures["doubled results"] == 0, figures
        return figures

    async def _all_ended(self) -> bool:
        try:
            states = await self.client.store.reads.runs_by_state()
        except HoldfastError:
            return False
        return states.get(RunState.SUCCEEDED, 0) >= len(set(self.accepted)) and set(states) == {
            RunState.SUCCEEDED
        }

    async def _count(self) -> dict[str, object]:
        store, lost, doubled = self.client.store, 0, 0
        endings: Counter[str] = Counter()
        tokens = {line.token for line in self.lines() if line.what == "ended"}
        finished: list[float] = []
        for run_id in self.accepted:
            run = await store.reads.run(run_id)
            if run is None or run.state is not RunState.SUCCEEDED or run.output is None:
                lost += 1
                continue
            finished.append(run.finished_at or 0.0)
            delivered = sorted(json.loads(run.output))
            recorded = sorted(
                json.loads(step.output)
                for step in await store.reads.steps(run_id)
                if step.output and step.kind == "call"
            )
            good = delivered == recorded and len(set(delivered)) == 4 and tokens.issuperset(delivered)
            doubled += not good
            endings.update(one.ending for one in await store.reads.attempts(run_id))
        broken = [name for name, _, rows in await store.reads.doctor() if rows and not name.startswith("I10")]
        assert broken == [], broken
        executions = Counter(line.key for line in self.lines() if line.what == "began")
        return {
            **self.counts,
            "runs accepted": len(self.accepted),
            "lost": lost,
            "doubled results": doubled,
            "late results refused": endings["refused"],
            "attempts lost": endings["lost"],
            "steps executed": len(executions),
            "executed more than once": sum(times > 1 for times in executions.values()),
            "slowest recovery s": round(self._slowest(sorted(finished)), 2),
        }

    def _slowest(self, finished: list[float]) -> float:
        slowest = 0.0
        for fault in self.faults:
            after = next((at for at in finished if at > fault), None)
            if after is not None:
                slowest = max(slowest, after - fault)
        return slowest

    def close_log(self) -> None:
        self._log.close()


@asynccontextmanager
async def world(
    name: str, url: str, folder: Path, nodes: int = 3, client_url: str | None = None
) -> AsyncIterator[World]:
    """Run a fleet. The block begins when its first runs have ended, and leaves no process behind."""
    it = World(name, url, folder / f"{name.replace(' ', '-')}.ledger", client_url)
    await it.client.open()
    it.loader = asyncio.ensure_future(it.load())
    try:
        for _ in range(nodes):
            await it.spawn()
        await it.until(IN_FLIGHT)
        yield it
    except BaseException:
        it.close_log()
        sys.stderr.write(it.ledger.with_suffix(".log").read_text()[-6000:])
        raise
    finally:
        it._loading = False
        for process in it.fleet:
            if process.returncode is None:
                process.kill()
                await process.wait()
        it.loader.cancel()
        await asyncio.gather(it.loader, return_exceptions=True)
        await it.client.close()
        it.close_log()


def outlasting(lease_s: float = LEASE_S) -> float:
    return 3 * lease_s
