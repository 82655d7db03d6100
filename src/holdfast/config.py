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
    leader_lease_s: float = 5.0
    """Recovery may pause this long when the leader's host vanishes silently."""
    sweep_s: float = 0.2
    """How often the leader looks for what is lost. With the liveness lock this bounds how soon a killed agent is noticed."""
    gone_grace_s: float = 0.1
    """A liveness lock must be missing this long before its node is buried: a reconnecting node gets its chance."""
    poll_s: float = 0.5
    """Safety net under the doorbells: a lost one costs at most this, with jitter."""
    runs_max: int = 1000
    """Runs one scheduler keeps in memory. More only add memory: the group commit is full at a few hundred."""
    park_after_s: float = 10.0
    """A run that waits longer than this leaves memory."""
    claim_max: int = 500
    """Rows one claim may take, so that one node does not empty the queue."""
    batch_max: int = 300
    """Writes in one commit. While the database works on one batch this process computes the next: with several hundred
    runs in flight, batches of this size keep both busy, and one batch of all of them would keep each waiting for the other."""
    steps_max: int = 1000
    """`async def` steps an agent runs at once."""
    threads_max: int = 32
    """`def` steps an agent runs at once, each in a thread."""
    losses_max: int = 3
    """How often a step may lose its agent before it is taken to be what kills them."""
    timeout_grace_s: float = 2.0
    """The Supervisor ends an overdue attempt this long after its agent should have."""
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
    prune_rows_max: int = 500
    """Rows one transaction of pruning removes: a few milliseconds of the store's time."""
    prune_share_s: float = 0.05
    """Time that pruning may take in one pass of the leader, so that recovery never waits for it."""
    prune_every_s: float = 60.0
    """How often the leader looks for old runs when the last look found none."""
    drain_s: float = 30.0
    """On SIGTERM, running steps get this long to finish before they are handed back."""
    beat_s: float = 1.0
    """Progress is written at most this often, and cancellation is noticed at least this often."""
    payload_max_bytes: int = 2 * 1024 * 1024
    """A larger value belongs in a file or object store, and its address in the payload."""
    history_max_steps: int = 50_000
    """A run with more steps should continue as new: replaying it would take seconds."""
    replay_slice_steps: int = 2_000
    """Steps loaded at once when runs are adopted."""


DEFAULT = Config()
