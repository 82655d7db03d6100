"""Seeds in which nothing goes wrong. Whatever can go on does so at once: a bell is what wakes those who wait, and their
fallback looks come so seldom here that a bell nobody rings is seen."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import HoldfastError
from holdfast.model import UNDO_PREFIX
from holdfast.node import Node
from holdfast.scheduler.timers import Timers
from tests.simulation.mutants import code, mutant, sql
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from holdfast.agent.agent import Agent
    from holdfast.scheduler.scheduler import Scheduler
    from holdfast.testing.world import Process
    from tests.simulation.invariants import Gates, Run, Step
    from tests.simulation.simulation import Simulation

LOOK_S = 0.15
WAITS_MAX_S = 0.5
"""How long what can go on may wait."""
POLL_S = 20.0
"""How often those look who have heard no bell."""
ACTIVE = ("running", "undoing")
USED = {
    "ok": (1, 0, 0), "quick": (1, 0, 0), "slow": (1, 0, 0), "lingers": (1, 0, 0), "gives up": (1, 0, 0),
    "stop": (1, 0, 0), "unstorable": (1, 0, 0), "unsure": (2, 0, 0), "put off": (2, 0, 1), "hangs": (2, 1, 0),
}  # fmt: skip
"""By how a step behaves, how many attempts it takes, and how many of them time out and are put off."""
OTHERWISE = ("compute", "sweep", "tire")
"""Steps that do not behave in all of these ways, or have too little time for them."""


class Waiting(NamedTuple):
    """Something that can go on: what it is, and its fence or the like."""

    what: str
    run_id: str
    n: int
    fence: int


class Calm(Part):
    name = "calm"
    share = 0.22

    def settings(self) -> dict[str, Any]:
        return {"poll_s": POLL_S, "beat_s": POLL_S}

    def begin(self, simulation: Simulation) -> None:
        simulation.drive(self._watch(simulation))
        for run_id in simulation.plans:
            simulation.drive(self._wait_for_end(simulation, run_id))

    async def _wait_for_end(self, simulation: Simulation, run_id: str) -> None:
        """Wait for a run as a caller does, in any process, and demand to hear of its end at once."""
        while run_id not in simulation.accepted:  # noqa: ASYNC110  in virtual time, polling costs nothing
            await asyncio.sleep(0.1)
        process = self.dice.choice(simulation.working)
        asked_at = simulation.store_now()
        await asyncio.wait([process.run_task(_ended(process, run_id))])
        run = simulation.checker.runs[run_id]
        late_s = simulation.store_now() - max(asked_at, run.finished_at or simulation.store_now())
        if late_s > WAITS_MAX_S:
            simulation.broke(f"I67 who waits for {run_id} heard of its end {late_s:.2f} s later")

    def endings(self, simulation: Simulation) -> Iterator[str]:
        """Nothing went wrong but what steps do themselves, so that says how many attempts each of them took."""
        checker = simulation.checker
        own = {run.id for run in checker.runs.values() if run.retry_of is None and run.forked_from is None}
        rows = checker.connection.execute(
            "SELECT run_id, key, state, attempt, timeouts, throttled, losses, name, input FROM steps "
            "WHERE kind = 'call' AND state IN ('succeeded', 'failed')"
        ).fetchall()
        for run_id, key, state, attempt, timeouts, throttled, losses, name, raw in rows:
            given = json.loads(raw or b"{}")
            if run_id not in own or key.startswith(UNDO_PREFIX) or not isinstance(given, dict):
                continue
            if losses:
                yield f"I67 step {key} of {run_id} counts {losses} losses, and no agent was lost"
            used = USED.get(given.get("how", ""))
            if used is not None and not name.endswith(OTHERWISE) and (attempt, timeouts, throttled) != used:
                yield f"I67 step {key} of {run_id} {given} is {state} and used {(attempt, timeouts, throttled)}, not {used}"

    async def _watch(self, simulation: Simulation) -> None:
        """Look again and again what can go on. What can at each of these looks, and does not, waits too long."""
        since: dict[Waiting, float] = {}
        while True:
            await asyncio.sleep(LOOK_S)
            now = simulation.loop.now
            since = {one: since.get(one, now) for one in self._waiting(simulation)}
            for one, at in since.items():
                if now - at > WAITS_MAX_S:
                    simulation.broke(
                        f"I67 {one.what} of {one.run_id} ({one.n}) waits for {now - at:.2f} s, and nothing keeps it"
                    )
                    return

    def _waiting(self, simulation: Simulation) -> Iterator[Waiting]:
        checker, now = simulation.checker, simulation.store_now()
        nodes = [one for one in (process._caller for process in simulation.working) if isinstance(one, Node)]
        agents = [node.agent for node in nodes if node.agent is not None and node.started]
        owners = {node.id: node.scheduler for node in nodes if node.scheduler is not None and node.started}
        gates = checker.gates()
        live = [checker.runs[run_id] for run_id in checker.live]
        awake: set[str] = set()
        for signal in checker.rows["signals"].values():
            if signal.delivered_seq is None:
                awake.add(signal.run_id)
        active = {run.id: run for run in live if run.state in ACTIVE}
        for (run_id, n), step in checker.steps.items():
            run = active.get(run_id)
            if run is None:
                continue
            if step.state == "ready":
                if step.ready_at <= now and _can_begin(step, run, agents, gates, checker.lanes):
                    yield Waiting("a step", run_id, n, step.fence)
            elif step.kind == "timer" and step.state == "waiting" and step.ready_at <= now:
                yield Waiting("a timer", run_id, n, step.fence)
            elif step.finished_at is not None and step.delivered_seq is None:
                awake.add(run_id)
        for run in live:
            if run.owner is None and _has_room(owners.values()):
                if run.state == "pending" and run.queue == 0:
                    yield Waiting("the beginning", run.id, 0, run.fence)
                elif run.id in awake and run.id in active:
                    yield Waiting("what came", run.id, 0, run.fence)
            elif run.owner in owners and run.id in awake and run.id in active:
                yield Waiting("what came to its owner", run.id, checker.last_seq[run.id], run.fence)
        for agent in agents:
            for (run_id, n, is_twin), one in agent.assignments.items():
                row = checker.steps.get((run_id, n))
                if (
                    not is_twin
                    and not one.lost
                    and (row is None or row.fence != one.fence)
                    and not agent.closing
                ):
                    yield Waiting("the end of a step that was given up", run_id, n, one.fence)


async def _ended(process: Process, run_id: str) -> None:
    with contextlib.suppress(HoldfastError):  # it may fail, or be stuck
        await process.run(run_id).result()


def _can_begin(step: Step, run: Run, agents: list[Agent], gates: Gates, lanes: dict[int, Any]) -> bool:
    """True if an agent has a place for the step, and no gate is shut: of the store, or of that agent alone. When a step is
    to be tried again, only the agent that had it knows when, so all must have a place."""
    if step.queue or step.lane not in lanes or gates.keeps(lanes[step.lane], run) is not None:
        return False
    free = [
        agent.places.free(is_async) > 0 and served.depends[step.lane] not in agent.gates.paused
        for agent in agents
        for is_async, served in agent._claims._served.items()
        if step.lane in served.depends
    ]
    return bool(free) and (all(free) if step.attempt else any(free))


def _has_room(owners: Any) -> bool:
    schedulers: list[Scheduler] = list(owners)
    return any(one.room > 0 for one in schedulers)


@mutant("an agent claims when it has a place again", within=60, part="calm")
def free_places_wait_for_the_poll(stack: ExitStack) -> None:
    code(stack, Node, "claim_after", lambda self, delay_s: None)


@mutant("a scheduler claims when it has room again", within=150, part="calm")
def room_waits_for_the_poll(stack: ExitStack) -> None:
    code(stack, Node, "claim_runs_after", lambda self, delay_s: None)


@mutant("the timers of runs that have left memory fire in their time", within=60, part="calm")
def parked_timers_wait_for_the_poll(stack: ExitStack) -> None:
    code(stack, Timers, "park", lambda self, ready_at: None)


@mutant("an attempt that is put off spends the budget for that, and no other", within=30, part="calm")
def put_off_attempts_spend_nothing(stack: ExitStack) -> None:
    sql(stack, "retry_steps", "throttled = throttled + ?9", "throttled = throttled + 0 * ?9")
