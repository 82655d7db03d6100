"""The states of runs and steps, and every change from one state to another: who makes it, and by which statement.

The tables of transitions are a specification. Changes do not go through them, and nothing reads them at run time: what
guards a change is the WHERE of the statement that makes it. Tests compare the tables with what is written elsewhere and
with what happens:

- the tables name every statement of both dialects that writes a state, and no other one (`tests/store/test_lifecycle.py`);
- in the differential tests and in the simulation, no statement makes a change that the tables do not list for it
  (`tests/lifecycle.py`);
- the diagrams in the documentation say the same as the tables (`tests/examples/test_docs.py`).

The sets of states below the tables are what all parts use at run time. The CHECK constraints of both dialects say the same
as these sets (`tests/store/test_schema.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from holdfast.model import RunState, StepState


class By(StrEnum):
    CALLER = "caller"
    SCHEDULER = "scheduler"
    AGENT = "agent"
    SUPERVISOR = "supervisor"
    OPERATOR = "operator"
    OUTSIDE = "outside"
    """A person, or another system."""


class Transition(NamedTuple):
    name: str
    by: frozenset[By]
    sources: frozenset[str]
    """The states from which the change starts. Empty if the row is new."""
    target: str
    statements: frozenset[str]
    """The statements that make this change in the store. Each one is a verb of `store.verbs`."""


def _row(name: str, by: Iterable[By], sources: Iterable[str], target: str, statements: str) -> Transition:
    return Transition(name, frozenset(by), frozenset(sources), target, frozenset(statements.split()))


_R, _S = RunState, StepState

RUN_TRANSITIONS = (
    _row("start", [By.CALLER, By.SCHEDULER], [], _R.PENDING, "start_runs"),
    _row("retry", [By.OPERATOR], [], _R.PENDING, "copy_run"),
    _row("begin", [By.SCHEDULER], [], _R.RUNNING, "begin_runs"),
    # A run that ends in its first hop is recorded only once, when it has ended.
    _row("begin", [By.SCHEDULER], [], _R.SUCCEEDED, "begin_runs"),
    _row("begin", [By.SCHEDULER], [], _R.FAILED, "begin_runs"),
    _row("claim", [By.SCHEDULER], [_R.PENDING, _R.RUNNING], _R.RUNNING, "claim_run take_runs"),
    _row("claim", [By.SCHEDULER], [_R.UNDOING], _R.UNDOING, "claim_run"),
    _row("free", [By.SCHEDULER, By.SUPERVISOR], [_R.RUNNING], _R.PENDING, "park_runs free_runs queue_run"),
    _row("succeed", [By.SCHEDULER], [_R.RUNNING], _R.SUCCEEDED, "close_runs"),
    # A child that should undo itself, and had nothing to undo.
    _row("succeed", [By.SCHEDULER], [_R.UNDOING], _R.SUCCEEDED, "close_runs"),
    _row("fail", [By.SCHEDULER], [_R.RUNNING, _R.UNDOING], _R.FAILED, "close_runs"),
    _row("cancel", [By.OPERATOR], [_R.PENDING], _R.CANCELLED, "cancel_pending"),
    _row("cancel", [By.SCHEDULER], [_R.RUNNING, _R.UNDOING], _R.CANCELLED, "close_runs"),
    _row("undo", [By.SCHEDULER], [_R.RUNNING], _R.UNDOING, "undo_runs"),
    _row("finish_undo", [By.SCHEDULER], [_R.UNDOING], _R.UNDONE, "close_runs"),
    _row("revoke", [By.SCHEDULER], [_R.SUCCEEDED], _R.UNDOING, "undo_children"),
    _row("stick", [By.SCHEDULER], [_R.UNDOING], _R.STUCK, "close_runs"),
    _row("stick", [By.SUPERVISOR], [_R.RUNNING, _R.UNDOING], _R.STUCK, "stick_runs"),
    _row("unstick", [By.OPERATOR], [_R.HELD, _R.STUCK], _R.UNDOING, "unstick"),
    _row("resolve", [By.OPERATOR], [_R.STUCK], _R.RUNNING, "unstick_quarantined"),
    _row("resolve", [By.OPERATOR], [_R.STUCK], _R.UNDOING, "unstick_quarantined"),
    _row(
        "hold",
        [By.OPERATOR, By.SCHEDULER, By.AGENT],
        [_R.PENDING, _R.RUNNING, _R.UNDOING],
        _R.HELD,
        "hold hold_run hold_runs",
    ),
    _row("release", [By.OPERATOR], [_R.HELD], _R.PENDING, "release"),
    _row("release", [By.OPERATOR], [_R.HELD], _R.UNDOING, "release"),
)

STEP_TRANSITIONS = (
    _row("issue", [By.SCHEDULER], [], _S.READY, "issue_steps issue_queued"),
    _row("issue", [By.SCHEDULER], [], _S.WAITING, "issue_steps"),
    # The scheduler hands the step over to an agent of the same node, in the commit that issues it.
    _row("issue", [By.SCHEDULER], [], _S.RUNNING, "issue_steps issue_queued"),
    _row("keep", [By.OPERATOR], [], _S.SUCCEEDED, "copy_steps"),
    _row("keep", [By.OPERATOR], [], _S.FAILED, "copy_steps"),
    _row("keep", [By.OPERATOR], [], _S.CANCELLED, "copy_steps"),
    _row("claim", [By.AGENT], [_S.READY], _S.RUNNING, "claim_steps"),
    _row("succeed", [By.AGENT, By.SCHEDULER], [_S.RUNNING, _S.WAITING], _S.SUCCEEDED, "record_outcomes"),
    _row("succeed", [By.SCHEDULER], [_S.WAITING], _S.SUCCEEDED, "end_waits end_child_steps"),
    _row("outrun", [By.AGENT], [_S.RUNNING, _S.READY], _S.SUCCEEDED, "outrun_step"),
    _row("fail", [By.AGENT, By.SCHEDULER], [_S.RUNNING], _S.FAILED, "record_outcomes"),
    _row("fail", [By.SCHEDULER], [_S.WAITING], _S.FAILED, "end_child_steps"),
    _row("fail", [By.SUPERVISOR], [_S.RUNNING], _S.FAILED, "reclaim_steps"),
    _row("retry", [By.AGENT], [_S.RUNNING], _S.READY, "retry_steps"),
    _row("hand_back", [By.AGENT], [_S.RUNNING], _S.READY, "hand_back_steps"),
    _row("reclaim", [By.SUPERVISOR], [_S.RUNNING], _S.READY, "reclaim_steps"),
    _row("quarantine", [By.AGENT, By.SUPERVISOR], [_S.RUNNING], _S.READY, "quarantine_steps reclaim_steps"),
    _row("release", [By.OPERATOR], [_S.READY], _S.READY, "resolve_steps"),
    _row("skip", [By.OPERATOR], [_S.READY], _S.SUCCEEDED, "resolve_steps"),
    _row("give_up", [By.OPERATOR], [_S.READY], _S.FAILED, "resolve_steps"),
    _row("fire", [By.SCHEDULER], [_S.WAITING], _S.SUCCEEDED, "fire_timers"),
    # From outside: people have answered, or another system has. Or nobody did, and the leader ends the wait.
    _row("answer", [By.OUTSIDE], [_S.WAITING], _S.SUCCEEDED, "answer_steps"),
    _row("answer", [By.OUTSIDE, By.SUPERVISOR], [_S.WAITING], _S.FAILED, "answer_steps"),
    _row("cancel", [By.SCHEDULER], [_S.WAITING, _S.READY, _S.RUNNING], _S.CANCELLED, "drop_steps"),
)

RUN_ENDED = frozenset({_R.SUCCEEDED, _R.FAILED, _R.UNDONE, _R.CANCELLED})
"""The final states of a run. A run leaves them only if it is a child that succeeded and that its parent wants undone. `stuck`
is not final: a person moves the run on."""
WENT_WRONG = frozenset({_R.FAILED, _R.UNDONE})
"""The ends that count as failures. Somebody wanted what was cancelled."""
RUN_ACTIVE = frozenset({_R.RUNNING, _R.UNDOING})
"""The states in which a scheduler may own the run."""
STEP_ENDED = frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLED})
STEP_LIVE = frozenset({_S.WAITING, _S.READY, _S.RUNNING})
