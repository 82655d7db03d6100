"""One step an agent holds, from lease to report."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import msgspec

from holdfast.model import Counted
from holdfast.policy import Retry
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

    def count(self, step: Counted) -> None:
        """What earlier attempts cost."""
        self.losses, self.excused = step.losses, step.excused
        self.timeouts, self.throttled = step.timeouts, step.throttled

    def beat(self, progress: float | None, note: str) -> None:
        """Keep what the step says of itself until the agent next writes progress."""
        self.progress = json.dumps({"fraction": progress, "note": note})
