"""One step that an agent has, from lease to report."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import msgspec

from holdfast import codec
from holdfast.decider import Issue
from holdfast.decider.effect import undone_effect
from holdfast.model import effect_key
from holdfast.policy import Retry
from holdfast.store.answers import ClaimedStep
from holdfast.workflow.here import Attempting
from holdfast.workflow.step import Step


class Assignment(msgspec.Struct, eq=False):
    """A struct because there is one for every step: it is made in a third of the time."""

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
    """(breaker, round) that this attempt is a probe of."""
    twin: bool = False
    """Not the step itself, but its twin: `fence` is the twin's, and nothing but success comes of it."""
    losses: int = 0
    excused: int = 0
    timeouts: int = 0
    throttled: int = 0
    began_at: float = -math.inf
    """Of a suspect, on the monotonic clock."""
    task: asyncio.Task[None] | None = None
    here: Attempting | None = None
    progress: str | None = None
    begun: bool = False
    """Its code runs. A task that is cancelled before that never runs, not even to be told."""
    timed_out: bool = False
    started: float | None = None
    """On the monotonic clock, if this attempt's duration is to be counted; as so many."""
    weight: int = 1
    lost: bool = False
    """The lease is gone: whatever comes of it is not reported."""
    ended: bool = False
    """Its place was given back."""

    @classmethod
    def of_issue(cls, run_id: str, n: int, issue: Issue, issued_at: float) -> Assignment:
        """A step that this node's scheduler issued already leased to this agent: its first attempt."""
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
        """A step that was claimed. Its arguments are still to be read."""
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
        )

    @property
    def place(self) -> tuple[str, int, int]:
        """(run, n, fence): what every write about it names."""
        return self.run_id, self.n, self.fence

    def beat(self, progress: float | None, note: str) -> None:
        """Keep what the step says of itself until the agent next writes progress."""
        self.progress = json.dumps({"fraction": progress, "note": note})
