"""Acts: one verb on many runs, as one durable thing.

A plan lists exactly the runs that were meant when it was made, each with its state and its fence. Whoever has the act's
lease carries it out in batches, each in one transaction with what becomes of its runs. A run that has another state or
fence by then was changed by somebody else, and is left alone. So each run is acted on once at most, whoever dies in
between and however often the act is begun.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.actor import Actor, entry, way
from holdfast.errors import RunError
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import (
    CANCEL,
    ActOptions,
    ActRow,
    ActRun,
    ActState,
    ActVerb,
    Fate,
    RunRow,
    RunState,
    in_words,
)
from holdfast.store.answers import MeantRun
from holdfast.store.database import Noun, Row, Session, long_look, look, statement, transaction
from holdfast.store.forks import ForkRequest
from holdfast.store.operators import (
    Cause,
    cancel,
    cancel_key,
    hold,
    make_fork,
    release,
    retry_ended,
    retry_now,
    steer,
)
from holdfast.store.quarantine import resolve
from holdfast.store.reads import LAST, RunFilter, each_namespace, filter_values, newest
from holdfast.store.retries import retried_as
from holdfast.store.rows import run_of
from holdfast.store.verbs import Verb

LEFT = "left"
"""What the filter of `act_runs` calls runs that have no fate yet."""
RESOLVED_MAX = 10_000
"""How many steps in quarantine a retry releases in one run."""
NOTE_MAX_CHARS = 500
"""How much is kept of why a run refused."""


class NewAct(NamedTuple):
    id: str
    verb: ActVerb
    actor: str
    note: str
    options: ActOptions
    namespace: str = ""
    """The namespace of its runs. Empty if it is about the whole store."""


class ActReads(Noun):
    @look
    async def act(self, session: Session, act_id: str) -> ActRow | None:
        row = await session.row(Verb.act, act_id)
        return None if row is None else _act_of(row)

    @look
    async def acts(self, session: Session, limit: int, namespace: str | None = None) -> list[ActRow]:
        """Return the newest acts, newest first: those in this namespace, or all."""
        if namespace is not None:
            return [_act_of(row) for row in await session.rows(Verb.acts_in, limit, namespace)]
        return [_act_of(row) for row in await session.rows(Verb.acts, limit)]

    @look
    async def act_runs(
        self, session: Session, act_id: str, fates: Sequence[str] = (), after: str = "", limit: int = 500
    ) -> list[ActRun]:
        """Return runs of an act by their ids: all of them, or those with one of these fates. LEFT stands for none."""
        rows = await session.rows(Verb.act_runs, act_id, list(fates), after, limit)
        return [
            ActRun(run_id, state, fence, None if fate is None else Fate(fate), note)
            for run_id, state, fence, fate, note in rows
        ]

    @look
    async def idle_acts(self, session: Session, limit: int) -> list[str]:
        """Return acts that were begun and that nobody carries out any more."""
        return [row[0] for row in await session.rows(Verb.idle_acts, limit)]


class CarriedActs(ActReads):
    """What is needed to carry out an act."""

    @statement
    async def take_act(self, session: Session, act_id: str, holder: str, lease_s: float) -> int | None:
        """Take over an act that was begun and whose lease has run out. Return its fence, or None if there is nothing to
        take."""
        fence: int | None = await session.value(Verb.take_act, act_id, holder, lease_s)
        return fence

    @transaction
    async def carry_out(
        self, session: Session, act_id: str, fence: int, *, lease_s: float, limit: int, share_s: float
    ) -> ActRow | None:
        """Act on up to `limit` runs of an act, and renew its lease. Return the act as it is then, which is done if no
        run is left. Return None if the fence is old: the act was stopped, or somebody else has it.

        This may end after `share_s`, when at least one run was acted on.
        """
        kept = await session.row(Verb.keep_act, act_id, fence, lease_s)
        if kept is None:
            return None
        act = _act_of(kept)
        left = await session.rows(Verb.left_of_act, act_id, limit + 1)
        batch = left[:limit]
        await self._lock(session, act, [row[0] for row in batch])
        environment, one_run = self._database.environment, _OneRun.of(act, self._database.environment.new_id)
        began, fates = environment.monotonic(), []
        for row in batch:
            fates.append((row[0], *await one_run.on(session, row)))
            if environment.monotonic() - began > share_s:
                break
        return await _end(session, act_id, fates, is_last=len(fates) == len(left))

    @transaction
    async def refuse_next(
        self, session: Session, act_id: str, fence: int, why: str, *, lease_s: float
    ) -> ActRow | None:
        """Leave the next run of an act alone, because acting on it failed. Return the act, or None if the fence is
        old."""
        if await session.row(Verb.keep_act, act_id, fence, lease_s) is None:
            return None
        left = await session.rows(Verb.left_of_act, act_id, 2)
        fates = [(row[0], Fate.REFUSED, why[:NOTE_MAX_CHARS]) for row in left[:1]]
        return await _end(session, act_id, fates, is_last=len(left) <= 1)

    async def _lock(self, session: Session, act: ActRow, run_ids: list[str]) -> None:
        """Lock all runs that the batch may change, in one order: those it acts on, and children that a retry takes
        over."""
        found = set(run_ids)
        if act.verb is ActVerb.RETRY:
            found.update(row[0] for row in await session.rows(Verb.children_of, run_ids))
        await session.rows(Verb.lock_runs, sorted(found))


class Acts(CarriedActs):
    @long_look
    async def meant_runs(self, session: Session, where: RunFilter, after: str = "") -> list[MeantRun]:
        """Return runs that a filter means, with what decides whether an act can do something to them. They come newest
        first; those with ids or a prefix come by their ids, after the id `after`."""
        if where.ids:
            values = (*filter_values(where), list(where.ids), after)
            return [_meant_of(row) for row in await session.rows(Verb.meant_runs_named, *values)]
        if where.prefix is not None:
            values = (*filter_values(where), where.prefix, where.prefix + LAST, after)
            return [_meant_of(row) for row in await session.rows(Verb.meant_runs_beginning, *values)]
        found = [
            _meant_of(row)
            for one in await each_namespace(session, where)
            for row in await session.rows(Verb.meant_runs, *filter_values(one))
        ]
        return newest(found, where.limit)

    @long_look
    async def runs_with_step(self, session: Session, run_ids: Sequence[str], key: str) -> set[str]:
        """Return those of these runs that have a step with this key."""
        return {row[0] for row in await session.rows(Verb.runs_with_step, list(run_ids), key)}

    @statement
    async def plan_act(self, session: Session, new: NewAct) -> None:
        options = msgspec.json.encode(new.options).decode()
        values = (new.id, new.verb, new.actor, new.note, options, new.namespace, *way(new.actor))
        await session.run(Verb.plan_act, *values)

    @transaction
    async def add_act_runs(self, session: Session, act_id: str, runs: Sequence[tuple[str, str, int]]) -> int:
        """Add runs to a plan that is being made: their ids, states and fences. Return how many were added."""
        if await session.row(Verb.lock_plan, act_id) is None:
            return 0
        return await session.each(Verb.add_act_runs, sorted(runs), act_id)

    @transaction
    async def finish_plan(self, session: Session, act_id: str, preview: str) -> ActRow | None:
        """The plan is complete, and may be carried out. Return None if somebody stopped it meanwhile."""
        # Locked first: the statement that counts its runs must begin after the last of them has been added.
        if await session.row(Verb.lock_plan, act_id) is None:
            return None
        row = await session.row(Verb.finish_plan, act_id, preview)
        return None if row is None else _act_of(row)

    @transaction
    async def begin_act(
        self, session: Session, act_id: str, holder: str, lease_s: float, plan_s: float
    ) -> int | None:
        """Begin an act that is planned, or go on with one that was stopped. Return its fence, or None if it cannot be
        begun: it runs, it is done, or it was planned more than `plan_s` ago."""
        fence: int | None = await session.value(Verb.begin_act, act_id, holder, lease_s, plan_s)
        if fence is not None:
            act = _act_of(await session.row(Verb.act, act_id))
            note = f"act {act_id} on {act.runs} runs begun"
            await session.each(Verb.journal_add, [entry(_actor(act), act.verb, None, None, note)])
        return fence

    @transaction
    async def stop_act(self, session: Session, act_id: str, actor: str) -> bool:
        """Stop an act: no further run is acted on. Return False if it had ended."""
        before = await session.row(Verb.act, act_id)
        stopped = bool(await session.run(Verb.stop_act, act_id))
        if stopped and before is not None:
            note = f"act {act_id} stopped"
            await session.each(Verb.journal_add, [entry(actor, _act_of(before).verb, None, None, note)])
        return stopped


def _actor(act: ActRow) -> Actor:
    """Return who made the plan, and how they had come."""
    return Actor(act.actor, act.via, act.request)


class _OneRun(NamedTuple):
    """Carries out an act on one run after the other."""

    act: ActRow
    options: ActOptions
    cause: Cause

    @classmethod
    def of(cls, act: ActRow, new_id: Any) -> _OneRun:
        options = msgspec.json.decode(act.options, type=ActOptions)
        return cls(act, options, Cause(_actor(act), act.note, new_id, act.id))

    async def on(self, session: Session, planned: Row) -> tuple[Fate, str]:
        """Act on a run, unless it has changed since the plan was made. Return its fate, and what the act shows about
        it."""
        run_id, state, fence = planned
        row = await session.row(Verb.lock_run, run_id)
        if row is None:
            return Fate.CHANGED, "it was removed"
        run = run_of(row)
        if (run.state, run.fence) != (state, fence):
            now = "still" if run.state == state else "now"
            return Fate.CHANGED, f"it is {now} {run.state}, and something has happened to it since"
        try:
            return await self._verb(session, run)
        except RunError as no:
            return Fate.REFUSED, str(no)[:NOTE_MAX_CHARS]

    async def _verb(self, session: Session, run: RunRow) -> tuple[Fate, str]:
        match self.act.verb:
            case ActVerb.CANCEL:
                return await self._cancel(session, run)
            case ActVerb.HOLD:
                await hold(session, run, self.cause)
                return Fate.DONE, "held"
            case ActVerb.RELEASE:
                return Fate.DONE, str(await release(session, run, self.cause))
            case ActVerb.RETRY:
                return await self._retry(session, run)
            case ActVerb.SKIP:
                await steer(session, run, "skip", None, self.cause)
                return Fate.DONE, "its undos that gave up count as done"
            case ActVerb.FORK:
                made = await make_fork(session, run, ForkRequest(start=self.options.start), self.cause)
                return Fate.DONE, f"as {made.id}"

    async def _cancel(self, session: Session, run: RunRow) -> tuple[Fate, str]:
        if run.state in RUN_ENDED:
            return Fate.REFUSED, f"it {in_words(run.state)}"
        if is_undoing(run.state, run.resume):
            await steer(session, run, "abandon", None, self.cause)
            return Fate.DONE, "asked to stop undoing where it is"
        again = self.options.force
        key = cancel_key(await session.value(Verb.heard_cancels, run.id), again=again)
        is_asked = await session.row(Verb.sent_before, run.id, CANCEL, key) is not None
        if is_asked and run.state is not RunState.HELD:
            return Fate.CHANGED, "it was asked to cancel itself since"
        await cancel(session, run, self.cause, again=again)
        is_over = not is_asked and run.state is RunState.PENDING and await _has_ended(session, run.id)
        return Fate.DONE, "cancelled" if is_over else "asked to cancel itself"

    async def _retry(self, session: Session, run: RunRow) -> tuple[Fate, str]:
        if run.state in RUN_ENDED:
            later = await retried_as(session, run)
            if later is not None:
                return Fate.CHANGED, f"it was retried since, as {later.id}"
            return Fate.DONE, f"as {await retry_ended(session, run, self.cause)}"
        released = await resolve(
            session,
            "release",
            fingerprint=None,
            run_id=run.id,
            before=await session.now(),
            result=b"null",
            actor=self.cause.actor,
            note=self.cause.said(self.cause.note),
            limit=RESOLVED_MAX,
        )
        if run.state is RunState.STUCK and run.resume is not RunState.RUNNING:
            await steer(session, run, "retry", None, self.cause)
            return Fate.DONE, "its undos that gave up are tried again"
        waiting = await retry_now(session, run, self.cause)
        if not released and not waiting:
            return Fate.CHANGED, "nothing of it waits for its next attempt any more"
        return Fate.DONE, f"{released + waiting} of its steps are tried at once"


async def _has_ended(session: Session, run_id: str) -> bool:
    row = await session.row(Verb.run, run_id)
    return row is not None and run_of(row).state in RUN_ENDED


def is_undoing(state: str, resume: str | None) -> bool:
    """True if a run undoes itself, or is held or stuck while it does. A run that is stuck at a step in quarantine, and
    not at an undo, counts as running."""
    return RunState.UNDOING in {state, resume} or (state == RunState.STUCK and resume is None)


async def _end(
    session: Session, act_id: str, fates: Sequence[tuple[str, Fate, str]], *, is_last: bool
) -> ActRow:
    """Write what became of these runs. The caller has the act."""
    await session.each(Verb.end_fates, fates, act_id)
    count = Counter(fate for _, fate, _ in fates)
    counts = (count[Fate.DONE], count[Fate.CHANGED], count[Fate.REFUSED])
    return _act_of(await session.row(Verb.count_fates, act_id, *counts, is_last))


def _act_of(row: Row) -> ActRow:
    act_id, verb, state, *rest = row
    return ActRow(act_id, ActVerb(verb), ActState(state), *rest)


def _meant_of(row: Row) -> MeantRun:
    run_id, created_at, state, *rest = row
    who, flags, counts = rest[:6], [bool(flag) for flag in rest[6:9]], rest[9:]
    return MeantRun(run_id, created_at, RunState(state), *who, *flags, *counts)
