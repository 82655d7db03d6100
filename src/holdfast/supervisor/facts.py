"""What has to be known of a run to say why it is where it is, and reading it."""

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
    SignalRow,
    StepKind,
    StepRow,
)
from holdfast.store.store import Store
from holdfast.supervisor.outlook import Outlook, outlook
from holdfast.supervisor.staff import Staff


class SignalsDeclared(NamedTuple):
    """What the code of a run's workflow says of its signals."""

    data: Mapping[str, str]
    """By name, what `holdfast signal RUN NAME` needs besides: ` --data '{"cents": 0}'`, or nothing."""
    named: frozenset[str]
    """Those that the workflow's own code names, as far as can be seen. The others are of the same application."""
    open: bool
    """There may be more: code makes them up."""


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
    """Of the run's steps, those that wait for a person."""
    children: Sequence[RunRow] = ()
    """Those that the run waits for."""
    outlook: Outlook | None = None
    journal: Sequence[JournalEntry] = ()
    """What operators did to the run, newest first."""
    retried: RunRow | None = None
    """The newest run that began as a retry of this one."""
    signals_declared: SignalsDeclared | None = None
    """None: nobody has declared the workflow."""
    joins: Mapping[int, str] = {}
    """Runs of others that steps wait for, by the step's n."""

    @property
    def staff(self) -> Staff:
        return Staff(self.run, self.nodes, self.now)

    def last(self, verb: str) -> JournalEntry | None:
        """What an operator did last of this."""
        return next((entry for entry in self.journal if entry.verb == verb), None)


async def gather(
    store: Store,
    run: RunRow,
    steps: Sequence[StepRow],
    attempts: Sequence[Attempt],
    config: Config,
    declared: SignalsDeclared | None = None,
) -> Facts:
    """The facts about a run whose row and steps are known."""
    waits = any(step.kind is StepKind.CHILD for step in steps)
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
        await store.reads.children(run.id) if waits else (),
        await outlook(store, run, steps, config),
        await store.reads.journal(run.id),
        await _retried(store, run) if run.state in RUN_ENDED else None,
        declared,
        await store.reads.joins(run.id) if waits else {},
    )


async def _retried(store: Store, run: RunRow) -> RunRow | None:
    """The newest of those that were retried one after the other, from this one on."""
    newest = None
    while (
        found := await store.reads.run(next_try(newest or run))
    ) is not None and found.retry_of is not None:
        newest = found
    return newest


def next_try(run: RunRow) -> str:
    """The id that this run's retry has, if there is one."""
    stem, _, number = run.id.rpartition("~") if run.retry_of else (run.id, "", "1")
    return f"{stem}~{int(number) + 1 if number.isdigit() else 2}"
