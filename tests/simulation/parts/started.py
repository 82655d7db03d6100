"""Runs that other runs start and do not wait for (`await workflow.start(…)`). There is one for each call, it outlives the
run that started it, and it is neither cancelled nor undone with it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from msgspec import structs

from holdfast.lifecycle import RUN_ENDED
from holdfast.model import CANCEL
from holdfast.store import batch, children
from holdfast.store.rows import start_row
from holdfast.store.verbs import Verb
from tests.simulation import program
from tests.simulation.mutants import code, mutant, sql
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from tests.simulation.invariants import Checker, Commit
    from tests.simulation.simulation import Simulation


def I37_started_runs_belong_to_nobody(checker: Checker, commit: Commit) -> Iterable[str]:
    """A call starts one run, and ends with that run's id, in one commit. The run has no parent, and no run cancels it."""
    execute = checker.connection.execute
    for _, _, after in commit.runs:
        if after is not None and after.started_by is not None:
            if after.parent_id is not None:
                yield f"{after.id} was started by {after.started_by}, and is a child of {after.parent_id}"
            same = execute(
                "SELECT count(*) FROM runs WHERE started_by = ? AND started_n = ?",
                (after.started_by, after.started_n),
            ).get
            if same != 1:
                yield f"step {after.started_n} of {after.started_by} started {same} runs"
    for _, before, after in commit.steps:
        if after is None or after.kind != "start" or after.run_id in commit.retried:
            continue
        if after.state == "succeeded" and (before is None or before.state != "succeeded"):
            run_id = json.loads(after.output or b"null")
            found = execute("SELECT started_by, started_n FROM runs WHERE id = ?", (run_id,)).get
            if found != (after.run_id, after.n):
                yield f"step {after.n} of {after.run_id} started {run_id}, which was started by {found}"
        elif before is None:
            yield f"step {after.n} of {after.run_id} is {after.state}, and its run was not started with it"
    for _, before, after in commit.signals:
        if before is None and after is not None and after.name == CANCEL and commit.verb == "commit":
            run = checker.runs.get(after.run_id)
            if run is not None and run.started_by is not None:
                yield f"{run.id} was started by {run.started_by}, and was asked to cancel itself by another run"


class RunId:
    """In an expected result: the id of a run that was started."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and "/" in other

    __hash__ = None  # type: ignore[assignment]


class Started(Part):
    name = "started"
    share = 0.1
    checks = (I37_started_runs_belong_to_nobody,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._plans: dict[str, program.Plan] = {}
        """The plans of the runs that other runs started."""
        self._cancelled: set[str] = set()
        """Runs that an operator cancelled, alone or among many."""

    def kinds(self) -> tuple[str, ...]:
        return ("start",) * 6

    def observe(self, simulation: Simulation, commit: Commit) -> None:
        if commit.verb != "commit":
            self._cancelled.update(
                after.run_id
                for _, before, after in commit.signals
                if before is None and after is not None and after.name == CANCEL
            )
            self._cancelled.update(
                after.id for _, _, after in commit.runs if after is not None and after.state == "cancelled"
            )
        for _, before, after in commit.runs:
            if before is None and after is not None and after.started_by is not None:
                raw = simulation.connection.execute("SELECT input FROM runs WHERE id = ?", (after.id,)).get
                self._plans[after.id] = json.loads(json.loads(raw)["plan"])
                simulation.sometimes("a run was started by another one")
            elif after is not None and after.started_by is not None and after.state in RUN_ENDED:
                above = simulation.checker.runs.get(after.started_by)
                if above is not None and above.state in RUN_ENDED and above.state != "succeeded":
                    simulation.sometimes("a run outlived the one that had started it, which failed")

    def endings(self, simulation: Simulation) -> Iterator[str]:
        """A started run ends for its own reasons, with the result that its plan demands."""
        for run_id, plan in self._plans.items():
            run = simulation.checker.runs.get(run_id)
            if run is None:
                yield f"I4 run {run_id} was started and is lost"
            elif run.state == "cancelled" and run_id not in self._cancelled:
                yield f"I37 run {run_id} was cancelled, and nobody asked for that"
            elif run.state == "succeeded" and run.generation == 1:
                try:
                    expected = program.expected_result(plan)
                except program.MustFail:
                    if not any(skipped.startswith(run_id) for skipped, _ in simulation.checker.skipped):
                        yield f"G2 run {run_id} succeeded, but had to fail: {plan}"
                    continue
                result = json.loads(json.loads(run.output or b"null"))
                if not program.matches(result, expected):
                    yield f"G2 run {run_id} returned {result}, not {expected}"


def _draw(draw: program.Draw, depth: int, bounded: bool) -> program.Plan:
    parts = [draw.do(), draw.part(depth - 1, bounded=True)]
    return ["start", ["seq", parts]]


async def _walk(plan: program.Plan) -> Any:
    return await program.program.start(json.dumps(plan[1]))


program.CASES["start"] = program.Case(_draw, _walk, lambda plan: RunId())


@mutant("a started run is no child", within=60, part="started")
def started_runs_are_children(stack: ExitStack) -> None:
    values = "?8, ?9, ?10, max("
    sql(stack, "start_runs", values, values.replace("?9, ?10", "coalesce(?9, ?12), coalesce(?10, ?13)"))


@mutant("a call that starts a run starts one", within=60, part="started")
def calls_start_two_runs(stack: ExitStack) -> None:
    real = children._end_starts

    async def end_starts(session: Any, started: Any) -> None:
        for run in started:
            if run.detached:
                another = structs.replace(run, id=f"{run.id}+")
                await session.all(Verb.start_runs, [start_row(another)])
        await real(session, started)

    code(stack, children, "_end_starts", end_starts)


@mutant("the run that a call starts is there when the call ends", within=60, part="started")
def started_runs_are_not_written(stack: ExitStack) -> None:
    async def start_children(session: Any, runs: Any) -> None:
        await children._end_starts(session, [run for run in runs if run.detached])
        await real(session, [run for run in runs if not run.detached])

    real = children.start_children
    code(stack, batch, "start_children", start_children)
