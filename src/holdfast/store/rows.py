"""Conversions between rows and the classes of model.py. A statement selects columns in the order of the class's
fields."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from holdfast.model import (
    Attempt,
    Breaker,
    BreakerState,
    Ending,
    Hold,
    HoldScope,
    Lane,
    LogRow,
    NewAlert,
    NewRun,
    Outcome,
    RunRow,
    RunState,
    StepKind,
    StepRow,
    StepState,
    TokenRow,
    Twin,
    TwinState,
)

Row = Any

# These are tables because `RunState(value)` takes four times as long as a lookup, and a history has thousands of steps.
_RUN_STATES: dict[str | None, RunState | None] = {state.value: state for state in RunState} | {None: None}
_STEP_STATES = {state.value: state for state in StepState}
_STEP_KINDS = {kind.value: kind for kind in StepKind}
_RUN_STATE, _RUN_RESUME = (RunRow.__struct_fields__.index(field) for field in ("state", "resume"))
_STEP_STATE, _STEP_KIND = (StepRow.__struct_fields__.index(field) for field in ("state", "kind"))


def run_of(row: Row) -> RunRow:
    values = list(row)
    values[_RUN_STATE] = _RUN_STATES[values[_RUN_STATE]]
    values[_RUN_RESUME] = _RUN_STATES[values[_RUN_RESUME]]
    return RunRow(*values)


def step_of(row: Row) -> StepRow:
    values = list(row)
    values[_STEP_STATE] = _STEP_STATES[values[_STEP_STATE]]
    values[_STEP_KIND] = _STEP_KINDS[values[_STEP_KIND]]
    return StepRow(*values)


def outcome_of(row: Row) -> Outcome:
    """Return the outcome of an ended step that somebody else has recorded. So it has no fence."""
    run_id, n, state, output, error, at = row
    return Outcome(run_id, n, _STEP_STATES[state], output, error, at)


def attempt_of(row: Row) -> Attempt:
    run_id, n, attempt, ending, *rest = row
    return Attempt(run_id, n, attempt, Ending(ending), *rest)


def log_of(row: Row) -> LogRow:
    n, attempt, twin, *rest = row
    return LogRow(n, attempt, bool(twin), *rest)


def twin_of(row: Row) -> Twin:
    run_id, n, state, *rest = row
    return Twin(run_id, n, TwinState(state), *rest)


def breaker_of(row: Row) -> Breaker:
    values = dict(zip(Breaker.__struct_fields__, row, strict=True))
    values["state"], values["forced"] = BreakerState(values["state"]), bool(values["forced"])
    return Breaker(**values)


def hold_of(row: Row) -> Hold:
    scope, *rest = row
    return Hold(HoldScope(scope), *rest)


def token_of(row: Row) -> TokenRow:
    values = dict(zip(TokenRow.__struct_fields__, row, strict=True))
    values["payloads"] = bool(values["payloads"])
    return TokenRow(**values)


def lane_of(row: Row) -> Lane:
    lane, name, needs, undo, depends = row
    return Lane(lane, name, _needs(needs), undo, depends)


@lru_cache(maxsize=1024)
def _needs(text: str) -> tuple[str, ...]:
    """Return the labels in the column `needs`. Nodes read all lanes again and again, and most of them need the same."""
    return tuple(json.loads(text))


def seconds_left(row: Row | None) -> float | None:
    """Return how long it is until something is due. The row has when that is, and the time of the store's clock: the
    clock of whoever asks may differ from it. None if there is nothing."""
    return None if row is None or row[0] is None else row[0] - row[1]


def start_row(run: NewRun) -> tuple[Any, ...]:
    """Return the values of `start_runs`."""
    return (
        run.id,
        run.namespace,
        run.workflow,
        run.version,
        run.priority,
        run.input,
        run.digest,
        tags_text(run),
        None if run.detached else run.parent_id,
        None if run.detached else run.parent_n,
        run.timeout_s,
        run.parent_id if run.detached else None,
        run.parent_n if run.detached else None,
        run.begin_at,
        run.begin_in_s,
        run.fair,
        json.dumps(run.queue.under) if run.queue.under else None,
        *run.queue.columns,
        run.due_at,
        run.due_in_s,
    )


def tags_text(run: NewRun) -> str | None:
    return json.dumps(run.tags) if run.tags else None


def alert_row(alert: NewAlert) -> tuple[Any, ...]:
    """Return the values of `raise_alerts`."""
    return (alert.kind, alert.level, alert.key, alert.run_id, alert.message, alert.times, alert.about)
