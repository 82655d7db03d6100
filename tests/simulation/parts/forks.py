"""Operators who fork runs while others go on: where they are, from a step, with another result of a step, or with another
input. A fork keeps what was recorded before its point, executes the rest itself, and never undoes what it did not do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import codec
from holdfast.model import UNDO_PREFIX
from holdfast.store import forks
from holdfast.store.forks import ForkRequest
from tests.simulation import program
from tests.simulation.mutants import code, mutant, sql
from tests.simulation.nodes import carried_out
from tests.simulation.parts.part import Part

if TYPE_CHECKING:
    from holdfast.testing.world import Process
    from tests.simulation.invariants import Checker, Commit, Step
    from tests.simulation.simulation import Simulation

EDITED = 9000
"""What is added to the tag of a step whose result is edited."""
UNTIL_S = 7.0
"""Until when operators fork."""


class Fork(NamedTuple):
    """A fork that was made."""

    before: program.Plan
    """Its plan, as it was drawn."""
    plan: program.Plan
    """The same, with the results that were set for steps that it keeps. Its own result must come from this."""
    edited: frozenset[str]
    """The keys of the steps whose results were set."""


def I35_forks_keep_what_was_recorded(checker: Checker, commit: Commit) -> Iterable[str]:
    """A fork changes nothing of the run it came from, and begins with that run's outcomes from before its point. What was
    set replaces them. It keeps all of them as what it did not do itself."""
    if commit.verb != "fork_run":
        return
    run_id, request = commit.asked["run_id"], commit.asked["request"]
    (fork,) = [run for _, before, run in commit.runs if before is None and run is not None]
    if len(commit.runs) > 1 or any(after is None or after.run_id == run_id for _, _, after in commit.steps):
        yield f"the fork {fork.id} of {run_id} changed another run"
    if fork.forked_from != run_id or fork.parent_id is not None or fork.retry_of is not None:
        yield f"{fork} is a fork of {run_id}"
    kept = {after.key: after for _, before, after in commit.steps if before is None}
    origin = {step.key: step for step in checker.steps.values() if step.run_id == run_id}
    for key, step in kept.items():
        other, result = origin.get(key), request.results.get(key)
        if step.n > fork.kept_n:
            yield f"{fork.id} kept step {key}, and would undo it"
        if other is None or (
            other.finished_at is None and result is None and step.kind not in ("undo", "marker")
        ):
            yield f"{fork.id} kept step {key}, which {run_id} has not recorded: {other}"
        elif result is not None and (step.state, step.output) != ("succeeded", result):
            yield f"{fork.id} has the result {step.output!r} of {key}, which was set to {result!r}"
        elif result is None and step.kind == "call" and step[2:3] + step[18:20] != other[2:3] + other[18:20]:
            yield f"{fork.id} kept {step} of {other}"
        elif step.kind == "call" and step.effect != other.effect_key:
            yield f"{fork.id} kept {key} as its own effect {step.effect_key}"
    for key in request.results:
        if key not in kept:
            yield f"{fork.id} did not keep {key}, whose result was set"
    yield from _missing(request, fork.id, origin, kept, checker.runs[run_id].state)


def _missing(
    request: ForkRequest, fork_id: str, origin: dict[str, Step], kept: dict[str, Step], state: str
) -> Iterator[str]:
    """Yield what a fork had to keep and did not. Where the point lies is easy to say for these three kinds."""
    if request.input is not None and request.start is None:
        if kept:
            yield f"{fork_id} begins anew, and kept {sorted(kept)}"
        return
    start = origin.get(request.start or "")
    # Where the code got the first result that is set: what was there early, it got where it asked.
    got = [
        max(step.delivered_seq, step.after_seq)
        for key in request.results
        if (step := origin[key]).delivered_seq
    ]
    if start is not None and start.key in kept:
        yield f"{fork_id} begins with {start.key}, and kept it"
    for step in origin.values():
        if (
            step.kind != "call"
            or step.state != "succeeded"
            or step.key.startswith(UNDO_PREFIX)
            or step.key in kept
            or step is start
        ):
            continue
        before_start = start is not None and 0 < (step.delivered_seq or 0) <= start.after_seq
        at_the_end = (
            start is None
            and not request.results
            and state in ("running", "succeeded")
            and step.delivered_seq != 0
        )
        before_set = start is None and bool(got) and 0 < (step.delivered_seq or 0) < min(got)
        if before_start or at_the_end or before_set:
            yield f"{fork_id} did not keep {step.key}, which was recorded before its point"


class Forks(Part):
    name = "forks"
    share = 0.1
    checks = (I35_forks_keep_what_was_recorded,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._made: dict[str, Fork] = {}
        self._done = False

    def begin(self, simulation: Simulation) -> None:
        simulation.drive(self._fork_some(simulation))

    def heal(self, simulation: Simulation) -> None:
        simulation.drive(self._send(simulation))

    async def _fork_some(self, simulation: Simulation) -> None:
        dice = self.dice
        for number in range(dice.randint(1, 4)):
            await asyncio.sleep(0.2 + dice.random() * 1.5)
            runs = [
                run
                for run in simulation.checker.runs.values()
                if run.id not in simulation.pruned and run.id in {*simulation.plans, *self._made}
            ]
            if runs and simulation.loop.now < UNTIL_S:
                await self._fork(simulation, dice.choice(runs).id, f"f{number}")
        self._done = True

    async def _fork(self, simulation: Simulation, run_id: str, fork_id: str) -> None:
        """Fork one run. The answer may get lost, so the fork that is there in the end counts."""
        plan = self._made[run_id].before if run_id in self._made else simulation.plans[run_id]
        asked = self._draw_request(simulation, run_id, fork_id, plan)
        if asked is None:
            return
        request, plan = asked
        simulation.log(f"fork {run_id} {request}")
        # The commit that makes the fork is seen before its answer, so it must be known what it is.
        self._made[fork_id] = Fork(plan, plan, frozenset(request.results))
        await simulation.asked(partial(_forked, run_id, request), tries=3)
        if fork_id not in simulation.checker.runs:
            del self._made[fork_id]

    def _draw_request(
        self, simulation: Simulation, run_id: str, fork_id: str, plan: program.Plan
    ) -> tuple[ForkRequest, program.Plan] | None:
        """Draw what somebody wants of a run, from what is recorded of it."""
        dice = self.dice
        calls = [
            step
            for step in simulation.checker.steps.values()
            if step.run_id == run_id and step.kind == "call" and not step.key.startswith(UNDO_PREFIX)
        ]
        match dice.choice(("end", "start", "start", "set", "set", "start and set", "input")):
            case "start" if calls:
                return ForkRequest(start=dice.choice(calls).key, id=fork_id), plan
            case "set" | "start and set" as kind if calls:
                chosen = dice.sample(calls, min(len(calls), dice.choice((1, 1, 2, 3))))
                results: dict[str, bytes] = {}
                for step in chosen:
                    tag = _tag(simulation, step)
                    if tag is None:
                        return None
                    results[step.key] = json.dumps(tag + EDITED).encode()
                others = [step.key for step in calls if step.key not in results]
                start = dice.choice(others) if kind == "start and set" and others else None
                return ForkRequest(start=start, results=results, id=fork_id), plan
            case "input":
                plan = ["seq", [["do", "book", 500, "quick"], ["do", "work", 501, "quick"]]]
                raw = json.dumps({"plan": json.dumps(plan)}).encode()
                return ForkRequest(input=raw, digest=codec.digest(raw), id=fork_id), plan
        return ForkRequest(id=fork_id), plan

    async def _send(self, simulation: Simulation) -> None:
        """Send to forks the signals that they wait for. Those that the other run got later are not theirs."""
        while True:
            await asyncio.sleep(1.0)
            for fork_id in list(self._made):
                run = simulation.checker.runs.get(fork_id)
                if run is not None and run.state == "running":
                    await simulation._send_again(fork_id)

    def observe(self, simulation: Simulation, commit: Commit) -> None:
        if commit.verb == "fork_run":
            request: ForkRequest = commit.asked["request"]
            kind = "with a result" if request.results else "anew" if request.is_anew else "from a step"
            kind = "where it was" if kind == "from a step" and request.start is None else kind
            simulation.sometimes(f"a run was forked {kind}")
            fork_id = request.id or ""
            self._go_on(simulation, commit.asked["run_id"], request)
            for _, _, after in commit.steps:
                edited = _edited_tag(after)
                if edited is not None:
                    simulation.checker.skipped.add((after.run_id, after.n))
                    made = self._made[fork_id]
                    self._made[fork_id] = made._replace(plan=_edited(made.plan, edited))

    def _go_on(self, simulation: Simulation, run_id: str, request: ForkRequest) -> None:
        """The fork of a fork that has continued as new begins in that generation: what was set in those before holds."""
        origin = self._made.get(run_id)
        if origin is None or request.input is not None or simulation.checker.runs[run_id].generation == 1:
            return
        made = self._made[request.id or ""]
        plan = ["again", origin.plan[1], made.before[2]]
        self._made[request.id or ""] = made._replace(before=plan, plan=plan)

    def waits_for(self, simulation: Simulation) -> Iterator[str]:
        if not self._done:
            yield "somebody still forks"

    def endings(self, simulation: Simulation) -> Iterator[str]:
        """A fork executed nothing that it kept. If it succeeded, its result is as its plan demands."""
        checker = simulation.checker
        for fork_id, (_, plan, edited) in self._made.items():
            run = checker.runs[fork_id]
            for step in checker.steps.values():
                if step.run_id == fork_id and step.effect is not None and step.n <= run.kept_n:
                    if simulation.book.begun[f"{fork_id}::{step.key}"]:
                        yield f"G3 {fork_id} kept step {step.key} and executed it again"
            if run.state != "succeeded":
                continue
            try:
                expected = program.expected_result(plan)
            except program.MustFail:
                if not any(skipped.startswith(fork_id) for skipped, _ in checker.skipped) or not edited:
                    yield f"G2 run {fork_id} succeeded, but had to fail: {plan}"
                continue
            result = json.loads(json.loads(run.output or b"null"))
            if edited and "late" in json.dumps(result):
                # The code gave up a part, so another step may have asked under a key whose result was set.
                expected = _with_set_results(result, expected)
            if not program.matches(result, expected):
                yield f"G2 the fork {fork_id} returned {result}, not {expected}"
            if edited and str(EDITED)[:1] in json.dumps(result):
                simulation.sometimes("a fork returned a result that was set")


def _edited_tag(step: Step) -> int | None:
    """Return the tag of a step whose result somebody has set, here or in the run that this one came from."""
    value = json.loads(step.output) if step.kind == "call" and step.output else None
    return value - EDITED if isinstance(value, int) and value >= EDITED else None


def _tag(simulation: Simulation, step: Step) -> int | None:
    raw = simulation.connection.execute(
        "SELECT input FROM steps WHERE run_id = ? AND n = ?", (step.run_id, step.n)
    ).get
    found = json.loads(raw) if raw else {}
    return found.get("tag") if "how" in found else None


def _edited(plan: Any, tag: int) -> Any:
    """Return the plan in which the step with this tag returns another result."""
    if not isinstance(plan, list):
        return plan
    if plan[:1] == ["do"] and plan[2] == tag:
        return ["do", plan[1], tag + EDITED, "quick"]
    if plan[:1] == [tag] and len(plan) == 2:  # an item of a map
        return [tag + EDITED, "quick"]
    return [_edited(part, tag) for part in plan]


async def _forked(run_id: str, request: ForkRequest, process: Process) -> Any:
    return await carried_out(process, process.store.operators.fork_run(run_id, request, "sim"))


def _with_set_results(result: Any, expected: Any) -> Any:
    """Return what is expected, but for the places where the fork returned a result that was set."""
    if isinstance(result, list) and isinstance(expected, list) and len(result) == len(expected):
        return [_with_set_results(*pair) for pair in zip(result, expected, strict=True)]
    return program.ANY if isinstance(result, int) and result > EDITED else expected


@mutant("a fork never undoes what it kept", within=100, part="forks")
def forks_undo_what_they_kept(stack: ExitStack) -> None:
    sql(stack, "copy_run", "ELSE base_n END, ?3", "ELSE base_n END, iif(?7 IS NULL, ?3, 0)")


@mutant("a result that was set holds", within=60, part="forks")
def set_results_do_not_hold(stack: ExitStack) -> None:
    sql(stack, "copy_steps", "coalesce(?3, output)", "coalesce(output, ?3)")


@mutant("a fork keeps what was recorded before its point", within=60, part="forks")
def forks_forget_what_was_recorded(stack: ExitStack) -> None:
    real = forks.plan_fork

    def plan_fork(*asked: Any) -> Any:
        found = real(*asked)
        return found._replace(steps=found.steps[:-1]) if len(found.steps) > 1 else found

    code(stack, forks, "plan_fork", plan_fork)


@mutant("a fork executes what comes after its point", within=60, part="forks")
def forks_keep_the_step_they_begin_with(stack: ExitStack) -> None:
    real = forks._Point.place

    def place(self: Any, row: Any, *, is_set: bool) -> int | None:
        return real(self._replace(before_n=self.before_n + 1, start_n=None), row, is_set=is_set)

    code(stack, forks._Point, "place", place)
