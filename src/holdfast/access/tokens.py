"""Tokens: `hf_ROLE_ID_SECRET`. The id is 96 bits in hex; the secret is 256 bits and a checksum, so that a scanner finds
tokens in files and a typo is noticed without asking anybody. Stores have the SHA-256 of the secret: a secret of 256
random bits needs no slow hash.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import zlib
from typing import NamedTuple

import msgspec

from holdfast.access.identity import ALL_NAMESPACES, EVENTS, LABELS, STEPS, WORKFLOWS, Identity, Kind
from holdfast.access.roles import Role
from holdfast.errors import InvalidInput
from holdfast.model import TokenRow
from holdfast.namespaces import is_namespace
from holdfast.questions import is_person, is_who

PREFIX = "hf"
ID_BYTES, SECRET_BYTES = 12, 32
SECRET_CHARS, CHECK_CHARS = 43, 6
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_FORM = re.compile(
    rf"{PREFIX}_({'|'.join(Role)})_([0-9a-f]{{{2 * ID_BYTES}}})_([0-9A-Za-z]{{{SECRET_CHARS + CHECK_CHARS}}})"
)
_CAN = re.compile(rf"(?:{WORKFLOWS}|{STEPS}|{LABELS}|{EVENTS})[A-Za-z0-9_.*?<>\[\]-]{{1,200}}")
_NOBODY = hashlib.sha256(b"nobody").digest()
"""What the secret of an unknown token is compared with, so that it takes as long as that of a known one."""


class TokenText(NamedTuple):
    """What a token's text says."""

    role: Role
    id: str
    secret: str

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(self.secret.encode()).digest()

    @property
    def text(self) -> str:
        head = f"{PREFIX}_{self.role}_{self.id}_{self.secret}"
        return head + _check(head)


def make(role: Role, id_bytes: bytes, secret_bytes: bytes) -> TokenText:
    """Return a new token from random bytes."""
    assert len(id_bytes) == ID_BYTES
    assert len(secret_bytes) == SECRET_BYTES
    return TokenText(role, id_bytes.hex(), _base62(int.from_bytes(secret_bytes, "big"), SECRET_CHARS))


def read(text: str) -> TokenText | None:
    """Return what the text says. None if it is no token: another form, or a checksum that does not fit."""
    found = _FORM.fullmatch(text)
    if found is None or not hmac.compare_digest(
        _check(text[:-CHECK_CHARS]).encode(), text[-CHECK_CHARS:].encode()
    ):
        return None
    return TokenText(Role(found[1]), found[2], found[3][:-CHECK_CHARS])


def is_good(token: TokenText, row: TokenRow | None, now: float) -> bool:
    """True if the token is the one of this row, and is neither revoked nor expired. It takes the same time whether or
    not there is such a row."""
    given = token.digest
    fits = hmac.compare_digest(given, _NOBODY if row is None else row.digest)
    old = _NOBODY if row is None or row.old_digest is None else row.old_digest
    fits_old = hmac.compare_digest(given, old)
    if row is None or row.revoked_at is not None or row.role != token.role:
        return False
    if row.expires_at is not None and row.expires_at <= now:
        return False
    return fits or (fits_old and row.old_until is not None and now < row.old_until)


def was_theirs(token: TokenText, row: TokenRow) -> bool:
    """True if the token has a secret of this row, good or not."""
    return hmac.compare_digest(token.digest, row.digest) or (
        row.old_digest is not None and hmac.compare_digest(token.digest, row.old_digest)
    )


def identity_of(row: TokenRow) -> Identity:
    return Identity(
        Kind.TOKEN,
        row.id,
        row.name,
        Role(row.role),
        frozenset(msgspec.json.decode(row.namespaces, type=list[str])),
        can=tuple(msgspec.json.decode(row.can, type=list[str])),
        payloads=row.payloads,
        who=tuple(msgspec.json.decode(row.who, type=list[str])),
    )


def namespaces(given: tuple[str, ...]) -> str:
    """Return the namespaces of a token, as a row has them. Raise InvalidInput for what is no namespace."""
    for one in given:
        if one != ALL_NAMESPACES and not is_namespace(one):
            raise InvalidInput(
                f"{one!r} cannot be a namespace: it needs 1 to 100 letters, digits, dots, dashes or underscores, "
                f"or {ALL_NAMESPACES} for all"
            )
    return msgspec.json.encode(sorted(set(given))).decode()


def narrowed(given: tuple[str, ...]) -> str:
    """Return what a token is narrowed to, as a row has it. Raise InvalidInput for what means nothing."""
    for one in given:
        if _CAN.fullmatch(one) is None:
            raise InvalidInput(
                f"{one!r} narrows nothing: write {WORKFLOWS}NAME, {EVENTS}TYPE, {STEPS}NAME or {LABELS}NAME, with * for any "
                f"characters: {WORKFLOWS}shop.*"
            )
    return msgspec.json.encode(sorted(set(given))).decode()


def borne_by(given: tuple[str, ...], role: str) -> str:
    """Return the person who bears a token, and their teams, as a row has them. Raise InvalidInput for anything else."""
    for one in given:
        if not is_who(one):
            raise InvalidInput(f"{one!r} is neither a person nor a team: write person:NAME or team:NAME")
    people = [one for one in given if is_person(one)]
    if len(people) > 1:
        raise InvalidInput(f"a token is for one person, not for {', '.join(people)}")
    if role == Role.ANSWERER and not people:
        raise InvalidInput("a token that answers needs the person who bears it: person:NAME")
    return msgspec.json.encode(sorted(set(given))).decode()


def _check(head: str) -> str:
    return _base62(zlib.crc32(head.encode()), CHECK_CHARS)


def _base62(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
