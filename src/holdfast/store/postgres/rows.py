"""Rows of the database as values, and values as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

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


def columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """Rows as the arrays that a statement unnests."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]
