"""What a server answers. `ref` is the form of an id that stands in a path."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw

from holdfast.model import (
    AskState,
    BackfillState,
    BreakerState,
    Ending,
    FireFate,
    HoldScope,
    RunState,
    ScheduleState,
    StepKind,
    StepState,
)
from holdfast.wire.problems import Problem


def _null() -> Raw:
    return Raw(b"null")


class Removed(msgspec.Struct):
    removed: bool
    """False if there was none of this name."""


class Failure(msgspec.Struct):
    type: str
    message: str
    step: str | None = None
    recorded: Raw = msgspec.field(default_factory=_null)
    """The error as it is recorded, with its traceback. Only where payloads are shown, too."""


class Progress(msgspec.Struct):
    fraction: float | None
    note: str


class Eta(msgspec.Struct):
    """When a run will end if it goes on like those before it."""

    left_s: float
    most_s: float
    samples: int


class Run(msgspec.Struct, kw_only=True):
    """A run without its payloads, as lists have it."""

    id: str
    ref: str
    namespace: str
    workflow: str
    version: str
    state: RunState
    priority: int
    fair: str | None = None
    tags: dict[str, str]
    parent: str | None
    started_by: str | None
    retry_of: str | None
    forked_from: str | None
    generation: int
    progress: Progress | None
    note: str | None
    error: Failure | None
    cause: Failure | None = None
    """Why a stuck run undoes its steps. Its `error` is why it is stuck."""
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deadline: datetime | None
    begin_at: datetime | None = None
    """The run begins at this time, and not before. None if it could begin at once."""
    due_at: datetime | None = None
    """The run was promised to end by this time."""
    resume: RunState | None = None
    """The state that a held or stuck run goes back to."""
    ending: str | None = None
    """How the run ends when it has undone its steps."""
    parent_n: int | None = None
    base_n: int = 0
    """The number of the last step before this generation."""
    kept_n: int = 0
    """Steps up to this one are never undone."""
    fence: int = 0
    eta: Eta | None = None
    """Only if it was asked for, and earlier runs say something about it."""
    words: str | None = None
    """How it ended, or what it waits for, in a few words. Only if it was asked for."""


class WholeRun(Run, kw_only=True):
    """A run with its payloads. They are null for a token that sees none, and `hidden` says so."""

    input: Raw = msgspec.field(default_factory=_null)
    output: Raw = msgspec.field(default_factory=_null)
    published: Raw = msgspec.field(default_factory=_null)
    hidden: bool = False


class Runs(msgspec.Struct):
    items: list[Run]
    next: str | None = None
    """The cursor of the next page. None on the last one."""


class EndedRun(msgspec.Struct, kw_only=True):
    id: str
    ref: str
    state: RunState
    error: Failure | None
    output: Raw = msgspec.field(default_factory=_null)
    hidden: bool = False
    finished_at: datetime | None = None


class EndedRuns(msgspec.Struct):
    items: list[EndedRun]


class Started(msgspec.Struct):
    id: str
    ref: str
    new: bool
    """False if the same run had been started before."""


class StartedItem(msgspec.Struct, omit_defaults=True):
    """What became of one of many: `status` is what a start of it alone would have answered."""

    status: int
    run: Started | None = None
    problem: Problem | None = None


class StartedItems(msgspec.Struct):
    items: list[StartedItem]


class State(msgspec.Struct):
    """A run after an act on it."""

    id: str
    ref: str
    state: RunState


class Sent(msgspec.Struct):
    new: bool
    """False if a signal with this key had been sent before."""


class Reply(msgspec.Struct):
    answered: bool
    """False if the update is recorded and has no answer yet: ask again with the same key."""
    reply: Raw = msgspec.field(default_factory=_null)


class Forked(msgspec.Struct):
    id: str
    ref: str
    kept: int
    """How many steps it took over."""
    undone: list[str] = []
    """Steps that the other run has undone, and whose results the fork uses all the same."""


class SignalSeen(msgspec.Struct, kw_only=True):
    """A signal or an update that was sent to a run."""

    id: int
    name: str
    key: str
    sent_at: datetime
    delivered: int | None
    """Its place in the history of the run. None if it was not delivered yet."""
    set_aside: str | None
    answer: str | None
    """How an update was answered."""
    replied_at: datetime | None
    data: Raw = msgspec.field(default_factory=_null)
    reply: Raw = msgspec.field(default_factory=_null)
    hidden: bool = False


class Signals(msgspec.Struct):
    items: list[SignalSeen]


class LogCounts(msgspec.Struct):
    lines: dict[int, int]
    """How many lines each step has logged that are kept. 0 is the workflow's own code."""


class SeenTwin(msgspec.Struct):
    """A second attempt of a step that takes too long."""

    n: int
    state: str
    not_agent: str | None
    """The agent that runs the step itself."""
    agent: str | None
    made_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class Outlook(msgspec.Struct):
    """What earlier durations say about a run."""

    eta: Eta | None
    bounds: dict[str, float]
    """How long its running steps may run before they take too long, by the name of the step."""
    twins: list[SeenTwin]


class Step(msgspec.Struct, kw_only=True):
    n: int
    key: str
    name: str
    kind: StepKind
    state: StepState
    attempts: int
    spent: int
    losses: int
    timeouts: int
    throttled: int
    quarantined: bool
    agent: str | None
    progress: Progress | None
    error: Failure | None
    issued_at: datetime
    ready_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    input: Raw = msgspec.field(default_factory=_null)
    output: Raw = msgspec.field(default_factory=_null)
    hidden: bool = False
    lane: int = 0
    priority: int = 0
    excused: int = 0
    attempts_max: int = 1
    timeout_s: float | None = None
    fence: int = 0
    complete_by: datetime | None = None
    retry: str | None = None
    """Its policy for retries, if it is not the one of its code."""
    delivered: int | None = None
    """The place of its outcome in the history of the run."""
    after: int = 0
    """How many outcomes the code had got when it asked for this step."""
    effect: str | None = None


class Attempt(msgspec.Struct):
    n: int
    attempt: int
    ending: Ending
    agent: str | None
    error: Failure | None
    started_at: datetime | None
    finished_at: datetime
    ready_at: datetime | None = None
    """From when an agent could claim it. Before that, its step backed off."""


class WholeStep(Step, kw_only=True):
    """A step with all that is known about it. What it logged is at `/logs?step=N`."""

    here_key: str
    """The same at every attempt: `here.key` in the step's code."""
    needs: list[str] = []
    """The labels that an agent must have."""
    depends: str = ""
    breaker: BreakerState | None = None
    """The state of the breaker of what it depends on. None: it has never had trouble."""
    undo: str | None = None
    """The step that undoes it."""
    place: str = ""
    """Where the agent that has it is: its host and process."""
    checkpoint: Raw = msgspec.field(default_factory=_null)
    tried: list[Attempt] = []
    """Attempts that did not become its outcome, the oldest first."""
    child: str | None = None
    child_ref: str | None = None


class Steps(msgspec.Struct):
    items: list[Step]
    next: int | None = None
    """`after` of the next page. None on the last one."""


class Attempts(msgspec.Struct):
    items: list[Attempt]


class Entry(msgspec.Struct):
    """A row of the journal."""

    id: int
    at: datetime
    actor: str
    verb: str
    run: str | None
    n: int | None
    note: str
    via: str | None = None
    """By which way whoever acted had come: python, cli, http, page, link or hook. None for a role of Holdfast."""
    request: str | None = None
    """The id of the request, which its answer had as `Holdfast-Request`."""


class Journal(msgspec.Struct):
    items: list[Entry]


class UndoPlanned(msgspec.Struct):
    """A step that would be undone."""

    n: int
    key: str
    undo: str
    """The step that undoes it. Of a child: the child's workflow."""
    is_child: bool
    """A child run, which undoes itself."""
    is_certain: bool
    """False if nobody knows whether the step did anything. Its undo finds out."""
    wave: int
    """What has the same number is undone side by side."""


class UndoPlan(msgspec.Struct):
    """What a run has still to undo, or would undo if it were cancelled now, in this order."""

    items: list[UndoPlanned]


class Line(msgspec.Struct):
    at: datetime
    level: str
    logger: str
    message: str
    traceback: str | None
    stream: str | None
    step: str | None
    attempt: int | None
    twin: bool


class Lines(msgspec.Struct):
    items: list[Line]
    more: bool
    """True if there are more lines than were asked for."""


class Workflow(msgspec.Struct):
    """What code has declared about one version of a workflow. Schemas are JSON Schemas."""

    name: str
    ref: str
    version: str
    origin: str
    first_at: datetime
    last_at: datetime


class WholeWorkflow(Workflow, kw_only=True):
    code: str = ""
    digest: str = ""
    namespace: str = ""
    input: Raw = msgspec.field(default_factory=_null)
    result: Raw = msgspec.field(default_factory=_null)
    signals: Raw = msgspec.field(default_factory=_null)


class Workflows(msgspec.Struct):
    items: list[Workflow]


class WorkflowVersions(msgspec.Struct):
    name: str
    versions: list[WholeWorkflow]
    """The newest first."""


class Agent(msgspec.Struct):
    id: str
    host: str
    pid: int
    state: str
    roles: list[str]
    leads: bool
    labels: list[str]
    workflows: list[str]
    steps: list[str]
    capacity: int
    has: int
    """How many steps it has."""
    runs: int
    started_at: datetime
    lease_until: datetime
    left_at: datetime | None
    offers: Raw = msgspec.field(default_factory=_null)
    """All that the node says about itself."""


class Leader(msgspec.Struct):
    node: str
    epoch: int
    expires_at: datetime
    since: datetime | None
    vacant_s: float | None
    predecessor: str | None


class Agents(msgspec.Struct):
    items: list[Agent]
    leader: Leader | None = None
    """Who leads now."""
    now: datetime | None = None
    """The time of the store."""


class Lane(msgspec.Struct):
    id: int
    step: str
    needs: list[str]
    depends: str
    ready: int
    """How many steps wait for an agent, counted up to a limit."""
    since: datetime | None
    undo: str | None = None


class Lanes(msgspec.Struct):
    items: list[Lane]


class Hold(msgspec.Struct):
    scope: HoldScope
    value: str
    actor: str
    note: str
    at: datetime


class Holds(msgspec.Struct):
    items: list[Hold]


class HoldPlaced(msgspec.Struct):
    hold: Hold
    new: bool
    known: bool
    """True if this store has seen anything of that name."""


class Breaker(msgspec.Struct):
    name: str
    ref: str
    state: BreakerState
    forced: bool
    ok: int
    failed: int
    trips: int
    opened_at: datetime | None
    open_until: datetime | None
    actor: str | None
    note: str
    error: str | None
    round: int = 0
    wave: int = 0
    allowance: int = 0
    open_s: float = 0.0
    window_at: datetime | None = None
    told_at: datetime | None = None


class Breakers(msgspec.Struct):
    items: list[Breaker]


class Poison(msgspec.Struct):
    fingerprint: str
    step: str
    error: str
    place: str
    steps: int
    runs: int
    since: datetime
    last_at: datetime
    example: str


class Quarantine(msgspec.Struct):
    items: list[Poison]


class Resolved(msgspec.Struct):
    steps: int
    """How many steps it was about."""


class Delivery(msgspec.Struct):
    channel: str
    event: str
    attempts: int
    sent_at: datetime | None
    given_up_at: datetime | None
    last_error: str | None
    id: str = ""
    next_try_at: datetime | None = None


class Alert(msgspec.Struct):
    id: int
    kind: str
    level: str
    key: str
    message: str
    run: str | None
    times: int
    at: datetime
    last_at: datetime
    cleared_at: datetime | None
    sent_at: datetime | None
    deliveries: list[Delivery]


class Alerts(msgspec.Struct):
    items: list[Alert]


class Cleared(msgspec.Struct):
    cleared: bool
    """False if the alert was not open."""


class Me(msgspec.Struct):
    kind: str
    id: str
    name: str
    role: str
    namespaces: list[str]
    namespace: str | None
    can: list[str]
    payloads: bool
    who: list[str] = []
    """The person, and their teams."""
    now: datetime | None = None
    """The time of the store."""


class Act(msgspec.Struct, kw_only=True):
    """One verb on many runs: its plan and its progress."""

    id: str
    verb: str
    state: str
    actor: str
    note: str
    runs: int
    done: int
    changed: int
    refused: int
    holder: str | None
    fence: int
    created_at: datetime
    begun_at: datetime | None
    ended_at: datetime | None
    lease_until: datetime | None
    options: Raw = msgspec.field(default_factory=_null)
    preview: Raw = msgspec.field(default_factory=_null)
    """What the plan says, in words and numbers."""


class Acts(msgspec.Struct):
    items: list[Act]


class ActRun(msgspec.Struct):
    run: str
    state: str
    """Its state when the plan was made."""
    fence: int
    fate: str | None
    """None if it was not tried yet."""
    note: str


class ActRuns(msgspec.Struct):
    items: list[ActRun]
    next: str | None = None
    """`after` of the next page. None on the last one."""


class Token(msgspec.Struct, kw_only=True):
    """A token without its secret."""

    id: str
    name: str
    role: str
    namespaces: list[str]
    can: list[str]
    payloads: bool
    made_by: str
    made_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None
    who: list[str] = []
    """The person who bears it, and their teams."""


class Tokens(msgspec.Struct):
    items: list[Token]


class TokenMade(msgspec.Struct):
    token: Token
    secret: str
    """The token itself. It is shown this once."""


class TokenRevoked(msgspec.Struct):
    revoked: bool
    """False if it was revoked before."""


class Schedule(msgspec.Struct, kw_only=True):
    """A schedule. `plan` is what is written about its times and policies."""

    name: str
    ref: str
    namespace: str
    workflow: str
    version: str
    origin: str | None
    """The application whose code declares it. None: somebody made it."""
    state: ScheduleState
    note: str
    actor: str
    times: str
    tz: str
    plan: Raw
    next_at: datetime | None
    """When its next time starts, with the jitter."""
    decided_until: datetime
    """All its times up to this one have a fate."""
    open: list[str]
    """Its runs that have not ended."""
    waiting: list[datetime]
    """Times that wait for an open run to end."""
    failures: int
    started: int
    last_run: str | None
    """The run of the newest time that has succeeded."""
    priority: int
    tags: dict[str, str]
    input: Raw = msgspec.field(default_factory=_null)
    created_at: datetime


class Schedules(msgspec.Struct):
    items: list[Schedule]


class Fire(msgspec.Struct, kw_only=True):
    """What became of a time of a schedule, or of `times` of them that were missed together."""

    at: datetime
    repeat: int
    fate: FireFate
    run: str | None
    why: str
    backfill: str | None
    decided_at: datetime
    last_at: datetime
    times: int


class Fires(msgspec.Struct):
    items: list[Fire]


class Upcoming(msgspec.Struct):
    at: datetime
    """The time, in the schedule's zone."""
    starts_at: datetime
    """With the jitter."""
    note: str
    """Why it is left out, or what is to be known about it."""


class Preview(msgspec.Struct):
    items: list[Upcoming]


class Backfill(msgspec.Struct, kw_only=True):
    id: str
    schedule: str
    from_at: datetime
    to_at: datetime
    newest_first: bool
    most: int
    again: str
    state: BackfillState
    started: int
    passed: int
    """How many times were left alone, because they had run before."""
    actor: str
    note: str
    created_at: datetime
    ended_at: datetime | None


class Backfills(msgspec.Struct):
    items: list[Backfill]


class BackfillTime(msgspec.Struct):
    """What a backfill would do with a time."""

    at: datetime
    exists: str
    """What became of it so far. Empty: nothing."""
    run: str | None
    """The run that would start. None: the time is left alone."""


class BackfillAnswer(msgspec.Struct):
    """A backfill that was begun, or with `dry_run` what it would do."""

    backfill: Backfill | None
    times: list[BackfillTime]


class AskAnswer(msgspec.Struct):
    """What one person answered."""

    by: str
    at: datetime
    value: Raw
    note: str
    via: str
    """By which way it came: `token`, `link`, or `local` for a program on the store."""


class AskedPerson(msgspec.Struct):
    who: str
    since: datetime
    through: str
    """How they came to be asked: `asked`, `escalated`, `delegated by …`, or a team of theirs."""
    handed_to: str | None


class Escalation(msgspec.Struct):
    at: datetime
    who: str


class Ask(msgspec.Struct, kw_only=True):
    """A question to people."""

    id: str
    ref: str
    """The id as it stands in a path."""
    namespace: str
    run: str
    run_ref: str
    n: int
    """The step that waits for it."""
    workflow: str
    state: AskState
    question: str
    form: Raw = msgspec.field(default_factory=_null)
    """JSON Schema of an answer."""
    show: Raw = msgspec.field(default_factory=_null)
    """What is to be seen with the question."""
    of: int
    """How many people must answer."""
    answers: list[AskAnswer]
    who: list[AskedPerson]
    not_by: list[str]
    """The people and teams that must not answer."""
    asked_at: datetime
    expires_at: datetime | None
    ended_at: datetime | None
    remind_s: float | None
    escalate: list[Escalation]
    may_answer: bool
    """True if whoever reads this may answer now."""
    why_not: str
    """Why not, if not."""


class Asks(msgspec.Struct):
    items: list[Ask]


class AskAnswered(msgspec.Struct):
    ask: Ask
    new: bool
    """False if the same answer was given before."""


class Callback(msgspec.Struct, kw_only=True):
    """A callback that waits. Its address stands in no answer: whoever has it may end the call."""

    namespace: str
    run: str
    run_ref: str
    """The run's id as it stands in a path."""
    workflow: str
    n: int
    """The step that waits."""
    key: str
    step: str
    """The name of the step that asked for it."""
    issued_at: datetime
    """When the run called that step."""
    since: datetime | None
    """When the request was made, by which the other system has the address. None: nobody has made it yet."""
    expires_at: datetime | None
    """None if it never expires, or if its time has not begun."""
    expires_s: float | None
    """For how long it waits. None: as long as its run does."""
    number: int
    """How often it was asked for, with this time."""
    of: int
    """How often it may be asked for in all. Only one that expires is asked for again."""


class Callbacks(msgspec.Struct):
    items: list[Callback]
    next: str | None = None
    """The cursor of the next page. None on the last one."""


class CalledBack(msgspec.Struct):
    """What came of a callback."""

    new: bool
    """False if the same answer was given before."""


class Extended(msgspec.Struct):
    until: datetime | None
    """When it expires. None if it never does, or if its time has not begun."""


class LinkedAsk(msgspec.Struct):
    """An ask as the person sees it whom a link is for."""

    ask: Ask
    person: str


class Drawing(msgspec.Struct):
    """A workflow as a picture, with the way of a run in it. See docs/graph.md."""

    graph: Any


class FairKey(msgspec.Struct):
    """A fair key: whom work is for."""

    key: str
    weight: int
    """How many of its steps begin for one of a key with the weight 1, while both wait."""
    actor: str = ""
    """Who set the weight. Nobody did if this is empty."""
    note: str = ""


class FairKeys(msgspec.Struct):
    items: list[FairKey]


class Limit(msgspec.Struct):
    """A limit, or a rate."""

    key: str
    kind: str
    most: int
    """The number in force."""
    declared: int
    """The number in the code."""
    used: int
    """How much of a limit is in use."""
    is_set: bool
    """Somebody has set the number in force."""
    actor: str
    note: str
    per_s: float | None = None
    """Of a rate: in how many seconds `most` may begin."""
    burst: int | None = None
    next_s: float | None = None
    """Of a rate that has no token: in how many seconds there is one."""
    adaptive: bool = False
    """The leader moves the number, from `least` to `declared`, unless somebody has set it."""
    least: int | None = None
    moved: str = ""
    """Of an adaptive limit: why its number moved last."""
    moved_at: float | None = None
    """When it did, in seconds since the epoch."""


class Limits(msgspec.Struct):
    items: list[Limit]


class LimitUse(msgspec.Struct):
    """A step or a run that has a slot under a limit, or waits for one. A run has n = 0."""

    run: str
    n: int
    name: str
    since: float
    """In seconds since the epoch."""
    weight: int


class LimitSeen(msgspec.Struct):
    limit: Limit
    holders: list[LimitUse]
    waiters: list[LimitUse]
