"""Finds out whether the code that is loaded here fits the recorded history of a run. Pure functions.

They do what a scheduler would do after it claimed the run. They replay its code, or plan its undos, and deliver the
outcomes and signals that are recorded and not delivered yet. They write nothing and execute no step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from holdfast.decider.commands import Turn
from holdfast.decider.decider import Decider
from holdfast.decider.history import described, unreadable
from holdfast.decider.undo_plan import Undoing
from holdfast.errors import Bug, Drift, HoldfastError
from holdfast.lifecycle import STEP_ENDED
from holdfast.model import Lane, RunRow, RunState, StepKind, StepRow, in_words
from holdfast.namespaces import bare
from holdfast.scheduler.driver import bare_steps
from holdfast.store.answers import ClaimedRun
from holdfast.workflow.pages import code_of
from holdfast.workflow.step import Step
from holdfast.workflow.workflow import Workflow, Workflows

Find = Callable[[str], Step[Any, Any] | None]

UNKNOWN_WORKFLOW, UNKNOWN_VERSION = "unknown workflow", "unknown version"
UNKNOWN_STEP, UNKNOWN_UNDO = "unknown step", "unknown undo"
REPLAY, BUG = "replay", "bug"
PASSED_OVER = "passed over"
"""The code does not ask for a recorded step. This is allowed and only worth a note: a renamed step is a new step, and
will be executed."""
SET_ASIDE = "set aside"
"""A signal that was sent will not reach the run. This is allowed and only worth a note: the run goes on waiting."""


class Misfit(NamedTuple):
    """One difference between the code and the history."""

    kind: str
    """One of the kinds above, or the kind of a `Drift`: drift, input, result, signal, update, marker, fails."""
    message: str
    step: str | None = None
    """The key of the step that differs."""
    recorded: str | None = None
    asked: str | None = None

    @property
    def is_note(self) -> bool:
        """True if this is worth knowing, but no reason not to deploy the code."""
        return self.kind in (PASSED_OVER, SET_ASIDE)


class Fit(NamedTuple):
    """What became of a run's code on its history."""

    misfits: list[Misfit]
    ways: Mapping[str, bool]
    """The markers that are decided for the run, or would be. True is the new way."""


def fit(
    history: ClaimedRun,
    *,
    workflows: Workflows,
    find: Find,
    lanes: Mapping[int, Lane],
) -> Fit:
    """Return where this run does not fit the workflows and steps that are loaded, and its markers. Each of its children
    is a run of its own that is checked for itself, also while it is undone."""
    run = replace(history.run, workflow=bare(history.run.workflow))
    history = ClaimedRun(run, list(bare_steps(run, history.steps)), history.signals, history.inherited)
    if _is_undoing(run):
        return Fit(_undos(history, find, lanes), {})
    workflow = code_of(workflows.get((run.workflow, run.version)), run.input)
    if workflow is None:
        return Fit([_unknown(run, workflows)], {})
    found, ways = _replay(history, workflow, find)
    return Fit([*found, *_steps(history, find), *_undos(history, find, lanes)], ways)


def _is_undoing(run: RunRow) -> bool:
    """True if the run undoes itself, or did before it was held or stuck."""
    # A run is stuck because an undo gave up, or because its steps wait for a person. The latter resumes as running.
    is_undo_stuck = run.state is RunState.STUCK and run.resume is not RunState.RUNNING
    return RunState.UNDOING in {run.state, run.resume} or is_undo_stuck


def _unknown(run: RunRow, workflows: Workflows) -> Misfit:
    versions = [version for name, version in workflows if name == run.workflow]
    if not versions:
        return Misfit(UNKNOWN_WORKFLOW, f"this code has no workflow {run.workflow}")
    known = " and ".join(sorted(versions))
    plural = "versions" if len(versions) > 1 else "version"
    return Misfit(
        UNKNOWN_VERSION,
        f"it is a run of version {run.version}; this code has {plural} {known}: "
        "keep the old version beside the new one until its runs have ended",
    )


def _replay(history: ClaimedRun, workflow: Workflow[Any, Any], find: Find) -> Fit:
    decider = Decider.of_run(workflow, history.run, inherited=history.inherited)
    try:
        decider.replay(history.steps, [row for row in history.signals if row.delivered_seq])
        turn = decider.take()
        found = _passed_over(decider.unasked(), turn, find)
        names = _deliver_rest(decider, history)
        for seq, why in [*turn.set_aside, *decider.take().set_aside]:
            message = f"the signal {names.get(seq)!r} would be set aside: {why}"
            found.append(Misfit(SET_ASIDE, message))
    except Drift as drift:
        found = [_misfit(drift)]
    except Bug as bug:
        found = [Misfit(BUG, f"its workflow code raises {bug}")]
    except HoldfastError as error:
        found = [Misfit(REPLAY, f"it cannot be replayed: {error}")]
    finally:
        decider.close()
    return Fit(found, decider.ways)


def _misfit(drift: Drift) -> Misfit:
    return Misfit(drift.kind, str(drift), drift.key or None, drift.recorded, drift.asked)


def _steps(history: ClaimedRun, find: Find) -> list[Misfit]:
    """Find the steps that are still to be executed, and whose input an agent with this code cannot read."""
    found: list[Misfit] = []
    for row in history.steps:
        step = find(row.name) if row.kind is StepKind.CALL and row.state not in STEP_ENDED else None
        if step is not None and row.input is not None:
            try:
                step.shape.decode_whole(row.input)
            except HoldfastError as wrong:
                what = f"the input of step {row.key!r}"
                found.append(_misfit(unreadable(row.key, "input", what, row.input, wrong)))
    return found


def _passed_over(unasked: list[StepRow], turn: Turn, find: Find) -> list[Misfit]:
    """Find the calls and children that are recorded and that the code does not ask for."""
    new = [issue.key for issue in turn.issued if issue.kind in (StepKind.CALL, StepKind.CHILD)]
    asked = f"{', '.join(new[:3])}{' …' if len(new) > 3 else ''}" if new else None
    instead = f"; it now asks for {asked}" if asked else ""
    found: list[Misfit] = []
    for row in unasked:
        if row.kind not in (StepKind.CALL, StepKind.CHILD) or row.delivered_seq == 0:
            continue
        recorded = described(row.kind, row.name, row.input)
        if row.kind is StepKind.CALL and row.state not in STEP_ENDED and find(row.name) is None:
            message = (
                f"step {row.key!r} {in_words(row.state)}, and this code has no {row.name}: "
                f"no agent with this code can execute it{instead}"
            )
            found.append(Misfit(UNKNOWN_STEP, message, row.key, recorded, asked))
        else:
            message = (
                f"the code does not ask for step {row.key!r} (yet), which {in_words(row.state)}{instead}"
            )
            found.append(Misfit(PASSED_OVER, message, row.key, recorded, asked))
    return found


def _deliver_rest(decider: Decider, history: ClaimedRun) -> dict[int, str]:
    """Deliver the outcomes and signals that are recorded and not delivered yet. Return the names of all signals, by the
    number in the history that each has or would get."""
    for step in history.steps:
        if step.delivered_seq is None and step.state in STEP_ENDED and decider.expects(step.n):
            decider.deliver(step.outcome, whole=True)
    names = {row.delivered_seq: row.name for row in history.signals if row.delivered_seq}
    for row in history.signals:
        if row.delivered_seq is None and not decider.done:
            names[decider.deliver_signal(row.name, row.payload, row.sent_at)] = row.name
    return names


def _undos(history: ClaimedRun, find: Find, lanes: Mapping[int, Lane]) -> list[Misfit]:
    """Find the undos that the run needs, or would need if it failed now, and that this code cannot execute."""
    plan = Undoing(history.run, lanes=lanes, find=find)
    plan.replay(history.steps, [row for row in history.signals if row.delivered_seq])
    found: list[Misfit] = []
    for key, undo, raw in plan.left():
        step = find(undo)
        if step is None:
            found.append(
                Misfit(UNKNOWN_UNDO, f"this code has no {undo}, which undoes step {key!r}", key, undo)
            )
            continue
        try:
            step.shape.decode_whole(raw)
        except HoldfastError as wrong:
            what = f"what {undo} would get to undo step {key!r}"
            found.append(_misfit(unreadable(key, "input", what, raw, wrong)))
    return found
