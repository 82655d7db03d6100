"""Every limit of Holdfast, with its unit in the name and its reason beside it."""

from __future__ import annotations

import msgspec


class Config(msgspec.Struct, frozen=True, kw_only=True):
    lease_s: float = 10.0
    """A node that has not renewed for this long is dead. Longer than any pause worth surviving, short enough to wait."""
    renew_s: float = 2.0
    """Five chances to renew before the lease runs out."""
    heart: bool = True
    """A process beside the node renews its lease, so that a step that blocks the event loop or holds the GIL does not lose it.
    False: the event loop renews."""
    stall_s: float = 60.0
    """A node whose event loop has made no progress for this long is given up: its heart stops renewing. Longer than any
    blocking call that is meant, shorter than anybody's patience."""
    connect_s: float = 5.0
    """Connecting to one host of the database may take this long. When a URL names several, each has its turn."""
    answer_s: float = 15.0
    """A statement that the database has not answered by then is given up with its connection: something on the way swallows
    it. Longer than a lease, so that somebody who holds a lock and stands still loses it first."""
    start_s: float = 5.0
    """Whoever starts a run is told after this long that the store does not take it. Longer than a short restart takes, far
    shorter than somebody waits who can do something else."""
    leader_lease_s: float = 5.0
    """Recovery may pause this long when the leader's host vanishes silently."""
    sweep_s: float = 0.2
    """How often the leader looks for what is lost. The heart of a killed process says so at once: this is how soon it is heard."""
    poll_s: float = 0.5
    """Safety net under the doorbells: a lost one costs at most this, with jitter."""
    runs_max: int = 1000
    """Runs one scheduler keeps in memory. More only add memory: the group commit is full at a few hundred."""
    park_after_s: float = 10.0
    """A run that waits longer than this leaves memory."""
    claim_max: int = 500
    """Rows one claim may take, so that one node does not empty the queue."""
    batch_max: int = 150
    """Writes in one commit. While the database works on one batch this process computes the next: with several hundred
    runs in flight, batches of this size keep both busy, and one batch of all of them would keep each waiting for the other."""
    steps_max: int = 1000
    """`async def` steps an agent runs at once."""
    threads_max: int = 32
    """`def` steps an agent runs at once, each in a thread."""
    losses_max: int = 3
    """How often a step may lose its agent before it is taken to be what kills them, and goes into quarantine."""
    loss_back_off_s: float = 1.0
    """Between a step's second loss of its agent and its next attempt; doubles with each. After the first there is no wait."""
    loss_back_off_max_s: float = 60.0
    """The longest wait after a loss."""
    suspect_losses: int = 2
    """A step that lost its agent this often is a suspect: an agent begins one at a time, so that the one that kills agents
    does not drag those that were beside it into quarantine."""
    suspect_s: float = 30.0
    """A suspect that has run for this long keeps no other one waiting. Most that kill their agent do so sooner."""
    timeout_grace_s: float = 2.0
    """The Supervisor ends an overdue attempt this long after its agent should have."""
    breaker_failures_min: int = 20
    """A breaker opens after so many failed attempts within its window, at least: fewer are bad luck, or one run's own."""
    breaker_window_s: float = 10.0
    """Outcomes older than this say nothing of a dependency any more."""
    breaker_rate: float = 0.5
    """The share of failed attempts at which a breaker opens, or a wave of probes has failed."""
    breaker_wait_s: float = 0.3
    """Between the first trouble told and the decision to open, so that agents for whom all is well can say so. An agent in
    trouble has stopped by itself before that."""
    breaker_open_s: float = 5.0
    """The first wait before a dependency is tried again; doubles with every wave that fails."""
    breaker_open_max_s: float = 30.0
    """The longest such wait: what healed is found out within this time, and a probe every half minute hurts nobody."""
    breaker_growth: int = 2
    """Each wave of probes may be so many times as large as the one before that went well."""
    breaker_wave_max: int = 10_000
    """After a wave of this size that went well the breaker closes, even if more is waiting."""
    breaker_tell_s: float = 0.05
    """How soon an agent tells what became of its probes: some of them together."""
    probe_lost_s: float = 1.0
    """A probe that ended and of which nobody has told anything for this long is lost, and another may begin."""
    watch_s: float = 1.0
    """How often the leader looks for something to alert about, and the outbox for something to tell."""
    backlog_s: float = 60.0
    """A step that is ready, or a run that is pending, and not taken up for this long is worth an alert."""
    alert_window_s: float = 3600.0
    """Failures of one workflow or step, and losses on one host, within this time are one alert, told once and counted."""
    alert_tries_max: int = 10
    """A delivery is tried this often before it is given up: with the back-off, for about an hour."""
    alert_back_off_s: float = 5.0
    """Between the first two tries of a delivery; doubles with each."""
    alert_back_off_max_s: float = 900.0
    """The longest wait between two tries of a delivery."""
    alert_stale_s: float = 86_400.0
    """An alert that nobody could tell for this long is not told any more: it is in the list."""
    store_trouble_s: float = 30.0
    """The store must be away this long before it is worth an alert: a restart or failover is shorter."""
    keep_days: float | None = None
    """Ended runs older than this are removed, with all that belongs to them. None: kept until `holdfast prune`."""
    keep_failed_days: float | None = None
    """The same for runs that did not succeed, which people may want to look at for longer. None: as `keep_days`."""
    keep_nodes_days: float = 7.0
    """Processes that left are remembered for this long, so that `why` can say who was the last that could do a step."""
    keep_journal_days: float = 90.0
    """Journal rows that belong to no run are kept for this long. Those of a run go with it."""
    keep_workflows_days: float = 90.0
    """What code declared is kept for this long after a node last started with it, and while one that has it lives."""
    prune_rows_max: int = 500
    """Rows one transaction of pruning removes: a few milliseconds of the store's time."""
    prune_share_s: float = 0.05
    """Time that pruning may take in one pass of the leader, so that recovery never waits for it."""
    prune_every_s: float = 60.0
    """How often the leader looks for old runs when the last look found none."""
    learn_s: float = 1.0
    """How often a node tells the store how long things took. Soon enough for what was learned to help the same hour's work."""
    learn_rows_max: int = 500
    """Counts of durations in one such telling."""
    durations_max: int = 10_000
    """Of one step, about this many attempts are remembered: beyond, the counts are halved, so that old ones fade."""
    durations_keep_days: float = 30.0
    """What was not counted for this long is forgotten."""
    durations_rows_max: int = 100_000
    """Counts that the store keeps in all. Beyond, those that were not touched for longest go."""
    rests_per_s: float = 50.0
    """Runs per second in which a scheduler notes its landmarks, to learn how long what is left takes."""
    straggler_samples: int = 30
    """Attempts of a step that must be known before one can be called a straggler."""
    straggler_factor: float = 2.0
    """A straggler runs for more than this many times what 99 of 100 attempts took."""
    straggler_floor_s: float = 5.0
    """And for more than this: a hiccup of a fast step is not worth a word."""
    hedge_samples: int = 20
    """Attempts of a step that must be known before it can get a twin."""
    hedge_factor: float = 1.5
    """A hedged step gets a twin when it runs for more than this many times what 95 of 100 attempts took."""
    hedge_floor_s: float = 0.1
    """And for more than this: a twin costs about as much to begin."""
    hedge_share: float = 0.04
    """Twins per attempt of a step, at most: when everything is slow, twins would only add to it."""
    drain_s: float = 30.0
    """On SIGTERM, running steps get this long to finish before they are handed back."""
    beat_s: float = 1.0
    """Progress is written at most this often, and cancellation is noticed at least this often."""
    stop_grace_s: float = 1.5
    """What takes the place of a step that was stopped while it ran begins this much later: its undo, or the verdict of an
    attempt whose twin was stopped. By then its agent, which looks every `beat_s` when no doorbell reaches it, has stopped it."""
    pool_look_s: float = 0.5
    """How often a pool looks at its agents and at what waits for them; one that ends is seen at once."""
    pool_wait_s: float = 1.0
    """A pool grows when a step that its agents could take waits longer than this: with a free place it is claimed in
    milliseconds."""
    pool_idle_s: float = 15.0
    """A pool gives up one agent when the others would have done for this long. Longer than most gaps between bursts."""
    pool_backlog_max: int = 1000
    """Waiting steps a pool counts in each lane and priority: enough to know that it must grow."""
    pool_live_s: float = 60.0
    """An agent that is not at work so long after it was started is killed. Longer than large libraries take to load."""
    pool_steady_s: float = 30.0
    """An agent that lived longer than this is replaced at once when it ends; one that lived shorter is a crash."""
    pool_back_off_s: float = 0.2
    """Before the next start after a crash; doubles with each crash in `pool_window_s`."""
    pool_window_s: float = 60.0
    """Crashes older than this are forgotten."""
    pool_crashes_max: int = 5
    """More crashes than this in `pool_window_s` are worth an alert, and starts become rare."""
    pool_slow_s: float = 30.0
    """Between two starts while agents do not stay, and the longest wait after a crash."""
    code_look_s: float = 1.0
    """How often a pool looks for changed code. It is taken up when it has been still for one look."""
    payload_max_bytes: int = 2 * 1024 * 1024
    """An input, result, signal, checkpoint or published value may have so many bytes. A larger one belongs in a file or object
    store, and its address in the payload."""
    replay_slice_steps: int = 2_000
    """A scheduler that takes up runs of others claims no further one when it has so many steps to replay: the rest waits, or is
    another's."""


DEFAULT = Config()
