"""The nouns: what a run, a step, an attempt and a node are, as values.

Everything here is data. Times are seconds since the epoch as the store's clock tells them; payloads are JSON bytes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec


class RunState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    UNDOING = "undoing"
    HELD = "held"
    STUCK = "stuck"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNDONE = "undone"
    CANCELLED = "cancelled"


class StepState(StrEnum):
    WAITING = "waiting"
    READY = "ready"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StepKind(StrEnum):
    CALL = "call"
    TIMER = "timer"
    SIGNAL = "signal"
    CHILD = "child"
    UNDO = "undo"
    """An undo added by hand: never executed by itself, it says what to call when the run is taken back."""


class Ending(StrEnum):
    """How an attempt ended that did not become the step's outcome."""

    FAILED = "failed"
    TIMED_OUT = "timed out"
    LOST = "lost"
    REFUSED = "refused"


class Failure(StrEnum):
    """Why an attempt did not succeed. Each class has a budget and a back-off of its own."""

    APPLICATION = "application"
    """The step's code raised."""
    TIMEOUT = "timeout"
    """It did not complete in time."""
    LOST = "lost"
    """Its agent, or its own process, died under it."""
    THROTTLED = "throttled"
    """It was asked to come again later."""
    POISON = "poison"
    """It was lost more often than its budget allows: it is taken to be what kills them."""


class Counted(Protocol):
    """What a step's row counts."""

    @property
    def attempt(self) -> int:
        """Claims, whatever became of them."""

    @property
    def losses(self) -> int: ...
    @property
    def excused(self) -> int:
        """Handed back, or forgiven by an operator."""

    @property
    def timeouts(self) -> int: ...
    @property
    def throttled(self) -> int: ...


def spent(step: Counted) -> int:
    """Attempts that count against the application's own budget, one that runs included. In SQL: `spent`."""
    return step.attempt - step.losses - step.excused - step.timeouts - step.throttled


NEVER = 253_402_300_799.0
"""`ready_at` of a step in quarantine: the last second of the calendar, which both dialects and people can read."""


DEFAULT_NAMESPACE = "default"
"""Whose a run is that was started for nobody in particular."""


class NewRun(msgspec.Struct, frozen=True):
    """A run as its caller asks for it."""

    id: str
    workflow: str
    version: str
    input: bytes
    digest: bytes
    namespace: str = DEFAULT_NAMESPACE
    priority: int = 0
    timeout_s: float | None = None
    tags: dict[str, str] = {}
    parent_id: str | None = None
    parent_n: int | None = None
    joins: bool = False
    """Of a child: if a run with this id exists, wait for that one without owning it."""
    retry_of: str | None = None
    """Of a child whose parent is a retry: the run that it goes on from."""


class RunRow(msgspec.Struct, frozen=True):
    """A run's row."""

    id: str
    namespace: str
    workflow: str
    version: str
    state: RunState
    priority: int
    owner: str | None
    fence: int
    input: bytes
    digest: bytes
    output: bytes | None
    error: str | None
    tags: str | None
    parent_id: str | None
    parent_n: int | None
    retry_of: str | None
    generation: int
    base_n: int
    progress: str | None
    published: str | None
    resume: RunState | None
    note: str | None
    deadline: float | None
    created_at: float
    started_at: float | None
    finished_at: float | None
    ending: str | None = None
    """How the run ends when it has taken itself back: failed or cancelled."""
    kept_n: int = 0
    """Steps up to this one are kept, whatever comes: the point of no return."""


class Revoked(msgspec.Struct, frozen=True):
    """A child, or a child's child, that had succeeded and is taken back by the run above it."""

    run_id: str
    parent_id: str
    error: str


class StepRow(msgspec.Struct, frozen=True):
    """A step's row: one durable thing a run waits for."""

    run_id: str
    n: int
    key: str
    kind: StepKind
    name: str
    lane: int
    state: StepState
    priority: int
    ready_at: float
    attempt: int
    losses: int
    excused: int
    attempts_max: int
    timeout_s: float | None
    fence: int
    agent: str | None
    complete_by: float | None
    input: bytes | None
    digest: bytes | None
    output: bytes | None
    error: str | None
    retry: str | None
    checkpoint: bytes | None
    progress: str | None
    delivered_seq: int | None
    issued_at: float
    started_at: float | None
    finished_at: float | None
    after_seq: int = 0
    """How much of the history had been delivered when the code asked for it: what it may depend on."""
    timeouts: int = 0
    throttled: int = 0
    effect: str | None = None
    """Its `here.key`, where that is not made of its run and key: an earlier run that this one is the retry of may have had
    this effect."""

    @property
    def effect_key(self) -> str:
        return self.effect or effect_key(self.run_id, self.key)

    @property
    def outcome(self) -> Outcome:
        """How it ended. Of a step that has ended."""
        return Outcome(self.run_id, self.n, self.state, self.output, self.error, self.finished_at or 0.0)

    @property
    def spent(self) -> int:
        return spent(self)

    @property
    def quarantined(self) -> bool:
        """It waits for a person, who releases, skips or fails it."""
        return self.state is StepState.READY and self.ready_at >= NEVER


class Outcome(msgspec.Struct, gc=False):
    """How a step ended. The same value from the agent that reports it, through the scheduler that delivers it to the run's code,
    to the row that records it.

    `gc=False`: there are thousands of them at once, and they refer to payloads alone.
    """

    run_id: str
    n: int
    state: StepState
    output: bytes | None
    error: str | None
    at: float
    fence: int | None = None
    """The fence its writer knew. None: somebody else has recorded it, and it only waits to be delivered."""
    seq: int | None = None
    """Its place in the run's history, once it is delivered."""


class Inherited(msgspec.Struct, frozen=True):
    """What a run takes over, for the step with this key, from the run that it is the retry of."""

    key: str
    effect: str | None = None
    """The `here.key` under which an attempt may have had its effect. Of the empty key: the first run of the chain."""
    child: str | None = None
    """The run that the step's child goes on from."""


class Attempt(msgspec.Struct, frozen=True):
    """An attempt that did not become its step's outcome."""

    run_id: str
    n: int
    attempt: int
    ending: Ending
    agent: str | None
    error: str | None
    started_at: float | None
    finished_at: float


class Quarantined(msgspec.Struct, frozen=True):
    """A step in quarantine. Steps with the same fingerprint came to it in the same way."""

    run_id: str
    n: int
    fingerprint: str
    step: str
    error: str
    """The class of the error, by its qualified name."""
    place: str
    """Where it happened: a line of the author's code, how the step's process died, or `agent lost`."""
    at: float


class Poison(msgspec.Struct, frozen=True):
    """What steps with one fingerprint have in common, and how many there are."""

    fingerprint: str
    step: str
    error: str
    place: str
    steps: int
    runs: int
    since: float
    last_at: float
    example: str
    """The run that is in it for longest."""


class TwinState(StrEnum):
    READY = "ready"
    RUNNING = "running"
    WON = "won"
    """Its outcome is the step's."""
    OUTRUN = "outrun"
    """The step ended, or the twin's agent was lost."""
    FAILED = "failed"
    BARRED = "barred"
    """The step failed before any twin of it began: none may begin any more."""


class Twin(msgspec.Struct, frozen=True):
    """A second execution of a step that takes too long, on another agent. It is no part of the run's history: only
    its success is, as the step's own."""

    run_id: str
    n: int
    state: TwinState
    not_agent: str | None
    """Who runs the step itself."""
    agent: str | None
    made_at: float
    started_at: float | None
    ended_at: float | None


class Landmark(msgspec.Struct, frozen=True):
    """How far a run has come: the newest thing it asked for."""

    run_id: str
    n: int
    name: str
    issued_at: float


class SignalRow(msgspec.Struct, frozen=True):
    """A signal's row. `delivered_seq` is its place in the run's history, once the run's owner has taken it in."""

    id: int
    run_id: str
    name: str
    key: str
    payload: bytes
    delivered_seq: int | None
    sent_at: float
    set_aside: str | None = None
    """Why no wait takes it: it does not fit what the code waits for."""


class NewSignal(msgspec.Struct, frozen=True):
    """A signal as it is sent. The same key again is the same signal."""

    run_id: str
    name: str
    key: str
    payload: bytes


class NodeRow(msgspec.Struct, frozen=True):
    """One process start. `offers` is what it can serve: workflows, steps and labels, as JSON."""

    id: str
    host: str
    pid: int
    roles: str
    offers: str
    capacity: int
    started_at: float
    lease_until: float
    retired_at: float | None


class Declaration(msgspec.Struct, frozen=True):
    """What code says of one version of a workflow. Schemas are JSON texts."""

    namespace: str
    name: str
    version: str
    code: str
    """What a scheduler must have loaded, as nodes offer it: `billing.app.order@2`."""
    origin: str
    """The application it comes from."""
    digest: str
    """Tells this code from other code."""
    input: str
    """JSON Schema of the arguments, an object by name."""
    result: str
    signals: str
    """What it takes, see `workflow/declaration.py`."""
    first_at: float = 0.0
    last_at: float = 0.0
    """When a node last declared it, give or take an hour."""


class LeaderLease(NamedTuple):
    """Who holds the leader's lease. At each takeover is noted how long nobody had been heard to lead."""

    node: str
    epoch: int
    expires_at: float
    since: float | None
    """When this epoch began."""
    vacant_s: float | None
    """From the last sign of life of the leader before to the beginning of this epoch; None for the first ever."""
    predecessor: str | None
    """Who led before and did not resign."""


class Lane(msgspec.Struct, frozen=True):
    """A distinct set of needs: the step's name and the labels an agent must have, and the name of the step's undo."""

    id: int
    name: str
    needs: tuple[str, ...]
    undo: str | None = None
    """With a trailing `!` when attempts that failed are undone too."""
    depends: str = ""
    """What the step depends on: the name its breaker has. The step's own name unless declared."""


class BreakerState(StrEnum):
    CLOSED = "closed"
    """Steps begin as they come."""
    OPEN = "open"
    """None begins."""
    PROBING = "probing"
    """As many begin as the wave allows."""


class Breaker(msgspec.Struct, frozen=True):
    """What is known of a dependency that had trouble."""

    name: str
    state: BreakerState
    round: int
    """Raised by every change of state and every wave. What is told of an older one is not counted."""
    ok: int
    failed: int
    """Outcomes told since `window_at`: of the last seconds while closed, of this wave while probing."""
    window_at: float
    told_at: float
    """When an outcome was last told or a probe taken."""
    wave: int
    allowance: int
    """How many of the wave have not begun yet."""
    opened_at: float | None
    open_until: float | None
    """None while open: by hand, until somebody says otherwise."""
    open_s: float
    trips: int
    """How often it has opened since it was last closed."""
    forced: bool
    """An operator decided, and nobody else does until it is reset."""
    actor: str | None
    note: str
    """Why it is as it is."""
    error: str | None
    """The last trouble that was told."""


class HoldScope(StrEnum):
    """What an operator can hold besides a run."""

    WORKFLOW = "workflow"
    STEP = "step"
    DEPENDENCY = "dependency"
    NAMESPACE = "namespace"
    ALL = "all"


class Hold(msgspec.Struct, frozen=True):
    """An operator's stop: no step it covers begins."""

    scope: HoldScope
    value: str
    """The name that is held; of the scope all, nothing."""
    actor: str
    note: str
    at: float


class Level(StrEnum):
    """How much an alert matters."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class AlertKind(StrEnum):
    """What alerts are about."""

    RUN_FAILED = "run failed"
    RUN_STUCK = "run stuck"
    RUN_HELD = "run held"
    STEP_EXHAUSTED = "step exhausted"
    STEP_QUARANTINED = "step quarantined"
    AGENT_OFFLINE = "agent offline"
    BACKLOG = "backlog"
    LEADER_LOST = "leader lost"
    BREAKER_OPEN = "breaker open"
    STORE_TROUBLE = "store trouble"
    STRAGGLER = "straggler"
    POOL_TROUBLE = "pool trouble"
    SIGNAL_SET_ASIDE = "signal set aside"
    TEST = "test"


class NewAlert(msgspec.Struct, frozen=True):
    """Something a person should know. While an alert with the same key is open it is that alert, once more."""

    kind: AlertKind
    level: Level
    key: str
    message: str
    run_id: str | None = None
    times: int = 1


class Alert(msgspec.Struct, frozen=True):
    """An alert's row. Open until `cleared_at`; `sent_at` is when a channel first took it."""

    id: int
    at: float
    kind: str
    run_id: str | None
    message: str
    sent_at: float | None
    level: str
    key: str
    times: int
    last_at: float
    cleared_at: float | None


class Delivery(msgspec.Struct, frozen=True):
    """One alert on its way through one channel."""

    id: str
    alert_id: int
    channel: str
    event: str
    """`raised` or `cleared`."""
    attempts: int
    next_try_at: float
    sent_at: float | None
    given_up_at: float | None
    last_error: str | None


class JournalEntry(msgspec.Struct, frozen=True):
    """What the Supervisor or an operator did, and why."""

    id: int
    at: float
    actor: str
    verb: str
    run_id: str | None
    n: int | None
    note: str


CANCEL = "$cancel"
"""Name of the signal that asks a run to cancel itself."""
UNDO = "$undo"
"""Name of the signals that wake and steer a run that takes itself back."""
DEADLINE = "$deadline"
"""Key of the timer that ends a run at its deadline."""
UNDO_PREFIX = "undo:"
"""Begins the key of every undo. No other key begins so."""


def effect_key(run_id: str, key: str) -> str:
    """`here.key`: the same for every attempt of a step, and for no other step. No run's id contains `::`."""
    return f"{run_id}::{key}"


def undo_key(key: str, number: int = 1) -> str:
    """The key of the `number`-th try to undo the step with this key. No key begins with `#`, so no two are the same."""
    return f"{UNDO_PREFIX}{key}" if number == 1 else f"{UNDO_PREFIX}#{number}:{key}"


def undone_key(key: str) -> tuple[str, int]:
    """Of an undo's key: the key of the step it undoes, and the how-manyth try it is."""
    rest = key.removeprefix(UNDO_PREFIX)
    if rest.startswith("#"):
        number, _, rest = rest[1:].partition(":")
        return rest, int(number)
    return rest, 1
