"""Questions to people: who may answer, when enough have, and what happens while nobody does. Pure functions.

A person is `person:anna`, and a team is `team:finance`. Who is in which team is said by tokens: there is no table of users.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from holdfast.model import AskPerson, AskRow, AskState

PERSON, TEAM = "person:", "team:"
STARTER = "starter"
"""In `not_by`: the person who started the run."""
HOPS_MAX = 5
"""How often a place may be handed over."""
PEOPLE_MAX = 100
"""How many people and teams one question may name."""
_NAME = re.compile(r"(?:person|team):[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}")


def is_who(text: object) -> bool:
    """True if this names a person or a team."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def is_person(text: object) -> bool:
    return is_who(text) and str(text).startswith(PERSON)


def is_team(text: object) -> bool:
    return is_who(text) and str(text).startswith(TEAM)


class AskPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happens while a question is open, in seconds after it was asked."""

    remind_s: float | None = None
    escalate: tuple[tuple[float, str], ...] = ()
    timeout_s: float | None = None
    many: bool = False
    """The code wants the answers with those who gave them."""


class Question(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question as workflow code asks it. This is the input of its step."""

    who: tuple[str, ...]
    question: str
    form: dict[str, Any] = {}
    """JSON Schema of an answer."""
    show: Any = None
    of: int = 1
    not_by: tuple[str, ...] = ()
    plan: AskPlan = AskPlan()


_plans = msgspec.json.Decoder(AskPlan)
_names = msgspec.json.Decoder(list[str])


class DueNow(NamedTuple):
    """What is to be done about an open question now."""

    is_new: bool
    """Nobody was notified yet."""
    remind: bool
    escalate: list[str]
    expire: bool
    next_at: float | None


def due(row: AskRow, now: float) -> DueNow:
    """Return what has come due since `reached_at`. Several reminders that were missed are one."""
    plan = _plans.decode(row.plan)
    if row.expires_at is not None and row.expires_at <= now:
        return DueNow(False, False, [], True, None)
    reached = row.reached_at
    since = row.asked_at if reached is None else reached
    added = [who for after_s, who in plan.escalate if since < row.asked_at + after_s <= now]
    reminds = False
    ahead = [row.asked_at + after_s for after_s, _ in plan.escalate if row.asked_at + after_s > now]
    if plan.remind_s is not None:
        rounds = math.floor((now - row.asked_at) / plan.remind_s)
        reminds = rounds >= 1 and row.asked_at + rounds * plan.remind_s > since
        ahead.append(row.asked_at + (rounds + 1) * plan.remind_s)
    if row.expires_at is not None:
        ahead.append(row.expires_at)
    return DueNow(reached is None, reminds, added, False, min(ahead, default=None))


LATE_S = 3_600.0
"""How long before it expires a question is late."""


def is_late(row: AskRow, now: float) -> bool:
    """True if an open question expires soon, or has been handed on because nobody answered it in time."""
    if row.expires_at is not None and row.expires_at - now <= LATE_S:
        return True
    return any(row.asked_at + after_s <= now for after_s, _ in _plans.decode(row.plan).escalate)


class Answerer(NamedTuple):
    """Who wants to answer."""

    person: str
    teams: frozenset[str] = frozenset()
    anyone: bool = False
    """It may answer what others are asked: an administrator, or a program on the store."""

    @property
    def names(self) -> frozenset[str]:
        return self.teams | {self.person}


class RefusedAnswer(NamedTuple):
    """Why somebody cannot answer or hand over."""

    kind: str
    """`answered` (by this person), `ended`, `barred`, `handed`, or `stranger`."""
    why: str


def people_barred(row: AskRow) -> list[str]:
    return _names.decode(row.not_by)


def demands_teams(row: AskRow) -> bool:
    """True if somebody may be barred because of a team they are in. Only a token says who is in which team, and a link does
    not."""
    return any(one.startswith(TEAM) for one in people_barred(row))


def refusal(row: AskRow, people: Sequence[AskPerson], by: Answerer, now: float) -> RefusedAnswer | None:
    """Return why this person cannot answer. None if they can."""
    own = next((one for one in people if one.who == by.person), None)
    if own is not None and own.answered_at is not None:
        return RefusedAnswer("answered", f"{by.person} has answered this already")
    if row.state is not AskState.OPEN:
        return RefusedAnswer("ended", ended_words(row, people))
    if row.expires_at is not None and row.expires_at <= now:
        return RefusedAnswer("ended", "this question has expired: it is too late to answer")
    if by.names & set(people_barred(row)):
        return RefusedAnswer("barred", f"{by.person} must not answer this: somebody else has to")
    if own is not None and own.handed_to is not None:
        return RefusedAnswer("handed", f"{by.person} has handed this over to {own.handed_to}")
    if not by.anyone and not is_asked(people, by):
        return RefusedAnswer("stranger", f"{by.person} is not asked this")
    return None


def is_asked(people: Sequence[AskPerson], by: Answerer) -> bool:
    """True if the person, or a team of theirs, is or was asked."""
    return any(one.who in by.names for one in people)


def ended_words(row: AskRow, people: Sequence[AskPerson]) -> str:
    """Say how a question ended, for somebody who comes too late."""
    if row.state is AskState.ANSWERED:
        who = ", ".join(one.who for one in answers(people))
        return f"this question is answered: {who} came first"
    if row.state is AskState.EXPIRED:
        return "this question has expired: it is too late to answer"
    return "this question was withdrawn: the run no longer waits for it"


def answers(people: Sequence[AskPerson]) -> list[AskPerson]:
    """Return those who have answered, in the order of their answers."""
    found = [one for one in people if one.answered_at is not None]
    return sorted(found, key=lambda one: (one.answered_at or 0.0, one.who))


def through(people: Sequence[AskPerson], by: Answerer) -> tuple[str, int]:
    """Return how a person without a row of their own comes to be asked, and how often that place was handed over."""
    for one in people:
        if one.who in by.teams:
            return one.who, one.hops
    return "nobody: answered for others", 0


def to_notify(people: Sequence[AskPerson]) -> list[str]:
    """Return the people and teams that are asked and have not answered. A team is notified as a whole."""
    return [one.who for one in people if one.answered_at is None and one.handed_to is None]


def notice_key(who: str, ask: str, now: float) -> str:
    """Return the key of the alert that notifies somebody. Each reminder has a key of its own."""
    return f"{who} ask {ask} {now:.0f}"


def asked_by(key: str) -> str:
    """Return the id of the ask of which the alert with this key notifies."""
    return [*key.split(" "), "", ""][2]


def notified(key: str) -> str:
    """Return who is notified by the alert with this key."""
    return key.partition(" ")[0]


def moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def output(row: AskRow, given: Sequence[AskPerson]) -> bytes:
    """Return the result of the step: the answer, or the answers with those who gave them."""
    if not _plans.decode(row.plan).many:
        return given[0].value or b"null"
    listed = [
        {
            "by": one.who,
            "at": moment(one.answered_at or 0.0),
            "value": msgspec.Raw(one.value or b"null"),
            "note": one.note,
        }
        for one in given
    ]
    return msgspec.json.encode(listed)
