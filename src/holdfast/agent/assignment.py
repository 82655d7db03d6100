"""One step that an agent has, from the claim to the report."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from holdfast import codec
from holdfast.decider.commands import Issue
from holdfast.decider.effect import undone_effect
from holdfast.model import LogPart, effect_key
from holdfast.policy import Retry
from holdfast.store.answers import ClaimedRequest, ClaimedStep
from holdfast.workflow.here import CurrentAttempt
from holdfast.workflow.step import Step


class AttemptSpan(Protocol):
    """A span that says how the attempt ended."""

    def end(self, outcome: str, error: BaseException | None = None) -> None: ...


class Assignment(msgspec.Struct, eq=False):
    """A step that an agent has claimed. It is a msgspec struct because there is one for every attempt: making one takes
    a third of the time that another class needs."""

    step: Step[Any, Any]
    run_id: str
    n: int
    key: str
    fence: int
    arguments: Any
    retry: Retry
    timeout_s: float | None
    issued_at: float
    attempt: int = 1
    unsure: bool = False
    """An earlier attempt may have had its effect."""
    undoes: str | None = None
    """`here.key` of the step that this one undoes."""
    probe: tuple[str, int] | None = None
    """(breaker, round) if this attempt is a probe."""
    twin: bool = False
    """True if this is the twin of the step. Then `fence` is the twin's, and only a success changes the step."""
    losses: int = 0
    excused: int = 0
    timeouts: int = 0
    throttled: int = 0
    began_at: float = -math.inf
    """When the attempt of a suspect began, on the monotonic clock."""
    span: AttemptSpan | None = None
    """The span of the attempt, if traces are on."""
    task: asyncio.Task[None] | None = None
    here: CurrentAttempt | None = None
    progress: str | None = None
    logs: Sequence[LogPart] = ()
    """What the attempt has logged and nobody has written yet. Set when the attempt is over."""
    begun: bool = False
    """True if the task has begun to run. A task that is cancelled before that never runs, so nothing in it can report
    the cancellation."""
    timed_out: bool = False
    started: float | None = None
    """When the attempt began, on the monotonic clock, if its duration is to be counted."""
    weight: int = 1
    """For how many attempts this duration counts."""
    adapts: tuple[int, ...] = ()
    """The adaptive limits that it is under."""
    adapts_from: float = 0.0
    """When the attempt under them began, on the monotonic clock."""
    lost: bool = False
    """The agent no longer has the step, and reports nothing about it."""
    ended: bool = False
    """The attempt is over, and its place is free."""
    callback: str | None = None
    """Where another system posts the result, if it is the request for a callback."""

    @classmethod
    def of_issue(cls, run_id: str, n: int, issue: Issue, issued_at: float) -> Assignment:
        """Return the first attempt of a step that this node's scheduler issued with a lease for this agent."""
        step = issue.step
        assert step is not None
        return cls(
            step,
            run_id,
            n,
            issue.effect or effect_key(run_id, issue.key),
            1,
            issue.arguments,
            step.retry,
            step.timeout_s,
            issued_at,
            undoes=undone_effect(issue.key, issue.input),
        )

    @classmethod
    def of_claim(
        cls,
        claimed: ClaimedStep,
        step: Step[Any, Any],
        *,
        probe: tuple[str, int] | None = None,
        twin: bool = False,
    ) -> Assignment:
        """Return the assignment for a claimed step. Its arguments are not read yet."""
        return cls(
            step,
            claimed.run_id,
            claimed.n,
            claimed.effect or effect_key(claimed.run_id, claimed.key),
            claimed.fence,
            None,
            Retry.decode(claimed.retry) if claimed.retry else step.retry,
            claimed.timeout_s,
            claimed.issued_at,
            claimed.attempt,
            unsure=codec.is_unsure(claimed.losses, claimed.error),
            undoes=undone_effect(claimed.key, claimed.input),
            probe=probe,
            twin=twin,
            losses=claimed.losses,
            excused=claimed.excused,
            timeouts=claimed.timeouts,
            throttled=claimed.throttled,
            callback=claimed.callback if type(claimed) is ClaimedRequest else None,
        )

    @property
    def ref(self) -> tuple[str, int, int]:
        """(run, n, fence): every write about the step names these."""
        return self.run_id, self.n, self.fence

    def beat(self, progress: float | None, note: str) -> None:
        """Keep the progress that the step reports until the agent writes it."""
        self.progress = json.dumps({"fraction": progress, "note": note})
