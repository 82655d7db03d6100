"""Webhooks over HTTP: what a good sender sends becomes an event once, and nobody learns what is wrong with another."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from standardwebhooks import Webhook

from holdfast.access import Role
from tests.http.conftest import Asked, bearer, made_token

BODY = json.dumps({"type": "invoice.paid", "id": "evt_1", "data": {"cents": 900}}).encode()


async def made(asked: Asked, scheme: str, name: str = "billing", **more: str) -> Any:
    answer = await asked.post("/v1/hooks", {"name": name, "scheme": scheme, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


def standard(secret: str, body: bytes, name: str = "msg_1", ago_s: float = 0) -> dict[str, str]:
    at = datetime.now(UTC) - timedelta(seconds=ago_s)
    made = Webhook(secret).sign(name, at, body.decode())
    return {"webhook-id": name, "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": made}


async def send(asked: Asked, path: str, headers: dict[str, str], body: bytes = BODY) -> httpx2.Response:
    return await asked.client.post(
        path, content=body, headers={"Content-Type": "application/json", **headers}
    )


async def events(asked: Asked) -> list[Any]:
    found: list[Any] = (await asked.get("/v1/events")).json()["items"]
    return found


async def test_a_standard_webhook_becomes_an_event_once(quiet: Asked) -> None:
    """Signed by the package `standardwebhooks`. The type has the hook's name before it, and the id is the sender's."""
    hook = await made(quiet, "standard")
    assert hook["hook"]["path"] == "/v1/in/billing"
    headers = standard(hook["secret"], BODY)
    first = await send(quiet, "/v1/in/billing", headers)
    again = await send(quiet, "/v1/in/billing", headers)
    assert (first.status_code, first.json(), again.json()) == (202, {"new": True}, {"new": False})
    (event,) = await events(quiet)
    assert (event["type"], event["source"], event["id"]) == ("billing.invoice.paid", "hook:billing", "msg_1")
    assert event["actor"] == "hook billing"
    whole = (await quiet.get("/v1/events/hook:billing/msg_1")).json()
    assert whole["data"] == json.loads(BODY)


async def test_github_stripe_and_a_plain_signature(quiet: Asked) -> None:
    secrets = {
        scheme: (await made(quiet, scheme, scheme))["secret"].encode()
        for scheme in ("github", "stripe", "hmac")
    }
    hexed = hmac.new(secrets["github"], BODY, hashlib.sha256).hexdigest()
    headers = {"X-Hub-Signature-256": f"sha256={hexed}", "X-GitHub-Event": "push", "X-GitHub-Delivery": "d-1"}
    assert (await send(quiet, "/v1/in/github", headers)).json() == {"new": True}
    replayed = headers | {"X-GitHub-Delivery": "d-2"}
    assert (await send(quiet, "/v1/in/github", replayed)).json() == {"new": False}
    at = int(time.time())
    signed = hmac.new(secrets["stripe"], f"{at}.".encode() + BODY, hashlib.sha256).hexdigest()
    assert (await send(quiet, "/v1/in/stripe", {"Stripe-Signature": f"t={at},v1={signed}"})).json() == {
        "new": True
    }
    coded = base64.b64encode(hmac.digest(secrets["hmac"], b"hello", "sha256")).decode()
    text = {"X-Signature": coded, "Content-Type": "text/plain"}
    assert (await send(quiet, "/v1/in/hmac", text, b"hello")).json() == {"new": True}
    digest = hashlib.sha256(BODY).hexdigest()
    found = {(one["type"], one["id"]) for one in await events(quiet)}
    assert found == {
        ("github.push", digest),
        ("stripe.invoice.paid", "evt_1"),
        ("hmac.received", hashlib.sha256(b"hello").hexdigest()),
    }
    github = (await quiet.get(f"/v1/events/hook:github/{digest}")).json()
    assert github["attributes"] == {"delivery": "d-1"}


async def test_what_is_wrong_nobody_learns(quiet: Asked) -> None:
    """An unknown hook, a bad signature, an old one and one of another hook are refused in the same bytes."""
    secret = (await made(quiet, "standard"))["secret"]
    other = (await made(quiet, "standard", "other"))["secret"]
    good = standard(secret, BODY)
    tries = [
        ("/v1/in/nobody", good),
        ("/v1/in/~bm90LXV0Zi3_", good),
        ("/v1/in/" + "x" * 300, good),
        ("/v1/in/billing", {}),
        ("/v1/in/billing", good | {"webhook-id": "msg_2"}),
        ("/v1/in/billing", standard(other, BODY)),
        ("/v1/in/billing", standard(secret, BODY, ago_s=400)),
        ("/v1/in/billing", standard(secret, BODY, ago_s=-400)),
    ]
    found = [await send(quiet, *one) for one in tries]
    assert {answer.status_code for answer in found} == {401}
    shown = {re.sub(r'"instance":"[^"]*",?', "", answer.text) for answer in found}
    assert len(shown) == 1, shown
    kept = {frozenset(name for name in answer.headers if name != "holdfast-request") for answer in found}
    assert len(kept) == 1
    assert await events(quiet) == []


async def test_two_secrets_are_good_while_one_is_rotated(quiet: Asked) -> None:
    first = (await made(quiet, "standard"))["secret"]
    second = (await quiet.post("/v1/hooks/billing/rotate", {"grace_s": 60})).json()["secret"]
    for number, secret in enumerate((first, second)):
        assert (await send(quiet, "/v1/in/billing", standard(secret, BODY, f"m{number}"))).status_code == 202
    third = (await quiet.post("/v1/hooks/billing/rotate", {"grace_s": 0})).json()["secret"]
    statuses = [
        (await send(quiet, "/v1/in/billing", standard(secret, BODY, f"n{number}"))).status_code
        for number, secret in enumerate((first, second, third))
    ]
    assert statuses == [401, 401, 202]
    assert (await quiet.post("/v1/hooks/billing/remove")).json() == {"removed": True}
    assert (await send(quiet, "/v1/in/billing", standard(third, BODY, "last"))).status_code == 401


async def test_a_verified_body_that_cannot_be_an_event_is_refused(quiet: Asked) -> None:
    secret = (await made(quiet, "standard"))["secret"]
    for number, body in enumerate((b"{", b'{"type": "a b"}', b'{"a": 1, "a": 2}')):
        answer = await send(quiet, "/v1/in/billing", standard(secret, body, f"m{number}"), body)
        assert answer.status_code in {400, 422}, (body, answer.text)
    assert await events(quiet) == []
    large = b" " * (quiet.hf.config.payload_max_bytes + 100_000)
    assert (await send(quiet, "/v1/in/billing", {}, large)).status_code == 413


async def test_a_hook_starts_runs_in_its_own_namespace(quiet: Asked) -> None:
    token = bearer(await made_token(quiet.hf, Role.OPERATOR, "acme"))
    answer = await quiet.post("/v1/hooks", {"name": "billing", "scheme": "standard"}, headers=token)
    path, secret = answer.json()["hook"]["path"], answer.json()["secret"]
    assert path == "/v1/in/~YWNtZS8vYmlsbGluZw"
    assert (await send(quiet, path, standard(secret, BODY))).status_code == 202
    assert len((await quiet.get("/v1/events", headers=token)).json()["items"]) == 1
    assert (await send(quiet, "/v1/in/billing", standard(secret, BODY))).status_code == 401
    viewer = bearer(await made_token(quiet.hf, Role.VIEWER, "acme"))
    (listed,) = (await quiet.get("/v1/hooks", headers=viewer)).json()["items"]
    assert (listed["name"], listed["scheme"]) == ("billing", "standard")
    assert secret not in json.dumps(listed)
    assert (await quiet.post("/v1/hooks/billing/rotate", headers=viewer)).status_code == 403


@pytest.mark.parametrize(
    "body",
    [
        {"name": "Upper", "scheme": "github"},
        {"name": "a/b", "scheme": "github"},
        {"name": "x", "scheme": "md5"},
        {"name": "x", "scheme": "github", "header": "X-Mine"},
        {"name": "x", "scheme": "standard", "secret": "whsec_????"},
        {"name": "x", "scheme": "hmac", "header": "a b"},
    ],
)
async def test_what_cannot_be_a_hook_is_refused(lone: Asked, body: dict[str, str]) -> None:
    assert (await lone.post("/v1/hooks", body)).status_code == 422
    assert (await lone.get("/v1/hooks")).json() == {"items": []}


async def test_a_hook_is_made_once(lone: Asked) -> None:
    await made(lone, "github")
    again = await lone.post("/v1/hooks", {"name": "billing", "scheme": "github"})
    assert again.status_code == 409
    assert (await lone.post("/v1/hooks/nobody/rotate")).status_code == 404
