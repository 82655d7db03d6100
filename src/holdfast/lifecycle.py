"""States are data, with one door: every transition of a run or step, who may make it, from where, to where.

The diagram in the documentation, the CHECK constraints of both dialects and the names of the SQL statements are
tested against these tables.
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


class Transition(NamedTuple):
    name: str
    by: frozenset[By]
    sources: frozenset[str]
    target: str


def _row(name: str, by: Iterable[By], sources: Iterable[str], target: str) -> Transition:
    return Transition(name, frozenset(by), frozenset(sources), target)


_R, _S = RunState, StepState

RUN_TRANSITIONS = (
    _row("start", [By.CALLER, By.SCHEDULER], [], _R.PENDING),
    _row("begin", [By.SCHEDULER], [], _R.RUNNING),
    _row("claim", [By.SCHEDULER], [_R.PENDING, _R.RUNNING], _R.RUNNING),
    _row("claim", [By.SCHEDULER], [_R.UNDOING], _R.UNDOING),
    _row("free", [By.SCHEDULER, By.SUPERVISOR], [_R.RUNNING], _R.PENDING),
    _row("succeed", [By.SCHEDULER], [_R.RUNNING], _R.SUCCEEDED),
    _row("fail", [By.SCHEDULER], [_R.RUNNING, _R.UNDOING], _R.FAILED),
    _row("cancel", [By.SCHEDULER, By.OPERATOR], [_R.PENDING, _R.RUNNING, _R.UNDOING], _R.CANCELLED),
    _row("undo", [By.SCHEDULER], [_R.RUNNING], _R.UNDOING),
    _row("finish_undo", [By.SCHEDULER], [_R.UNDOING], _R.UNDONE),
    _row("revoke", [By.SCHEDULER], [_R.SUCCEEDED], _R.UNDONE),
    _row("stick", [By.SCHEDULER, By.SUPERVISOR], [_R.RUNNING, _R.UNDOING], _R.STUCK),
    _row("unstick", [By.OPERATOR], [_R.HELD, _R.STUCK], _R.UNDOING),
    _row("resolve", [By.OPERATOR], [_R.STUCK], _R.RUNNING),
    _row("hold", [By.OPERATOR, By.SCHEDULER, By.AGENT], [_R.PENDING, _R.RUNNING, _R.UNDOING], _R.HELD),
    _row("release", [By.OPERATOR], [_R.HELD], _R.PENDING),
    _row("release", [By.OPERATOR], [_R.HELD], _R.UNDOING),
)

STEP_TRANSITIONS = (
    _row("issue", [By.SCHEDULER], [], _S.READY),
    _row("claim", [By.AGENT], [_S.READY], _S.RUNNING),
    _row("succeed", [By.AGENT, By.SCHEDULER], [_S.RUNNING, _S.WAITING], _S.SUCCEEDED),
    _row("outrun", [By.AGENT], [_S.RUNNING, _S.READY], _S.SUCCEEDED),
    _row("fail", [By.AGENT, By.SCHEDULER, By.SUPERVISOR], [_S.RUNNING, _S.WAITING], _S.FAILED),
    _row("retry", [By.AGENT], [_S.RUNNING], _S.READY),
    _row("hand_back", [By.AGENT], [_S.RUNNING], _S.READY),
    _row("reclaim", [By.SUPERVISOR], [_S.RUNNING], _S.READY),
    _row("quarantine", [By.AGENT, By.SUPERVISOR], [_S.RUNNING], _S.READY),
    _row("release", [By.OPERATOR], [_S.READY], _S.READY),
    _row("skip", [By.OPERATOR], [_S.READY], _S.SUCCEEDED),
    _row("give_up", [By.OPERATOR], [_S.READY], _S.FAILED),
    _row("fire", [By.SCHEDULER], [_S.WAITING], _S.SUCCEEDED),
    _row("cancel", [By.SCHEDULER], [_S.WAITING, _S.READY, _S.RUNNING], _S.CANCELLED),
)

RUN_ENDED = frozenset({_R.SUCCEEDED, _R.FAILED, _R.UNDONE, _R.CANCELLED})
"""Terminal run states: absorbing, but for a child that succeeded and that its parent takes back. `stuck` is not one: a person
moves it on."""
RUN_ACTIVE = frozenset({_R.RUNNING, _R.UNDOING})
"""States in which a scheduler may own the run."""
STEP_ENDED = frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLED})
STEP_LIVE = frozenset({_S.WAITING, _S.READY, _S.RUNNING})
