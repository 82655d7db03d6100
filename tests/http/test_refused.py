"""Refused requests are in the audit: who asked for what, and how often. Nobody fills the store by being refused."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from holdfast import Holdfast
from holdfast.access import Identity, Kind, Role
from holdfast.access.tokens import CHECK_CHARS, TokenText
from holdfast.errors import StoreError
from holdfast.http.listener import Address, serving
from holdfast.http.refused import ACTORS_MAX, NAMED_MAX, WAIT_MAX_S, WAIT_S, RefusedRequests
from holdfast.model import JournalEntry
from holdfast.store.reads import JournalFilter
from holdfast.store.sqlite.database import SqliteDatabase
from tests.http.conftest import FAST, Asked, asking, bearer, made_token
from tests.http.issuers import Clock

DAY_S = 86_400.0
ATTACK = 10_000


async def refused(hf: Holdfast, namespace: str | None = None) -> list[JournalEntry]:
    return await hf.store.reads.journal_found(JournalFilter(verb="refuse"), 10_000, namespace)


async def written(asked: Asked) -> list[JournalEntry]:
    await asked.server.refused.write(everything=True)
    return await refused(asked.hf)


def somebody(number: int = 0, *namespaces: str) -> Identity:
    return Identity(
        Kind.TOKEN, f"{number:08}-of-a-token", "ci", Role.VIEWER, frozenset(namespaces or {"default"})
    )


async def test_a_refusal_says_who_asked_for_what(quiet: Asked) -> None:
    """The token, the route, the way and the request. The path as it came is in no row: it is the text of a stranger."""
    viewer = await made_token(quiet.hf, "viewer")
    answer = await quiet.post("/v1/runs/secret-run/cancel", headers=bearer(viewer))
    assert answer.status_code == 403
    (entry,) = await written(quiet)
    assert entry.actor == f"viewer ({viewer.split('_')[2][:8]})"
    assert (entry.verb, entry.via, entry.request) == ("refuse", "http", answer.headers["Holdfast-Request"])
    assert entry.note.startswith("1 request since ")
    assert entry.note.endswith("Z: forbidden POST /v1/runs/{run}/cancel")
    assert await refused(quiet.hf, "default") == [entry]


async def test_what_is_allowed_or_wrong_is_no_refusal(quiet: Asked) -> None:
    """Nor is what does not exist, or a good token that asks too often."""
    admin = bearer(await made_token(quiet.hf, "admin"))
    assert (await quiet.get("/v1/runs", headers=admin)).status_code == 200
    assert (await quiet.get("/v1/runs/none", headers=admin)).status_code == 404
    assert (await quiet.post("/v1/runs", {"wrong": 1}, headers=admin)).status_code == 422
    quiet.server.refused.note(somebody(), 429, "GET /v1/runs", "http", "r")
    assert await written(quiet) == []


async def test_a_token_that_is_good_no_more_is_named(quiet: Asked) -> None:
    """Its secret shows whose it was. Who knows the id of a token alone is nobody."""
    token = await made_token(quiet.hf, "operator")
    await quiet.hf.store.tokens.revoke_token(token.split("_")[2], "test")
    expired = await made_token(quiet.hf, "viewer", expires_s=-1.0)
    other = await made_token(quiet.hf, "admin")
    for text in (token, expired, "hf_nonsense", _with_id_of(token, other)):
        assert (await quiet.get("/v1/runs", headers=bearer(text))).status_code == 401
    assert (await quiet.get("/v1/runs")).status_code == 401
    found = {entry.actor: entry.note for entry in await written(quiet)}
    ids = [text.split("_")[2][:8] for text in (token, expired)]
    assert found.keys() == {f"operator ({ids[0]})", f"viewer ({ids[1]})", "nobody"}
    assert all("unauthenticated GET /v1/runs" in note for note in found.values())
    assert found["nobody"].startswith("3 requests since ")


def _with_id_of(token: str, other: str) -> str:
    """Return a token with the id of the first and the secret of the other."""
    return TokenText(Role.OPERATOR, token.split("_")[2], other.split("_")[3][:-CHECK_CHARS]).text


async def test_refusals_on_pages_are_counted(wide: Asked) -> None:
    """A page that the role may not open, a form that comes from elsewhere, and a sign-in with a bad token."""
    viewer = bearer(await made_token(wide.hf, "viewer"))
    page = await wide.get("/audit", headers=viewer)
    assert page.status_code == 403
    elsewhere = {"Origin": "http://elsewhere.example"}
    assert (await wide.client.post("/views", data={}, headers={**viewer, **elsewhere})).status_code == 403
    form, origin = {"token": "hf_nonsense"}, {"Origin": "http://localhost"}
    assert (await wide.client.post("/signin", data=form, headers=origin)).status_code == 401
    found = {entry.actor.partition(" ")[0]: entry for entry in await written(wide)}
    assert found.keys() == {"viewer", "nobody"}
    assert (found["viewer"].via, found["viewer"].request) == ("page", page.headers["Holdfast-Request"])
    assert "forbidden GET /audit" in found["viewer"].note
    assert found["viewer"].note.startswith("2 requests since ")
    assert found["nobody"].via == "page"
    assert "unauthenticated POST /signin" in found["nobody"].note


async def test_refusals_are_shown_to_who_may_see_them(wide: Asked) -> None:
    """By the route and on the page, to an admin of the namespace. What is about nobody in particular is for admins of all."""
    viewer = bearer(await made_token(wide.hf, "viewer", "acme"))
    await wide.get("/v1/tokens", headers=viewer)
    await wide.get("/v1/tokens")
    await written(wide)
    whole = {**bearer(await made_token(wide.hf, "admin", "*")), "Holdfast-Namespace": "acme"}
    acme, other = [bearer(await made_token(wide.hf, "admin", one)) for one in ("acme", "other")]

    async def seen(headers: dict[str, str], query: str = "verb=refuse") -> list[str]:
        answer = await wide.get(f"/v1/journal?{query}", headers=headers)
        assert answer.status_code == 200, answer.text
        return [one["actor"].partition(" ")[0] for one in answer.json()["items"]]

    assert await seen(whole) == ["nobody", "viewer"]
    assert await seen(acme) == ["viewer"]
    assert await seen(other) == []
    assert await seen(acme, "verb=refuse&actor=view&via=http") == ["viewer"]
    assert await seen(acme, "verb=refuse&via=page") == []
    page = await wide.get("/audit?verb=refuse&namespace=acme", headers=acme)
    assert "forbidden GET /v1/tokens" in page.text
    assert "forbidden GET /v1/tokens" not in (await wide.get("/audit?who=nobody", headers=acme)).text


async def test_ten_thousand_refusals_are_a_few_rows_and_commits(store_url: str) -> None:
    """With no token, with bad ones and with one that may not, on many routes, while the server writes them down."""
    async with asking(store_url) as asked:
        viewer = bearer(await made_token(asked.hf, "viewer"))
        await asked.get("/v1/runs", headers=viewer)
        commits, begun = _Commits(asked.hf), asked.hf.environment.monotonic()
        keeping = asyncio.ensure_future(asked.server.refused.keep())
        places = asyncio.Semaphore(50)

        async def one(number: int) -> int:
            async with places:
                path = ("/v1/tokens", "/v1/journal", f"/v1/runs/r{number}/cancel")[number % 3]
                headers = (viewer, {}, bearer(f"hf_viewer_{number}_x"))[number // 3 % 3]
                method = "POST" if path.endswith("cancel") else "GET"
                return (await asked.client.request(method, path, headers=headers)).status_code

        statuses = await asyncio.gather(*(one(number) for number in range(ATTACK)))
        assert set(statuses) <= {401, 403, 429}
        await asked.server.refused.leave(keeping)
        entries = await refused(asked.hf)
        more = int((asked.hf.environment.monotonic() - begun) // WAIT_S)  # on a machine that is very busy
        assert len(entries) <= 4 + 2 * more
        assert 0 < await commits.so_far() <= 2 + 2 * more
        assert sum(int(entry.note.partition(" ")[0]) for entry in entries) == ATTACK


class _Commits:
    """Counts the commits that wrote rows of the journal about refusals."""

    def __init__(self, hf: Holdfast) -> None:
        self._database: Any = hf.store.database
        self._seen: list[int] = []
        if isinstance(self._database, SqliteDatabase):
            self._database.connections.writer.set_commit_hook(self._note)

    def _note(self) -> bool:
        self._seen.append(1)
        return False

    async def so_far(self) -> int:
        if isinstance(self._database, SqliteDatabase):
            self._database.connections.writer.set_commit_hook(None)
            return len(self._seen)
        query = "SELECT count(DISTINCT xmin::text) FROM holdfast.journal WHERE verb = 'refuse'"
        return int(await self._database.on_pool(lambda connection: connection.fetchval(query)))


async def test_whoever_goes_on_is_written_down_ever_more_rarely(lone: Asked) -> None:
    """Within a day of refusals every second there are some thirty rows, and none is lost. After a quiet time, the next is
    written down at once."""
    clock = Clock()
    counting = RefusedRequests(lone.hf.store.tokens, clock)
    rows = asked = 0
    for _ in range(0, int(DAY_S), 20):
        counting.note(somebody(), 403, "GET /v1/tokens", "http", "r")
        asked += 1
        rows += await counting.write()
        clock.ahead_s += 20
    assert rows <= 24 + 7
    assert await counting.write(everything=True) <= 1
    noted = [int(entry.note.partition(" ")[0]) for entry in await refused(lone.hf)]
    assert sum(noted) == asked
    clock.ahead_s += 3 * WAIT_MAX_S
    for is_due in (1, 0):
        counting.note(somebody(), 403, "GET /v1/tokens", "http", "r")
        assert await counting.write() == is_due
    clock.ahead_s += WAIT_S + 1
    assert await counting.write() == 1


async def test_many_actors_are_counted_together(lone: Asked) -> None:
    """So many by name, and the others as one. Those who were quiet make room."""
    clock = Clock()
    counting = RefusedRequests(lone.hf.store.tokens, clock)
    for number in range(10 * ACTORS_MAX):
        counting.note(somebody(number), 403, "GET /v1/tokens", "http", "r")
    assert await counting.write() == ACTORS_MAX + 1
    others = [entry.note for entry in await refused(lone.hf) if entry.actor == "others"]
    assert [int(note.partition(" ")[0]) for note in others] == [9 * ACTORS_MAX]
    clock.ahead_s += DAY_S
    counting.note(somebody(10 * ACTORS_MAX), 403, "GET /v1/tokens", "http", "r")
    assert await counting.write() == 1
    assert (await refused(lone.hf))[0].actor != "others"


async def test_an_entry_names_what_was_asked_most(lone: Asked) -> None:
    """And counts the rest, so that its length has a bound."""
    counting = RefusedRequests(lone.hf.store.tokens, Clock())
    for number in range(20):
        for _ in range(20 - number):
            counting.note(somebody(), 403, f"GET /v1/{number:02}", "http", "r")
    await counting.write()
    (entry,) = await refused(lone.hf)
    assert entry.note.startswith("210 requests since ")
    assert ": forbidden GET /v1/00 20, forbidden GET /v1/01 19, " in entry.note
    assert entry.note.count("forbidden") == NAMED_MAX
    assert entry.note.endswith(", others 120")


async def test_what_the_store_did_not_take_is_written_later(store_url: str) -> None:
    """Nothing is forgotten while the store is away."""
    async with Holdfast(store_url, roles=(), config=FAST) as hf:
        counting = RefusedRequests(hf.store.tokens, hf.environment)
        counting.note(somebody(), 403, "GET /v1/tokens", "http", "first")
        await hf.store.close()
        with pytest.raises(StoreError):
            await counting.write()
        counting.note(somebody(), 403, "GET /v1/tokens", "http", "second")
        await hf.store.open()
        assert await counting.write() == 1
        (entry,) = await refused(hf)
    assert (entry.note.partition(" ")[0], entry.request) == ("2", "first")


async def test_a_server_that_leaves_writes_down_what_it_refused(store_url: str) -> None:
    """Also if that was only just now."""
    async with Holdfast(store_url, roles=(), config=FAST) as hf:
        viewer = await made_token(hf, "viewer")
        async with (
            serving(hf, hf.desk, Address("127.0.0.1", 0)) as url,
            httpx2.AsyncClient(timeout=30) as client,
        ):
            assert (await client.get(f"{url}/v1/tokens", headers=bearer(viewer))).status_code == 403
        (entry,) = await refused(hf)
        assert "forbidden GET /v1/tokens" in entry.note
