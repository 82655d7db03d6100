"""What anybody may read."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from holdfast.model import Attempt, Inherited, JournalEntry, RunRow, SignalRow, StepRow
from holdfast.store.database import Part, Row, Session, long_look, look
from holdfast.store.retries import inherited
from holdfast.store.rows import attempt_of, run_of, step_of
from holdfast.store.verbs import Verb


class RunFilter(msgspec.Struct, kw_only=True):
    states: tuple[str, ...] = ()
    workflow: str | None = None
    tags: dict[str, str] = {}
    before: tuple[float, str] | None = None
    """A cursor: (created_at, id) of the last row that the caller has seen."""
    limit: int = 50


class Reads(Part):
    @look
    async def run(self, session: Session, run_id: str) -> RunRow | None:
        row = await session.row(Verb.run, run_id)
        return None if row is None else run_of(row)

    @long_look
    async def runs(self, session: Session, where: RunFilter) -> list[RunRow]:
        """Return the runs that match, newest first."""
        at, after = where.before or (None, None)
        tags = json.dumps(where.tags) if where.tags else None
        values = (list(where.states), where.workflow, at, after, tags, where.limit)
        return [run_of(row) for row in await session.rows(Verb.runs, *values)]

    @look
    async def ended_runs(self, session: Session, run_ids: Sequence[str]) -> list[RunRow]:
        """Return those of these runs that have ended or are stuck."""
        return [run_of(row) for row in await session.rows(Verb.ended_runs, list(run_ids))]

    @look
    async def unknown_runs(self, session: Session, run_ids: Sequence[str]) -> list[str]:
        """Return those of these ids that no run has."""
        return [row[0] for row in await session.rows(Verb.unknown_runs, list(run_ids))]

    @long_look
    async def runs_by_state(self, session: Session) -> dict[str, int]:
        return dict(await session.rows(Verb.runs_by_state))

    @look
    async def steps(
        self, session: Session, run_id: str, *, after: int = 0, limit: int = 1000
    ) -> list[StepRow]:
        return [step_of(row) for row in await session.rows(Verb.steps, run_id, after, limit)]

    @look
    async def attempts(self, session: Session, run_id: str) -> list[Attempt]:
        return [attempt_of(row) for row in await session.rows(Verb.attempts, run_id)]

    @look
    async def signals(self, session: Session, run_id: str) -> list[SignalRow]:
        return [SignalRow(*row) for row in await session.rows(Verb.signals, run_id)]

    @look
    async def children(self, session: Session, run_id: str) -> list[RunRow]:
        return [run_of(row) for row in await session.rows(Verb.children, run_id)]

    @look
    async def joins(self, session: Session, run_id: str) -> dict[int, str]:
        """Return the runs that steps of this run have joined, by the step's n. They are not its children."""
        return dict(await session.rows(Verb.joins, run_id))

    @look
    async def inherited(self, session: Session, run_id: str) -> list[Inherited]:
        """Return what a run takes over from the run that it is the retry of, ordered by step key."""
        return (await inherited(session, [run_id])).get(run_id, [])

    @look
    async def journal(self, session: Session, run_id: str | None, limit: int = 100) -> list[JournalEntry]:
        """Return the journal of this run, or of the whole store, newest entries first."""
        rows: list[Row]
        if run_id is None:
            rows = await session.rows(Verb.journal, limit)
        else:
            rows = await session.rows(Verb.journal_of_run, run_id, limit)
        return [JournalEntry(*row) for row in rows]

    @long_look
    async def doctor(self, session: Session) -> list[tuple[str, str, int]]:
        """Check the invariants. Return (name, meaning, number of rows that break it) for each."""
        return [(name, meaning, broken) for name, meaning, broken in await session.rows(Verb.doctor)]
