"""The invariants. Each is a function that looks at one commit: the rows it touched, as they were before and after.

A hook of SQLite says which rows a transaction touched, and only those are read. So checking costs some microseconds per
commit, and every commit is checked. The names are those of `docs/guarantees.md`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, cast

from holdfast.codec import is_unsure
from holdfast.lifecycle import RUN_ENDED, RUN_TRANSITIONS, STEP_ENDED, STEP_LIVE, STEP_TRANSITIONS
from holdfast.model import NEVER, UNDO, UNDO_PREFIX, Failure, Outcome, undone_key
from holdfast.node import Node as HostingNode
from holdfast.store.operations import HandBack, Hop, RetryStep, Save
from tests.simulation.reference import (
    I68_failures_have_their_consequence,
    I69_an_attempt_is_kept_as_it_was,
    I70_issued_as_declared,
    I71_rows_agree_with_their_state,
    I74_signals_in_their_order,
    I76_what_began_is_remembered,
    I77_one_suspect_at_a_time,
    I78_heirs_go_on,
)
from tests.simulation.written import I72_written_as_asked, I73_changed_as_its_verb_says


class Run(NamedTuple):
    id: str
    state: str
    owner: str | None
    fence: int
    parent_id: str | None
    parent_n: int | None
    generation: int
    base_n: int
    resume: str | None
    ending: str | None
    kept_n: int
    finished_at: float | None
    output: bytes | None
    error: str | None
    workflow: str
    namespace: str
    retry_of: str | None
    deadline: float | None
    created_at: float
    priority: int
    forked_from: str | None
    started_by: str | None
    started_n: int | None
    queue: int
    """Below 0 while the run may not begin yet."""
    version: str
    input: bytes
    digest: bytes
    tags: str | None
    started_at: float | None
    begin_at: float | None
    due_at: float | None
    fair: str | None
    note: str | None
    progress: str | None
    published: str | None


class Step(NamedTuple):
    run_id: str
    n: int
    state: str
    fence: int
    delivered_seq: int | None
    kind: str
    lane: int
    attempt: int
    losses: int
    excused: int
    attempts_max: int
    spent: int
    timeouts: int
    agent: str | None
    ready_at: float
    finished_at: float | None
    after_seq: int
    key: str
    output: bytes | None
    error: str | None
    effect: str | None
    priority: int
    timeout_s: float | None
    complete_by: float | None
    queue: int
    retry: str | None
    issued_at: float
    started_at: float | None
    throttled: int
    name: str
    input: bytes | None
    digest: bytes | None
    checkpoint: bytes | None
    progress: str | None
    due_at: float | None
    limit_a: int | None
    limit_b: int | None
    limit_c: int | None
    weight_a: int | None
    weight_b: int | None
    weight_c: int | None

    @property
    def effect_key(self) -> str:
        """Its `here.key`."""
        return self.effect or f"{self.run_id}::{self.key}"

    @property
    def losses_max(self) -> int:
        """The losses that its own policy allows. 0 if the policy leaves that to the node."""
        return int(json.loads(self.retry or "{}").get("losses") or 0)


class Signal(NamedTuple):
    id: int
    run_id: str
    name: str
    delivered_seq: int | None
    set_aside: str | None
    answer: str | None
    reply: bytes | None
    payload: bytes
    key: str
    sent_at: float
    replied_at: float | None


class Node(NamedTuple):
    id: str
    lease_until: float
    retired_at: float | None


class Lease(NamedTuple):
    name: str
    holder: str | None
    epoch: int
    expires_at: float


class Attempt(NamedTuple):
    run_id: str
    n: int
    attempt: int
    ending: str
    agent: str | None
    error: str | None
    started_at: float | None
    finished_at: float | None


class Lane(NamedTuple):
    id: int
    name: str
    depends: str
    needs: str


class Twin(NamedTuple):
    run_id: str
    n: int
    state: str
    fence: int
    step_fence: int
    lane: int
    not_agent: str | None
    agent: str | None
    started_at: float | None
    ended_at: float | None


class Breaker(NamedTuple):
    name: str
    state: str
    round: int
    ok: int
    failed: int
    wave: int
    allowance: int
    open_until: float | None
    forced: int


class Join(NamedTuple):
    run_id: str
    waiter_id: str
    waiter_n: int


class Hold(NamedTuple):
    scope: str
    value: str


TABLES: dict[str, Any] = {
    "runs": Run, "steps": Step, "signals": Signal, "nodes": Node, "leases": Lease, "attempts": Attempt,
    "lanes": Lane, "twins": Twin, "breakers": Breaker, "holds": Hold, "joins": Join,
}  # fmt: skip
READS = {name: f"SELECT {', '.join(row._fields)} FROM {name} WHERE rowid = ?" for name, row in TABLES.items()}

MOVES_RUN = {(source, move.target) for move in RUN_TRANSITIONS for source in move.sources}
MOVES_RUN |= {("running", "pending"), ("held", "pending"), ("held", "undoing"), ("undoing", "undoing")}
"""A run goes back to a scheduler when it is released, or when its node died before it recorded what the run waits for.
A claim leaves an undoing run undoing; the table of transitions says `running` for all of them."""
MOVES_RUN |= {("undoing", "failed"), ("undoing", "cancelled"), ("stuck", "undoing")}
MOVES_STEP = {(source, move.target) for move in STEP_TRANSITIONS for source in move.sources}
OWNERS_VERBS = frozenset({"commit"})
LEADERS_VERBS = frozenset(
    {
        "reclaim",
        "stick_quarantined",
        "end_overdue",
        "close_signals",
        "raise_alerts",
        "clear_alerts",
        "log_alerts",
        "prune",
        "prune_alerts",
        "make_twins",
        "sweep_twins",
        "change_breaker",
        "give_back_probes",
        "fire",
        "fill",
        "end_backfill",
        "reconcile_schedules",
        "reconcile_triggers",
    }
)
CLAIMS = frozenset({"claim_steps", "claim_probes", "claim_twins"})
OPERATORS = frozenset({"force_breaker", "reset_breaker"})
"""Writes by which operators change breakers."""
FREES_OWN = frozenset({"commit", "reconcile", "retire", "hold_run"})
FREES_ANY = frozenset({"hold", "cancel_run", "steer_undo", "stick_quarantined", "carry_out"})


class Change(NamedTuple):
    """One row that a commit touched. `before` is None if it is new, `after` is None if it is gone."""

    table: str
    before: Any
    after: Any


class Commit:
    """What one commit did."""

    __slots__ = (
        "asked",
        "attempts",
        "breakers",
        "changes",
        "node",
        "now",
        "process",
        "retried",
        "runs",
        "signals",
        "steps",
        "tables",
        "twins",
        "verb",
    )

    def __init__(
        self, process: Any, verb: str, asked: dict[str, Any], now: float, changes: list[Change]
    ) -> None:
        self.process, self.verb, self.asked, self.now = process, verb, asked, now
        self.changes = changes
        self.node: str | None = asked.get("node")
        self.runs: list[Change] = []
        self.steps: list[Change] = []
        self.signals: list[Change] = []
        self.twins: list[Change] = []
        self.breakers: list[Change] = []
        self.attempts: list[Attempt] = []
        for change in changes:
            match change.table:
                case "steps":
                    self.steps.append(change)
                case "runs":
                    self.runs.append(change)
                case "signals":
                    self.signals.append(change)
                case "attempts" if change.after:
                    self.attempts.append(change.after)
                case "twins":
                    self.twins.append(change)
                case "breakers":
                    self.breakers.append(change)
        self.retried = {
            run.id
            for _, before, run in self.runs
            if before is None and run and (run.retry_of or run.forked_from)
        }
        """Runs that begin in this commit with a history that others have made: retries and forks."""
        self.tables: set[str] = set()


class Gates(NamedTuple):
    """The gates that are closed, at one moment."""

    off: frozenset[str]
    """Dependencies whose breaker is not closed."""
    holds: frozenset[Hold]

    def keeps(self, lane: Lane, run: Run) -> str | None:
        """Return what keeps a step of this lane and run from beginning."""
        if lane.depends in self.off:
            return f"the breaker of {lane.depends}"
        return self.holds_back(lane, run) if self.holds else None

    def holds_back(self, lane: Lane, run: Run) -> str | None:
        for scope, value in self.holds:
            if (
                scope == "all"
                or (scope == "dependency" and value == lane.depends)
                or (scope == "step" and value == lane.name)
                or (scope == "workflow" and value == run.workflow)
                or (scope == "namespace" and value == run.namespace)
            ):
                return f"the hold on {scope} {value}".rstrip()
        return None


class Checker:
    """Keeps every row as it was last, and checks every invariant after every commit."""

    def __init__(self, world: Any, config: Any, checks: tuple[Check, ...] = ()) -> None:
        """`checks` are the invariants of the parts that this seed plays."""
        self.world, self.config = world, config
        self._checks: tuple[Check, ...] = CHECKS + checks
        self.connection = world.reader("check")
        self.rows: dict[str, dict[int, Any]] = {name: {} for name in TABLES}
        self.runs: dict[str, Run] = {}
        self.undoing_from: dict[str, int] = {}
        """The number of each run's last step when it began to undo itself."""
        self.live: set[str] = set()
        """Runs that have not ended."""
        self.steps: dict[tuple[str, int], Step] = {}
        self.keys: dict[tuple[str, str], int] = {}
        self.nodes: dict[str, Node] = {}
        self.leases: dict[str, Lease] = {}
        self.lanes: dict[int, Lane] = {}
        self.twins: dict[tuple[str, int], Twin] = {}
        self.breakers: dict[str, Breaker] = {}
        self.holds: set[Hold] = set()
        self.known: dict[str, tuple[float, Gates]] = {}
        """What each agent last read about the gates, and when the answer arrived."""
        self.barred: dict[tuple[str, int, int], str] = {}
        """Attempts (run, step, attempt) that a node handed over to itself although it knew of a closed gate, and which
        gate."""
        self.skipped: set[tuple[str, int]] = set()
        """Steps that got their result from an operator."""
        self.steered: set[tuple[str, str]] = set()
        """For each run that operators steered while it undid itself: what they asked for."""
        self.remote: set[str] = set()
        """Nodes that reach the store through a server, which writes their reports."""
        self.last_seq: dict[str, int] = defaultdict(int)
        self.last_n: dict[str, int] = defaultdict(int)
        self.claims: dict[tuple[str, int], int] = defaultdict(int)
        self.touched: dict[tuple[str, int], None] = {}
        self.tables: set[str] = set()
        self.broken: list[str] = []
        world.connection.set_update_hook(self._touch)

    def bars(self, node: str, run_id: str, n: int, attempt: int) -> str | None:
        """Return the gate behind which this attempt must not begin: its node knew of it when it handed the step over to
        itself, and has not read since that the gate is open again."""
        if (run_id, n, attempt) not in self.barred:
            return None
        return self.known[node][1].keeps(self.lanes[self.steps[run_id, n].lane], self.runs[run_id])

    def close(self) -> None:
        self.world.connection.set_update_hook(None)

    def _touch(self, kind: int, database: str, table: str, rowid: int) -> None:
        if table in TABLES:
            self.touched[table, rowid] = None
        self.tables.add(table)

    def forget(self) -> None:
        """Forget what the transaction touched: it was rolled back."""
        if self.tables:
            self.touched.clear()
            self.tables.clear()

    def renewed(self, node: str, until: float) -> None:
        """Note a renewal. It is the most frequent write of all and touches one known row, so there is no need to read
        it."""
        self.forget()
        self.nodes[node] = Node(node, until, None)

    def look(self, process: Any, verb: str, asked: dict[str, Any]) -> Commit:
        """Read what was touched, and check every invariant."""
        changes: list[Change] = []
        execute = self.connection.execute
        for table, rowid in self.touched:
            rows = self.rows[table]
            before = rows.get(rowid)
            found = execute(READS[table], (rowid,)).get
            after = None if found is None else TABLES[table]._make(found)
            if after == before:
                continue
            if before is not None and after is not None and before[0] != after[0]:
                changes.append(Change(table, before, None))  # SQLite used the row's id for another row
                before = None
            if after is None:
                rows.pop(rowid, None)
            else:
                rows[rowid] = after
            changes.append(Change(table, before, after))
        commit = Commit(process, verb, asked, self.world.store_now(), changes)
        commit.tables = self.tables
        self.touched, self.tables = {}, set()
        for check in self._checks:
            for wrong in check(self, commit):
                self.broken.append(f"{check.__name__}: {wrong} (by {verb} of {process.name})")
        self._keep(commit)
        return commit

    def _keep(self, commit: Commit) -> None:
        if commit.verb == "steer_undo":
            self.steered.add((commit.asked["run_id"], commit.asked["act"]))
        elif commit.verb == "carry_out":
            for _, before, after in commit.signals:
                if before is None and after is not None and after.name == UNDO:
                    self.steered.add((after.run_id, json.loads(after.payload)["act"]))
        for table, before, after in commit.changes:
            if table == "runs":
                if after is not None:
                    self.runs[after.id] = after
                    if after.state == "undoing" and (before is None or before.ending is None):
                        self.undoing_from[after.id] = self.last_n[after.id]
                    (self.live.discard if after.state in RUN_ENDED else self.live.add)(after.id)
                elif commit.verb != "prune":  # what was removed is still judged at the end
                    self.runs.pop(before.id, None)
            elif table == "steps":
                if after is not None:
                    self.steps[after.run_id, after.n] = after
                    if commit.verb == "resolve_quarantine" and after.state == "succeeded":
                        self.skipped.add((after.run_id, after.n))
                    if before is None and self._is_skipped_before(after):
                        self.skipped.add((after.run_id, after.n))
                    self.last_n[after.run_id] = max(self.last_n[after.run_id], after.n)
                    self.keys[after.run_id, after.key] = after.n
                elif commit.verb != "prune":
                    self.steps.pop((before.run_id, before.n), None)
                    self.keys.pop((before.run_id, before.key), None)
            elif table == "nodes" and after is not None:
                self.nodes[after.id] = after
            elif table == "leases" and after is not None:
                self.leases[after.name] = after
            elif table == "lanes" and after is not None:
                self.lanes[after.id] = after
            elif table == "twins":
                if after is not None:
                    self.twins[after.run_id, after.n] = after
                else:
                    self.twins.pop((before.run_id, before.n), None)
            elif table == "breakers" and after is not None:
                self.breakers[after.name] = after
            elif table == "holds":
                self.holds.discard(before)
                if after is not None:
                    self.holds.add(after)

    def _is_skipped_before(self, step: Step) -> bool:
        """True if a retry took over a step that did nothing, because somebody had set its result."""
        run = self.runs.get(step.run_id)
        return run is not None and (run.retry_of, step.n) in self.skipped

    def gates(self) -> Gates:
        """Return what is closed in the store now."""
        off = frozenset(row.name for row in self.breakers.values() if row.state != "closed")
        return Gates(off, frozenset(self.holds))

    def now_run(self, commit: Commit, run_id: str) -> Run | None:
        """Return the row of a run as it is after this commit."""
        return next(
            (run for _, _, run in commit.runs if run is not None and run.id == run_id), self.runs.get(run_id)
        )

    def now_step(self, commit: Commit, run_id: str, n: int) -> Step | None:
        """Return the row of a step as it is after this commit."""
        for _, _, step in commit.steps:
            if step is not None and (step.run_id, step.n) == (run_id, n):
                return cast("Step", step)
        return self.steps.get((run_id, n))

    def steps_of(self, run_id: str) -> Iterator[Step]:
        """Yield the steps of a run, as they were before this commit."""
        last = self.last_n[run_id]
        for n in range(1, last + 1):
            step = self.steps.get((run_id, n))
            if step is not None:
                yield step

    def owner_before(self, run_id: str) -> str | None:
        run = self.runs.get(run_id)
        return None if run is None else run.owner


Broken = Iterable[str]
Check = Callable[["Checker", Commit], Iterable[str]]


def I1_one_outcome(checker: Checker, commit: Commit) -> Broken:
    """A step has at most one accepted outcome, and a key is in a run only once."""
    for _, before, after in commit.steps:
        if before is not None and after is not None and before.state in STEP_ENDED:
            if (before.state, before.output, before.error, before.finished_at) != (
                after.state, after.output, after.error, after.finished_at
            ):  # fmt: skip
                yield f"step {after.n} of {after.run_id} ended twice: {before.state}, then {after.state}"
        elif before is None and after is not None:
            if checker.keys.get((after.run_id, after.key), after.n) != after.n and not _continued(
                commit, after.run_id
            ):
                yield f"two steps of {after.run_id} have the key {after.key}"


def I2_by_its_agent(checker: Checker, commit: Commit) -> Broken:
    """What an agent writes names the current fence, and an outcome comes from the agent that has the step."""
    if commit.verb != "commit":
        return
    for op in commit.asked["ops"]:
        if isinstance(op, Outcome | RetryStep | HandBack | Save):
            before = checker.steps.get((op.run_id, op.n))
            if before is None or before.fence == op.fence:
                continue
            if any(change.before is before and change.after != before for change in commit.steps):
                # Another operation of the same batch may have changed it.
                if not any(
                    _names(other, op.run_id, op.n) for other in commit.asked["ops"] if other is not op
                ):
                    yield f"{type(op).__name__} with fence {op.fence} changed step {op.n} of {op.run_id} at {before.fence}"
    for _, before, after in commit.steps:
        if (
            before is not None
            and before.state == "running"
            and after is not None
            and after.state in ("succeeded", "failed")
        ):
            if before.agent != commit.node and before.agent not in checker.remote:
                yield f"{commit.node} ended step {after.n} of {after.run_id}, which {before.agent} has"


def _names(op: Any, run_id: str, n: int) -> bool:
    if isinstance(op, Hop):
        return op.run_id == run_id
    return getattr(op, "run_id", None) == run_id and getattr(op, "n", None) == n


def I3_no_live_lease_is_reclaimed(checker: Checker, commit: Commit) -> Broken:
    """A node that has its lease keeps its steps and runs."""
    if commit.verb == "reclaim":
        node = checker.nodes.get(commit.asked["node"])
        if node is not None and node.retired_at is None and node.lease_until >= commit.now:
            holder = checker.world.alive.get(node.id)
            if holder is not None and not (holder.dead and not holder.vanished):
                yield f"{node.id} was reclaimed {node.lease_until - commit.now:.3f} s before its lease ended"
        return
    for _, before, after in commit.runs:
        if before is None or after is None or before.owner is None or after.owner == before.owner:
            continue
        if commit.verb in FREES_OWN and (commit.verb == "hold_run" or before.owner == commit.node):
            continue
        if commit.verb not in FREES_ANY:
            yield f"run {after.id} was taken from {before.owner}"


def I5_only_the_leader_leads(checker: Checker, commit: Commit) -> Broken:
    """No write of a deposed leader is accepted. A new leader has a new epoch, and comes after the old one's lease."""
    if commit.verb in LEADERS_VERBS and commit.asked.get("epoch") is not None:
        lease = checker.leases.get("leader")
        if lease is None or lease.epoch != commit.asked["epoch"] or lease.expires_at <= commit.now:
            yield f"{commit.verb} in epoch {commit.asked['epoch']} while {lease} at {commit.now}"
    for table, before, after in commit.changes:
        if table != "leases" or before is None:
            continue
        if after.epoch < before.epoch:
            yield f"the epoch of {after.name} fell from {before.epoch} to {after.epoch}"
        if after.holder is not None and before.holder is not None and after.holder != before.holder:
            if after.epoch == before.epoch:
                yield f"{after.holder} took {after.name} from {before.holder} in the same epoch"
            old = checker.nodes.get(before.holder)
            holder = checker.world.alive.get(before.holder)
            gone = holder is None or holder.dead or old is None or old.retired_at is not None
            if before.expires_at > commit.now and not gone:
                yield f"{after.holder} took {after.name} from {before.holder} before its lease ended"


def I6_within_capacity(checker: Checker, commit: Commit) -> Broken:
    """No claim takes more than it asked for, and no agent executes more steps and twins than it has places."""
    if commit.verb in CLAIMS:
        rows = commit.twins if commit.verb == "claim_twins" else commit.steps
        claimed = [change for change in rows if change.after is not None and change.after.state == "running"]
        if len(claimed) > commit.asked["limit"]:
            yield f"{commit.node} asked for {commit.asked['limit']} steps and got {len(claimed)}"
    agent = commit.process.node.agent if isinstance(commit.process._caller, HostingNode) else None
    if agent is not None and len(agent.assignments) > min(
        checker.config.steps_max, checker.config.threads_max
    ):
        # A step that failed and waits for its twin is still assigned, and takes no place.
        executing = [
            assignment.step.is_async
            for assignment in agent.assignments.values()
            if assignment.here is not None
        ]
        if (
            sum(executing) > checker.config.steps_max
            or len(executing) - sum(executing) > checker.config.threads_max
        ):
            yield f"{commit.node} executes more than it has places for"


def I7_fences_rise(checker: Checker, commit: Commit) -> Broken:
    """A fence never falls, and rises with every transition."""
    for table, before, after in commit.changes:
        if table not in ("runs", "steps", "twins") or before is None or after is None:
            continue
        if after.fence < before.fence:
            yield f"the fence of {after[:2]} fell from {before.fence} to {after.fence}"
        elif after.fence == before.fence and after.state != before.state:
            yield f"{after[:2]} went from {before.state} to {after.state} without a new fence"
    for _, before, after in commit.runs:
        if (
            before is not None
            and after is not None
            and before.owner != after.owner
            and before.fence == after.fence
        ):
            yield f"run {after.id} went from {before.owner} to {after.owner} without a new fence"


def I8_attempts_are_claims(checker: Checker, commit: Commit) -> Broken:
    """Every claim is counted, nothing else is, and no budget is overdrawn."""
    for _, before, after in commit.steps:
        if after is None:
            checker.claims.pop((before.run_id, before.n), None)
            continue
        place = (after.run_id, after.n)
        if before is None and after.run_id in commit.retried:
            checker.claims[place] = after.attempt  # those of the run before count, too
        if after.state == "running" and (before is None or before.state != "running"):
            checker.claims[place] += 1
        if after.attempt != checker.claims[place]:
            yield f"step {after.n} of {after.run_id} was claimed {checker.claims[place]} times, but its row counts {after.attempt}"
        # An attempt that times out or is lost spends nothing of the first budget: each class has its own.
        if after.spent > after.attempts_max or after.timeouts > after.attempts_max:
            yield f"step {after.n} of {after.run_id} spent {after.spent} attempts of {after.attempts_max}, and {after.timeouts} by timeouts"
        elif after.attempt > 2 * after.attempts_max + after.losses + after.excused + after.throttled + 1:
            yield f"step {after.n} of {after.run_id} used {after.attempt} attempts of {after.attempts_max}"
        if after.losses > checker.config.losses_max + 1 and after.losses > after.losses_max + 1:
            yield f"step {after.n} of {after.run_id} was lost {after.losses} times"
        if before is not None and after.losses + after.excused > before.losses + before.excused:
            if commit.verb in ("resolve_quarantine", "carry_out"):
                continue  # a person gave it fresh budgets
            if before.state != "running" or after.losses + after.excused > before.losses + before.excused + 1:
                yield f"step {after.n} of {after.run_id} was excused without an attempt"


def _revoked(commit: Commit, before: Run, after: Run) -> bool:
    """True if a run that had succeeded begins to undo itself, by a hop of its parent that asks for this."""
    if (before.state, after.state, after.fence) != ("succeeded", "undoing", before.fence + 1):
        return False
    return commit.verb == "commit" and any(
        isinstance(op, Hop)
        and op.run_id == after.parent_id
        and any(one.child_n == after.parent_n for one in op.child_undos)
        for op in commit.asked["ops"]
    )


def _taken_over(checker: Checker, commit: Commit, before: Run, after: Run) -> bool:
    """True if a child that succeeded goes over to the retry of its parent, in the commit in which that retry begins or
    asks for it."""
    if after.state != "succeeded" or after != before._replace(
        parent_id=after.parent_id, parent_n=after.parent_n
    ):
        return False
    above = next((run for _, _, run in commit.runs if run is not None and run.id == after.parent_id), None)
    above = above or checker.runs.get(after.parent_id or "")
    return above is not None and above.retry_of is not None


def I33_as_reported(checker: Checker, commit: Commit) -> Broken:
    """A step that its agent gave back is ready when the agent said, and its budgets are charged as the agent said."""
    if commit.verb != "commit" or not commit.steps:
        return
    reports = {
        (op.run_id, op.n, op.fence): op for op in commit.asked["ops"] if isinstance(op, RetryStep | HandBack)
    }
    if not reports:
        return
    for _, before, after in commit.steps:
        if before is None or after is None or after.fence != before.fence + 1:
            continue
        op = reports.get((after.run_id, after.n, before.fence))
        if op is None or after.state != "ready":
            continue
        excused = isinstance(op, HandBack) or op.excused
        if after.excused - before.excused != excused:
            yield f"step {after.n} of {after.run_id} was given back, and its attempt counts as {after.excused} excused ones"
        failure = None if isinstance(op, HandBack) or op.excused else op.failure
        timeouts, losses = after.timeouts - before.timeouts, after.losses - before.losses
        if timeouts != (failure is Failure.TIMEOUT) or losses != (failure in (Failure.LOST, Failure.POISON)):
            yield f"step {after.n} of {after.run_id} was given back ({failure}): +{timeouts} timeouts, +{losses} losses"
        if isinstance(op, RetryStep) and abs(after.ready_at - commit.now - op.delay_s) > 0.01:
            yield f"step {after.n} of {after.run_id} is ready in {after.ready_at - commit.now:.3f} s, not in {op.delay_s:.3f} s"


def I9_terminal_is_absorbing(checker: Checker, commit: Commit) -> Broken:
    """Whatever has ended stays so, and only the transitions in the table happen."""
    for _, before, after in commit.runs:
        if before is None or after is None:
            continue
        if _revoked(commit, before, after) or _taken_over(checker, commit, before, after):
            continue
        if before.state in RUN_ENDED and before != after:
            yield f"run {after.id} changed after it was {before.state}: {before} -> {after}"
        elif before.state != after.state and (before.state, after.state) not in MOVES_RUN:
            yield f"run {after.id} went from {before.state} to {after.state}"
    for _, before, after in commit.steps:
        if before is None or after is None:
            continue
        if before.state in STEP_ENDED:
            if before.fence != after.fence:
                yield f"step {after.n} of {after.run_id} moved after it was {before.state}"
        elif before.state != after.state and (before.state, after.state) not in MOVES_STEP:
            yield f"step {after.n} of {after.run_id} went from {before.state} to {after.state}"
        elif before.state == after.state == "running" and (before.agent, before.fence) != (
            after.agent,
            after.fence,
        ):
            yield f"step {after.n} of {after.run_id} went from {before.agent} to {after.agent} while it ran"


def I10_running_has_a_node(checker: Checker, commit: Commit) -> Broken:
    """An agent that has not left has each step that runs, and a node that has not left owns each run that is owned."""
    for table, before, after in commit.changes:
        if (
            table == "steps"
            and after is not None
            and after.state == "running"
            and (before is None or before.agent != after.agent)
        ):
            node = checker.nodes.get(after.agent)
            if node is None or node.retired_at is not None:
                yield f"step {after.n} of {after.run_id} runs at {after.agent}, which has left"
        elif (
            table == "runs"
            and after is not None
            and after.owner is not None
            and (before is None or before.owner != after.owner)
        ):
            node = checker.nodes.get(after.owner)
            if node is None or node.retired_at is not None:
                yield f"run {after.id} is owned by {after.owner}, which has left"
        elif table == "nodes" and after is not None and after.retired_at is not None:
            if before is not None and before.retired_at is not None and before != after:
                yield f"node {after.id} left and came back"
            left = (
                checker.connection.execute(
                    "SELECT count(*) FROM steps WHERE state = 'running' AND agent = ?", (after.id,)
                ).get
                + checker.connection.execute("SELECT count(*) FROM runs WHERE owner = ?", (after.id,)).get
            )
            if left:
                yield f"node {after.id} has left and still has {left} steps and runs"


def I11_one_order(checker: Checker, commit: Commit) -> Broken:
    """Outcomes are delivered once, by the run's owner, and get the next numbers."""
    numbers: dict[str, list[int]] = {}
    for _, before, after in commit.steps:
        if after is None:
            continue
        was = None if before is None else before.delivered_seq
        if was is not None and after.delivered_seq != was:
            yield f"step {after.n} of {after.run_id} was delivered twice: {was}, then {after.delivered_seq}"
        if after.delivered_seq is not None and after.state in STEP_LIVE:
            yield f"step {after.n} of {after.run_id} was delivered while {after.state}"
        if was is None and after.delivered_seq and after.kind != "signal":
            numbers.setdefault(after.run_id, []).append(after.delivered_seq)
    continued = {
        run.id for _, before, run in commit.runs if before and run and run.generation > before.generation
    }
    for _, before, after in commit.signals:
        if after is None:
            continue
        was = None if before is None else before.delivered_seq
        if was and after.delivered_seq != was and after.run_id not in continued:
            yield f"signal {after.id} of {after.run_id} was delivered twice: {was}, then {after.delivered_seq}"
        if was is None and after.delivered_seq:
            numbers.setdefault(after.run_id, []).append(after.delivered_seq)
    for run_id, given in numbers.items():
        if run_id in continued:
            continue  # the history of these numbers is gone
        if run_id in commit.retried:
            checker.last_seq[run_id] = max(given)  # numbers of what is done again are missing
            continue
        last = checker.last_seq[run_id]
        if sorted(given) != list(range(last + 1, last + 1 + len(given))):
            yield f"{run_id} delivered {sorted(given)} after {last}"
        if checker.owner_before(run_id) != commit.node and commit.verb in OWNERS_VERBS:
            yield f"{commit.node} delivered to {run_id}, owned by {checker.owner_before(run_id)}"
        checker.last_seq[run_id] = max(last, *given)
    for run_id in continued:
        checker.last_seq[run_id] = 0


def I12_an_ended_run_has_no_live_step(checker: Checker, commit: Commit) -> Broken:
    for _, before, after in commit.runs:
        if (
            after is not None
            and after.state in RUN_ENDED
            and (before is None or before.state not in RUN_ENDED)
        ):
            live = checker.connection.execute(
                "SELECT count(*) FROM steps WHERE run_id = ? AND (finished_at IS NULL OR delivered_seq IS NULL)",
                (after.id,),
            ).get
            if live:
                yield f"run {after.id} is {after.state} and {live} of its steps are open"
            if after.parent_id is not None:
                place = checker.connection.execute(
                    "SELECT state FROM steps WHERE run_id = ? AND n = ?", (after.parent_id, after.parent_n)
                ).get
                if place in STEP_LIVE:
                    yield f"run {after.id} is {after.state} and its parent has no outcome"
    for _, before, after in commit.steps:
        if before is None and after is not None:
            run = checker.runs.get(after.run_id)
            if run is not None and run.state in RUN_ENDED:
                yield f"step {after.n} was issued for {after.run_id}, which is {run.state}"


def I2_by_its_owner(checker: Checker, commit: Commit) -> Broken:
    """Only the owner of a run issues its steps and ends it."""
    if commit.verb not in OWNERS_VERBS:
        return
    issued = {after.run_id for _, before, after in commit.steps if before is None and after is not None}
    ended = {
        after.id
        for _, before, after in commit.runs
        if before is not None
        and after is not None
        and before.state != after.state
        and not _revoked(commit, before, after)
    }
    for run_id in sorted(issued | ended):
        if run_id in checker.runs and checker.owner_before(run_id) != commit.node:
            yield f"{commit.node} decided for {run_id}, owned by {checker.owner_before(run_id)}"
    for _, before, after in commit.steps:
        if before is None and after is not None and after.n <= checker.last_n[after.run_id]:
            yield f"step {after.n} of {after.run_id} was issued after {checker.last_n[after.run_id]}"


def I16_leaves_a_trace(checker: Checker, commit: Commit) -> Broken:
    """An attempt that is lost or timed out is kept and spends only its own budget. What a leader or operator does to a run
    is in the journal."""
    for _, before, after in commit.steps:
        if before is None or after is None or before.state != "running":
            continue
        if commit.verb in ("reclaim", "end_overdue"):
            ending = "lost" if commit.verb == "reclaim" else "timed out"
            if not any(row[:2] == after[:2] and row.ending == ending for row in commit.attempts):
                yield f"step {after.n} of {after.run_id} was {ending} without a row"
            lost = commit.verb == "reclaim"
            counted = after.losses - before.losses, after.timeouts - before.timeouts
            if counted != (int(lost), int(not lost)):
                yield f"step {after.n} of {after.run_id} was {ending}, which counts as {counted} (losses, timeouts)"
    if (
        commit.verb in ("hold", "release", "reclaim", "end_overdue", "hold_run", "steer_undo")
        and "journal" not in commit.tables
    ):
        yield f"{commit.verb} left no row in the journal"
    for _, before, after in commit.runs:
        if (
            after is not None
            and after.state == "stuck"
            and before.state != "stuck"
            # For quarantine there is an alert already, and the journal says why the run goes no further.
            and ("journal" if commit.verb == "stick_quarantined" else "alerts") not in commit.tables
        ):
            yield f"run {after.id} is stuck and there is no alert or journal entry"


def I17_no_orphans(checker: Checker, commit: Commit) -> Broken:
    """Every step has its run. A step is removed only with its generation, or with its run. The steps of the next
    generation have higher numbers."""
    continued = set()
    for _, before, run in commit.runs:
        if before and run and run.generation > before.generation:
            continued.add(run.id)
            if run.base_n != checker.last_n[run.id]:
                yield f"{run.id} continues after step {run.base_n}, and its last one was {checker.last_n[run.id]}"
    gone = {before.id for _, before, run in commit.runs if run is None}
    for _, before, after in commit.steps:
        if after is None and before.run_id not in continued | gone and commit.verb != "prune":
            yield f"step {before.n} of {before.run_id} is gone"
        if after is not None and before is None and after.run_id not in checker.runs:
            if not any(run is not None and run.id == after.run_id for _, _, run in commit.runs):
                yield f"step {after.n} was issued for {after.run_id}, which does not exist"


def I18_can_be_woken(checker: Checker, commit: Commit) -> Broken:
    """An active run without an owner has something that can wake it."""
    changed = {after.id: after for _, _, after in commit.runs if after is not None}
    touched = set(changed)
    touched.update(after.run_id for _, _, after in (*commit.steps, *commit.signals) if after is not None)
    execute = checker.connection.execute
    for run_id in sorted(touched):
        run = changed.get(run_id) or checker.runs.get(run_id)
        if run is not None and run.owner is None and run.state in ("running", "undoing"):
            if not execute("SELECT 1 FROM steps WHERE run_id = ? AND +delivered_seq IS NULL", (run_id,)).get:
                if not execute(
                    "SELECT 1 FROM signals WHERE run_id = ? AND delivered_seq IS NULL", (run_id,)
                ).get:
                    yield f"run {run_id} is {run.state}, nobody owns it and nothing can wake it"


def I19_in_its_time(checker: Checker, commit: Commit) -> Broken:
    """No timer fires and no step begins before its time."""
    for _, before, after in commit.steps:
        if after is None:
            continue
        if (
            after.kind == "timer"
            and after.state == "succeeded"
            and (before is None or before.state == "waiting")
        ):
            if after.finished_at < after.ready_at:
                yield f"timer {after.n} of {after.run_id} fired {after.ready_at - after.finished_at:.3f} s early"
        elif commit.verb in CLAIMS and after.state == "running":
            if before.ready_at > commit.now:
                yield f"step {after.n} of {after.run_id} was claimed {before.ready_at - commit.now:.3f} s early"
            run = checker.runs.get(after.run_id)
            if run is None or run.state not in ("running", "undoing"):
                yield f"step {after.n} of {after.run_id} was claimed while its run is {run and run.state}"


def I34_timeouts_are_kept(checker: Checker, commit: Commit) -> Broken:
    """An attempt that begins has as long as its step declares, and the leader ends it only after that and the grace."""
    for _, before, after in commit.steps:
        if after is None:
            continue
        if commit.verb == "end_overdue" and before is not None and before.state == "running":
            early_s = (before.complete_by or NEVER) + checker.config.timeout_grace_s - commit.now
            if early_s > 0.001:
                yield f"step {after.n} of {after.run_id} was ended {early_s:.3f} s before its time"
        elif after.state == "running" and (before is None or before.state != "running"):
            by = None if after.timeout_s is None else commit.now + after.timeout_s
            if (by is None) != (after.complete_by is None) or abs(
                (after.complete_by or 0) - (by or 0)
            ) > 0.05:
                yield f"step {after.n} of {after.run_id} must complete by {after.complete_by}, not by {by}"


def I20_a_twin_counts_once(checker: Checker, commit: Commit) -> Broken:
    """A twin is made beside a step that runs, begins at another agent while the step is as it was, and ends once. The
    step takes the twin's outcome only together with the twin's end, and not while it is in quarantine."""
    if not checker.twins and not commit.twins:
        return
    won = {}
    for _, before, after in commit.twins:
        if after is None:
            continue
        place = (after.run_id, after.n)
        step, what = checker.steps.get(place), f"the twin of step {after.n} of {after.run_id}"
        if before is None:
            if after.state == "barred":
                continue
            if step is None or (step.state, step.fence, step.losses) != ("running", after.step_fence, 0):
                yield f"{what} was made beside {step}"
            continue
        if before.ended_at is not None:
            yield f"{what} was {before.state} and is {after.state}"
        if after.state == "running":
            run, node = checker.runs.get(after.run_id), checker.nodes.get(after.agent)
            if step is None or step.fence != after.step_fence or step.agent == after.agent:
                yield f"{what} began at {after.agent} beside {step}"
            if run is None or run.state != "running" or node is None or node.retired_at is not None:
                yield f"{what} began at {node} while its run is {run and run.state}"
        elif after.state in ("won", "failed"):
            if before.agent != commit.node or before.fence != commit.asked["twin"][2]:
                yield f"{what}, which {before.agent} has with fence {before.fence}, was ended by {commit.node}"
            if after.state == "won":
                won[place] = after
    if commit.verb == "end_twin":
        for _, before, after in commit.steps:
            if after is None or won.pop((after.run_id, after.n), None) is None or after.state != "succeeded":
                yield f"step {before.n} of {before.run_id} changed, and its twin has not won"
            elif before.ready_at > NEVER / 2:
                yield f"step {after.n} of {after.run_id} was taken out of quarantine by its twin"
    for run_id, n in won:
        yield f"the twin of step {n} of {run_id} won, and its step did not take its outcome"
    for _, before, after in commit.steps:
        if after is not None and after.state == "failed" and before is not None and before.state == "running":
            twin = checker.twins.get((after.run_id, after.n))
            if twin is not None and twin.started_at is not None and not is_unsure(after.losses, after.error):
                yield f"step {after.n} of {after.run_id} failed for sure, and its twin had begun"


def I21_gates_are_kept(checker: Checker, commit: Commit) -> Broken:
    """Nothing is claimed behind a closed gate, except probes, which take from what their wave allows. A step that a
    node hands over to itself does not begin if the node knew of the gate before."""
    if commit.verb in CLAIMS:
        if not checker.breakers and not checker.holds:
            return
        gates, probes = checker.gates(), commit.verb == "claim_probes"
        for _, _, after in commit.twins if commit.verb == "claim_twins" else commit.steps:
            lane, run = checker.lanes[after.lane], checker.runs[after.run_id]
            why = gates.holds_back(lane, run) if probes else gates.keeps(lane, run)
            if why is not None:
                yield f"step {after.n} of {after.run_id} was claimed behind {why}"
            if probes and lane.depends != commit.asked["name"]:
                yield f"step {after.n} of {after.run_id} is no probe of {commit.asked['name']}"
        if probes:
            row = checker.breakers[commit.asked["name"]]
            left = [after.allowance for _, _, after in commit.breakers] or [row.allowance]
            if row.state != "probing" or left != [row.allowance - len(commit.steps)] or left[0] < 0:
                yield f"{len(commit.steps)} probes of {row} were claimed, {left} are left"
    elif commit.verb == "commit" and commit.node in checker.known:
        at, gates = checker.known[commit.node]
        if at == checker.world.loop.now or not (gates.off or gates.holds):
            return
        runs = checker.runs | {run.id: run for _, _, run in commit.runs if run is not None}
        for _, before, after in commit.steps:
            if (
                before is None
                and after is not None
                and after.state == "running"
                and after.lane in checker.lanes
            ):
                why = gates.keeps(checker.lanes[after.lane], runs[after.run_id])
                if why is not None:
                    checker.barred[after.run_id, after.n, after.attempt] = why


def I22_breakers_go_by_rounds(checker: Checker, commit: Commit) -> Broken:
    """Only the leader and operators change a breaker, each time in a new round. The leader never overrules an operator,
    and changes it only when its rules allow it."""
    for _, before, after in commit.breakers:
        if before is None or after is None:
            if after is None or (after.state != "closed" and commit.verb not in OPERATORS):
                yield f"a breaker is {after}, and was {before}"
            continue
        if commit.verb == "change_breaker" or commit.verb in OPERATORS:
            if after.round != before.round + 1:
                yield f"{before} became {after} in the same round"
        elif (before.state, before.round, before.forced) != (after.state, after.round, after.forced):
            yield f"{before} became {after}"
        if commit.verb == "change_breaker":
            if before.forced or before.round != commit.asked["round"]:
                yield f"{before} was changed by a leader who knew round {commit.asked['round']}"
            elif not _follows(before, after, commit.now, checker.config):
                yield f"{before} became {after} for no reason"


def _follows(before: Breaker, after: Breaker, now: float, config: Any) -> bool:
    """True if a leader may do this. The counts may have grown since it looked."""
    match before.state, after.state:
        case "closed", "open":
            return bool(before.failed >= config.breaker_failures_min)
        case "open", "probing":
            return before.open_until is not None and now >= before.open_until and after.wave == 1
        case "probing", "open":
            return before.failed > 0
        case "probing", "probing":
            return (
                before.ok > 0 and before.allowance <= 0 and after.wave <= before.wave * config.breaker_growth
            )
        case "probing", "closed":
            return before.ok > 0 or before.wave == before.allowance
    return False


def I43_a_child_is_undone_first(checker: Checker, commit: Commit) -> Broken:
    """A step that undoes a child ends no sooner than the child, and says whether the child is undone."""
    for _, before, after in commit.steps:
        if after is None or after.kind != "child" or not after.key.startswith(UNDO_PREFIX):
            continue
        if after.state != "succeeded" or (before is not None and before.state == "succeeded"):
            continue
        if after.run_id in commit.retried:
            continue  # the run before it waited for the child
        found = checker.connection.execute(
            "SELECT r.state, r.id FROM runs r JOIN steps s ON s.run_id = r.parent_id AND s.n = r.parent_n "
            "WHERE s.run_id = ? AND s.key = ?",
            (after.run_id, undone_key(after.key)[0]),
        ).fetchall()
        for state, child_id in found:
            if (state == "undone") != (after.output == b"true"):
                yield f"the undo of {child_id} ended with {after.output!r}, and {child_id} is {state}"


def I25_whose_child(checker: Checker, commit: Commit) -> Broken:
    """Only the run that a child belongs to asks it to cancel itself. A run that joined another gets that run's outcome.
    When a retry keeps the result of a child that succeeded, it owns the child."""
    for _, before, after in commit.signals:
        if before is None and after is not None and after.name == "$cancel" and commit.verb == "commit":
            child = checker.runs.get(after.run_id) or next(
                run for _, _, run in commit.runs if run is not None and run.id == after.run_id
            )
            hops = [op for op in commit.asked["ops"] if isinstance(op, Hop) and op.run_id == child.parent_id]
            if not hops:
                yield f"{child.id}, a child of {child.parent_id}, was asked to cancel itself by another run"
            elif not any(child.parent_n in op.cancelled for op in hops):
                yield f"{child.id} was asked to cancel itself, and its parent gave up {[op.cancelled for op in hops]}"
    if commit.retried:
        owned = {(run.parent_id, run.parent_n) for _, _, run in commit.runs if run is not None}
        # A child that a saga has undone stays with the run that undid it.
        # One that was removed was so old that its parent is about to be removed, too.
        had = {
            (run.parent_id, run.parent_n)
            for run in checker.runs.values()
            if run.state != "undone" and run.id not in checker.world.pruned
        }
        parents = {run.id: run.retry_of for _, _, run in commit.runs if run is not None and run.retry_of}
        for _, before, after in commit.steps:
            if before is None and after is not None and after.run_id in parents:
                place, old = (after.run_id, after.n), (parents[after.run_id], after.n)
                if after.kind == "child" and after.state == "succeeded" and old in had and place not in owned:
                    yield f"{after.run_id} keeps the result of a child that belongs to {old[0]}"
    for table, before, after in commit.changes:
        if table == "joins" and after is None:
            run = checker.runs.get(before.run_id)
            step = checker.connection.execute(
                "SELECT state, output FROM steps WHERE run_id = ? AND n = ?",
                (before.waiter_id, before.waiter_n),
            ).get
            if run is None or step is None or step[0] not in ("succeeded", "failed"):
                continue
            if run.state not in RUN_ENDED or (step[0] == "succeeded") != (run.state == "succeeded"):
                yield f"{before.waiter_id} got the outcome {step[0]} of {run.id}, which is {run.state}"
            elif step[0] == "succeeded" and step[1] != run.output:
                yield f"{before.waiter_id} got the result {step[1]!r} of {run.id}, whose result is {run.output!r}"


def _continued(commit: Commit, run_id: str) -> bool:
    return any(
        before and run and run.id == run_id and run.generation > before.generation
        for _, before, run in commit.runs
    )


CHECKS = (
    I1_one_outcome,
    I2_by_its_agent,
    I3_no_live_lease_is_reclaimed,
    I5_only_the_leader_leads,
    I6_within_capacity,
    I7_fences_rise,
    I8_attempts_are_claims,
    I33_as_reported,
    I9_terminal_is_absorbing,
    I10_running_has_a_node,
    I11_one_order,
    I12_an_ended_run_has_no_live_step,
    I2_by_its_owner,
    I16_leaves_a_trace,
    I17_no_orphans,
    I18_can_be_woken,
    I19_in_its_time,
    I34_timeouts_are_kept,
    I20_a_twin_counts_once,
    I21_gates_are_kept,
    I22_breakers_go_by_rounds,
    I25_whose_child,
    I43_a_child_is_undone_first,
    I68_failures_have_their_consequence,
    I69_an_attempt_is_kept_as_it_was,
    I70_issued_as_declared,
    I71_rows_agree_with_their_state,
    I72_written_as_asked,
    I73_changed_as_its_verb_says,
    I74_signals_in_their_order,
    I76_what_began_is_remembered,
    I77_one_suspect_at_a_time,
    I78_heirs_go_on,
)
