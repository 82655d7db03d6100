"""Finds what is wrong with one run of an exploration. Pure: it takes how the run ended, and yields findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from holdfast import codec
from holdfast.lifecycle import STEP_ENDED
from holdfast.model import UNDO_PREFIX, RunRow, RunState, StepKind, StepRow, StepState
from holdfast.testing.replays import History
from holdfast.testing.report import NOT_UNDONE, OTHERWISE, TWICE, Boundary, Finding
from holdfast.workflow.step import Step
from holdfast.workflow.undo import Undo

RUN_ID = "simulated"
OPEN = frozenset({RunState.PENDING, RunState.RUNNING})
FAILED = frozenset({RunState.FAILED, RunState.UNDONE, RunState.CANCELLED})
Rows: TypeAlias = dict[str, StepRow]
"""The steps of all runs, by `here.key`."""


class Execution:
    """One execution of a step."""

    __slots__ = ("counted", "effect", "ledger", "reads_key", "step", "undone")

    def __init__(self, step: Step[Any, Any], effect: str, undone: str | None, ledger: set[str]) -> None:
        self.step, self.effect, self.undone, self.ledger = step, effect, undone, ledger
        self.reads_key = False
        self.counted: list[str | None] = []
        """The keys of the effects that the test counted itself, by `sim.effect`."""


class RunOutcomes(NamedTuple):
    """How one run of an exploration ended, with all runs that belong to it."""

    histories: dict[str, History]
    """By run id."""
    executions: list[Execution]
    """Those that came to their end. One that raised counts as one without an effect."""
    why: str
    """What the run waits for; empty if it has ended."""
    awaits: list[str]
    """If it has not ended, the names of the signals it waits for."""

    @property
    def row(self) -> RunRow:
        return self.histories[RUN_ID].run

    @property
    def rows(self) -> Rows:
        return {f"{row.run_id}::{row.key}": row for one in self.histories.values() for row in one.steps}


class CountRules(NamedTuple):
    """The rules for what counts as an effect."""

    trust_keys: bool
    idempotent: frozenset[str]
    final: frozenset[str]
    option: Callable[[str, Sequence[str]], str]
    """Returns how a person declares that steps may run twice (`idempotent`), or that nothing has to undo them
    (`final`)."""

    def times(self, executions: list[Execution]) -> int:
        """Return how often the effect of one call happened."""
        counted = [key for execution in executions for key in execution.counted]
        if counted:
            return len({key for key in counted if key is not None}) + counted.count(None)
        if executions[0].step.name in self.idempotent:
            return 1
        if self.trust_keys and all(execution.reads_key for execution in executions):
            return 1
        return len(executions)


def judge(
    ended: RunOutcomes, clean: RunOutcomes | None, boundary: Boundary, counting: CountRules
) -> Iterator[Finding]:
    """Yield what went wrong at this boundary. `clean` is how the same run ends when no process dies."""
    for effect, executions in by_effect(ended.executions).items():
        times = counting.times(executions)
        if times > 1:
            why = _why_twice(executions, counting)
            yield Finding(TWICE, executions[0].step.name, effect, boundary, times, why)
    yield from _left_behind(ended, clean, boundary, counting)
    words, why = _otherwise(ended, clean)
    if words:
        yield Finding(OTHERWISE, ended.row.workflow, words, boundary, 1, why)


def by_effect(executions: list[Execution]) -> dict[str, list[Execution]]:
    found: dict[str, list[Execution]] = {}
    for execution in executions:
        found.setdefault(execution.effect, []).append(execution)
    return found


def short(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def shown(effect: str) -> str:
    """Return the key that the explored run's code knows the step by; a child run's id stands before its steps' keys."""
    run_id, _, key = effect.partition("::")
    return key if run_id == RUN_ID else f"{run_id.removeprefix(f'{RUN_ID}/')}::{key}"


def _why_twice(executions: list[Execution], counting: CountRules) -> str:
    step = executions[0].step
    if executions[0].counted:
        return "it reported the effects itself, by sim.effect()"
    key = "here.undoes or here.key" if isinstance(step, Undo) else "here.key"
    idempotent = counting.option("idempotent", [short(step.name)])
    return (
        f"it does not pass on {key}: pass it to the service that does the work, which then knows that it was asked "
        f"before; if running twice does no harm, say so: {idempotent}"
    )


# --- what is left behind ------------------------------------------------------------------------------------------------


def _left_behind(
    ended: RunOutcomes, clean: RunOutcomes | None, boundary: Boundary, counting: CountRules
) -> Iterator[Finding]:
    """Yield the effects that should have been undone, and were not."""
    if ended.why or ended.row.state is RunState.STUCK:
        return
    undone = _undone(ended)
    undone_there = _undone(clean) if clean is not None and _had_the_same_steps(ended, clean) else frozenset()
    by_hand = any(row.kind is StepKind.UNDO for row in ended.rows.values())
    for effect, executions in by_effect(ended.executions).items():
        step = executions[0].step
        if executions[0].undone is not None or effect in undone:
            continue
        if step.name in counting.final or isinstance(step, Undo):
            continue
        if not _must_be_undone(effect, ended.histories) and effect not in undone_there:
            continue
        if step.undone_by is not None:
            why = f"it has an undo, {short(step.undone_by.name)}, which did not run"
        elif by_hand or not any(execution.reads_key or execution.counted for execution in executions):
            continue  # it is unknown whether it changed anything
        else:
            name = short(step.name)
            final = counting.option("final", [name])
            why = f"it has no undo: declare one with @{name}.undo; if nothing has to undo it, say so: {final}"
        yield Finding(NOT_UNDONE, step.name, effect, boundary, 1, why)


def _undone(ended: RunOutcomes) -> frozenset[str]:
    return frozenset(each.undone for each in ended.executions if each.undone is not None)


def _had_the_same_steps(ended: RunOutcomes, clean: RunOutcomes) -> bool:
    """True if both had the same steps with the same outcomes. Then a saga that was undone in one is undone in the
    other."""
    return _step_states(ended) == _step_states(clean)


def _step_states(ended: RunOutcomes) -> dict[str, StepState]:
    return {effect: row.state for effect, row in ended.rows.items() if not row.key.startswith(UNDO_PREFIX)}


def _must_be_undone(effect: str, histories: Mapping[str, History]) -> bool:
    """True if the run that asked for it, or one above that, failed, and no `keep()` between them protects it."""
    run_id, _, key = effect.partition("::")
    n = next((row.n for row in histories[run_id].steps if row.key == key), 0)
    at: str | None = run_id
    while at is not None and at in histories:
        run = histories[at].run
        if n <= run.kept_n:
            return False
        if run.state in FAILED:
            return True
        at, n = run.parent_id, run.parent_n or 0
    return False


# --- how it ended -------------------------------------------------------------------------------------------------------


def _otherwise(ended: RunOutcomes, clean: RunOutcomes | None) -> tuple[str, str]:
    """If the crash kept the run from ending, or made it fail, return how it ended and why that is wrong.

    After a crash results may come in another order, or after a timeout. That may lead to another end, which is the
    workflow's own decision. A step that fails when it is executed again is not the workflow's decision.
    """
    if ended.awaits:
        return "", ""  # the test promised no such signal: the explorer reports this as not tried
    if ended.why:
        alone = clean is not None and bool(clean.why)
        return (
            f"did not end: {ended.why}",
            "this happens without a crash, too" if alone else "without a crash, it ends",
        )
    if clean is None or _kind(ended.row) == _kind(clean.row) or ended.row.state is RunState.SUCCEEDED:
        return "", ""
    words = f"ended {ended.row.state} with {_value(ended.row)}"
    undisturbed = f"undisturbed, it ends {clean.row.state} with {_value(clean.row)}"
    if ended.row.state is RunState.STUCK:
        return words, undisturbed
    before = clean.rows
    for effect, row in ended.rows.items():
        was = before.get(effect)
        if was is None or row.state is not StepState.FAILED or row.digest != was.digest:
            continue
        if was.state is StepState.SUCCEEDED:
            error = codec.describe_error(row.error) if row.error else "no error is recorded"
            again = f"{shown(effect)} succeeds there, and failed here when it was executed again: {error}"
            return words, f"{undisturbed}; {again}"
    return "", ""


def open_signals(histories: Mapping[str, History]) -> list[str]:
    """Return the names of the signals that open runs wait for."""
    return sorted(
        {
            row.name
            for one in histories.values()
            if one.run.state in OPEN
            for row in one.steps
            if row.kind is StepKind.SIGNAL and row.state not in STEP_ENDED
        }
    )


def _kind(run: RunRow) -> str:
    """Return the run's state, or `failed` for `undone`: whether there is anything to undo depends on the crash."""
    return RunState.FAILED if run.state is RunState.UNDONE else run.state


def _value(run: RunRow) -> str:
    text = (run.output or b"no result").decode() if run.error is None else codec.describe_error(run.error)
    return text if len(text) < 120 else text[:119] + "…"
