"""What must be true of a run that has ended: its result, its effects, and their undoing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.model import UNDO_PREFIX, undone_key
from tests.simulation import program
from tests.simulation.ledger import DONE, UNDONE

if TYPE_CHECKING:
    from tests.simulation.invariants import Run, Step
    from tests.simulation.simulation import Simulation


def check_endings(simulation: Simulation) -> Iterator[str]:
    checker = simulation.checker
    steps: dict[str, list[Step]] = {run_id: [] for run_id in checker.runs}
    for step in checker.steps.values():
        steps[step.run_id].append(step)
    lanes = dict(checker.connection.execute("SELECT id, undo FROM lanes").fetchall())
    retried = {run.retry_of for run in checker.runs.values()}
    for run in checker.runs.values():
        if run.id in retried:
            continue  # its effects belong to the run that went on from it
        yield from failed_for_a_reason(run)
        if run.parent_id is None:
            yield from result_is_as_expected(simulation, run)
            yield from sagas_are_undone(simulation, run)
        yield from cancels_are_obeyed(simulation, run)
        yield from G3_no_more_than_counted(simulation, run, steps[run.id])
        yield from G5_effects_are_undone(simulation, run, steps, lanes)
        yield from I13_undone_in_reverse(run, steps[run.id], checker.undoing_from.get(run.id, 0))
        yield from no_result_without_effect(simulation, run, steps[run.id])
    yield from no_scheduler_held_a_run(simulation)
    if simulation.result.seed % 5:
        return  # the doctor checks again what was checked after every commit, and takes long
    for name, meaning, count in checker.connection.execute(_doctor()).fetchall():
        if count:
            yield f"doctor {name}: {meaning}: {count}"


def _doctor() -> str:
    from holdfast.store.sqlite.verbs import STATEMENTS
    from holdfast.store.verbs import Verb

    return STATEMENTS[Verb.doctor]


def result_is_as_expected(simulation: Simulation, run: Run) -> Iterator[str]:
    """A run that succeeded has the result that its plan demands. A run that must fail did not succeed."""
    root = simulation.root_of(run.id)
    if run.state != "succeeded" or root not in simulation.plans:
        return
    plan = simulation.plans[root]
    result = json.loads(json.loads(run.output or b"null"))
    try:
        expected = program.expected_result(plan)
    except program.MustFail:
        if any(f"{skipped}/".startswith(f"{run.id}/") for skipped, _ in simulation.checker.skipped):
            return  # an operator gave a result to the step that had to fail
        yield f"G2 run {run.id} succeeded, but had to fail: {plan}"
        return
    if not program.matches(result, expected):
        yield f"G2 run {run.id} returned {result}, not {expected}"


def sagas_are_undone(simulation: Simulation, run: Run) -> Iterator[str]:
    """What a saga did that failed is undone, though its run succeeded."""
    if run.state != "succeeded" or run.id not in simulation.plans or run.generation > 1:
        return
    if '"keep"' in json.dumps(simulation.plans[run.id]):
        return  # `keep` protects what came before it, wherever it is in the plan
    effects, by_tag = simulation.book.effects, simulation.book.by_tag
    for tag in _undone_tags(simulation.plans[run.id], inside=False):
        key = by_tag.get((run.id, tag))
        if key is not None and effects.get(key) == DONE:
            yield f"G5 {key} belongs to a saga that failed, and was not undone"


def _undone_tags(plan: Any, *, inside: bool) -> list[int]:
    match plan:
        case ["child", *_] | ["again", *_]:
            return []
        case ["saga", part, fails]:
            return _undone_tags(part, inside=inside or fails)
        case ["do", "book" | "pay", tag, _]:
            return [tag] if inside else []
        case [*parts]:
            return [tag for part in parts for tag in _undone_tags(part, inside=inside)]
    return []


def failed_for_a_reason(run: Run) -> Iterator[str]:
    """A signal that does not fit does not end a run."""
    if run.error is not None:
        failure = json.loads(run.error)
        if failure["type"].endswith("InvalidInput") and " result: " not in failure["message"]:
            yield f"G2 run {run.id} is {run.state} because of {failure['message']}"


def cancels_are_obeyed(simulation: Simulation, run: Run) -> Iterator[str]:
    """A run that got a cancel does not go on and succeed."""
    if run.state == "succeeded":
        for signal in simulation.checker.rows["signals"].values():
            last = simulation.checker.last_seq[run.id]
            if (
                signal.run_id == run.id
                and signal.name == "$cancel"
                and 0 < (signal.delivered_seq or 0) < last
            ):
                yield f"I9 run {run.id} was cancelled at {signal.delivered_seq} of {last} and succeeded"


def G3_no_more_than_counted(simulation: Simulation, run: Run, steps: list[Step]) -> Iterator[str]:
    """A step's code ran at most as often as attempts were counted, and once more if it has a twin that began."""
    for step in steps:
        begun = simulation.book.begun[f"{run.id}::{step.key}"]
        if begun > step.attempt:
            twin = simulation.checker.twins.get((run.id, step.n))
            if twin is None or twin.started_at is None or begun > step.attempt + 1:
                yield f"G3 step {step.key} of {run.id} ran {begun} times, {step.attempt} were counted"


def _undone(run: Run) -> bool:
    return run.ending is not None and run.state in ("undone", "failed", "cancelled")


def G5_effects_are_undone(
    simulation: Simulation, run: Run, steps: dict[str, list[Step]], lanes: dict[int, str]
) -> Iterator[str]:
    """In a run that was undone, every effect that has an undo is undone. In any other run, only what a saga undid."""
    effects = simulation.book.effects
    undone: dict[str, str] = {}
    for step in steps[run.id]:
        if step.key.startswith(UNDO_PREFIX) and step.state == "succeeded":
            origin = undone_key(step.key)[0]
            if origin in undone:
                yield f"G5 step {origin} of {run.id} was undone twice: by {undone[origin]} and {step.key}"
            undone[origin] = step.key
    for step in steps[run.id]:
        if step.kind != "call" or step.key.startswith(UNDO_PREFIX) or not lanes.get(step.lane):
            continue
        key, kept = step.effect_key, step.n <= max(run.kept_n, run.base_n)
        if _undone(run) and not kept and effects.get(key) == DONE:
            yield f"G5 run {run.id} is {run.state} and step {step.key} ({step.state}) was not undone"
        if step.key in undone and effects.get(key) == DONE:
            yield f"G5 the undo of {step.key} of {run.id} succeeded and did nothing"
        if (
            run.parent_id is None
            and not _undone(run)
            and step.key not in undone
            and effects.get(key) == UNDONE
        ):
            yield f"G5 run {run.id} is {run.state} and step {step.key} was undone for no reason"


def I13_undone_in_reverse(run: Run, steps: list[Step], undoing_from: int) -> Iterator[str]:
    """What had completed before another step was issued is undone after that one. Undos up to `undoing_from` belong to
    sagas, each of which has its own order. What never began had no effect, so its undo may come at any time."""
    if not _undone(run):
        return
    by_key = {step.key: step for step in steps}
    began: dict[int, list[int]] = {}
    ended: dict[int, int] = {}
    for step in sorted(steps, key=lambda step: step.n):
        origin = by_key.get(undone_key(step.key)[0]) if step.key.startswith(UNDO_PREFIX) else None
        if origin is not None and origin.kind == "call" and step.delivered_seq:
            if step.n > undoing_from:
                began.setdefault(origin.n, []).append(step.after_seq)
            ended.setdefault(
                origin.n, step.delivered_seq
            )  # the first try counts: an undo that gave up does not delay others
    for first in steps:
        for later in steps:
            if (
                first.n in began
                and later.n in ended
                and later.attempt
                and first.delivered_seq
                and later.after_seq >= first.delivered_seq
            ):
                if any(at < ended[later.n] for at in began[first.n]):
                    yield f"I13 {first.key} of {run.id} was undone before {later.key}, which came after it"


def no_result_without_effect(simulation: Simulation, run: Run, steps: list[Step]) -> Iterator[str]:
    """A step that succeeded had its effect."""
    for step in steps:
        if step.kind == "call" and step.state == "succeeded" and not step.key.startswith(UNDO_PREFIX):
            if (run.id, step.n) in simulation.checker.skipped:
                continue
            if step.effect_key not in simulation.book.effects and not step.key.endswith("tidy"):
                yield f"G2 step {step.key} of {run.id} succeeded and did nothing"


def no_scheduler_held_a_run(simulation: Simulation) -> Iterator[str]:
    """A scheduler holds a run only when its code has changed, and here it never does."""
    held = simulation.checker.connection.execute(
        "SELECT run_id, note FROM journal WHERE actor = 'scheduler' AND verb = 'hold'"
    ).fetchall()
    for run_id, note in held:
        yield f"I11 {run_id} was held by a scheduler: {note}"
