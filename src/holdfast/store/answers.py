"""What the State Store answers: whether it accepted a write, and what reads and claims return."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

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
    RunState,
    SignalRow,
    StepRow,
    StepState,
)


class PreconditionFailed(Exception):
    """A precondition of a batch failed, and nothing of it was written. Write its operations again, one at a time."""


class Answer(StrEnum):
    """What became of a write."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """The store accepted the same write before, and its answer got lost. Nothing is wrong."""
    FENCED = "fenced"
    """The precondition is no longer true, because somebody else has changed the row. Nothing was written."""


class MeantRun(msgspec.Struct, frozen=True, gc=False):
    """A run that a filter means, with what decides whether an act can do something to it."""

    id: str
    created_at: float
    state: RunState
    fence: int
    resume: str | None
    workflow: str
    version: str
    parent_id: str | None
    parent_state: str | None
    """The state of its parent. None if it has none, or it is gone."""
    is_begun: bool
    """True if its code has asked for something."""
    is_asked: bool
    """True if it was asked to cancel itself, and that is still to be delivered or was."""
    is_heard: bool
    """True if its code got all requests to cancel itself that were sent."""
    retried_as: str | None
    waiting: int
    """How many of its steps wait for their next attempt."""
    quarantined: int
    undos: int
    """How many of its steps have an undo and may have had an effect. This counts up to some hundred."""


class UpdateEnd(msgspec.Struct, frozen=True):
    """What became of an update. Without an answer, it will never get one: its run has ended, is gone, or is stuck while
    it undoes itself."""

    id: int
    answer: str | None
    reply: bytes | None
    state: str | None
    """The state of the run. None if the run is gone."""


class ClaimedRun(msgspec.Struct):
    """A run that this node now owns, with everything needed to replay it."""

    run: RunRow
    steps: list[StepRow]
    signals: list[SignalRow]
    inherited: list[Inherited] = []
    """What it takes over from the run that it is the retry of."""


class ClaimedStep(msgspec.Struct, gc=False):
    """A step that this node's agent now has."""

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
    """The error of the last attempt, if there was one."""
    timeouts: int = 0
    throttled: int = 0
    effect: str | None = None
    """Its `here.key`, if it comes from an earlier run that this run is the retry of."""
    adapts: tuple[int, ...] = ()
    """The adaptive limits that it is under. This is no column: the claim knows it."""

    not_columns: ClassVar[frozenset[str]] = frozenset({"adapts"})


class ClaimedRequest(ClaimedStep, gc=False):
    """The request for a callback that this node's agent now has."""

    callback: str = ""
    """Where another system posts the result. Empty if nobody has said where servers are reached."""


class Probes(msgspec.Struct):
    """Steps that this node's agent now has as probes of a breaker in this round."""

    round: int
    steps: list[ClaimedStep]


class ShutGates(msgspec.Struct):
    """What keeps steps from beginning: all holds, and breakers that are not closed, have had trouble lately or are
    forced."""

    breakers: list[Breaker]
    holds: list[Hold]


class Rival(msgspec.Struct, frozen=True):
    """A live node that publishes other code."""

    host: str
    pid: int
    offers: str


class Observation(msgspec.Struct):
    """How many steps of one dependency succeeded and failed at an agent. Only of probes, `round` is the round of the
    breaker."""

    name: str
    ok: int
    failed: int
    error: str | None
    round: int | None = None


class Undelivered(msgspec.Struct):
    """What an owner still has to deliver to its runs."""

    steps: list[Outcome]
    signals: list[SignalRow]


class SeenNode(msgspec.Struct, frozen=True):
    """What the leader needs to know about a node to decide whether it is gone."""

    id: str
    host: str
    pid: int
    roles: str
    lease_until: float
    retired_at: float | None
    gone_at: float | None
    """When somebody noticed that its process is gone."""


class LostStep(msgspec.Struct, frozen=True):
    """What the leader needs to know about a running step, whose agent is gone or did not end it in time, to decide what
    becomes of it."""

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
    """What becomes of a step that the leader takes away from its agent."""

    step: LostStep
    ending: Ending
    """How the attempt ended."""
    state: StepState
    after_s: float
    """After how many seconds the step is ready again, unless it goes into quarantine."""
    error: str
    """The error of the attempt, as it is recorded."""
    losses: int = 0
    timeouts: int = 0
    """How much the attempt adds to the step's count of losses, and of timeouts."""
    quarantine: Quarantined | None = None
    """The step's entry, if it goes into quarantine. The store sets its time, `at`."""

    @property
    def needs_person(self) -> bool:
        """True if the step fails or goes into quarantine. Then the attempt's error becomes the step's error, and a
        person is notified."""
        return self.state is StepState.FAILED or self.quarantine is not None


class Duties(msgspec.Struct, frozen=True, gc=False):
    """What there is for the leader to do. A time is when something is due next, None if nothing waits for its time. The others
    are true if there is anything to look at."""

    now: float
    schedule_at: float | None
    part_at: float | None
    """When a time of a composed trigger comes."""
    occasion_at: float | None
    """When an occasion ends."""
    ask_at: float | None
    callback_at: float | None
    overdue: bool | None = None
    """Attempts that their agents have not ended in time."""
    breakers: bool | None = None
    """Breakers that are not closed, or have seen failures lately."""
    fires: bool | None = None
    """Fires whose runs are open, and backfills."""
    twins: bool | None = None
    failures: bool | None = None
    acts: bool | None = None
    quarantine: bool | None = None
    limits: bool | None = None
    """Adaptive limits."""
    signals: bool | None = None
    """Signals that are not delivered."""
    promises: bool | None = None
    """Open runs and steps that were promised to end at some time."""
    waits: bool | None = None
    """Waits for events."""
    declared: bool | None = None
    """Schedules and triggers that code declares."""

    def is_due(self, *times: float | None) -> bool:
        """True if one of these times has come."""
        return any(at is not None and at <= self.now for at in times)


class Reclaimed(msgspec.Struct):
    """What the leader did to reclaim a node."""

    runs: int
    steps: int
    failed: int
    quarantined: int = 0
    is_retired: bool = False
    """True if the node has nothing left, and was retired."""


class FailureNote(msgspec.Struct):
    """A run or a step that failed, or a signal that was set aside. Its writer noted which one, and the other fields are
    what its rows say now. They are None if it no longer exists."""

    id: int
    run_id: str
    n: int
    """The step. 0 is the run itself. A negative one is a signal with the place -n in the history; then `name` is the
    signal's name, and `error` is why it was set aside. For a held run, `error` is its note."""
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
    """Set if the step is in quarantine."""


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
    """True if the step has or had a twin."""


class Late(msgspec.Struct):
    """The run or step of its kind that waits longest. `what` is a step's name, or a workflow and its version."""

    what: str
    run_id: str
    since: float


class Backlog(msgspec.Struct, frozen=True):
    """How many steps could run now and wait for an agent."""

    ready: int
    """Their number, counted up to a limit."""
    since: float | None
    """Since when the oldest of them has waited. None if there is none."""


class AlertRoute(msgspec.Struct):
    """To which channels an alert goes: (delivery id, channel) of each. `routed` is how far the alert is then. 1: that
    it was raised is being sent. 2: nothing more is to be sent."""

    alert_id: int
    event: str
    routed: int
    deliveries: Sequence[tuple[str, str]] = ()


class DueDelivery(msgspec.Struct):
    """A delivery that is to be sent now. `attempt` counts from 1."""

    id: str
    event: str
    attempt: int
    alert: Alert


class Pruned(msgspec.Struct):
    """What one batch of pruning did. `after` is where the next batch begins. None: there are no more old
    runs to look at."""

    runs: int
    rows: int
    after: tuple[float, str] | None
