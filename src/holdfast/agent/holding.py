"""One step an agent holds, from lease to report."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

from holdfast.model import Counted
from holdfast.policy import Retry
from holdfast.workflow.here import Attempting
from holdfast.workflow.step import Step


class Holding:
    __slots__ = (
        "arguments",
        "attempt",
        "began_at",
        "begun",
        "excused",
        "fence",
        "here",
        "issued_at",
        "key",
        "losses",
        "lost",
        "n",
        "probe",
        "progress",
        "retry",
        "run_id",
        "started",
        "step",
        "task",
        "throttled",
        "timed_out",
        "timeout_s",
        "timeouts",
        "twin",
        "undoes",
        "unsure",
        "weight",
    )

    def __init__(
        self,
        step: Step[Any, Any],
        run_id: str,
        n: int,
        key: str,
        fence: int,
        arguments: Any,
        *,
        retry: Retry,
        timeout_s: float | None,
        issued_at: float,
        attempt: int = 1,
        unsure: bool = False,
        undoes: str | None = None,
        probe: tuple[str, int] | None = None,
        twin: bool = False,
    ) -> None:
        self.step, self.run_id, self.n, self.key, self.fence = step, run_id, n, key, fence
        self.arguments, self.retry, self.timeout_s, self.issued_at = arguments, retry, timeout_s, issued_at
        self.attempt = attempt
        self.losses = self.excused = self.timeouts = self.throttled = 0
        self.began_at = -math.inf
        """Of a suspect, on the monotonic clock."""
        self.task: asyncio.Task[None] | None = None
        self.here: Attempting | None = None
        self.progress: str | None = None
        self.begun = False
        """Its code runs. A task that is cancelled before that never runs, not even to be told."""
        self.timed_out = False
        self.started: float | None = None
        """On the monotonic clock, if this attempt's duration is to be counted; as so many."""
        self.weight = 1
        self.twin = twin
        """Not the step itself, but its twin: `fence` is the twin's, and nothing but success comes of it."""
        self.undoes = undoes
        """`here.key` of the step that this one undoes."""
        self.unsure = unsure
        """An earlier attempt may have had its effect."""
        self.probe = probe
        """(breaker, round) that this attempt is a probe of."""
        self.lost = False
        """The lease is gone: whatever comes of it is not reported."""

    def count(self, step: Counted) -> None:
        """What earlier attempts cost."""
        self.losses, self.excused = step.losses, step.excused
        self.timeouts, self.throttled = step.timeouts, step.throttled

    def beat(self, progress: float | None, note: str) -> None:
        """Keep what the step says of itself until the agent next writes progress."""
        self.progress = json.dumps({"fraction": progress, "note": note})
