"""What each role may ask of the State Store: small protocols, so that the type checker enforces who may write what.

Writes on the hot path are values (see `operations`) that share a commit. Everything else is a method that is one transaction
by itself. Every write names its precondition; an `Answer` says whether it held. Zero rows changed is an answer, not an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from holdfast.breaker import Change, Look
from holdfast.model import (
    Alert,
    Attempt,
    Breaker,
    BreakerState,
    Declaration,
    Delivery,
    Hold,
    HoldScope,
    Inherited,
    JournalEntry,
    Landmark,
    Lane,
    Leader,
    NewAlert,
    NewRun,
    Node,
    Poison,
    Quarantined,
    Run,
    RunState,
    Signal,
    Step,
    Twin,
    TwinState,
)
from holdfast.store.answers import (
    Answer,
    Backlog,
    ClaimedRun,
    ClaimedStep,
    FailureNote,
    Gates,
    Late,
    Observation,
    Overlong,
    Probes,
    Pruned,
    Reclaimed,
    Rival,
    Route,
    Sending,
    Undelivered,
)
from holdfast.store.operations import NewSignal, Op
from holdfast.store.transaction import Transaction

NOTED_EVERY_S = 3600.0
"""That something was declared once more is written down this often at most: processes that come and go write nothing."""
LAPSED = "its lease ran out"
"""Why a node is dead, when that may have changed since somebody looked: `bury` looks again."""
LOSSES_NEVER = 2**31 - 1
"""No step loses its agent this often."""
GONE = "its process is gone"
LEFT = "it left and still holds something"

LaneKey = tuple[str, tuple[str, ...], str | None, str]
"""A step's name, what it needs, the name of its undo, and what it depends on: its own name, if nothing else."""


class Bell(StrEnum):
    """What a doorbell rings for. A hint: losing one costs latency, never work."""

    RUNS = "runs"
    """A run waits for a scheduler."""
    STEPS = "steps"
    """A step waits for an agent."""
    OUTCOMES = "outcomes"
    """An outcome or signal waits to be delivered, or a timer changed."""
    ENDED = "ended"
    """A run ended, was held, or otherwise changed for those who watch it."""
    CANCELS = "cancels"
    """A running step was cancelled: its agent should look."""
    GATES = "gates"
    """A breaker or hold changed, or a dependency is in trouble."""


class RunFilter(msgspec.Struct, kw_only=True):
    states: tuple[str, ...] = ()
    workflow: str | None = None
    tags: dict[str, str] = {}
    before: tuple[float, str] | None = None
    """Cursor: (created_at, id) of the last row seen."""
    limit: int = 50


class Writes(Protocol):
    """What the `Writer` needs of a dialect: all ops in one transaction, or `PreconditionFailed` and nothing written."""

    async def commit(self, node: str, ops: Sequence[Op]) -> list[Any]: ...


class SchedulerStore(Protocol):
    async def claim_runs(
        self,
        node: str,
        workflows: Sequence[tuple[str, str]],
        limit: int,
        runs: Sequence[str] | None = None,
    ) -> list[ClaimedRun]:
        """Own up to `limit` runs: pending ones, and ownerless ones with something to deliver. By priority, then age. Only
        some of `runs`, where a node works on these alone."""

    async def claim_run(self, node: str, run_id: str) -> ClaimedRun | None:
        """Own this run if nobody does (used to go on at once with a run one was asked to run)."""

    async def undelivered(self, node: str, limit: int) -> Undelivered:
        """What others recorded for the runs this node owns."""

    async def fire_timers(self, limit: int) -> int:
        """Record due timers of runs that nobody owns as succeeded, so that the runs can be claimed."""

    async def answer_joins(self, limit: int) -> int:
        """Tell up to `limit` steps that wait for a run which is not their child, and which has ended, how it ended."""

    async def next_timer(self) -> float | None:
        """When the earliest timer of an ownerless run comes due (store's clock)."""

    async def hold_run(self, run_id: str, fence: int, note: str) -> Answer:
        """The owner holds its run: drift, or code that cannot be loaded."""

    async def lanes(self) -> list[Lane]: ...

    async def children(self, run_id: str) -> list[Run]: ...

    async def child_histories(self, run_id: str) -> list[ClaimedRun]:
        """The run's children with their steps, to plan how they are undone."""

    async def number_lanes(self, lanes: Sequence[LaneKey]) -> list[int]:
        """The number of each, made if new, in one commit."""

    async def lost_runs(self, node: str, held: Sequence[tuple[str, int]]) -> list[str]:
        """Ids among (run, fence) that this node no longer owns."""


class AgentStore(Protocol):
    async def lanes(self) -> list[Lane]: ...

    async def claim_steps(
        self,
        node: str,
        lanes: Sequence[int],
        limit: int,
        *,
        suspect_losses: int = LOSSES_NEVER,
        suspects: int = 0,
        runs: Sequence[str] | None = None,
    ) -> list[ClaimedStep]:
        """Take ready steps of these lanes by priority, then age. Counts the attempt, raises the fence. None of a lane whose
        breaker is not closed, and none that is held. Of suspects, which lost their agent `suspect_losses` times or more, at
        most so many; with none, those behind them come all the same. Only steps of `runs`, where a node works on these
        alone."""

    async def claim_probes(
        self, node: str, name: str, lanes: Sequence[int], limit: int, runs: Sequence[str] | None = None
    ) -> Probes:
        """The same, of lanes that depend on `name`, while its breaker is probing: at most what its allowance has left, which
        is taken from it in the same transaction."""

    async def gates(self, window_s: float) -> Gates:
        """What keeps steps from beginning; recent is what was told within `window_s`."""

    async def observe(self, tallies: Sequence[Observation], window_s: float) -> None:
        """Add outcomes to the breakers: of a closed one to its window, which begins anew after `window_s`; of probes to
        their wave, if it is still that one. Decides nothing."""

    async def lost_steps(self, node: str, held: Sequence[tuple[str, int, int]]) -> list[tuple[str, int]]:
        """(run, n) among (run, n, fence) that this node no longer holds: cancelled, timed out or reclaimed."""

    async def next_ready(self, lanes: Sequence[int], runs: Sequence[str] | None = None) -> float | None:
        """When the earliest backing-off step of these lanes becomes claimable."""

    async def claim_twins(self, node: str, lanes: Sequence[int], limit: int) -> list[ClaimedStep]:
        """Take twins of steps that run elsewhere. What is claimed is the step, but its fence is the twin's."""

    async def lost_twins(self, node: str, held: Sequence[tuple[str, int, int]]) -> list[tuple[str, int]]:
        """(run, n) among twins (run, n, fence) that are no longer wanted: their step has ended, or they were swept."""

    async def end_twin(
        self, node: str, twin: tuple[str, int, int], state: TwinState, output: bytes | None, outran: str
    ) -> Answer:
        """End a twin (run, n, fence). When it won, its output becomes the step's outcome in the same transaction, and
        the attempt it outran is kept with the error `outran`; FENCED when the step had ended or the twin was swept."""

    async def bar_twin(self, run_id: str, n: int) -> Twin:
        """The step is about to fail: no twin of it may begin any more. The twin as it is then: it has begun if it has
        `started_at`, and may still win unless it has `ended_at`."""

    async def stop_twin(self, run_id: str, n: int) -> None:
        """End the step's twin, whoever runs it."""


class SupervisorStore(Protocol):
    async def lead(self, node: str, lease_s: float, lease: str = "leader") -> int | None:
        """Take or keep the leader's lease, or the one with this name; the epoch, or None when another node holds it. A
        leader whose process is gone is succeeded at once."""

    async def leader(self) -> Leader | None: ...

    async def now(self) -> float: ...

    async def resign(self, node: str) -> None:
        """Give up every lease this node holds."""

    async def dead_nodes(self) -> list[tuple[str, str]]:
        """(node, reason) whose lease ran out or whose process is known to be gone, and that still hold something or are
        not retired. A connection that is lost says nothing of a process."""

    async def reclaim(
        self, node: str, epoch: int, reason: str, losses_max: int, limit: int
    ) -> Reclaimed | None:
        """Clear the dead node's runs and take back its steps, raising their fences; None when `epoch` is not current.
        With the reason `LAPSED`, nothing is done to a node that has renewed its lease since.
        A step lost more often than its policy, or else `losses_max`, allows goes into quarantine, or fails if its policy
        says so. Bounded by `limit`: call again until nothing is left."""

    async def close_signals(self, epoch: int, limit: int) -> int:
        """Mark signals that ended runs never took in, so that nobody looks at them again; how many."""

    async def end_overdue(self, epoch: int, grace_s: float, limit: int) -> int:
        """Time out attempts whose agent should have ended them: ready again, or what their policy says when its budget is
        spent."""

    async def stick_quarantined(self, epoch: int, limit: int) -> int:
        """Runs in which nothing but steps in quarantine is left to wait for become stuck; how many. What is listed as in
        quarantine and is not any more goes from the list."""

    async def quarantine(self, limit: int) -> list[Poison]:
        """What is in quarantine, by fingerprint, the oldest first."""

    async def gates(self, window_s: float) -> Gates: ...

    async def breaker_looks(self, window_s: float) -> list[Look]:
        """Breakers that are not closed, or were told of trouble within `window_s`."""

    async def change_breaker(self, epoch: int, name: str, round: int, change: Change) -> bool:
        """False when `epoch` is not current, or the breaker is not any more in this round, or an operator decided."""

    async def give_back_probes(self, epoch: int, name: str, round: int, probes: int) -> bool:
        """So many probes of the wave are lost: others may begin."""

    async def nodes(self) -> list[Node]: ...

    async def lanes(self) -> list[Lane]: ...

    async def durations(self, names: Sequence[str] | None = None) -> list[tuple[str, int, float]]:
        """(name, bucket, count) of these; None: of all steps."""

    async def fade_durations(self, epoch: int, *, attempts_max: float, keep_s: float, rows_max: int) -> int:
        """Halve the counts of whatever was counted more than `attempts_max` times, forget what was not counted for
        `keep_s`, and what is more than `rows_max` rows; how many things were changed."""

    async def overlong_steps(self, bounds: Sequence[tuple[str, float]], limit: int) -> list[Overlong]:
        """Running steps with these names that run for longer than the seconds beside them: those without a twin
        first, then by age."""

    async def make_twins(self, epoch: int, steps: Sequence[tuple[str, int, int]]) -> list[tuple[str, int]]:
        """Give those of these running steps (run, n, fence) a twin that are still as they were and never had one."""

    async def sweep_twins(self, epoch: int, limit: int) -> int:
        """End twins that are not wanted any more: their step has ended, or their agent is lost."""

    async def failures(self, limit: int) -> list[FailureNote]:
        """What failed and no leader has looked at, oldest first."""

    async def raise_alerts(
        self, epoch: int, alerts: Sequence[NewAlert], looked_at: Sequence[int] = ()
    ) -> bool:
        """Raise these, each key once, and forget the failures they came from; False when `epoch` is not current."""

    async def open_alerts_of(self, kind: str, after: int, limit: int) -> list[Alert]:
        """Those of this kind with ids above `after`, in the order of their ids."""

    async def clear_alerts(self, epoch: int, ids: Sequence[int]) -> int: ...

    async def log_alerts(self, epoch: int, limit: int) -> list[Alert]:
        """Alerts that no leader has logged yet. Each is returned once."""

    async def late_steps(self, bound_s: float, limit: int) -> list[Late]:
        """By lane, the step that waits longest for an agent, if longer than `bound_s`."""

    async def late_runs(self, bound_s: float, limit: int) -> list[Late]:
        """By workflow and version, the run that waits longest for a scheduler, if longer than `bound_s`."""

    async def late_wakes(self, bound_s: float, rows_max: int, limit: int) -> list[Late]:
        """By workflow and version, the begun run that nobody owns and that waits longest for a scheduler to deliver
        something to it, if longer than `bound_s`. At most `rows_max` rows of each kind are looked at."""

    async def prune(
        self,
        epoch: int | None,
        *,
        actor: str,
        state: str,
        before: float,
        after: tuple[float, str],
        runs_max: int,
        rows_max: int,
    ) -> Pruned:
        """One batch: of the runs that ended in `state` before `before`, beginning after the cursor `after`, remove those
        that have no children and no live run above them, with their steps, attempts, signals and journal. At most
        `runs_max` runs, and about `rows_max` rows. Nothing when `epoch` is not current; no epoch: an operator asks."""

    async def living(self, limit: int) -> list[Node]:
        """Nodes that have not left, those with the longest leases first."""

    async def forget_nodes(self, epoch: int, before: float, limit: int) -> int:
        """Remove nodes that left before `before` and hold nothing; how many."""

    async def forget_journal(self, epoch: int, before: float, limit: int) -> int:
        """Remove journal rows from before `before` that belong to no run; how many."""

    async def forget_workflows(self, epoch: int, before: float, limit: int) -> int:
        """Remove what nobody has declared since `before` and no live node has loaded; how many."""

    async def prune_alerts(self, epoch: int, before: float, limit: int) -> int:
        """Remove alerts that were cleared before `before`, with their deliveries; how many."""


class OutboxStore(Protocol):
    """What the holder of the lease named alerts may do. Every write checks that lease's epoch."""

    async def lead(self, node: str, lease_s: float, lease: str = "leader") -> int | None: ...

    async def now(self) -> float: ...

    async def unrouted_alerts(self, limit: int) -> list[tuple[int, Alert]]:
        """(how far it is routed, alert) of those with something to tell, oldest first."""

    async def route_alerts(self, epoch: int, routes: Sequence[Route]) -> int: ...

    async def claim_deliveries(self, epoch: int, channel: str, limit: int, hold_s: float) -> list[Sending]:
        """Take deliveries that are due. The try is counted now; after `hold_s` it comes again unless it was ended."""

    async def end_delivery(
        self, epoch: int, delivery: str, attempt: int, error: str | None, again_s: float | None
    ) -> bool:
        """Record what became of a try: sent (no error), to be tried again, or given up (`again_s` None)."""

    async def expire_deliveries(self, epoch: int, older_s: float) -> int:
        """Give up what was due so long ago that its channel must be gone."""


class PoolStore(Protocol):
    """What keeps agents at strength may ask. It changes nothing here."""

    async def now(self) -> float: ...

    async def living(self, limit: int) -> list[Node]:
        """Nodes that have not left, those with the longest leases first."""

    async def lanes(self) -> list[Lane]: ...

    async def backlog(self, lanes: Sequence[int], limit: int) -> Backlog:
        """What is ready and due in these lanes, of runs that go on, counted up to `limit` in each lane and priority."""


class NodeStore(Protocol):
    async def register(
        self,
        node: str,
        *,
        host: str,
        pid: int,
        roles: str,
        offers: str,
        capacity: int,
        lease_s: float,
        declared: Sequence[Declaration] = (),
    ) -> None:
        """Enter the node's row, with a lease from now, and with it what its code declares. NameTaken, and nothing is entered, if
        a live node publishes one of its names from elsewhere (see `claims`). A node may register again, when its code has
        changed; its lease stays as it is."""

    @property
    def shared_url(self) -> str | None:
        """The address under which other processes of this host find this store; None when it is in this one's memory."""

    async def renew(self, node: str, lease_s: float, pulse: str | None = None) -> float | None:
        """Renew the lease, and note what the node says of itself (a JSON object, kept in `offers.pulse` with its time);
        the store's time, or None when the node was buried. Never waits for the writer."""

    async def retire(self, node: str) -> None:
        """Leave: nothing held is kept."""

    async def reconcile(
        self, node: str, runs: Sequence[tuple[str, int]], steps: Sequence[tuple[str, int, int]]
    ) -> tuple[int, int]:
        """Give up whatever the store says this node holds beyond these, named with their fences (a reply was lost): runs are
        parked, steps handed back. Returns how many of each."""

    async def add_durations(self, counts: Sequence[tuple[str, int, float]]) -> None:
        """Add what this node counted: (name, bucket, count)."""

    async def ring(self, bells: set[Bell]) -> None: ...

    async def listen(self, heard: Any) -> Any:
        """Call `heard(bell)` for bells rung by other nodes, until the returned `close()` coroutine function is called."""


class ClientStore(Protocol):
    async def run(self, run_id: str) -> Run | None: ...

    async def runs(self, where: RunFilter) -> list[Run]: ...

    async def ended_runs(self, run_ids: Sequence[str]) -> list[Run]:
        """Those of these runs that have ended, or are stuck."""

    async def unknown_runs(self, run_ids: Sequence[str]) -> list[str]:
        """Those of these ids that no run has."""

    async def runs_by_state(self) -> dict[str, int]: ...

    async def steps(self, run_id: str, *, after: int = 0, limit: int = 1000) -> list[Step]: ...

    async def attempts(self, run_id: str) -> list[Attempt]: ...

    async def signals(self, run_id: str) -> list[Signal]: ...

    async def children(self, run_id: str) -> list[Run]: ...

    async def joins(self, run_id: str) -> dict[int, str]:
        """Runs that steps of this one wait for without owning them, by the step's n."""

    async def twins(self, run_id: str) -> list[Twin]: ...

    async def landmarks(self, run_ids: Sequence[str]) -> list[Landmark]:
        """How far each of these runs has come, if it has asked for anything."""

    async def durations(self, names: Sequence[str] | None = None) -> list[tuple[str, int, float]]: ...

    async def nodes(self) -> list[Node]: ...

    async def declared(self, run_id: str) -> Declaration | None:
        """What code declares of an open run's workflow. None when nobody did, or the run is not open."""

    async def workflows(self, limit: int) -> list[Declaration]:
        """All that is declared, by name."""

    async def rivals(self, code: str, node: str = "") -> list[Rival]:
        """Live nodes that publish something else than `code` (see `claims`), but for `node`."""

    async def loads(self) -> dict[str, tuple[int, int]]:
        """(steps held, runs owned) of every node that has any."""

    async def journal(self, run_id: str | None, limit: int = 100) -> list[JournalEntry]: ...

    async def leader(self) -> Leader | None: ...

    async def send_signal(self, signal: NewSignal) -> Answer:
        """ACCEPTED, DUPLICATE (same key before), or FENCED when the run has ended. UnknownRun if there is none."""

    async def cancel_run(self, run_id: str, actor: str, note: str, again: bool = False) -> RunState:
        """A pending run nobody owns is cancelled at once, any other gets the `$cancel` signal: one, unless `again`, which
        asks anew whose code has heard the last one. Returns the state now."""

    async def hold(self, run_id: str, actor: str, note: str) -> RunState: ...

    async def release(self, run_id: str, actor: str, note: str) -> RunState: ...

    async def retry_now(self, run_id: str, actor: str) -> int:
        """Make the run's backing-off steps ready at once; how many."""

    async def retry_run(self, run_id: str, actor: str) -> str:
        """Start a run that goes on from where this one ended, and keeps what `retries.plan` says; its id. Asked again, it is the
        same run. WrongState when the run has not ended, succeeded, was retried and that one since, is the child of a run
        that is to be retried instead, or has a child that has not ended."""

    async def inherited(self, run_id: str) -> list[Inherited]:
        """What a run takes over from the one it is the retry of, by key."""

    async def steer_undo(self, run_id: str, act: str, n: int | None, actor: str, note: str) -> RunState:
        """Tell a run that takes itself back, or is stuck at it, to retry, skip or abandon; a stuck one goes on."""

    async def breakers(self) -> list[Breaker]:
        """All there ever were, by name."""

    async def holds(self) -> list[Hold]:
        """All there are, oldest first."""

    async def add_hold(self, scope: HoldScope, value: str, actor: str, note: str) -> bool:
        """False when there was one already."""

    async def remove_hold(self, scope: HoldScope, value: str, actor: str, note: str) -> bool:
        """False when there was none."""

    async def force_breaker(self, name: str, state: BreakerState, actor: str, note: str) -> Breaker:
        """Open or closed: it stays so until it is reset."""

    async def reset_breaker(self, name: str, actor: str, note: str) -> Breaker | None:
        """Let it decide by itself again. One that is not closed is tried first. None: there is no such breaker."""

    async def quarantine(self, limit: int) -> list[Poison]: ...

    async def quarantined(self, run_id: str) -> list[Quarantined]:
        """The run's steps in quarantine."""

    async def resolve_quarantine(
        self,
        act: str,
        *,
        fingerprint: str | None,
        run_id: str | None,
        before: float,
        result: bytes,
        actor: str,
        note: str,
        limit: int,
    ) -> int:
        """Decide about up to `limit` steps that went into quarantine before `before`, those with this fingerprint, of this
        run: `release` them with fresh budgets, `skip` them with this result, or `fail` them. Their runs go on. How many."""

    async def alerts(self, limit: int = 100) -> list[Alert]:
        """Newest first, cleared ones too."""

    async def open_alerts(self, limit: int) -> list[Alert]:
        """Newest first."""

    async def deliveries(self, alert_ids: Sequence[int]) -> list[Delivery]:
        """By their ids, which rise with time."""

    async def clear_alert(self, alert_id: int, actor: str) -> bool:
        """An operator has seen to it; False when it is not open."""

    async def count_old_runs(self, state: str, before: float) -> int:
        """How many runs ended in `state` before `before`."""

    async def doctor(self) -> list[tuple[str, str, int]]:
        """The invariants as SQL: (name, what it means, number of rows that break it)."""


class Store(
    Writes,
    SchedulerStore,
    AgentStore,
    SupervisorStore,
    OutboxStore,
    PoolStore,
    NodeStore,
    ClientStore,
    Protocol,
):
    """A dialect: everything, on one database."""

    url: str

    async def open(self) -> None:
        """Connect and check the schema's version; a new SQLite file is migrated by itself."""

    async def close(self) -> None: ...

    async def migrate(self) -> tuple[int, int]:
        """Bring the schema to this version; (from, to)."""

    async def now(self) -> float: ...

    async def start_within(self, transaction: Transaction, run: NewRun) -> None:
        """Start a run inside the caller's own transaction on the same database."""
