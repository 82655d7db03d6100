"""Hooks, for operators: list, make, rotate and remove them. And what a webhook becomes: an event.

Whoever may steer a namespace may make its hooks. A secret is shown when it is made, and never again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from holdfast.access import Act, Identity, local
from holdfast.access.signatures import HEADER, SECRET_BYTES, Scheme, Signed, new_secret, read_secret, verified
from holdfast.actor import Via
from holdfast.desk.events import EventDesk
from holdfast.desk.opened import Opened
from holdfast.errors import InvalidInput, UnknownHook
from holdfast.model import DEFAULT_NAMESPACE, HookRow, NewHook
from holdfast.namespaces import bare, stored
from holdfast.store.events import Emitted
from holdfast.store.store import Store
from holdfast.wire.cloudevents import CloudEvent, Sound, data_of, made_event

LIST_MAX = 1000
GRACE_MAX_S = 30 * 86_400.0
UNNAMED = "received"
"""The type of an event whose sender names none."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,49}")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")


class HookMade(NamedTuple):
    hook: HookRow
    secret: str
    """The secret, which nobody can read again."""


class HookDesk(Protocol):
    """What operators may ask about hooks."""

    async def list(self, who: Identity) -> list[HookRow]: ...
    async def create(
        self, who: Identity, name: str, scheme: Scheme, secret: str | None = None, header: str | None = None
    ) -> HookMade: ...
    async def rotate(
        self, who: Identity, name: str, secret: str | None = None, grace_s: float = 86_400.0
    ) -> HookMade: ...
    async def remove(self, who: Identity, name: str) -> None: ...


class LocalHookDesk:
    """A hook desk that works on the store."""

    def __init__(self, hf: Opened, events: EventDesk) -> None:
        self._hf, self._events = hf, events

    @property
    def _store(self) -> Store:
        return self._hf.store

    async def list(self, who: Identity) -> list[HookRow]:
        who.demand(Act.READ)
        return await self._store.hooks.hooks(_namespace(who), LIST_MAX)

    async def create(
        self, who: Identity, name: str, scheme: Scheme, secret: str | None = None, header: str | None = None
    ) -> HookMade:
        """Make a hook. Without a secret, one is made: the sender gets it."""
        who.demand(Act.STEER)
        if not _NAME.fullmatch(name):
            raise InvalidInput(
                f"name: {name[:60]!r} cannot be the name of a hook: it needs 1 to 50 small letters, digits, - or _"
            )
        if header is not None and (scheme is not Scheme.HMAC or not _HEADER.fullmatch(header)):
            raise InvalidInput("header: only the scheme hmac lets you name the header of the signature")
        text = secret or new_secret(scheme, self._hf.environment.secret(SECRET_BYTES))
        made = NewHook(
            stored(_namespace(who), name),
            _namespace(who),
            scheme,
            read_secret(scheme, text),
            (header or HEADER).lower(),
        )
        await self._store.hooks.add_hook(made, who.actor)
        return await self._made(made.name, text)

    async def rotate(
        self, who: Identity, name: str, secret: str | None = None, grace_s: float = 86_400.0
    ) -> HookMade:
        """Give a hook another secret. The one that it has is good for `grace_s` more, so that the sender can change."""
        who.demand(Act.STEER)
        if not 0 <= grace_s <= GRACE_MAX_S:
            raise InvalidInput("grace: expected at most 30 days")
        row = await self._known(who, name)
        scheme = Scheme(row.scheme)
        text = secret or new_secret(scheme, self._hf.environment.secret(SECRET_BYTES))
        await self._store.hooks.rotate_hook(row.name, read_secret(scheme, text), grace_s, who.actor)
        return await self._made(row.name, text)

    async def remove(self, who: Identity, name: str) -> None:
        """Remove a hook. What comes in there is refused from now on."""
        who.demand(Act.STEER)
        row = await self._known(who, name)
        await self._store.hooks.remove_hook(row.name, who.actor)

    async def _known(self, who: Identity, name: str) -> HookRow:
        row = await self._store.hooks.hook(stored(_namespace(who), name)) if _NAME.fullmatch(name) else None
        if row is None:
            raise UnknownHook.of(name)
        return row

    async def _made(self, name: str, text: str) -> HookMade:
        row = await self._store.hooks.hook(name)
        if row is None:
            raise UnknownHook.of(bare(name))
        return HookMade(row, text)

    # --- what comes in ------------------------------------------------------------------------------------------------

    async def receive(
        self, name: str | None, headers: Mapping[str, str], body: bytes, sound: Sound
    ) -> Emitted | None:
        """Take a webhook, which becomes an event. None if there is no such hook, or the signature is not good: which of
        the two nobody learns."""
        row = None if name is None else await self._store.hooks.hook(name)
        now = self._hf.environment.now()
        scheme = Scheme.STANDARD if row is None else Scheme(row.scheme)
        signed = verified(
            scheme, secrets_of(row, now), headers, body, now, HEADER if row is None else row.header
        )
        if row is None or signed is None:
            return None
        event = event_of(row, signed, headers, body, sound)
        (found,) = await self._events.emit(local(f"hook {bare(row.name)}", row.namespace, Via.HOOK), [event])
        return found


def _namespace(who: Identity) -> str:
    return who.namespace or DEFAULT_NAMESPACE


def secrets_of(row: HookRow | None, now: float) -> list[bytes]:
    """Return the secrets that are good now."""
    if row is None:
        return []
    old = row.old_secret is not None and row.old_until is not None and now < row.old_until
    return [row.secret, row.old_secret] if old and row.old_secret is not None else [row.secret]


def event_of(
    row: HookRow, signed: Signed, headers: Mapping[str, str], body: bytes, sound: Sound
) -> CloudEvent:
    """Return the event that a verified webhook is. Its type begins with the hook's name, so that nobody outside can send
    events of other types."""
    name, scheme = bare(row.name), Scheme(row.scheme)
    data = data_of(body, headers.get("content-type", ""), "the body", sound)
    said = _members(data)
    kind = headers.get("x-github-event") if scheme is Scheme.GITHUB else said.get("type")
    number = said.get("id") if scheme is Scheme.STRIPE else signed.id
    given: dict[str, Any] = {
        "type": f"{name}.{kind if isinstance(kind, str) and kind else UNNAMED}",
        "source": f"hook:{name}",
        "id": number if isinstance(number, str) and number else hashlib.sha256(body).hexdigest(),
    }
    if signed.at is not None:
        given["time"] = datetime.fromtimestamp(signed.at, UTC).isoformat()
    if delivery := headers.get("x-github-delivery"):
        given["delivery"] = delivery
    return made_event(given, data)


def _members(data: bytes) -> dict[str, Any]:
    found: Any = msgspec.json.decode(data)
    return found if isinstance(found, dict) else {}
