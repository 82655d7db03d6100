"""The signatures of webhooks: Standard Webhooks, GitHub's, Stripe's, and a plain HMAC. Pure: the raw body, the headers and the
secrets in, who signed what out.

A signature is compared in constant time, with every secret that is good now, and with a stand-in where there is none: so a
hook that does not exist is refused after the same work as a wrong signature. What is not signed identifies nothing: the id of a
delivery comes from what the signature covers, or else is a digest of the body.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from holdfast.errors import InvalidInput

SECRET_BYTES = 32
APART_S = 300.0
"""How far the time in a signature may be from ours, in either direction."""
GIVEN_MAX = 8
"""How many signatures one delivery may carry."""
PREFIX = "whsec_"
HEADER = "x-signature"
NOBODY = b"there is no such hook"
"""Stands where a hook has no secret, or no second one. What it signs is never good."""


class Scheme(StrEnum):
    """How a sender signs."""

    STANDARD = "standard"
    GITHUB = "github"
    STRIPE = "stripe"
    HMAC = "hmac"


class Signed(NamedTuple):
    """What a good signature covers, besides the body."""

    id: str | None
    """The id of the delivery. None if the signature covers none."""
    at: float | None
    """When it was signed. None if the signature does not say."""


class _Claim(NamedTuple):
    """What a delivery says about its signature."""

    content: bytes
    """What was signed."""
    given: list[bytes]
    signed: Signed


def verified(
    scheme: Scheme,
    secrets: Sequence[bytes],
    headers: Mapping[str, str],
    body: bytes,
    now: float,
    header: str = HEADER,
) -> Signed | None:
    """Return what is signed if one of the signatures is made with one of the secrets and is not too old. None otherwise."""
    claim = _claim(scheme, headers, body, header)
    is_good = False
    for secret, is_theirs in [*((one, True) for one in secrets), (NOBODY, False), (NOBODY, False)][:2]:
        made = hmac.new(secret, claim.content, hashlib.sha256).digest()
        for given in claim.given:
            is_good |= hmac.compare_digest(made, given) and is_theirs
    if not is_good:
        return None
    at = claim.signed.at
    if scheme in {Scheme.STANDARD, Scheme.STRIPE} and (at is None or abs(now - at) > APART_S):
        return None
    return claim.signed


def _claim(scheme: Scheme, headers: Mapping[str, str], body: bytes, header: str) -> _Claim:
    if scheme is Scheme.STANDARD:
        name, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        given = [one[3:] for one in headers.get("webhook-signature", "").split() if one.startswith("v1,")]
        content = f"{name}.{at}.".encode() + body
        return _Claim(content, _each(given, _from_base64), Signed(name or None, _time(at)))
    if scheme is Scheme.STRIPE:
        parts = [one.strip().partition("=") for one in headers.get("stripe-signature", "").split(",")]
        at = next((value for name, _, value in parts if name == "t"), "")
        given = [value for name, _, value in parts if name == "v1"]
        return _Claim(f"{at}.".encode() + body, _each(given, _from_hex), Signed(None, _time(at)))
    if scheme is Scheme.GITHUB:
        text = headers.get("x-hub-signature-256", "")
        given = [text.removeprefix("sha256=")] if text.startswith("sha256=") else []
        return _Claim(body, _each(given, _from_hex), Signed(None, None))
    text = headers.get(header.lower(), "").strip()
    text = text.removeprefix("sha256=")
    made = _from_hex(text) or _from_base64(text)
    return _Claim(body, [made] if made else [], Signed(None, None))


def _each(given: Sequence[str], read: Callable[[str], bytes | None]) -> list[bytes]:
    return [made for one in given[:GIVEN_MAX] if (made := read(one)) is not None]


def _from_hex(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text) if len(text) == 64 and text.isalnum() else None
    except ValueError:
        return None


def _from_base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _time(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() and len(text) <= 12 else None


# --- secrets ----------------------------------------------------------------------------------------------------------


def new_secret(scheme: Scheme, random: bytes) -> str:
    """Return a secret as people copy it."""
    assert len(random) == SECRET_BYTES
    coded = base64.b64encode(random).decode()
    return f"{PREFIX}{coded}" if scheme is Scheme.STANDARD else random.hex()


def read_secret(scheme: Scheme, text: str) -> bytes:
    """Return the bytes of a secret with which a signature is made. Raise InvalidInput if it cannot be one."""
    text = text.strip()
    if scheme is not Scheme.STANDARD:
        if not 8 <= len(text) <= 500 or not text.isascii() or not text.isprintable():
            raise InvalidInput("secret: expected 8 to 500 printable ASCII characters")
        return text.encode()
    made = _from_base64(text.removeprefix(PREFIX))
    if made is None or not 16 <= len(made) <= 128:
        raise InvalidInput(
            f"secret: expected {PREFIX} and 16 to 128 bytes in base64, as Standard Webhooks write it"
        )
    return made
