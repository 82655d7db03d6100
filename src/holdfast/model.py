"""The values that all parts share: runs, steps, attempts, nodes, breakers, alerts.

Everything here is data. Times are seconds since the epoch by the store's clock. Payloads are JSON bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

from holdfast.queues import NO_QUEUE, LimitKey, Queue, QueueKey


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


class Trait(StrEnum):
    """What may be said of an open run beside its state."""

    RETRYING = "retrying"
    """A step of it is to be tried again."""
    LATE = "late"
    """It has not ended when it was due."""
    WAITING_FOR_AGENT = "waiting-for-agent"
    """A step of it could begin, and nobody has begun it."""
    WAITING_FOR_BREAKER = "waiting-for-breaker"
    """A step of it is kept back by a breaker that is not closed."""
    WAITING_FOR_SIGNAL = "waiting-for-signal"
    WAITING_FOR_ASK = "waiting-for-ask"
    WAITING_FOR_CALLBACK = "waiting-for-callback"
    WAITING_FOR_CHILD = "waiting-for-child"
    WAITING_FOR_TIMER = "waiting-for-timer"


class StepKind(StrEnum):
    CALL = "call"
    TIMER = "timer"
    SIGNAL = "signal"
    CHILD = "child"
    START = "start"
    """Starts a run that belongs to nobody. The step ends with the run's id as soon as the run is recorded."""
    UNDO = "undo"
    """An undo that workflow code added by hand. Nobody executes it: it says what to call when the run is undone."""
    MARKER = "marker"
    """Which way the code went at a `patched(name)`. Nobody executes it, and it has no place in the history."""
    SERVE = "serve"
    """A scope in which the code serves updates. Nobody executes it; it is cancelled when the code leaves the scope."""
    ASK = "ask"
    """A question to people. Their answers end it, or its time."""
    CALLBACK = "callback"
    """A call whose result another system gives. Its answer ends it, or its time. The request is a step of its own."""


class Ending(StrEnum):
    """How an attempt ended, if its result did not become the step's outcome."""

    FAILED = "failed"
    TIMED_OUT = "timed out"
    LOST = "lost"
    REFUSED = "refused"


_SAID = {
    "succeeded": "has succeeded",
    "failed": "has failed",
    "undone": "was undone",
    "cancelled": "was cancelled",
}


def in_words(state: str) -> str:
    """Say what a run or a step is that has this state: `is running`, `has succeeded`."""
    return _SAID.get(state, f"is {state}")


class Failure(StrEnum):
    """The class of a failed attempt: why it did not succeed. Each class has its own budget and back-off."""

    APPLICATION = "application"
    """The step's code raised."""
    TIMEOUT = "timeout"
    """The attempt did not complete in time."""
    LOST = "lost"
    """The agent, or the step's own process, died during the attempt."""
    THROTTLED = "throttled"
    """The step raised `RetryIn`, because somebody asked it to come again later."""
    POISON = "poison"
    """The step was lost more often than its budget allows, so it probably kills its agents."""


class StepCounts(Protocol):
    """The counts in a step's row."""

    @property
    def attempt(self) -> int:
        """How often the step was claimed, no matter how those attempts ended."""

    @property
    def losses(self) -> int: ...
    @property
    def excused(self) -> int:
        """How many attempts spend no budget: an agent handed the step back, the dependency was known to be down, or an
        operator released the step from quarantine."""

    @property
    def timeouts(self) -> int: ...
    @property
    def throttled(self) -> int: ...


def spent(step: StepCounts) -> int:
    """Return how many attempts count against the budget for the step's own errors, including one that runs now. Both
    dialects have the same as `spent`."""
    return step.attempt - step.losses - step.excused - step.timeouts - step.throttled


PRIORITY_MAX = 9
"""The highest priority. The lowest is 0, and undos have the highest."""
NEVER = 253_402_300_799.0
"""`ready_at` of a step in quarantine. It is the last second of the calendar, which both dialects and people can
read."""


DEFAULT_NAMESPACE = "default"
"""The namespace of a run whose caller names none."""


class Gathering(msgspec.Struct, frozen=True):
    """Which run takes a start: the run of this key that has not begun, or a new one."""

    key: str
    """A text that no other workflow, version or namespace has."""
    first_s: float
    """After how many seconds the run begins if no further start comes."""
    quiet_s: float
    """For a debounced run: how long after the newest start it begins."""
    at_most_s: float
    """For a debounced run: how long after the first start it begins in any case."""
    size: int
    """For a batch: with how many items it begins at once."""
    parameter: str
    """For a batch: the argument with the items. Empty for a debounced run."""


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
    """For a child: True if the parent waits for an existing run with this id, without owning it."""
    retry_of: str | None = None
    """For a child whose parent is a retry: the run from which this one goes on."""
    detached: bool = False
    """The step `parent_n` of the run `parent_id` only starts this run. It is no child of that run."""
    fair: str | None = None
    """Whom the run is for. No backlog of one fair key delays another one."""
    limits: tuple[LimitKey, ...] = ()
    """The limits of its workflow, with their keys filled in."""
    full: str = "wait"
    """What becomes of the start if a limit has no room: wait, skip, replace or refuse."""
    queue: Queue = NO_QUEUE
    """Its queue. Whoever writes the run asks for its number before."""
    begin_at: float | None = None
    """Nobody begins the run before this time."""
    begin_in_s: float | None = None
    """The same, counted from the start by the store's clock."""
    gather: Gathering | None = None
    """Another run may take this start."""
    due_at: float | None = None
    """When the run was promised to end. Nothing happens to a run that is late, but people are notified."""
    due_in_s: float | None = None
    """The same, counted from when the run may begin, by the store's clock."""

    @property
    def is_due(self) -> bool:
        """True if the run was promised to end at some time."""
        return self.due_at is not None or self.due_in_s is not None

    @property
    def begins_later(self) -> bool:
        """True if the run waits in the store before it begins, so that no scheduler can begin it at once."""
        return self.begin_at is not None or self.begin_in_s is not None or self.gather is not None

    @property
    def queue_key(self) -> QueueKey:
        """What its queue stands for."""
        prefix = "" if self.namespace == DEFAULT_NAMESPACE else f"{self.namespace}//"
        return QueueKey("" if self.fair is None else f"{prefix}{self.fair}", self.limits)


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
    """How the run ends when it has undone its steps: failed or cancelled."""
    kept_n: int = 0
    """The run never undoes steps up to this one: it has passed the point of no return, or another run did them."""
    forked_from: str | None = None
    """The run whose history this one took over, up to a point that somebody chose."""
    started_by: str | None = None
    """The run whose code started this run with `start`. It is not the parent of this run."""
    begin_at: float | None = None
    """Nobody begins the run before this time."""
    fair: str | None = None
    """Whom the run is for."""
    queue: int = 0
    """The number of its queue. 0: it has no fair key and is under no limit."""
    under: str | None = None
    """The limits that it is under, and those of the runs above it: a JSON array of their stored names."""
    due_at: float | None = None
    """When the run was promised to end."""

    @property
    def goes_on_from(self) -> str | None:
        """The run whose history this one took over, as its retry or as a fork of it."""
        return self.retry_of or self.forked_from


class ChildUndo(msgspec.Struct, frozen=True):
    """A run wants a child that has succeeded to be undone. The child undoes itself, and its end ends the step `n`."""

    n: int
    child_n: int
    """n of the step that waited for the child."""
    error: str | None
    """The error that the child gets. It says who undoes it, and why."""
    joins: bool = False
    """The step may have joined a run that is not a child. Then there is nothing to undo."""


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
    """How many outcomes of the history the code had got when it asked for this step. The step may depend on them."""
    timeouts: int = 0
    throttled: int = 0
    effect: str | None = None
    """The step's `here.key`, if that is not made of its own run and key. This run is a retry then, and an earlier run
    may already have had this effect."""
    queue: int = 0
    """The number of its queue. 0: it has no fair key and is under no limit."""

    @property
    def effect_key(self) -> str:
        return self.effect or effect_key(self.run_id, self.key)

    @property
    def outcome(self) -> Outcome:
        """How the step ended. Ask only for a step that has ended."""
        return Outcome(self.run_id, self.n, self.state, self.output, self.error, self.finished_at or 0.0)

    @property
    def spent(self) -> int:
        return spent(self)

    @property
    def quarantined(self) -> bool:
        """True if the step waits for a person to release, skip or fail it."""
        return self.state is StepState.READY and self.ready_at >= NEVER


class LogLine(msgspec.Struct, frozen=True, array_like=True):
    """Something that a step or a workflow has logged, or a line that an isolated step has printed."""

    at: float
    level: str
    """As `logging` names it: `INFO`. For a printed line it is empty."""
    logger: str
    message: str
    traceback: str | None = None
    stream: str | None = None
    """`stdout` or `stderr`, if the line was printed."""


class LogPart(msgspec.Struct, gc=False):
    """Some of the lines that one attempt has logged. A part with the same number takes the place of the one before."""

    attempt: int
    """For the code of a run, which belongs to no step, this is the run's fence."""
    twin: bool
    part: int
    first_line: int
    """How many lines the attempt had logged before this part. Between two parts, some may have been left out."""
    first_byte: int
    lines: int
    at: float
    """When its first line was logged."""
    body: bytes
    """A JSON array of `LogLine`."""


class LogRow(msgspec.Struct, frozen=True):
    """A row of logs: the part of an attempt of step `n`. The code of a run has n = 0."""

    n: int
    attempt: int
    twin: bool
    part: int
    first_line: int
    first_byte: int
    lines: int
    at: float
    body: bytes


class Outcome(msgspec.Struct, gc=False):
    """How a step ended. The agent that reports it, the scheduler that delivers it to the run's code, and the row that
    records it all have the same value.

    `gc=False`, because there are thousands of them at once, and they refer to nothing but payloads.
    """

    run_id: str
    n: int
    state: StepState
    output: bytes | None
    error: str | None
    at: float
    fence: int | None = None
    """The fence that its writer knew. None if somebody else has recorded it, and it only waits to be delivered."""
    seq: int | None = None
    """The place of the outcome in the run's history, once it is delivered."""
    logs: Sequence[LogPart] = ()
    """What the attempt has logged and nobody has written yet."""


class Inherited(msgspec.Struct, frozen=True):
    """What a retry or a fork takes over from the run before it for the step with this key, which its code has not asked
    for yet. If there is neither effect nor child, somebody has set the step's result."""

    key: str
    effect: str | None = None
    """The `here.key` under which an attempt may have had its effect. With the empty key, this is the first run of the
    chain of retries. With the key of a marker, this is its way, as it is recorded."""
    child: str | None = None
    """The run from which the step's child goes on."""
    kept_n: int = 0
    """With the empty key: the steps up to this one are those of the run that this one was forked from."""
    sender: str | None = None
    """With the empty key of a fork: the run in whose name its code sends signals. Those that the other run sent are not
    sent again, and those of the fork are others."""

    @property
    def is_set(self) -> bool:
        """True if somebody has set the result of the step."""
        return self.key != "" and self.effect is None and self.child is None


class Attempt(msgspec.Struct, frozen=True):
    """An attempt whose result did not become its step's outcome."""

    run_id: str
    n: int
    attempt: int
    ending: Ending
    agent: str | None
    error: str | None
    started_at: float | None
    finished_at: float
    ready_at: float | None = None
    """From when an agent could claim it. Before that, the step backed off. None in rows of older versions."""


class Quarantined(msgspec.Struct, frozen=True):
    """A step in quarantine. Steps with the same fingerprint failed in the same way."""

    run_id: str
    n: int
    fingerprint: str
    step: str
    error: str
    """The qualified name of the error's class."""
    place: str
    """Where it happened: a line of the author's code, how the step's process died, or `agent lost`."""
    at: float


class Poison(msgspec.Struct, frozen=True):
    """What the quarantined steps with one fingerprint have in common, and how many there are."""

    fingerprint: str
    step: str
    error: str
    place: str
    steps: int
    runs: int
    since: float
    last_at: float
    example: str
    """The run whose step has been in quarantine for the longest time."""


class TwinState(StrEnum):
    READY = "ready"
    RUNNING = "running"
    WON = "won"
    """The twin's outcome became the step's outcome."""
    OUTRUN = "outrun"
    """The step ended, or the twin's agent was lost."""
    FAILED = "failed"
    BARRED = "barred"
    """The step failed before any twin of it began. No twin may begin any more."""


class Twin(msgspec.Struct, frozen=True):
    """A second attempt of a step that takes too long, at another agent. It is no part of the run's history. If it
    succeeds, its result is recorded as the step's own."""

    run_id: str
    n: int
    state: TwinState
    not_agent: str | None
    """The agent that runs the step itself, which must not run the twin."""
    agent: str | None
    made_at: float
    started_at: float | None
    ended_at: float | None


class Landmark(msgspec.Struct, frozen=True):
    """How far a run has come: the newest step that it asked for."""

    run_id: str
    n: int
    name: str
    issued_at: float


class DueRun(msgspec.Struct, frozen=True):
    """What says whether an open run keeps the promise of when it ends."""

    id: str
    workflow: str
    state: RunState
    generation: int
    base_n: int
    created_at: float
    started_at: float | None
    begin_at: float | None
    due_at: float


class DueStep(msgspec.Struct, frozen=True):
    """What says whether an open step keeps the promise of when it ends."""

    run_id: str
    n: int
    key: str
    name: str
    state: StepState
    issued_at: float
    started_at: float | None
    """When its newest attempt began."""
    due_at: float


class SignalRow(msgspec.Struct, frozen=True):
    """A signal's row. `delivered_seq` is its place in the run's history, once the run's owner has delivered it."""

    id: int
    run_id: str
    name: str
    key: str
    payload: bytes
    delivered_seq: int | None
    sent_at: float
    set_aside: str | None = None
    """Why no wait gets this signal: it does not fit what the code waits for."""
    answer: str | None = None
    """How an update was answered: one of `UpdateAnswer`. None if it is not answered, or is not an update."""
    reply: bytes | None = None
    """What the update returned, as JSON, or the error, as `codec.encode_error` writes it."""
    replied_at: float | None = None

    @property
    def update(self) -> str | None:
        """The name of the update. None if this is another signal."""
        return self.name.removeprefix(UPDATE_PREFIX) if self.name.startswith(UPDATE_PREFIX) else None

    @property
    def is_for_code(self) -> bool:
        """True if the run's code may wait for it: it is a signal of the author's, or an event."""
        return not self.name.startswith("$") or self.name.startswith(EVENT_PREFIX)


class UpdateAnswer(StrEnum):
    """How an update was answered."""

    RETURNED = "returned"
    RAISED = "raised"
    """The function that served it raised, or was cancelled."""
    REFUSED = "refused"
    """It changed nothing in the run: a replay does not call the function for it."""
    UNSERVED = "unserved"
    """The run ended before anything served it."""


class NewSignal(msgspec.Struct, frozen=True):
    """A signal as somebody sends it. Sending the same key again is the same signal."""

    run_id: str
    name: str
    key: str
    payload: bytes


ROLES = ("scheduler", "agent", "supervisor")
POOL = "pool"
"""The role that the store shows for the process of a pool. Such a process hosts none of the `ROLES`."""
SERVER = "server"
"""The role that the store shows for a process that answers HTTP. It claims nothing."""


class NodeRow(msgspec.Struct, frozen=True):
    """A node's row. `offers` is what the node can serve: workflows, steps and labels, as JSON."""

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
    """What code declares about one version of a workflow. Schemas are JSON texts."""

    namespace: str
    name: str
    version: str
    code: str
    """What a scheduler must have loaded, as nodes offer it: `billing.app.order@2`."""
    origin: str
    """The application that the code comes from."""
    digest: str
    """A digest of the code, which distinguishes it from other code."""
    input: str
    """JSON Schema of the arguments: an object with a property for each name."""
    result: str
    signals: str
    """The signals that its runs take: see `TakenSignals` in `workflow/declaration.py`."""
    first_at: float = 0.0
    last_at: float = 0.0
    """When a node last declared it, to within an hour."""


class LeaderLease(NamedTuple):
    """Who has the leader's lease. Each takeover notes for how long the lease was not renewed."""

    node: str
    epoch: int
    expires_at: float
    since: float | None
    """When this epoch began."""
    vacant_s: float | None
    """Seconds from the previous leader's last renewal to the beginning of this epoch. None for the first leader
    ever."""
    predecessor: str | None
    """The previous leader, if it did not resign."""


class Lane(msgspec.Struct, frozen=True):
    """A lane's row: what the steps of one lane have in common. That is the step's name, the labels that an agent must
    have, the name of the step's undo, and the dependency. Name and dependency are stored ones, so a lane belongs to a
    namespace."""

    id: int
    name: str
    needs: tuple[str, ...]
    undo: str | None = None
    """The name of the step's undo. It ends with `!` if the undo is also for attempts that failed."""
    depends: str = ""
    """What the step depends on, which is the name of its breaker. It is the step's own name if none is declared."""


class BreakerState(StrEnum):
    CLOSED = "closed"
    """All steps may begin."""
    OPEN = "open"
    """No step may begin."""
    PROBING = "probing"
    """As many steps may begin as the wave allows."""


class Breaker(msgspec.Struct, frozen=True):
    """A breaker's row: what is known about a dependency that had trouble."""

    name: str
    state: BreakerState
    round: int
    """Every change of state and every wave raises this number. Reports about an older round are not counted."""
    ok: int
    failed: int
    """Outcomes reported since `window_at`: those of the last seconds while closed, those of this wave while probing."""
    window_at: float
    told_at: float
    """When an agent last reported an outcome or claimed a probe, or the breaker last changed."""
    wave: int
    allowance: int
    """How many probes of the wave may still begin."""
    opened_at: float | None
    open_until: float | None
    """When an open breaker begins to probe. None while open: an operator opened it, and it stays open until an operator
    changes that."""
    open_s: float
    trips: int
    """How often it has opened since it was last closed."""
    forced: bool
    """True if an operator decided the state. Nobody else changes it until it is reset."""
    actor: str | None
    note: str
    """Why the breaker is in this state."""
    error: str | None
    """The last error that was reported."""


class HoldScope(StrEnum):
    """What an operator can hold, besides a run."""

    WORKFLOW = "workflow"
    STEP = "step"
    DEPENDENCY = "dependency"
    NAMESPACE = "namespace"
    ALL = "all"


class Hold(msgspec.Struct, frozen=True):
    """An operator's stop. No step that it covers begins."""

    scope: HoldScope
    value: str
    """The name that is held. It is empty for the scope `all`."""
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
    SCHEDULE_TROUBLE = "schedule trouble"
    OCCASION_EXPIRED = "occasion expired"
    RUN_LATE = "run late"
    STEP_LATE = "step late"
    ASK = "ask"
    """Somebody is asked something, or is reminded of it. Its key begins with who: see `questions.notice_key`."""
    TEST = "test"


class NewAlert(msgspec.Struct, frozen=True):
    """Something a person should know. While an alert with the same key is open, that alert counts this one, too."""

    kind: AlertKind
    level: Level
    key: str
    message: str
    run_id: str | None = None
    times: int = 1
    about: str | None = None
    """The stored name of the gate that it is about. Without a run and this, it is about the whole store."""


class Alert(msgspec.Struct, frozen=True):
    """An alert's row. The alert is open until `cleared_at`. `sent_at` is when a channel first sent it."""

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


class ActVerb(StrEnum):
    """What an act does to each of its runs."""

    CANCEL = "cancel"
    HOLD = "hold"
    RELEASE = "release"
    RETRY = "retry"
    SKIP = "skip"
    FORK = "fork"


class ActState(StrEnum):
    PLANNING = "planning"
    """Its runs are being listed. If its process dies now, nothing comes of it."""
    PLANNED = "planned"
    RUNNING = "running"
    """It is being carried out by whoever has its lease."""
    DONE = "done"
    STOPPED = "stopped"
    """Somebody stopped it. What was not tried yet can still be carried out."""


class Fate(StrEnum):
    """What became of a run in an act."""

    DONE = "done"
    CHANGED = "changed"
    """The run has changed since the plan was made. So it was left alone."""
    REFUSED = "refused"
    """The run could not be acted on. Nothing was written."""


class ActRow(msgspec.Struct, frozen=True):
    """One verb on many runs: its row, which is also its plan and its progress."""

    id: str
    verb: ActVerb
    state: ActState
    fence: int
    holder: str | None
    """Who carries it out: a node, or the process of a caller."""
    lease_until: float | None
    actor: str
    """Who made the plan. The journal names this one, whoever carries it out."""
    note: str
    options: str
    """`ActOptions` as JSON."""
    preview: str
    """What the plan says in words, as JSON."""
    runs: int
    done: int
    changed: int
    refused: int
    created_at: float
    begun_at: float | None
    ended_at: float | None
    namespace: str = ""
    """The namespace of its runs. Empty if it is about the whole store."""
    via: str | None = None
    """By which way whoever made the plan had come, and in which request: the journal says both."""
    request: str | None = None

    @property
    def tried(self) -> int:
        """How many of its runs have a fate."""
        return self.done + self.changed + self.refused


class ActOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an act does its verb."""

    force: bool = False
    """Of `cancel`: also stop runs that are undoing, and ask again those whose code heard the first request."""
    start: str | None = None
    """Of `fork`: the key of the first step that is executed again."""


class ActRun(msgspec.Struct, frozen=True):
    """A run in an act, as it was when the plan was made, and what became of it."""

    run_id: str
    state: str
    fence: int
    fate: Fate | None
    """None: it was not tried yet."""
    note: str
    """What came of it, or why it was left alone."""


class JournalEntry(msgspec.Struct, frozen=True):
    """A row of the journal: what the Supervisor or an operator did, and why."""

    id: int
    at: float
    actor: str
    verb: str
    run_id: str | None
    n: int | None
    note: str
    via: str | None = None
    """By which way whoever acted had come: `python`, `cli`, `http`, `page`, `link` or `hook`. None for a role of Holdfast."""
    request: str | None = None
    """The id of the request, which a server has answered as `Holdfast-Request`."""


class ScheduleState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    """Nothing is decided until somebody resumes it."""
    ENDED = "ended"
    """It has no time any more."""


class FireFate(StrEnum):
    """What became of a time of a schedule."""

    STARTED = "started"
    BUFFERED = "buffered"
    """It waits until the run before it has ended."""
    SKIPPED = "skipped"
    """A run of the schedule was open."""
    MISSED = "missed"
    """Nobody decided about it in time, or the schedule was paused."""
    REPLACED = "replaced"
    """It waited, and a later time took its place."""


class NewSchedule(msgspec.Struct, frozen=True):
    """A schedule as code declares it, or as somebody makes it."""

    name: str
    """With the namespace before it, as ids of runs have it."""
    workflow: str
    version: str
    input: bytes
    digest: bytes
    plan: str
    """`times.Plan` as JSON."""
    namespace: str = DEFAULT_NAMESPACE
    origin: str = ""
    """The application whose code declares it. Empty: somebody made it by hand."""
    priority: int = 0
    tags: str | None = None
    """A JSON object."""
    timeout_s: float | None = None


class ScheduleRow(msgspec.Struct, frozen=True):
    """A schedule's row."""

    name: str
    namespace: str
    origin: str
    workflow: str
    version: str
    input: bytes
    digest: bytes
    priority: int
    tags: str | None
    timeout_s: float | None
    plan: str
    state: ScheduleState
    note: str
    actor: str
    """Who made, paused or resumed it last."""
    cursor: float
    """All its times up to this one have a fate."""
    next_at: float | None
    """When there is something to decide: its next time, later by the jitter."""
    fence: int
    failures: int
    """How many of its newest runs in a row did not succeed."""
    started: int
    """How many of its times were started or are buffered. `count` is a limit to this."""
    last_run: str | None
    """The run of the newest time that has succeeded."""
    last_at: float | None
    tzdata: str
    """The version of the zones with which `next_at` was computed."""
    created_at: float


class FireRow(msgspec.Struct, frozen=True):
    """What became of one time of a schedule, or of `times` of them that were missed together."""

    schedule: str
    at: float
    repeat: int
    """1 for the schedule's own. A backfill runs a time again as 2, 3 and so on."""
    fate: FireFate
    run_id: str | None
    why: str
    decided_at: float
    backfill: str | None
    last_at: float
    times: int
    ended: bool
    """False while it is buffered, or its run is open."""
    counted: bool
    """True if its run is stuck, and counts as a failure for `pause_after`."""


class NewEvent(msgspec.Struct, frozen=True):
    """A CloudEvent, as it came in."""

    namespace: str
    source: str
    id: str
    type: str
    data: bytes
    """JSON, as it came."""
    subject: str | None = None
    time: str | None = None
    """When the sender says that it happened. Nothing is decided by it."""
    attributes: str | None = None
    """All other attributes, as a JSON object of texts."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes it one event, however often it is sent."""
        return self.namespace, self.source, self.id


class EventRow(msgspec.Struct, frozen=True):
    """The row of an event."""

    namespace: str
    source: str
    id: str
    type: str
    data: bytes
    subject: str | None
    time: str | None
    attributes: str | None
    received_at: float
    actor: str
    """Who sent it."""


class EventTaker(msgspec.Struct, frozen=True):
    """A run that an event started, or woke."""

    namespace: str
    source: str
    id: str
    run_id: str
    wait: str
    """A digest of the name of the wait that it ended. Empty if the event started the run."""


class NewHook(NamedTuple):
    """Where webhooks come in."""

    name: str
    namespace: str
    scheme: str
    secret: bytes
    header: str
    """The header of the signature, for the scheme `hmac`."""


class HookRow(msgspec.Struct, frozen=True):
    """The row of a hook."""

    name: str
    namespace: str
    scheme: str
    secret: bytes
    old_secret: bytes | None
    """The secret before the last rotation. It is good until `old_until`."""
    old_until: float | None
    header: str
    actor: str
    created_at: float
    rotated_at: float | None

    def __repr__(self) -> str:
        return f"<hook {self.name} {self.scheme}>"  # its secrets belong in no log


class Trigger(msgspec.Struct, frozen=True):
    """That events of a type start a workflow, as code declares it."""

    namespace: str
    type: str
    name: str
    """The name of the workflow, as the store has it."""
    version: str
    parameter: str
    """The parameter that gets the event's data."""


class ComposedRow(msgspec.Struct, frozen=True):
    """The row of a composed trigger: several events and times start a workflow together, as code declares it."""

    name: str
    """Its stored name."""
    namespace: str
    workflow: str
    """The name of the workflow, as the store has it."""
    version: str
    body: str
    """What it says, as JSON: see `occasions.Composition`."""
    digest: str
    """Of all of this. It changes when the code does."""
    origin: str
    """Who declares it."""


class OccasionState(StrEnum):
    """Where an occasion stands."""

    OPEN = "open"
    """Something is missing, and there is still time."""
    STARTED = "started"
    """Its run was started."""
    EXPIRED = "expired"
    """Its time was over before everything had arrived, or somebody dropped it."""


class OccasionRow(msgspec.Struct, frozen=True):
    """The row of an occasion: a composed trigger and a value, with what has arrived so far. Its run gets the same id."""

    id: str
    namespace: str
    trigger_name: str
    value: str
    state: OccasionState
    digest: str
    """Of the trigger by which it was last judged."""
    opened_at: float
    ends_at: float
    ended_at: float | None
    late: int
    """How many events came too late for it."""
    note: str


class OpenFire(NamedTuple):
    """A fire that has not ended, and the state of its run. The state is None if there is no run: it is buffered, or the
    run was pruned."""

    schedule: str
    at: float
    repeat: int
    fate: str
    run_id: str | None
    backfill: str | None
    counted: bool
    state: str | None


class BackfillState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"


class BackfillRow(msgspec.Struct, frozen=True):
    """A backfill: the times of a schedule in a span that are run again, or for the first time."""

    id: str
    schedule: str
    from_at: float
    to_at: float
    newest_first: bool
    most: int
    """How many of its runs may be open at once."""
    again: str
    """Which times run again that have run before: `none`, `failed` or `all`."""
    state: BackfillState
    cursor: float | None
    """The time that was decided last."""
    started: int
    passed: int
    """How many times were left alone, because they had run before."""
    actor: str
    note: str
    fence: int
    created_at: float
    ended_at: float | None


class NewToken(msgspec.Struct, frozen=True):
    """A token as somebody makes it. The secret is not in it, only its SHA-256."""

    id: str
    name: str
    role: str
    namespaces: str
    """A JSON array of names; `*` among them means all."""
    can: str
    """A JSON array of what it is narrowed to, such as `workflows:shop.*`. An empty one narrows nothing."""
    payloads: bool
    """False if it must not see inputs, results and logs."""
    digest: bytes
    expires_s: float | None = None
    """After how many seconds it expires. None: never."""
    who: str = "[]"
    """A JSON array: the person who bears it, and their teams."""


class TokenRow(msgspec.Struct, frozen=True):
    """A token's row."""

    id: str
    name: str
    role: str
    namespaces: str
    can: str
    payloads: bool
    made_by: str
    made_at: float
    """When its current secret was made."""
    expires_at: float | None
    revoked_at: float | None
    used_at: float | None
    """When it was last used, to within an hour."""
    digest: bytes
    old_digest: bytes | None
    """The digest of the secret before the last rotation. It is good until `old_until`."""
    old_until: float | None
    who: str = "[]"


class AskState(StrEnum):
    OPEN = "open"
    ANSWERED = "answered"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    """The run no longer waits for it: its code gave it up, or the run has ended."""


class NewAsk(msgspec.Struct, frozen=True):
    """A question as a run asks it. Its step has the number `n`."""

    id: str
    namespace: str
    workflow: str
    n: int
    question: str
    form: str
    """JSON Schema of an answer."""
    show: str
    """What is shown with the question, as JSON."""
    quorum: int
    not_by: str
    """A JSON array of the people and teams that must not answer."""
    plan: str
    """`questions.Plan` as JSON."""
    timeout_s: float | None
    next_s: float | None
    """After how long there is something to do about it."""
    who: tuple[str, ...]


class AskRow(msgspec.Struct, frozen=True):
    """A question to people. Its step waits while it is open."""

    id: str
    namespace: str
    run_id: str
    n: int
    workflow: str
    state: AskState
    question: str
    form: str
    show: str
    quorum: int
    """How many people must answer."""
    not_by: str
    plan: str
    asked_at: float
    expires_at: float | None
    reached_at: float | None
    """Up to when notices, reminders and escalation are done."""
    next_at: float | None
    ended_at: float | None


class AskPerson(msgspec.Struct, frozen=True):
    """A person or team that is asked, and what the person answered."""

    ask: str
    who: str
    since: float
    through: str
    """How they came to be asked: `asked`, `escalated`, `delegated by …`, or the team whose member they are."""
    hops: int
    """How often this place was handed over."""
    handed_to: str | None
    value: bytes | None
    note: str
    via: str
    """By which way the answer came, such as `token` or `link`."""
    answered_at: float | None


class SessionRow(msgspec.Struct, frozen=True):
    """A browser that has signed in."""

    token: str
    """The id of the token that it signed in with."""
    token_digest: bytes
    """The digest of that token's secret, as it was then."""
    expires_at: float


SCHEDULE_TAG, AT_TAG, LAST_TAG, BACKFILL_TAG = "$schedule", "$at", "$last", "$backfill"
"""Tags that say what a run was started for: the schedule, the time, the last run that had succeeded, the backfill. No tag of
an author begins with a dollar sign."""
WHEN_TAG, VALUE_TAG = "$when", "$value"
"""Tags that say which composed trigger a run was started for, and the value of its occasion."""
OCCASION_TAGS = frozenset({SCHEDULE_TAG, AT_TAG, LAST_TAG, BACKFILL_TAG, WHEN_TAG, VALUE_TAG})
BY_TAG = "$by"
"""The tag that says which person started a run, or the run above it."""
TRACE_TAG = "$trace"
"""The tag that says to which trace a run belongs: the span that started it, or the run above it. It is there only if whoever
started it traced."""
CANCEL = "$cancel"
"""The name of the signal that asks a run to cancel itself."""
UNDO = "$undo"
"""The name of the signals that wake and steer a run that undoes its steps."""
DEADLINE = "$deadline"
"""The key of the timer that ends a run at its deadline."""
UPDATE_PREFIX = "$update:"
"""The name of an update's row among the signals is this prefix and the name of the update. No signal of an author begins
with a dollar sign."""
EVENT_PREFIX = "$event:"
"""The name of a step that waits for an event begins with this, and so does the name of the signal that ends it."""
EVENT_TAG = "$event"
"""The tag of a run that an event started: the event's id."""
UNDO_PREFIX = "undo:"
"""The key of every undo begins with this, and no other key does."""
MARKER_PREFIX = "patched:"
"""The key of every marker begins with this, and no other key does."""
REQUEST_PREFIX = "request:"
"""The key of every request begins with this, and no other key does. The rest is the key of the callback that it is for."""
CALLBACK_PREFIX = "callback:"
"""The key of a callback that is asked for again begins with this, and no other key does."""


def effect_key(run_id: str, key: str) -> str:
    """Return `here.key`. It is the same for every attempt of a step, and no other step has it, because no run's id
    contains `::`."""
    return f"{run_id}::{key}"


def marker_key(name: str) -> str:
    """Return the key of a marker. It is the same wherever in the run the code asks for it."""
    return f"{MARKER_PREFIX}{name}"


def request_key(key: str) -> str:
    """Return the key of the request for the callback with this key."""
    return f"{REQUEST_PREFIX}{key}"


def callback_key(key: str, number: int) -> str:
    """Return the key of the `number`-th callback of a call. The first one has the key of the call."""
    return key if number == 1 else f"{CALLBACK_PREFIX}#{number}:{key}"


def call_key(key: str) -> str:
    """Return the key of the call that a request or a callback belongs to. Any other key is its own."""
    rest = key.removeprefix(REQUEST_PREFIX)
    return rest.partition(":")[2].partition(":")[2] if rest.startswith(CALLBACK_PREFIX) else rest


def callback_number(key: str) -> int:
    """Return how often a call had been asked for when the callback with this key was issued, with that time."""
    return int(key.partition("#")[2].partition(":")[0]) if key.startswith(CALLBACK_PREFIX) else 1


def undo_key(key: str, number: int = 1) -> str:
    """Return the key of the `number`-th try to undo the step with this key. No key of a step begins with `#`, so no two
    of these are the same."""
    return f"{UNDO_PREFIX}{key}" if number == 1 else f"{UNDO_PREFIX}#{number}:{key}"


def undone_key(key: str) -> tuple[str, int]:
    """Return what an undo's key says: the key of the step it undoes, and the number of this try."""
    rest = key.removeprefix(UNDO_PREFIX)
    if rest.startswith("#"):
        number, _, rest = rest[1:].partition(":")
        return rest, int(number)
    return rest, 1
