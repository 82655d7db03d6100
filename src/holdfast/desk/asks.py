"""Questions to people, for those who answer them: list, answer and hand over.

Python (`hf.asks`), the command line and the server all ask an `AskDesk`, with the identity of who asks. An ask in another
namespace is unknown, like one that does not exist. So is, for an answerer, an ask that is for others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from holdfast import codec
from holdfast.access import Act, Identity, Kind, Role
from holdfast.access.signed_texts import KEY_BYTES, opened
from holdfast.actor import Via
from holdfast.codec.schema import check, filled
from holdfast.codec.secret import demand_sealed, masked_json
from holdfast.desk.opened import Opened, ring
from holdfast.errors import Forbidden, HoldfastError, InvalidInput, UnknownAsk, WrongState
from holdfast.model import AskPerson, AskState
from holdfast.namespaces import shown, stored
from holdfast.questions import (
    PERSON,
    TEAM,
    Answerer,
    AskPlan,
    demands_teams,
    is_asked,
    is_person,
    is_team,
    is_who,
    moment,
    people_barred,
    refusal,
)
from holdfast.questions import (
    answers as given_answers,
)
from holdfast.store.asks import GivenAnswer, SeenAsk
from holdfast.store.bell import Bell
from holdfast.store.store import Store
from holdfast.supervisor.asks import PURPOSE, link_path
from holdfast.wire import answers
from holdfast.wire.paths import path_of

LIST_MAX = 200
ME = "me"
"""In a filter: whoever asks, with their teams."""
NOTE_MAX = 4000


class AskFilter(msgspec.Struct, frozen=True):
    who: str | None = None
    """A person or a team, or `me`. None: everybody."""
    run: str | None = None
    ended: bool = False
    """Those that have ended, newest first, instead of the open ones."""
    after: str = ""
    """The id of the last ask of the page before."""
    limit: int = LIST_MAX


class AskDesk(Protocol):
    """What people may ask about their questions. `ask` is an id."""

    async def list(self, who: Identity, where: AskFilter) -> list[answers.Ask]: ...
    async def get(self, who: Identity, ask: str) -> answers.Ask: ...
    async def answer(
        self, who: Identity, ask: str, value: bytes, note: str = "", *, by: str | None = None
    ) -> answers.AskAnswered: ...
    async def delegate(
        self, who: Identity, ask: str, to: str, note: str = "", *, by: str | None = None
    ) -> answers.Ask: ...


class LinkDesk(AskDesk, Protocol):
    """What somebody with a link may do. Only a server asks this."""

    async def by_link(self, token: str) -> answers.LinkedAsk: ...
    async def answer_link(self, token: str, value: bytes, note: str, request: str) -> answers.AskAnswered: ...


class LocalAskDesk:
    """An ask desk that works on the store."""

    def __init__(self, hf: Opened) -> None:
        self._hf = hf
        self._keys: dict[str, bytes] = {}

    @property
    def _store(self) -> Store:
        return self._hf.store

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _of_run(self, who: Identity, run: str) -> list[SeenAsk]:
        try:
            found = await self._store.asks.asks_of(codec.stored_text(stored(who.namespace, run), "run"))
        except InvalidInput:
            return []
        return [one for one in found if who.sees(one.row.namespace)]

    async def list(self, who: Identity, where: AskFilter) -> list[answers.Ask]:
        """Return open asks, oldest first, or those that have ended, newest first. Answerers get those that are for them."""
        who.demand(Act.SEE_ASKS)
        names, store, now = _names(who, where.who), self._store.asks, await self._store.now()
        if where.run is not None:
            found = await self._of_run(who, where.run)
            if where.ended:
                found = [one for one in found if one.row.state is not AskState.OPEN]
        elif where.ended:
            after = await self._ended_place(where.after)
            found = await store.ended_asks(who.namespace, after, where.limit, names)
        else:
            after = await self._place(where.after)
            read = store.open_asks if names is None else _inbox(store, names)
            found = await read(who.namespace, after, where.limit)
        if names is not None:
            found = [one for one in found if any(each.who in names for each in one.people)]
        return [_shown(who, one, now) for one in found]

    async def _place(self, after: str) -> tuple[float, str]:
        seen = await self._store.asks.ask(after) if after else None
        return (0.0, "") if seen is None else (seen.row.asked_at, seen.row.id)

    async def _ended_place(self, after: str) -> tuple[float, str]:
        seen = await self._store.asks.ask(after) if after else None
        return (1e11, "") if seen is None else (seen.row.ended_at or 1e11, seen.row.id)

    async def get(self, who: Identity, ask: str) -> answers.Ask:
        who.demand(Act.SEE_ASKS)
        return _shown(who, await self._seen(who, ask), await self._store.now())

    async def _seen(self, who: Identity, ask: str) -> SeenAsk:
        try:
            seen = await self._store.asks.ask(codec.stored_text(ask, "ask", 100))
        except InvalidInput:
            seen = None
        if seen is None or not who.sees(seen.row.namespace):
            raise UnknownAsk.of(ask)
        if who.role is Role.ANSWERER and not is_asked(seen.people, _answerer(who, None)):
            raise UnknownAsk.of(ask)
        return seen

    # --- answering ----------------------------------------------------------------------------------------------------

    async def answer(
        self, who: Identity, ask: str, value: bytes, note: str = "", *, by: str | None = None
    ) -> answers.AskAnswered:
        """Answer an ask. Giving the same answer again changes nothing."""
        who.demand(Act.ANSWER)
        seen = await self._seen(who, ask)
        return await self._answer(who, seen, value, note, _answerer(who, by))

    async def _answer(
        self, who: Identity, seen: SeenAsk, value: bytes, note: str, by: Answerer
    ) -> answers.AskAnswered:
        checked = self._checked(seen, value)
        given = GivenAnswer(by, checked, codec.stored_text(note, "note", NOTE_MAX), who.actor)
        taken = await self._store.asks.answer(seen.row.id, given)
        if taken.seen.row.state is not AskState.OPEN:
            ring(self._hf, Bell.OUTCOMES, Bell.RUNS)
        return answers.AskAnswered(_shown(who, taken.seen, await self._store.now()), taken.is_new)

    def _checked(self, seen: SeenAsk, value: bytes) -> bytes:
        """Check an answer by the form, and return it with the defaults of the form."""
        demand_sealed(value, "answer")
        read = codec.read_json(value, "answer")
        form = msgspec.json.decode(seen.row.form)
        check(read, form, "answer")
        made = msgspec.json.encode(filled(read, form))
        most = self._hf.config.payload_max_bytes
        if len(made) > most:
            raise InvalidInput(
                f"answer: {len(made):,} bytes are more than the {most:,} that an answer may have"
            )
        return made

    async def delegate(
        self, who: Identity, ask: str, to: str, note: str = "", *, by: str | None = None
    ) -> answers.Ask:
        """Hand one's own place over to another person or team."""
        who.demand(Act.ANSWER)
        if not is_who(to):
            raise InvalidInput(f"to: expected person:NAME or team:NAME, not {to!r:.100}")
        seen = await self._seen(who, ask)
        note = codec.stored_text(note, "note", NOTE_MAX)
        given = await self._store.asks.delegate(
            seen.row.id, _answerer(who, by), to, note=note, actor=who.actor
        )
        return _shown(who, given, await self._store.now())

    # --- links ----------------------------------------------------------------------------------------------------------

    async def link(self, who: Identity, ask: str, person: str, team: str | None = None) -> str:
        """Return the path of a page by which this person, as a member of this team, can answer without signing in. Whoever
        has it may answer."""
        if who.kind is not Kind.LOCAL:
            raise Forbidden("only a program on the store may make links by which others answer")
        if not is_person(person):
            raise InvalidInput(f"a link is for one person: expected person:NAME, not {person!r:.100}")
        if team is not None and not is_team(team):
            raise InvalidInput(f"team: expected team:NAME, not {team!r:.100}")
        seen = await self._seen(who, ask)
        if demands_teams(seen.row):
            raise WrongState(
                "this ask bars a team, and a link does not say who is in it: people need a token to answer"
            )
        if all(one.who != (team or person) for one in seen.people):
            by_name = "" if team else " by name: say by `team` for whom they answer"
            raise InvalidInput(f"{team or person} is not asked this{by_name}")
        return await link_path(self._store, seen.row, (person, team), self._hf.environment.secret(KEY_BYTES))

    async def by_link(self, token: str) -> answers.LinkedAsk:
        """Return the ask that a link is for. Raise UnknownAsk if it is no link, or has expired."""
        seen, who = await self._linked(token)
        return answers.LinkedAsk(_shown(who, seen, await self._store.now()), who.person or "")

    async def answer_link(self, token: str, value: bytes, note: str, request: str) -> answers.AskAnswered:
        """Answer for the person whom a link is for, in a request of this id."""
        seen, who = await self._linked(token)
        return await self._answer(who.came(Via.LINK, request), seen, value, note, _answerer(who, None))

    async def _linked(self, token: str) -> tuple[SeenAsk, Identity]:
        if not self._keys:
            self._keys = await self._store.signing_keys.signing_keys()
        parts = opened(self._keys, PURPOSE, token)
        if parts is None or not 4 <= len(parts) <= 5:
            raise UnknownAsk("this link is not good any more, or never was")
        ask, asked_at, person, until, *team = parts
        seen = await self._store.asks.ask(ask)
        is_its = seen is not None and f"{seen.row.asked_at:.6f}" == asked_at and not demands_teams(seen.row)
        if seen is None or not is_its or float(until) < await self._store.now():
            raise UnknownAsk("this link is not good any more, or never was")
        space = frozenset({seen.row.namespace})
        # The link says for whom it is, and of which of the teams that are asked they are a member. It says nothing else.
        who = (person, *team)
        return seen, Identity(Kind.TOKEN, "link", person, Role.ANSWERER, space, seen.row.namespace, who=who)


def _inbox(store: Any, names: frozenset[str]) -> Callable[..., Any]:
    async def read(namespace: str | None, after: tuple[float, str], limit: int) -> list[SeenAsk]:
        found: list[SeenAsk] = await store.inbox(sorted(names), namespace, after, limit)
        return found

    return read


def _names(who: Identity, wanted: str | None) -> frozenset[str] | None:
    """Return whose asks are wanted. None: everybody's. An answerer gets nobody else's."""
    own = _answerer(who, None).names
    if wanted == ME:
        return own
    if wanted is not None and not is_who(wanted):
        raise InvalidInput(f"who: expected me, person:NAME or team:NAME, not {wanted!r:.100}")
    if who.role is Role.ANSWERER:
        return own if wanted is None else own & {wanted}
    return None if wanted is None else frozenset({wanted})


def _answerer(who: Identity, by: str | None) -> Answerer:
    """Return who answers. A program on the store may answer for anybody, and whoever reaches the store is trusted."""
    teams = frozenset(one for one in who.who if one.startswith(TEAM))
    if by is not None:
        if not is_person(by):
            raise InvalidInput(f"by: expected person:NAME, not {by!r:.100}")
        if who.kind is not Kind.LOCAL and by != who.person:
            raise Forbidden("only a program on the store may answer for somebody else")
        return Answerer(by, teams if by == who.person else frozenset(), who.kind is Kind.LOCAL)
    person = who.person or f"{PERSON}{_plain(who.name)}"
    return Answerer(person, teams, who.role is Role.ADMIN)


def _plain(name: str) -> str:
    """Return a name as that of a person may be."""
    made = "".join(char if (char.isalnum() and char.isascii()) or char in "._@+-" else "-" for char in name)
    return made.lstrip("._@+-")[:100] or "unknown"


# --- what is shown ----------------------------------------------------------------------------------------------------


def _shown(who: Identity, seen: SeenAsk, now: float) -> answers.Ask:
    row, people = seen
    run = shown(who.namespace, row.run_id)
    plan = msgspec.json.decode(row.plan, type=AskPlan)
    refused = refusal(row, people, _answerer(who, None), now)
    may = who.may(Act.ANSWER) and refused is None
    return answers.Ask(
        id=row.id,
        ref=path_of(row.id),
        namespace=row.namespace,
        run=run,
        run_ref=path_of(run),
        n=row.n,
        workflow=shown(who.namespace, row.workflow),
        state=row.state,
        question=row.question,
        form=Raw(row.form.encode()),
        show=Raw(masked_json(row.show.encode()) if who.payloads else b"null"),
        of=row.quorum,
        answers=[_answer(who, one) for one in given_answers(people)],
        who=[_person(one) for one in people],
        not_by=people_barred(row),
        asked_at=moment(row.asked_at),
        expires_at=_maybe(row.expires_at),
        ended_at=_maybe(row.ended_at),
        remind_s=plan.remind_s,
        escalate=[
            answers.Escalation(moment(row.asked_at + after_s), added) for after_s, added in plan.escalate
        ],
        may_answer=may,
        why_not="" if may else _why_not(who, refused.why if refused is not None else ""),
    )


def _why_not(who: Identity, why: str) -> str:
    return why or f"the role {who.role} may not answer"


def _answer(who: Identity, one: AskPerson) -> answers.AskAnswer:
    value = one.value if who.payloads and one.value is not None else b"null"
    return answers.AskAnswer(
        one.who, moment(one.answered_at or 0.0), Raw(masked_json(value)), one.note, one.via
    )


def _person(one: AskPerson) -> answers.AskedPerson:
    return answers.AskedPerson(one.who, moment(one.since), one.through, one.handed_to)


def _maybe(at: float | None) -> datetime | None:
    return None if at is None else moment(at)


# --- Python -----------------------------------------------------------------------------------------------------------


class Asks:
    """`hf.asks`: questions to people."""

    def __init__(self, desk: Callable[[], AskDesk], who: Identity) -> None:
        self._opened, self._who = desk, who

    @property
    def _desk(self) -> AskDesk:
        return self._opened()

    async def list(
        self, who: str | None = None, *, run: str | None = None, ended: bool = False, limit: int = LIST_MAX
    ) -> Sequence[answers.Ask]:
        """Return open asks, oldest first: all of them, or those to a person or team, or of a run. With `ended`, those that
        have ended, newest first."""
        return await self._desk.list(self._who, AskFilter(who, run, ended, limit=limit))

    async def get(self, ask: str) -> answers.Ask:
        """Return an ask. Raise UnknownAsk if there is none with this id."""
        return await self._desk.get(self._who, ask)

    async def answer(
        self, ask: str, value: Any, note: str = "", *, by: str | None = None
    ) -> answers.AskAnswered:
        """Answer an ask, for the person `by`. If this person has given the same answer before, nothing changes. Raise
        WrongState if it comes too late, or if this person has answered something else before."""
        return await self._desk.answer(self._who, ask, codec.encode_open(value, "answer"), note, by=by)

    async def link(self, ask: str, person: str, *, team: str | None = None) -> str:
        """Return the path of a page on a server by which this person can answer without signing in. `team` is the one that
        is asked, if the person is not asked by name. Whoever has it may answer, so send it to nobody else."""
        desk = self._desk
        if not isinstance(desk, LocalAskDesk):
            raise HoldfastError("links are made by a program on the store, not through a server")
        return await desk.link(self._who, ask, person, team)

    async def delegate(self, ask: str, to: str, note: str = "", *, by: str | None = None) -> answers.Ask:
        """Hand the place of the person `by` over to another person or team."""
        return await self._desk.delegate(self._who, ask, to, note, by=by)
