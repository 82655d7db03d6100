"""Who gets in: tokens that are good, and this host's own user while no token exists."""

from __future__ import annotations

import logging
import time

import msgspec
import pytest

from holdfast.access import Role, tokens
from holdfast.environment import Environment
from holdfast.http import guard
from tests.http.conftest import FAST, Asked, asking, bearer, made_token

ENVIRONMENT = Environment()


async def test_without_any_token_this_host_alone_is_served(lone: Asked) -> None:
    """Whoever is at the host has the store's file anyway."""
    found = (await lone.get("/v1/me")).json()
    assert (found["kind"], found["role"], found["namespace"]) == ("local", "admin", "default")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:80"},
        {"Host": "localhost.evil.example"},
        {"Host": "127.0.0.1.nip.io"},
        {"Host": ""},
        {"Host": "[::1"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
async def test_a_page_in_a_browser_cannot_use_it(lone: Asked, headers: dict[str, str]) -> None:
    """A name that leads to this host (DNS rebinding) is refused, and so is a request from a page of another origin."""
    for answer in (
        await lone.get("/v1/runs", headers=headers),
        await lone.post("/v1/runs", {"workflow": "shop.count", "input": {"a": 1}}, headers=headers),
    ):
        assert answer.status_code == 403
        assert answer.json()["place"] in headers


@pytest.mark.parametrize(
    "headers", [{"Host": "127.0.0.1:8080"}, {"Host": "[::1]:8080"}, {"Origin": "http://localhost"}], ids=str
)
async def test_our_own_pages_and_programs_may_use_it(lone: Asked, headers: dict[str, str]) -> None:
    """They name this host, and come from it."""
    assert (await lone.get("/v1/me", headers=headers)).status_code == 200


async def test_once_a_token_exists_nobody_is_served_without_one(store_url: str) -> None:
    """Not even when that token is revoked: there is no way back to a server that everybody may use."""
    async with asking(store_url) as asked:
        token = await made_token(asked.hf, "admin")
        assert (await asked.get("/v1/me")).status_code == 401
        assert (await asked.get("/v1/me", headers=bearer(token))).status_code == 200
        await asked.hf.store.tokens.revoke_token(token.split("_")[2], "test")
        assert (await asked.get("/v1/me")).status_code == 401
    async with asking(store_url) as asked:
        assert (await asked.get("/v1/me")).status_code == 401


async def test_a_server_that_others_reach_always_asks_for_a_token() -> None:
    """Even if its store has none, for example because it was replaced under it."""
    async with asking("sqlite://:memory:", is_loopback=False) as asked:
        assert (await asked.get("/v1/me")).status_code == 401
        assert (await asked.get("/healthz")).status_code == 200


async def test_all_bad_tokens_are_refused_in_the_same_words(quiet: Asked) -> None:
    """Nobody learns from the answer whether a token once existed."""
    good = await made_token(quiet.hf, "viewer")
    token = tokens.read(good)
    assert token is not None
    other_role = tokens.TokenText(Role.ADMIN, token.id, token.secret)
    other_secret = tokens.make(Role.VIEWER, bytes(12), bytes(32))._replace(id=token.id)
    given = [
        None,
        "",
        "Bearer",
        f"Basic {good}",
        f"Bearer {good[:-1]}",
        "Bearer hf_viewer_é",
        f"Bearer {other_role.text}",
        f"Bearer {other_secret.text}",
        f"Bearer {tokens.make(Role.VIEWER, b'x' * 12, b'y' * 32).text}",
        f"Bearer {await made_token(quiet.hf, 'viewer', expires_s=-1)}",
    ]
    seen = set()
    for one in given:
        headers = {} if one is None else {"Authorization": one.encode()}
        answer = await quiet.get("/v1/me", headers=headers)
        found = answer.json()
        found.pop("instance")
        seen.add((answer.status_code, answer.headers["www-authenticate"], str(found)))
    assert len(seen) == 1
    assert next(iter(seen))[:2] == (401, "Bearer")


async def test_a_revoked_token_is_refused_within_a_second(quiet: Asked) -> None:
    """A verified token is remembered for that long, and no longer."""
    token = await made_token(quiet.hf, "viewer")
    assert (await quiet.get("/v1/me", headers=bearer(token))).status_code == 200
    await quiet.hf.store.tokens.revoke_token(token.split("_")[2], "test")
    begun = time.monotonic()
    while (await quiet.get("/v1/me", headers=bearer(token))).status_code == 200:
        assert time.monotonic() < begun + 5
    assert time.monotonic() < begun + 2


async def test_a_rotated_token_works_on_for_its_grace_time(quiet: Asked) -> None:
    """Both secrets are good for that long, and afterwards only the new one. The id stays."""
    old = await made_token(quiet.hf, "operator", expires_s=3600.0)
    read = tokens.read(old)
    assert read is not None
    store = quiet.hf.store.tokens
    for grace_s, wanted in ((60.0, 200), (0.0, 401)):
        before = await store.token(read.id)
        new = tokens.make(Role.OPERATOR, bytes(12), ENVIRONMENT.secret(32))._replace(id=read.id)
        await store.rotate_token(read.id, new.digest, grace_s=grace_s, expires_s=None, actor="test")
        assert (await quiet.get("/v1/me", headers=bearer(new.text))).status_code == 200
        row = await store.token(read.id)
        assert row is not None
        assert before is not None
        now = await store.now()
        assert tokens.is_good(new, row, now)
        assert tokens.is_good(read, row, now) == (wanted == 200)
        assert row.expires_at is not None
        assert abs(row.expires_at - now - 3600) < 60
        read = new


async def test_a_token_of_several_namespaces_names_one(quiet: Asked) -> None:
    """There is no namespace that it falls back to."""
    token = await made_token(quiet.hf, "operator", "acme", "umbrella")
    answer = await quiet.get("/v1/runs", headers=bearer(token))
    assert (answer.status_code, answer.json()["place"]) == (422, "Holdfast-Namespace")
    for namespace, status in (("acme", 200), ("umbrella", 200), ("default", 403), ("a//b", 403), ("*", 403)):
        given = bearer(token, **{"Holdfast-Namespace": namespace})
        assert (await quiet.get("/v1/runs", headers=given)).status_code == status, namespace


async def test_holds_are_those_of_the_tokens_namespaces(quiet: Asked) -> None:
    """A namespace's own operator may hold what is in it, and nothing else. Who has all namespaces may hold anything, by
    its stored name or in the namespace that the request names."""
    some = bearer(await made_token(quiet.hf, "operator", "acme", "umbrella"))
    everything = bearer(await made_token(quiet.hf, "operator", "*"))

    def hold(scope: str, value: str) -> dict[str, str]:
        return {"scope": scope, "value": value}

    async def asked(scope: str, value: str, who: dict[str, str], namespace: str | None = None) -> int:
        headers = who if namespace is None else {**who, "Holdfast-Namespace": namespace}
        return (await quiet.post("/v1/holds", hold(scope, value), headers=headers)).status_code

    assert await asked("namespace", "acme", some) == 422  # it has two, and must name one
    assert await asked("namespace", "acme", some, "acme") == 201
    assert await asked("namespace", "default", some, "acme") == 403
    assert await asked("namespace", "umbrella", some, "acme") == 403
    assert await asked("workflow", "shop.count", some, "acme") == 201
    assert await asked("workflow", "default//shop.count", some, "acme") == 422
    assert await asked("workflow", "shop.count", some, "default") == 403
    assert await asked("workflow", "shop.count", everything) == 201
    assert await asked("workflow", "acme//shop.count", everything) == 200
    for who, namespace, values in (
        (some, "acme", ["acme", "shop.count"]),
        (some, "umbrella", []),
        (everything, "default", ["shop.count"]),
        (everything, None, ["acme", "acme//shop.count", "shop.count"]),
    ):
        headers = who if namespace is None else {**who, "Holdfast-Namespace": namespace}
        found = (await quiet.get("/v1/holds", headers=headers)).json()["items"]
        assert [one["value"] for one in found] == values
    assert await asked("all", "", some, "umbrella") == 201  # everything in a namespace is that namespace
    held = (await quiet.get("/v1/holds", headers={**some, "Holdfast-Namespace": "umbrella"})).json()["items"]
    assert [(one["scope"], one["value"]) for one in held] == [("namespace", "umbrella")]


async def test_a_token_can_be_narrowed_to_workflows(quiet: Asked) -> None:
    """What it may not start is unknown to it."""
    token = await made_token(quiet.hf, "starter", can='["workflows:shop.c*"]')
    for name, status in (("shop.count", 201), ("shop.pay", 404), ("shop.nothing", 404)):
        body = {"workflow": name, "input": {"a": 1}}
        assert (await quiet.post("/v1/runs", body, headers=bearer(token))).status_code == status


async def test_a_token_without_payloads_sees_none(quiet: Asked) -> None:
    """Neither inputs nor results nor logs. The answer says that they are hidden."""
    run = await quiet.started(input={"a": 1, "secret": "canary"})
    token = await made_token(quiet.hf, "viewer", payloads=False)
    for part in ("", "/steps", "/why", "/journal"):
        answer = await quiet.get(f"/v1/runs/{run}{part}", headers=bearer(token))
        assert answer.status_code == 200
        assert "canary" not in answer.text
    found = (await quiet.get(f"/v1/runs/{run}", headers=bearer(token))).json()
    assert (found["input"], found["hidden"]) == (None, True)
    assert (await quiet.get(f"/v1/runs/{run}/logs", headers=bearer(token))).status_code == 403


async def test_a_token_signs_in_so_many_times_a_minute() -> None:
    """Each time is a row in the store. Another token may, and what else the first one asks is answered."""
    config = msgspec.structs.replace(FAST, sign_ins_per_min=3)
    async with asking("sqlite://:memory:", config=config) as asked:
        one, other = [await made_token(asked.hf, "viewer") for _ in range(2)]

        async def sign_in(token: str) -> int:
            data, origin = {"token": token}, {"Origin": "http://localhost"}
            return (await asked.client.post("/signin", data=data, headers=origin)).status_code

        assert [await sign_in(one) for _ in range(5)] == [303, 303, 303, 429, 429]
        assert await sign_in(other) == 303
        assert (await asked.get("/v1/me", headers=bearer(one))).status_code == 200


def test_what_is_counted_by_the_minute_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those whose minute is over are forgotten first."""
    monkeypatch.setattr(guard, "KNOWN_MAX", 10)
    minute = guard.Minute()
    assert [minute.count("a", now) for now in (0.0, 1.0, 59.0, 61.0, 62.0)] == [0, 1, 2, 0, 1]
    for number in range(9):
        assert minute.count(f"old {number}", 63.0) == 0
    assert minute.count("b", 120.0) == 0
    assert minute.count("b", 124.0) == 1
    for number in range(8):
        assert minute.count(f"new {number}", 124.0) == 0
    assert minute.count("b", 125.0) == 2, "one whose minute is not over was forgotten before the old ones"
    for number in range(1_000):
        minute.count(f"many {number}", 126.0)
    assert len(minute._counts) <= 10


async def test_the_journal_names_the_token(quiet: Asked) -> None:
    """By its name and the beginning of its id."""
    token = await made_token(quiet.hf, "operator")
    run = await _started(quiet, token)
    await quiet.post(f"/v1/runs/{run}/hold", {"note": "why"}, headers=bearer(token))
    (entry,) = (await quiet.get(f"/v1/runs/{run}/journal", headers=bearer(token))).json()["items"]
    assert entry["actor"] == f"operator ({token.split('_')[2][:8]})"


async def _started(asked: Asked, token: str) -> str:
    body = {"workflow": "shop.count", "input": {"a": 1}}
    return str((await asked.post("/v1/runs", body, headers=bearer(token))).json()["ref"])


async def test_no_secret_is_in_a_row_or_a_log(quiet: Asked, caplog: pytest.LogCaptureFixture) -> None:
    """The store has the digest of a secret, and servers log no token."""
    caplog.set_level(logging.DEBUG)
    token = await made_token(quiet.hf, "admin", "*")
    secret = token.split("_")[3]
    for path in ("/v1/me", "/v1/journal", "/metrics", "/v1/nothing"):
        answer = await quiet.get(path, headers=bearer(token))
        assert secret not in answer.text
    rows = await quiet.hf.store.tokens.tokens(10)
    assert secret not in msgspec.json.encode([msgspec.structs.asdict(row) for row in rows]).decode()
    assert rows[0].used_at is not None
    assert secret not in caplog.text


async def test_every_role_may_ask_who_it_is(quiet: Asked) -> None:
    """Also those that have no other route yet."""
    for role in Role:
        answer = await quiet.get("/v1/me", headers=bearer(await made_token(quiet.hf, role)))
        assert answer.json()["role"] == role
