"""Rows of the database as values."""

from __future__ import annotations

from operator import itemgetter

import asyncpg

from holdfast.model import Run, RunState, Signal, Step, StepKind, StepState

_RUN_STATES = {state.value: state for state in RunState}
STEP_STATES = {state.value: state for state in StepState}
_STEP_KINDS = {kind.value: kind for kind in StepKind}
_STEP_STATE, _STEP_KIND = (Step.__struct_fields__.index(field) for field in ("state", "kind"))
_step_values = itemgetter(*Step.__struct_fields__)


def run_of(row: asyncpg.Record) -> Run:
    fields = {field: row[field] for field in Run.__struct_fields__}
    fields["state"] = _RUN_STATES[row["state"]]
    fields["resume"] = _RUN_STATES.get(row["resume"])
    return Run(**fields)


def step_of(row: asyncpg.Record) -> Step:
    values = list(_step_values(row))
    values[_STEP_STATE], values[_STEP_KIND] = STEP_STATES[row["state"]], _STEP_KINDS[row["kind"]]
    return Step(*values)


def signal_of(row: asyncpg.Record) -> Signal:
    return Signal(*[row[field] for field in Signal.__struct_fields__])
