"""What anybody may read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast.model import Attempt, Inherited, JournalEntry, LogRow, RunRow, SignalRow, StepRow
from holdfast.store.answers import UpdateEnd
from holdfast.store.database import Noun, Row, Session, long_look, look
from holdfast.store.retries import inherited
from holdfast.store.rows import attempt_of, log_of, run_of, step_of
from holdfast.store.verbs import Verb

JOURNAL_LOOKED_AT = 10_000
"""How many entries of the journal are looked at for somebody who looks for some of them. This takes some milliseconds."""


class JournalFilter(msgspec.Struct, frozen=True):
    """Which entries of the journal somebody looks for. What is empty may be anything."""

    actor: str = ""
    """A part of the name, in any case."""
    verb: str = ""
    """A part of what was done, in any case: `refuse` finds requests that were refused."""
    via: str = ""
    """The way by which whoever acted had come. `*` is any: what people and programs did, and not what roles of Holdfast did."""
    request: str = ""


class RunFilter(msgspec.Struct, kw_only=True):
    """Which runs are meant. A run must fit everything that is given."""

    states: tuple[str, ...] = ()
    workflow: str | None = None
    """The workflow's name, or the last part of it."""
    tags: dict[str, str] = {}
    namespace: str | None = None
    since: float | None = None
    until: float | None = None
    """The run was started at `since` or later, and before `until`."""
    error: str | None = None
    """The class of the error that ended the run or made it stuck: its name, or the last part of it."""
    prefix: str | None = None
    """The beginning of the run's id."""
    traits: tuple[str, ...] = ()
    """The run is open, and all of this: see `Trait`."""
    ids: tuple[str, ...] = ()
    """Exactly these runs. Only acts are about them: a list is not."""
    before: tuple[float, str] | None = None
    """A cursor: (created_at, id) of the last row that the caller has seen."""
    is_oldest_first: bool = False
    limit: int = 50
    has_pages: bool = True
    """False leaves out the pages of maps, except for those that wait for a person."""

    @property
    def is_narrow(self) -> bool:
        """True if it leaves out any run, apart from the page."""
        return any(
            (
                *(self.states, self.workflow, self.tags, self.namespace, self.error, self.prefix, self.ids),
                self.traits,
            )
        ) or not (self.since is None and self.until is None)


class Reads(Noun):
    @look
    async def run(self, session: Session, run_id: str) -> RunRow | None:
        row = await session.row(Verb.run, run_id)
        return None if row is None else run_of(row)

    @long_look
    async def runs(self, session: Session, where: RunFilter) -> list[RunRow]:
        """Return the runs that match, newest first, or oldest first if that is asked for."""
        if where.is_oldest_first:
            return await self._oldest(session, where)
        if where.prefix is not None:
            bounds = (where.prefix, where.prefix + LAST)
            return [
                run_of(row) for row in await session.rows(Verb.runs_beginning, *filter_values(where), *bounds)
            ]
        found = [
            run_of(row)
            for one in await each_namespace(session, where)
            for row in await session.rows(Verb.runs, *filter_values(one))
        ]
        return newest(found, where.limit)

    async def _oldest(self, session: Session, where: RunFilter) -> list[RunRow]:
        begun = where.before or (None, None)
        where = msgspec.structs.replace(where, before=None)
        if where.prefix is not None:
            values = (*filter_values(where), *begun, where.prefix, where.prefix + LAST)
            return [run_of(row) for row in await session.rows(Verb.runs_beginning_oldest, *values)]
        found = [
            run_of(row)
            for one in await each_namespace(session, where)
            for row in await session.rows(Verb.runs_oldest, *filter_values(one), *begun)
        ]
        return sorted(found, key=lambda one: (one.created_at, one.id))[: where.limit]

    @look
    async def namespaces(self, session: Session) -> list[str]:
        """Return the namespaces that have runs, by name."""
        return [row[0] for row in await session.rows(Verb.namespaces)]

    @look
    async def ended_runs(self, session: Session, run_ids: Sequence[str]) -> list[RunRow]:
        """Return those of these runs that have ended or are stuck."""
        return [run_of(row) for row in await session.rows(Verb.ended_runs, list(run_ids))]

    @look
    async def unknown_runs(self, session: Session, run_ids: Sequence[str]) -> list[str]:
        """Return those of these ids that no run has."""
        return [row[0] for row in await session.rows(Verb.unknown_runs, list(run_ids))]

    @long_look
    async def runs_by_state(self, session: Session, namespace: str | None = None) -> dict[str, int]:
        """Return how many runs of this namespace, or of the whole store, are in each state."""
        found: Counter[str] = Counter()
        for _, state, count in await session.rows(Verb.runs_by_state, namespace):
            found[state] += count
        return dict(found)

    @look
    async def runs_by_namespace(self, session: Session) -> dict[str, dict[str, int]]:
        """Return for each namespace how many runs are in each state."""
        found: dict[str, dict[str, int]] = {}
        for namespace, state, count in await session.rows(Verb.runs_by_state, None):
            found.setdefault(namespace, {})[state] = count
        return found

    @look
    async def steps(
        self, session: Session, run_id: str, *, after: int = 0, limit: int = 1000
    ) -> list[StepRow]:
        return [step_of(row) for row in await session.rows(Verb.steps, run_id, after, limit)]

    @look
    async def bare_steps(
        self, session: Session, run_id: str, *, after: int = 0, limit: int = 1000
    ) -> list[StepRow]:
        """Return steps without their payloads, retries and progress, for pictures of long runs."""
        return [step_of(row) for row in await session.rows(Verb.bare_steps, run_id, after, limit)]

    @look
    async def child_ids(self, session: Session, run_id: str) -> dict[int, str]:
        """Return the ids of a run's children, by the number of the step that waits for each."""
        return dict(await session.rows(Verb.child_ids, run_id))

    @look
    async def attempts(self, session: Session, run_id: str) -> list[Attempt]:
        return [attempt_of(row) for row in await session.rows(Verb.attempts, run_id)]

    @look
    async def logs(
        self, session: Session, run_id: str, after: LogRow | None = None, limit: int = 100
    ) -> list[LogRow]:
        """Return parts of what a run and its steps have logged, in the order of the time at which each begins."""
        cursor = (
            (0.0, -1, 0, False, -1)
            if after is None
            else (after.at, after.n, after.attempt, after.twin, after.first_line)
        )
        return [log_of(row) for row in await session.rows(Verb.logs, run_id, *cursor, limit)]

    @look
    async def logs_of(self, session: Session, run_id: str, steps: Sequence[int]) -> list[LogRow]:
        """Return all parts of what these steps have logged, in the order in which each attempt has logged them. 0 is
        the run's own code."""
        return [log_of(row) for row in await session.rows(Verb.logs_of, run_id, list(steps))]

    @look
    async def log_counts(self, session: Session, run_id: str) -> dict[int, int]:
        """Return how many lines each step has logged that are kept. 0 is the run's own code."""
        return {n: int(lines) for n, lines in await session.rows(Verb.log_counts, run_id)}

    @look
    async def signals(self, session: Session, run_id: str) -> list[SignalRow]:
        return [SignalRow(*row) for row in await session.rows(Verb.signals, run_id)]

    @look
    async def sent_update(self, session: Session, run_id: str, name: str, key: str) -> SignalRow | None:
        """Return the row of an update, by the name that it has among the signals."""
        row = await session.row(Verb.sent_update, run_id, name, key)
        return None if row is None else SignalRow(*row)

    @look
    async def answers(self, session: Session, ids: Sequence[int]) -> list[UpdateEnd]:
        """Return what became of those of these updates that are answered, or never will be."""
        return [UpdateEnd(*row) for row in await session.rows(Verb.answers, list(ids))]

    @look
    async def children(self, session: Session, run_id: str) -> list[RunRow]:
        return [run_of(row) for row in await session.rows(Verb.children, run_id)]

    @look
    async def started_runs(self, session: Session, run_id: str) -> list[RunRow]:
        """Return the runs that this run started with `start`. They are not its children."""
        return [run_of(row) for row in await session.rows(Verb.started_runs, run_id)]

    @look
    async def joins(self, session: Session, run_id: str) -> dict[int, str]:
        """Return the runs that steps of this run have joined, by the step's n. They are not its children."""
        return dict(await session.rows(Verb.joins, run_id))

    @look
    async def inherited(self, session: Session, run_id: str) -> list[Inherited]:
        """Return what a run takes over from the run that it is the retry of, ordered by step key."""
        return (await inherited(session, [run_id])).get(run_id, [])

    @look
    async def journal(
        self, session: Session, run_id: str | None, limit: int = 100, namespace: str | None = None
    ) -> list[JournalEntry]:
        """Return the journal of this run, of this namespace, or of the whole store, newest entries first."""
        rows: list[Row]
        if run_id is None and namespace is not None:
            rows = await session.rows(Verb.journal_in, limit, namespace)
        elif run_id is None:
            rows = await session.rows(Verb.journal, limit)
        else:
            rows = await session.rows(Verb.journal_of_run, run_id, limit)
        return [JournalEntry(*row) for row in rows]

    @long_look
    async def journal_found(
        self, session: Session, where: JournalFilter, limit: int, namespace: str | None = None
    ) -> list[JournalEntry]:
        """Return entries that have what is looked for, of this namespace or of the whole store, newest first. Only the newest
        `JOURNAL_LOOKED_AT` entries are looked at."""
        given = (limit, JOURNAL_LOOKED_AT, where.actor, where.verb, where.via, where.request)
        if namespace is None:
            return [JournalEntry(*row) for row in await session.rows(Verb.journal_found, *given)]
        return [JournalEntry(*row) for row in await session.rows(Verb.journal_found_in, *given, namespace)]

    @long_look
    async def doctor(self, session: Session) -> list[tuple[str, str, int]]:
        """Check the invariants. Return (name, meaning, number of rows that break it) for each."""
        return [(name, meaning, broken) for name, meaning, broken in await session.rows(Verb.doctor)]


LAST = "\U0010ffff"
"""Sorts after every character that an id can have."""


class Dated(Protocol):
    @property
    def created_at(self) -> float: ...
    @property
    def id(self) -> str: ...


D = TypeVar("D", bound=Dated)


async def each_namespace(session: Session, where: RunFilter) -> list[RunFilter]:
    """Return the filter for each namespace that it means. Lists are read one namespace at a time, from one index range
    each."""
    if where.namespace is not None:
        return [where]
    there = [row[0] for row in await session.rows(Verb.namespaces)]
    return [msgspec.structs.replace(where, namespace=namespace) for namespace in there]


def newest(found: list[D], limit: int) -> list[D]:
    """Return the newest of what was found in several namespaces, newest first."""
    return sorted(found, key=lambda one: (one.created_at, one.id), reverse=True)[:limit]


def filter_values(where: RunFilter) -> tuple[Any, ...]:
    """Return the values of a filter, in the order that the statements have. The prefix comes after them."""
    bounds = [bound for bound in (where.before, _cursor(where.until)) if bound is not None]
    at, after = min(bounds, default=(None, None))
    tags = json.dumps(where.tags) if where.tags else None
    page = (list(where.states), where.workflow, at, after, tags, where.limit)
    return (*page, where.namespace, where.since, where.error, where.has_pages, list(where.traits))


def _cursor(until: float | None) -> tuple[float, str] | None:
    """Return the cursor after which the runs before this time come."""
    return None if until is None else (until, "")
