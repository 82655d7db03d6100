"""Keys that seal payloads: AES-256-GCM, at whoever has the keys.

A sealed payload is JSON like any other: `{"$sealed": "KEY.TEXT"}`, with the key's id, and a nonce and the encrypted text in
base64. So a process without keys stores it, passes it on and shows it without knowing what it says.

`HOLDFAST_KEYS` has the keys of a process, as `ID:BASE64` separated by commas or lines, or `HOLDFAST_KEYS_FILE` names a file
with them. The first one seals, and all of them open. So a key is changed by putting a new one in front.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from holdfast.errors import InvalidSettings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Chance: TypeAlias = Callable[[int], bytes]
"""Returns as many bytes as it is asked for, which nobody can guess: `Environment.secret`."""
KEYS = "HOLDFAST_KEYS"
KEYS_FILE = "HOLDFAST_KEYS_FILE"
KEY_BYTES = 32
NONCE_BYTES = 12
DIGEST_BYTES = 16
"""What `codec.digest` makes, and the size of an AES block."""
_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
HEAD = b'{"$sealed":"'
"""A sealed payload begins with this."""
_TAIL = b'"}'
_SEALED = re.compile(rb'\{"\$sealed":"[a-z0-9_-]{1,32}\.[A-Za-z0-9+/=]+"\}')
_BOUND = b"holdfast payload 1"
"""Is authenticated with each payload, so that a text that was encrypted for something else is not taken for one."""
_DIGEST = b"\x01"
"""A sealed digest begins with this. It is a byte longer than one that is not."""


class Key:
    """One key, by its id. It never shows what it is."""

    __slots__ = ("_chance", "_cipher", "id")

    def __init__(self, id: str, secret: bytes, chance: Chance) -> None:
        self.id = id
        self._chance = chance
        self._cipher = _cipher(secret)

    def __repr__(self) -> str:
        return f"<key {self.id}>"

    def seal(self, raw: bytes) -> bytes:
        nonce = self._chance(NONCE_BYTES)
        text = base64.b64encode(nonce + self._cipher.encrypt(nonce, raw, _BOUND))
        return b"".join((HEAD, self.id.encode(), b".", text, _TAIL))

    def open(self, text: bytes) -> bytes | None:
        """Return what was sealed, or None if this key did not seal it, or somebody changed it."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  loaded with the cipher

        try:
            whole = base64.b64decode(text, validate=True)
            return self._cipher.decrypt(whole[:NONCE_BYTES], whole[NONCE_BYTES:], _BOUND)
        except (binascii.Error, InvalidTag, ValueError):
            return None


class Keyring:
    """The keys of a process. The first one seals."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys = {key.id: key for key in keys}
        self.first = next(iter(self._keys.values()))

    @property
    def ids(self) -> list[str]:
        return list(self._keys)

    def seal(self, raw: bytes) -> bytes:
        """Seal a payload. What looks sealed is sealed like anything else: a caller may have copied it from somewhere,
        and must not learn what it says."""
        return self.first.seal(raw)

    def open(self, raw: bytes) -> bytes:
        """Return what was sealed. What is not sealed, or is sealed with a key that is not here, comes back as it is:
        `codec` says so to whoever reads it."""
        key_id = sealed_by(raw)
        key = None if key_id is None else self._keys.get(key_id)
        if key is None:
            return self._open_parts(raw) if key_id is None and HEAD in raw else raw
        found = key.open(raw[len(HEAD) + len(key.id) + 1 : -len(_TAIL)])
        return raw if found is None else found

    def _open_parts(self, raw: bytes) -> bytes:
        """Open what is sealed inside a text that the store has put together, such as the answers of several people. What
        callers send is sealed as a whole, so nothing in it is opened here."""
        return _SEALED.sub(lambda found: self.open(found[0]), raw)


class DigestKey:
    """Hides digests of inputs. A digest has the size of one AES block, so it is encrypted as one: equal digests stay
    equal, which is all that a replay asks of them, and nobody without the key can try out what the input was.

    A store has one, whatever key seals its payloads. If it changed with them, every open run would seem to have another
    input.
    """

    def __init__(self, secret: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415  few need it

        self._cipher = Cipher(algorithms.AES(secret), modes.ECB())  # noqa: S305  one block, never the same block twice for different texts

    def seal(self, digest: bytes) -> bytes:
        if len(digest) != DIGEST_BYTES:
            return digest
        return _DIGEST + self._cipher.encryptor().update(digest)

    def open(self, digest: bytes) -> bytes:
        if len(digest) != DIGEST_BYTES + 1 or not digest.startswith(_DIGEST):
            return digest
        return self._cipher.decryptor().update(digest[1:])


def sealed_by(raw: bytes) -> str | None:
    """Return the id of the key that sealed this payload, or None if it is not sealed."""
    if not raw.startswith(HEAD) or not raw.endswith(_TAIL):
        return None
    head, dot, _ = raw[len(HEAD) : len(HEAD) + 40].partition(b".")
    text = head.decode("ascii", "replace")
    return text if dot and _ID.fullmatch(text) else None


def sealing(raw: bytes) -> set[str]:
    """Return the ids of all keys that sealed this payload, or parts of it. None did if it is not sealed."""
    if (whole := sealed_by(raw)) is not None:
        return {whole}
    return {key for found in _SEALED.finditer(raw) if (key := sealed_by(found[0])) is not None}


def keys_here(environ: Mapping[str, str], chance: Chance) -> Keyring | None:
    """Return the keys that the environment's variables name, or None if they name none."""
    text, file = environ.get(KEYS, ""), environ.get(KEYS_FILE, "")
    if text and file:
        raise InvalidSettings(f"{KEYS} and {KEYS_FILE} are both set: use one of them")
    if file:
        try:
            text = Path(file).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as wrong:
            raise InvalidSettings(f"{KEYS_FILE}: {file!r} cannot be read: {wrong}") from None
        if not text.strip():
            raise InvalidSettings(f"{KEYS_FILE}: {file!r} has no key: make one with `holdfast keys make`")
    return read_keys(text, KEYS_FILE if file else KEYS, chance) if text.strip() else None


def read_keys(text: str, where: str, chance: Chance) -> Keyring:
    """Read `ID:BASE64`, separated by commas or lines. An error never shows a key."""
    keys: dict[str, Key] = {}
    lines = [line for line in re.split(r"[,\n]", text) if line.strip() and not line.lstrip().startswith("#")]
    for number, line in enumerate(lines, 1):
        place = f"{where}, key {number}"
        key_id, colon, secret = line.strip().partition(":")
        if not colon or _ID.fullmatch(key_id) is None:
            raise InvalidSettings(
                f"{place}: a key is written ID:BASE64, and an id has up to 32 of a-z, 0-9, - and _: "
                "make one with `holdfast keys make`"
            )
        if key_id in keys:
            raise InvalidSettings(f"{place}: the id {key_id!r} is there twice")
        try:
            raw = base64.b64decode(secret.strip(), validate=True)
        except (binascii.Error, ValueError):
            raise InvalidSettings(f"{place} ({key_id}): what follows the colon is not base64") from None
        if len(raw) != KEY_BYTES:
            raise InvalidSettings(f"{place} ({key_id}): it has {len(raw)} bytes, a key has {KEY_BYTES}")
        keys[key_id] = Key(key_id, raw, chance)
    return Keyring(keys.values())


def written_key(id: str, secret: bytes) -> str:
    """Return a key as `read_keys` reads it. Raise InvalidSettings if the id cannot be one."""
    if _ID.fullmatch(id) is None:
        raise InvalidSettings(f"{id!r} cannot be the id of a key: use up to 32 of a-z, 0-9, - and _")
    return f"{id}:{base64.b64encode(secret).decode()}"


def _cipher(secret: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415  only who has keys needs it
    except ImportError:
        raise InvalidSettings(f"{KEYS} needs a library: pip install 'holdfast[seal]'") from None
    return AESGCM(secret)
