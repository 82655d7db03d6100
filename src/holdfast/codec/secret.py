"""Values that nobody is shown: card numbers, passwords, tokens.

A `Secret[str]` is written as `{"$secret": "…"}` inside its payload. Payloads with secrets go only into sealed stores, and
whatever people read has dots in its place. What a secret says is also taken out of recorded errors and logs.
"""

from __future__ import annotations

import base64
import json
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Generic, TypeVar
from urllib.parse import quote, quote_plus

import msgspec

from holdfast.errors import InvalidInput, InvalidSettings

T = TypeVar("T")

NAME = "$secret"
MARK = b'"$secret"'
DOTS = "•••"
KNOWN_MAX = 1000
"""How many of the newest secrets are looked for in errors and logs. Each costs a search there."""
SHORTEST = 4
"""Shorter texts are not looked for: they occur by chance, and taking them out would say what they are."""


class _State:
    """What this process knows about secrets."""

    def __init__(self) -> None:
        self.known: OrderedDict[str, set[str]] = OrderedDict()
        """Secrets, each in all its spellings."""
        self.is_used = False
        self.unsealed: list[str] = []
        """The stores without keys that are open."""
        self.is_sealed = False
        """True if a store is open whose payloads are sealed."""


_state = _State()


class Secret(msgspec.Struct, Generic[T], frozen=True, rename={"value": NAME}):
    """A value that is never shown. `secret.value` is what it says: pass it on, and do not keep it.

    ```python
    @step
    async def charge(card: Secret[str], cents: int) -> str: ...


    await hf.start(order, Secret("4242 4242 4242 4242"))
    ```

    It needs a store whose payloads are sealed (`HOLDFAST_KEYS`). Fair keys, limits, ids, tags and notes are readable by
    everybody, so a secret is refused there.
    """

    value: T

    def __post_init__(self) -> None:
        _state.is_used = True
        if _state.unsealed:
            raise _unsealed(_state.unsealed[0])
        _remember(self.value)

    def __repr__(self) -> str:
        return f"Secret({DOTS})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)


def _remember(value: object) -> None:
    for text in _texts(_plain(value)):
        if len(text) >= SHORTEST:
            _state.known[text] = _spellings(text)
            _state.known.move_to_end(text)
    while len(_state.known) > KNOWN_MAX:
        _state.known.popitem(last=False)


def _plain(value: object) -> Any:
    if isinstance(value, bytes):
        return [value.decode(errors="ignore"), base64.b64encode(value).decode()]
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _texts(value: Any) -> Iterator[str]:
    """Return the texts in a secret, which may be an object with several."""
    if isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)


def _spellings(text: str) -> set[str]:
    """Return a text as it stands in JSON, in what Python prints, and in an address."""
    return {
        text,
        json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
        repr(text)[1:-1],
        quote(text, errors="replace"),
        quote(text, safe="", errors="replace"),
        quote_plus(text, errors="replace"),
    }


def redacted(text: str) -> str:
    """Return a text without the secrets that this process knows. A longer one may begin with a shorter one."""
    found = (one for spellings in _state.known.values() for one in spellings if one in text)
    for known in sorted(found, key=len, reverse=True):
        text = text.replace(known, DOTS)
    return text


def redacted_bytes(raw: bytes) -> bytes:
    return redacted(raw.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def redacted_json(value: Any) -> Any:
    """Return plain JSON without the secrets that this process knows, in whatever text of it they are."""
    if not _state.known:
        return value
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, dict):
        return {redacted(name): redacted_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [redacted_json(one) for one in value]
    if isinstance(value, int | float) and (said := str(value)) != redacted(said):
        return DOTS
    return value


def masked(value: Any) -> Any:
    """Return plain JSON with dots in the place of each secret."""
    if isinstance(value, dict):
        if len(value) == 1 and NAME in value:
            return DOTS
        return {name: masked(one) for name, one in value.items()}
    return [masked(one) for one in value] if isinstance(value, list) else value


def masked_json(raw: bytes) -> bytes:
    """Return a payload with dots in the place of each secret. Most have none, and come back as they are."""
    if not _may_have(raw):
        return raw
    try:
        return msgspec.json.encode(masked(msgspec.json.decode(raw)))
    except (msgspec.DecodeError, RecursionError):
        return msgspec.json.encode(DOTS)


def demand_no_secret(raw: bytes, what: str) -> None:
    """Raise InvalidInput if there is a secret in what everybody may read."""
    if _has(raw):
        raise InvalidInput(
            f"{what} can be read by everybody, so a Secret cannot be among them: give a name by which a step finds it"
        )


def demand_sealed(raw: bytes, what: str) -> None:
    """Raise InvalidInput if there is a secret in JSON that goes into a store without keys. Whoever sends it need not have the
    code, and then nobody makes a `Secret` of it here."""
    if _state.unsealed and _has(raw):
        raise InvalidInput(f"{what}: {_unsealed(_state.unsealed[0])}")


def _may_have(raw: bytes) -> bool:
    """False if there is certainly no secret in a payload. Senders may write any letter as its number."""
    return MARK in raw or b"\\u" in raw


def _has(raw: bytes) -> bool:
    if not _may_have(raw):
        return False
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return False  # whoever reads it says what is wrong
    return bool(masked(value) != value)


def enter_sealed() -> None:
    """Note that this process has opened payloads that are sealed where they are stored."""
    _state.is_sealed = True


def is_readable() -> bool:
    """True if what a payload says may stand in a note, which everybody reads."""
    return not _state.is_sealed


def enter_unsealed(store: str) -> None:
    """Note that a store without keys is open here. Raise InvalidSettings if this process uses secrets."""
    if _state.is_used:
        raise _unsealed(store)
    _state.unsealed.append(store)


def leave_unsealed(store: str) -> None:
    if store in _state.unsealed:
        _state.unsealed.remove(store)


def _unsealed(store: str) -> InvalidSettings:
    return InvalidSettings(
        f"a Secret needs sealed payloads, and {store} is open without keys: set HOLDFAST_KEYS (`holdfast keys make` makes one)"
    )
