"""Rows as nouns. Statements name their columns in the order of the nouns' fields."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import apsw

from holdfast.model import Attempt, Ending, NewRun, Run, RunState, Signal, Step, StepKind, StepState
from holdfast.store.children import JoinOutcome

Row = Sequence[Any]


def fetch(connection: apsw.Connection, verb: str, parameters: Sequence[Any] = ()) -> list[Any]:
    """All rows of a statement. Never half of them: an unfinished statement keeps its snapshot open."""
    return connection.execute(verb, parameters).fetchall()


_RUN_STATES: dict[str | None, RunState | None] = {state.value: state for state in RunState} | {None: None}
STEP_STATES = {state.value: state for state in StepState}
_KINDS = {kind.value: kind for kind in StepKind}
_RUN_STATE = Run.__struct_fields__.index("state")
_RUN_RESUME = Run.__struct_fields__.index("resume")
_STEP_KIND = Step.__struct_fields__.index("kind")
_STEP_STATE = Step.__struct_fields__.index("state")


def run_of(row: Row) -> Run:
    values = list(row)
    values[_RUN_STATE] = _RUN_STATES[values[_RUN_STATE]]
    values[_RUN_RESUME] = _RUN_STATES[values[_RUN_RESUME]]
    return Run(*values)


def step_of(row: Row) -> Step:
    values = list(row)
    values[_STEP_KIND] = _KINDS[values[_STEP_KIND]]
    values[_STEP_STATE] = STEP_STATES[values[_STEP_STATE]]
    return Step(*values)


def signal_of(row: Row) -> Signal:
    return Signal(*row)


def attempt_of(row: Row) -> Attempt:
    run_id, n, attempt, ending, *rest = row
    return Attempt(run_id, n, attempt, Ending(ending), *rest)


def start_row(run: NewRun, now: float) -> tuple[Any, ...]:
    """The parameters of `start`."""
    return (
        run.id,
        run.namespace,
        run.workflow,
        run.version,
        run.priority,
        run.input,
        run.digest,
        tags_text(run),
        run.parent_id,
        run.parent_n,
        None if run.timeout_s is None else now + run.timeout_s,
        now,
    )


def told_row(told: JoinOutcome, now: float) -> tuple[Any, ...]:
    """The parameters of `tell_parents`."""
    return (told.state, told.output, told.error, now, told.run_id, told.n)


def tags_text(run: NewRun) -> str | None:
    return json.dumps(run.tags) if run.tags else None
