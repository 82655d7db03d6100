"""What follows an attempt whose end only a Supervisor saw: its agent is gone, or did not end it in time.

The rules are those of `policy`, by which agents decide, too; here they are applied to rows. Pure.
"""

from __future__ import annotations

import json
import random as chance
from typing import NamedTuple

import msgspec

from holdfast import policy
from holdfast.config import Config
from holdfast.errors import StepFailed, StepLost, StepTimeout
from holdfast.model import Ending, Failure, StepState
from holdfast.programs import name_of
from holdfast.store.operations import Op, Quarantine, Report, RetryStep

OVERDUE = "the attempt did not complete in time, and its agent did not say so"
PLACES = {Ending.LOST: "agent lost", Ending.TIMED_OUT: "attempt overdue"}


class Held(NamedTuple):
    """A running step, as far as the verdict needs it."""

    run_id: str
    n: int
    fence: int
    name: str
    attempt: int
    losses: int
    excused: int
    timeouts: int
    throttled: int
    attempts_max: int
    retry: str | None
    issued_at: float


class Remedy(NamedTuple):
    """What becomes of a step that is taken from its agent."""

    step: Held
    state: StepState
    after_s: float
    """Until it is ready, if it is not in quarantine."""
    losses: int
    timeouts: int
    fingerprint: str | None = None

    @property
    def is_told(self) -> bool:
        """Does it end here, for a person to see? Then the error is the step's."""
        return self.state is StepState.FAILED or self.fingerprint is not None


class Loss(NamedTuple):
    """How attempts ended."""

    ending: Ending
    failure: Failure
    error: StepFailed

    @property
    def kind(self) -> str:
        return name_of(type(self.error))

    @property
    def place(self) -> str:
        return PLACES[self.ending]

    @property
    def told(self) -> str:
        """The error as it is recorded."""
        return json.dumps({"type": self.kind, "message": str(self.error), "ending": self.ending})


def lost(node: str, reason: str) -> Loss:
    return Loss(Ending.LOST, Failure.LOST, StepLost(f"agent {node} was lost: {reason}"))


def overdue() -> Loss:
    return Loss(Ending.TIMED_OUT, Failure.TIMEOUT, StepTimeout(OVERDUE))


def remedy(step: Held, loss: Loss, *, now: float, random: chance.Random, config: Config) -> Remedy:
    verdict = policy.decide(
        policy.policy_of(step.retry, step.attempts_max),
        loss.failure,
        step,
        error=loss.error,
        elapsed_s=now - step.issued_at,
        random=random,
        config=config,
    )
    counts = int(loss.failure is Failure.LOST), int(loss.failure is Failure.TIMEOUT)
    if isinstance(verdict, policy.RetryAfter):
        return Remedy(step, StepState.READY, verdict.after_s, *counts)
    if isinstance(verdict, policy.GiveUp):
        return Remedy(step, StepState.FAILED, 0.0, *counts)
    fingerprint = policy.fingerprint(step.name, loss.kind, loss.place)
    return Remedy(step, StepState.READY, 0.0, *counts, fingerprint)


def instead(op: Op, error: BaseException) -> Report | RetryStep | Quarantine | None:
    """What is written of a step when what its agent had to say of it cannot be. Not its outcome again: the step would be executed
    until that can be written. None: nothing, the step goes back to the queue."""
    if not isinstance(op, Report | RetryStep | Quarantine):
        return None
    kind, words = name_of(type(error)), f"what the step said cannot be recorded: {error}"
    told = json.dumps({"type": kind, "message": words, "ending": Ending.FAILED, "unsure": True})
    if isinstance(op, Report):
        return msgspec.structs.replace(op, state=StepState.FAILED, output=None, error=told)
    return msgspec.structs.replace(op, error=told)


def counts_of(op: Op) -> tuple[int, int, int, int]:
    """What a failed attempt adds to (excused, losses, timeouts, throttled)."""
    assert isinstance(op, RetryStep | Quarantine)
    if isinstance(op, RetryStep) and op.excused:
        return 1, 0, 0, 0
    failure = op.failure
    lost = failure is Failure.LOST or failure is Failure.POISON
    return 0, int(lost), int(failure is Failure.TIMEOUT), int(failure is Failure.THROTTLED)
