"""Values that nobody is shown: card numbers, passwords, tokens.

A `Secret[str]` is written as `{"$secret": "…"}` inside its payload. Payloads with secrets go only into sealed stores, and
whatever people read has dots in its place. What a secret says is also taken out of recorded errors and logs.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any, Generic, TypeVar

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
        self.known: OrderedDict[str, None] = OrderedDict()
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
    text = value if isinstance(value, str) else str(value) if isinstance(value, int) else ""
    if len(text) >= SHORTEST:
        for one in {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}:
            _state.known[one] = None
            _state.known.move_to_end(one)
        while len(_state.known) > KNOWN_MAX:
            _state.known.popitem(last=False)


def redacted(text: str) -> str:
    """Return a text without the secrets that this process knows."""
    for known in _state.known:
        if known in text:
            text = text.replace(known, DOTS)
    return text


def masked(value: Any) -> Any:
    """Return plain JSON with dots in the place of each secret."""
    if isinstance(value, dict):
        if len(value) == 1 and NAME in value:
            return DOTS
        return {name: masked(one) for name, one in value.items()}
    return [masked(one) for one in value] if isinstance(value, list) else value


def masked_json(raw: bytes) -> bytes:
    """Return a payload with dots in the place of each secret. Most have none, and come back as they are."""
    if MARK not in raw:
        return raw
    try:
        return msgspec.json.encode(masked(msgspec.json.decode(raw)))
    except (msgspec.DecodeError, RecursionError):
        return msgspec.json.encode(DOTS)


def demand_no_secret(raw: bytes, what: str) -> None:
    """Raise InvalidInput if there is a secret in what everybody may read."""
    if MARK in raw:
        raise InvalidInput(
            f"{what} can be read by everybody, so a Secret cannot be among them: give a name by which a step finds it"
        )


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
