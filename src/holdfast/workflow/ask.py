"""Questions to people. A workflow asks, and waits at no cost until enough of them have answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Generic, TypeVar, overload

import msgspec

from holdfast.codec import Payload, encode_open, stored_text
from holdfast.codec.schema import schema_of
from holdfast.config import DEFAULT
from holdfast.decider.loop import leaf, running
from holdfast.errors import DefinitionError, WorkflowError
from holdfast.questions import PEOPLE_MAX, STARTER, AskPlan, Question
from holdfast.workflow import options
from holdfast.workflow.options import Call, Seconds

T = TypeVar("T")

OF_MAX = 20
"""How many people may have to answer one question."""
QUESTION_MAX_CHARS = 2000


class Answered(msgspec.Struct, Generic[T], frozen=True):
    """One of several answers to a question."""

    by: str
    """The person, such as `person:anna`."""
    at: datetime
    value: T
    note: str = ""


@overload
def ask(
    who: str | Iterable[str],
    question: str,
    type: type[T],
    *,
    show: Any = None,
    of: None = None,
    timeout: Seconds | None = None,
    remind: Seconds | None = None,
    escalate: Iterable[tuple[Seconds, str]] = (),
    not_by: str | Iterable[str] = (),
    name: str = "ask",
) -> Call[T]: ...
@overload
def ask(
    who: str | Iterable[str],
    question: str,
    type: type[T],
    *,
    show: Any = None,
    of: int,
    timeout: Seconds | None = None,
    remind: Seconds | None = None,
    escalate: Iterable[tuple[Seconds, str]] = (),
    not_by: str | Iterable[str] = (),
    name: str = "ask",
) -> Call[Sequence[Answered[T]]]: ...
def ask(
    who: str | Iterable[str],
    question: str,
    type: type[T],
    *,
    show: Any = None,
    of: int | None = None,
    timeout: Seconds | None = None,
    remind: Seconds | None = None,
    escalate: Iterable[tuple[Seconds, str]] = (),
    not_by: str | Iterable[str] = (),
    name: str = "ask",
) -> Any:
    """Ask people, in a workflow: `await ask("team:finance", "Ship it?", Approval, show=order)`. Return the answer, or
    with `of` the answers of that many different people, each as `Answered`.

    `who` is `person:NAME` or `team:NAME`, or several. `type` makes the form, and each answer is checked by it. People see
    `show` with the question. Every `remind`, those who have not answered are notified again, and each `(after, who)` of
    `escalate` adds somebody. Nobody in `not_by` may answer; `"starter"` is the person who started the run. Raises
    TimeoutError if not enough people have answered within `timeout`.
    """
    plan = AskPlan(
        options.seconds(remind, "ask: remind"),
        tuple(_added(each) for each in escalate),
        options.seconds(timeout, "ask: timeout"),
        of is not None,
    )
    asked = Question(
        _people(who, "ask: who"),
        stored_text(question, "ask: question", QUESTION_MAX_CHARS),
        show=msgspec.json.decode(encode_open(show, "ask: show", DEFAULT.payload_max_bytes)),
        of=1 if of is None else _many(of),
        not_by=_barred(not_by),
        plan=plan,
    )
    call: Any = _ask(asked, type, options.label_of(options.text(name, "ask: name")))
    call.__qualname__ = options.label_of(name)
    return call


def _people(who: str | Iterable[str], what: str) -> tuple[str, ...]:
    found = (who,) if isinstance(who, str) else tuple(who)
    if not 1 <= len(found) <= PEOPLE_MAX:
        raise DefinitionError(f"{what}: name 1 to {PEOPLE_MAX} people or teams, not {len(found)}")
    return tuple(dict.fromkeys(options.who(one, what) for one in found))


def _barred(not_by: str | Iterable[str]) -> tuple[str, ...]:
    found = (not_by,) if isinstance(not_by, str) else tuple(not_by)
    return tuple(one if one == STARTER else options.who(one, "ask: not_by") for one in found)


def _added(each: tuple[Seconds, str]) -> tuple[float, str]:
    given: Any = each
    if not isinstance(given, tuple) or len(given) != 2:
        raise DefinitionError(
            f"ask: escalate: expected (timedelta(hours=4), 'person:cfo'), not {each!r:.100}"
        )
    after_s = options.seconds(given[0], "ask: escalate")
    return after_s or 0.0, options.who(given[1], "ask: escalate")


def _many(of: int) -> int:
    if type(of) is not int or not 1 <= of <= OF_MAX:
        raise DefinitionError(f"ask: of: expected 1 to {OF_MAX}, not {of!r}")
    return of


async def _ask(asked: Question, kind: Any, label: str) -> Any:
    loop = running()
    if loop is None:
        raise WorkflowError("ask() works in a workflow only: a step cannot wait for people")
    decider = loop.host
    if STARTER in asked.not_by:
        by = decider.started_by
        if by is None:
            raise WorkflowError(
                'ask(not_by="starter"): nobody has said who started this run: start it with using(by="person:NAME"), with '
                "`--by`, or through a server by a token that was made with --who"
            )
        not_by = tuple(by if one == STARTER else one for one in asked.not_by)
        asked = msgspec.structs.replace(asked, not_by=not_by)
    answer, answers, form = _read_as(kind)
    asked = msgspec.structs.replace(asked, form=form)
    wait = decider.ask(label, asked, answers if asked.plan.many else answer)
    try:
        return await wait.future
    except asyncio.CancelledError:
        decider.drop(wait)
        raise


@lru_cache(maxsize=256)
def _read_as(kind: Any) -> tuple[Payload, Payload, dict[str, Any]]:
    """Return how one answer and how several are read, and the form."""
    answer = Payload(kind, "an answer")
    several: Any = list[Answered[kind]]
    return answer, Payload(several, "the answers"), schema_of(answer.form.type)


leaf(_ask)
