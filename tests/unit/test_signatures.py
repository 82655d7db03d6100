"""The signatures of webhooks: what their senders make is accepted, and nothing else is."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from holdfast.access.signatures import APART_S, NOBODY, Scheme, Signed, new_secret, read_secret, verified
from holdfast.errors import InvalidInput

NOW = 1_800_000_000.0
BODY = json.dumps({"type": "invoice.paid", "id": "evt_1", "data": {"cents": 900}}).encode()
KEY = bytes(range(32))
TEXT = f"whsec_{base64.b64encode(KEY).decode()}"
Sign = Callable[[bytes, bytes, float], dict[str, str]]


def standard(key: bytes, body: bytes, at: float) -> dict[str, str]:
    """Sign as the package `standardwebhooks` does."""
    when = datetime.fromtimestamp(at, UTC)
    made = Webhook(base64.b64encode(key).decode()).sign("msg_1", when, body.decode("latin-1"))
    return {"webhook-id": "msg_1", "webhook-timestamp": str(int(at)), "webhook-signature": made}


def github(key: bytes, body: bytes, at: float) -> dict[str, str]:
    return {"x-hub-signature-256": f"sha256={hmac.new(key, body, hashlib.sha256).hexdigest()}"}


def stripe(key: bytes, body: bytes, at: float) -> dict[str, str]:
    made = hmac.new(key, f"{int(at)}.".encode() + body, hashlib.sha256).hexdigest()
    return {"stripe-signature": f"t={int(at)},v1={made},v0=old"}


def plain(key: bytes, body: bytes, at: float) -> dict[str, str]:
    return {"x-signature": base64.b64encode(hmac.digest(key, body, "sha256")).decode()}


SIGNERS: dict[Scheme, Sign] = {
    Scheme.STANDARD: standard,
    Scheme.GITHUB: github,
    Scheme.STRIPE: stripe,
    Scheme.HMAC: plain,
}
TIMED = (Scheme.STANDARD, Scheme.STRIPE)


@pytest.mark.parametrize("scheme", Scheme)
def test_what_the_sender_signs_is_good(scheme: Scheme) -> None:
    """With the secret that it has, and with the one before while that is good."""
    headers = SIGNERS[scheme](KEY, BODY, NOW)
    signed = Signed("msg_1" if scheme is Scheme.STANDARD else None, NOW if scheme in TIMED else None)
    assert verified(scheme, [KEY], headers, BODY, NOW) == signed
    assert verified(scheme, [b"another", KEY], headers, BODY, NOW) == signed
    assert verified(scheme, [b"another"], headers, BODY, NOW) is None
    assert verified(scheme, [], headers, BODY, NOW) is None
    assert verified(scheme, [KEY], {}, BODY, NOW) is None
    assert verified(scheme, [KEY], headers, BODY + b" ", NOW) is None


@pytest.mark.parametrize("scheme", TIMED)
def test_an_old_signature_is_not_good(scheme: Scheme) -> None:
    """Nor one from a clock that is far ahead. Without a time there is none."""
    for at, is_good in (
        (NOW - APART_S, True),
        (NOW + APART_S, True),
        (NOW - APART_S - 1, False),
        (NOW + APART_S + 1, False),
    ):
        found = verified(scheme, [KEY], SIGNERS[scheme](KEY, BODY, at), BODY, NOW)
        assert (found is not None) is is_good, at


def test_a_time_that_is_none_is_refused() -> None:
    content = b"msg_1.soon." + BODY
    made = base64.b64encode(hmac.digest(KEY, content, "sha256")).decode()
    headers = {"webhook-id": "msg_1", "webhook-timestamp": "soon", "webhook-signature": f"v1,{made}"}
    assert verified(Scheme.STANDARD, [KEY], headers, BODY, NOW) is None


def test_one_of_several_signatures_is_enough() -> None:
    """A sender that rotates its secret signs with both. More than a few are not looked at."""
    good = standard(KEY, BODY, NOW)
    other = standard(b"x" * 32, BODY, NOW)["webhook-signature"]
    both = good | {"webhook-signature": f"{other} {good['webhook-signature']} v1a,else"}
    assert verified(Scheme.STANDARD, [KEY], both, BODY, NOW) is not None
    many = good | {"webhook-signature": " ".join([other] * 20 + [good["webhook-signature"]])}
    assert verified(Scheme.STANDARD, [KEY], many, BODY, NOW) is None


def test_a_plain_signature_may_be_hex_under_a_header_of_its_own() -> None:
    made = hmac.digest(KEY, BODY, "sha256")
    for text in (made.hex(), f"sha256={made.hex()}", made.hex().upper(), base64.b64encode(made).decode()):
        assert verified(Scheme.HMAC, [KEY], {"x-mine": text}, BODY, NOW, "X-Mine") is not None, text
        assert verified(Scheme.HMAC, [KEY], {"x-mine": text}, BODY, NOW) is None


@pytest.mark.parametrize("scheme", Scheme)
def test_the_stand_in_for_a_secret_signs_nothing(scheme: Scheme) -> None:
    """It is compared with so that a hook without a second secret, or without any, is refused after the same work. Everybody can
    read it in the source."""
    headers = SIGNERS[scheme](NOBODY, BODY, NOW)
    for secrets in ([], [KEY], [KEY, b"another"]):
        assert verified(scheme, secrets, headers, BODY, NOW) is None


def test_of_ten_thousand_forged_signatures_none_is_accepted() -> None:
    """Each is a good delivery of which something was changed: a bit of the signature or of the body, the id, the time, the
    scheme of another, a cut or emptied header."""
    dice = random.Random(7)
    accepted = tried = 0
    for number in range(10_000):
        scheme = dice.choice(list(Scheme))
        body = json.dumps({"type": "invoice.paid", "n": number}).encode()
        headers = SIGNERS[scheme](KEY, body, NOW)
        headers, body = forged_delivery(dice, headers, body)
        tried += 1
        accepted += verified(scheme, [KEY], headers, body, NOW) is not None
    assert (tried, accepted) == (10_000, 0)


def forged_delivery(
    dice: random.Random, headers: dict[str, str], body: bytes, now: float = NOW
) -> tuple[dict[str, str], bytes]:
    """Return a good delivery of which something was changed."""
    signature = next(name for name in headers if "signature" in name)
    text = headers[signature]
    how = dice.choice(("body", "bit", "cut", "empty", "missing", "key", "stand-in", "id", "text"))
    if how == "body" or (how == "id" and "webhook-id" not in headers):
        at = dice.randrange(len(body))
        return headers, body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
    if how == "id":
        return headers | {"webhook-id": "msg_2"}, body
    if how == "missing":
        return {name: value for name, value in headers.items() if name != signature}, body
    if how in {"key", "stand-in"}:
        key = NOBODY if how == "stand-in" else b"k" * 32
        return next(
            made for made in (SIGNERS[one](key, body, now) for one in Scheme) if made.keys() == headers.keys()
        ), body
    if how == "bit":
        spots = [
            i
            for i, mark in enumerate(text)
            if mark in "0123456789abcdef" and i > len(text) - 30 and i < len(text) - 9
        ]
        at = dice.choice(spots or [len(text) - 12])
        text = text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :]
    elif how == "cut":
        text = text[: dice.randrange(len(text) - 10)]
    else:
        text = (
            "" if how == "empty" else dice.choice(("null", "v1,", "sha256=", "t=1,v1=", "é" * 64, "0" * 64))
        )
    return headers | {signature: text}, body


@pytest.mark.parametrize("scheme", Scheme)
def test_a_new_secret_can_be_read(scheme: Scheme) -> None:
    text = new_secret(scheme, KEY)
    assert read_secret(scheme, f"{text}\n") == (KEY if scheme is Scheme.STANDARD else KEY.hex().encode())
    assert read_secret(Scheme.STANDARD, TEXT) == KEY


@pytest.mark.parametrize(
    ("scheme", "text"),
    [
        (Scheme.STANDARD, "whsec_???"),
        (Scheme.STANDARD, "whsec_c2hvcnQ="),
        (Scheme.GITHUB, "short"),
        (Scheme.STRIPE, "with\nlines in it"),
        (Scheme.HMAC, "é" * 10),
        (Scheme.HMAC, "x" * 501),
    ],
)
def test_what_cannot_be_a_secret_is_refused(scheme: Scheme, text: str) -> None:
    with pytest.raises(InvalidInput, match="secret: expected"):
        read_secret(scheme, text)
