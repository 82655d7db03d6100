"""Signing in: a cookie that can be taken away, and forms that nobody else can send."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import NamedTuple

import httpx2
import pytest

from holdfast.access import Role
from holdfast.queues import LimitKey, QueueKey
from tests.http import flows
from tests.http.conftest import Asked, asking, bearer, made_callback, made_occasion, made_token

assert flows.count.name  # what these servers know
ORIGIN = {"Origin": "http://localhost"}


class Signed(NamedTuple):
    asked: Asked
    token: str
    cookie: str
    seal: str

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.asked.client.get(path, headers={"Cookie": self.cookie, **headers})

    async def post(self, path: str, fields: dict[str, str] | None = None, **headers: str) -> httpx2.Response:
        sent = {"Cookie": self.cookie, **ORIGIN, **headers}
        data = {"seal": self.seal} if fields is None else fields
        return await self.asked.client.post(path, data=data, headers=sent)


async def signed_in(asked: Asked, role: Role, *within: str) -> Signed:
    token = await made_token(asked.hf, role, *within)
    answer = await asked.client.post("/signin", data={"token": token, "next": "/runs"}, headers=ORIGIN)
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs")
    cookie = answer.headers["set-cookie"].partition(";")[0]
    asked.client.cookies.clear()
    visitor = await asked.server.visitors.visitor({"cookie": cookie})
    assert visitor is not None
    return Signed(asked, token, cookie, visitor.seal)


@pytest.fixture
async def operator(quiet: Asked) -> Signed:
    return await signed_in(quiet, Role.OPERATOR)


@pytest.fixture
async def open_server() -> AsyncIterator[Asked]:
    async with asking("sqlite://:memory:") as asked:
        yield asked


async def test_a_token_becomes_a_cookie_that_scripts_cannot_read(quiet: Asked) -> None:
    """HttpOnly, SameSite=Lax, 12 hours. Under TLS it is bound to this host. The token itself is in no answer."""
    token = await made_token(quiet.hf, Role.VIEWER)
    for origin, wanted in (("http://localhost", "holdfast="), ("https://localhost", "__Host-holdfast=")):
        answer = await quiet.client.post("/signin", data={"token": token}, headers={"Origin": origin})
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(wanted)
        assert {"HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=43200"} <= set(cookie.split("; "))
        assert ("; Secure" in cookie) == origin.startswith("https")
        assert token not in cookie
        assert token not in answer.text


async def test_who_has_not_signed_in_is_sent_to_where_they_can(quiet: Asked) -> None:
    """And back to where they wanted to go, if that is on this server."""
    await made_token(quiet.hf, Role.VIEWER)
    answer = await quiet.get("/runs?state=failed")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/signin?next=%2Fruns%3Fstate%3Dfailed"
    for elsewhere in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"):
        page = await quiet.get("/signin", params={"next": elsewhere})
        assert 'name="next" value="/"' in page.text


async def test_who_only_answers_begins_at_the_questions(quiet: Asked) -> None:
    """The overview would be refused to them. Where they wanted to go, they still go."""
    for role, wanted, place in (
        (Role.ANSWERER, "/", "/asks"),
        (Role.ANSWERER, "/asks/x", "/asks/x"),
        (Role.VIEWER, "/", "/"),
    ):
        token = await made_token(quiet.hf, role, who=["team:finance"])
        answer = await quiet.client.post("/signin", data={"token": token, "next": wanted}, headers=ORIGIN)
        assert (answer.status_code, answer.headers["location"]) == (303, place)


async def test_who_only_answers_hears_no_stream(quiet: Asked) -> None:
    """It is for those who may read. So the page of asks says nothing of it, and asks by itself."""
    answerer = await signed_in(quiet, Role.ANSWERER)
    assert (await answerer.get("/v1/stream?topic=asks")).status_code == 403
    text = (await answerer.get("/asks")).text
    assert "data-topics" not in text
    assert 'data-every="5"' in text
    assert 'data-topics="topic=asks"' in (await (await signed_in(quiet, Role.VIEWER)).get("/asks")).text


async def test_a_bad_token_is_refused_in_words(quiet: Asked) -> None:
    """The same words whatever is wrong with it."""
    good = await made_token(quiet.hf, Role.VIEWER)
    expired = await made_token(quiet.hf, Role.VIEWER, expires_s=-1.0)
    words = set()
    for bad in ("", "hello", good[:-7] + "AAAAAAA", expired, "hf_\x00"):
        answer = await quiet.client.post("/signin", data={"token": bad}, headers=ORIGIN)
        assert answer.status_code in {400, 401}
        assert "set-cookie" not in answer.headers
        if answer.status_code == 401:
            words.add(answer.text)
    assert len(words) == 1


async def _until_out(signed: Signed) -> None:
    async with asyncio.timeout(30):
        while (await signed.get("/runs")).status_code != 303:  # noqa: ASYNC110  the server gives no event
            await asyncio.sleep(0.05)


async def test_a_session_ends_with_its_token(operator: Signed) -> None:
    """Within a second after the token is revoked."""
    assert (await operator.get("/runs")).status_code == 200
    await operator.asked.hf.store.tokens.revoke_token(operator.token.split("_")[2], "test")
    await _until_out(operator)


async def test_another_secret_ends_the_sessions_of_the_old_one(operator: Signed) -> None:
    """After the grace time, as for the token itself."""
    tokens, name = operator.asked.hf.store.tokens, operator.token.split("_")[2]
    await tokens.rotate_token(name, b"new" * 10, grace_s=600.0, expires_s=None, actor="test")
    operator.asked.server.visitors.forget()
    assert (await operator.get("/runs")).status_code == 200
    await tokens.rotate_token(name, b"newer" * 6, grace_s=0.0, expires_s=None, actor="test")
    await _until_out(operator)


async def test_signing_out_ends_the_session_for_good(operator: Signed) -> None:
    """Whoever has copied the cookie has nothing."""
    answer = await operator.post("/signout")
    assert (answer.status_code, answer.headers["location"]) == (303, "/signin")
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert (await operator.get("/runs")).status_code == 303


async def test_a_form_of_somebody_else_changes_nothing(operator: Signed) -> None:
    """Without the seal, with another one, from another origin, or from none: refused, and the run goes on."""
    ref = await _started(operator)
    path = f"/do/v1/runs/{ref}/hold"
    seal = {"seal": operator.seal}
    for fields, headers in (
        ({"note": ""}, {}),
        ({"seal": "0" * 32}, {}),
        (seal, {"Origin": "https://evil.example"}),
        (seal, {"Origin": "null"}),
        (seal, {"Sec-Fetch-Site": "cross-site"}),
        (seal, {"Sec-Fetch-Site": "same-site"}),
    ):
        answer = await operator.post(path, fields, **headers)
        assert answer.status_code == 403, (fields, headers)
    bare = await operator.asked.client.post(path, data=seal, headers={"Cookie": operator.cookie})
    assert bare.status_code == 403
    row = await operator.asked.hf.store.reads.run(ref)
    assert row is not None
    assert row.state == "pending"
    assert (await operator.post(path)).status_code == 303
    row = await operator.asked.hf.store.reads.run(ref)
    assert row is not None
    assert row.state == "held"


@pytest.mark.parametrize("origin", ["http://[", "null", "localhost", "http://localhost@evil.example"])
async def test_an_origin_that_is_none_is_another_one(quiet: Asked, origin: str) -> None:
    """Whatever is written there, nobody gets in, and the server does not stumble."""
    token = await made_token(quiet.hf, Role.VIEWER)
    answer = await quiet.client.post("/signin", data={"token": token}, headers={"Origin": origin})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


async def test_json_in_a_form_may_be_nested_too_deeply(operator: Signed) -> None:
    """The form is refused, like anything else that is no JSON."""
    fields = {"seal": operator.seal, "workflow": "shop.count", "input": "[" * 100_000}
    assert (await operator.post("/do/v1/runs", fields)).status_code == 400


async def test_a_form_about_a_run_that_has_changed_does_nothing(operator: Signed) -> None:
    """It says what the run was, and what it is now. One that has begun meanwhile is no other one to who looks at it."""
    ref = await _started(operator)
    held, cancel = f"/do/v1/runs/{ref}/hold", f"/do/v1/runs/{ref}/cancel"
    assert 'name="seen" value="running"' in (await operator.get(cancel)).text
    seen = {"seal": operator.seal, "seen": "running"}
    assert (await operator.post(held, seen)).status_code == 303
    answer = await operator.post(cancel, seen)
    assert answer.status_code == 409
    assert "The run was running when you opened this form, and is held now; nothing was done." in answer.text
    row = await operator.asked.hf.store.reads.run(ref)
    assert row is not None
    assert row.state == "held"
    assert (await operator.post(cancel, seen | {"seen": "held"})).status_code == 303


async def _started(signed: Signed) -> str:
    answer = await signed.asked.client.post(
        "/v1/runs", json={"workflow": "shop.count", "input": {"a": 1}}, headers=bearer(signed.token)
    )
    return str(answer.json()["ref"])


async def test_nothing_changes_by_a_link(operator: Signed) -> None:
    """A deed that is asked for by GET shows a form."""
    ref = await _started(operator)
    page = await operator.get(f"/do/v1/runs/{ref}/cancel")
    assert page.status_code == 200
    assert operator.seal in page.text
    row = await operator.asked.hf.store.reads.run(ref)
    assert row is not None
    assert row.state == "pending"


async def test_a_cookie_opens_pages_and_the_stream_and_nothing_else(operator: Signed) -> None:
    """The API takes tokens only. The stream is opened by a page of this server alone."""
    assert (await operator.get("/v1/runs")).status_code == 401
    assert (await operator.get("/v1/me")).status_code == 401
    assert (await operator.get("/v1/stream")).status_code == 422  # it wants a topic: the cookie was enough
    refused = await operator.get("/v1/stream?topic=runs:", **{"Sec-Fetch-Site": "cross-site"})
    assert refused.status_code == 403
    foreign = await operator.get("/v1/stream?topic=runs:", Origin="https://evil.example")
    assert foreign.status_code == 403


async def test_roles_decide_what_is_shown_and_what_is_accepted(quiet: Asked) -> None:
    """A viewer sees no button that acts, and what they send all the same is refused."""
    operator = await signed_in(quiet, Role.OPERATOR)
    viewer = await signed_in(quiet, Role.VIEWER)
    ref = await _started(operator)
    assert "Cancel…" in (await operator.get(f"/runs/{ref}")).text
    seen = (await viewer.get(f"/runs/{ref}")).text
    assert "Cancel…" not in seen
    assert "/do/" not in seen
    assert (await viewer.post(f"/do/v1/runs/{ref}/cancel")).status_code == 403
    refused = await viewer.get("/tokens")
    assert refused.status_code == 403
    assert "needs one of admin" in refused.text


async def test_a_viewer_changes_no_limit_and_ends_no_occasion_or_callback(quiet: Asked) -> None:
    """No button, and a form that is sent all the same is refused; so is an operator's without its seal. Views are their own."""
    operator, viewer = await signed_in(quiet, Role.OPERATOR), await signed_in(quiet, Role.VIEWER)
    await quiet.hf.store.queues.number_queues([QueueKey("", (LimitKey("bank", 5),))])
    occasion = await made_occasion(quiet.hf, "default", "d1")
    await made_callback(quiet.hf, "default", "pays")
    acts = {
        "/do/v1/limits/bank": {"most": "1"},
        "/do/v1/fair": {"key": "acme", "weight": "2"},
        f"/do/v1/occasions/{occasion}/start": {"note": "now"},
        f"/do/v1/occasions/{occasion}/drop": {"note": "no"},
        "/do/v1/runs/pays/callback": {"output": "7", "step": "pay-1", "note": "they phoned"},
    }
    for path, fields in acts.items():
        assert (await viewer.get(path)).status_code == 403, path
        assert (await viewer.post(path, {"seal": viewer.seal, **fields})).status_code == 403, path
        assert (await operator.post(path, fields)).status_code == 403, path
        assert (await operator.post(path, {"seal": viewer.seal, **fields})).status_code == 403, path
    for path in ("/callbacks", "/limits", "/limits/bank", "/triggers", f"/occasions/{occasion}", "/events"):
        assert "/do/" in (await operator.get(path)).text or path == "/events"
        assert "/do/" not in (await viewer.get(path)).text
    assert (await quiet.hf.store.occasions.occasions("default"))[0].row.state == "open"
    view = {"name": "mine", "query": "state=failed"}
    assert (await viewer.post("/views", view)).status_code == 403
    assert (await viewer.post("/views", view, Origin="https://evil.example")).status_code == 403
    made = await viewer.post("/views", {"seal": viewer.seal, **view})
    assert (made.status_code, made.headers["location"]) == (303, "/runs?state=failed")
    assert 'title="mine"' in (await viewer.get("/runs")).text
    assert 'title="mine"' not in (await operator.get("/runs")).text
    assert (await viewer.post("/views/mine/remove", {"query": ""})).status_code == 403
    gone = await viewer.post("/views/mine/remove", {"seal": viewer.seal, "query": "//evil.example"})
    assert gone.headers["location"] == "/runs"
    assert 'title="mine"' not in (await viewer.get("/runs")).text
    for path, fields in acts.items():
        answer = await operator.post(path, {"seal": operator.seal, **fields})
        assert answer.status_code == (409 if path.endswith("/drop") else 303), path


async def test_a_page_is_of_the_namespace_in_its_address(wide: Asked) -> None:
    """Without one, of `default` or the first of theirs. Another's is refused like one that does not exist."""
    both = await signed_in(wide, Role.OPERATOR, "acme", "zoo")
    assert "<small>acme</small>" in (await both.get("/runs")).text
    zoo = await both.get("/runs?namespace=zoo")
    assert "<small>zoo</small>" in zoo.text
    assert "/alerts?namespace=zoo" in zoo.text
    assert (await both.get("/runs?namespace=other")).status_code == 403
    assert (await both.get("/runs?namespace=%2F%2F")).status_code == 403


async def test_who_has_several_namespaces_finds_the_way_to_each(wide: Asked) -> None:
    """From every page, by links; whoever may see all names one. Whoever has one namespace sees nothing of it."""
    both = await signed_in(wide, Role.VIEWER, "acme", "zoo")
    assert 'href="/more?namespace=acme#namespaces"' in (await both.get("/runs")).text
    more = (await both.get("/more?namespace=zoo")).text
    assert 'href="/?namespace=acme"' in more
    assert 'href="/?namespace=zoo" aria-current="page"' in more
    assert 'name="namespace"' not in more
    one = await signed_in(wide, Role.VIEWER, "acme")
    assert "#namespaces" not in (await one.get("/runs")).text
    assert "Another namespace" not in (await one.get("/more")).text
    every = await signed_in(wide, Role.ADMIN, "*")
    assert '<input name="namespace" required' in (await every.get("/more")).text
    assert "<small>zoo</small>" in (await every.get("/?namespace=zoo")).text


async def test_who_is_refused_reads_it_on_a_page_of_theirs(wide: Asked) -> None:
    """With the pages that they may see, their namespace and the way to sign out."""
    viewer = await signed_in(wide, Role.VIEWER, "acme", "zoo")
    for path in ("/do/v1/holds?namespace=zoo", "/runs?namespace=zoo&state=odd"):
        answer = await viewer.get(path)
        assert answer.status_code in {403, 422}
        assert 'action="/signout"' in answer.text
        assert "<small>zoo</small>" in answer.text
        assert 'href="/runs?namespace=zoo"' in answer.text
        assert "/tokens" not in answer.text


@pytest.mark.parametrize("path", ["/runs", "/events", "/callbacks", "/audit"])
async def test_a_filter_stays_in_its_namespace(wide: Asked, path: str) -> None:
    """The form of a page goes to the same page of the same namespace: another one has other runs."""
    admin = await signed_in(wide, Role.ADMIN, "acme", "zoo")
    text = (await admin.get(f"{path}?namespace=zoo")).text
    forms = re.findall(rf'<form[^>]*action="{path}"[^>]*>.*?</form>', text, re.DOTALL)
    assert forms
    assert all('name="namespace" value="zoo"' in one for one in forms if 'method="get"' in one)


async def test_a_workflow_is_chosen_in_its_namespace(store_url: str) -> None:
    async with asking(store_url, roles=("scheduler", "server"), namespace="acme") as asked:
        admin = await signed_in(asked, Role.ADMIN, "acme", "zoo")
        text = (await admin.get("/start?namespace=acme&workflow=shop.count")).text
        assert 'name="namespace" value="acme"' in text
        assert 'action="/start?namespace=acme"' in text


async def test_while_no_token_exists_this_host_alone_is_answered(open_server: Asked) -> None:
    """A page of another site can open no page by a script, and send no form. A link to a page works."""
    get = open_server.client.get
    assert (await get("/runs")).status_code == 200
    assert (await get("/runs", headers={"Host": "evil.example"})).status_code == 403
    assert (
        await get("/runs", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"})
    ).status_code == 403
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert (await get("/runs", headers=link)).status_code == 200
    posted = await open_server.client.post("/do/v1/holds", data={"scope": "all"}, headers=ORIGIN)
    assert posted.status_code == 403
