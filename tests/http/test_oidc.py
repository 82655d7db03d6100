"""Tokens that an issuer has signed: which are good, whom they make, and that nothing else gets in."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import random
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast import Holdfast
from holdfast.access import Act, Kind, Role
from holdfast.access.grants import OidcSettings, signed_in
from holdfast.errors import InvalidSettings, Unauthenticated
from holdfast.http.listener import Address, serving
from holdfast.http.oidc import ASK_EVERY_S, FRESH_S, KEPT_S, Issuer, load_oidc
from holdfast.supervisor.channels.settings import load_channels
from tests.http import flows
from tests.http.conftest import FAST, Asked, asking, bearer, made_ask, made_token
from tests.http.issuers import AUDIENCE, Clock, IssuerHost, coded, issuing, part, public, signed


@pytest.fixture
async def host() -> AsyncIterator[IssuerHost]:
    async with issuing() as made:
        yield made


@pytest.fixture
async def lone_oidc(host: IssuerHost) -> AsyncIterator[Asked]:
    """A server that takes tokens of the issuer, on a SQLite in memory."""
    async with asking("sqlite://:memory:", issuer=Issuer(host.settings(), Clock())) as asked:
        yield asked


def alike(answer: httpx2.Response) -> tuple[int, dict[str, Any]]:
    """Return all of a refusal but the number of the request."""
    return answer.status_code, {name: value for name, value in answer.json().items() if name != "instance"}


# --- what is good -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alg", "kid"), [("RS256", "r1"), ("ES256", "e1"), ("EdDSA", "d1")])
async def test_a_token_of_the_issuer_is_good(lone_oidc: Asked, host: IssuerHost, alg: str, kid: str) -> None:
    """Signed by one of its keys, for us, and now."""
    answer = await lone_oidc.get("/v1/me", headers=bearer(host.token(alg=alg, kid=kid)))
    found = answer.json()
    assert (found["kind"], found["role"], found["name"]) == ("oidc", "admin", "anna")
    assert found["id"] == f"{host.url}#248289761001"


async def test_our_own_tokens_work_beside_it(host: IssuerHost, store_url: str) -> None:
    """Both are bearer tokens, and neither is a way to the other."""
    async with asking(store_url, issuer=Issuer(host.settings(), Clock())) as asked:
        own = await made_token(asked.hf, "viewer")
        assert (await asked.get("/v1/me", headers=bearer(own))).json()["kind"] == "token"
        assert (await asked.get("/v1/me", headers=bearer(host.token()))).json()["kind"] == "oidc"


async def test_with_an_issuer_nobody_is_served_without_a_token(lone_oidc: Asked, host: IssuerHost) -> None:
    """Not even on this host, and though the store has no token."""
    assert (await lone_oidc.get("/v1/me")).status_code == 401
    assert (await lone_oidc.get("/healthz")).status_code == 200


async def test_a_token_without_the_id_of_a_key_needs_one_key(lone_oidc: Asked, host: IssuerHost) -> None:
    """If two keys could be meant, nobody guesses."""
    token = signed(host.claims(), {"alg": "ES256"})
    assert (await lone_oidc.get("/v1/me", headers=bearer(token))).status_code == 200
    host.keys.append(public("ES256", "e2", 2))
    async with asking("sqlite://:memory:", issuer=Issuer(host.settings(), Clock())) as other:
        assert (await other.get("/v1/me", headers=bearer(token))).status_code == 401


async def test_clocks_may_differ_a_little(host: IssuerHost) -> None:
    """By `leeway_s`, in both directions, and not by more."""
    settings, now = host.settings(leeway_s=10.0), time.time()
    claims = host.claims(exp=now, nbf=now)
    assert signed_in(claims, settings, now + 9) is not None
    assert signed_in(claims, settings, now + 11) is None
    claims = host.claims(exp=now + 99, nbf=now)
    assert signed_in(claims, settings, now - 9) is not None
    assert signed_in(claims, settings, now - 11) is None


# --- what is refused --------------------------------------------------------------------------------------------------


def heads(host: IssuerHost) -> dict[str, str]:
    """Return tokens whose header is wrong, by what is wrong."""
    claims = host.claims()
    keyed = json.dumps(host.keys[0]).encode()
    content = f"{part({'alg': 'HS256', 'kid': 'r1'})}.{part(claims)}"
    return {
        "none": f"{part({'alg': 'none'})}.{part(claims)}.",
        "none in capitals": f"{part({'alg': 'NONE', 'kid': 'r1'})}.{part(claims)}.",
        "HS256 with the public key": f"{content}.{coded(hmac.new(keyed, content.encode(), hashlib.sha256).digest())}",
        "RS512": signed(claims, {"alg": "RS512", "kid": "r1"}, by="RS256"),
        "PS256": signed(claims, {"alg": "PS256", "kid": "r1"}, by="RS256"),
        "no algorithm": signed(claims, {"kid": "r1"}, by="RS256"),
        "a list of algorithms": signed(claims, {"alg": ["RS256"], "kid": "r1"}, by="RS256"),
        "another key's algorithm": signed(claims, {"alg": "ES256", "kid": "r1"}),
        "jku": signed(claims, {"alg": "RS256", "kid": "r1", "jku": f"{host.url}/keys"}),
        "jwk": signed(claims, {"alg": "RS256", "kid": "r1", "jwk": public("RS256", "r1")}),
        "own jwk": signed(claims, {"alg": "RS256", "kid": "r1", "jwk": public("RS256", "r1", 9)}, 9),
        "x5u": signed(claims, {"alg": "RS256", "kid": "r1", "x5u": f"{host.url}/keys"}),
        "x5c": signed(claims, {"alg": "RS256", "kid": "r1", "x5c": ["MII="]}),
        "crit": signed(claims, {"alg": "RS256", "kid": "r1", "crit": ["exp"]}),
        "an empty crit": signed(claims, {"alg": "RS256", "kid": "r1", "crit": []}),
        "b64": signed(claims, {"alg": "RS256", "kid": "r1", "b64": False}),
        "zip": signed(claims, {"alg": "RS256", "kid": "r1", "zip": "DEF"}),
        "typ of something else": signed(claims, {"alg": "RS256", "kid": "r1", "typ": "logout+jwt"}),
        "kid that is no text": signed(claims, {"alg": "RS256", "kid": 1}),
        "unknown kid": signed(claims, {"alg": "RS256", "kid": "r2"}),
        "path as kid": signed(claims, {"alg": "RS256", "kid": "../../dev/null"}),
        "another's key": signed(claims, {"alg": "RS256", "kid": "r1"}, 9),
        "no signature": signed(claims, {"alg": "RS256", "kid": "r1"}).rpartition(".")[0] + ".",
        "two parts": signed(claims, {"alg": "RS256", "kid": "r1"}).rpartition(".")[0],
        "four parts": signed(claims, {"alg": "RS256", "kid": "r1"}) + ".x",
        "header that is no object": f"{part([])}.{part(claims)}.{coded(b'x' * 256)}",
        "header that is no JSON": f"{coded(b'{')}.{part(claims)}.{coded(b'x' * 256)}",
        "deep header": f"{coded(b'[' * 9000)}.{part(claims)}.x",
        "too long": signed(host.claims(more="x" * 20_000), {"alg": "RS256", "kid": "r1"}),
        "nothing": "",
        "dots": "..",
    }


def wrong_claims(host: IssuerHost) -> dict[str, str]:
    """Return tokens that are signed well and say something wrong, by what is wrong."""
    now = int(time.time())
    wrong: dict[str, dict[str, Any]] = {
        "expired": {"exp": now - 60},
        "no end": {"exp": None},
        "end that is text": {"exp": str(now + 99)},
        "end that is true": {"exp": True},
        "endless": {"exp": 1e999},
        "huge end": {"exp": 10**400},
        "not yet": {"nbf": now + 60},
        "beginning that is text": {"nbf": "0"},
        "no issuer": {"iss": None},
        "another issuer": {"iss": "https://evil.example"},
        "issuer with a slash": {"iss": host.url + "/"},
        "issuer in a list": {"iss": [host.url]},
        "no audience": {"aud": None},
        "another audience": {"aud": "somebody-else"},
        "other audiences": {"aud": ["one", "two"]},
        "audience that begins like ours": {"aud": AUDIENCE + "x"},
        "no subject": {"sub": None},
        "empty subject": {"sub": ""},
        "subject that is a number": {"sub": 7},
        "long subject": {"sub": "x" * 256},
        "subject that steers a terminal": {"sub": "\x1b[2J"},
        "no group of ours": {"groups": ["strangers"]},
        "groups in a text": {"groups": "acme-admins,others"},
        "groups that are objects": {"groups": [{"name": "acme-admins"}]},
        "answerer who is nobody": {"groups": ["acme-finance"], "preferred_username": "an na"},
        "answerer with two names": {"groups": ["acme-finance"], "preferred_username": ["anna", "ben"]},
    }
    made = {name: host.token(**{"groups": ["acme-admins"], **more}) for name, more in wrong.items()}
    head = {"alg": "RS256", "kid": "r1"}
    return {
        **made,
        "claims that are a list": signed([host.claims()], head),
        "claims that are no JSON": signed(b"{", head),
        "claims that are no UTF-8": signed(b'{"sub": "\xff"}', head),
        "deep claims": signed(b"[" * 5000, head),
    }


async def test_everything_else_is_refused_in_the_same_words(lone_oidc: Asked, host: IssuerHost) -> None:
    """Whatever is wrong with a token, the answer says the same, and is the one for an unknown token of ours."""
    assert (await lone_oidc.get("/v1/me", headers=bearer(host.token()))).status_code == 200
    expected = alike(await lone_oidc.get("/v1/me", headers=bearer("hf_admin_x_y")))
    assert expected[0] == 401
    for what, token in {**heads(host), **wrong_claims(host)}.items():
        assert alike(await lone_oidc.get("/v1/me", headers=bearer(token))) == expected, what
        assert alike(await lone_oidc.get("/v1/runs", headers=bearer(token))) == expected, what


async def test_no_forged_token_gets_in(host: IssuerHost) -> None:
    """Thousands of them: bits flipped, parts of good ones put together, other keys, other algorithms."""
    issuer, chance = Issuer(host.settings(), Clock()), random.Random(13)
    good = [host.token(alg=alg, kid=kid) for alg, kid in (("RS256", "r1"), ("ES256", "e1"), ("EdDSA", "d1"))]
    assert all([await issuer.signed_in(one) for one in good])
    tried = accepted = 0
    for number in range(6_000):
        one, other = chance.choice(good), chance.choice(good)
        head, claims, signature = one.split(".")
        kind = number % 6
        if kind == 0:  # one character of the claims, or of the header, is another
            place = chance.randrange(len(head) + len(claims))
            forged = one[:place] + chance.choice("ABCDabcd0123-_") + one[place + 1 :]
        elif kind == 1:  # other bits in the signature
            raw = bytearray(chance.randbytes(len(signature)))
            forged = f"{head}.{claims}.{coded(bytes(raw))}"
        elif kind == 2:  # the signature of another
            forged = f"{head}.{part(host.claims(sub=str(number)))}.{signature}"
        elif kind == 3:
            first, _, last = other.split(".")
            forged = f"{first}.{claims}.{signature if first != head else coded(chance.randbytes(64))}"
            assert last
        elif kind == 4:  # signed by somebody who has keys of the same names
            alg, kid = chance.choice([("ES256", "e1"), ("EdDSA", "d1")])
            forged = signed(host.claims(sub=str(number)), {"alg": alg, "kid": kid}, 9)
        else:  # by a secret that everybody knows
            alg = chance.choice(["HS256", "HS512", "none", "RS256", "ES256", "EdDSA"])
            content = f"{part({'alg': alg, 'kid': 'r1'})}.{part(host.claims())}"
            secret = json.dumps(chance.choice(host.keys)).encode()
            forged = f"{content}.{coded(hmac.new(secret, content.encode(), hashlib.sha256).digest())}"
        if forged in good:
            continue
        tried += 1
        accepted += await issuer.signed_in(forged) is not None
    assert tried > 5_500
    assert accepted == 0
    assert len(host.asked) == 2, "and the issuer was asked once: its discovery and its keys"
    await issuer.close()


async def test_keys_that_nobody_should_use_are_not_used(host: IssuerHost) -> None:
    """Secrets, private keys, small ones, other curves, keys for something else: a token that fits them is not good."""
    private = public("EdDSA", "private") | {"d": "AAAA"}
    host.keys = [
        {"kty": "oct", "k": coded(b"secret"), "kid": "oct"},
        public("RS256", "enc", use="enc"),
        public("RS256", "other", alg="RS512"),
        private,
        {"kty": "RSA", "n": coded((2**1023 + 1).to_bytes(128, "big")), "e": "AQAB", "kid": "small"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "broken"},
        "no key",
        public("ES256", "e1"),
    ]
    issuer = Issuer(host.settings(), Clock())
    assert await issuer.signed_in(host.token(alg="ES256", kid="e1"))
    for kid in ("oct", "enc", "other", "small"):
        assert await issuer.signed_in(host.token(kid=kid)) is None
    assert await issuer.signed_in(host.token(alg="EdDSA", kid="private")) is None
    await issuer.close()


# --- the issuer's keys ------------------------------------------------------------------------------------------------


async def test_keys_change_without_a_restart(host: IssuerHost) -> None:
    """A token with a new key makes us ask again, at most once a minute. A key that was taken away is refused soon."""
    clock = Clock()
    issuer = Issuer(host.settings(), clock)
    old, new = host.token(), host.token(kid="r2", number=2, exp=int(time.time()) + 9e5)
    assert await issuer.signed_in(old)
    host.keys = [public("RS256", "r2", 2)]
    assert await issuer.signed_in(new) is None, "it was asked a moment ago"
    clock.ahead_s = ASK_EVERY_S + 1
    assert await issuer.signed_in(new)
    assert await issuer.signed_in(host.token()) is None
    host.keys = [public("RS256", "r3", 3)]
    clock.ahead_s += FRESH_S + 1
    assert await issuer.signed_in(new), "it is asked beside the requests, which do not wait for it"
    assert issuer._keys._asking is not None
    await issuer._keys._asking
    assert await issuer.signed_in(new) is None
    await issuer.close()


async def test_unknown_keys_ask_the_issuer_once_a_minute(host: IssuerHost) -> None:
    """However many tokens name them, and though they come together."""
    clock = Clock()
    issuer = Issuer(host.settings(), clock)
    for minute in range(3):
        clock.ahead_s = minute * (ASK_EVERY_S + 1)
        await asyncio.gather(*(issuer.signed_in(host.token(kid=f"x{number}")) for number in range(50)))
        assert len(host.asked) == 2 * (minute + 1)
    await issuer.close()


async def test_the_issuer_may_be_away(host: IssuerHost, caplog: pytest.LogCaptureFixture) -> None:
    """Known keys go on for a day. A server that starts while it is away refuses, says why in its log, and learns the keys
    when it is back."""
    clock, later = Clock(), dict[str, Any](exp=int(time.time()) + 9e5)
    known, fresh = Issuer(host.settings(), clock), Issuer(host.settings(), clock)
    assert await known.signed_in(host.token(**later))
    await host.down()
    clock.ahead_s = KEPT_S - 10
    assert await known.signed_in(host.token(**later))
    assert await fresh.signed_in(host.token(**later)) is None
    assert "cannot be learned: cannot connect" in caplog.text
    await host.up()
    clock.ahead_s += ASK_EVERY_S + 1
    assert await fresh.signed_in(host.token(**later))
    await known.close()
    await fresh.close()


async def test_keys_are_not_good_for_ever(host: IssuerHost) -> None:
    """After a day without the issuer, nobody knows whether it has taken them away."""
    clock = Clock()
    issuer = Issuer(host.settings(), clock)
    token = host.token(exp=int(time.time()) + 9e5)
    assert await issuer.signed_in(token)
    await host.down()
    clock.ahead_s = KEPT_S + 1
    assert await issuer.signed_in(token) is None
    await issuer.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"says": "https://evil.example"}, "another issuer"),
        ({"status": "302 Found"}, "it answered 302: name the final address"),
        ({"status": "500 Oops"}, "it answered 500"),
        ({"body": b"no JSON"}, "malformed"),
        ({"body": b"[]"}, "array"),
        ({"body": b"x" * 2_000_000}, "bytes"),
        ({"keys": []}, "no key that can be used"),
        ({"keys": {"a": 1}}, "no key that can be used"),
    ],
    ids=lambda one: str(one)[:40],
)
async def test_an_issuer_that_answers_nonsense_is_not_believed(
    host: IssuerHost, change: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its answer is bounded, redirects are not followed, and the log says what was wrong."""
    for name, value in change.items():
        setattr(host, name, value)
    issuer = Issuer(host.settings(), Clock())
    assert await issuer.signed_in(host.token()) is None
    assert said in caplog.text
    await issuer.close()


async def test_an_address_inside_needs_to_be_allowed(
    host: IssuerHost, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing that the settings do not name is connected to, though it is only on this host."""
    issuer = Issuer(host.settings(allow=[]), Clock())
    assert await issuer.signed_in(host.token()) is None
    assert "not a public address" in caplog.text
    assert not host.asked
    await issuer.close()


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"issuer": "http://login.example"}, "https://"),
        ({"issuer": "ftp://login.example"}, "https://"),
        ({"keys_url": "http://10.0.0.1/keys"}, "https://"),
        ({"issuer": "https://login.example#x"}, "without"),
        ({"audience": ""}, "audience"),
        ({"grants": []}, "without a grant"),
        ({"grants": [{"role": "king"}]}, "Invalid enum value 'king'"),
        ({"grants": [{"role": "viewer", "namespaces": ["a b"]}]}, r"grants\[0\]"),
        ({"grants": [{"role": "viewer", "namespaces": []}]}, r"grants\[0\]: name a namespace"),
        ({"grants": [{"role": "viewer", "can": ["everything"]}]}, r"grants\[0\].*narrows nothing"),
        ({"grants": [{"role": "answerer"}], "person": None}, "which claim names them"),
        ({"teams": {"g": "a b"}}, "cannot be the name of a team"),
        ({"leeway_s": 9000.0}, "leeway_s"),
        ({"allow": ["10.0.0"]}, "allow"),
        ({"ca_file": "/nowhere"}, "ca_file"),
        ({"isuer": "x"}, "isuer"),
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    """When the server starts, with the place."""
    given = {
        "issuer": "https://login.example",
        "audience": AUDIENCE,
        "person": "email",
        "grants": [{"role": "viewer"}],
        **change,
    }
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"oidc": {name: one for name, one in given.items() if one is not None}}))
    with pytest.raises(InvalidSettings, match=said):
        Issuer(load_oidc(str(file)), Clock())


def test_one_file_has_alerts_and_sign_on(tmp_path: Path) -> None:
    """Each reader takes its own part, and a file without the part says so."""
    file = tmp_path / "settings.toml"
    file.write_text(
        '[channels.ops]\ntype = "command"\nargv = ["true"]\n\n'
        '[oidc]\nissuer = "https://login.example"\naudience = "holdfast"\n\n'
        '[[oidc.grants]]\nrole = "viewer"\nwhen = { groups = ["a", "b"] }\n'
    )
    assert [one.name for one in load_channels(file, Clock())] == ["ops"]
    assert load_oidc(str(file)).grants[0].role is Role.VIEWER
    file.write_text("[channels]\n")
    with pytest.raises(InvalidSettings, match=r"no table \[oidc\]"):
        load_oidc(str(file))


def test_the_settings_in_the_documentation_are_good(tmp_path: Path) -> None:
    """Whoever copies them begins with something that works."""
    page = (Path(__file__).parents[2] / "docs/security.md").read_text()
    (text,) = re.findall(r"```toml file=settings.toml\n(.*?)```", page, re.DOTALL)
    file = tmp_path / "settings.toml"
    file.write_text(text)
    Issuer(load_oidc(str(file)), Clock())
    assert [one.role for one in load_oidc(str(file)).grants] == ["admin", "starter", "answerer"]


# --- who it is --------------------------------------------------------------------------------------------------------


async def test_claims_make_the_identity(host: IssuerHost) -> None:
    """Role, namespaces, what it can, person and teams come from the table. What it does not name gives nothing."""
    settings, now = host.settings(), time.time()

    def made(*groups: str, **more: Any) -> Any:
        found = signed_in(host.claims(*groups, **more), settings, now)
        return None if found is None else found.who

    admin = made("acme-admins", "acme-finance")
    assert (admin.role, admin.namespaces, admin.kind) == (Role.ADMIN, {"*"}, Kind.OIDC)
    assert admin.who == ("person:anna", "team:finance")
    ops = made("strangers", realm={"roles": ["ops", "other"]})
    assert (ops.role, ops.namespaces, ops.who) == (Role.OPERATOR, {"default", "acme"}, ("person:anna",))
    assert made("acme-shop").can == ("workflows:shop.count",)
    assert made("acme-eyes").payloads is False
    assert made("strangers") is None
    assert made("acme-eyes", preferred_username=None).name == "248289761001"
    assert made("acme-eyes", preferred_username=None).who == ()


async def test_an_address_that_nobody_verified_is_no_person(host: IssuerHost) -> None:
    """Otherwise whoever may choose their address at the issuer could be anybody."""
    settings: OidcSettings = host.settings(person="email", grants=[{"role": "viewer"}])
    for verified, who in ((True, ("person:ann@acme.example",)), (False, ()), (None, ()), ("true", ())):
        claims = host.claims(email="ann@acme.example", email_verified=verified)
        found = signed_in(claims, settings, time.time())
        assert found is not None
        assert found.who.who == who


async def test_roles_and_namespaces_hold_over_http(host: IssuerHost, store_url: str) -> None:
    """As for a token of ours: another namespace is refused, a role does what it may, `can` narrows."""
    async with asking(store_url, issuer=Issuer(host.settings(), Clock()), namespace="*") as asked:
        ops = bearer(host.token("x", realm={"roles": "ops"}))
        assert (await asked.get("/v1/runs", headers=ops)).status_code == 422, "it has two namespaces"
        for namespace, status in (("acme", 200), ("default", 200), ("other", 403)):
            answer = await asked.get("/v1/runs", headers={**ops, "Holdfast-Namespace": namespace})
            assert answer.status_code == status
        assert (await asked.get("/metrics", headers=ops)).status_code == 403
        assert (await asked.get("/metrics", headers=bearer(host.token()))).status_code == 200
        eyes, shop = bearer(host.token("acme-eyes")), bearer(host.token("acme-shop"))
        start = {"workflow": "shop.count", "input": {"a": 1}}
        assert (await asked.post("/v1/runs", start, headers=eyes)).status_code == 403
        assert (await asked.post("/v1/runs", start, headers=shop)).status_code == 201
        other = {"workflow": "shop.pay", "input": {}}
        assert (await asked.post("/v1/runs", other, headers=shop)).status_code == 404


async def test_the_journal_names_subject_and_issuer(host: IssuerHost, store_url: str) -> None:
    """Names change and are given twice. A subject of an issuer is one person for ever."""
    async with asking(store_url, issuer=Issuer(host.settings(), Clock())) as asked:
        head = bearer(host.token())
        start = {"workflow": "shop.count", "input": {"a": 1}, "id": "r"}
        assert (
            await asked.post("/v1/runs", start, headers={**head, "Holdfast-Namespace": "default"})
        ).is_success
        held = await asked.post("/v1/runs/r/hold", {}, headers={**head, "Holdfast-Namespace": "default"})
        assert held.status_code == 200, held.text
        rows = (await asked.get("/v1/journal", headers=head)).json()["items"]
        assert f"anna ({host.url}#248289761001)" in {row["actor"] for row in rows}


async def test_a_person_answers_by_who_they_are_at_the_issuer(host: IssuerHost, store_url: str) -> None:
    """Teams come from groups. Others do not even see the question."""
    async with asking(store_url, issuer=Issuer(host.settings(), Clock())) as asked:
        ask = await made_ask(asked.hf, "default", "r", "may it?", "team:finance")
        anna, ben = host.token("acme-finance"), host.token("acme-admins", sub="7", preferred_username="ben")
        stranger = host.token("acme-finance", sub="8", preferred_username="eve", groups=["acme-shop"])
        listed = await asked.get("/v1/asks", headers=bearer(anna))
        assert [one["id"] for one in listed.json()["items"]] == [ask]
        refused = await asked.post(f"/v1/asks/{ask}/answer", {"value": True}, headers=bearer(stranger))
        assert refused.status_code == 403
        answer = await asked.post(f"/v1/asks/{ask}/answer", {"value": True}, headers=bearer(anna))
        assert answer.status_code == 200, answer.text
        found = (
            await asked.get(f"/v1/asks/{ask}", headers=bearer(ben, **{"Holdfast-Namespace": "default"}))
        ).json()
        assert "person:anna" in json.dumps(found)


async def test_a_token_that_expires_ends_what_waits(host: IssuerHost) -> None:
    """A verified token is remembered for a second at most, and never beyond its end."""
    clock = Clock()
    async with asking("sqlite://:memory:", issuer=Issuer(host.settings(leeway_s=0.0), clock)) as asked:
        head = bearer(host.token(exp=time.time() + 0.5))
        assert (await asked.get("/v1/me", headers=head)).status_code == 200
        clock.ahead_s = 2.0
        asked.server.guard._known.clear()
        assert (await asked.get("/v1/me", headers=head)).status_code == 401
        who = await asked.server.guard.verified(bearer(host.token())["Authorization"], "")
        assert not await asked.server.is_still_good(who, Act.READ, {"authorization": head["Authorization"]})


# --- browsers, through a proxy ----------------------------------------------------------------------------------------


async def test_a_token_of_the_issuer_makes_no_session(lone_oidc: Asked, host: IssuerHost) -> None:
    """A session ends with its token, which nobody can revoke here: so a browser gets its token from a proxy."""
    form = {"token": host.token()}
    answer = await lone_oidc.client.post("/signin", data=form, headers={"Origin": "http://localhost"})
    assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)


async def test_a_proxy_signs_people_in_to_the_pages(lone_oidc: Asked, host: IssuerHost) -> None:
    """It sends their token with each request. Without one, or with a bad one, nobody sees a page."""
    page = await lone_oidc.get("/", headers=bearer(host.token()))
    assert page.status_code == 200
    assert "anna · admin" in page.text
    assert 'action="/signout"' not in page.text, "signing out is the proxy's"
    assert (await lone_oidc.get("/")).status_code == 303
    bad = await lone_oidc.get("/", headers=bearer(host.token(exp=1)))
    assert bad.status_code == 401
    assert "WWW-Authenticate" not in bad.headers


async def test_a_form_behind_a_proxy_needs_its_seal_and_our_origin(host: IssuerHost, store_url: str) -> None:
    """The proxy adds the token to whatever the browser sends, also to what a page of somebody else made it send."""
    async with asking(store_url, issuer=Issuer(host.settings(), Clock())) as asked:
        head = bearer(host.token())
        named = {**head, "Holdfast-Namespace": "default"}
        start = {"workflow": "shop.count", "input": {"a": 1}, "id": "r"}
        assert (await asked.post("/v1/runs", start, headers=named)).is_success
        page = (await asked.get("/do/v1/runs/r/hold", headers=head)).text
        found = re.search(r'name="seal" value="([0-9a-f]+)"', page)
        assert found is not None
        origin = {"Origin": "http://localhost"}

        async def sent(seal: str, **more: str) -> int:
            answer = await asked.client.post(
                "/do/v1/runs/r/hold", data={"seal": seal, "note": "x"}, headers={**head, **more}
            )
            return answer.status_code

        assert await sent("0" * 32, **origin) == 403
        assert await sent(found[1]) == 403
        assert await sent(found[1], Origin="https://evil.example") == 403
        assert await sent(found[1], **origin, **{"Sec-Fetch-Site": "cross-site"}) == 403
        other = bearer(host.token(sub="8"))
        assert await sent(found[1], **origin, Authorization=other["Authorization"]) == 403, "another's seal"
        assert await sent(found[1], **origin) in {200, 303}
        # Another server of the store, and the next token of the same person, know the seal.
        async with asking(store_url, issuer=Issuer(host.settings(), Clock())) as second:
            page = (await second.get("/do/v1/runs/r/release", headers=bearer(host.token(jti="2")))).text
            assert found[1] in page


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}],
    ids=str,
)
async def test_a_page_of_somebody_else_cannot_use_the_api_through_a_proxy(
    lone_oidc: Asked, host: IssuerHost, headers: dict[str, str]
) -> None:
    """The proxy would add the token there, too."""
    given = {**bearer(host.token()), "Holdfast-Namespace": "default", **headers}
    assert (await lone_oidc.get("/v1/runs", headers=given)).status_code == 403
    start = {"workflow": "shop.count", "input": {"a": 1}}
    assert (await lone_oidc.post("/v1/runs", start, headers=given)).status_code == 403


# --- as a server --------------------------------------------------------------------------------------------------------


async def test_a_server_takes_its_issuer_from_a_file(
    host: IssuerHost, tmp_path: Path, store_url: str
) -> None:
    """On a socket, and on any address, though the store has no token: nobody gets in without one of the issuer's."""
    file = tmp_path / "settings.toml"
    file.write_text(
        f'[oidc]\nissuer = "{host.url}"\naudience = "{AUDIENCE}"\nallow = ["127.0.0.1"]\n'
        '[[oidc.grants]]\nwhen = { groups = "acme-eyes" }\nrole = "viewer"\n'
    )
    async with (
        Holdfast(store_url, roles=(), config=FAST) as hf,
        serving(hf, hf.desk, Address("0.0.0.0", 0, oidc=str(file))) as url,
        httpx2.AsyncClient(base_url=url.replace("0.0.0.0", "127.0.0.1")) as client,
    ):
        assert (await client.get("/v1/me")).status_code == 401
        assert (await client.get("/v1/me", headers=bearer(host.token()))).status_code == 401
        found = await client.get("/v1/me", headers=bearer(host.token("acme-eyes")))
        assert found.json()["role"] == "viewer"


async def test_a_program_uses_a_token_of_the_issuer(host: IssuerHost, tmp_path: Path, store_url: str) -> None:
    """As HOLDFAST_TOKEN. The run says who started it."""
    file = tmp_path / "settings.json"
    grants = [{"role": "operator"}]
    settings = {"issuer": host.url, "audience": AUDIENCE, "allow": ["127.0.0.1"], "grants": grants}
    file.write_text(json.dumps({"oidc": {**settings, "person": "preferred_username"}}))
    async with (
        Holdfast(store_url, roles=(), config=FAST) as hf,
        serving(hf, hf.desk, Address("127.0.0.1", 0, oidc=str(file))) as url,
    ):
        async with Holdfast(url, token=host.token()) as remote:
            run = await remote.start(flows.count.using(id="r"), 1)
            assert (await run.view()).run.tags["$by"] == "person:anna"
        with pytest.raises(Unauthenticated):
            async with Holdfast(url, token=host.token(exp=1)):
                pass


async def test_refusals_say_nothing_about_the_token(
    lone_oidc: Asked, host: IssuerHost, caplog: pytest.LogCaptureFixture
) -> None:
    """What is in a token is neither in an answer, nor on a page, nor in the log, nor in the figures."""
    caplog.set_level(logging.DEBUG)
    canary = "canary-7f3a"
    tokens = [host.token(sub=canary, exp=1), host.token(preferred_username=canary, groups=[canary])]
    tokens.append(signed(host.claims(sub=canary), {"alg": "RS256", "kid": canary}))
    host.body = f'{{"issuer": "{canary}"}}'.encode()
    for token in tokens:
        for path in ("/v1/me", "/", "/v1/runs", "/metrics"):
            answer = await lone_oidc.get(path, headers=bearer(token))
            assert answer.status_code == 401
            said = answer.text + str(answer.headers) + caplog.text
            assert canary not in said
            assert token not in said
            assert token.rpartition(".")[2] not in said
    text = await lone_oidc.server.metrics()
    assert canary not in text
