"""Questions to people: who is asked, what they answer, and how that ends the step that waits.

An ask is open while its step waits. Whoever ends one ends the other in the same transaction, and has locked the step's row
first: people who answer, the leader when it expires, and the hop of a run that gives it up. The answer of the last person who
was needed ends the step under its fence (`answer_steps`), and the scheduler delivers it like any outcome.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from holdfast import codec
from holdfast.actor import entry, way
from holdfast.errors import Forbidden, UnknownAsk, WrongState
from holdfast.model import AlertKind, AskPerson, AskRow, AskState, Level, NewAlert, StepState
from holdfast.questions import (
    HOPS_MAX,
    Answerer,
    DueNow,
    RefusedAnswer,
    answers,
    due,
    is_asked,
    notice_key,
    output,
    people_barred,
    refusal,
    through,
    to_notify,
)
from holdfast.store.database import Noun, Row, Session, leading, look, transaction
from holdfast.store.rows import alert_row
from holdfast.store.verbs import Verb

ASKS_MAX = 1000
"""How many asks of one run are read."""


class SeenAsk(NamedTuple):
    row: AskRow
    people: list[AskPerson]


class GivenAnswer(NamedTuple):
    """An answer as somebody gives it. `value` is JSON that fits the form."""

    by: Answerer
    value: bytes
    note: str
    actor: str


class TakenAnswer(NamedTuple):
    """What came of an answer."""

    seen: SeenAsk
    is_new: bool
    """False if the same person had given the same answer before."""


class AskReads(Noun):
    @look
    async def ask(self, session: Session, ask: str) -> SeenAsk | None:
        row = await session.row(Verb.ask, ask)
        return None if row is None else (await _seen(session, [row]))[0]

    @look
    async def open_asks(
        self, session: Session, namespace: str | None, after: tuple[float, str] = (0.0, ""), limit: int = 100
    ) -> list[SeenAsk]:
        """Return open asks, oldest first: those of this namespace, or of the whole store."""
        return await _seen(session, await session.rows(Verb.open_asks, namespace, *after, limit))

    @look
    async def ended_asks(
        self,
        session: Session,
        namespace: str | None,
        after: tuple[float, str] = (1e11, ""),
        limit: int = 100,
        who: Collection[str] | None = None,
    ) -> list[SeenAsk]:
        """Return asks that have ended, the newest end first: all of them, or those to these people and teams."""
        names = None if who is None else sorted(who)
        return await _seen(session, await session.rows(Verb.ended_asks, namespace, *after, names, limit))

    @look
    async def inbox(
        self,
        session: Session,
        who: Sequence[str],
        namespace: str | None,
        after: tuple[float, str] = (0.0, ""),
        limit: int = 100,
    ) -> list[SeenAsk]:
        """Return the open asks to these people and teams, oldest first."""
        return await _seen(session, await session.rows(Verb.inbox, sorted(who), namespace, *after, limit))

    @look
    async def asks_of(self, session: Session, run_id: str) -> list[SeenAsk]:
        """Return the asks of a run."""
        return await _seen(session, await session.rows(Verb.asks_of, run_id, ASKS_MAX))


class LeaderAsks(AskReads):
    @look
    async def due_asks(self, session: Session, limit: int) -> list[AskRow]:
        """Return open asks about which there is something to do, the longest due first."""
        return [_row(row) for row in await session.rows(Verb.due_asks, limit)]

    @look
    async def next_ask(self, session: Session) -> float | None:
        """Return when there is next something to do about an ask."""
        at: float | None = await session.value(Verb.next_ask)
        return at

    @leading(0)
    async def mind_ask(self, session: Session, ask: str) -> int:
        """Do what is due about an ask: add those to whom it escalates, or end it. Return 1 if its step ended."""
        found = await _locked(session, ask)
        if found is None or found[0].row.state is not AskState.OPEN:
            return 0
        seen, fence = found
        row, now = seen.row, await session.now()
        what = due(row, now)
        if what.expire:
            return await _expire(session, row, fence)
        added = await _escalate(session, row, what)
        asked = to_notify(seen.people) if what.is_new or what.remind else []
        await _notify(
            session, row, [*asked, *(who for who in added if who not in asked)], now, again=what.remind
        )
        await session.run(Verb.move_ask, row.id, now, what.next_at)
        return 0


class Asks(LeaderAsks):
    @transaction
    async def answer(self, session: Session, ask: str, given: GivenAnswer) -> TakenAnswer:
        """Take an answer. The last one that was needed ends the step. Raise WrongState if it comes too late or if this
        person has answered something else before, and Forbidden if this person must not answer."""
        found = await _locked(session, ask)
        if found is None:
            raise UnknownAsk.of(ask)
        (row, people), fence = found
        refused = refusal(row, people, given.by, await session.now())
        if refused is not None:
            if refused.kind == "answered" and self._is_same(people, given):
                return TakenAnswer(SeenAsk(row, people), False)
            raise _refused(refused)
        how, _ = through(people, given.by)
        is_named = any(one.who == given.by.person for one in people)
        values = (row.id, given.by.person, how, given.value, given.note, way(given.actor)[0] or "")
        if await session.row(Verb.answer_ask, *values) is None:
            raise WrongState(f"{given.by.person} has answered this already")
        people = await _people(session, row.id)
        taken = answers(people)
        for_team = f" for {how}" if how in given.by.teams and not is_named else ""
        note = f"ask {row.id}: {given.by.person} answered{for_team}, {len(taken)} of {row.quorum}"
        await session.each(Verb.journal_add, [entry(given.actor, "answer", row.run_id, row.n, note)])
        if len(taken) >= row.quorum:
            raw = output(row, taken)
            await _end(session, row, fence, AskState.ANSWERED, (StepState.SUCCEEDED, raw, None))
        return TakenAnswer((await _seen(session, [await session.row(Verb.ask, row.id)]))[0], True)

    def _is_same(self, people: Sequence[AskPerson], given: GivenAnswer) -> bool:
        """True if this person has answered the same before."""
        own = next(one for one in people if one.who == given.by.person)
        return self._database.is_same(own.value or b"null", given.value)

    @transaction
    async def delegate(
        self, session: Session, ask: str, by: Answerer, to: str, *, note: str, actor: str
    ) -> SeenAsk:
        """Hand the place of a person over to somebody else."""
        found = await _locked(session, ask)
        if found is None:
            raise UnknownAsk.of(ask)
        (row, people), _ = found
        refused = refusal(row, people, by, await session.now())
        if refused is not None:
            raise _refused(refused)
        if to in people_barred(row):
            raise Forbidden(f"{to} must not answer this: hand it over to somebody else")
        if any(one.who == to for one in people):
            raise WrongState(f"{to} is asked this already")
        own = next((one for one in people if one.who == by.person), None)
        how, hops = (own.through, own.hops) if own is not None else through(people, by)
        if own is None and not is_asked(people, by):
            raise WrongState(f"{by.person} is not asked this, and has no place to hand over")
        if hops >= HOPS_MAX:
            raise WrongState(
                f"this place was handed over {hops} times already: answer it, or let others do it"
            )
        await session.run(Verb.hand_ask_over, row.id, by.person, how, hops, to)
        await session.each(Verb.add_ask_people, [(row.id, to, f"delegated by {by.person}", hops + 1)])
        said = f"ask {row.id}: {by.person} handed it over to {to}{f': {note}' if note else ''}"
        await session.each(Verb.journal_add, [entry(actor, "delegate", row.run_id, row.n, said)])
        await _notify(session, row, [to], await session.now())
        return (await _seen(session, [await session.row(Verb.ask, row.id)]))[0]


# --- inside a transaction -------------------------------------------------------------------------------------------


async def _locked(session: Session, ask: str) -> tuple[SeenAsk, int] | None:
    """Lock the step, then the ask. Return the ask and the step's fence. The fence is -1 if there is no such step any
    more: then the ask has ended, too."""
    step = await session.row(Verb.lock_ask_step, ask)
    row = await session.row(Verb.lock_ask, ask)
    if row is None:
        return None
    return (await _seen(session, [row]))[0], -1 if step is None else step[2]


def _refused(refused: RefusedAnswer) -> Forbidden | WrongState:
    return (Forbidden if refused.kind in {"barred", "stranger"} else WrongState)(refused.why)


async def _end(
    session: Session,
    row: AskRow,
    fence: int,
    state: AskState,
    outcome: tuple[StepState, bytes | None, str | None],
) -> None:
    """End an ask and its step. The step waits: it is locked, and the ask is open."""
    if not await session.each(Verb.answer_steps, [(row.run_id, row.n, fence, *outcome)]):
        raise WrongState("this question was withdrawn: the run no longer waits for it")
    await session.each(Verb.end_asks, [(row.run_id, row.n, state)])
    await session.each(Verb.close_ask_people, [(row.run_id, row.n)])


async def _expire(session: Session, row: AskRow, fence: int) -> int:
    wanted = "nobody" if row.quorum == 1 else f"fewer than {row.quorum} people"
    late = TimeoutError(f"{wanted} answered in time: {row.question}")
    error = codec.encode_error(late, step="ask")
    await _end(session, row, fence, AskState.EXPIRED, (StepState.FAILED, None, error))
    note = f"ask {row.id} expired"
    await session.each(Verb.journal_add, [entry("supervisor", "expire", row.run_id, row.n, note)])
    return 1


async def _notify(
    session: Session, row: AskRow, people: Sequence[str], now: float, *, again: bool = False
) -> None:
    """Notify people, by the outbox. The question itself is a payload, and stands in no alert."""
    is_asked = "is still asked" if again else "is asked"
    alerts = [
        NewAlert(
            AlertKind.ASK,
            Level.INFO,
            notice_key(who, row.id, now),
            f"{who} {is_asked} something by run {row.run_id}: `holdfast asks {row.id}` shows it",
            row.run_id,
        )
        for who in people
    ]
    await session.each(Verb.raise_alerts, [alert_row(alert) for alert in alerts])


async def _escalate(session: Session, row: AskRow, what: DueNow) -> list[str]:
    """Add those to whom it escalates now. Return them."""
    barred = set(people_barred(row))
    added = [who for who in what.escalate if who not in barred]
    if not added:
        return []
    await session.each(Verb.add_ask_people, [(row.id, who, "escalated", 0) for who in added])
    note = f"ask {row.id}: nobody answered in time, now {', '.join(added)} may, too"
    await session.each(Verb.journal_add, [entry("supervisor", "escalate", row.run_id, row.n, note)])
    return added


async def _seen(session: Session, rows: Sequence[Row]) -> list[SeenAsk]:
    found = [_row(row) for row in rows]
    people: dict[str, list[AskPerson]] = {row.id: [] for row in found}
    if found:
        for one in await session.rows(Verb.ask_people, sorted(people)):
            people[one[0]].append(AskPerson(*one))
    return [SeenAsk(row, people[row.id]) for row in found]


async def _people(session: Session, ask: str) -> list[AskPerson]:
    return [AskPerson(*row) for row in await session.rows(Verb.ask_people, [ask])]


def _row(row: Row) -> AskRow:
    values = list(row)
    values[_STATE] = AskState(values[_STATE])
    return AskRow(*values)


_STATE = AskRow.__struct_fields__.index("state")
