"""Two namespaces, which some seeds play: each has the same run ids, the same workflow and the same steps. Each process
works for one of them, for both, or for all. Nothing of one is executed, seen, held, tripped or undone by the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from holdfast.access import local
from holdfast.decider import decider
from holdfast.desk.gates import Gates
from holdfast.model import DEFAULT_NAMESPACE, NewSignal, StepKind
from holdfast.namespaces import Namespaces, bare, namespace_of, parted, stored
from holdfast.scheduler import new_steps
from holdfast.store.operations import Hop
from holdfast.testing.world import Process
from holdfast.workflow.loaded import StoredSteps, StoredWorkflows
from holdfast.workflow.step import Step
from holdfast.workflow.workflow import Workflow
from tests.simulation import program
from tests.simulation.mutants import code, mutant
from tests.simulation.nodes import carried_out
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from tests.simulation.invariants import Checker, Commit
    from tests.simulation.simulation import Simulation

OTHER = "acme"
WORKS_FOR = ((DEFAULT_NAMESPACE,), (OTHER,), (OTHER,), (DEFAULT_NAMESPACE, OTHER), ("*",))
"""What the namespaces of a process are drawn from."""


def I44_nothing_crosses_a_wall(checker: Checker, commit: Commit) -> Iterable[str]:
    """A node owns runs and has steps only of namespaces that it works for. A run is in one namespace with its code, its
    parent, the lanes of its calls and the runs that it signals. Agents say something only about breakers of their own
    namespaces."""
    works_for: Namespaces = commit.process.namespaces
    for _, before, after in commit.runs:
        if after is None:
            continue
        if before is None:
            places = {after.namespace, namespace_of(after.id), namespace_of(after.workflow)}
            above = after.parent_id or after.started_by
            if above is not None:
                places.add(namespace_of(above))
            if len(places) > 1:
                yield f"{after.id} of {after.workflow} is in {sorted(places)}"
        if after.owner is not None and (before is None or before.owner != after.owner):
            if after.namespace not in works_for:
                yield f"{after.owner} owns {after.id}, and works for {works_for}"
    for _, before, after in commit.steps:
        if after is None or after.kind != StepKind.CALL:
            continue
        if after.state == "running" and (before is None or before.state != "running"):
            if namespace_of(after.run_id) not in works_for:
                yield f"{commit.node} has step {after.n} of {after.run_id}, and works for {works_for}"
        lane = checker.lanes.get(after.lane)
        if before is None and lane is not None:
            if {namespace_of(lane.name), namespace_of(lane.depends)} != {namespace_of(after.run_id)}:
                yield f"step {after.n} of {after.run_id} is in the lane of {lane.name}, {lane.depends}"
    for op in commit.asked["ops"] if commit.verb == "commit" else ():
        for signal in op.sends if isinstance(op, Hop) else ():
            if namespace_of(signal.run_id) != namespace_of(op.run_id):
                yield f"{op.run_id} sent a signal to {signal.run_id}"
    if commit.verb == "observe":
        for _, _, row in commit.breakers:
            if row is not None and namespace_of(row.name) not in works_for:
                yield f"{commit.process.name} reports about {row.name}, and works for {works_for}"


class Walls(Part):
    name = "walls"
    share = 0.6
    checks = (I44_nothing_crosses_a_wall,)
    _healed = False

    def spawned(self, simulation: Simulation, process: Process) -> None:
        process.namespaces = Namespaces(("*",) if self._healed else self.dice.choice(WORKS_FOR))

    def using(self, simulation: Simulation, workflow: Workflow[Any, Any], run_id: str) -> Workflow[Any, Any]:
        return workflow.using(namespace=DEFAULT_NAMESPACE)

    def begin(self, simulation: Simulation) -> None:
        """Start the same runs in the other namespace, with the same plans. Sometimes, all in one of them is held."""
        for run_id, plan in list(simulation.plans.items()):
            twin = stored(OTHER, run_id)
            simulation.plans[twin] = plan
            simulation.drive(self._start(simulation, run_id))
            for i in range(program.signals_awaited(plan)):
                simulation.drive(self._send(simulation, twin, f"key {i}"))
        if self.dice.random() < 0.4:
            simulation.drive(self._hold(simulation, self.dice.choice((DEFAULT_NAMESPACE, OTHER))))

    async def _start(self, simulation: Simulation, run_id: str) -> None:
        twin = stored(OTHER, run_id)
        workflow = program.program.using(id=run_id, namespace=OTHER)
        plan = json.dumps(simulation.plans[twin])
        await asyncio.sleep(self.dice.random() ** 2 * 1.5)
        while await simulation.asked(lambda process: process.start(workflow, plan)) is None:
            pass
        simulation.accepted[twin] = None
        simulation.sometimes("the same id was started in two namespaces")

    async def _send(self, simulation: Simulation, run_id: str, key: str) -> None:
        await asyncio.sleep(self.dice.random() * 3)
        while run_id not in simulation.accepted:  # noqa: ASYNC110  in virtual time, polling costs nothing
            await asyncio.sleep(0.3)
        signal = NewSignal(run_id, "note", key, json.dumps(key).encode())
        await simulation.asked(
            lambda process: carried_out(process, process.store.operators.send_signal(signal))
        )

    async def _hold(self, simulation: Simulation, namespace: str) -> None:
        await asyncio.sleep(self.dice.random() * 2)

        def gates(process: Process) -> Gates:
            return Gates(lambda: process.desk.gates, local("sim", namespace))

        await simulation.asked(lambda process: gates(process).hold(step=program.work.name), tries=4)
        await asyncio.sleep(self.dice.random() * 2)
        await simulation.asked(lambda process: gates(process).release(step=program.work.name))

    def heal(self, simulation: Simulation) -> None:
        """Whoever died may have been the only one for a namespace."""
        self._healed = True
        simulation.spawn(("scheduler", "agent", "supervisor"))

    def observe(self, simulation: Simulation, commit: Commit) -> None:
        works_for = commit.process.namespaces
        if commit.verb in ("claim_runs", "claim_steps") and (commit.runs or commit.steps):
            simulation.sometimes(f"claimed by a node for {works_for.only or 'several namespaces'}")

    def endings(self, simulation: Simulation) -> Iterator[str]:
        """What has a stored name is listed in its own namespace, and nowhere else."""
        for namespace in (DEFAULT_NAMESPACE, OTHER):
            rows = simulation.connection.execute(
                "SELECT run_id, namespace FROM journal WHERE namespace = ? AND run_id IS NOT NULL",
                (namespace,),
            ).fetchall()
            for run_id, _ in rows:
                if namespace_of(run_id) != namespace:
                    yield f"I44 the journal of {namespace} is about {run_id}"


@mutant("an agent has only steps of its own namespaces", within=150, part="walls")
def agents_serve_all_namespaces(stack: ExitStack) -> None:
    def found(self: Any, name: str) -> Step[Any, Any]:
        namespace, rest = parted(name)
        step: Step[Any, Any] = self._steps[rest]
        return step.within(namespace)

    code(stack, StoredSteps, "__getitem__", found)


@mutant("a scheduler owns only runs of its own namespaces", within=150, part="walls")
def schedulers_serve_all_namespaces(stack: ExitStack) -> None:
    code(stack, StoredWorkflows, "__getitem__", lambda self, asked: self._workflows[bare(asked[0]), asked[1]])
    code(
        stack,
        StoredWorkflows,
        "__iter__",
        lambda self: (
            (stored(namespace, name), version)
            for name, version in self._workflows
            for namespace in (DEFAULT_NAMESPACE, OTHER)
        ),
    )


@mutant("what code names is in the namespace of its run", within=150, part="walls")
def code_names_what_is_in_default(stack: ExitStack) -> None:
    code(stack, decider, "stored", lambda namespace, name: name)


@mutant("lanes belong to a namespace", within=60, part="walls")
def namespaces_share_their_lanes(stack: ExitStack) -> None:
    real = new_steps.lane_key
    code(stack, new_steps, "lane_key", lambda step, namespace: real(step, DEFAULT_NAMESPACE))


@mutant("a breaker belongs to a namespace", within=60, part="walls")
def namespaces_share_their_breakers(stack: ExitStack) -> None:
    def lane_key(step: Any, namespace: str) -> Any:
        return stored(namespace, step.name), step.needs, step.undo_name, step.depends

    code(stack, new_steps, "lane_key", lane_key)
