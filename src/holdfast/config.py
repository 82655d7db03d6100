"""Every limit of Holdfast, with its unit in the name and its reason beside it."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from holdfast.errors import InvalidSettings

OnBug: TypeAlias = Literal["undo", "hold"]
"""What becomes of a run whose workflow code raised an exception of its own."""
AUDIT_STAYS_DAYS = 30.0
"""For how long a store lets nobody remove what the audit says: its triggers have this number."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    lease_s: float = 10.0
    """How long a node keeps its lease without renewing it; after that it counts as dead. This is longer than any pause
    that a node should survive, and short enough for others to wait for."""
    renew_s: float = 2.0
    """How often a node renews its lease. It has five chances before the lease runs out."""
    heart: bool = True
    """If True, a process beside the node renews its lease. So a step that blocks the event loop or keeps the GIL does
    not cost the node its lease. If False, the event loop renews the lease."""
    stall_s: float = 60.0
    """When a node's event loop has made no progress for this long, its heart stops renewing the lease. This is longer
    than any blocking call that somebody writes on purpose, and shorter than people want to wait."""
    connect_s: float = 5.0
    """How long connecting to one host of the database may take. When a URL names several hosts, each gets this long."""
    answer_s: float = 15.0
    """How long the database may take to answer a statement. After that the node gives up the statement and its
    connection, because something between them may drop what they send. This is longer than a lease, so that a process
    that has a lock and stands still loses the lock first."""
    start_s: float = 5.0
    """How long `start` waits for a store that cannot be written before it raises. This is longer than a short restart
    of the database, and far shorter than a caller that can do something else would wait."""
    leader_lease_s: float = 5.0
    """How long the leader keeps its lease without renewing it. Recovery may pause for this long when the leader's host
    vanishes without a word."""
    sweep_s: float = 0.2
    """How often the leader looks for what is lost. The heart of a killed process writes its death into the store at
    once, and the leader reads that within this time."""
    age_s: float = 60.0
    """After how long a step or a run gets a place although others have a higher priority. A sixteenth of the places is
    for those who have waited that long."""
    poll_s: float = 0.5
    """How often a node asks the store although no bell rang. A lost bell costs at most this time, with jitter."""
    runs_max: int = 1000
    """How many runs one scheduler keeps in memory. More would only cost memory: a few hundred runs already fill a group
    commit."""
    park_after_s: float = 10.0
    """A run that waits longer than this leaves memory."""
    claim_max: int = 500
    """How many rows one claim may take, so that one node does not empty the queue."""
    batch_max: int = 150
    """How many writes go into one commit. While the database works on one batch, this process computes the next. With
    several hundred runs in flight, batches of this size keep both busy; with one batch of all of them, each would wait
    for the other."""
    steps_max: int = 1000
    """How many `async def` steps an agent runs at once."""
    threads_max: int = 32
    """How many `def` steps an agent runs at once, each in a thread."""
    losses_max: int = 3
    """How often a step may lose its agent. After one more loss it goes into quarantine, because it probably kills its
    agents."""
    loss_back_off_s: float = 1.0
    """The wait between a step's second loss and its next attempt. It doubles with each further loss. After the first
    loss there is no wait."""
    loss_back_off_max_s: float = 60.0
    """The longest wait after a loss."""
    suspect_losses: int = 2
    """A step that lost its agent this often is a suspect. An agent begins one suspect at a time, so that a step that
    kills agents does not drag the steps beside it into quarantine."""
    suspect_s: float = 30.0
    """When a suspect has run for this long, its agent may begin the next one. Most steps that kill their agent do so
    sooner."""
    timeout_grace_s: float = 2.0
    """The Supervisor ends an overdue attempt this long after its agent should have ended it."""
    breaker_failures_min: int = 20
    """A breaker opens only after this many failed attempts within its window. Fewer failures are bad luck, or the fault
    of one run."""
    breaker_window_s: float = 10.0
    """Outcomes older than this no longer say anything about a dependency."""
    breaker_rate: float = 0.5
    """The share of failed attempts at which a breaker opens, or at which a wave of probes has failed."""
    breaker_wait_s: float = 0.3
    """The wait between the first reported failure and the decision to open, so that agents for which the dependency
    works can report that. An agent that sees many failures stops by itself before that."""
    breaker_open_s: float = 5.0
    """The first wait before a dependency is tried again. It doubles with every wave of probes that fails."""
    breaker_open_max_s: float = 30.0
    """The longest such wait. A dependency that is well again is noticed within this time, and one probe every half
    minute hurts nobody."""
    breaker_growth: int = 2
    """After a wave of probes that went well, the next wave may be this many times as large."""
    breaker_wave_max: int = 10_000
    """After a wave of this size that went well, the breaker closes even if more steps wait."""
    breaker_report_s: float = 0.05
    """How soon an agent reports how its probes ended. It waits this long so that it can report several together."""
    probe_lost_s: float = 1.0
    """When a wave has probes that no longer run and that nobody reported, and nothing about the breaker was written for
    this long, those probes count as lost and others may begin."""
    watch_s: float = 1.0
    """How often the leader looks for something to alert about, and how often the outbox looks for alerts to send."""
    backlog_s: float = 60.0
    """A ready step or a pending run that nobody claims for this long is worth an alert."""
    alert_window_s: float = 3600.0
    """Failures of one workflow or step, and losses on one host, within this time are one alert. It is sent once and
    counts them."""
    alert_tries_max: int = 10
    """How often a delivery is tried before it is given up. With the back-off, this takes about an hour."""
    alert_back_off_s: float = 5.0
    """The wait between the first two tries of a delivery. It doubles with each try."""
    alert_back_off_max_s: float = 900.0
    """The longest wait between two tries of a delivery."""
    alert_stale_s: float = 86_400.0
    """An alert that could not be sent for this long is not sent any more. It stays in the list of alerts."""
    store_trouble_s: float = 30.0
    """How long the store must be away before this is worth an alert. A restart or a failover is shorter."""
    keep_days: float | None = None
    """Ended runs older than this are removed, with everything that belongs to them. None keeps them until somebody runs
    `holdfast prune`."""
    keep_failed_days: float | None = None
    """The same for runs that did not succeed, which people may want to look at for longer. None means: like
    `keep_days`."""
    keep_nodes_days: float = 7.0
    """Nodes that left are remembered for this long, so that `why` can name the last one that could execute a step."""
    keep_journal_days: float = 90.0
    """What the journal says about acts of Holdfast's own roles, and about no run, is kept for this long. What it says about
    a run is removed with the run."""
    keep_audit_days: float = 400.0
    """The audit is kept for this long: what the journal says about people, programs and tokens, with or without a run, also
    after the run was removed. A year and a month is what auditors ask for. At least 30, because no store removes what is
    younger."""
    keep_acts_days: float = 30.0
    """Acts on many runs are kept for this long after their end, with what became of each run. What the journal says
    about each run stays with the run."""
    plan_s: float = 86_400.0
    """A plan of an act can be carried out for this long after it was made. Later, most of its runs would have changed,
    so it is removed."""
    act_lease_s: float = 5.0
    """How long a process keeps an act without carrying out a batch of it. After that, the leader takes the act over."""
    act_batch_max: int = 100
    """On how many runs one transaction of an act acts."""
    act_share_s: float = 0.1
    """After this long a transaction of an act ends, even if its batch is not done, so that nobody waits long for the
    runs that it has locked."""
    keep_fires_days: float = 90.0
    """What became of a schedule's times, and its backfills, are kept for this long. A backfill asks what has run before, so
    this should be longer than people wait with one."""
    keep_events_days: float = 7.0
    """Events are kept for this long after they came. An event that is sent again within this time is the same event."""
    keep_workflows_days: float = 90.0
    """A declaration of a workflow is kept for this long after a node last started with it, and as long as a node that
    has it is alive."""
    prune_rows_max: int = 500
    """How many rows one transaction of pruning removes. This takes the store a few milliseconds."""
    prune_share_s: float = 0.05
    """How much time pruning may take in one pass of the leader, so that recovery never waits for it."""
    prune_every_s: float = 60.0
    """How often the leader looks for old runs when the last look found none."""
    learn_s: float = 1.0
    """How often a node writes into the store how long things took. This is soon enough to help the work of the same
    hour."""
    learn_rows_max: int = 500
    """How many counts of durations one such write has."""
    durations_max: int = 10_000
    """About how many attempts of one step are remembered. Above this the counts are halved, so that old attempts
    fade."""
    durations_keep_days: float = 30.0
    """Counts to which nothing was added for this long are removed."""
    durations_rows_max: int = 100_000
    """How many counts the store keeps in all. Above this, those that were not changed for the longest time are
    removed."""
    rests_per_s: float = 50.0
    """In how many runs per second a scheduler notes the landmarks, to learn how long the rest of a run takes from
    there."""
    straggler_samples: int = 30
    """How many attempts of a step must be known before one can be called a straggler."""
    straggler_factor: float = 2.0
    """A straggler runs for more than this many times what 99 of 100 attempts took."""
    straggler_floor_s: float = 5.0
    """A straggler also runs for more than this: a hiccup of a fast step is not worth an alert."""
    hedge_samples: int = 20
    """How many attempts of a step must be known before it can get a twin."""
    hedge_factor: float = 1.5
    """A hedged step gets a twin when it runs for more than this many times what 95 of 100 attempts took."""
    hedge_floor_s: float = 0.1
    """The step must also have run for more than this, because beginning a twin takes about as long."""
    hedge_share: float = 0.04
    """At most this many twins begin per attempt of a step. When everything is slow, more twins would only add to the
    load."""
    drain_s: float = 30.0
    """On SIGTERM, running steps get this long to finish before they are handed back."""
    beat_s: float = 1.0
    """Progress is written at most this often, and cancellation is noticed at least this often."""
    stop_grace_s: float = 1.5
    """When a running step is stopped, what follows it begins this much later: its undo, or the verdict on an attempt
    whose twin was stopped. By then the step's agent has stopped it, even if no bell reached that agent: it looks every
    `beat_s`."""
    pool_look_s: float = 0.5
    """How often a pool looks at its agents and at the steps that wait for them. It notices at once when an agent
    ends."""
    pool_wait_s: float = 1.0
    """A pool grows when a step that its agents could execute waits longer than this. With a free place, an agent claims
    a step within milliseconds."""
    pool_idle_s: float = 15.0
    """A pool gives up one agent when the others would have been enough for this long. This is longer than most gaps
    between bursts."""
    pool_backlog_max: int = 1000
    """How many waiting steps a pool counts in each lane and priority. This is enough to know that it must grow."""
    pool_live_s: float = 60.0
    """An agent that is not at work this long after its start is killed. This is longer than large libraries take to
    load."""
    pool_steady_s: float = 30.0
    """An agent that ends after it lived longer than this is replaced at once. An earlier end is a crash."""
    pool_back_off_s: float = 0.2
    """The wait before the next start after a crash. It doubles with each crash in `pool_window_s`."""
    pool_window_s: float = 60.0
    """Crashes older than this are forgotten."""
    pool_crashes_max: int = 5
    """More crashes than this in `pool_window_s` are worth an alert. Then the pool starts agents only rarely."""
    pool_slow_s: float = 30.0
    """The wait between two starts while agents keep crashing, and the longest wait after a crash."""
    code_look_s: float = 1.0
    """How often a pool looks for changed code. It loads a change when nothing has changed since the look before."""
    payload_max_bytes: int = 2 * 1024 * 1024
    """How many bytes an input, result, signal, checkpoint or published value may have. Put a larger one into a file or
    an object store, and its address into the payload."""
    body_max_bytes: int = 1024 * 1024
    """How many bytes the body of a request to a server may have. Bodies with a payload may have `payload_max_bytes` and
    64 KiB beside it. It bounds what one request can cost before it is checked."""
    batch_max_bytes: int = 8 * 1024 * 1024
    """How many bytes a batch of starts, or the answer to a question about many runs, may have."""
    depth_max: int = 64
    """How deeply the JSON of a request may be nested. Deeper values are mistakes, or meant to do harm."""
    members_max: int = 10_000
    """How many members the objects of a request may have in all. More would keep the server busy for milliseconds."""
    body_s: float = 30.0
    """How long a request's body may take to arrive. A slower sender would keep a connection that others need."""
    connections_max: int = 5_000
    """How many connections a server has at once. Each takes some kilobytes and a file descriptor."""
    requests_per_s: float = 1_000.0
    """How many requests a second one token may send to one server. So one program cannot keep the others waiting."""
    requests_burst: int = 2_000
    """How many requests one token may send at once after a pause."""
    polls_max: int = 50
    """How many requests of one token may wait at a server at the same time."""
    streams_max: int = 20
    """How many streams of one token may be open at a server. A page needs one."""
    sign_ins_per_min: int = 10
    """How many requests a minute with a bad token one address may send, and how often a minute one token may sign in. More
    are refused."""
    leave_s: float = 10.0
    """When a server leaves, requests that are being answered get this long."""
    logs_max_bytes: int = 64 * 1024
    """How many bytes of what one attempt logs are kept: the beginning and the end. This is enough for some hundred
    lines, and small beside what a disk costs. With 0, nothing is kept."""
    logs_level: str = "INFO"
    """What is logged below this level is not kept. Lines for debugging would push out those that matter."""
    traces: bool = False
    """If True, starts, attempts, runs and requests are spans of OpenTelemetry, which the program's SDK sends where
    it likes. It needs `holdfast[otel]`. HOLDFAST_TRACES=1 does the same. If False, no span is made, and nothing is looked up
    for one."""
    on_bug: OnBug = "undo"
    """What becomes of a run whose workflow code raised an exception of its own, where `@workflow(on_bug=…)` does not say
    it. `undo` fails the run, which undoes what it did: nothing waits for a person. `hold` holds it where it was."""
    replay_slice_steps: int = 2_000
    """A scheduler that takes over runs of other nodes claims no more of them when it has this many steps to replay. The
    other runs wait, or another scheduler claims them."""

    def __post_init__(self) -> None:
        if self.on_bug not in get_args(OnBug):
            raise InvalidSettings(f'Config(on_bug={self.on_bug!r}): expected "undo" or "hold"')
        if self.keep_audit_days < AUDIT_STAYS_DAYS:
            raise InvalidSettings(
                f"Config(keep_audit_days={self.keep_audit_days:g}): the store keeps the audit for {AUDIT_STAYS_DAYS:g} days "
                "at least"
            )


DEFAULT = Config()
