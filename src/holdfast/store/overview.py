"""What people look at: what runs wait for, and what nobody can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.model import StepRow
from holdfast.store.answers import Backlog
from holdfast.store.database import Noun, Session, long_look, look
from holdfast.store.reads import LAST, RunFilter, each_namespace, filter_values
from holdfast.store.rows import step_of
from holdfast.store.verbs import Verb


class RunEnd(NamedTuple):
    """A run that has ended, as far as statistics need it."""

    workflow: str
    version: str
    state: str
    created_at: float
    finished_at: float


class Stretch(NamedTuple):
    """A stretch of the store's time, in one namespace or in all, and of one workflow or of all."""

    begun: float
    ended: float
    namespace: str | None = None
    workflow: str | None = None


class Overviews(Noun):
    @long_look
    async def ended_in(
        self, session: Session, span: Stretch, states: Sequence[str], limit: int
    ) -> tuple[list[RunEnd], bool]:
        """Return runs without a parent that ended in this stretch, at most `limit` in each state, and whether these are
        all."""
        found: list[RunEnd] = []
        is_all = True
        for state in states:
            values = (state, span.begun, span.ended, span.namespace, span.workflow, limit)
            rows = await session.rows(Verb.ended_in, *values)
            is_all = is_all and len(rows) < limit
            found += [RunEnd(*row) for row in rows]
        return found, is_all

    @long_look
    async def count_ended(
        self, session: Session, span: Stretch, states: Sequence[str], days: Sequence[int], limit: int
    ) -> dict[int, dict[str, int]]:
        """Return how many runs ended in each state in the same stretch some days ago, counted up to `limit` each."""
        found: dict[int, dict[str, int]] = {}
        values = (list(days), list(states), span.begun, span.ended, span.namespace, span.workflow, limit)
        for day, state, count in await session.rows(Verb.count_ended, *values):
            found.setdefault(day, {})[state] = count
        return found

    @long_look
    async def count_meant(self, session: Session, where: RunFilter) -> dict[str, int]:
        """Return how many runs fit a filter, by state, counted up to its limit in each namespace."""
        found: dict[str, int] = {}
        bounds = (None, None) if where.prefix is None else (where.prefix, where.prefix + LAST)
        for one in await each_namespace(session, where):
            for state, count in await session.rows(Verb.count_meant, *filter_values(one), *bounds):
                found[state] = found.get(state, 0) + count
        return found

    @look
    async def open_steps(
        self, session: Session, run_ids: Sequence[str], newest: int
    ) -> dict[str, list[StepRow]]:
        """Return the open steps of these runs by run, among the `newest` steps of each, without payloads."""
        found: dict[str, list[StepRow]] = {}
        for row in await session.rows(Verb.open_steps, list(run_ids), newest):
            step = step_of(row)
            found.setdefault(step.run_id, []).append(step)
        return found

    @look
    async def waiting_lanes(self, session: Session, limit: int) -> dict[int, Backlog]:
        """Return how many steps are due in each lane, whether or not a gate is closed. At most `limit` steps of each lane
        and priority are counted."""
        return {
            lane: Backlog(int(ready), since)
            for lane, ready, since in await session.rows(Verb.waiting_lanes, limit)
        }

    @look
    async def pending_codes(self, session: Session, limit: int) -> dict[tuple[str, str], Backlog]:
        """Return how many runs of each workflow and version wait for a scheduler. At most `limit` of each are counted."""
        return {
            (workflow, version): Backlog(runs, since)
            for workflow, version, runs, since in await session.rows(Verb.pending_codes, limit)
        }
