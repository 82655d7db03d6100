"""The facts about a run that `why` explains, and the function that reads them from the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.config import Config
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import (
    Attempt,
    Breaker,
    Hold,
    JournalEntry,
    Lane,
    NodeRow,
    Quarantined,
    RunRow,
    RunState,
    SignalRow,
    StepKind,
    StepRow,
    StepState,
)
from holdfast.store.asks import SeenAsk
from holdfast.store.limits import LimitRow
from holdfast.store.store import Store
from holdfast.supervisor.outlook import Outlook, outlook
from holdfast.supervisor.staff import Staff

QUEUES_MAX = 20
"""For how many queues the limits are read."""


class SignalsDeclared(NamedTuple):
    """The signals that a run's workflow and its application declare in their code."""

    data: Mapping[str, str]
    """By signal name, the option that `holdfast signal RUN NAME` also needs: ` --data '{"cents": 0}'`, or nothing."""
    named: frozenset[str]
    """Signals that the workflow's own code names, as far as can be seen. The others belong to the same application."""
    open: bool
    """True if there may be more signals, because the code computes their names."""
    updates: Mapping[str, str] = {}
    """The same as `data`, for `holdfast update RUN NAME`."""


class Facts(NamedTuple):
    run: RunRow
    steps: Sequence[StepRow]
    attempts: Sequence[Attempt]
    signals: Sequence[SignalRow]
    nodes: Sequence[NodeRow]
    lanes: Sequence[Lane]
    now: float
    breakers: Sequence[Breaker] = ()
    holds: Sequence[Hold] = ()
    quarantined: Sequence[Quarantined] = ()
    """The quarantine entries of the run's steps."""
    children: Sequence[RunRow] = ()
    """The run's children."""
    outlook: Outlook | None = None
    journal: Sequence[JournalEntry] = ()
    """What operators did to the run, newest first."""
    retried: RunRow | None = None
    """The newest run that began as a retry of this one."""
    signals_declared: SignalsDeclared | None = None
    """None if no process has declared the workflow."""
    joins: Mapping[int, str] = {}
    """Ids of runs that this run joined instead of starting them, by the number of the step that waits."""
    log_lines: Mapping[int, int] = {}
    """How many lines each step has logged that are kept."""
    limits: Mapping[int, Sequence[LimitRow]] = {}
    """The limits of the queues in which the run or its steps wait, by the number of the queue."""
    asks: Sequence[SeenAsk] = ()
    """The questions to people that the run asks or has asked."""

    @property
    def staff(self) -> Staff:
        return Staff(self.run, self.nodes, self.now)

    def last(self, verb: str) -> JournalEntry | None:
        """Return the newest journal entry with this verb; None if there is none."""
        return next((entry for entry in self.journal if entry.verb == verb), None)


async def gather(
    store: Store,
    run: RunRow,
    steps: Sequence[StepRow],
    attempts: Sequence[Attempt],
    config: Config,
    declared: SignalsDeclared | None = None,
) -> Facts:
    """Read the other facts about a run whose row, steps and attempts the caller has read."""
    has_children = any(step.kind is StepKind.CHILD for step in steps)
    return Facts(
        run,
        steps,
        attempts,
        await store.reads.signals(run.id),
        await store.nodes.nodes(),
        await store.agents.lanes(),
        await store.now(),
        await store.gates.breakers(),
        await store.gates.holds(),
        await store.quarantine.quarantined(run.id) if any(step.quarantined for step in steps) else (),
        await store.reads.children(run.id) if has_children else (),
        await outlook(store, run, steps, config),
        await store.reads.journal(run.id),
        await _retried(store, run) if run.state in RUN_ENDED else None,
        declared,
        await store.reads.joins(run.id) if has_children else {},
        await store.reads.log_counts(run.id) if any(step.error is not None for step in steps) else {},
        await _limits(store, run, steps),
        await store.asks.asks_of(run.id) if any(step.kind is StepKind.ASK for step in steps) else (),
    )


async def _limits(store: Store, run: RunRow, steps: Sequence[StepRow]) -> dict[int, Sequence[LimitRow]]:
    queues = {step.queue for step in steps if step.state is StepState.READY}
    if run.state is RunState.PENDING:
        queues.add(run.queue)
    return {queue: await store.limits.of_queue(queue) for queue in sorted(queues - {0})[:QUEUES_MAX]}


async def _retried(store: Store, run: RunRow) -> RunRow | None:
    """Follow the retries of this run, and the retries of those, and return the newest run; None if there is none."""
    newest = None
    while (
        found := await store.reads.run(next_try(newest or run))
    ) is not None and found.retry_of is not None:
        newest = found
    return newest


def next_try(run: RunRow) -> str:
    """Return the id that a retry of this run has, whether or not there is one."""
    stem, _, number = run.id.rpartition("~") if run.retry_of else (run.id, "", "1")
    return f"{stem}~{int(number) + 1 if number.isdigit() else 2}"
