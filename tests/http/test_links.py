"""Links to asks: a page without script, by which one person answers one question once."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast.access.signed_texts import signed
from holdfast.errors import InvalidInput, WrongState
from holdfast.http.ask_page import NOTE, WHOLE, value_of
from holdfast.model import Alert, AlertKind, AskState
from holdfast.questions import notice_key
from holdfast.supervisor.asks import Letters
from tests.http.conftest import Asked, made_ask, made_token

EVIL = '<script>alert("x")</script>'


async def linked(
    asked: Asked, *who: str, of: int = 1, person: str = "person:anna", question: str = "Ship?"
) -> str:
    ask = await made_ask(asked.hf, "default", f"r-{of}-{person[7:]}", question, *(who or (person,)), of=of)
    return await asked.hf.asks.link(ask, person, team=next(iter(who), None))


async def open_asks(asked: Asked) -> list[Any]:
    return await asked.hf.store.asks.open_asks(None)


async def test_looking_changes_nothing_and_answering_is_once(quiet: Asked) -> None:
    """Scanners of mails follow links: GET and HEAD only show. A token is not needed, and none is given."""
    await made_token(quiet.hf, "admin")  # from now on nobody gets in without a token
    link = await linked(quiet)
    before = await open_asks(quiet)
    page = await quiet.get(link)
    for _ in range(3):
        page = await quiet.get(link)
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "Ship?" in page.text
        assert "<script" not in page.text
        await quiet.client.head(link)
    assert await open_asks(quiet) == before
    assert "set-cookie" not in page.headers
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert page.headers["referrer-policy"] == "no-referrer"
    done = await quiet.client.post(link, data={WHOLE: "true", NOTE: "fine"})
    assert done.status_code == 200
    assert await open_asks(quiet) == []
    (ended,) = await quiet.hf.store.asks.ended_asks(None)
    (person,) = ended.people
    assert (person.who, person.value, person.note, person.via) == ("person:anna", b"true", "fine", "link")
    assert (await quiet.client.post(link, data={WHOLE: "true", NOTE: "fine"})).status_code == 200
    other = await quiet.client.post(link, data={WHOLE: "false"})
    assert (other.status_code, "has answered this already" in other.text) == (409, True)


async def test_what_is_shown_is_text(quiet: Asked) -> None:
    """Nothing that a workflow asks or shows becomes HTML."""
    link = await linked(quiet, question="<b>&amp;'\\u003c/style>")
    page = (await quiet.get(link)).text
    assert "<b>&" not in page
    assert "&lt;b&gt;" in page


async def test_a_wrong_answer_is_said_on_the_page_and_changes_nothing(quiet: Asked) -> None:
    """With what was written still in the form."""
    link = await linked(quiet)
    for body in ({WHOLE: "maybe"}, {WHOLE: EVIL}, {}, {"else": "1"}, {WHOLE: "[" * 100_000}):
        page = await quiet.client.post(link, data=body)
        assert page.status_code == 422
        assert EVIL not in page.text
    for content, media in ((b"{}", "application/json"), (b"\xff=1", None), (b"a=1&a=2", None)):
        headers = {"Content-Type": media or "application/x-www-form-urlencoded"}
        assert (await quiet.client.post(link, content=content, headers=headers)).status_code == 422
    assert len(await open_asks(quiet)) == 1


async def test_a_link_is_for_one_person_who_may_answer(quiet: Asked) -> None:
    """A member of the team counts as themselves. Two links of two people are two answers."""
    first = await linked(quiet, "team:finance", of=2)
    ((ask, _),) = await open_asks(quiet)
    second = await quiet.hf.asks.link(ask.id, "person:bob", team="team:finance")
    for link in (first, first, second):
        assert (await quiet.client.post(link, data={WHOLE: "true"})).status_code == 200
    (ended,) = await quiet.hf.store.asks.ended_asks(None)
    assert ended.row.state is AskState.ANSWERED
    assert sorted(one.who for one in ended.people if one.answered_at) == ["person:anna", "person:bob"]
    late = await quiet.hf.asks.link(ask.id, "person:cy", team="team:finance")
    page = await quiet.get(late)
    assert (page.status_code, "came first" in page.text, "<form" in page.text) == (200, True, False)
    assert (await quiet.client.post(late, data={WHOLE: "true"})).status_code == 409


async def test_a_link_answers_in_the_place_that_it_names_and_in_no_other(quiet: Asked) -> None:
    """Its holder is not a member of whatever other team is asked, now or later. The ask and the journal say for which team
    they have answered."""
    teams = ("team:finance", "team:legal")
    ask = await made_ask(quiet.hf, "default", "both", "Ship?", "person:anna", *teams, of=2)
    legal = await quiet.hf.asks.link(ask, "person:bob", team="team:legal")
    assert (await quiet.client.post(legal, data={WHOLE: "true"})).status_code == 200
    seen = await quiet.hf.store.asks.ask(ask)
    assert seen is not None
    assert {one.who: one.through for one in seen.people if one.answered_at} == {"person:bob": "team:legal"}
    notes = [one.note for one in await quiet.hf.store.reads.journal("both") if one.verb == "answer"]
    assert notes == [f"ask {ask}: person:bob answered for team:legal, 1 of 2"]
    keys = await quiet.hf.store.signing_keys.signing_keys()
    for place in ((), ("team:other",)):
        parts = (ask, f"{seen.row.asked_at:.6f}", "person:cy", "9999999999", *place)
        link = f"/a/{signed(keys, 'ask', parts)}"
        page = await quiet.get(link)
        assert (page.status_code, "<form" in page.text) == (200, False)
        refused = await quiet.client.post(link, data={WHOLE: "true"})
        assert (refused.status_code, "person:cy is not asked this" in refused.text) == (403, True)


async def test_a_link_is_made_for_somebody_who_is_asked(quiet: Asked) -> None:
    """By name, or as a member of a team that is asked."""
    ask = await made_ask(quiet.hf, "default", "r", "Ship?", "person:anna", "team:finance")
    assert await quiet.hf.asks.link(ask, "person:anna")
    for person, team, said in (
        ("person:bob", None, "person:bob is not asked this by name: say by `team` for whom they answer"),
        ("person:bob", "team:legal", "team:legal is not asked this"),
        ("person:anna", "team:legal", "team:legal is not asked this"),
        ("person:bob", "person:anna", "team: expected team:NAME, not 'person:anna'"),
        ("person:bob", "finance", "team: expected team:NAME, not 'finance'"),
        ("team:finance", None, "a link is for one person: expected person:NAME, not 'team:finance'"),
    ):
        with pytest.raises(InvalidInput) as refused:
            await quiet.hf.asks.link(ask, person, team=team)
        assert str(refused.value).startswith(said)


async def test_an_ask_that_bars_a_team_has_no_links(quiet: Asked) -> None:
    """A link does not say in which teams its holder is, so it could be somebody of the team that is barred."""
    ask = await made_ask(quiet.hf, "default", "r", "Ship?", "person:anna", not_by=["team:ops"])
    with pytest.raises(WrongState, match="bars a team"):
        await quiet.hf.asks.link(ask, "person:anna")
    seen = await quiet.hf.store.asks.ask(ask)
    assert seen is not None
    keys = await quiet.hf.store.signing_keys.certain_keys(b"k" * 32)
    link = signed(keys, "ask", (ask, f"{seen.row.asked_at:.6f}", "person:anna", "9999999999"))
    assert (await quiet.client.post(f"/a/{link}", data={WHOLE: "true"})).status_code == 404
    key = notice_key("person:anna", ask, 0.0)
    notice = Alert(1, 0.0, AlertKind.ASK, None, "", None, "info", key, 1, 0.0, None)
    letter = await Letters(quiet.hf.store, quiet.hf.environment).of(notice, "https://holdfast.example")
    assert letter is not None
    assert "/a/" not in letter
    assert f"holdfast answer {ask}" in letter


async def test_forged_and_old_links_are_all_the_same_404(quiet: Asked) -> None:
    """Whether they are changed, made up, expired, or those of an ask that is gone."""
    link = await linked(quiet)
    dice, tried = random.Random(7), 0
    unknown = (await quiet.get("/a/nothing")).text
    while tried < 300:
        at = dice.randrange(3, len(link))
        forged = link[:at] + dice.choice("abcXYZ019_-.") + link[at + dice.randint(0, 1) :]
        if forged == link:
            continue
        tried += 1
        page = await quiet.client.post(forged, data={WHOLE: "true"})
        assert (page.status_code, page.text) == (404, unknown), forged
    assert len(await open_asks(quiet)) == 1
    assert (await quiet.get(link)).status_code == 200
    keys = await quiet.hf.store.signing_keys.signing_keys()
    ((ask, _),) = await open_asks(quiet)
    asked_at = f"{ask.asked_at:.6f}"
    for parts in (
        (ask.id, asked_at, "person:anna", "1000"),  # it has expired
        (ask.id, "1000.000000", "person:anna", "9999999999"),  # an earlier ask had the id
        ("gone", asked_at, "person:anna", "9999999999"),
        (ask.id, asked_at, "person:anna"),
    ):
        old = await quiet.get(f"/a/{signed(keys, 'ask', parts)}")
        assert (old.status_code, old.text) == (404, unknown), parts
    other = signed(keys, "callback", (ask.id, asked_at, "person:anna", "9999999999"))
    assert (await quiet.get(f"/a/{other}")).status_code == 404


FORM = {
    "$ref": "#/$defs/Approval",
    "$defs": {
        "Approval": {
            "type": "object",
            "properties": {
                "ok": {"type": "boolean"},
                "cap": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
                "why": {"type": "string"},
                "kind": {"enum": ["a", "b"]},
                "more": {"type": "array"},
            },
            "required": ["ok", "why"],
        }
    },
}


@pytest.mark.parametrize(
    ("posted", "value"),
    [
        ({"ok": "true", "why": "x", "cap": "2.5"}, {"ok": True, "why": "x", "cap": 2.5}),
        ({"ok": "false", "why": "12", "cap": ""}, {"ok": False, "why": "12"}),
        ({"why": "", "kind": '"a"', "more": "[1]"}, {"why": "", "kind": "a", "more": [1]}),
        ({"ok": "yes", "more": "{"}, {"ok": "yes", "why": "", "more": "{"}),
        ({"admin": "true"}, {"why": ""}),
    ],
)
def test_fields_become_the_value_that_the_form_describes(posted: dict[str, str], value: Any) -> None:
    """What fits no field stays a text, so that the check by the form says what is wrong. Other fields are left out."""
    assert value_of(FORM, posted) == value
