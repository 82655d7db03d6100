"""Questions to people over HTTP: who sees and answers what."""

from __future__ import annotations

from holdfast.access import Role
from tests.http.conftest import Asked, bearer, made_ask, made_token


async def test_an_answerer_sees_and_answers_only_what_they_are_asked(quiet: Asked) -> None:
    """Whatever is for others is unknown. The inbox `me` has the person's own asks and those of their teams."""
    own = await made_ask(quiet.hf, "default", "r1", "ours", "team:finance")
    other = await made_ask(quiet.hf, "default", "r2", "theirs", "person:bob")
    token = await made_token(quiet.hf, Role.ANSWERER, who=["team:finance"])
    for query in ("", "?who=me", "?who=team:finance"):
        listed = (await quiet.get(f"/v1/asks{query}", headers=bearer(token))).json()["items"]
        assert [one["id"] for one in listed] == [own]
    assert (await quiet.get("/v1/asks?who=person:bob", headers=bearer(token))).json()["items"] == []
    assert (await quiet.get(f"/v1/asks/{other}", headers=bearer(token))).status_code == 404
    refused = await quiet.post(f"/v1/asks/{other}/answer", {"value": True}, headers=bearer(token))
    assert refused.status_code == 404
    shown = (await quiet.get(f"/v1/asks/{own}", headers=bearer(token))).json()
    assert (shown["may_answer"], shown["show"], shown["form"]) == (True, "ours", {"type": "boolean"})
    taken = (await quiet.post(f"/v1/asks/{own}/answer", {"value": True}, headers=bearer(token))).json()
    assert (taken["new"], taken["ask"]["state"]) == (True, "answered")
    assert taken["ask"]["answers"][0]["by"] == "person:answerer"
    again = (await quiet.post(f"/v1/asks/{own}/answer", {"value": True}, headers=bearer(token))).json()
    assert again["new"] is False
    other_mind = await quiet.post(f"/v1/asks/{own}/answer", {"value": False}, headers=bearer(token))
    assert (other_mind.status_code, other_mind.json()["type"]) == (409, "urn:holdfast:problem:wrong-state")


async def test_a_list_of_ended_asks_is_paged_and_has_ones_own(quiet: Asked) -> None:
    """The newest end first. Those of others take no room on the page of an answerer, and none is left out."""
    mine = [await made_ask(quiet.hf, "default", f"mine-{n}", "ours", "team:finance") for n in range(3)]
    others = [await made_ask(quiet.hf, "default", f"other-{n}", "theirs", "person:bob") for n in range(4)]
    for one in (*mine, *others):
        await quiet.post(f"/v1/asks/{one}/answer", {"value": True})
    still = await made_ask(quiet.hf, "default", "open", "ours", "team:finance")
    answerer = bearer(await made_token(quiet.hf, Role.ANSWERER, who=["team:finance"]))
    for headers, expected in (
        (answerer, mine),
        (bearer(await made_token(quiet.hf, Role.VIEWER)), mine + others),
    ):
        seen: list[str] = []
        while True:
            after = f"&after={seen[-1]}" if seen else ""
            page = (await quiet.get(f"/v1/asks?state=ended&limit=2{after}", headers=headers)).json()["items"]
            seen += [one["id"] for one in page]
            if not page or len(seen) > len(expected):
                break
        assert seen == expected[::-1]
    assert (await quiet.get("/v1/asks?state=ended&run=open")).json()["items"] == []
    (shown,) = (await quiet.get("/v1/asks?state=open&run=open")).json()["items"]
    assert shown["id"] == still


async def test_nobody_answers_for_somebody_else(quiet: Asked) -> None:
    """Neither an answerer nor an administrator says who they are: the token does."""
    ask = await made_ask(quiet.hf, "default", "r1", "ours", "person:bob", of=2)
    token = ""
    for role in (Role.ANSWERER, Role.ADMIN):
        token = await made_token(quiet.hf, role, who=["team:finance"])
        body = {"value": True, "by": "person:bob"}
        refused = await quiet.post(f"/v1/asks/{ask}/answer", body, headers=bearer(token))
        assert refused.status_code == (404 if role is Role.ANSWERER else 403)
    taken = await quiet.post(f"/v1/asks/{ask}/answer", {"value": True}, headers=bearer(token))
    person = taken.json()["ask"]["answers"][0]
    assert (person["by"], person["via"]) == ("person:admin", "http")


async def test_a_wrong_answer_names_the_place_and_changes_nothing(quiet: Asked) -> None:
    """The form says what an answer is."""
    ask = await made_ask(quiet.hf, "default", "r1", "ours", "team:finance")
    for value in (1, "yes", None, {"ok": True}, [True]):
        refused = await quiet.post(f"/v1/asks/{ask}/answer", {"value": value})
        assert (refused.status_code, "answer: expected `bool`" in refused.text) == (422, True)
    assert (await quiet.post(f"/v1/asks/{ask}/answer", {"value": True, "bye": 1})).status_code == 422
    assert (await quiet.get("/v1/asks?who=nobody")).status_code == 422
    assert (await quiet.get(f"/v1/asks/{ask}")).json()["answers"] == []


async def test_who_starts_a_run_is_whom_the_token_names(quiet: Asked) -> None:
    """A token that names no person says nothing about it, and nobody can say it in the body."""
    token = ""
    for who, expected in ((["team:finance"], "person:starter"), ([], None)):
        token = await made_token(quiet.hf, Role.STARTER, who=who)
        body = {"workflow": "shop.count", "input": {"a": 1}, "id": f"by-{expected}"}
        await quiet.post("/v1/runs", body, headers=bearer(token))
        row = await quiet.hf.store.reads.run(f"by-{expected}")
        assert row is not None
        assert (row.tags or "") == ("" if expected is None else f'{{"$by": "{expected}"}}')
    refused = await quiet.post(
        "/v1/runs",
        {"workflow": "shop.count", "input": {"a": 1}, "tags": {"$by": "person:x"}},
        headers=bearer(token),
    )
    assert refused.status_code == 422


async def test_without_payloads_nothing_is_shown(quiet: Asked) -> None:
    """A token that must not see payloads sees who is asked, and neither what is shown nor what was answered."""
    ask = await made_ask(quiet.hf, "default", "r1", "ours", "team:finance", of=2)
    answerer = await made_token(quiet.hf, Role.ANSWERER, who=["team:finance"])
    await quiet.post(f"/v1/asks/{ask}/answer", {"value": True}, headers=bearer(answerer))
    viewer = await made_token(quiet.hf, Role.VIEWER, payloads=False)
    shown = (await quiet.get(f"/v1/asks/{ask}", headers=bearer(viewer))).json()
    assert (shown["show"], shown["answers"][0]["value"], shown["may_answer"]) == (None, None, False)
