"""Signed texts, which say something that only a holder of the key could write: links to people. Nothing about them is
stored."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence

import msgspec

KEY_BYTES, MAC_BYTES = 32, 16
_FORM = re.compile(r"([A-Za-z0-9_-]{1,2000})\.([a-z0-9]{1,20})\.([A-Za-z0-9_-]{22})")
_NO_KEY = bytes(KEY_BYTES)
"""What is tried for an unknown key, so that it takes as long as a known one."""


def digest(key: bytes, purpose: str, content: bytes) -> bytes:
    """Return the keyed digest of something that is signed for this purpose. No purpose accepts what another signed."""
    return hashlib.blake2b(content, digest_size=MAC_BYTES, key=key, person=purpose.encode()[:16]).digest()


def signed(keys: Mapping[str, bytes], purpose: str, parts: Sequence[str]) -> str:
    """Return these parts as one text that can stand in a path, signed by the first key."""
    name, key = next(iter(keys.items()))
    content = msgspec.json.encode(list(parts))
    return f"{_text(content)}.{name}.{_text(digest(key, purpose, content))}"


def opened(keys: Mapping[str, bytes], purpose: str, text: str) -> tuple[str, ...] | None:
    """Return the parts of a signed text. None if it is anything else: another form, another key, another purpose."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    try:
        content, mac = _bytes(found[1]), _bytes(found[3])
    except (binascii.Error, ValueError):
        return None
    is_good = hmac.compare_digest(digest(keys.get(found[2], _NO_KEY), purpose, content), mac)
    if not is_good or found[2] not in keys or _text(mac) != found[3] or _text(content) != found[1]:
        return None  # of the spellings of one content, only the one that `signed` wrote is good
    return msgspec.json.decode(content, type=tuple[str, ...])


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
