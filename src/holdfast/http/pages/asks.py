"""The pages of asks: what do people want of me?"""

from __future__ import annotations

import json
import shlex
from typing import Any

import msgspec

from holdfast.errors import HoldfastError
from holdfast.http.asks import AsksQuery
from holdfast.http.call import Call, Given
from holdfast.http.pages import forms, words
from holdfast.http.pages.deeds import Field
from holdfast.http.pages.page import Page
from holdfast.http.reader import read_body
from holdfast.http.refusals import Refusal, problem_of
from holdfast.wire import answers, requests

SOON_S = 3600.0


class AsksPageQuery(msgspec.Struct):
    ended: bool = False


async def asks(call: Call) -> Given:
    page = Page(call)
    return await _shown(page, None, ended=call.query.ended)


async def ask(call: Call) -> Given:
    page = Page(call)
    return await _shown(page, await page.ask("GET /v1/asks/{ask}"))


async def answer(call: Call) -> Given:
    """Record an answer, or show the form again with what is wrong about it."""
    page = Page(call)
    one: answers.Ask = await page.ask("GET /v1/asks/{ask}")
    given: dict[str, list[str]] = call.body
    try:
        value = forms.answer(words.value(one.form), given)
        body = {"value": value, "note": given.get("note", [""])[0]}
        read = read_body(json.dumps(body).encode(), requests.Answer, call.server.config)
        await page.ask("POST /v1/asks/{ask}/answer", body=read)
    except Refusal as refusal:
        found = refusal.problem()
    except HoldfastError as error:
        found = problem_of(error, hide=f"{page.who.namespace}//")
    else:
        return page.to(page.url(f"/asks/{one.ref}"))
    again: answers.Ask = await page.ask("GET /v1/asks/{ask}")  # somebody may have answered meanwhile
    wrong = found.detail or found.title
    return await _shown(page, again, wrong=wrong, place=found.place, status=found.status, given=given)


async def _shown(
    page: Page,
    one: answers.Ask | None,
    *,
    ended: bool = False,
    wrong: str = "",
    place: str = "",
    status: int = 200,
    given: dict[str, list[str]] | None = None,
) -> Given:
    asked = AsksQuery(state="ended" if ended else "open", limit=100)
    found: answers.Asks = await page.ask("GET /v1/asks", query=asked)
    page.now = (await page.ask("GET /v1/me")).now
    typed = given or {}
    fields: tuple[Field, ...] = ()
    show: Any = None
    if one is not None:
        fields = forms.answer_fields(words.value(one.form))
        fields = tuple(field._replace(value=typed.get(field.name, [field.value])[0]) for field in fields)
        fields, is_said = forms.refused(fields, place, wrong)
        wrong = "nothing was answered: see what is marked below" if is_said else wrong
        show = words.value(one.show)
    return await page.shown(
        "asks.html",
        "asks",
        "Asks" if one is None else one.question,
        topics="topic=asks" if page.may("GET /v1/stream") else "",
        status=status,
        mine=[each for each in found.items if each.may_answer],
        others=[each for each in found.items if not each.may_answer],
        one=one,
        fields=fields,
        is_choice=[field.kind for field in fields] == ["yes"],
        show=show,
        wrong=wrong,
        typed="",
        note=typed.get("note", [""])[0],
        ended=ended,
        soon_s=SOON_S,
        command="" if one is None else f"holdfast answer {shlex.quote(one.id)} --data JSON",
    )
