"""What must be true of a run that has ended: its result, its effects, and their undoing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.model import UNDO_PREFIX, undone_key
from holdfast.node import Node as HostingNode
from tests.simulation import program
from tests.simulation.ledger import DONE, UNDONE

if TYPE_CHECKING:
    from tests.simulation.invariants import Run, Step
    from tests.simulation.simulation import Simulation


"""From a run and n of a step to the child that the step waits for."""
Moment = tuple[float, float]
NOT_COMPLETED: Moment = (float("inf"), 0.0)


def check_endings(simulation: Simulation) -> Iterator[str]:
    checker = simulation.checker
    steps: dict[str, list[Step]] = {run_id: [] for run_id in checker.runs}
    for step in checker.steps.values():
        steps[step.run_id].append(step)
    lanes = dict(checker.connection.execute("SELECT id, undo FROM lanes").fetchall())
    retried = {run.retry_of for run in checker.runs.values()}
    steered = {run_id for run_id, act in simulation.checker.steered if act in ("skip", "abandon")}
    steered |= {run.id for run in checker.runs.values() if steered.intersection(simulation.chain_of(run.id))}
    for run in checker.runs.values():
        if run.id in retried:
            continue  # its effects belong to the run that went on from it
        yield from failed_for_a_reason(run)
        if run.parent_id is None:
            yield from result_is_as_expected(simulation, run)
            yield from sagas_are_undone(simulation, run, steps, steered)
            yield from kept_stays(simulation, run, steps[run.id])
            if run.id not in steered:
                yield from what_it_relies_on_is_there(simulation, run)
        yield from cancels_are_obeyed(simulation, run)
        yield from G3_no_more_than_counted(simulation, run, steps[run.id])
        if run.id in steered:
            continue  # operators decided that not everything is undone
        yield from G5_effects_are_undone(simulation, run, steps, lanes)
        yield from I13_undone_in_reverse(run, steps[run.id], checker.undoing_from.get(run.id, 0))
        yield from G5_by_hand(run, steps[run.id])
        yield from no_result_without_effect(simulation, run, steps[run.id])
    yield from no_scheduler_held_a_run(simulation)
    yield from no_place_is_lost(simulation)
    for part in simulation.parts:
        yield from part.endings(simulation)
    for name, meaning, count in simulation.reader("doctor").execute(_doctor()).fetchall():
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
    heard: list[str] = []
    if not program.matches(result, expected, heard):
        yield f"G2 run {run.id} returned {result}, not {expected}"
        return
    sent = Counter(
        json.loads(signal.payload)
        for signal in simulation.checker.rows["signals"].values()
        if signal.run_id == run.id
        and signal.name == "note"
        and signal.delivered_seq
        and signal.payload[:1] == b'"'
    )
    if run.generation == 1 and run.id not in simulation.pruned and not Counter(heard) <= sent:
        yield f"G2 the waits of run {run.id} returned {heard}, and the signals it got were {dict(sent)}"


def sagas_are_undone(
    simulation: Simulation, run: Run, steps: dict[str, list[Step]], steered: set[str]
) -> Iterator[str]:
    """What a saga did that failed is undone, though its run succeeded. So is what its children did, unless an operator
    decided otherwise."""
    if run.state != "succeeded" or run.id not in simulation.plans or run.generation > 1:
        return
    effects, by_tag, runs = simulation.book.effects, simulation.book.by_tag, simulation.checker.runs
    family = [run]
    for one in family:
        family += [
            child
            for child in runs.values()
            if child.parent_id == one.id
            and child.id not in steered
            and not simulation.has_own_plan(child.id)
            # A child's own `keep` protects the children that it had awaited before. The saga is around all of this child.
            and (one is run or (child.parent_n or 0) > one.kept_n)
        ]
    tags = _undone_tags(simulation.plans[run.id], inside=False)
    for one in family:
        places = {step.effect_key: step.n for step in steps[one.id]}
        for tag in tags:
            key = by_tag.get((one.id, tag))
            # `keep` protects what came before it, wherever it is in the plan.
            if key is not None and effects.get(key) == DONE and places.get(key, 0) > one.kept_n:
                yield f"G5 {key} belongs to a saga that failed, and was not undone"


def kept_stays(simulation: Simulation, run: Run, steps: list[Step]) -> Iterator[str]:
    """What came before a point of no return is not undone. The point was passed if a step that comes after it was
    issued."""
    if run.id not in simulation.plans or run.generation > 1 or run.retry_of is not None:
        return
    effects, by_tag = simulation.book.effects, simulation.book.by_tag
    issued = {tag for (run_id, tag) in by_tag if run_id == run.id}
    for before, after in _points_of_no_return(simulation.plans[run.id], []):
        if issued.intersection(after):
            for tag in before:
                key = by_tag.get((run.id, tag))
                if key is not None and effects.get(key) == UNDONE:
                    yield f"G5 {key} came before the point of no return, and was undone"


def what_it_relies_on_is_there(simulation: Simulation, run: Run) -> Iterator[str]:
    """A run that succeeded, maybe as the retry of others, has had each effect of its plan at least once without undoing it,
    unless its plan says that a saga fails or an exception is caught."""
    root = simulation.root_of(run.id)
    if (
        run.state != "succeeded"
        or root not in simulation.plans
        or simulation.is_fork(run)
        or run.generation > 1
    ):
        return
    for tag in _needed_tags(simulation.plans[root]):
        keys = simulation.book.chains.get((root, tag), {})
        if keys and all(simulation.book.effects[key] == UNDONE for key in keys):
            yield f"G2 run {run.id} succeeded, and what it did with {list(keys)} is undone"


def _needed_tags(plan: Any) -> list[int]:
    match plan:
        case ["do", name, tag, _] if name in program.UNDOABLE:
            return [tag]
        case ["seq" | "par" | "group", parts]:
            return [tag for part in parts for tag in _needed_tags(part)]
        case ["saga", part, False] if '"named"' not in (text := json.dumps(part)) and '"child"' not in text:
            return _needed_tags(
                part
            )  # a run that it waits for may raise what the code around the saga catches
    return []


def _points_of_no_return(plan: Any, before: list[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield for each `keep` the tags of steps that come before it for sure, and of those that come after it for sure.
    `before` gets the tags of the steps in this plan that came before whatever follows it."""
    match plan:
        case ["seq", parts]:
            for i, part in enumerate(parts):
                if part == ["keep"]:
                    yield list(before), [tag for later in parts[i + 1 :] for tag in _certain_tags(later)]
                else:
                    yield from _points_of_no_return(part, before)
        case ["saga", part, False]:
            yield from _points_of_no_return(part, before)
        case ["saga", part, True]:
            # When it ends, it undoes what no `keep` in it has protected.
            yield from _points_of_no_return(part, list(before))
        case ["do", name, tag, _] | ["try", ["do", name, tag, _]] if name in program.UNDOABLE:
            before.append(tag)


def _certain_tags(plan: Any) -> list[int]:
    match plan:
        case ["do", _, tag, _]:
            return [tag]
        case ["seq" | "par" | "group", parts]:
            return [tag for part in parts for tag in _certain_tags(part)]
        case ["saga", part, _] | ["try", part]:
            return _certain_tags(part)
    return []


def _undone_tags(plan: Any, *, inside: bool) -> list[int]:
    match plan:
        case ["again", *_]:
            return []
        case ["saga", part, fails]:
            return _undone_tags(part, inside=inside or fails)
        case ["do", name, tag, _] if name in program.UNDOABLE:
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
    """A run that got a cancel does not go on and succeed. If its code had returned before, and nothing was there to undo
    when its parent asked for it, it stays as it was."""
    if run.state == "succeeded" and run.id not in simulation.checker.undoing_from:
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
            and not (kept and simulation.is_fork(run))  # that was undone by the run that did it
        ):
            yield f"G5 run {run.id} is {run.state} and step {step.key} was undone for no reason"


def G5_by_hand(run: Run, steps: list[Step]) -> Iterator[str]:
    """In a run that was undone, each undo that its code registered with `undo_with` was called."""
    if _undone(run):
        called = {
            undone_key(step.key)[0]
            for step in steps
            if step.key.startswith(UNDO_PREFIX) and step.state == "succeeded"
        }
        for step in steps:
            if step.kind == "undo" and step.n > max(run.kept_n, run.base_n) and step.key not in called:
                yield f"G5 run {run.id} is {run.state} and did not call {step.key}, which was to undo something"


def I13_undone_in_reverse(run: Run, steps: list[Step], undoing_from: int) -> Iterator[str]:
    """What had completed before something else was asked for is undone after that. It may be a step, an undo that the
    code registered, or all that a child did. Undos up to `undoing_from` belong to sagas, each of which has its own
    order. What never began had no effect, so its undo may come at any time."""
    if not _undone(run):
        return
    undos: dict[str, list[Step]] = {}
    for step in sorted(steps, key=lambda step: step.n):
        if step.key.startswith(UNDO_PREFIX) and step.delivered_seq:
            undos.setdefault(undone_key(step.key)[0], []).append(step)
    members: list[tuple[str, Moment, Moment, list[int], int]] = []
    for step in steps:
        if not (step.kind in ("undo", "child") or (step.kind == "call" and step.attempt)):
            continue
        found = undos.get(step.key, [])
        if found:
            began = [undo.after_seq for undo in found if undo.n > undoing_from]
            # The first try counts: an undo that gave up does not delay others.
            ended = found[0].delivered_seq or 0
            asked: Moment = (step.after_seq, float(step.n))
            done = (step.delivered_seq, 0.0) if step.delivered_seq else NOT_COMPLETED
            members.append(
                (step.key, asked, (asked[0], asked[1] + 0.5) if step.kind == "undo" else done, began, ended)
            )
    for first, _, completed, began, _ in members:
        for later, asked, _, _, ended in members:
            if completed < asked and any(at < ended for at in began):
                yield f"I13 {first} of {run.id} was undone before {later}, which came after it"


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


def no_place_is_lost(simulation: Simulation) -> Iterator[str]:
    """An agent that executes nothing has all its places for `async def` steps."""
    for process in simulation.working:
        agent = process.node.agent if isinstance(process._caller, HostingNode) else None
        if agent is not None and not agent.assignments and not agent.closing:
            free, most = agent.places._free_async, simulation.config.steps_max
            if free != most:
                yield f"I6 {process.name} executes nothing, and has {free} of {most} places"
