"""What the State Store says: whether a write held, and what reads and claims return."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from holdfast.model import (
    Alert,
    Breaker,
    Ending,
    Hold,
    Inherited,
    Outcome,
    Quarantined,
    RunRow,
    SignalRow,
    StepRow,
    StepState,
)


class PreconditionFailed(Exception):
    """A batch met a failed precondition and nothing of it was written: ask again, one operation at a time."""


class Answer(StrEnum):
    """What became of a write."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """The same write was accepted before: its reply was lost, nothing else is wrong."""
    FENCED = "fenced"
    """Somebody else holds the row now; nothing was changed."""


class ClaimedRun(msgspec.Struct):
    """A run this node now owns, with everything needed to replay it."""

    run: RunRow
    steps: list[StepRow]
    signals: list[SignalRow]
    inherited: list[Inherited] = []
    """From the run that this one is the retry of."""


class ClaimedStep(msgspec.Struct, gc=False):
    """A step this node's agent now holds."""

    run_id: str
    n: int
    key: str
    name: str
    fence: int
    attempt: int
    losses: int
    excused: int
    attempts_max: int
    timeout_s: float | None
    input: bytes
    retry: str | None
    checkpoint: bytes | None
    issued_at: float
    error: str | None = None
    """Of the last attempt, if there was one."""
    timeouts: int = 0
    throttled: int = 0
    effect: str | None = None
    """Its `here.key`, if that is an earlier run's."""


class Probes(msgspec.Struct):
    """Steps this node's agent now holds as probes of a breaker in this round."""

    round: int
    steps: list[ClaimedStep]


class ShutGates(msgspec.Struct):
    """What keeps steps from beginning: breakers that are not closed or have recent trouble or are forced, and all holds."""

    breakers: list[Breaker]
    holds: list[Hold]


class Rival(msgspec.Struct, frozen=True):
    """A live node with other code."""

    host: str
    pid: int
    offers: str


class Observation(msgspec.Struct):
    """Outcomes of one dependency's steps, as an agent tells them. `round` is that of the breaker, of probes only."""

    name: str
    ok: int
    failed: int
    error: str | None
    round: int | None = None


class Undelivered(msgspec.Struct):
    """What an owner has yet to deliver to its runs."""

    steps: list[Outcome]
    signals: list[SignalRow]


class SeenNode(msgspec.Struct, frozen=True):
    """A node, as far as the leader needs it to tell whether it is dead."""

    id: str
    host: str
    pid: int
    roles: str
    lease_until: float
    retired_at: float | None
    gone_at: float | None
    """When it was noticed that its process is gone."""


class LostStep(msgspec.Struct, frozen=True):
    """A running step whose agent is gone or did not end it in time, as far as the verdict about it needs it."""

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


class Remedy(msgspec.Struct, frozen=True):
    """What becomes of a step that is taken from its agent."""

    step: LostStep
    ending: Ending
    """How the attempt ended."""
    state: StepState
    after_s: float
    """When it is ready, unless it is in quarantine."""
    error: str
    """How the attempt ended, as it is recorded."""
    losses: int = 0
    timeouts: int = 0
    """What the attempt adds to the step's counts."""
    quarantine: Quarantined | None = None
    """The step's entry, if it goes into quarantine. `at` is the store's to say."""

    @property
    def needs_person(self) -> bool:
        """Does it end here, for a person to see? Then the error is the step's."""
        return self.state is StepState.FAILED or self.quarantine is not None


class Reclaimed(msgspec.Struct):
    """What reclaiming a node did."""

    runs: int
    steps: int
    failed: int
    quarantined: int = 0
    is_retired: bool = False
    """Nothing is left of the node."""


class FailureNote(msgspec.Struct):
    """A run or step that failed, or a signal that was set aside, as its writer noted it and as its rows say now. None: it
    is not there any more."""

    id: int
    run_id: str
    n: int
    """0: the run itself; -seq: the signal with this number, whose `name` and reason (`error`) these are."""
    workflow: str | None
    state: str | None
    parent_id: str | None
    error: str | None
    key: str | None = None
    name: str | None = None
    kind: str | None = None
    attempt: int = 0
    losses: int = 0
    excused: int = 0
    attempts_max: int = 1
    timeouts: int = 0
    throttled: int = 0
    fingerprint: str | None = None
    """If the step is in quarantine."""


class Overlong(msgspec.Struct, frozen=True):
    """A step that runs for longer than its bound."""

    run_id: str
    n: int
    fence: int
    key: str
    name: str
    lane: int
    agent: str
    started_at: float
    twinned: bool
    """It has or had a twin."""


class Late(msgspec.Struct):
    """What waits longest of its kind: `what` is a step's name, or a workflow and its version."""

    what: str
    run_id: str
    since: float


class Backlog(msgspec.Struct, frozen=True):
    """Steps that could run now and wait for an agent."""

    ready: int
    """How many, counted up to a limit."""
    since: float | None
    """Since when the oldest of them waits; None when there is none."""


class Route(msgspec.Struct):
    """Who is to be told of an alert: (delivery id, channel) each. `routed` is how far the alert is then: 1 its raising
    is on its way, 2 there is nothing more to tell."""

    alert_id: int
    event: str
    routed: int
    deliveries: Sequence[tuple[str, str]] = ()


class Sending(msgspec.Struct):
    """A delivery that is to be sent now, for the `attempt`th time."""

    id: str
    event: str
    attempt: int
    alert: Alert


class Pruned(msgspec.Struct):
    """What one batch of pruning did. `after` is where the next begins; None when nothing older is left."""

    runs: int
    rows: int
    after: tuple[float, str] | None
