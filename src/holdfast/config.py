"""Every limit of Holdfast, with its unit in the name and its reason beside it."""

from __future__ import annotations

import msgspec


class Config(msgspec.Struct, frozen=True, kw_only=True):
    lease_s: float = 10.0
    """A node that has not renewed for this long is dead. Longer than any pause worth surviving, short enough to wait."""
    renew_s: float = 2.0
    """Five chances to renew before the lease runs out."""
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
